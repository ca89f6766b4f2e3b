//! A client's side of one session, through any number of engines.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::home::Home;
use crate::link::{Link, Numbered, is, text};

/// One session and its client.
#[derive(Debug)]
pub(super) struct Talk {
    name: String,
    project: PathBuf,
    session: Option<String>,
    /// The words by which messages are known, oldest first.
    said: Vec<String>,
    /// True if the last of them was acknowledged.
    acknowledged: bool,
    /// Turns that this connection has seen the end of.
    ended: usize,
    place: Place,
}

/// The event that the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To be in its session.
    Joining,
    /// The acknowledgement of a message.
    Saying,
    /// The end of a turn.
    Turn,
    /// The result of an approval.
    Approval,
}

impl Talk {
    /// Makes the client of a round, before its first message.
    pub(super) fn new(round: u32, project: &Path) -> Self {
        Self {
            name: format!("round{round}"),
            project: project.to_owned(),
            session: None,
            said: Vec::new(),
            acknowledged: true,
            ended: 0,
            place: Place::Joining,
        }
    }

    /// A word that all memories of this session hold.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file that its commands write to.
    pub(super) fn file(&self) -> String {
        format!("{}.txt", self.name)
    }

    /// The words of its messages.
    pub(super) fn said(&self) -> &[String] {
        &self.said
    }

    /// Its session.
    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the event that it waits for, or waited for when the engine was killed.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Notes that its engine has stopped.
    pub(super) const fn leave(&mut self) {
        self.place = Place::Joining;
    }

    /// Joins its session, or opens one.
    pub(super) fn join(&mut self, home: &Home) -> Result<Link> {
        let mut link = home.connect()?;
        let resume = match &self.session {
            None => json!({ "type": "resume", "session": null, "project": self.project }),
            Some(session) => json!({ "type": "resume", "session": session, "after_seq": 0 }),
        };
        link.send(&resume)?;
        let hello = link.until(|numbered| is(&numbered.frame, "type", "hello"))?;
        self.session = Some(text(&hello, "session").to_owned());
        // All stored frames come again.
        self.ended = 0;
        Ok(link)
    }

    /// Says message after message; ends only with the engine.
    pub(super) fn go_on_for_ever(&mut self, link: &mut Link) -> Result<()> {
        loop {
            self.settle(link)?;
            self.said.push(format!("{}word{}", self.name, self.said.len()));
            self.acknowledged = false;
        }
    }

    /// Waits until every message is answered, and every request is done.
    pub(super) fn settle(&mut self, link: &mut Link) -> Result<()> {
        if let Some(word) = self.said.last().filter(|_| !self.acknowledged) {
            self.place = Place::Saying;
            let message = format!("soak {} {word}", self.file());
            // Under the same id as before, if it was sent before: the engine knows it again.
            link.send(&json!({ "type": "message", "text": message, "client_id": word }))?;
            let word = word.clone();
            link.until(|numbered| {
                self.ended += usize::from(ends_turn(numbered));
                is(&numbered.frame, "type", "accepted") && is(&numbered.frame, "client_id", &word)
            })?;
            self.acknowledged = true;
        }
        self.place = Place::Turn;
        while self.ended < self.said.len() {
            let numbered = link.receive()?;
            self.ended += usize::from(ends_turn(&numbered));
        }
        self.place = Place::Approval;
        let listed = link.call_noting("approvals.list", &json!({}), |numbered| {
            self.ended += usize::from(ends_turn(numbered));
        })?;
        for card in listed.get("asks").and_then(Value::as_array).into_iter().flatten() {
            self.approve(link, text(card, "ask_id"))?;
        }
        ensure!(self.ended == self.said.len(), "{} messages, {} answers", self.said.len(), self.ended);
        Ok(())
    }

    fn approve(&mut self, link: &mut Link, ask: &str) -> Result<()> {
        link.send(&json!({ "type": "approval_response", "ask_id": ask, "decision": "approve" }))?;
        let resolved = link.until(|numbered| {
            self.ended += usize::from(ends_turn(numbered));
            let frame = &numbered.frame;
            // Frames of the session have a number; the answer to this client has none.
            numbered.seq == 0 && is(frame, "type", "approval_resolved") && is(frame, "ask_id", ask)
        })?;
        ensure!(is(&resolved, "state", "applied"), "ask {ask}: {resolved}");
        Ok(())
    }
}

/// Returns true if a frame is the last of a turn: its answer, or word that there will be none.
fn ends_turn(numbered: &Numbered) -> bool {
    let frame = &numbered.frame;
    let last = is(frame, "type", "message") && frame.get("last") == Some(&Value::Bool(true));
    numbered.seq > 0 && (last || is(frame, "type", "error"))
}
