//! A server at a URL: one visit for each permit, over the connection that the permit lends. It begins with
//! the greeting and ends with the leave, so nothing of a visit lives on; redirects are not followed. The
//! server's questions come in the stream of the answer to our own request: no other stream is opened.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use writ_egress::LentClient;
use writ_egress::http::{HeaderValue, RequestBuilder};

use crate::client::{LIST_TIME, MAX_MESSAGE_BYTES, MAX_STRAY, check_version};
use crate::definition;
use crate::error::McpError;
use crate::listing::{Listing, ToolPages};
use crate::message::{self, Incoming, RpcError};
use crate::reading::{self, Has, Reading};
use crate::result::CallResult;

use asked::{OpenQuestions, Person};

pub mod asked;

/// The longest id of a session that is sent back, in bytes.
const MAX_SESSION_BYTES: usize = 1024;
/// The longest time of taking leave: the server drops the session otherwise, too.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// A visit to a server.
#[derive(Debug)]
pub struct Visit<'a> {
    lent: &'a LentClient,
    url: &'a str,
    bearer: Option<HeaderValue>,
    session: Option<HeaderValue>,
    /// The version of the protocol, once the greeting was answered.
    version: Option<&'static str>,
    next: u64,
    /// Its abilities besides tools.
    has: Has,
}

impl<'a> Visit<'a> {
    /// Greets the server. How long all of it may take, is the caller's to say.
    ///
    /// # Errors
    ///
    /// If it does not answer, or speaks no version that is known here.
    pub async fn begin_visit(
        lent: &'a LentClient,
        url: &'a str,
        token: Option<&SecretString>,
    ) -> Result<Self, McpError> {
        // The header is built once: a token that cannot be sent is an error before the first request.
        let bearer = token.map(bearer_header).transpose()?;
        let mut visit =
            Self { lent, url, bearer, session: None, version: None, next: 1, has: Has::default() };
        let greeted = visit.send_request("initialize", &message::greeting_params()).await?;
        visit.version = Some(check_version(&greeted)?);
        visit.has = Has::of(&greeted);
        visit
            .notify_server(&message::notification_line("notifications/initialized", &definition::empty()))
            .await?;
        Ok(visit)
    }

    /// The tools that it offers now, as far as they can be used.
    ///
    /// # Errors
    ///
    /// As [`Client::list_tools`](crate::client::Client::list_tools).
    pub async fn list_tools(&mut self) -> Result<Listing, McpError> {
        let began = tokio::time::Instant::now();
        let mut list = ToolPages::default();
        while let Some(params) = list.next_request() {
            // One deadline for all pages, as over a stream.
            let left = LIST_TIME.saturating_sub(began.elapsed());
            let page = tokio::time::timeout(left, self.send_request("tools/list", &params)).await;
            match page.unwrap_or(Err(McpError::SlowList { secs: LIST_TIME.as_secs() })) {
                Ok(page) => list.take_page(&page)?,
                Err(error) => list.fail(error, self.has)?,
            }
        }
        Ok(list.into_listing(self.has))
    }

    /// Calls a tool. While it waits, the server may ask the person; without one, that is refused.
    ///
    /// # Errors
    ///
    /// As [`Client::call_tool`](crate::client::Client::call_tool).
    pub async fn call_tool(
        &mut self,
        tool: &str,
        arguments: &Value,
        person: Option<&Person>,
    ) -> Result<CallResult, McpError> {
        match Reading::of(tool) {
            None => {
                let params = json!({ "name": tool, "arguments": arguments });
                CallResult::of(self.run_request("tools/call", &params, OpenQuestions::of(person)).await?)
            }
            Some(reading) if reading.lists() => {
                let mut list = reading::List::new(reading);
                while let Some(params) = list.next_request() {
                    match self.send_request(reading.request_method(), &params).await {
                        Ok(page) => list.take_page(&page)?,
                        Err(error) => list.fail(error)?,
                    }
                }
                Ok(list.into_result())
            }
            Some(reading) => reading.read_content(
                &self.send_request(reading.request_method(), &reading.request_params(arguments)).await?,
            ),
        }
    }

    /// Takes leave, so that the server may forget the session.
    pub async fn end_visit(self) {
        // Without a session there is nothing to forget.
        if self.session.is_some() {
            let leaving = self.request_headers(self.lent.client.delete(self.url)).send();
            // The answer to the request to end the session does not matter.
            let _left = tokio::time::timeout(LEAVE_TIME, leaving).await;
        }
    }

    fn request_headers(&self, request: RequestBuilder) -> RequestBuilder {
        let mut request = request.header("accept", "application/json, text/event-stream");
        if let Some(bearer) = &self.bearer {
            request = request.header("authorization", bearer.clone());
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session.clone());
        }
        // The protocol wants the agreed version in each later request.
        if let Some(version) = self.version {
            request = request.header("mcp-protocol-version", version);
        }
        request
    }

    fn post_message(&self, message: &Value) -> RequestBuilder {
        // Each message is a request of its own; the answer comes in its body or as events.
        let request = self.lent.client.post(self.url).header("content-type", "application/json");
        self.request_headers(request).body(message.to_string())
    }

    /// Sends what has no answer.
    async fn notify_server(&self, message: &Value) -> Result<(), McpError> {
        let answer = self.post_message(message).send().await.map_err(|_| connection_error())?;
        check_status(answer.status().as_u16())
    }

    /// Sends one request and waits for its answer, while no person can be asked.
    async fn send_request(&mut self, method: &'static str, params: &Value) -> Result<Value, McpError> {
        self.run_request(method, params, OpenQuestions::default()).await
    }

    /// Asks one thing and waits for its answer, in either form. The stream is read on while a person is asked, so that its
    /// end is the end of the question.
    async fn run_request(
        &mut self,
        method: &'static str,
        params: &Value,
        mut asked: OpenQuestions<'_>,
    ) -> Result<Value, McpError> {
        let id = self.next;
        self.next = id.saturating_add(1);
        let mut answer = self
            .post_message(&message::request_line(id, method, params))
            .send()
            .await
            .map_err(|_| connection_error())?;
        check_status(answer.status().as_u16())?;
        // The session is named in the answer to the greeting, and only there.
        if self.version.is_none() {
            let session = answer.headers().get("mcp-session-id");
            self.session = session.filter(|session| session.len() <= MAX_SESSION_BYTES).cloned();
        }
        let kind =
            answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        // The server chooses the form of its answer for each request.
        let mut events = kind.starts_with("text/event-stream").then(Events::default);
        let (mut body, mut stray) = (Vec::new(), 0_u64);
        loop {
            let chunk = tokio::select! {
                // The server may send nothing before it has the reply.
                biased;
                reply = asked.take_reply() => {
                    // A server that does not take it waits for nothing.
                    let _told = self.notify_server(&reply).await;
                    continue;
                }
                chunk = answer.chunk() => chunk.map_err(|_| connection_error())?,
            };
            let Some(chunk) = chunk else { break };
            body.extend_from_slice(&chunk);
            // Without events the body is the answer, and is read to its end within the bound.
            let Some(events) = &mut events else {
                if body.len() > MAX_MESSAGE_BYTES {
                    return Err(McpError::TooLarge { limit: MAX_MESSAGE_BYTES });
                }
                continue;
            };
            for event in events.take(&mut body)? {
                match self.take_event(&event, id, &mut asked).await {
                    Some(result) => return check_answer(method, result),
                    None => stray = stray.saturating_add(1),
                }
                // A stream may carry notifications without end beside the one answer.
                if stray > MAX_STRAY {
                    return Err(McpError::Flooded { messages: stray });
                }
            }
        }
        // The body of an answer without events is one message.
        match Incoming::parse(&body) {
            Incoming::Answer { id: of, result } if of == id => check_answer(method, result),
            Incoming::Answer { .. }
            | Incoming::Request { .. }
            | Incoming::Notification { .. }
            | Incoming::Stray => {
                Err(McpError::Wrong { method, why: "it is no answer to what was asked".to_owned() })
            }
        }
    }

    /// Reads one event; requests of the server are answered, or put to the person.
    async fn take_event(
        &self,
        event: &[u8],
        id: u64,
        asked: &mut OpenQuestions<'_>,
    ) -> Option<Result<Value, RpcError>> {
        match Incoming::parse(event) {
            Incoming::Answer { id: of, result } => (of == id).then_some(result),
            Incoming::Request { id, method, params } => {
                if let Some(answer) = asked.immediate_answer(id, &method, &params) {
                    // A server that does not take its answer waits for nothing.
                    let _told = self.notify_server(&answer).await;
                }
                None
            }
            Incoming::Notification { .. } | Incoming::Stray => None,
        }
    }
}

fn check_answer(method: &'static str, result: Result<Value, RpcError>) -> Result<Value, McpError> {
    result.map_err(|RpcError { code, message }| McpError::Refused { method, code, message })
}

fn connection_error() -> McpError {
    // The library's error may contain the URL, which may hold a secret of the owner.
    McpError::Transport("it broke off".to_owned())
}

fn check_status(status: u16) -> Result<(), McpError> {
    match status {
        200..=299 => Ok(()),
        // A redirect could lead to a host that the door has not judged.
        300..=399 => Err(McpError::Transport(format!("status {status}; redirects are not followed"))),
        401 | 403 => Err(McpError::Transport(format!("status {status}: it refuses the token, or wants one"))),
        _ => Err(McpError::Transport(format!("status {status}"))),
    }
}

fn bearer_header(token: &SecretString) -> Result<HeaderValue, McpError> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
    let mut value = value.map_err(|_| McpError::Transport("the token cannot be sent".to_owned()))?;
    // The library leaves out sensitive headers where it logs.
    value.set_sensitive(true);
    Ok(value)
}

/// Server-sent events, as far as their data go.
#[derive(Debug, Default)]
pub(crate) struct Events {
    data: Vec<u8>,
    /// The bytes of the buffer that are known to have no end of a line, so that nothing is searched twice.
    searched: usize,
}

impl Events {
    /// Takes every whole event out of what has come.
    pub(crate) fn take(&mut self, held: &mut Vec<u8>) -> Result<Vec<Vec<u8>>, McpError> {
        let too_large = McpError::TooLarge { limit: MAX_MESSAGE_BYTES };
        let mut whole = Vec::new();
        let (mut done, mut from) = (0_usize, self.searched);
        // Only what is new is searched for a line end, so a long line is not read again with each piece.
        while let Some(at) = held.get(from..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
            let end = from.saturating_add(at);
            let line = held.get(done..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                if !self.data.is_empty() {
                    whole.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
                // Line ends between pieces of data mean nothing in JSON but space.
                self.data.push(b'\n');
            }
            if self.data.len() > MAX_MESSAGE_BYTES {
                return Err(too_large);
            }
            done = end.saturating_add(1);
            from = done;
        }
        held.drain(..done);
        self.searched = held.len();
        // A line without end is bounded as a message is.
        if held.len() > MAX_MESSAGE_BYTES { Err(too_large) } else { Ok(whole) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The events of a stream that comes in pieces.
    fn events(stream: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let (mut events, mut held, mut found) = (Events::default(), Vec::new(), Vec::new());
        for chunk in stream.chunks(piece) {
            held.extend_from_slice(chunk);
            found.extend(events.take(&mut held).expect("within bounds"));
        }
        found
    }

    #[test]
    fn events_are_put_together_from_pieces() {
        let stream = b": hello\nevent: message\nid: 7\ndata: {\"a\":\ndata:1}\n\ndata: x\r\n\r\n\n\ndata: unfinished\n";
        for piece in 1..stream.len() {
            assert_eq!(events(stream, piece), [b"{\"a\":\n1}\n".to_vec(), b"x\n".to_vec()], "{piece}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_not_held_for_ever() {
        let line = [b"data: ".as_slice(), &vec![b'x'; MAX_MESSAGE_BYTES / 2], b"\n"].concat();
        let (mut events, mut held) = (Events::default(), line.clone());
        assert_eq!(events.take(&mut held), Ok(Vec::new()));
        held.extend_from_slice(&line);
        held.extend_from_slice(&line);
        assert_eq!(events.take(&mut held), Err(McpError::TooLarge { limit: MAX_MESSAGE_BYTES }));
        let mut endless = vec![b'x'; MAX_MESSAGE_BYTES + 1];
        assert!(Events::default().take(&mut endless).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(stream in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'd'), Just(b':'), any::<u8>()], 0..200), piece in 1..50_usize) {
            prop_assert_eq!(events(&stream, piece), events(&stream, stream.len().max(1)));
        }
    }
}
