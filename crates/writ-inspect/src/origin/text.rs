//! Texts as they are read, not as they are written: the same letters in any form.

use serde_json::{Deserializer, Value};
use unicode_normalization::UnicodeNormalization as _;

/// A text without what readers do not see: compatibility forms, small letters, one hyphen, one apostrophe, one space for any
/// white space, no invisible characters.
pub(super) fn fold_text(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.nfkc().filter(|c| !is_invisible(*c)).map(plain_char).flat_map(char::to_lowercase) {
        // A run of white space is one space, since a line may be wrapped at any place.
        if c != ' ' || !folded.ends_with(' ') {
            folded.push(c);
        }
    }
    folded
}

/// The same, with its lines.
pub(super) fn fold_lines(text: &str) -> String {
    text.lines().map(fold_text).collect::<Vec<_>>().join("\n")
}

/// Soft hyphens, zero-width characters, marks of direction, fillers, variation selectors, tags (Unicode,
/// `Default_Ignorable_Code_Point`), annotations and control characters.
fn is_invisible(c: char) -> bool {
    let is_ignorable = matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}');
    is_ignorable || (c.is_control() && !c.is_whitespace())
}

/// Every dash as a hyphen (Unicode, general category `Pd`, and the minus sign), every single quotation mark as an apostrophe,
/// every white space as a space.
fn plain_char(c: char) -> char {
    match c {
        '\u{58a}'
        | '\u{5be}'
        | '\u{1400}'
        | '\u{1806}'
        | '\u{2010}'..='\u{2015}'
        | '\u{2212}'
        | '\u{2e17}'
        | '\u{2e1a}'
        | '\u{2e3a}'
        | '\u{2e3b}'
        | '\u{2e40}'
        | '\u{2e5d}'
        | '\u{301c}'
        | '\u{3030}'
        | '\u{30a0}'
        | '\u{fe31}'
        | '\u{fe32}'
        | '\u{fe58}'
        | '\u{fe63}'
        | '\u{ff0d}'
        | '\u{10ead}' => '-',
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => '\'',
        c if c.is_whitespace() => ' ',
        other => other,
    }
}

/// JSON, its texts folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextNode {
    Leaf(String),
    List(Vec<Self>),
    Record(Vec<NodeField>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeField {
    /// As it is written.
    pub(super) name: String,
    pub(super) folded: String,
    pub(super) node: TextNode,
}

/// Reads a text that is JSON, or several pieces of it one after the other; `None` if it is something else, or a single value.
pub(super) fn read_json(text: &str) -> Option<TextNode> {
    // Tools print several values one after the other, and a reader sees all of them.
    let pieces = Deserializer::from_str(text).into_iter::<Value>().collect::<Result<Vec<_>, _>>().ok()?;
    let is_structured = pieces.iter().all(|piece| piece.is_object() || piece.is_array());
    (is_structured && !pieces.is_empty())
        .then(|| TextNode::List(pieces.into_iter().map(TextNode::node_of).collect()))
}

impl TextNode {
    fn node_of(value: Value) -> Self {
        match value {
            // They name nothing.
            Value::Null | Value::Bool(_) => Self::List(Vec::new()),
            Value::Number(number) => Self::Leaf(number.to_string()),
            Value::String(text) => Self::Leaf(fold_text(&text)),
            Value::Array(items) => Self::List(items.into_iter().map(Self::node_of).collect()),
            Value::Object(fields) => Self::Record(
                fields
                    .into_iter()
                    .map(|(name, field)| NodeField {
                        folded: fold_text(&name),
                        name,
                        node: Self::node_of(field),
                    })
                    .collect(),
            ),
        }
    }

    /// Returns true if it is a value, or a list with it.
    pub(super) fn holds_value(&self, value: &str) -> bool {
        match self {
            Self::Leaf(text) => text == value,
            Self::List(items) => items.iter().any(|item| item.holds_value(value)),
            Self::Record(_) => false,
        }
    }

    /// Returns true if a text in it, or a name, has a value.
    pub(super) fn find_mentions(&self, value: &str) -> bool {
        match self {
            Self::Leaf(text) => mentions(text, value).next().is_some(),
            Self::List(items) => items.iter().any(|item| item.find_mentions(value)),
            Self::Record(fields) => fields.iter().any(|field| {
                mentions(&field.folded, value).next().is_some() || field.node.find_mentions(value)
            }),
        }
    }
}

/// Finds the places where a text has a value that is not a part of a longer word: the texts before and after.
pub(super) fn mentions<'a>(text: &'a str, value: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let (first, last) = (value.chars().next(), value.chars().next_back());
    text.match_indices(value).filter_map(move |(at, _)| {
        let before = text.get(..at)?;
        let after = text.get(at.checked_add(value.len())?..)?;
        // Both ends are looked at: `id-7` stands neither in `xid-7` nor in `id-77`.
        let is_whole = is_border(before.chars().next_back(), first) && is_border(after.chars().next(), last);
        is_whole.then_some((before, after))
    })
}

/// Returns true if a word ends between the end of a value and the character beside it. Scripts that write
/// words without spaces, or glue particles to them, end them anywhere, and so does the change from Latin
/// letters and digits to others.
fn is_border(beside: Option<char>, end: Option<char>) -> bool {
    // At the beginning and end of a text a word ends anyway.
    let (Some(beside), Some(end)) = (beside, end) else { return true };
    !beside.is_alphanumeric() || is_latin(beside) != is_latin(end) || is_glued(beside) || is_glued(end)
}

/// Digits and Latin letters (Unicode, blocks).
const fn is_latin(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(c, '\u{aa}' | '\u{b5}' | '\u{ba}' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

/// Hebrew, Arabic, Thai, Lao, Tibetan, Myanmar, Hangul, Khmer, the kana and the ideographs (Unicode, blocks).
const fn is_glued(c: char) -> bool {
    matches!(c, '\u{590}'..='\u{77f}' | '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}'
        | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3130}'..='\u{318f}' | '\u{3400}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns true if the text between two others is a leaf: a text in quotes that are not themselves quoted, or
/// a number, in JSON; elsewhere all of a line but its name.
pub(super) fn is_leaf(before: &str, after: &str, is_json: bool) -> bool {
    if is_json {
        // An escaped quote belongs to a text around the value, which then is a part of that text.
        let is_open = before.strip_suffix('"').is_some_and(|before| !before.ends_with('\\'));
        let is_alone =
            before.trim_end().ends_with([':', ',', '[']) && after.trim_start().starts_with([',', '}', ']']);
        return (is_open && after.starts_with('"')) || is_alone;
    }
    let line = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .trim()
        // Bullets of lists.
        .trim_start_matches(['-', '*', '\u{2022}'])
        .trim();
    let rest = after.split('\n').next().unwrap_or_default().trim();
    // A name of several words would be a sentence that ends with a colon.
    let is_name = line.is_empty() || line.strip_suffix(':').is_some_and(|name| !name.contains(' '));
    is_name && rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_its_script_or_its_word_does() {
        let count = |text: &str, value: &str| mentions(text, value).count();
        for (text, value, expected) in [
            ("id-7, id-7", "id-7", 2),
            ("xid-7 id-77 öid-7", "id-7", 0),
            ("иid-7и", "id-7", 1),
            ("моя идея", "идея", 1),
            ("мояидея", "идея", 0),
            ("はid-7が", "id-7", 1),
            ("はい", "い", 1),
        ] {
            assert_eq!(count(text, value), expected, "{text} {value}");
        }
    }

    #[test]
    fn json_is_read_in_pieces_and_other_texts_are_none() {
        assert!(read_json(r#"{"a": 1} [2]"#).is_some());
        for other in ["", " ", "5", r#""a""#, "{} 5", "{", "words"] {
            assert_eq!(read_json(other), None, "{other}");
        }
        let node = read_json(r#"[{"id": "m-17", "note": "see m-18"}]"#).expect("JSON");
        assert!(node.find_mentions("m-17") && node.find_mentions("m-18") && node.find_mentions("note"));
        assert!(!node.find_mentions("m-1") && !node.find_mentions("m-19"));
    }

    #[test]
    fn a_leaf_stands_alone() {
        for (before, after, is_json, expected) in [
            (r#"{"id": ""#, r#""}"#, true, true),
            (r#"{"id": \""#, r#"\""}"#, true, false),
            (r#"{"id": \""#, r#""}"#, true, false),
            (r#"{"id": ""#, r#"x"}"#, true, false),
            (r#"{"id": "x"#, r#""}"#, true, false),
            (r#"{"id": "#, "}", true, true),
            ("[1, ", " , 3]", true, true),
            (r#"{"id": "#, " and more}", true, false),
            ("and more ", "}", true, false),
            ("", "", false, true),
            ("a\n- id: ", "\nb", false, true),
            ("the id: ", "", false, false),
            ("id ", "", false, false),
            ("id: ", " too", false, false),
            ("the id: ", " too", false, false),
        ] {
            assert_eq!(is_leaf(before, after, is_json), expected, "{before}|{after}");
        }
    }
}
