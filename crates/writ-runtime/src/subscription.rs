//! A subscription: a file or URL that is read again at the beginning of each turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use writ_types::action::{Action, Fetch, ReadFile, ReadMode, Subscribe};
use writ_types::taint::{Label, Source, Taint};

/// The tool name under which the harness reads subscriptions.
pub(crate) const TOOL: &str = "subscription";
/// The most subscriptions of one session: each costs a reading in every turn.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 16;
/// The longest target in a title, in characters: with its lines a title stays below the 200 that a model is shown.
pub(crate) const MAX_TITLE_TARGET: usize = 140;
/// The most lines of a file that has none named; what is longer is cut by `MAX_TOKENS` anyway.
pub(crate) const MAX_LINES: u64 = 2_000;

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    /// Its id in the session.
    pub(crate) id: String,
    /// A file of the work folder, or a URL.
    pub(crate) target: String,
    /// First and last line.
    pub(crate) lines: Option<(u64, u64)>,
    /// The number of the last turn that it is there for, unless something refers to it before.
    pub(crate) last_turn: u64,
    /// For how many turns it lasts from the last time that something has referred to it.
    #[serde(default = "one_turn")]
    pub(crate) turns: u64,
    /// The taint of the actions that made the subscription; its target is trusted only as far as they are.
    #[serde(default = "untrusted")]
    pub(crate) taint: Taint,
    /// A person has approved that its URL is read in each of its turns, though it rests on external content.
    #[serde(default)]
    pub(crate) approved: bool,
}

/// The taint of a subscription that was stored without one.
pub(crate) const fn untrusted() -> Taint {
    Taint::External
}

/// The number of turns for a subscription that was stored without one; its end stays the same.
pub(crate) const fn one_turn() -> u64 {
    1
}

/// The subscriptions of a session's metadata; what is none is left out.
pub(crate) fn read_all(stored: &Value) -> Vec<Subscription> {
    let list = stored.as_array().into_iter().flatten();
    list.filter_map(|one| serde_json::from_value(one.clone()).ok()).take(MAX_SUBSCRIPTIONS).collect()
}

impl Subscription {
    /// Reports whether the target is a URL.
    pub(crate) fn is_of_the_web(&self) -> bool {
        matches!(self.action(), Action::Fetch(_))
    }

    /// Reports whether a text names the subscription, by its id or by its target.
    pub(crate) fn is_named_in(&self, text: &str) -> bool {
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        [&self.id, &self.target].into_iter().any(|name| {
            text.match_indices(name.as_str()).any(|(at, _)| {
                let before = text.get(..at).and_then(|before| before.chars().next_back());
                let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
                !before.is_some_and(inside) && !after.is_some_and(inside)
            })
        })
    }

    /// Returns its target and lines in at most 200 characters.
    pub(crate) fn title(&self) -> String {
        let mut title: String = self.target.chars().take(MAX_TITLE_TARGET).collect();
        if title.len() < self.target.len() {
            title.push('…');
        }
        match self.lines {
            Some((first, last)) => format!("{title}, lines {first} to {last}"),
            None => title,
        }
    }

    /// Returns the label of its target.
    pub(crate) fn label(&self) -> Label {
        let source = Source { origin: TOOL.to_owned(), detail: self.id.clone(), entry: None };
        Label::from_source(self.taint, source)
    }

    /// Returns the label of the reading: that of the target, or the owner's if a person has approved this
    /// very target.
    pub(crate) fn reading_label(&self) -> Label {
        if self.approved { Label::new(Taint::Owner) } else { self.label() }
    }

    /// Returns the action that reads the target.
    pub(crate) fn action(&self) -> Action {
        let request = Subscribe { target: self.target.clone(), lines: self.lines, turns: 1, stop: false };
        if let Some(url) = request.url() {
            let url = url.to_owned();
            return Action::Fetch(Fetch {
                method: "GET".to_owned(),
                url,
                body: None,
                content_type: None,
                save_to: None,
                large: false,
            });
        }
        let (first_line, last) = self.lines.unwrap_or((1, MAX_LINES));
        let lines = last.saturating_sub(first_line).saturating_add(1);
        Action::ReadFile(ReadFile { path: self.target.clone(), mode: ReadMode::Text { first_line, lines } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(target: &str) -> Subscription {
        Subscription {
            id: "s1".into(),
            target: target.into(),
            lines: None,
            last_turn: 7,
            turns: 1,
            taint: Taint::Auth,
            approved: false,
        }
    }

    #[test]
    fn what_is_stored_is_read_within_bounds_and_nonsense_is_left_out() {
        let one = Subscription { lines: Some((1, 2)), ..subscription("a") };
        let good = serde_json::to_value(&one).expect("JSON");
        let mut list = vec![serde_json::json!({"id": 1}), Value::Null];
        list.extend(std::iter::repeat_n(good, 40));
        assert_eq!(read_all(&Value::from(list)), vec![one; MAX_SUBSCRIPTIONS]);
        assert!(read_all(&Value::Null).is_empty());
    }

    #[test]
    fn one_that_is_stored_without_what_it_rests_on_is_external_and_not_approved() {
        let old = serde_json::json!([{ "id": "s1", "target": "a", "lines": null, "last_turn": 7 }]);
        let old = read_all(&old).pop().expect("read");
        assert_eq!(old, Subscription { taint: Taint::External, ..subscription("a") });
        assert_eq!((old.label().taint, old.reading_label().taint), (Taint::External, Taint::External));
    }

    #[test]
    fn a_person_who_looks_at_a_target_lets_it_be_read_and_makes_it_no_more_trusted() {
        let made = |approved| Subscription { taint: Taint::External, approved, ..subscription("http://a/") };
        assert_eq!(made(false).reading_label().taint, Taint::External);
        assert_eq!(made(true).reading_label().taint, Taint::Owner);
        assert_eq!(made(true).label().taint, Taint::External);
        assert_eq!(subscription("a").reading_label().taint, Taint::Auth);
    }

    #[test]
    fn a_text_refers_to_it_by_its_id_or_by_what_it_reads_as_a_whole() {
        let one = subscription("src/lib.rs");
        for text in ["see src/lib.rs.", "./src/lib.rs", "[s1]", "s1", r#"{"path":"src/lib.rs"}"#] {
            assert!(one.is_named_in(text), "{text}");
        }
        for text in ["", "s12", "this1", "lib.rs", "src/lib.rsx", "src/lib", "S1"] {
            assert!(!one.is_named_in(text), "{text}");
        }
    }

    #[test]
    fn titles_are_short_whatever_the_target_is() {
        let one = Subscription { lines: Some((1, u64::MAX)), ..subscription(&"ä".repeat(2_000)) };
        assert!(one.title().chars().count() <= 200, "{}", one.title());
        assert!(one.title().contains("ä…, lines 1 to"), "{}", one.title());
        assert_eq!(subscription("a b").title(), "a b");
    }
}
