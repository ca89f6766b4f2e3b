//! The formats of credentials: the one table, and how a text is searched for them.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::mask::{MaskSpan, What};

/// A published format of credentials: a prefix that hardly stands anywhere else, and what follows it.
struct Format {
    /// The name in masks.
    name: &'static str,
    prefix: &'static str,
    body: TokenBody,
}

/// The form of the text after a prefix.
#[derive(Clone, Copy)]
enum TokenBody {
    /// At least so many characters of a class, and all that follow.
    From(Class, usize),
    /// Exactly so many characters of a class, and no other letter or digit.
    Exactly(Class, usize),
    /// Groups of at least so many characters, with dots between; the second of a JWT begins as its prefix does.
    Dotted(&'static [usize]),
    /// The rest of a private key in PEM.
    Pem,
    /// The token after the number of a Telegram bot, which stands before.
    Bot,
}

/// Characters of credentials.
#[derive(Clone, Copy)]
enum Class {
    /// Letters and digits.
    Word,
    /// Letters, digits, `-` and `_`.
    Url,
    /// Capital letters and digits.
    Capital,
    /// Hexadecimal digits.
    Hex,
}

const fn format(name: &'static str, prefix: &'static str, body: TokenBody) -> Format {
    Format { name, prefix, body }
}

/// Every format that is looked for. A line here is all that another one needs.
const FORMATS: &[Format] = &[
    format("anthropic-key", "sk-ant-", TokenBody::From(Class::Url, 20)),
    format("api-key", "sk-", TokenBody::From(Class::Word, 32)),
    format("openai-key", "sk-proj-", TokenBody::From(Class::Url, 32)),
    format("openai-key", "sk-svcacct-", TokenBody::From(Class::Url, 32)),
    format("openai-key", "sk-admin-", TokenBody::From(Class::Url, 32)),
    format("openrouter-key", "sk-or-v1-", TokenBody::From(Class::Hex, 64)),
    format("github-token", "ghp_", TokenBody::From(Class::Word, 36)),
    format("github-token", "gho_", TokenBody::From(Class::Word, 36)),
    format("github-token", "ghu_", TokenBody::From(Class::Word, 36)),
    format("github-token", "ghs_", TokenBody::From(Class::Word, 36)),
    format("github-token", "ghr_", TokenBody::From(Class::Word, 36)),
    format("github-token", "github_pat_", TokenBody::From(Class::Url, 40)),
    format("gitlab-token", "glpat-", TokenBody::From(Class::Url, 20)),
    format("slack-token", "xoxb-", TokenBody::From(Class::Url, 20)),
    format("slack-token", "xoxa-", TokenBody::From(Class::Url, 20)),
    format("slack-token", "xoxp-", TokenBody::From(Class::Url, 20)),
    format("slack-token", "xoxr-", TokenBody::From(Class::Url, 20)),
    format("slack-token", "xoxs-", TokenBody::From(Class::Url, 20)),
    format("aws-access-key", "AKIA", TokenBody::Exactly(Class::Capital, 16)),
    format("aws-access-key", "ASIA", TokenBody::Exactly(Class::Capital, 16)),
    format("google-key", "AIza", TokenBody::Exactly(Class::Url, 35)),
    format("stripe-key", "sk_live_", TokenBody::From(Class::Word, 24)),
    format("stripe-key", "rk_live_", TokenBody::From(Class::Word, 24)),
    format("sendgrid-key", "SG.", TokenBody::Dotted(&[22, 43])),
    format("npm-token", "npm_", TokenBody::Exactly(Class::Word, 36)),
    format("pypi-token", "pypi-AgEIcHlwaS5vcmc", TokenBody::From(Class::Url, 50)),
    format("hugging-face-token", "hf_", TokenBody::Exactly(Class::Word, 34)),
    format("digitalocean-token", "dop_v1_", TokenBody::Exactly(Class::Hex, 64)),
    format("age-key", "AGE-SECRET-KEY-1", TokenBody::Exactly(Class::Capital, 58)),
    format("telegram-token", ":AA", TokenBody::Bot),
    format("jwt", "eyJ", TokenBody::Dotted(&[7, 10, 20])),
    format("private-key", "-----BEGIN ", TokenBody::Pem),
];

/// The longest prefix of the table, in bytes; also how far back what stands before a credential is looked at.
pub(super) const MAX_BEFORE: usize = 24;
/// The longest credential of one line that is found as a whole, in bytes.
pub(super) const MAX_TOKEN: usize = 16 * 1024;
/// The longest private key that is found as a whole, in bytes.
pub(super) const MAX_PEM: usize = 64 * 1024;
/// The longest label of a PEM block, in bytes.
const MAX_LABEL: usize = 64;
/// The end of a PEM block's lines.
const DASHES: &[u8] = b"-----";
/// The beginning of a PEM block's last line.
const FOOT: &[u8] = b"-----END ";
/// The least of a private key's body: its first bytes say nothing yet.
const MIN_PEM: usize = 32;

/// All prefixes as one automaton; they are public, so nothing in it has to be wiped.
static PREFIXES: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let prefixes = FORMATS.iter().map(|format| format.prefix);
    AhoCorasick::builder().match_kind(MatchKind::Standard).build(prefixes).ok()
});

/// Finds credentials. A text is read once for prefixes, and the text after one at most three times more: no
/// token begins within the characters of another one.
pub(super) fn find_credentials(text: &str) -> Vec<MaskSpan> {
    search_text(text, &mut 0)
}

/// As `find`; counts the bytes that were read after prefixes.
pub(super) fn search_text(text: &str, read: &mut usize) -> Vec<MaskSpan> {
    let bytes = text.as_bytes();
    let (mut spans, mut free) = (Vec::new(), 0);
    let Some(prefixes) = PREFIXES.as_ref() else {
        // The table is a constant that a test builds: without its automaton nothing is let through.
        return vec![MaskSpan { at: 0..text.len(), what: What::Format("unknown") }];
    };
    for found in prefixes.find_overlapping_iter(bytes) {
        // Overlapping matches are needed, since one prefix is the beginning of another (`sk-` of `sk-ant-`).
        let Some(format) = FORMATS.get(found.pattern().as_usize()) else { continue };
        // Inside a credential that was already found: no part of it is a credential of its own.
        if found.start() < free {
            continue;
        }
        let rest = bytes.get(found.end()..).unwrap_or_default();
        let at = match format.body {
            // A bot's number stands before the prefix, so the beginning of the token is not that of the
            // prefix.
            TokenBody::Bot => bot_token(bytes, found.start(), rest, read),
            body if begins_token(bytes, found.start()) => match body {
                TokenBody::From(class, least) => run_length(class, rest, least, read),
                TokenBody::Exactly(class, count) => exact_length(class, rest, count, read),
                TokenBody::Dotted(groups) => dotted_length(format.prefix, groups, rest, read),
                TokenBody::Pem => pem_length(rest, read),
                TokenBody::Bot => None,
            }
            .map(|length| found.start()..found.end() + length),
            TokenBody::From(..) | TokenBody::Exactly(..) | TokenBody::Dotted(_) | TokenBody::Pem => None,
        };
        if let Some(at) = at {
            // From here on nothing is searched again, which bounds the work for a text made of prefixes.
            free = at.end;
            spans.push(MaskSpan { at, what: What::Format(format.name) });
        }
    }
    spans
}

/// Returns true if a token may begin at a place: not in the middle of a word. The letter of an escape such as
/// `\n`, the digits of `%20` and the end of a colour on a terminal are not part of a word.
fn begins_token(text: &[u8], at: usize) -> bool {
    let before = text.get(at.saturating_sub(MAX_BEFORE)..at).unwrap_or_default();
    // A text that begins here has no word before it.
    let Some((last, rest)) = before.split_last() else { return true };
    if !last.is_ascii_alphanumeric() && !matches!(last, b'_' | b'-') {
        return true;
    }
    // In JSON inside a text `\n` is two characters, and the letter would hide the token behind it.
    let escape = rest.last() == Some(&b'\\') && matches!(last, b'n' | b't' | b'r' | b'b' | b'f' | b'0');
    let hexes = last.is_ascii_hexdigit() && rest.last().is_some_and(u8::is_ascii_hexdigit);
    // `%2Fghp_…`: a token in a URL follows an encoded separator.
    let percent = hexes && rest.iter().rev().nth(1) == Some(&b'%');
    escape || percent || *last == b'm' && ends_colour(rest)
}

/// Returns true if a terminal's escape sequence precedes an `m`.
fn ends_colour(before: &[u8]) -> bool {
    let digits = before.iter().rev().take_while(|b| b.is_ascii_digit() || **b == b';').count();
    before
        .len()
        .checked_sub(digits)
        .and_then(|end| before.get(..end))
        .is_some_and(|rest| rest.ends_with(b"\x1b["))
}

impl Class {
    const fn has_byte(self, byte: u8) -> bool {
        match self {
            Self::Word => byte.is_ascii_alphanumeric(),
            Self::Url => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Self::Capital => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit(),
        }
    }

    fn run_of(self, text: &[u8], most: usize, read: &mut usize) -> usize {
        // The length is bounded: one endless word must not make each prefix in it read to its end.
        let length = text.iter().take(most).take_while(|byte| self.has_byte(**byte)).count();
        *read = read.saturating_add(length);
        length
    }
}

fn run_length(class: Class, text: &[u8], least: usize, read: &mut usize) -> Option<usize> {
    Some(class.run_of(text, MAX_TOKEN, read)).filter(|length| *length >= least)
}

fn exact_length(class: Class, text: &[u8], count: usize, read: &mut usize) -> Option<usize> {
    let length = class.run_of(text, count, read);
    // One more character would make it something else, such as a digest in which the prefix occurs by chance.
    let ends = !text.get(count).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_');
    (length == count && ends).then_some(count)
}

/// Measures a group of base64's letters.
fn group_length(text: &[u8], read: &mut usize) -> usize {
    Class::Url.run_of(text, MAX_TOKEN, read)
}

fn dotted_length(prefix: &str, groups: &[usize], text: &[u8], read: &mut usize) -> Option<usize> {
    let mut length: usize = 0;
    for (n, least) in groups.iter().enumerate() {
        let rest = text.get(length..)?;
        let rest = match n {
            0 => rest,
            // The groups are joined by one dot each; a text that ends before them is no token.
            _ => rest.strip_prefix(b".")?,
        };
        length = text.len() - rest.len();
        // The payload of a JWT is an object, too.
        // Only the JWT has three groups, and its second one is Base64 of `{"` as its first is.
        if n == 1 && groups.len() == 3 && !rest.starts_with(prefix.as_bytes()) {
            return None;
        }
        let found = group_length(rest, read);
        if found < *least {
            return None;
        }
        length = length.saturating_add(found);
    }
    Some(length)
}

/// A bot's number of 8 to 10 digits, `:AA`, and 33 characters.
fn bot_token(text: &[u8], at: usize, rest: &[u8], read: &mut usize) -> Option<Range<usize>> {
    let before = text.get(..at)?;
    let digits = before.iter().rev().take(10).take_while(|b| b.is_ascii_digit()).count();
    *read = read.saturating_add(digits);
    let length = exact_length(Class::Url, rest, 33, read)?;
    // The number may stand directly behind other digits, so the longest one that begins a token is taken.
    let mut starts = (8..=digits).rev().filter_map(|digits| at.checked_sub(digits));
    let start = starts.find(|start| begins_token(text, *start))?;
    Some(start..at + ":AA".len() + length)
}

/// The rest of a private key from its label on.
fn pem_length(text: &[u8], read: &mut usize) -> Option<usize> {
    match block_kind(text, read) {
        KeyBlock::Whole(length) | KeyBlock::Open(Some(length)) => Some(length),
        KeyBlock::Open(None) | KeyBlock::Other => None,
    }
}

/// Returns true if the text after `-----BEGIN ` may be a private key that goes on.
pub(super) fn is_open_pem(text: &[u8]) -> bool {
    matches!(block_kind(text, &mut 0), KeyBlock::Open(_))
}

/// The kind of block after `-----BEGIN `.
enum KeyBlock {
    /// A private key of this length.
    Whole(usize),
    /// The beginning of one, which is masked if nothing follows and there is enough of it.
    Open(Option<usize>),
    /// Something else.
    Other,
}

/// Lines of base64, with line ends as they are or escaped, and the two headers that old encrypted keys have. Nothing
/// else, so that no other text can hide in a private key.
fn block_kind(text: &[u8], read: &mut usize) -> KeyBlock {
    // Only a bounded head is read for the label, also where no line ends.
    let head = text.get(..text.len().min(MAX_LABEL)).unwrap_or_default();
    let label =
        head.iter().take_while(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || **b == b' ').count();
    *read = read.saturating_add(label);
    let (label, after) = head.split_at_checked(label).unwrap_or((head, &[]));
    // In a stream the dashes may be cut between two pieces: it may still become a key.
    if after.len() < DASHES.len() && DASHES.starts_with(after) && head.len() == text.len() {
        return KeyBlock::Open(None);
    }
    // A certificate or a public key has the same frame, and is no secret.
    let is_private = label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK");
    if !is_private || !after.starts_with(DASHES) {
        return KeyBlock::Other;
    }
    let begin = label.len() + DASHES.len();
    // A key without an end is masked up to the bound: what follows is more than any key has.
    let most = text.len().min(begin.saturating_add(MAX_PEM));
    let (rest, held) = split_body(text.get(begin..most).unwrap_or_default());
    let end = most - rest.len();
    *read = read.saturating_add(end);
    // A frame with an empty body stands in documentation, and hides nothing.
    let found = (held >= MIN_PEM).then_some(end);
    // The last line may come with the next piece of a stream.
    if rest.is_empty() || FOOT.starts_with(rest) {
        return KeyBlock::Open(found);
    }
    let Some(foot) = rest.strip_prefix(FOOT) else { return found.map_or(KeyBlock::Other, KeyBlock::Whole) };
    // The label of the last line is not compared: a wrong one does not make the key less secret.
    let label = foot.iter().take(MAX_LABEL).take_while(|b| **b != b'-' && **b != b'\n').count();
    let closing = foot.get(label..).unwrap_or_default();
    match found {
        Some(_) if closing.starts_with(DASHES) => {
            KeyBlock::Whole(end.saturating_add(FOOT.len()).saturating_add(label).saturating_add(DASHES.len()))
        }
        found if DASHES.starts_with(closing) => KeyBlock::Open(found),
        Some(end) => KeyBlock::Whole(end),
        None => KeyBlock::Other,
    }
}

/// The first words of lines in an encrypted private key (RFC 1421).
const ABOUT: [&[u8]; 2] = [b"Proc-Type: ", b"DEK-Info: "];

/// Returns the text after a private key's body, and the amount of base64 in it.
fn split_body(mut rest: &[u8]) -> (&[u8], usize) {
    let mut held = 0_usize;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            // A key as an element of a JSON array, or in a program, has quotes and commas between its lines.
            b'\n' | b'\r' | b' ' | b'\t' | b'"' | b',' => after,
            b'\\' if after.is_empty() => after,
            b'\\' if matches!(after.first(), Some(b'n' | b'r' | b't')) => after.get(1..).unwrap_or_default(),
            // The beginning of a line about the key: in a stream the rest of it comes with the next piece.
            b'P' | b'D' if ABOUT.iter().any(|line| line.starts_with(rest)) => {
                return (&[], held.saturating_add(rest.len()));
            }
            b'P' | b'D' if ABOUT.iter().any(|line| rest.starts_with(line)) => {
                let end = rest.iter().position(|b| matches!(b, b'\n' | b'\\')).unwrap_or(rest.len());
                rest.get(end..).unwrap_or_default()
            }
            b if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=') => {
                held = held.saturating_add(1);
                after
            }
            // Any other byte ends the body, so that ordinary text after a key stays readable.
            _ => break,
        };
    }
    (rest, held)
}
