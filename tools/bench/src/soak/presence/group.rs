//! A session as all of its clients see it together.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kind::Kind;
use crate::link::{is, text};

/// The most complaints in the record: the first say most.
const MOST_WRONG: usize = 20;
/// The endings of turns: an ask may be denied while its turn still runs.
pub(super) const ENDS: [&str; 4] = ["done", "waiting", "interrupted", "denied"];

/// A session and everything that its clients know of it.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    session: Option<String>,
    /// A hash of each stored frame, by its number less one.
    kept: Vec<u64>,
    /// The last stored frame of each client.
    places: Vec<u64>,
    said: BTreeMap<String, MessageState>,
    /// Asks by whether they have come to an end.
    asks: BTreeMap<String, bool>,
    wrong: Vec<String>,
}

/// The state of a message.
#[derive(Debug)]
struct MessageState {
    kind: Kind,
    at: Instant,
    acknowledged: Option<Duration>,
    /// The number of the frame that ended its turn, how it ended, and how long that took.
    ended: Option<(u64, String, Duration)>,
}

/// A message for the figures.
#[derive(Clone, Debug)]
pub(super) struct TurnFigures {
    pub(super) kind: Kind,
    pub(super) exit: String,
    pub(super) acknowledged: Duration,
    pub(super) ended: Duration,
}

/// The state of a group that several tasks share.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Group>>);

impl Shared {
    /// A group of so many clients, without a session yet.
    pub(super) fn new(name: String, clients: usize) -> Self {
        Self(Arc::new(Mutex::new(Group {
            name,
            session: None,
            kept: Vec::new(),
            places: vec![0; clients],
            said: BTreeMap::new(),
            asks: BTreeMap::new(),
            wrong: Vec::new(),
        })))
    }

    /// The group, for a moment.
    pub(super) fn lock(&self) -> MutexGuard<'_, Group> {
        // A task that panicked is found out by its end; what it left is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    /// A word that all its memories hold.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file that its commands write to.
    pub(super) fn file(&self) -> String {
        format!("{}.txt", self.name)
    }

    /// Its session.
    pub(super) fn session(&self) -> Option<String> {
        self.session.clone()
    }

    /// A client is in a session.
    pub(super) fn joined(&mut self, session: &str) {
        match &self.session {
            None => self.session = Some(session.to_owned()),
            Some(known) if known == session => {}
            Some(known) => self.blame(format!("a client of {known} is greeted with {session}")),
        }
    }

    /// Makes the next message; its word and its frame.
    pub(super) fn say(&mut self, kind: Kind) -> (String, Value) {
        let word = format!("{}w{}", self.name, self.said.len());
        let message = format!("presence {} {} {word}", kind.name(), self.file());
        let said = MessageState { kind, at: Instant::now(), acknowledged: None, ended: None };
        self.said.insert(word.clone(), said);
        let frame = json!({ "type": "message", "text": message, "client_id": word });
        (word, frame)
    }

    /// A message is stored, says the engine.
    pub(super) fn acknowledge(&mut self, word: &str) {
        match self.said.get_mut(word) {
            Some(said) => drop(said.acknowledged.get_or_insert(said.at.elapsed())),
            None => self.blame(format!("{word} was accepted and never said")),
        }
    }

    /// Notes a stored frame that a client got; returns an ask that it makes.
    pub(super) fn keep(&mut self, client: usize, seq: u64, frame: &Value) -> Option<String> {
        let place = self.places.get_mut(client)?;
        let before = std::mem::replace(place, seq);
        if seq != before + 1 {
            self.blame(format!("client {client} has got frame {seq} after {before}: {frame}"));
            return None;
        }
        let hash = hashed(frame);
        let known = usize::try_from(seq - 1).ok().and_then(|index| self.kept.get(index)).copied();
        match known {
            Some(known) if known == hash => {}
            Some(_) => {
                self.blame(format!("clients have seen two different frames {seq}, one of them {frame}"))
            }
            None => {
                self.kept.push(hash);
                self.note(seq, frame);
            }
        }
        let asks = is(frame, "type", "approval_request");
        asks.then(|| text(frame, "ask_id").to_owned())
    }

    fn note(&mut self, seq: u64, frame: &Value) {
        let (ask, last) = (text(frame, "ask_id"), frame.get("last") == Some(&Value::Bool(true)));
        match text(frame, "type") {
            "approval_request" => drop(self.asks.insert(ask.to_owned(), false)),
            "approval_resolved" => drop(self.asks.insert(ask.to_owned(), true)),
            "message" | "response" if last => self.end(seq, frame),
            "error" => self.end(seq, frame),
            _ => {}
        }
    }

    fn end(&mut self, seq: u64, frame: &Value) {
        let exit = text(frame, "exit");
        if !ENDS.contains(&exit) {
            self.blame(format!("a turn ended with {frame}"));
        }
        let answers = frame.get("answers").and_then(Value::as_array).into_iter().flatten();
        for word in answers.filter_map(Value::as_str) {
            let Some(said) = self.said.get_mut(word) else {
                self.blame(format!("frame {seq} answers {word}, which was never said"));
                continue;
            };
            let took = said.at.elapsed();
            if let Some((first, ..)) = said.ended.replace((seq, exit.to_owned(), took)) {
                self.blame(format!("frames {first} and {seq} both answer {word}"));
            }
        }
    }

    /// Notes the number of the session's last stored frame in a greeting.
    pub(super) fn greeted(&mut self, client: usize, seq: u64) {
        if let Some(place) = self.places.get(client).copied()
            && seq < place
        {
            self.blame(format!("client {client} has seen frame {place}, and the engine has {seq}"));
        }
    }

    /// Returns the last stored frame of a client.
    pub(super) fn place(&self, client: usize) -> u64 {
        self.places.get(client).copied().unwrap_or_default()
    }

    /// The asks that have not come to an end.
    pub(super) fn open_asks(&self) -> Vec<String> {
        self.asks.iter().filter(|(_, ended)| !**ended).map(|(ask, _)| ask.clone()).collect()
    }

    /// Returns the number of asks.
    pub(super) fn asks(&self) -> usize {
        self.asks.len()
    }

    /// Returns true if a message that is to be cancelled has not ended.
    pub(super) fn to_cancel(&self) -> bool {
        self.said.values().any(|said| said.kind == Kind::Cancel && said.ended.is_none())
    }

    /// Returns true if an answer is due.
    pub(super) fn is_busy(&self) -> bool {
        self.said.values().any(|said| said.ended.is_none())
    }

    /// Says what it waits for, in words; `None` if every message is answered, every ask is done and every
    /// client has seen everything.
    pub(super) fn waits(&self) -> Option<String> {
        let words = |open: &dyn Fn(&MessageState) -> bool| -> Vec<&str> {
            self.said.iter().filter(|(_, said)| open(said)).map(|(word, _)| word.as_str()).collect()
        };
        let unacknowledged = words(&|said| said.acknowledged.is_none());
        let unended = words(&|said| said.ended.is_none());
        let open = self.open_asks();
        let last = u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        let behind = self.places.iter().filter(|place| **place != last).count();
        let rests = unacknowledged.is_empty() && unended.is_empty() && open.is_empty() && behind == 0;
        (!rests).then(|| {
            format!(
                "{} waits: not acknowledged {unacknowledged:?}, not answered {unended:?}, open asks {open:?}, \
                 {behind} clients behind frame {last} ({:?})",
                self.name, self.places
            )
        })
    }

    /// Something does not fit.
    pub(super) fn blame(&mut self, what: String) {
        if self.wrong.len() < MOST_WRONG {
            self.wrong.push(format!("{} ({}): {what}", self.name, self.session.as_deref().unwrap_or("none")));
        }
    }

    /// Lists the contradictions.
    pub(super) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    /// Returns the number of stored frames.
    pub(super) fn frames(&self) -> usize {
        self.kept.len()
    }

    /// The words of its messages.
    pub(super) fn words(&self) -> BTreeSet<String> {
        self.said.keys().cloned().collect()
    }

    /// Its messages that came to their end.
    pub(super) fn told(&self) -> Vec<TurnFigures> {
        let told = self.said.values().filter_map(|said| {
            let (_, exit, ended) = said.ended.clone()?;
            Some(TurnFigures { kind: said.kind, exit, acknowledged: said.acknowledged?, ended })
        });
        told.collect()
    }
}

/// Hashes the content of a frame, independent of the client's path.
fn hashed(frame: &Value) -> u64 {
    let mut frame = frame.clone();
    if let Some(fields) = frame.as_object_mut()
        && fields.get("type") == Some(&json!("response"))
    {
        for added in ["content", "session_id", "message_id"] {
            fields.remove(added);
        }
        fields.insert("type".to_owned(), json!("message"));
    }
    let mut hasher = DefaultHasher::new();
    frame.to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(seq: u64, answers: &[&str]) -> Value {
        let exit = "done";
        json!({ "type": "message", "seq": seq, "text": "Yes.", "last": true, "exit": exit, "answers": answers })
    }

    /// Two clients, one message with a tool, everything seen by both.
    fn good() -> Shared {
        let shared = Shared::new("g1".to_owned(), 2);
        let mut group = shared.lock();
        group.joined("s");
        assert_eq!(group.say(Kind::Command).0, "g1w0");
        group.acknowledge("g1w0");
        let tool = json!({ "type": "tool", "seq": 1, "tool": "shell_exec" });
        for client in 0..2 {
            assert_eq!(group.keep(client, 1, &tool), None);
            group.keep(client, 2, &last(2, &["g1w0"]));
        }
        drop(group);
        shared
    }

    #[test]
    fn a_good_session_rests_with_nothing_wrong() {
        let shared = good();
        let group = shared.lock();
        assert_eq!((group.wrong(), group.waits()), (&[][..], None));
        assert_eq!((group.told().len(), group.frames()), (1, 2));
    }

    #[test]
    fn what_is_missed_doubled_different_lost_or_answered_twice_is_named() {
        type Case = (&'static str, fn(&mut Group));
        let cases: [Case; 8] = [
            ("frame 4 after 2", |group| drop(group.keep(0, 4, &json!({})))),
            ("frame 2 after 2", |group| drop(group.keep(0, 2, &json!({})))),
            ("two different frames 3", |group| {
                group.keep(0, 3, &json!({ "type": "status", "text": "a" }));
                group.keep(1, 3, &json!({ "type": "status", "text": "b" }));
            }),
            ("the engine has 1", |group| group.greeted(1, 1)),
            ("frames 2 and 3 both answer g1w0", |group| drop(group.keep(0, 3, &last(3, &["g1w0"])))),
            ("answers g1w7", |group| drop(group.keep(0, 3, &last(3, &["g1w7"])))),
            ("greeted with t", |group| group.joined("t")),
            ("a turn ended with", |group| {
                drop(group.keep(0, 3, &json!({ "type": "error", "exit": "bug", "answers": [] })));
            }),
        ];
        for (expected, change) in cases {
            let shared = good();
            change(&mut shared.lock());
            let wrong = shared.lock().wrong().to_vec();
            assert!(wrong.first().is_some_and(|wrong| wrong.contains(expected)), "{expected}: {wrong:?}");
        }
    }

    #[test]
    fn it_waits_for_answers_asks_and_those_behind() {
        type Case = (&'static str, fn(&mut Group));
        let cases: [Case; 3] = [
            ("not answered [\"g1w1\"]", |group| drop(group.say(Kind::Talk))),
            ("open asks [\"a\"]", |group| {
                let ask = json!({ "type": "approval_request", "ask_id": "a" });
                assert_eq!(group.keep(0, 3, &ask), Some("a".to_owned()));
            }),
            ("1 clients behind frame 3", |group| drop(group.keep(0, 3, &json!({})))),
        ];
        for (expected, change) in cases {
            let shared = good();
            change(&mut shared.lock());
            let waits = shared.lock().waits().unwrap();
            assert!(waits.contains(expected), "{expected}: {waits}");
        }
    }

    #[test]
    fn both_shapes_of_a_message_are_the_same() {
        let plain = last(2, &["g1w0"]);
        let mut shaped = plain.clone();
        for (name, value) in
            [("type", "response"), ("content", "Yes."), ("session_id", "s"), ("message_id", "t-2")]
        {
            shaped[name] = json!(value);
        }
        assert_eq!(hashed(&plain), hashed(&shaped));
        shaped["text"] = json!("No.");
        assert_ne!(hashed(&plain), hashed(&shaped));
    }
}
