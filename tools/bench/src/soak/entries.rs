//! The entries of one session, and what of them does not fit together.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// Entries as `audit search --json` prints them, the newest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a>(pub(super) &'a [Value]);

/// The number of each ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) done: usize,
    pub(super) unknown: usize,
}

impl<'a> Entries<'a> {
    /// Returns the recorded facts of one kind.
    pub(super) fn facts(self, event: &str) -> impl Iterator<Item = &'a Value> {
        let entries = self.0.iter().filter(move |entry| text(entry, "/event") == Some(event));
        entries.filter_map(|entry| entry.get("payload"))
    }

    /// The intents of one kind of action.
    pub(super) fn intents(self, kind: &str) -> impl Iterator<Item = &'a Value> {
        self.facts("intent").filter(move |fact| text(fact, "/action/kind") == Some(kind))
    }

    /// The intents of commands that write a word.
    pub(super) fn commands(self, word: &str) -> impl Iterator<Item = &'a Value> {
        let begins = format!("echo {word} ");
        self.intents("exec")
            .filter(move |fact| text(fact, "/action/argv/2").is_some_and(|line| line.starts_with(&begins)))
    }

    /// The intents to remember a word.
    pub(super) fn remembered(self, word: &str) -> impl Iterator<Item = &'a Value> {
        self.intents("remember").filter(move |fact| is_of(fact, "/action/text", word))
    }

    /// Returns the outcome of an intent, if it has one.
    pub(super) fn outcome(self, intent: &Value) -> Option<&'a str> {
        let attempt = text(intent, "/attempt")?;
        let outcome = self.facts("outcome").find(|fact| text(fact, "/attempt") == Some(attempt))?;
        text(outcome, "/outcome")
    }

    /// Counts how intents ended.
    pub(super) fn count(self, intents: impl Iterator<Item = &'a Value>, ends: &mut Ends) {
        for intent in intents {
            match self.outcome(intent) {
                Some("done") => ends.done += 1,
                Some(_) | None => ends.unknown += 1,
            }
        }
    }

    /// A tool is begun once. If it is done, its effect is there once; if the outcome is unknown, at most
    /// once.
    pub(super) fn judge(
        self,
        what: &str,
        intents: impl Iterator<Item = &'a Value>,
        effects: usize,
        wrong: &mut Vec<String>,
    ) {
        let ends: Vec<Option<&str>> = intents.map(|intent| self.outcome(intent)).collect();
        match ends.as_slice() {
            [Some("done")] if effects == 1 => {}
            [Some("unknown") | None] if effects <= 1 => {}
            _ => wrong.push(format!("{what} was begun and ended as {ends:?}, and had {effects} effects")),
        }
    }

    /// Each intent has one end, or is listed as open.
    pub(super) fn judge_intents(self, status: &Value, wrong: &mut Vec<String>) {
        let listed = status.get("open_intents").and_then(Value::as_array).into_iter().flatten();
        let listed: BTreeSet<&str> = listed.filter_map(|open| text(open, "/attempt")).collect();
        for intent in self.facts("intent") {
            let Some(attempt) = text(intent, "/attempt") else {
                wrong.push("an intent names no attempt".to_owned());
                continue;
            };
            let ends = ["outcome", "model_called"].map(|event| {
                self.facts(event).filter(|fact| text(fact, "/attempt") == Some(attempt)).count()
            });
            let ends: usize = ends.iter().sum();
            if ends > 1 || (ends == 1) == listed.contains(attempt) {
                wrong
                    .push(format!("attempt {attempt} has {ends} ends, listed: {}", listed.contains(attempt)));
            }
        }
    }
}

impl Ends {
    /// Adds others.
    pub(super) const fn add(&mut self, other: Self) {
        self.done += other.done;
        self.unknown += other.unknown;
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} done, {} unknown", self.done, self.unknown)
    }
}

/// A text at a path.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

/// Returns true if a text is that of a message: it ends with its word, after a space.
pub(super) fn is_of(value: &Value, path: &str, word: &str) -> bool {
    text(value, path).and_then(|text| text.rsplit(' ').next()) == Some(word)
}
