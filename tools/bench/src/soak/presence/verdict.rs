//! Compares a session at rest with the ledger and the world.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::MOST_ENTRIES;
use super::super::entries::{Ends, Entries, is_of, text};
use super::group::Shared;
use crate::home::Home;
use crate::link::{Link, is};

/// Tools by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tools {
    pub(super) commands: Ends,
    pub(super) memories: Ends,
    pub(super) files: Ends,
}

/// Everything that there is to see of one session.
#[derive(Clone, Debug, Default)]
struct Remainder {
    words: Vec<String>,
    entries: Vec<Value>,
    memories: Vec<String>,
    /// The lines of all files in its sandbox.
    lines: Vec<String>,
}

/// Looks at all sessions; what does not fit fails.
pub(super) fn judge(home: &Home, groups: &[Shared]) -> Result<Tools> {
    let mut link = home.connect()?;
    let _greeted = join(&mut link)?;
    let status = link.call("status", &json!({}))?;
    let mut wrong = Vec::new();
    for path in ["/queue/ready", "/queue/leased", "/queue/dead", "/open_asks"] {
        let waiting = status.pointer(path).and_then(Value::as_u64);
        if waiting != Some(0) {
            wrong.push(format!("status {path} is {waiting:?}"));
        }
    }
    let mut tools = Tools::default();
    for group in groups {
        let Some(left) = look(home, &mut link, group)? else { continue };
        left.judge(&status, &mut wrong);
        left.tally(&mut tools);
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(tools)
}

/// A client of the socket is in a session before it asks.
fn join(link: &mut Link) -> Result<Value> {
    link.send(&json!({ "type": "resume", "session": null }))?;
    link.until(|numbered| is(&numbered.frame, "type", "hello"))
}

fn look(home: &Home, link: &mut Link, group: &Shared) -> Result<Option<Remainder>> {
    let (session, name, words) = {
        let group = group.lock();
        (group.session(), group.name().to_owned(), group.words().into_iter().collect())
    };
    let Some(session) = session else { return Ok(None) };
    let found = link.call("memory.search", &json!({ "query": name, "limit": 500 }))?;
    let memories = found.get("hits").and_then(Value::as_array).into_iter().flatten();
    let memories = memories.filter_map(|hit| Some(hit.get("text")?.as_str()?.to_owned())).collect();
    let show = json!({ "argv": ["sh", "-c", "cat *.txt 2>/dev/null || true"], "session": session });
    let shown = link.call("sandbox.exec", &show)?;
    let shown = shown.get("stdout").and_then(Value::as_str).context("the files were not read")?;
    let lines = shown.lines().map(str::to_owned).collect();
    let exported =
        home.writ(&["audit", "search", "--session", &session, "-n", MOST_ENTRIES, "--json"]).output()?;
    ensure!(exported.success, "audit search: {}", exported.stderr.trim());
    let entries = exported.stdout.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok(Some(Remainder { words, entries, memories, lines }))
}

impl Remainder {
    fn ledger(&self) -> Entries<'_> {
        Entries(&self.entries)
    }

    fn judge(&self, status: &Value, wrong: &mut Vec<String>) {
        let ledger = self.ledger();
        for word in &self.words {
            let received = ledger.facts("received").filter(|fact| is_of(fact, "/text", word)).count();
            if received != 1 {
                wrong.push(format!("message {word} was received {received} times"));
            }
            let lines = self.lines.iter().filter(|line| *line == word).count();
            let begun: Vec<&Value> = ledger.commands(word).chain(self.files(word)).collect();
            self.judge_effects(&format!("{word} in the sandbox"), &begun, lines, wrong);
            let kept = self.memories.iter().filter(|text| text.rsplit(' ').next() == Some(word)).count();
            let begun: Vec<&Value> = ledger.remembered(word).collect();
            self.judge_effects(&format!("memory {word}"), &begun, kept, wrong);
        }
        if let Some(strange) = self.lines.iter().find(|line| !self.words.contains(line)) {
            wrong.push(format!("nobody wrote the line {strange:?}"));
        }
        let failed = ledger.facts("phase").filter(|fact| text(fact, "/phase") == Some("failed")).count();
        if failed > 0 {
            wrong.push(format!("{failed} turns failed"));
        }
        ledger.judge_intents(status, wrong);
    }

    /// A tool is begun once at most. If it is done, its effect is there once; if the outcome is unknown, at
    /// most once.
    fn judge_effects(&self, what: &str, begun: &[&Value], effects: usize, wrong: &mut Vec<String>) {
        let ends: Vec<Option<&str>> = begun.iter().map(|intent| self.ledger().outcome(intent)).collect();
        match ends.as_slice() {
            [] if effects == 0 => {}
            [Some("done")] if effects == 1 => {}
            [Some("unknown" | "cancelled") | None] if effects <= 1 => {}
            _ => wrong.push(format!("{what} was begun and ended as {ends:?}, and had {effects} effects")),
        }
    }

    fn files<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Value> {
        let name = format!("{word}.txt");
        let writes = move |fact: &&Value| {
            let path = text(fact, "/action/changes/0/path");
            path.is_some_and(|path| path.rsplit('/').next() == Some(name.as_str()))
        };
        self.ledger().intents("write_file").filter(writes)
    }

    fn tally(&self, tools: &mut Tools) {
        let ledger = self.ledger();
        for word in &self.words {
            ledger.count(ledger.commands(word), &mut tools.commands);
            ledger.count(ledger.remembered(word), &mut tools.memories);
            ledger.count(self.files(word), &mut tools.files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str, payload: &Value) -> Value {
        json!({ "event": event, "payload": payload })
    }

    /// A session of a command, a memory and a file.
    fn good() -> Remainder {
        let begun = |attempt: &str, action: &Value, end: &str| {
            let intent = json!({ "attempt": attempt, "action": action });
            [entry("outcome", &json!({ "attempt": attempt, "outcome": end })), entry("intent", &intent)]
        };
        let received = |kind: &str, word: &str| {
            entry("received", &json!({ "text": format!("presence {kind} g1.txt {word}") }))
        };
        let argv = json!(["sh", "-c", "echo g1w0 >> g1.txt"]);
        let changes = json!([{ "path": "/work/g1w2.txt" }]);
        let mut entries = Vec::new();
        entries.extend(begun("c", &json!({ "kind": "write_file", "changes": changes }), "done"));
        entries.extend(begun("b", &json!({ "kind": "remember", "text": "note g1 g1w1" }), "done"));
        entries.extend(begun("a", &json!({ "kind": "exec", "argv": argv }), "done"));
        entries.extend([received("write", "g1w2"), received("memory", "g1w1"), received("command", "g1w0")]);
        let words = ["g1w0", "g1w1", "g1w2"].map(str::to_owned).to_vec();
        let lines = ["g1w0", "g1w2"].map(str::to_owned).to_vec();
        Remainder { words, entries, memories: vec!["note g1 g1w1".to_owned()], lines }
    }

    fn wrong(change: impl FnOnce(&mut Remainder)) -> Vec<String> {
        let (mut left, mut wrong) = (good(), Vec::new());
        change(&mut left);
        left.judge(&json!({ "open_intents": [] }), &mut wrong);
        wrong
    }

    #[test]
    fn a_good_session_has_nothing_wrong_and_is_counted() {
        assert_eq!(wrong(|_| {}), Vec::<String>::new());
        let (mut tools, once) = (Tools::default(), Ends { done: 1, unknown: 0 });
        good().tally(&mut tools);
        assert_eq!(tools, Tools { commands: once, memories: once, files: once });
    }

    #[test]
    fn whatever_is_lost_or_done_twice_is_named() {
        type Case = (&'static str, fn(&mut Remainder));
        let cases: [Case; 9] = [
            ("had 2 effects", |left| left.lines.push("g1w0".to_owned())),
            ("had 0 effects", |left| left.lines.clear()),
            ("had 2 effects", |left| left.memories.extend(left.memories.clone())),
            ("had 0 effects", |left| left.memories.clear()),
            ("nobody wrote", |left| left.lines.push("g2w0".to_owned())),
            ("was begun", |left| left.entries.extend(left.entries.clone().into_iter().skip(5).take(1))),
            ("was received 0 times", |left| drop(left.entries.pop())),
            ("has 0 ends", |left| drop(left.entries.remove(0))),
            ("1 turns failed", |left| left.entries.push(entry("phase", &json!({ "phase": "failed" })))),
        ];
        for (expected, change) in cases {
            let found = wrong(change);
            assert!(found.iter().any(|wrong| wrong.contains(expected)), "{expected}: {found:?}");
        }
    }
}
