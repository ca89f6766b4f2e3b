//! The part of YAML that front matter uses: mappings, lists, plain, quoted and block texts, and their short forms.
//!
//! Anchors, aliases, tags and several documents are refused: they make small texts expand or mean what their reader
//! does not see. Values keep their line, and stay texts until a field says what it is.

use serde_json::{Map, Number, Value};

use crate::error::{PlanError, PlanProblem, quoted};

mod flow;

/// The deepest nesting: `steps`, a step, its checks, a check, its expectation, and a value inside it, with room.
pub(crate) const MAX_DEPTH: usize = 12;
/// The most keys of one mapping, and items of one list: a plan has far fewer of each.
const MAX_ENTRIES: usize = 1_000;
/// The most lines of one short form.
const MAX_FLOW_LINES: usize = 200;

/// A value with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlNode {
    pub(crate) line: u32,
    pub(crate) value: NodeValue,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeValue {
    /// A text; plain ones may mean numbers and truth values.
    Text {
        text: String,
        is_quoted: bool,
    },
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

impl YamlNode {
    /// Returns the deepest node on a path of keys and numbers joined by dots.
    pub(crate) fn find_deepest(&self, path: &str) -> &Self {
        let mut node = self;
        for part in path.split('.') {
            let inner = match &node.value {
                NodeValue::Map(entries) => entries.iter().find(|(key, _)| key == part).map(|(_, node)| node),
                NodeValue::List(items) => part.parse().ok().and_then(|n: usize| items.get(n)),
                NodeValue::Text { .. } => None,
            };
            let Some(inner) = inner else { break };
            node = inner;
        }
        node
    }

    /// Converts it to JSON, plain texts as in the core schema of YAML 1.2.
    pub(crate) fn to_json(&self) -> Value {
        match &self.value {
            NodeValue::Text { text, is_quoted: true } => Value::String(text.clone()),
            NodeValue::Text { text, is_quoted: false } => plain_to_json(text),
            NodeValue::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            NodeValue::Map(entries) => {
                let entries = entries.iter().map(|(key, node)| (key.clone(), node.to_json()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }
}

/// Returns true if a plain text would be read as a text and nothing else.
pub(crate) fn is_plain_text(text: &str) -> bool {
    matches!(plain_to_json(text), Value::String(_))
}

fn plain_to_json(text: &str) -> Value {
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        // JSON's numbers are those that two readers agree on; `0x1f` and `1_000` stay texts.
        number => number.parse::<Number>().map_or_else(|_| Value::String(number.to_owned()), Value::Number),
    }
}

/// Reads front matter; its first line has the number `first_line`.
///
/// # Errors
///
/// If it is not in the part of YAML that is read, with the line.
pub(crate) fn read_yaml(text: &str, first_line: u32) -> Result<YamlNode, PlanError> {
    let lines: Vec<YamlLine<'_>> =
        (first_line..).zip(text.lines()).map(|(number, text)| YamlLine::new(number, text)).collect();
    let mut reader = YamlReader { lines, at: 0 };
    let Some(first) = reader.peek()? else {
        return Ok(YamlNode { line: first_line, value: NodeValue::Map(Vec::new()) });
    };
    let node = reader.read_block(first.indent, 0)?;
    match reader.peek()? {
        None => Ok(node),
        Some(line) => Err(syntax(line.number, "this line is indented unlike those before it")),
    }
}

/// Creates an error of syntax.
pub(super) fn syntax(line: u32, problem: impl Into<String>) -> PlanError {
    PlanError { line: Some(line), field: String::new(), problem: PlanProblem::Syntax(problem.into()) }
}

fn check_size(count: usize, line: u32) -> Result<(), PlanError> {
    if count < MAX_ENTRIES { Ok(()) } else { Err(syntax(line, format!("more than {MAX_ENTRIES} entries"))) }
}

/// A line without its indentation.
#[derive(Clone, Copy, Debug)]
struct YamlLine<'a> {
    number: u32,
    indent: usize,
    text: &'a str,
}

impl<'a> YamlLine<'a> {
    fn new(number: u32, line: &'a str) -> Self {
        let text = line.trim_start_matches(' ');
        Self { number, indent: line.len().saturating_sub(text.len()), text: text.trim_end() }
    }

    fn is_blank(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('#')
    }

    fn is_item(&self) -> bool {
        // `-5` is a text; only a mark with a blank behind it begins an item.
        self.text == "-" || self.text.starts_with("- ")
    }
}

/// Lines that are read one after another.
#[derive(Debug)]
struct YamlReader<'a> {
    lines: Vec<YamlLine<'a>>,
    at: usize,
}

impl<'a> YamlReader<'a> {
    /// Returns the next line that holds something, without taking it.
    fn peek(&mut self) -> Result<Option<YamlLine<'a>>, PlanError> {
        while let Some(line) = self.lines.get(self.at) {
            if line.text.starts_with('\t') {
                return Err(syntax(line.number, "a tab; YAML is indented by spaces"));
            }
            if !line.is_blank() {
                return Ok(Some(*line));
            }
            self.at = self.at.saturating_add(1);
        }
        Ok(None)
    }

    /// Puts the rest of the current line in its place, as if it stood alone at its column.
    fn replace_by_rest(&mut self, line: YamlLine<'a>, rest: &'a str) {
        let skipped = line.text.len().saturating_sub(rest.len());
        let rest = YamlLine { indent: line.indent.saturating_add(skipped), text: rest, ..line };
        if let Some(place) = self.lines.get_mut(self.at) {
            *place = rest;
        }
    }

    fn read_block(&mut self, indent: usize, depth: usize) -> Result<YamlNode, PlanError> {
        let Some(line) = self.peek()? else { return Err(syntax(0, "something is missing at the end")) };
        if depth > MAX_DEPTH {
            return Err(syntax(line.number, format!("more than {MAX_DEPTH} levels")));
        }
        if line.is_item() { self.read_list(line, indent, depth) } else { self.read_map(line, indent, depth) }
    }

    fn read_list(&mut self, first: YamlLine<'a>, indent: usize, depth: usize) -> Result<YamlNode, PlanError> {
        let mut items = Vec::new();
        while let Some(line) = self.peek()? {
            if line.indent != indent || !line.is_item() {
                break;
            }
            check_size(items.len(), line.number)?;
            let rest = line.text.get(1..).unwrap_or_default().trim_start();
            let is_block = split_key(rest).is_some() || rest == "-" || rest.starts_with("- ");
            if is_block {
                // `- key: value` begins a mapping in the column of its key.
                self.replace_by_rest(line, rest);
                let column = line.indent.saturating_add(line.text.len().saturating_sub(rest.len()));
                items.push(self.read_block(column, depth.saturating_add(1))?);
            } else {
                self.at = self.at.saturating_add(1);
                items.push(self.read_value(line, rest, indent, depth)?);
            }
        }
        Ok(YamlNode { line: first.number, value: NodeValue::List(items) })
    }

    fn read_map(&mut self, first: YamlLine<'a>, indent: usize, depth: usize) -> Result<YamlNode, PlanError> {
        let mut entries: Vec<(String, YamlNode)> = Vec::new();
        while let Some(line) = self.peek()? {
            if line.indent != indent || line.is_item() {
                break;
            }
            let Some((key, rest)) = split_key(line.text) else {
                return Err(syntax(line.number, format!("'{}' is not `key: value`", quoted(line.text))));
            };
            // Readers disagree which of two values counts: people might approve one, and the other be run.
            if entries.iter().any(|(earlier, _)| *earlier == key) {
                let problem = PlanProblem::Duplicate(quoted(&key));
                return Err(PlanError { line: Some(line.number), field: String::new(), problem });
            }
            check_size(entries.len(), line.number)?;
            self.at = self.at.saturating_add(1);
            let node = self.read_value(line, rest, indent, depth)?;
            entries.push((key, node));
        }
        Ok(YamlNode { line: first.number, value: NodeValue::Map(entries) })
    }

    /// Reads what follows `key:` or `-`: the rest of the line, or the lines that are indented more.
    fn read_value(
        &mut self,
        line: YamlLine<'a>,
        rest: &'a str,
        indent: usize,
        depth: usize,
    ) -> Result<YamlNode, PlanError> {
        let node = |value| YamlNode { line: line.number, value };
        match rest.chars().next() {
            None | Some('#') => self.read_nested(line, indent, depth),
            Some('|' | '>') => {
                let text = self.read_block_text(line, rest, indent)?;
                Ok(node(NodeValue::Text { text, is_quoted: true }))
            }
            Some('[' | '{') => {
                let text = self.collect_flow(line, rest)?;
                flow::read_flow(&text, line.number, depth)
            }
            Some('"' | '\'') => {
                let (text, after) = flow::read_quoted(rest, line.number)?;
                let is_end = after.trim_start().is_empty() || after.trim_start().starts_with('#');
                if !is_end {
                    return Err(syntax(
                        line.number,
                        format!("'{}' after a quoted text", quoted(after.trim())),
                    ));
                }
                Ok(node(NodeValue::Text { text, is_quoted: true }))
            }
            Some('&' | '*' | '!' | '%' | '@' | '`') => Err(syntax(
                line.number,
                format!("'{}': anchors, aliases and tags are not read", quoted(rest)),
            )),
            Some(_) => {
                // YAML would join such lines; planners write them by mistake more often than on purpose.
                if self.peek()?.is_some_and(|next| next.indent > indent) {
                    let problem = "a text over several lines; begin it with `|`";
                    return Err(syntax(line.number, problem));
                }
                let text = without_comment(rest).to_owned();
                Ok(node(NodeValue::Text { text, is_quoted: false }))
            }
        }
    }

    fn read_nested(
        &mut self,
        line: YamlLine<'a>,
        indent: usize,
        depth: usize,
    ) -> Result<YamlNode, PlanError> {
        match self.peek()? {
            // A list may stand in the column of its key.
            Some(next)
                if next.indent > indent || next.indent == indent && next.is_item() && !line.is_item() =>
            {
                self.read_block(next.indent, depth.saturating_add(1))
            }
            Some(_) | None => {
                let value = NodeValue::Text { text: String::new(), is_quoted: false };
                Ok(YamlNode { line: line.number, value })
            }
        }
    }

    /// Reads the lines of `|` (line breaks stay) or `>` (they become spaces).
    fn read_block_text(
        &mut self,
        line: YamlLine<'a>,
        rest: &str,
        indent: usize,
    ) -> Result<String, PlanError> {
        let mark = without_comment(rest);
        if !matches!(mark, "|" | "|-" | "|+" | ">" | ">-" | ">+") {
            return Err(syntax(line.number, format!("'{}' is not `|` or `>`", quoted(mark))));
        }
        let mut column = None;
        let mut lines = Vec::new();
        while let Some(next) = self.lines.get(self.at) {
            if !next.text.is_empty() && next.indent <= indent {
                break;
            }
            let start = *column.get_or_insert(next.indent.max(indent.saturating_add(1)));
            if !next.text.is_empty() && next.indent < start {
                return Err(syntax(next.number, "a line of the text is indented less than its first"));
            }
            lines.push(format!("{}{}", " ".repeat(next.indent.saturating_sub(start)), next.text));
            self.at = self.at.saturating_add(1);
        }
        // Empty lines before the next key belong to the layout, also where `+` asks for them.
        while lines.last().is_some_and(|last| last.trim().is_empty()) {
            lines.pop();
        }
        Ok(if mark.starts_with('|') { lines.join("\n") } else { lines.join(" ") })
    }

    /// Joins the lines of a short form, up to the bracket that closes it.
    fn collect_flow(&mut self, line: YamlLine<'a>, rest: &str) -> Result<String, PlanError> {
        let (mut text, mut lines) = (rest.to_owned(), 1_usize);
        while !flow::is_closed(&text) {
            lines = lines.saturating_add(1);
            if lines > MAX_FLOW_LINES {
                return Err(syntax(
                    line.number,
                    format!("a bracket is not closed within {MAX_FLOW_LINES} lines"),
                ));
            }
            let Some(next) = self.peek()? else {
                return Err(syntax(line.number, "a bracket is not closed"));
            };
            text.push(' ');
            text.push_str(next.text);
            self.at = self.at.saturating_add(1);
        }
        Ok(text)
    }
}

/// Splits `key: rest`; the key may be quoted.
pub(crate) fn split_key(text: &str) -> Option<(String, &str)> {
    if text.starts_with(['"', '\'']) {
        let (key, after) = flow::read_quoted(text, 0).ok()?;
        let rest = after.trim_start().strip_prefix(':')?;
        return Some((key, rest.trim_start()));
    }
    let end = text.find(": ").or_else(|| text.strip_suffix(':').map(str::len))?;
    let (key, rest) = text.split_at(end);
    let is_key = !key.is_empty() && !key.starts_with(['[', '{', '#', '&', '*', '!']);
    is_key.then(|| (key.trim_end().to_owned(), rest.get(1..).unwrap_or_default().trim_start()))
}

/// Cuts a comment off a plain text.
fn without_comment(text: &str) -> &str {
    text.find(" #").map_or(text, |at| text.get(..at).unwrap_or(text)).trim_end()
}

#[cfg(test)]
mod tests;
