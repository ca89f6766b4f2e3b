//! Texts as they are read, not as they are written: the same letters, whatever their form.

use serde_json::{Deserializer, Value};
use unicode_normalization::UnicodeNormalization as _;

/// A text without what readers do not see: compatibility forms, small letters, one hyphen, no invisible characters.
pub(super) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.nfkc().filter(|c| !is_invisible(*c)).map(hyphen).flat_map(char::to_lowercase).collect()
}

/// Soft hyphens, zero-width characters, marks of direction, variation selectors, tags (Unicode, `Default_Ignorable_Code_Point`,
/// those of them that stand in words).
const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Every dash as a hyphen (Unicode, general category `Pd`, and the minus sign).
const fn hyphen(c: char) -> char {
    match c {
        '\u{58a}'
        | '\u{5be}'
        | '\u{2010}'..='\u{2015}'
        | '\u{2212}'
        | '\u{2e3a}'
        | '\u{2e3b}'
        | '\u{301c}'
        | '\u{30a0}'
        | '\u{fe31}'
        | '\u{fe32}'
        | '\u{fe58}'
        | '\u{fe63}'
        | '\u{ff0d}' => '-',
        other => other,
    }
}

/// JSON, its texts folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Leaf(String),
    List(Vec<Self>),
    Record(Vec<NodeField>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeField {
    /// As it is written.
    pub(super) name: String,
    pub(super) folded: String,
    pub(super) node: Node,
}

/// Reads a text that is JSON, or several pieces of it one after the other; `None` if it is something else, or a single value.
pub(super) fn read(text: &str) -> Option<Node> {
    let pieces = Deserializer::from_str(text).into_iter::<Value>().collect::<Result<Vec<_>, _>>().ok()?;
    let is_structured = pieces.iter().all(|piece| piece.is_object() || piece.is_array());
    (is_structured && !pieces.is_empty()).then(|| Node::List(pieces.into_iter().map(Node::of).collect()))
}

impl Node {
    fn of(value: Value) -> Self {
        match value {
            Value::Null | Value::Bool(_) => Self::List(Vec::new()),
            Value::Number(number) => Self::Leaf(number.to_string()),
            Value::String(text) => Self::Leaf(fold(&text)),
            Value::Array(items) => Self::List(items.into_iter().map(Self::of).collect()),
            Value::Object(fields) => Self::Record(
                fields
                    .into_iter()
                    .map(|(name, field)| NodeField { folded: fold(&name), name, node: Self::of(field) })
                    .collect(),
            ),
        }
    }

    /// Whether it is a value, or a list with it.
    pub(super) fn holds(&self, value: &str) -> bool {
        match self {
            Self::Leaf(text) => text == value,
            Self::List(items) => items.iter().any(|item| item.holds(value)),
            Self::Record(_) => false,
        }
    }

    /// Whether a text in it, or a name, has a value.
    pub(super) fn mentions(&self, value: &str) -> bool {
        match self {
            Self::Leaf(text) => mentions(text, value).next().is_some(),
            Self::List(items) => items.iter().any(|item| item.mentions(value)),
            Self::Record(fields) => fields
                .iter()
                .any(|field| mentions(&field.folded, value).next().is_some() || field.node.mentions(value)),
        }
    }
}

/// Where a text has a value that is not a part of a longer word: what stands before, and after.
pub(super) fn mentions<'a>(text: &'a str, value: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (first, last) = (value.chars().next(), value.chars().next_back());
    text.match_indices(value).filter_map(move |(at, _)| {
        let before = text.get(..at)?;
        let after = text.get(at.checked_add(value.len())?..)?;
        let is_whole = is_border(before.chars().next_back(), first) && is_border(after.chars().next(), last);
        is_whole.then_some((before, after))
    })
}

/// Whether a word ends between the end of a value and what stands beside it. Scripts that write words without spaces end
/// them anywhere, and so does the change from one script to another.
fn is_border(beside: Option<char>, end: Option<char>) -> bool {
    let (Some(beside), Some(end)) = (beside, end) else { return true };
    !beside.is_alphanumeric()
        || beside.is_ascii() != end.is_ascii()
        || is_without_spaces(beside)
        || is_without_spaces(end)
}

/// Thai, Lao, Tibetan, Myanmar, Khmer, the kana and the ideographs (Unicode, blocks).
const fn is_without_spaces(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether what stands between two texts is a leaf: a text in quotes that are not themselves quoted, in JSON; elsewhere all
/// of a line but its name.
pub(super) fn is_leaf(before: &str, after: &str, is_json: bool) -> bool {
    if is_json {
        let is_open = before.strip_suffix('"').is_some_and(|before| !before.ends_with('\\'));
        return is_open && after.starts_with('"');
    }
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    let rest = after.split('\n').next().unwrap_or_default().trim();
    let is_name = line.is_empty() || line.strip_suffix(':').is_some_and(|name| !name.contains(' '));
    is_name && rest.is_empty()
}
