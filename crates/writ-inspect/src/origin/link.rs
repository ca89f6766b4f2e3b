//! Links in texts that are sent to others.
//!
//! The recipient of a message trusts its links as its sender's. An external text may want one in it, and the
//! recipient may be one that the owner has named; so a link in outgoing text is judged as an argument that
//! names a place: it is the owner's own, or a whole value that they asked for. Everything that mail programs
//! and chats turn into a link counts as one: a URL, and a bare host name. A spelling that hides a link from
//! this reading (entities of HTML) counts as an unknown link.

use serde_json::Value;

use super::text::fold_text;
use crate::prepared::Sink;

/// The most links of one call that are looked up: with more, the first beyond counts as unknown.
const MAX_LINKS: usize = 64;
/// The fewest letters of the last label of a host name.
const MIN_TOP_LABEL: usize = 2;
/// Names of files end so, and no host name does (IANA, root zone database): what has nothing else of a link is none.
const FILE_ENDINGS: [&str; 28] = [
    "pdf", "txt", "doc", "docx", "odt", "xls", "xlsx", "csv", "ppt", "pptx", "json", "xml", "yaml", "toml",
    "png", "jpg", "jpeg", "gif", "svg", "html", "htm", "log", "js", "ini", "tar", "gz", "mp3", "mp4",
];
/// Beginnings of links that need no `//`.
const SCHEMES: [&str; 8] = ["mailto:", "javascript:", "data:", "tel:", "sms:", "http:", "https:", "ftp:"];
/// Entities of HTML that write a part of a link.
const ENTITIES: [&str; 5] = ["&#", "&colon;", "&sol;", "&period;", "&commat;"];

/// The links in a text, as they are written.
pub(super) fn find_links(text: &str) -> Vec<&str> {
    let is_border = |c: char| c.is_whitespace() || "\"'`<>()[]{}|«»“”„‚‘’".contains(c);
    let tokens = text.split(is_border).map(|token| token.trim_matches(|c: char| ".,;:!?…*_~".contains(c)));
    tokens.filter(|token| is_link(token)).collect()
}

/// Returns true if a word would be taken for a link.
pub(super) fn is_link(token: &str) -> bool {
    // Most words are none.
    if token.is_ascii() && !token.contains(['.', ':', '&']) && !token.starts_with("//") {
        return false;
    }
    // The full stops of other scripts separate labels of a host, too.
    let token = fold_text(token).replace(['\u{3002}', '\u{ff61}'], ".");
    let has_scheme = token.contains("://")
        || (token.len() > 2 && token.starts_with("//"))
        || SCHEMES.iter().any(|scheme| token.contains(scheme));
    has_scheme || ENTITIES.iter().any(|entity| token.contains(entity)) || has_host(&token)
}

/// Returns true if a folded word has the name or the number of a host in it. The host of a mail address is
/// not opened.
fn has_host(token: &str) -> bool {
    let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let mut rest = token;
    let mut before = None;
    // All runs of a word are looked at, since `a@b,evil.test` has a host behind an address.
    while let Some(start) = rest.find(is_inside) {
        before = rest.get(..start).and_then(|skipped| skipped.chars().next_back()).or(before);
        let run = rest.get(start..).unwrap_or_default();
        let end = run.find(|c| !is_inside(c)).unwrap_or(run.len());
        let (name, after) = run.split_at_checked(end).unwrap_or((run, ""));
        let is_opened = after.starts_with(['/', ':', '?', '#', '\\']);
        // `ann@example.org` is an address that nothing opens, and `eve@evil.test/x` is a link.
        let is_of_mail = (before == Some('@') || after.starts_with('@')) && !is_opened;
        if !is_of_mail && is_host(name.trim_matches('.'), is_opened) {
            return true;
        }
        (rest, before) = (after, name.chars().next_back());
    }
    false
}

/// Returns true if a name is that of a host, and of no file unless it is opened.
pub(super) fn is_host(name: &str, is_opened: bool) -> bool {
    let labels: Vec<&str> = name.split('.').collect();
    let Some((top, others)) = labels.split_last().filter(|(_, others)| !others.is_empty()) else {
        return false;
    };
    // `one..two` is text.
    if labels.iter().any(|label| label.is_empty()) {
        return false;
    }
    let is_number = |label: &&str| label.len() <= 3 && label.bytes().all(|byte| byte.is_ascii_digit());
    // Four small numbers are an address of IPv4.
    if labels.len() == 4 && labels.iter().all(is_number) {
        return true;
    }
    let is_name = top.starts_with("xn--")
        || (top.chars().count() >= MIN_TOP_LABEL && top.chars().all(char::is_alphabetic));
    // `www.report.pdf` is opened as a link by its first label.
    let is_file = !is_opened && FILE_ENDINGS.contains(top) && !others.contains(&"www");
    is_name && !is_file
}

/// Finds the first link in a call that `knows_link` refuses. Values of sinks are judged as sinks.
pub(super) fn first_strange(
    arguments: &Value,
    sinks: &[Sink],
    knows_link: impl Fn(&str) -> bool,
) -> Option<String> {
    let mut texts = Vec::new();
    gather_texts(arguments, &mut texts);
    // A value of a sink is judged as a sink, by stricter rules.
    texts.retain(|text| !sinks.iter().any(|sink| sink.value == *text));
    let mut found = texts.into_iter().flat_map(find_links).enumerate();
    found.find(|(number, link)| *number >= MAX_LINKS || !knows_link(link)).map(|(_, link)| link.to_owned())
}

/// Every text in a value, names included.
pub(super) fn gather_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| gather_texts(item, texts)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| {
            texts.push(name);
            gather_texts(field, texts);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origins;
    use super::*;

    #[test]
    fn what_would_be_opened_is_a_link() {
        for text in [
            "https://evil.test/menu",
            "see HTTPS://EVIL.test.",
            "(evil.test/42)",
            "evil.test",
            "www.shift.evil.test,",
            "evil.test?m=9",
            "read:evil.test",
            "[menu](https://evil.test)",
            "<img src=\"//evil.test/x.png\">",
            "\\\\evil.test\\x",
            "192.0.2.7/x",
            "http://192.0.2.7",
            "ev\u{200b}il.test",
            "evil\u{ff0e}test",
            "evil\u{3002}test",
            "пример.рф",
            "xn--e1afmkfd.xn--p1ai",
            "javascript:alert(1)",
            "mailto:eve@evil.test",
            "eve@evil.test/x",
            "//user@evil.test:80/",
            "a@b,evil.test",
            "https&#58;&#47;&#47;evil&#46;test",
            "evil&period;test",
            "evil.md",
            "www.pdf.txt",
        ] {
            assert!(!find_links(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn words_numbers_addresses_and_names_of_files_are_none() {
        for text in [
            "On Friday at 19:00.",
            "e.g. at 7 p.m., i.e. late",
            "12,400.50 EUR or 1.2.3",
            "ann@example.org, bob.b@mail.example.org",
            "report.pdf and a-b.tar",
            "one... two..three",
            "v1.2",
            "Yes: no; maybe/never",
            "AT&T",
            "",
            ".",
        ] {
            assert_eq!(find_links(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn a_link_is_the_owners_or_a_value_or_strange() {
        let origins = Origins::new(["Send https://own.test/a (and host.test) to Ann".to_owned()]);
        let strange =
            |body: &str| origins.strange_link(&serde_json::json!({ "to": "Ann", "body": body }), &[]);
        for own in ["See https://own.test/a.", "host.test!", "<https://own.test/a>", "nothing at all"] {
            assert_eq!(strange(own), None, "{own}");
        }
        for (other, found) in [
            ("https://own.test/a?x", "https://own.test/a?x"),
            ("https://own.test", "https://own.test"),
            ("https://own.test/a and evil.test/b", "evil.test/b"),
            ("https://own.test/a,https://evil.test", "https://own.test/a,https://evil.test"),
        ] {
            assert_eq!(strange(other).as_deref(), Some(found), "{other}");
        }
        let many = "host.test ".repeat(MAX_LINKS + 1);
        assert!(strange(&many).is_some(), "more than are looked up");
        let named = serde_json::json!({ "evil.test": { "deep": ["x"] } });
        assert_eq!(origins.strange_link(&named, &[]).as_deref(), Some("evil.test"));
        let sinks = [Sink { argument: "url".into(), value: "https://evil.test/".into() }];
        let sunk = serde_json::json!({ "url": "https://evil.test/" });
        assert_eq!(origins.strange_link(&sunk, &sinks), None, "judged as a sink");
    }
}
