//! The index of the documents, made from their front matter.

/// The longest text of one field in the index, in characters.
const MAX_FIELD_CHARS: usize = 300;

/// The lines of front matter that are read.
const MAX_FRONT_LINES: usize = 100;

/// The words at the top of the index.
const HEAD: &str = "\
# Documents

Writ makes this list of the files beside it; a change here is overwritten. Any file NAME.md can be added to this folder. A document
says in its front matter what it is about (`summary`) and when to read it (`read_when`).
";

/// A row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexRow {
    /// The name of the file.
    pub(super) name: String,
    /// Its front matter.
    pub(super) front: FrontMatter,
}

/// The front matter of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FrontMatter {
    summary: Option<String>,
    read_when: Option<String>,
    written_by: Option<String>,
    rests_on: Option<String>,
    /// The part that is missing or that nobody can read.
    note: Option<String>,
}

impl FrontMatter {
    /// Returns the front matter of a file that cannot be read.
    pub(super) fn unreadable() -> Self {
        Self { note: Some("the file cannot be read".to_owned()), ..Self::default() }
    }

    /// Returns true if the agent has written the document.
    pub(super) fn is_by_agent(&self) -> bool {
        self.written_by.as_deref() == Some("agent")
    }

    fn set_field(&mut self, key: &str, value: String) {
        let field = match key {
            "summary" => &mut self.summary,
            "read_when" => &mut self.read_when,
            "written_by" => &mut self.written_by,
            "rests_on" => &mut self.rests_on,
            _ => return,
        };
        if !value.is_empty() {
            *field = Some(value);
        }
    }

    /// Adds an item of a list to the field that it stands below.
    fn add_item(&mut self, key: &str, item: &str) {
        if key == "read_when" {
            let list = self.read_when.take().map(|list| format!("{list}; {item}"));
            self.read_when = Some(list.unwrap_or_else(|| item.to_owned()));
        }
    }
}

/// Reads the front matter at the beginning of a document. It is no full YAML: a line that is none of `key: value`, an item of a
/// list or a comment is noted with its number, and the others count.
pub(super) fn read_front_matter(head: &str) -> FrontMatter {
    let mut front = FrontMatter::default();
    let mut lines = head.trim_start_matches('\u{feff}').lines().map(str::trim_end);
    if lines.next() != Some("---") {
        front.note = Some("no front matter".to_owned());
        return front;
    }
    let (mut key, mut is_closed) = (String::new(), false);
    for (number, line) in (2_usize..).zip(lines).take(MAX_FRONT_LINES) {
        if line == "---" {
            is_closed = true;
            break;
        }
        let is_inner = line.starts_with([' ', '\t', '-']);
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        // An item belongs to the key above it.
        if let Some(item) = trimmed.strip_prefix("- ").filter(|_| is_inner) {
            front.add_item(&key, &plain_value(item));
            continue;
        }
        match line.split_once(':').filter(|(name, _)| !is_inner && is_key(name)) {
            Some((name, value)) => {
                name.clone_into(&mut key);
                front.set_field(name, plain_value(value));
            }
            None => {
                front.note.get_or_insert_with(|| format!("line {number} of its front matter is malformed"));
            }
        }
    }
    // Without an end, the text itself was read as front matter.
    if !is_closed {
        front.note = Some("its front matter has no end".to_owned());
    } else if front.summary.is_none() && front.note.is_none() {
        front.note = Some("no summary".to_owned());
    }
    front
}

fn is_key(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Returns a value without its quotes; the items of a list in brackets are joined.
fn plain_value(value: &str) -> String {
    let value = value.trim();
    match value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(list) => {
            let items: Vec<String> = list.split(',').map(unquote).filter(|item| !item.is_empty()).collect();
            items.join("; ")
        }
        None => unquote(value),
    }
}

fn unquote(value: &str) -> String {
    let value = value.trim();
    let within = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match (within('"'), within('\'')) {
        (Some(text), _) => text.replace("\\\"", "\"").replace("\\\\", "\\"),
        (None, Some(text)) => text.replace("''", "'"),
        (None, None) => value.to_owned(),
    }
}

/// Returns the text of the index.
pub(super) fn render_index(rows: &[IndexRow], others: usize) -> String {
    let mut text = HEAD.to_owned();
    if !rows.is_empty() {
        text.push('\n');
    }
    for row in rows {
        text.push_str(&render_row(row));
        text.push('\n');
    }
    // A file that is missing in a list without a word would be looked for in vain.
    if others > 0 {
        text.push_str(&format!("\nFiles and folders that are not listed: {others}\n"));
    }
    text
}

fn render_row(row: &IndexRow) -> String {
    let front = &row.front;
    let mut line = format!("- `{}`", plain_line(&row.name));
    if let Some(summary) = &front.summary {
        line.push_str(": ");
        line.push_str(&plain_line(summary));
    }
    if let Some(when) = &front.read_when {
        line.push_str(" | read when: ");
        line.push_str(&plain_line(when));
    }
    // The reader shall know how far to trust it.
    if front.is_by_agent() {
        let rests_on = front.rests_on.as_deref().unwrap_or("unknown");
        line.push_str(" | written by the agent, rests on: ");
        line.push_str(&plain_line(rests_on));
    }
    if let Some(note) = &front.note {
        line.push_str(" | (");
        line.push_str(note);
        line.push(')');
    }
    line
}

/// Returns a text as one visible line of bounded length, which cannot end the code that a name stands in.
fn plain_line(text: &str) -> String {
    writ_inspect::show::escape_line(text).replace('`', "'").chars().take(MAX_FIELD_CHARS).collect()
}
