//! Lists and mappings on one line (the flow style of YAML): `[a, b]`, `{ a: 1 }`; and quoted texts.

use super::{MAX_DEPTH, NodeValue, YamlNode, syntax};
use crate::error::{PlanError, PlanProblem, quoted};

/// Returns true if every bracket that a text opens is closed.
pub(super) fn is_closed(text: &str) -> bool {
    let (mut depth, mut quote, mut is_escaped) = (0_i32, None, false);
    for c in text.chars() {
        match (quote, c) {
            // In double quotes a backslash escapes the next character.
            (Some('"'), _) if is_escaped => is_escaped = false,
            (Some('"'), '\\') => is_escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth = depth.saturating_add(1),
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
    }
    // Below zero there is a closing bracket too many, which the reader reports.
    depth <= 0 && quote.is_none()
}

/// Reads one value in flow style; nothing but a comment may follow it.
pub(super) fn read_flow(text: &str, line: u32, depth: usize) -> Result<YamlNode, PlanError> {
    let mut reader = FlowReader { rest: text, line };
    let node = reader.read_node(depth)?;
    let after = reader.rest.trim_start();
    if after.is_empty() || after.starts_with('#') {
        Ok(node)
    } else {
        Err(syntax(line, format!("'{}' after a closing bracket", quoted(after))))
    }
}

/// Reads a quoted text; returns it, and the rest after it.
pub(super) fn read_quoted(text: &str, line: u32) -> Result<(String, &str), PlanError> {
    let unclosed = || syntax(line, "a quotation mark is not closed");
    let mut chars = text.char_indices();
    let (_, quote) = chars.next().ok_or_else(unclosed)?;
    let mut read = String::new();
    while let Some((at, c)) = chars.next() {
        let after = || text.get(at.saturating_add(1)..).unwrap_or_default();
        match c {
            '\'' if quote == '\'' => {
                // Inside single quotes, two single quotes stand for one.
                if !after().starts_with('\'') {
                    return Ok((read, after()));
                }
                read.push('\'');
                chars.next();
            }
            '"' if quote == '"' => return Ok((read, after())),
            '\\' if quote == '"' => {
                let (_, escaped) = chars.next().ok_or_else(unclosed)?;
                read.push(match escaped {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'u' => {
                        let digits: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                        code.ok_or_else(|| syntax(line, format!("'\\u{}' is no character", quoted(&digits))))?
                    }
                    '"' | '\\' | '/' => escaped,
                    other => return Err(syntax(line, format!("'\\{other}' is not a known escape"))),
                });
            }
            other => read.push(other),
        }
    }
    Err(unclosed())
}

/// The part of a value in flow style that is not read yet.
#[derive(Debug)]
struct FlowReader<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> FlowReader<'a> {
    fn read_node(&mut self, depth: usize) -> Result<YamlNode, PlanError> {
        if depth > MAX_DEPTH {
            return Err(syntax(self.line, format!("more than {MAX_DEPTH} levels")));
        }
        self.rest = self.rest.trim_start();
        let value = match self.rest.chars().next() {
            Some('[') => self.read_list(depth)?,
            Some('{') => self.read_map(depth)?,
            Some('"' | '\'') => {
                let (text, after) = read_quoted(self.rest, self.line)?;
                self.rest = after;
                NodeValue::Text { text, is_quoted: true }
            }
            Some('&' | '*' | '!') => {
                let problem = format!("'{}': anchors, aliases and tags are not read", quoted(self.rest));
                return Err(syntax(self.line, problem));
            }
            Some(_) | None => {
                let end = self.rest.find([',', ']', '}']).unwrap_or(self.rest.len());
                let text = self.take_to(end).trim().to_owned();
                NodeValue::Text { text, is_quoted: false }
            }
        };
        Ok(YamlNode { line: self.line, value })
    }

    fn read_list(&mut self, depth: usize) -> Result<NodeValue, PlanError> {
        let mut items = Vec::new();
        self.take_to(1);
        while !self.takes(']')? {
            items.push(self.read_node(depth.saturating_add(1))?);
            self.expect_separator(']')?;
        }
        Ok(NodeValue::List(items))
    }

    fn read_map(&mut self, depth: usize) -> Result<NodeValue, PlanError> {
        let mut entries: Vec<(String, YamlNode)> = Vec::new();
        self.take_to(1);
        while !self.takes('}')? {
            let key = self.read_key()?;
            if entries.iter().any(|(earlier, _)| *earlier == key) {
                let problem = PlanProblem::Duplicate(quoted(&key));
                return Err(PlanError { line: Some(self.line), field: String::new(), problem });
            }
            let node = self.read_node(depth.saturating_add(1))?;
            entries.push((key, node));
            self.expect_separator('}')?;
        }
        Ok(NodeValue::Map(entries))
    }

    fn read_key(&mut self) -> Result<String, PlanError> {
        let no_key = |rest: &str| syntax(0, format!("'{}' is not `key: value`", quoted(rest)));
        let at_line = |error: PlanError| PlanError { line: Some(self.line), ..error };
        if self.rest.starts_with(['"', '\'']) {
            let (key, after) = read_quoted(self.rest, self.line)?;
            let rest = after.trim_start().strip_prefix(':').ok_or_else(|| at_line(no_key(after)))?;
            self.rest = rest;
            return Ok(key);
        }
        let end = self.rest.find(':').ok_or_else(|| at_line(no_key(self.rest)))?;
        let key = self.rest.get(..end).unwrap_or_default();
        // `{ a, b: 1 }`: the colon found belongs to a later key.
        if key.contains([',', ']', '}', '{', '[']) || key.trim().is_empty() {
            return Err(at_line(no_key(self.rest)));
        }
        let key = key.trim().to_owned();
        self.take_to(end.saturating_add(1));
        Ok(key)
    }

    /// Takes the closing bracket if it is next; returns true if it was.
    fn takes(&mut self, close: char) -> Result<bool, PlanError> {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                Ok(true)
            }
            None if self.rest.is_empty() => Err(syntax(self.line, "a bracket is not closed")),
            None => Ok(false),
        }
    }

    /// Takes a comma; a closing bracket stays for the caller.
    fn expect_separator(&mut self, close: char) -> Result<(), PlanError> {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            return Ok(());
        }
        if self.rest.starts_with(close) {
            return Ok(());
        }
        Err(syntax(self.line, format!("'{}' where `,` or `{close}` belongs", quoted(self.rest))))
    }

    fn take_to(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }
}
