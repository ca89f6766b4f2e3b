//! The facts about a failing assertion: the call, the function, its helpers and constants.

use serde_json::json;

use super::replay::{Halt, Replay};
use super::report::Failure;
use super::text::{self, NumberedLines, Token, TokenKind, after, first_line, indent, tokens};

/// The beginnings of assertions in the three languages.
const ASSERTIONS: [&str; 3] = ["assert_eq!(", "assertEqual(", "strictEqual("];

/// The words that begin a function.
const DEFINITIONS: [&str; 3] = ["fn", "def", "function"];

/// A piece of a file that may be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EditPlace {
    pub(crate) path: String,
    pub(crate) old: String,
}

/// A function as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFunction {
    pub(crate) name: String,
    pub(crate) params: Vec<String>,
    pub(crate) place: EditPlace,
}

/// A constant that the function names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedConstant {
    pub(crate) name: String,
    pub(crate) value: i64,
    /// The value in the project's documents.
    pub(crate) documented: Option<i64>,
    pub(crate) place: EditPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailureEvidence {
    pub(crate) failure: Failure,
    /// The arguments of the call that gave the wrong value.
    pub(crate) asked: Vec<Token>,
    /// The function that was called, then those of its file that it calls.
    pub(crate) functions: Vec<ReadFunction>,
    pub(crate) constants: Vec<NamedConstant>,
}

impl FailureEvidence {
    /// The file of the function.
    pub(crate) fn path(&self) -> &str {
        self.functions.first().map_or("", |function| function.place.path.as_str())
    }
}

/// Reads the test, the function and what it rests on.
pub(super) fn gather(replay: &mut Replay<'_>, failure: Failure) -> Result<FailureEvidence, Halt> {
    let test_file = replay.read(&failure.path)?;
    let line = test_file.line(failure.line).unwrap_or_default();
    let (name, asked, expected) = assertion(line).ok_or_else(|| {
        Halt::stop(format!("line {} of {} is no assertion that I can read.", failure.line, failure.path))
    })?;
    if expected != failure.expected {
        return Err(Halt::stop(format!(
            "the test's output and its source disagree: `{}` does not expect {}.",
            line.trim(),
            failure.expected
        )));
    }
    let pattern = format!("(fn|def|function) {name}\\b");
    let say = format!("`{name}` gave {} instead of {expected}. I look for it.", failure.actual);
    let found = replay.call(&say, "search", &json!({"pattern": pattern}))?;
    let found: Vec<Hit> = hits(&found).filter(|hit| hit.path != failure.path).collect();
    let [hit] = found.as_slice() else {
        return Err(Halt::stop(format!("`{name}` is defined in {} places.", found.len())));
    };
    let file = replay.read(&hit.path)?;
    if file.line(hit.line).map(str::trim_end) != Some(hit.text.trim_end()) {
        return Err(Halt::stop(format!(
            "search and file_read disagree about line {} of {}.",
            hit.line, hit.path
        )));
    }
    let functions = functions(&file, &hit.path, &name);
    if functions.is_empty() {
        return Err(Halt::stop(format!("`{name}` is not to be found in {}.", hit.path)));
    }
    let constants = constants(replay, &functions)?;
    Ok(FailureEvidence { failure, asked, functions, constants })
}

/// The call of an assertion, its arguments and the expected value.
fn assertion(line: &str) -> Option<(String, Vec<Token>, i64)> {
    let call = ASSERTIONS.iter().find_map(|start| after(line, start))?;
    let (name, rest) = call.split_once('(')?;
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    })?;
    let (arguments, rest) = rest.split_at_checked(end)?;
    let expected = rest.strip_prefix("), ")?.trim_end_matches([';', ')']);
    Some((name.trim().to_owned(), tokens(arguments), expected.parse().ok()?))
}

/// A line that a search found.
struct Hit {
    path: String,
    line: usize,
    text: String,
}

fn hits(found: &str) -> impl Iterator<Item = Hit> {
    found.lines().filter_map(|line| {
        let (path, rest) = line.split_once(':')?;
        let (number, text) = rest.split_once(": ")?;
        Some(Hit { path: path.to_owned(), line: number.parse().ok()?, text: text.to_owned() })
    })
}

/// The function of a name and those of the same file that it calls.
fn functions(file: &NumberedLines, path: &str, name: &str) -> Vec<ReadFunction> {
    let Some(first) = function(file, path, name) else { return Vec::new() };
    let mut names: Vec<String> = Vec::new();
    let body = tokens(&first.place.old);
    for pair in body.windows(2) {
        if let [called, open] = pair
            && called.kind == TokenKind::Name
            && open.is("(")
            && called.text != name
            && !names.contains(&called.text)
        {
            names.push(called.text.clone());
        }
    }
    let helpers = names.iter().filter_map(|name| function(file, path, name));
    std::iter::once(first.clone()).chain(helpers).collect()
}

fn function(file: &NumberedLines, path: &str, name: &str) -> Option<ReadFunction> {
    let defines =
        |line: &&String| DEFINITIONS.iter().any(|word| after(line, &format!("{word} {name}(")).is_some());
    let lines: Vec<&String> = file.0.values().collect();
    let start = lines.iter().position(defines)?;
    let head = lines.get(start)?;
    let mut block = vec![head.as_str()];
    for line in lines.get(start + 1..)? {
        let inside = line.is_empty() || indent(line) > indent(head);
        if inside || line.trim_start().starts_with('}') {
            block.push(line);
        }
        if !inside {
            break;
        }
    }
    while block.last().is_some_and(|line| line.trim().is_empty()) {
        block.pop();
    }
    let params = after(head, "(")?.split([')']).next()?;
    let params = params.split(',').map(|param| param.split(':').next().unwrap_or_default().trim().to_owned());
    let place = EditPlace { path: path.to_owned(), old: block.join("\n") };
    Some(ReadFunction { name: name.to_owned(), params: params.collect(), place })
}

/// The constants that functions name: how they are defined, and what documents say of them.
fn constants(replay: &mut Replay<'_>, functions: &[ReadFunction]) -> Result<Vec<NamedConstant>, Halt> {
    let mut names: Vec<String> = Vec::new();
    for token in functions.iter().flat_map(|function| tokens(&function.place.old)) {
        let capital =
            token.text.contains('_') && token.text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        if token.kind == TokenKind::Name && capital && !names.contains(&token.text) {
            names.push(token.text);
        }
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let pattern = format!("\\b({})\\b", names.join("|"));
    let found =
        replay.call("I look up the constants that it uses.", "search", &json!({"pattern": pattern}))?;
    let found: Vec<Hit> = hits(&found).collect();
    let mut out = Vec::new();
    for name in names {
        let defined: Vec<(&Hit, i64)> =
            found.iter().filter_map(|hit| Some((hit, definition(&hit.text, &name)?))).collect();
        let [(hit, value)] = defined.as_slice() else {
            let shown = first_line(found.first().map_or("", |hit| hit.text.as_str()));
            return Err(Halt::stop(format!(
                "`{name}` is defined in {} places; first hit: {shown}",
                defined.len()
            )));
        };
        let documented = found.iter().find_map(|hit| row(&hit.text, &name));
        let place = EditPlace { path: hit.path.clone(), old: hit.text.clone() };
        out.push(NamedConstant { name, value: *value, documented, place });
    }
    Ok(out)
}

/// The value of a constant in the line that defines it.
fn definition(line: &str, name: &str) -> Option<i64> {
    let tokens: Vec<Token> =
        tokens(line).into_iter().filter(|token| token.kind != TokenKind::Space).collect();
    let at = tokens.iter().position(|token| token.is(name))?;
    if !tokens.get(at + 1).is_some_and(|next| next.is(":") || next.is("=")) {
        return None;
    }
    let equals = tokens.iter().skip(at).position(|token| token.is("="))?;
    number(tokens.get(at + equals + 1)?)
}

/// The value of a constant in a table of a document.
fn row(line: &str, name: &str) -> Option<i64> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    (cells.next()? == name).then(|| cells.next())??.parse().ok()
}

/// A number's value.
pub(super) fn number(token: &text::Token) -> Option<i64> {
    if token.kind == TokenKind::Number { token.text.replace('_', "").parse().ok() } else { None }
}
