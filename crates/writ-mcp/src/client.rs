//! A connection to one server over two streams.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::definition;
use crate::elicitation::{Elicitation, ElicitationReply};
use crate::error::McpError;
use crate::line::Lines;
use crate::listing::{Listing, ToolPages};
use crate::message::{self, ELICITATION, Incoming, RpcError};
use crate::reading::{self, Has, Reading};
use crate::result::CallResult;

/// The longest message that is read of a server, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// The most requests to one server that wait for their answers at once; more wait for their turn.
pub const MAX_IN_FLIGHT: usize = 8;
/// The most unsolicited messages between two answers: an honest server sends a few hundred notifications.
pub const MAX_STRAY: u64 = 10_000;
/// The most bytes of such messages, between two answers.
pub const MAX_STRAY_BYTES: u64 = 64 * 1024 * 1024;
/// The time that a server may take to list its tools, on all pages.
pub const LIST_TIME: Duration = Duration::from_secs(30);
/// Questions to a person that wait at once; more are refused. A server that has had one answered may ask the next.
pub(crate) const MAX_QUESTIONS: usize = 4;
/// The most messages that wait to be written; a server that reads nothing gets no further ones.
const MAX_UNREAD: usize = 64;
/// The version of the protocol that is offered.
pub(crate) const VERSION: &str = "2025-06-18";
/// The versions that are spoken: of what is used here, all say the same.
pub(crate) const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", VERSION, "2025-11-25"];
/// The news that the list of tools is another.
const LIST_CHANGED: &str = "notifications/tools/list_changed";

type Answer = Result<Value, RpcError>;

/// A connection. Dropping it ends both its tasks and closes the streams.
#[derive(Debug)]
pub struct Client {
    shared: Arc<ClientState>,
    outbox: mpsc::Sender<Vec<u8>>,
    room: Semaphore,
    next: AtomicU64,
    /// Its abilities besides tools.
    has: Has,
    /// Its questions to a person, while a listener takes them.
    questions: tokio::sync::Mutex<mpsc::Receiver<Elicitation>>,
    tasks: [JoinHandle<()>; 2],
}

/// The state that the reading task shares with the calls that wait.
#[derive(Debug)]
struct ClientState {
    /// The receiver of questions to a person.
    questions: mpsc::Sender<Elicitation>,
    /// True while a listener takes them.
    listens: AtomicBool,
    /// The number of answered questions: after each, the waiting calls have their time anew.
    replies: AtomicU64,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Answer>>>,
    /// The reason why the connection has ended; set once.
    ended: OnceLock<McpError>,
    /// Cancelled when it has.
    over: CancellationToken,
    /// The list of tools may be another than the one that was read last.
    changed: AtomicBool,
}

impl ClientState {
    /// Locks the waiting calls. Every holder leaves the map whole, so poison is ignored.
    fn waiting_calls(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection for everybody who waits.
    fn end(&self, why: McpError) {
        // The first reason counts: what fails afterwards is a consequence of it.
        let _first = self.ended.set(why);
        self.over.cancel();
        // Dropping the senders wakes every call, which then reads the reason.
        self.waiting_calls().clear();
    }

    /// Returns the immediate answer to a request of the server; `None` where a person is asked.
    fn immediate_answer(&self, id: Value, method: &str, params: &Value) -> Option<Value> {
        if method != ELICITATION || !self.listens.load(Ordering::Acquire) {
            return Some(message::answer_request(&id, method));
        }
        match Elicitation::read(id.clone(), params) {
            Err(why) => Some(message::invalid_params(&id, why)),
            Ok(question) => {
                // A full queue means that the server asks faster than a person answers.
                self.questions.try_send(question).err().map(|_full| message::answer_request(&id, method))
            }
        }
    }

    fn end_reason(&self) -> McpError {
        self.ended.get().cloned().unwrap_or(McpError::Gone)
    }
}

/// Removes a waiting call when its caller drops it.
struct WaitingCall<'a> {
    shared: &'a ClientState,
    id: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.shared.waiting_calls().remove(&self.id);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Client {
    /// Greets a server that was started. `time`: how long it may take until it answers.
    ///
    /// # Errors
    ///
    /// If it does not answer, or speaks no version that is known here.
    pub async fn connect<R, W>(read: R, write: W, time: Duration) -> Result<Self, McpError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
        let shared = Arc::new(ClientState {
            questions,
            listens: AtomicBool::new(false),
            replies: AtomicU64::new(0),
            waiting: Mutex::default(),
            ended: OnceLock::new(),
            over: CancellationToken::new(),
            changed: AtomicBool::new(false),
        });
        let (outbox, unread) = mpsc::channel(MAX_UNREAD);
        // Reading and writing are separate tasks, so that a server which does not read cannot stop its own
        // answers from being read.
        let tasks = [
            tokio::spawn(listen(Lines::new(read, MAX_MESSAGE_BYTES), Arc::clone(&shared), outbox.clone())),
            tokio::spawn(write_messages(write, unread)),
        ];
        let room = Semaphore::new(MAX_IN_FLIGHT);
        let mut client = Self {
            shared,
            outbox,
            room,
            next: AtomicU64::new(1),
            has: Has::default(),
            questions: tokio::sync::Mutex::new(asked),
            tasks,
        };
        let greeted = client
            .send_request("initialize", &message::greeting_params(), time, &CancellationToken::new())
            .await;
        let greeted = greeted.map_err(|error| {
            // A greeting that times out has another remedy than a call that does: a longer time for the
            // start.
            if let McpError::Timeout { secs, .. } = error { McpError::NotReady { secs } } else { error }
        })?;
        check_version(&greeted)?;
        client.has = Has::of(&greeted);
        // The protocol wants this before the first request (MCP, lifecycle).
        client
            .send_message(&message::notification_line("notifications/initialized", &definition::empty()))?;
        Ok(client)
    }

    /// The tools that it offers now, by name, as far as they can be used.
    ///
    /// # Errors
    ///
    /// If it does not answer within [`LIST_TIME`], or what it answers first is no list.
    pub async fn list_tools(&self) -> Result<Listing, McpError> {
        // Before it is asked: what changes while it answers is read again.
        self.shared.changed.store(false, Ordering::Release);
        // One deadline for all pages: a server with many pages must not have the time of each.
        let deadline = tokio::time::Instant::now() + LIST_TIME;
        let mut list = ToolPages::default();
        while let Some(params) = list.next_request() {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self.send_request("tools/list", &params, left, &CancellationToken::new()).await {
                Ok(page) => list.take_page(&page)?,
                Err(error) => list.fail(timed_out(error, LIST_TIME), self.has)?,
            }
        }
        Ok(list.into_listing(self.has))
    }

    /// Calls a tool. The answer is the server's words; so are those of [`McpError::Refused`].
    ///
    /// # Errors
    ///
    /// If it does not answer in time, was stopped, or the answer is malformed or beyond a bound.
    pub async fn call_tool(
        &self,
        tool: &str,
        arguments: &Value,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<CallResult, McpError> {
        // A reading is one of our tools, so it is not called by its name.
        if let Some(reading) = Reading::of(tool) {
            return self.read_content(reading, arguments, time, cancel).await;
        }
        let params = json!({ "name": tool, "arguments": arguments });
        CallResult::of(self.send_request("tools/call", &params, time, cancel).await?)
    }

    /// Takes the server's questions to a person until the returned listener is dropped; `None` if there is
    /// one already: the protocol does not name the call that a question belongs to. Waiting calls have their
    /// time anew after each [`reply`](Listening::reply).
    pub fn listen_for_questions(&self) -> Option<Listening<'_>> {
        let mut questions = self.questions.try_lock().ok()?;
        // Questions from before this listener are moot.
        while questions.try_recv().is_ok() {}
        self.shared.listens.store(true, Ordering::Release);
        Some(Listening { client: self, questions })
    }

    /// Lists what it has, or reads one thing of it.
    async fn read_content(
        &self,
        reading: Reading,
        arguments: &Value,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<CallResult, McpError> {
        let method = reading.request_method();
        if !reading.lists() {
            return reading.read_content(
                &self.send_request(method, &reading.request_params(arguments), time, cancel).await?,
            );
        }
        let deadline = tokio::time::Instant::now() + time;
        let mut list = reading::List::new(reading);
        while let Some(params) = list.next_request() {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self.send_request(method, &params, left, cancel).await {
                Ok(page) => list.take_page(&page)?,
                Err(error) => list.fail(error)?,
            }
        }
        Ok(list.into_result())
    }

    /// Returns true if the server has announced, since they were listed last, that its tools have changed.
    pub fn tools_changed(&self) -> bool {
        self.shared.changed.load(Ordering::Acquire)
    }

    /// Returns true if the connection has ended.
    pub fn is_over(&self) -> bool {
        self.shared.over.is_cancelled()
    }

    /// Waits until nothing can be asked any more.
    pub async fn connect_over(&self) {
        self.shared.over.cancelled().await;
    }

    /// Asks one thing and waits for the answer.
    async fn send_request(
        &self,
        method: &'static str,
        params: &Value,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<Value, McpError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let asking = async {
            // The bound on calls under way is also the bound on the map of those that wait.
            let _place = self.room.acquire().await.map_err(|_closed| McpError::Gone)?;
            let (answer, waiting) = oneshot::channel();
            self.shared.waiting_calls().insert(id, answer);
            let _asked = WaitingCall { shared: &self.shared, id };
            // After it was entered: the end of the connection finds it there, or is seen here.
            if self.is_over() {
                return Err(self.shared.end_reason());
            }
            self.send_message(&message::request_line(id, method, params))?;
            match waiting.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(RpcError { code, message })) => Err(McpError::Refused { method, code, message }),
                Err(_ended) => Err(self.shared.end_reason()),
            }
        };
        tokio::pin!(asking);
        let in_time = async {
            // A person may take longer than the server's time: each reply of theirs starts it anew.
            let mut seen = self.shared.replies.load(Ordering::Acquire);
            loop {
                if let Ok(answer) = tokio::time::timeout(time, &mut asking).await {
                    return answer.map_err(Some);
                }
                let replies = self.shared.replies.load(Ordering::Acquire);
                if std::mem::replace(&mut seen, replies) == replies {
                    return Err(None);
                }
            }
        };
        // The answer comes first, since a call that was stopped in the same moment has been performed.
        let failed = tokio::select! {
            biased;
            answered = in_time => match answered {
                Ok(answer) => return Ok(answer),
                Err(Some(error)) => return Err(error),
                Err(None) => McpError::Timeout { method, secs: time.as_secs() },
            },
            () = cancel.cancelled() => McpError::Cancelled,
        };
        // A server that does not read it goes on for nothing; its answer will mean nothing.
        let _told = self.send_message(&message::notification_line(
            "notifications/cancelled",
            &json!({ "requestId": id }),
        ));
        Err(failed)
    }

    fn send_message(&self, message: &Value) -> Result<(), McpError> {
        // A full queue means that the server reads nothing; waiting for it would block every caller.
        self.outbox
            .try_send(message::message_line(message))
            .map_err(|_full| if self.is_over() { self.shared.end_reason() } else { McpError::Deaf })
    }
}

/// A listener to a server's questions to a person.
#[derive(Debug)]
pub struct Listening<'a> {
    client: &'a Client,
    questions: tokio::sync::MutexGuard<'a, mpsc::Receiver<Elicitation>>,
}

impl Listening<'_> {
    /// The next question; waits for ever where none comes.
    pub async fn next_question(&mut self) -> Elicitation {
        match self.questions.recv().await {
            Some(question) => question,
            // The connection holds the other end for as long as it lives.
            None => std::future::pending().await,
        }
    }

    /// Answers a question. That the server does not read it any more is seen at the call that waits.
    pub fn reply(&self, question: &Elicitation, reply: ElicitationReply) {
        // Before the message is sent, so that the calls which wait see it in time.
        self.client.shared.replies.fetch_add(1, Ordering::AcqRel);
        let _told = self.client.send_message(&message::result_line(&question.id, &reply.result()));
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.client.shared.listens.store(false, Ordering::Release);
    }
}

/// A failure within a list, where each page has what is left of the time of all.
fn timed_out(error: McpError, time: Duration) -> McpError {
    if let McpError::Timeout { .. } = error { McpError::SlowList { secs: time.as_secs() } } else { error }
}

/// The version that a greeting was answered with, if it is known here.
pub(crate) fn check_version(greeted: &Value) -> Result<&'static str, McpError> {
    // Only known versions are spoken, since a later one may give a field another meaning.
    let spoken = greeted.get("protocolVersion").and_then(Value::as_str);
    if let Some(known) = VERSIONS.into_iter().find(|known| spoken == Some(known)) {
        return Ok(known);
    }
    // The server's word is cut and escaped before it stands in a message.
    let named: String = spoken.unwrap_or("none").chars().take(32).collect();
    let named = writ_types::visible::escape_line(&named).into_owned();
    let why = format!("it speaks version '{named}', which is not known here");
    Err(McpError::Wrong { method: "initialize", why })
}

/// The unsolicited messages since the last answer.
#[derive(Default)]
struct Stray {
    messages: u64,
    bytes: u64,
}

impl Stray {
    /// Counts one more.
    fn one_more(&mut self, bytes: usize) -> Result<(), McpError> {
        self.messages = self.messages.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        // The count starts again with each answer, so a useful server is not cut off.
        if self.messages > MAX_STRAY || self.bytes > MAX_STRAY_BYTES {
            return Err(McpError::Flooded { messages: self.messages });
        }
        Ok(())
    }
}

/// Reads what the server sends until it ends, or sends what it may not.
async fn listen<R: AsyncRead + Unpin>(
    mut lines: Lines<R>,
    shared: Arc<ClientState>,
    outbox: mpsc::Sender<Vec<u8>>,
) {
    let mut stray = Stray::default();
    let why = loop {
        let line = match lines.next_line().await {
            Ok(Some(line)) => line,
            Ok(None) => break McpError::Gone,
            Err(why) => break why,
        };
        if let Err(why) = take_message(&line, &shared, &outbox, &mut stray) {
            break why;
        }
    };
    shared.end(why);
}

/// Does what one message means.
fn take_message(
    line: &[u8],
    shared: &ClientState,
    outbox: &mpsc::Sender<Vec<u8>>,
    stray: &mut Stray,
) -> Result<(), McpError> {
    match Incoming::parse(line) {
        // The sender is removed with the number, so a second answer to one request is stray.
        Incoming::Answer { id, result } => match shared.waiting_calls().remove(&id) {
            Some(answer) => {
                *stray = Stray::default();
                // The caller may have stopped waiting.
                let _heard = answer.send(result);
                Ok(())
            }
            None => stray.one_more(line.len()),
        },
        Incoming::Request { id, method, params } => {
            // Counted also where it is answered: a server could ask without end.
            stray.one_more(line.len())?;
            let Some(answer) = shared.immediate_answer(id, &method, &params) else { return Ok(()) };
            // A server that asks but does not read the answers is cut off when the queue is full.
            outbox.try_send(message::message_line(&answer)).map_err(|_full| McpError::Deaf)
        }
        Incoming::Notification { method } => {
            // The list is not read here: the caller reads it before the next call.
            if method == LIST_CHANGED {
                shared.changed.store(true, Ordering::Release);
            }
            stray.one_more(line.len())
        }
        Incoming::Stray => stray.one_more(line.len()),
    }
}

/// Writes messages in order. A server that reads nothing delays this task alone.
async fn write_messages<W: AsyncWrite + Unpin>(mut to: W, mut unread: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = unread.recv().await {
        if to.write_all(&line).await.is_err() || to.flush().await.is_err() {
            // The other stream says why.
            return;
        }
    }
}

#[cfg(test)]
mod tests;
