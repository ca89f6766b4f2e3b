//! Judges a session at its end, and lists the contradictions.

use std::fmt;

use serde_json::Value;

use super::entries::{Ends, Entries, is_of, text};

/// Everything that there is to see.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionView {
    /// The words of the messages that were acknowledged.
    pub(super) said: Vec<String>,
    /// The entries of the session.
    pub(super) entries: Vec<Value>,
    /// The answer to `status`.
    pub(super) status: Value,
    /// The memories of the session.
    pub(super) memories: Vec<String>,
    /// The file of the session as its sandbox shows it, and as it is in the project.
    pub(super) inside: String,
    pub(super) outside: String,
}

/// Tools by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    commands: Ends,
    memories: Ends,
    applied: Ends,
}

impl SessionView {
    /// Lists the contradictions in words; empty if there are none.
    pub(super) fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let ledger = self.ledger();
        for word in &self.said {
            let received = ledger.facts("received").filter(|fact| is_of(fact, "/text", word)).count();
            if received != 1 {
                wrong.push(format!("message {word} was received {received} times"));
            }
            let lines = self.inside.lines().filter(|line| line == word).count();
            ledger.judge(&format!("command {word}"), ledger.commands(word), lines, &mut wrong);
            let kept = self.memories.iter().filter(|text| text.ends_with(word)).count();
            ledger.judge(&format!("memory {word}"), ledger.remembered(word), kept, &mut wrong);
            let copies = self.outside.lines().filter(|line| line == word).count();
            if copies > 1 {
                wrong.push(format!("{word} is in the project {copies} times"));
            }
        }
        self.judge_turns(&mut wrong);
        ledger.judge_intents(&self.status, &mut wrong);
        self.judge_project(&mut wrong);
        wrong
    }

    /// Counts how the tools of the session ended.
    pub(super) fn tally(&self) -> Tally {
        let (mut tally, ledger) = (Tally::default(), self.ledger());
        for word in &self.said {
            ledger.count(ledger.commands(word), &mut tally.commands);
            ledger.count(ledger.remembered(word), &mut tally.memories);
        }
        ledger.count(self.applied(), &mut tally.applied);
        tally
    }

    /// Each message has one end, and nothing waits any more.
    fn judge_turns(&self, wrong: &mut Vec<String>) {
        let given_up =
            self.ledger().facts("phase").filter(|fact| text(fact, "/phase") == Some("failed")).count();
        let replied = self.ledger().facts("replied").count();
        if replied + given_up != self.said.len() {
            wrong.push(format!("{} messages, {replied} replies, {given_up} failed", self.said.len()));
        }
        for path in ["/queue/ready", "/queue/leased", "/queue/dead", "/open_asks"] {
            let waiting = self.status.pointer(path).and_then(Value::as_u64);
            if waiting != Some(0) {
                wrong.push(format!("status {path} is {waiting:?}"));
            }
        }
    }

    /// The applied changes are those of the sandbox.
    fn judge_project(&self, wrong: &mut Vec<String>) {
        let ends: Vec<Option<&str>> = self.applied().map(|intent| self.ledger().outcome(intent)).collect();
        if let Some(end) = ends.iter().find(|end| !matches!(end, Some("done" | "unknown") | None)) {
            wrong.push(format!("applying ended as {end:?}"));
        }
        if ends.last() == Some(&Some("done")) && self.inside != self.outside {
            wrong.push(format!("the project has {:?} and the sandbox shows {:?}", self.outside, self.inside));
        }
    }

    const fn ledger(&self) -> Entries<'_> {
        Entries(self.entries.as_slice())
    }

    /// Oldest first; the newest entry comes first.
    fn applied(&self) -> impl Iterator<Item = &Value> {
        let applied =
            self.ledger().intents("write_file").filter(|fact| text(fact, "/action/place") == Some("project"));
        applied.collect::<Vec<_>>().into_iter().rev()
    }
}

impl Tally {
    /// Adds another.
    pub(super) const fn add(&mut self, other: &Self) {
        self.commands.add(other.commands);
        self.memories.add(other.memories);
        self.applied.add(other.applied);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commands, memories, applied } = self;
        write!(f, "commands: {commands}; memories: {memories}; diffs applied: {applied}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(event: &str, payload: &Value) -> Value {
        json!({ "event": event, "payload": payload })
    }

    fn outcome(attempt: &str, outcome: &str) -> Value {
        entry("outcome", &json!({ "attempt": attempt, "outcome": outcome }))
    }

    /// A session of one message in which everything went well.
    fn good() -> SessionView {
        let intent =
            |attempt: &str, action: &Value| entry("intent", &json!({ "attempt": attempt, "action": action }));
        let argv = json!(["sh", "-c", "echo round1word0 >> round1.txt"]);
        // The newest comes first.
        let entries = vec![
            outcome("c", "done"),
            intent("c", &json!({ "kind": "write_file", "place": "project" })),
            entry("replied", &json!({})),
            outcome("b", "done"),
            intent("b", &json!({ "kind": "remember", "text": "note round1 round1word0" })),
            outcome("a", "done"),
            intent("a", &json!({ "kind": "exec", "argv": argv })),
            entry("received", &json!({ "text": "soak round1.txt round1word0" })),
        ];
        SessionView {
            said: vec!["round1word0".to_owned()],
            entries,
            status: json!({ "queue": { "ready": 0, "leased": 0, "dead": 0 }, "open_asks": 0, "open_intents": [] }),
            memories: vec!["note round1 round1word0".to_owned()],
            inside: "round1word0\n".to_owned(),
            outside: "round1word0\n".to_owned(),
        }
    }

    fn violations(change: impl FnOnce(&mut SessionView)) -> Vec<String> {
        let mut seen = good();
        change(&mut seen);
        seen.violations()
    }

    fn set_outcome(seen: &mut SessionView, attempt: &str, end: &str) {
        for one in &mut seen.entries {
            if *one == outcome(attempt, "done") {
                *one = outcome(attempt, end);
            }
        }
    }

    #[test]
    fn a_good_session_has_nothing_wrong_and_is_counted() {
        assert_eq!(good().violations(), Vec::<String>::new());
        let once = Ends { done: 1, unknown: 0 };
        assert_eq!(good().tally(), Tally { commands: once, memories: once, applied: once });
    }

    #[test]
    fn what_nobody_knows_may_have_happened_or_not_but_not_twice() {
        let unknown = |effects: usize| {
            violations(|seen| {
                set_outcome(seen, "a", "unknown");
                seen.inside = "round1word0\n".repeat(effects);
                seen.outside.clone_from(&seen.inside);
            })
        };
        assert!(unknown(0).is_empty() && unknown(1).is_empty());
        assert_eq!(unknown(2).len(), 2, "in the sandbox, and in the project: {:?}", unknown(2));
    }

    #[test]
    fn whatever_is_lost_or_done_twice_is_named() {
        type Case = (&'static str, fn(&mut SessionView));
        let cases: [Case; 12] = [
            ("had 2 effects", |seen| seen.inside.push_str("round1word0\n")),
            ("had 0 effects", |seen| seen.inside.clear()),
            ("had 0 effects", |seen| seen.memories.clear()),
            ("had 2 effects", |seen| seen.memories.extend(seen.memories.clone())),
            ("the project has", |seen| seen.outside.clear()),
            ("in the project 2 times", |seen| seen.outside.push_str("round1word0\n")),
            ("was begun", |seen| seen.entries.push(seen.entries.iter().nth_back(1).unwrap().clone())),
            ("was received 0 times", |seen| drop(seen.entries.pop())),
            ("1 messages, 0 replies", |seen| drop(seen.entries.remove(2))),
            ("/queue/dead", |seen| seen.status["queue"]["dead"] = json!(1)),
            ("has 0 ends", |seen| drop(seen.entries.remove(0))),
            ("applying ended as", |seen| set_outcome(seen, "c", "failed")),
        ];
        for (expected, change) in cases {
            let found = violations(change);
            assert!(found.iter().any(|violation| violation.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn an_open_intent_is_listed_and_a_closed_one_is_not() {
        let list =
            |seen: &mut SessionView| seen.status["open_intents"] = json!([{ "attempt": "c", "entry": 1 }]);
        let open = violations(|seen| {
            seen.entries.remove(0);
            list(seen);
        });
        assert_eq!(open, Vec::<String>::new());
        assert_eq!(violations(list), ["attempt c has 1 ends, listed: true"]);
    }
}
