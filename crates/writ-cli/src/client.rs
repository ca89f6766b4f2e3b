//! The client's side of `control.sock`: the one place of the binary with a socket.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::codec::{Framed, LinesCodec};
use writ_runtime::methods::{EngineMethod, Method};
use writ_store::error::StoreError;
use writ_types::error::{Exit, Report};
use writ_types::frame::{ClientFrame, MAX_FRAME_BYTES, Numbered, ServerFrame};

use crate::context::Context;
use crate::failure::Failure;
use crate::home::free_bytes;
use crate::host::{EngineStart, LaunchedEngine};
use crate::wiring::engine_environment;

/// The time limit for a started engine's first answer. It recovers before it listens, so this is generous.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time between two tries of a starting engine's socket.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// After how many idle seconds an engine ends that a command has started (design 3.1).
const IDLE_EXIT_SECS: &str = "60";
/// The time limits for a silent engine. One under load answers in milliseconds: after this it is stopped or
/// stuck, and a person has waited long enough without a message.
const WAITS: Waits = Waits { quiet: Duration::from_secs(5), patience: Duration::from_secs(15) };
/// The id of the call that asks for a sign of life; those of commands begin at 1.
const SIGN_OF_LIFE: u64 = 0;
/// With less free space than this, in bytes, an engine cannot even write down why it does not start.
const NO_ROOM: u64 = 16 * 1024;
/// The most bytes read of a failed start's output.
const MAX_START_OUTPUT: u64 = 64 * 1024;

/// Returns true if the outcome of the sent frames is unknown: there was neither a refusal nor an answer.
pub(crate) fn is_unanswered(failure: &Failure) -> bool {
    // A bug is included: an answer that cannot be read leaves the outcome open, too.
    failure.has_code("client.silent") || failure.has_code("client.gone") || failure.code() == Exit::Bug.code()
}

/// When a silent engine is asked, and when it is given up.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// After how much silence it is asked for a sign of life.
    quiet: Duration,
    /// The time limit for a sign of life, or for taking a frame.
    patience: Duration,
}

/// A connection to the engine of this home.
#[derive(Debug)]
pub(crate) struct EngineClient {
    frames: Framed<UnixStream, LinesCodec>,
    /// The engine's process, as the kernel names it.
    engine: Option<i32>,
    /// The time of the engine's last frame.
    heard: Instant,
    /// When it was asked for a sign of life that has not come.
    asked: Option<Instant>,
    waits: Waits,
    calls: u64,
    /// True if frames of a session may come between answers.
    joined: bool,
    /// Frames of a session that came while an answer was awaited.
    kept: VecDeque<Numbered>,
}

/// The most frames stored while an answer is awaited; the oldest are dropped first.
const MAX_KEPT: usize = 10_000;

impl EngineClient {
    /// Connects to the engine; `None`: none is running.
    ///
    /// # Errors
    ///
    /// If the socket cannot be used.
    pub(crate) async fn connect(context: &Context) -> Result<Option<Self>, Failure> {
        match UnixStream::connect(context.home.socket()).await {
            Ok(stream) => Ok(Some(Self::wrap_stream(stream, WAITS))),
            // No socket, or one without a process behind it: no engine runs.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(Failure::new(
                Exit::Blocked,
                "client.connect",
                format!("the engine's socket cannot be used: {error}"),
                "check the owner and mode of the home's runtime folder",
            )),
        }
    }

    fn wrap_stream(stream: UnixStream, waits: Waits) -> Self {
        Self {
            // The kernel names the process at the other end, for the hint when it is silent.
            engine: stream.peer_cred().ok().and_then(|peer| peer.pid()),
            frames: Framed::new(stream, LinesCodec::new_with_max_length(MAX_FRAME_BYTES)),
            heard: Instant::now(),
            asked: None,
            waits,
            calls: 0,
            joined: false,
            kept: VecDeque::new(),
        }
    }

    /// Connects to the engine, and starts one if none is running.
    ///
    /// # Errors
    ///
    /// If the engine does not start: its own error.
    pub(crate) async fn ensure(context: &Context) -> Result<Self, Failure> {
        match Self::connect(context).await? {
            Some(client) => Ok(client),
            None => Starting::begin_start(context)?.wait_until_ready(context).await,
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// If the frame is too large, or the engine has ended or takes nothing.
    pub(crate) async fn send_frame(&mut self, frame: &ClientFrame) -> Result<(), Failure> {
        // From then on an error without an id belongs to the session.
        self.joined |= matches!(frame, ClientFrame::Resume { .. });
        let line = serde_json::to_string(frame)
            .map_err(|error| Failure::internal_error("writing a frame", error))?;
        if line.len() > MAX_FRAME_BYTES {
            let text = format!("this is larger than {MAX_FRAME_BYTES} bytes");
            return Err(Failure::new(Exit::Usage, "client.too_large", text, "send less at once"));
        }
        // A stopped engine does not read, and its socket's buffer fills up.
        match timeout(self.waits.patience, self.frames.send(line)).await {
            Ok(sent) => sent.map_err(|_| ended_failure()),
            Err(_) => Err(self.silent_failure()),
        }
    }

    /// Returns the next frame.
    ///
    /// # Errors
    ///
    /// If the engine has ended, gives no sign of life, or sends something that is no frame.
    pub(crate) async fn receive_frame(&mut self) -> Result<Numbered, Failure> {
        match self.kept.pop_front() {
            Some(frame) => Ok(frame),
            None => self.next_frame().await,
        }
    }

    fn store_frame(&mut self, frame: Numbered) {
        // Bounded: a session can send faster than a caller asks.
        if self.kept.len() >= MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(frame);
    }

    async fn next_frame(&mut self) -> Result<Numbered, Failure> {
        // Asked for before something else was waited for: what has come since was not looked at.
        if self.asked.is_some_and(|asked| asked.elapsed() > self.waits.patience) {
            (self.heard, self.asked) = (Instant::now(), None);
        }
        loop {
            let deadline =
                self.asked.map_or(self.heard + self.waits.quiet, |asked| asked + self.waits.patience);
            match timeout_at(deadline, self.frames.next()).await {
                Ok(line) => {
                    let line = line.ok_or_else(ended_failure)?.map_err(|_| ended_failure())?;
                    (self.heard, self.asked) = (Instant::now(), None);
                    let numbered: Numbered = serde_json::from_str(&line)
                        .map_err(|error| Failure::internal_error("reading a frame", error))?;
                    if !is_sign_of_life(&numbered.frame) {
                        return Ok(numbered);
                    }
                }
                // The ping was not answered either.
                Err(_) if self.asked.is_some() => return Err(self.silent_failure()),
                Err(_) => {
                    let (method, params) = (Method::Ping.name().to_owned(), Value::Null);
                    self.send_frame(&ClientFrame::Call { id: SIGN_OF_LIFE, method, params }).await?;
                    // Set only now: a caller that drops this wait while it sends has asked for nothing.
                    self.asked = Some(Instant::now());
                }
            }
        }
    }

    /// Returns the failure for an engine that runs and does not answer.
    fn silent_failure(&self) -> Failure {
        // Across namespaces of processes the kernel says 0, which would be the caller itself.
        let (process, hint) = match self.engine.filter(|id| *id > 0) {
            Some(id) => (
                format!("the engine (process {id})"),
                format!(
                    "`kill -CONT {id}` wakes one that was stopped, and what it was told is done then; \
                     `kill {id}` ends one that is stuck, and the next command starts another"
                ),
            ),
            None => ("the engine".to_owned(), "look whether its process is stopped or stuck".to_owned()),
        };
        let silence = self.heard.elapsed().as_secs();
        Failure::new(
            Exit::Blocked,
            "client.silent",
            format!("{process} has not answered for {silence} s"),
            hint,
        )
    }

    /// Calls a method with typed parameters, and returns its typed answer.
    ///
    /// # Errors
    ///
    /// What the engine refuses, or that the connection ended.
    pub(crate) async fn ask<M: EngineMethod>(&mut self, params: &M::Params) -> Result<M::Answer, Failure> {
        let params =
            serde_json::to_value(params).map_err(|error| Failure::internal_error("writing a call", error))?;
        let answer = self.call_method(M::METHOD, params).await?;
        serde_json::from_value(answer).map_err(|error| Failure::internal_error("reading an answer", error))
    }

    /// Calls a method and waits for the answer.
    ///
    /// # Errors
    ///
    /// The engine's refusal, or that it has ended.
    pub(crate) async fn call_method(&mut self, method: Method, params: Value) -> Result<Value, Failure> {
        self.calls += 1;
        let id = self.calls;
        self.send_frame(&ClientFrame::Call { id, method: method.name().to_owned(), params }).await?;
        loop {
            let numbered = self.next_frame().await?;
            // A session's frames between call and answer are stored for later.
            if !self.is_answer(id, &numbered.frame) {
                self.store_frame(numbered);
                continue;
            }
            if let ServerFrame::Error { exit, code, text, hint, .. } = numbered.frame {
                return Err(refusal_failure(exit, &code, text, hint));
            }
            if let ServerFrame::Answer { result, .. } = numbered.frame {
                return Ok(result);
            }
        }
    }

    /// Returns true if a frame answers a call. An error without an id is about the connection until a session
    /// is joined.
    fn is_answer(&self, call: u64, frame: &ServerFrame) -> bool {
        if let ServerFrame::Answer { id, .. } = frame {
            return *id == call;
        }
        matches!(frame, ServerFrame::Error { id, .. } if id.map_or(!self.joined, |id| id == call))
    }
}

/// Returns true if this answers the question for a sign of life; an engine that does not know the question
/// answers, too.
const fn is_sign_of_life(frame: &ServerFrame) -> bool {
    matches!(
        frame,
        ServerFrame::Answer { id: SIGN_OF_LIFE, .. } | ServerFrame::Error { id: Some(SIGN_OF_LIFE), .. }
    )
}

/// Turns the engine's refusal into the command's own failure.
pub(crate) fn refusal_failure(exit: Exit, code: &str, text: String, hint: String) -> Failure {
    Failure::new(exit, code, text, hint)
}

fn ended_failure() -> Failure {
    Failure::new(
        Exit::Blocked,
        "client.gone",
        "the engine closed the connection",
        "run the command again; `writ doctor` and logs/writ.jsonl may say why",
    )
}

/// An engine that was started and does not answer yet.
struct Starting {
    engine: Box<dyn LaunchedEngine>,
    output: PathBuf,
}

impl Drop for Starting {
    fn drop(&mut self) {
        // The engine logs elsewhere once it runs; a file that is left behind is overwritten next time.
        let _removed = std::fs::remove_file(&self.output);
    }
}

impl Starting {
    fn begin_start(context: &Context) -> Result<Self, Failure> {
        let home = context.home.root().display().to_string();
        let args = ["start", "--quiet", "--json", "--idle-exit", IDLE_EXIT_SECS, "--home", &home];
        let env = engine_environment(context, &context.load_config(None)?);
        let output = context.home.runtime().join(format!("start.{}.log", std::process::id()));
        let start = EngineStart { args: &args.map(str::to_owned), env: &env, output: &output };
        let engine = context.host.engines.launch(&start).map_err(Failure::Report)?;
        Ok(Self { engine, output })
    }

    /// Waits until the socket answers or the process ends, whichever is first.
    async fn wait_until_ready(mut self, context: &Context) -> Result<EngineClient, Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut running = true;
        loop {
            if let Some(client) = EngineClient::connect(context).await? {
                return Ok(client);
            }
            // The engine's end is checked after the connection, which another engine may have answered.
            if running && let Some(code) = self.engine.exit_code() {
                // Another command was quicker: its engine holds the home and will answer.
                if code != i32::from(Exit::Blocked.code()) || !self.lost_the_race() {
                    return Err(self.start_failure(context, code));
                }
                running = false;
            }
            if timeout_at(deadline, sleep(TRY_EVERY)).await.is_err() {
                return Err(Failure::new(
                    Exit::Blocked,
                    "client.start_timeout",
                    format!("the engine did not answer within {} s", START_TIMEOUT.as_secs()),
                    "`writ start -v` in another terminal shows what it waits for",
                ));
            }
        }
    }

    fn printed_report(&self) -> Option<Report> {
        use std::io::Read as _;
        let file = std::fs::File::open(&self.output).ok()?;
        let mut text = String::new();
        file.take(MAX_START_OUTPUT).read_to_string(&mut text).ok()?;
        // The last report counts: earlier lines are warnings.
        text.lines().rev().find_map(parse_report)
    }

    fn lost_the_race(&self) -> bool {
        self.printed_report().is_some_and(|report| report.code == "store.engine_running")
    }

    fn start_failure(&self, context: &Context, code: i32) -> Failure {
        match self.printed_report() {
            Some(report) => Failure::Report(Box::new(report)),
            // It could not even write down why.
            None if free_bytes(&context.home.runtime()).is_some_and(|free| free < NO_ROOM) => {
                StoreError::DiskFull.into()
            }
            None => Failure::new(
                Exit::Blocked,
                "client.start",
                format!("the engine ended at its start with code {code}"),
                "`writ start -v` shows why",
            ),
        }
    }
}

/// The error of a command that was run with `--json`, from its line on standard error.
fn parse_report(line: &str) -> Option<Report> {
    let line: Value = serde_json::from_str(line).ok()?;
    let error = line.get("error")?;
    let text = |name: &str| error.get(name)?.as_str().map(str::to_owned);
    let code = error.get("exit")?.as_u64()?;
    let exit = Exit::ALL.into_iter().find(|exit| u64::from(exit.code()) == code).unwrap_or(Exit::Bug);
    Some(Report::new(exit, &text("code")?, text("text")?).with_hint(text("hint").unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(id: u64) -> String {
        let frame = ServerFrame::Answer { id, result: json!({ "id": id }) };
        serde_json::to_string(&Numbered { seq: 0, frame }).unwrap()
    }

    /// Such an engine (`kill -STOP`) takes connections and frames, and never says anything.
    #[test]
    fn an_engine_that_gives_no_sign_of_life_is_given_up() {
        let error = crate::interrupt::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let waits = Waits { quiet: Duration::from_millis(1), patience: Duration::from_millis(5) };
            let error = EngineClient::wrap_stream(ours, waits)
                .call_method(Method::Status, Value::Null)
                .await
                .unwrap_err();
            drop(theirs);
            Ok(error)
        });
        let Ok(Failure::Report(report)) = error else { panic!("{error:?}") };
        assert_eq!((report.code.as_str(), report.exit), ("client.silent", Exit::Blocked));
        let engine = format!("process {}", std::process::id());
        assert!(report.outside.contains(&engine) && report.hint.contains("kill -CONT"), "{report:?}");
    }

    /// A person may think for longer than an engine is borne: what it said meanwhile is heard then.
    #[test]
    fn an_answer_that_came_while_nobody_listened_is_heard() {
        let heard = crate::interrupt::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut engine = Framed::new(theirs, LinesCodec::new());
            let waits = Waits { quiet: Duration::from_millis(1), patience: Duration::from_secs(8) };
            let mut client = EngineClient::wrap_stream(ours, waits);
            let asked = async { engine.next().await.unwrap().unwrap() };
            tokio::select! {
                frame = client.receive_frame() => panic!("{frame:?}"),
                line = asked => assert!(line.contains("ping"), "{line}"),
            }
            // As if that had been long ago.
            client.asked = Instant::now().checked_sub(Duration::from_secs(9));
            let (_, heard) = tokio::join!(engine.send(answer(1)), client.receive_frame());
            heard
        });
        assert!(matches!(heard.unwrap().frame, ServerFrame::Answer { id: 1, .. }));
    }

    /// However long it takes what was asked of it.
    #[test]
    fn an_engine_that_works_and_gives_signs_of_life_is_waited_for() {
        let result = crate::interrupt::block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut engine = Framed::new(theirs, LinesCodec::new());
            let signs = async {
                let mut asked = Vec::new();
                while asked.len() < 4 {
                    let line = engine.next().await.unwrap().unwrap();
                    let ClientFrame::Call { id, method, .. } = serde_json::from_str(&line).unwrap() else {
                        panic!("{line}")
                    };
                    if id == SIGN_OF_LIFE {
                        engine.send(answer(id)).await.unwrap();
                    }
                    asked.push(method);
                }
                engine.send(answer(1)).await.unwrap();
                asked
            };
            let waits = Waits { quiet: Duration::from_millis(1), patience: Duration::from_secs(600) };
            let mut client = EngineClient::wrap_stream(ours, waits);
            let (asked, answered) = tokio::join!(signs, client.call_method(Method::SandboxExec, Value::Null));
            assert_eq!(asked, ["sandbox.exec", "ping", "ping", "ping"]);
            answered
        });
        assert_eq!(result.unwrap(), json!({ "id": 1 }));
    }

    #[test]
    fn an_engines_own_error_is_understood() {
        let line = r#"{"error":{"exit":10,"code":"store.engine_running","text":"t","hint":"h"}}"#;
        assert_eq!(
            parse_report(line),
            Some(Report::new(Exit::Blocked, "store.engine_running", "t").with_hint("h"))
        );
        assert_eq!(parse_report("warning: something"), None);
        assert_eq!(parse_report(r#"{"error":{"exit":10}}"#), None);
    }
}
