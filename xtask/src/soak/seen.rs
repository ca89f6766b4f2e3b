//! What a session has left when it has come to its end, and what of it does not fit together.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// Everything that there is to see.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
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

/// How many ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    done: usize,
    unknown: usize,
}

impl Seen {
    /// What does not fit together, in words; nothing if everything does.
    pub(super) fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for word in &self.said {
            let received = self.facts("received").filter(|fact| is_of(fact, "/text", word)).count();
            if received != 1 {
                wrong.push(format!("message {word} was received {received} times"));
            }
            let lines = self.inside.lines().filter(|line| line == word).count();
            self.judge(&format!("command {word}"), self.commands(word), lines, &mut wrong);
            let kept = self.memories.iter().filter(|text| text.ends_with(word)).count();
            self.judge(&format!("memory {word}"), self.remembered(word), kept, &mut wrong);
            let copies = self.outside.lines().filter(|line| line == word).count();
            if copies > 1 {
                wrong.push(format!("{word} is in the project {copies} times"));
            }
        }
        self.judge_turns(&mut wrong);
        self.judge_intents(&mut wrong);
        self.judge_project(&mut wrong);
        wrong
    }

    /// How the tools of the session ended.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for word in &self.said {
            self.count(self.commands(word), &mut tally.commands);
            self.count(self.remembered(word), &mut tally.memories);
        }
        self.count(self.applied(), &mut tally.applied);
        tally
    }

    fn count<'a>(&'a self, intents: impl Iterator<Item = &'a Value>, ends: &mut Ends) {
        for intent in intents {
            match self.outcome(intent) {
                Some("done") => ends.done += 1,
                Some(_) | None => ends.unknown += 1,
            }
        }
    }

    /// A tool is begun once. If it is done, its effect is there once; if nobody knows, at most once.
    fn judge<'a>(
        &'a self,
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

    /// Each message has one end, and nothing waits any more.
    fn judge_turns(&self, wrong: &mut Vec<String>) {
        let given_up = self.facts("phase").filter(|fact| text(fact, "/phase") == Some("failed")).count();
        let replied = self.facts("replied").count();
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

    /// Each intent has one end, or is listed as open.
    fn judge_intents(&self, wrong: &mut Vec<String>) {
        let listed = self.status.get("open_intents").and_then(Value::as_array).into_iter().flatten();
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

    /// What was applied is what the sandbox shows.
    fn judge_project(&self, wrong: &mut Vec<String>) {
        let ends: Vec<Option<&str>> = self.applied().map(|intent| self.outcome(intent)).collect();
        if let Some(end) = ends.iter().find(|end| !matches!(end, Some("done" | "unknown") | None)) {
            wrong.push(format!("applying ended as {end:?}"));
        }
        if ends.last() == Some(&Some("done")) && self.inside != self.outside {
            wrong.push(format!("the project has {:?} and the sandbox shows {:?}", self.outside, self.inside));
        }
    }

    fn facts<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a Value> {
        let entries = self.entries.iter().filter(move |entry| text(entry, "/event") == Some(event));
        entries.filter_map(|entry| entry.get("payload"))
    }

    fn intents<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.facts("intent").filter(move |fact| text(fact, "/action/kind") == Some(kind))
    }

    fn commands<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Value> {
        let begins = format!("echo {word} ");
        self.intents("exec")
            .filter(move |fact| text(fact, "/action/argv/2").is_some_and(|line| line.starts_with(&begins)))
    }

    fn remembered<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Value> {
        self.intents("remember").filter(move |fact| is_of(fact, "/action/text", word))
    }

    /// Oldest first; the newest entry comes first.
    fn applied(&self) -> impl Iterator<Item = &Value> {
        let applied =
            self.intents("write_file").filter(|fact| text(fact, "/action/place") == Some("project"));
        applied.collect::<Vec<_>>().into_iter().rev()
    }

    fn outcome(&self, intent: &Value) -> Option<&str> {
        let attempt = text(intent, "/attempt")?;
        let outcome = self.facts("outcome").find(|fact| text(fact, "/attempt") == Some(attempt))?;
        text(outcome, "/outcome")
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

impl Ends {
    const fn add(&mut self, other: Self) {
        self.done += other.done;
        self.unknown += other.unknown;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = |ends: Ends| format!("{} done, {} unknown", ends.done, ends.unknown);
        write!(
            f,
            "commands: {}; memories: {}; diffs applied: {}",
            ends(self.commands),
            ends(self.memories),
            ends(self.applied)
        )
    }
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

/// Whether a text is that of a message: it ends with its word, after a space.
fn is_of(value: &Value, path: &str, word: &str) -> bool {
    text(value, path).and_then(|text| text.rsplit(' ').next()) == Some(word)
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
    fn good() -> Seen {
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
        Seen {
            said: vec!["round1word0".to_owned()],
            entries,
            status: json!({ "queue": { "ready": 0, "leased": 0, "dead": 0 }, "open_asks": 0, "open_intents": [] }),
            memories: vec!["note round1 round1word0".to_owned()],
            inside: "round1word0\n".to_owned(),
            outside: "round1word0\n".to_owned(),
        }
    }

    fn violations(change: impl FnOnce(&mut Seen)) -> Vec<String> {
        let mut seen = good();
        change(&mut seen);
        seen.violations()
    }

    fn set_outcome(seen: &mut Seen, attempt: &str, end: &str) {
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
        type Case = (&'static str, fn(&mut Seen));
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
        let list = |seen: &mut Seen| seen.status["open_intents"] = json!([{ "attempt": "c", "entry": 1 }]);
        let open = violations(|seen| {
            seen.entries.remove(0);
            list(seen);
        });
        assert_eq!(open, Vec::<String>::new());
        assert_eq!(violations(list), ["attempt c has 1 ends, listed: true"]);
    }
}
