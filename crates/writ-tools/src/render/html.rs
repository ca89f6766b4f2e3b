//! The text of a web page: what a person would read, in order, with headings, list items, links and table cells marked.
//!
//! No tree is built and nothing is run. One pass over the text, so a page that is broken or made to be slow costs no
//! more than an honest one; what it says is external either way.

/// Elements of which nothing is read, up to their closing tag.
const UNREAD: [&str; 10] =
    ["script", "style", "template", "noscript", "svg", "math", "iframe", "object", "canvas", "audio"];
/// Elements that stand on lines of their own.
const BLOCKS: [&str; 22] = [
    "address",
    "article",
    "aside",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "html",
    "main",
    "nav",
    "option",
    "section",
    "summary",
    "tr",
];
/// Elements with an empty line before and after.
const APART: [&str; 8] = ["blockquote", "hr", "ol", "p", "pre", "table", "title", "ul"];
/// The longest link target that is shown, in characters.
const MAX_HREF_CHARS: usize = 300;
/// The longest name of an entity, in bytes: the longest that is known here has six.
const MAX_ENTITY_BYTES: usize = 12;

/// Returns true if an answer is a web page, by its media type or, where it has none, by its beginning.
pub(super) fn is_page(media: &str, text: &str) -> bool {
    let media = media.to_ascii_lowercase();
    if media.is_empty() {
        // Fourteen characters hold the longer of the two beginnings.
        let start: String = text.trim_start().chars().take(14).collect();
        let start = start.to_ascii_lowercase();
        return start.starts_with("<!doctype html") || start.starts_with("<html");
    }
    media.contains("text/html") || media.contains("application/xhtml")
}

/// The text of a page.
pub(crate) fn text_of(page: &str) -> String {
    // A scanner, not a parser: on broken pages it must stay linear and never fail.
    let mut out = TextOutput::default();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        out.add_words(before);
        rest = match read_tag(tag) {
            Some((HtmlToken::Nothing, after)) => after,
            Some((HtmlToken::Open { name, attributes }, after)) => {
                out.open_element(&name, attributes);
                // Scripts and styles have no text for readers.
                if UNREAD.contains(&name.as_str()) { after_closing(after, &name) } else { after }
            }
            Some((HtmlToken::Close { name }, after)) => {
                out.close_element(&name);
                after
            }
            None => {
                // A lone angle bracket is text.
                out.add_words("<");
                tag.get(1..).unwrap_or_default()
            }
        };
    }
    out.add_words(rest);
    out.text
}

enum HtmlToken<'a> {
    /// A comment or declaration.
    Nothing,
    Open {
        name: String,
        attributes: &'a str,
    },
    Close {
        name: String,
    },
}

/// Reads the tag that a text begins with, and what follows it; `None`: the `<` stands for itself.
fn read_tag(text: &str) -> Option<(HtmlToken<'_>, &str)> {
    let inner = text.get(1..)?;
    if let Some(comment) = inner.strip_prefix("!--") {
        return Some((HtmlToken::Nothing, comment.find("-->").map_or("", |end| text_after(comment, end, 3))));
    }
    if inner.starts_with(['!', '?']) {
        return Some((HtmlToken::Nothing, inner.find('>').map_or("", |end| text_after(inner, end, 1))));
    }
    let closes = inner.starts_with('/');
    let named = inner.strip_prefix('/').unwrap_or(inner);
    if !named.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return None;
    }
    let length = named.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/')).unwrap_or(named.len());
    let (name, attributes) = named.split_at(length);
    let end = end_of_tag(attributes);
    let name = name.to_ascii_lowercase();
    let rest = text_after(attributes, end, 1);
    let attributes = attributes.get(..end).unwrap_or_default();
    Some((if closes { HtmlToken::Close { name } } else { HtmlToken::Open { name, attributes } }, rest))
}

/// Returns the text after `skip` bytes at a place.
fn text_after(text: &str, at: usize, skip: usize) -> &str {
    text.get(at.saturating_add(skip)..).unwrap_or_default()
}

/// Returns the place of the `>` of a tag, which quotes can hide; the end of the text if there is none.
fn end_of_tag(attributes: &str) -> usize {
    let mut quote = None;
    for (at, c) in attributes.char_indices() {
        match (quote, c) {
            (None, '>') => return at,
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None | Some(_), _) => {}
        }
    }
    attributes.len()
}

/// Returns the text after the closing tag of an element; empty if it is never closed.
fn after_closing<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        let closing = text_after(rest, at, 2);
        let found = closing.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if found {
            return closing.find('>').map_or("", |end| text_after(closing, end, 1));
        }
        rest = closing;
    }
    ""
}

/// The value of an attribute, with its entities resolved.
fn find_attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return None;
        }
        let length = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let (name, tail) = rest.split_at(length);
        let Some(value) = tail.trim_start().strip_prefix('=') else {
            // An `=` at the very place is a name that begins with one: it goes, so that the loop ends.
            rest = tail;
            continue;
        };
        let value = value.trim_start();
        let (value, tail) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let inner = text_after(value, 0, 1);
                let end = inner.find(quote).unwrap_or(inner.len());
                (inner.get(..end).unwrap_or_default(), text_after(inner, end, 1))
            }
            Some(_) | None => value.split_at(value.find(char::is_whitespace).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(resolve_entities(value));
        }
        rest = tail;
    }
}

/// A text with its entities resolved.
fn resolve_entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, entity) = rest.split_at(at);
        out.push_str(before);
        // Only a short name can be an entity: the search for its end is bounded.
        let name = entity.as_bytes().iter().take(MAX_ENTITY_BYTES).position(|byte| *byte == b';');
        let known = name.and_then(|end| Some((entity_of(entity.get(1..end)?)?, end)));
        rest = match known {
            Some((c, end)) => {
                out.push(c);
                text_after(entity, end, 1)
            }
            None => {
                out.push('&');
                text_after(entity, 0, 1)
            }
        };
    }
    out.push_str(rest);
    out
}

/// The entities that pages are full of; others stay as they are written.
fn entity_of(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let number = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return number.ok().and_then(char::from_u32);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '–',
        "mdash" => '—',
        "hellip" => '…',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "laquo" => '«',
        "raquo" => '»',
        "bull" => '•',
        "middot" => '·',
        "times" => '×',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "euro" => '€',
        "deg" => '°',
        "auml" => 'ä',
        "ouml" => 'ö',
        "uuml" => 'ü',
        "Auml" => 'Ä',
        "Ouml" => 'Ö',
        "Uuml" => 'Ü',
        "szlig" => 'ß',
        "eacute" => 'é',
        "egrave" => 'è',
        _unknown => return None,
    })
}

/// The text as it grows. Spaces and line breaks wait until something follows them.
#[derive(Default)]
struct TextOutput {
    text: String,
    space: bool,
    newlines: usize,
    /// The number of open `pre` elements: in them, white space counts.
    pre: usize,
    /// True once a cell of this row has been read.
    cells: bool,
    /// The target of the open link, and where its text began.
    link: Option<(String, usize)>,
}

impl TextOutput {
    fn add_words(&mut self, raw: &str) {
        let text = resolve_entities(raw);
        if self.pre > 0 {
            // Line ends and blanks count in preformatted text.
            for c in text.chars() {
                match c {
                    '\n' => self.newlines = self.newlines.saturating_add(1).min(2),
                    c if c.is_control() && c != '\t' => {}
                    c => self.put_char(c),
                }
            }
            return;
        }
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
            } else if !c.is_control() {
                self.put_char(c);
            }
        }
    }

    fn put_char(&mut self, c: char) {
        if !self.text.is_empty() && self.newlines > 0 {
            self.text.extend(std::iter::repeat_n('\n', self.newlines));
        } else if self.space && !self.text.is_empty() {
            self.text.push(' ');
        }
        self.newlines = 0;
        self.space = false;
        self.text.push(c);
    }

    fn put_mark(&mut self, mark: &str) {
        mark.chars().for_each(|c| self.put_char(c));
        self.space = true;
    }

    fn break_lines(&mut self, count: usize) {
        self.newlines = self.newlines.max(count);
        self.space = false;
    }

    fn open_element(&mut self, name: &str, attributes: &str) {
        match name {
            "br" => self.break_lines(1),
            "li" => {
                self.break_lines(1);
                self.put_mark("-");
            }
            "tr" => self.cells = false,
            "td" | "th" if self.cells => {
                self.space = true;
                self.put_mark("|");
            }
            "a" => self.link = find_attribute(attributes, "href").map(|href| (href, self.text.len())),
            "img" => {
                let alt = find_attribute(attributes, "alt").filter(|alt| !alt.trim().is_empty());
                if let Some(alt) = alt {
                    self.add_words(&format!("[{alt}]"));
                }
            }
            "pre" => self.pre = self.pre.saturating_add(1),
            _other => {}
        }
        self.stand_alone(name);
        if let Some(level) = heading_level(name) {
            self.break_lines(2);
            self.put_mark(&"#".repeat(level));
        }
    }

    fn close_element(&mut self, name: &str) {
        match name {
            "td" | "th" => self.cells = true,
            "pre" => self.pre = self.pre.saturating_sub(1),
            "a" => self.end_link(),
            _other => {}
        }
        self.stand_alone(name);
        if heading_level(name).is_some() {
            self.break_lines(2);
        }
    }

    /// Lines before and after an element.
    fn stand_alone(&mut self, name: &str) {
        if APART.contains(&name) {
            self.break_lines(2);
        } else if BLOCKS.contains(&name) {
            self.break_lines(1);
        }
    }

    /// Writes the target of a link behind its text.
    fn end_link(&mut self) {
        let Some((href, began)) = self.link.take() else { return };
        // The link's own text, to leave out a target that repeats it.
        let own = self.text.get(began..).unwrap_or_default().trim();
        let href: String = href.trim().chars().filter(|c| !c.is_control()).take(MAX_HREF_CHARS).collect();
        let leads = !href.is_empty() && !href.starts_with('#') && !href.starts_with("javascript:");
        if leads && !own.is_empty() && own != href {
            self.space = true;
            format!("({href})").chars().for_each(|c| self.put_char(c));
        }
    }
}

/// The level of a heading.
fn heading_level(name: &str) -> Option<usize> {
    match name.as_bytes() {
        [b'h', level @ b'1'..=b'6'] => Some(usize::from(level - b'0')),
        _other => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_becomes_what_a_person_reads() {
        let page = r##"<!DOCTYPE html><html><head><meta charset=utf-8><title>A &amp; B</title>
            <style>p { color: red }</style><script>if (1 < 2) steal("</p>")</script></head>
            <body><!-- <p>unseen</p> --><h2>One</h2><p>First   line<br>second&nbsp;&#8212; third</p>
            <ul><li>a</li><li><a href="/x?a=1&amp;b=2" class="q>r">link</a></li></ul>
            <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>
            <pre>a
  b</pre><img src=x alt="a picture"><a href="#top">top</a> 1 < 2 &unknown; &
            <svg><text>no</text></svg><noscript>no</noscript><template><p>no</p></template></body></html>"##;
        let expected = "A & B\n\n## One\n\nFirst line\nsecond — third\n\n- a\n- link (/x?a=1&b=2)\n\n\
                        k | v\n1 | 2\n\na\n  b\n\n[a picture]top 1 < 2 &unknown; &";
        assert_eq!(text_of(page), expected);
    }

    #[test]
    fn broken_pages_end() {
        for (page, text) in [
            ("", ""),
            ("a < b", "a < b"),
            ("<", "<"),
            ("<p", ""),
            ("a<!-- b", "a"),
            ("a<script>b", "a"),
            ("a<script>b</SCRIPT >c", "ac"),
            ("a<b c='>' d>e", "ae"),
            ("a<b c='>e", "a"),
            ("<a href==>x</a>", "x (=)"),
            ("<a = = href=y>x</a>", "x (y)"),
            ("<a href>x</a>", "x"),
            ("&#x110000;&#xd800;&#0065;&;", "&#x110000;&#xd800;A&;"),
            ("<a href='https://e.example/'>https://e.example/</a>", "https://e.example/"),
            ("<a href='javascript:x()'>x</a>", "x"),
            ("a\u{1b}[2Jb", "a[2Jb"),
        ] {
            assert_eq!(text_of(page), text, "{page:?}");
        }
    }

    #[test]
    fn pages_are_known_by_their_media_type_or_beginning() {
        assert!(is_page("text/html; charset=utf-8", "") && is_page("application/xhtml+xml", ""));
        assert!(is_page("", " \n<!DOCTYPE html>") && is_page("", "<html>"));
        assert!(
            !is_page("text/plain", "<html>") && !is_page("", "<svg>") && !is_page("application/json", "{")
        );
    }

    proptest! {
        #[test]
        fn whatever_it_is_it_ends_within_bounds(page in r#"[<>/!&;#a-b"'= \-\n]{0,200}|(<(/)?(a|li|h6|pre|td|tr|script|p|img)( href='?x)?>|[ab&<] ?){0,60}"#) {
            let text = text_of(&page);
            prop_assert!(text.len() <= 3 * page.len() + 16, "{} of {}", text.len(), page.len());
            prop_assert!(!text.contains("\n\n\n"));
        }
    }
}
