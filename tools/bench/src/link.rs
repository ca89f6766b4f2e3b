//! A client that speaks frames with an engine.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use task_process::Ended;

/// Longer than an engine may say nothing: what hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection. Every call fails with [`Ended`] once the engine has stopped.
#[derive(Debug)]
pub(crate) struct Link {
    out: UnixStream,
    lines: BufReader<UnixStream>,
    sent: u64,
}

/// A frame with its place in the session's stream; zero for one that is not stored. A greeting carries the
/// place of the last stored frame.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    pub(crate) seq: u64,
    pub(crate) frame: Value,
}

impl Link {
    /// Connects.
    pub(crate) fn open(socket: &Path) -> Result<Self> {
        let out = UnixStream::connect(socket).map_err(|_| gone())?;
        out.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(out.try_clone()?);
        Ok(Self { out, lines, sent: 0 })
    }

    /// The next number for what is sent: no two are the same.
    pub(crate) fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// Says something.
    pub(crate) fn send(&mut self, frame: &Value) -> Result<()> {
        self.out.write_all(format!("{frame}\n").as_bytes()).map_err(|_| gone())
    }

    /// Receives the next frame.
    pub(crate) fn receive(&mut self) -> Result<Numbered> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {}
            // It has ended before or within a line.
            Ok(_) => return Err(gone()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("the engine says nothing"),
            Err(_) => return Err(gone()),
        }
        let frame: Value = serde_json::from_str(&line)?;
        let seq = frame.get("seq").and_then(Value::as_u64).context("a line without a number")?;
        Ok(Numbered { seq, frame })
    }

    /// Receives the next matching frame; a refusal is an error, unless it is a stored frame of the session.
    pub(crate) fn until(&mut self, mut wanted: impl FnMut(&Numbered) -> bool) -> Result<Value> {
        loop {
            let numbered = self.receive()?;
            if numbered.seq == 0 && is(&numbered.frame, "type", "error") {
                bail!("the engine refused: {}", text(&numbered.frame, "text"));
            }
            if wanted(&numbered) {
                return Ok(numbered.frame);
            }
        }
    }

    /// Asks for something that is no conversation; every other frame on the way goes to `noted`.
    pub(crate) fn call_noting(
        &mut self,
        method: &str,
        params: &Value,
        mut noted: impl FnMut(&Numbered),
    ) -> Result<Value> {
        let id = self.number();
        self.send(&json!({ "type": "call", "id": id, "method": method, "params": params }))?;
        let answer = self.until(|numbered| {
            let answers = numbered.frame.get("id").and_then(Value::as_u64) == Some(id);
            if !answers {
                noted(numbered);
            }
            answers
        })?;
        answer.get("result").cloned().context("an answer without a result")
    }

    /// Asks for something that is no conversation.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.call_noting(method, params, |_| {})
    }
}

fn gone() -> anyhow::Error {
    anyhow::Error::new(Ended("the engine".to_owned()))
}

/// A text of a frame; empty if it is not there.
pub(crate) fn text<'a>(frame: &'a Value, name: &str) -> &'a str {
    frame.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if a text of a frame is this.
pub(crate) fn is(frame: &Value, name: &str, value: &str) -> bool {
    text(frame, name) == value
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_engine_that_ends_within_a_line_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        assert!(Link::open(&socket).unwrap_err().is::<Ended>(), "nobody listens");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut link = Link::open(&socket).unwrap();
        let (mut engine, _) = listener.accept().unwrap();
        engine.write_all(b"{\"seq\":3,\"type\":\"status\"}\n{\"seq\":4,\"ty").unwrap();
        drop(engine);
        assert_eq!(link.receive().unwrap().seq, 3);
        assert!(link.receive().unwrap_err().is::<Ended>(), "half a line is none");
        assert!(link.send(&json!({})).and_then(|()| link.send(&json!({}))).is_err());
    }

    #[test]
    fn an_answer_is_found_by_its_number_and_the_rest_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut link = Link::open(&socket).unwrap();
        let (mut engine, _) = listener.accept().unwrap();
        engine
            .write_all(
                b"{\"seq\":1,\"type\":\"message\"}\n\
                  {\"seq\":0,\"type\":\"answer\",\"id\":1,\"result\":7}\n\
                  {\"seq\":0,\"type\":\"error\",\"text\":\"no\"}\n",
            )
            .unwrap();
        let mut noted = Vec::new();
        let result = link.call_noting("m", &json!({}), |numbered| noted.push(numbered.seq)).unwrap();
        assert_eq!((result, noted), (json!(7), vec![1]));
        assert_eq!(link.call("m", &json!({})).unwrap_err().to_string(), "the engine refused: no");
    }
}
