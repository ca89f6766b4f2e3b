//! The conversation itself: frames to the screen, lines to the engine, approvals in between.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use writ_policy::approval::ApprovalToken;
use writ_tui::editor::{Input, LineEditor};
use writ_tui::renderer::{Mode, Renderer};
use writ_tui::screen::USUAL_COLUMNS;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::error::Exit;
use writ_types::form::filled_in;
use writ_types::frame::{Card, ClientFrame, Numbered, ServerFrame};
use writ_types::id::{AskId, SessionId, TurnId};

use crate::approve::{self, Given};
use crate::client::Client;
use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

use super::answers::{answers, gate_answers};
use super::commands::{self, Command, Line};
use super::ended;

/// The prompt of a message.
const MESSAGE_PROMPT: &str = "> ";

/// The prompt of an answer, or a message in its place.
const ANSWER_PROMPT: &str = "answer> ";

/// A client in a session.
pub(super) struct Talk<'a> {
    pub(super) context: &'a Context,
    pub(super) config: &'a Config,
    pub(super) client: Client,
    pub(super) session: SessionId,
    pub(super) mode: Mode,
}

/// The meaning of a frame for the conversation.
enum News {
    /// Nothing beyond what is shown.
    Nothing,
    /// A turn runs.
    Running(TurnId),
    /// A turn has ended, or cannot be worked on, for the messages with these ids; without any, for this client.
    Ended(Exit, Vec<String>),
    /// A person is asked.
    Asked(Box<Card>),
    /// A gate asks, and the turn waits.
    Gate(Gate),
    /// An ask is no longer open.
    Settled(AskId),
}

/// A gate that asks, and the frame that says about what.
struct Gate {
    ask: AskId,
    frame: Box<ServerFrame>,
}

impl Gate {
    /// Reads an answer: yes, with the values entered, or no; `None`: neither, or a required value is missing.
    fn answer(&self, line: &str) -> Option<(Decision, BTreeMap<String, String>)> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word.to_lowercase().as_str() {
            "n" | "no" => Some((Decision::Deny, BTreeMap::new())),
            "y" | "yes" => {
                let filled = |part: &str| {
                    let (name, value) = part.split_once('=')?;
                    Some((name.trim().to_owned(), value.trim().to_owned()))
                };
                let parts = rest.split(';').filter(|part| !part.trim().is_empty());
                let answers = parts.map(filled).collect::<Option<BTreeMap<_, _>>>()?;
                let ServerFrame::GateApproval { fields, .. } = self.frame.as_ref() else { return None };
                // Checked here, so that a wrong value is asked for again instead of ending the question.
                filled_in(fields, &answers).is_ok().then_some((Decision::Approve, answers))
            }
            _ => None,
        }
    }
}

/// A question to the person: one after the other, so that an answer is to the one shown last.
enum Question {
    Card(Box<Card>),
    Gate(Gate),
}

impl Question {
    const fn ask(&self) -> &AskId {
        match self {
            Self::Card(card) => &card.ask_id,
            Self::Gate(gate) => &gate.ask,
        }
    }
}

fn news(frame: &ServerFrame) -> News {
    match frame {
        ServerFrame::Delta { turn, .. }
        | ServerFrame::Text { turn, .. }
        | ServerFrame::Tool { turn, .. }
        | ServerFrame::File { turn, .. } => News::Running(*turn),
        // A turn can answer several messages.
        ServerFrame::Message { last: true, exit, answers, .. } => News::Ended(*exit, answers.clone()),
        ServerFrame::Message { turn, .. } => News::Running(*turn),
        ServerFrame::Error { exit, answers, .. } => News::Ended(*exit, answers.clone()),
        ServerFrame::ApprovalRequest(card) => News::Asked(card.clone()),
        ServerFrame::GateApproval { ask_id, .. } => {
            News::Gate(Gate { ask: ask_id.clone(), frame: Box::new(frame.clone()) })
        }
        ServerFrame::ApprovalResolved { ask_id, .. } => News::Settled(ask_id.clone()),
        ServerFrame::Hello { .. }
        | ServerFrame::Checkpoint { .. }
        | ServerFrame::Reset { .. }
        | ServerFrame::Accepted { .. }
        | ServerFrame::Status { .. }
        | ServerFrame::Answer { .. } => News::Nothing,
    }
}

fn output(error: &io::Error) -> Failure {
    Failure::output(error)
}

fn interrupts() -> Result<Signal, Failure> {
    signal(SignalKind::interrupt()).map_err(|error| Failure::bug("listening for Ctrl-C", error))
}

/// The columns that the terminal has now.
fn columns() -> usize {
    terminal_size::terminal_size().map_or(USUAL_COLUMNS, |(width, _)| usize::from(width.0))
}

impl Talk<'_> {
    fn renderer<W: Write>(&self, out: W) -> Renderer<W> {
        let renderer = Renderer::new(out, self.mode);
        if io::stdout().is_terminal() { renderer.on_screen(columns) } else { renderer }
    }

    /// Sends a message; returns the id that its answer will name.
    async fn say(&mut self, text: &str, quoted: String) -> Result<String, Failure> {
        let client_id: String = hex::encode(clock::random_bytes());
        let message = ClientFrame::Message {
            text: text.to_owned(),
            quoted,
            client_id: client_id.clone(),
            signature: None,
            sender: None,
        };
        self.client.send(&message).await?;
        Ok(client_id)
    }

    /// One message, one answer; ends as the turn does that has taken the message in. Others may speak in the
    /// same session: what they are answered is shown, and does not end it.
    pub(super) async fn once(mut self, text: &str, quoted: String) -> Result<(), Failure> {
        let mut renderer = self.renderer(io::stdout());
        let mut pressed = interrupts()?;
        let mut running = None;
        let own = self.say(text, quoted).await?;
        let (mut ticks, mut quiet) = (ticks(), Instant::now());
        loop {
            let frame = tokio::select! {
                frame = self.client.receive() => frame?,
                _ = ticks.tick() => {
                    // The elapsed time is shown where nothing else comes.
                    show_wait(quiet, &mut renderer)?;
                    continue;
                }
                _ = pressed.recv() => {
                    self.cancel(running).await?;
                    continue;
                }
            };
            quiet = Instant::now();
            // A card that was open before is another turn's.
            if frame.seq == 0 && matches!(frame.frame, ServerFrame::ApprovalRequest(_)) {
                continue;
            }
            renderer.frame(&frame).map_err(|error| output(&error))?;
            match news(&frame.frame) {
                News::Running(turn) => running = Some(turn),
                News::Ended(exit, answers) if answers.is_empty() || answers.contains(&own) => {
                    return ended(exit);
                }
                News::Ended(..) => running = None,
                News::Asked(card) => self.hint(&card),
                // A client that sends one message and leaves cannot answer; the turn waits for another
                // client.
                News::Gate(gate) => {
                    self.context.out.remark(format!("hint: writ approvals approve {}", gate.ask));
                }
                News::Nothing | News::Settled(_) => {}
            }
        }
    }

    fn hint(&self, card: &Card) {
        self.context.out.remark(format!("hint: writ approvals approve {}", card.ask_id));
    }

    /// Stops the turn that runs; without one, ends the command.
    async fn cancel(&mut self, running: Option<TurnId>) -> Result<(), Failure> {
        match running {
            // The turn ends with a frame of its own; until then the client stays.
            Some(turn) => self.client.send(&ClientFrame::Cancel { turn }).await,
            None => Err(Failure::Interrupted),
        }
    }

    /// A conversation at the terminal.
    pub(super) async fn interactive(mut self) -> Result<(), Failure> {
        let config = writ_tui::config::Config::default();
        let history = self.context.home.runtime().join("chat_history");
        let (mut editor, printer) = LineEditor::start(&config, Some(history))?;
        let mut renderer = self.renderer(printer);
        let mut pressed = interrupts()?;
        let mut running = None;
        let mut asked: VecDeque<Question> = VecDeque::new();
        // Since when nothing has come in a turn, or after a message.
        let (mut ticks, mut quiet) = (ticks(), None);
        self.context.out.remark(format!(
            "session {} - Ctrl-C stops a turn, Ctrl-D ends; a backslash at the end continues a line",
            self.session
        ));
        loop {
            tokio::select! {
                frame = self.client.receive() => {
                    let frame = frame?;
                    let news = news(&frame.frame);
                    // One question at a time: it is shown when it is the one that is asked. What came of an answer comes to this
                    // client and to the session: the session's frame is shown.
                    let is_repeated = frame.seq == 0 && matches!(news, News::Settled(_));
                    if !is_repeated && !matches!(news, News::Asked(_) | News::Gate(_)) {
                        renderer.frame(&frame).map_err(|error| output(&error))?;
                    }
                    match news {
                        News::Running(turn) => {
                            running = Some(turn);
                            quiet = Some(Instant::now());
                        }
                        News::Ended(..) => {
                            running = None;
                            quiet = None;
                        }
                        News::Asked(card) => {
                            put(Question::Card(card), &mut asked, &mut renderer)?;
                        }
                        News::Gate(gate) => put(Question::Gate(gate), &mut asked, &mut renderer)?,
                        News::Settled(ask) => settle(&ask, &mut asked, &mut renderer)?,
                        News::Nothing => {}
                    }
                }
                _ = pressed.recv() => self.cancel(running.take()).await?,
                _ = ticks.tick(), if asked.is_empty() => {
                    if let Some(since) = quiet {
                        show_wait(since, &mut renderer)?;
                    }
                }
                input = editor.read(if asked.is_empty() { MESSAGE_PROMPT } else { ANSWER_PROMPT }) => match input? {
                    Input::End => {
                        self.say_how_to_resume();
                        return Ok(());
                    }
                    Input::Interrupted => {
                        renderer.leave_row();
                        if running.is_none() {
                            self.say_how_to_resume();
                        }
                        self.cancel(running.take()).await?;
                    }
                    Input::Line(line) => {
                        renderer.leave_row();
                        self.typed(line.trim(), (&mut running, &mut quiet), &mut asked, &mut renderer).await?;
                    }
                },
            }
        }
    }

    /// Takes a line that was typed: a command, an answer or a message.
    async fn typed<W: Write>(
        &mut self,
        line: &str,
        (running, quiet): (&mut Option<TurnId>, &mut Option<Instant>),
        asked: &mut VecDeque<Question>,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        match commands::read(line) {
            Line::Command(Command::Stop) => match running.take() {
                Some(turn) => self.client.send(&ClientFrame::Cancel { turn }).await,
                None => note("nothing runs", renderer),
            },
            Line::Command(command) => self.command(command, renderer).await,
            Line::Unknown(line) => note(&commands::refusal(line), renderer),
            Line::Message(line) => {
                // A message starts a turn, unless it answers a question.
                if asked.is_empty() && !line.is_empty() {
                    *quiet = Some(Instant::now());
                }
                self.line(line, asked, renderer).await
            }
        }
    }

    fn say_how_to_resume(&self) {
        self.context.out.remark(format!("writ chat --session {} continues this conversation", self.session));
    }

    /// Runs a command, and shows what it says. What the engine refuses ends the command, and not the conversation.
    async fn command<W: Write>(&self, command: Command, renderer: &mut Renderer<W>) -> Result<(), Failure> {
        match commands::run(self.context, self.session, command).await {
            Ok(lines) => lines.iter().try_for_each(|line| note(line, renderer)),
            Err(failure) => {
                failure.tell(false, false);
                Ok(())
            }
        }
    }

    async fn line<W: Write>(
        &mut self,
        line: &str,
        asked: &mut VecDeque<Question>,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        let card = match asked.front() {
            Some(Question::Card(card)) => card.as_ref().clone(),
            Some(Question::Gate(gate)) => {
                // Shown again where it is neither: the turn goes on with a yes or a no.
                let Some((decision, answers)) = gate.answer(line) else {
                    return self.queue(line, asked, renderer).await;
                };
                let (ask_id, reason) = (gate.ask.clone(), String::new());
                self.client.send(&ClientFrame::GateResponse { ask_id, decision, reason, answers }).await?;
                asked.pop_front();
                return question(asked, renderer);
            }
            None if line.is_empty() => return Ok(()),
            None => return self.say(line, String::new()).await.map(|_| ()),
        };
        match line.to_lowercase().as_str() {
            yes @ ("y" | "yes" | "t" | "task" | "v" | "values" | "h" | "host") => {
                match self.sign(&card, yes).await {
                    Ok(token) => {
                        let scope = approve::scope_of(Some(&token));
                        let signature = serde_json::to_value(&token)
                            .map_err(|error| Failure::bug("writing the approval", error))?;
                        // The question is removed once its answer is signed, before the engine's reply.
                        asked.pop_front();
                        self.answer(card, (Decision::Approve, scope), Some(signature)).await?;
                    }
                    // A locked keyring is no reason to lose the conversation: the question stays.
                    Err(failure) => failure.tell(false, false),
                }
            }
            "n" | "no" => {
                asked.pop_front();
                self.answer(card, (Decision::Deny, ApprovalScope::Once), None).await?;
            }
            "" => {
                // An empty line leaves the question open, for another surface.
                asked.pop_front();
                self.hint(&card);
            }
            _ => return self.queue(line, asked, renderer).await,
        }
        question(asked, renderer)
    }

    /// Sends what was typed at a question and is no answer to it: the engine takes it in with the next turn.
    async fn queue<W: Write>(
        &mut self,
        line: &str,
        asked: &VecDeque<Question>,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        if !line.is_empty() {
            // Text that is no answer is a message, so that nothing typed is dropped.
            self.say(line, String::new()).await?;
            note("sent as a message; the question is still open", renderer)?;
        }
        question(asked, renderer)
    }

    async fn answer(
        &mut self,
        card: Card,
        (decision, scope): (Decision, ApprovalScope),
        signature: Option<serde_json::Value>,
    ) -> Result<(), Failure> {
        let (ask_id, shown_hash) = (card.ask_id, Some(card.shown_hash));
        let reason = String::new();
        let answer = ClientFrame::ApprovalResponse { ask_id, decision, scope, signature, shown_hash, reason };
        self.client.send(&answer).await
    }

    async fn sign(&mut self, card: &Card, yes: &str) -> Result<ApprovalToken, Failure> {
        let given = match yes {
            "t" | "task" => Given::Task,
            "v" | "values" => Given::Values,
            "h" | "host" => Given::Host,
            _ => Given::Once,
        };
        approve::sign(self.context, self.config, &mut self.client, (card, &given)).await
    }
}

/// Takes a question away that is no longer open, and asks the next one where it was the one that was asked.
fn settle<W: Write>(
    ask: &AskId,
    asked: &mut VecDeque<Question>,
    renderer: &mut Renderer<W>,
) -> Result<(), Failure> {
    // The next question is shown only if the one on the screen was settled.
    let was_asked = asked.front().is_some_and(|question| question.ask() == ask);
    asked.retain(|question| question.ask() != ask);
    if was_asked { question(asked, renderer) } else { Ok(()) }
}

/// The time without frames after which the elapsed time is shown.
const QUIET: Duration = Duration::from_secs(2);

/// A tick for each second.
fn ticks() -> Interval {
    let mut ticks = interval(Duration::from_secs(1));
    // Ticks missed while the screen was busy are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Shows for how long nothing has come.
fn show_wait<W: Write>(since: Instant, renderer: &mut Renderer<W>) -> Result<(), Failure> {
    let quiet = since.elapsed();
    if quiet < QUIET {
        return Ok(());
    }
    renderer.wait(quiet.as_secs()).map_err(|error| output(&error))
}

/// Shows a line of this program's own.
fn note<W: Write>(text: &str, renderer: &mut Renderer<W>) -> Result<(), Failure> {
    let frame = ServerFrame::Status { text: text.to_owned() };
    renderer.frame(&Numbered { seq: 0, frame }).map_err(|error| output(&error))
}

/// Takes a question in, and asks it if it is the only one.
fn put<W: Write>(
    new: Question,
    asked: &mut VecDeque<Question>,
    renderer: &mut Renderer<W>,
) -> Result<(), Failure> {
    // One that was open when the session was joined comes again with its history.
    if asked.iter().any(|question| question.ask() == new.ask()) {
        return Ok(());
    }
    asked.push_back(new);
    if asked.len() == 1 { question(asked, renderer) } else { Ok(()) }
}

/// Shows what is asked about, and asks.
fn question<W: Write>(asked: &VecDeque<Question>, renderer: &mut Renderer<W>) -> Result<(), Failure> {
    let (frame, text) = match asked.front() {
        Some(Question::Card(card)) => (ServerFrame::ApprovalRequest(card.clone()), answers(card)),
        Some(Question::Gate(gate)) => (gate.frame.as_ref().clone(), gate_answers(&gate.frame)),
        None => return Ok(()),
    };
    for frame in [frame, ServerFrame::Status { text }] {
        renderer.frame(&Numbered { seq: 0, frame }).map_err(|error| output(&error))?;
    }
    Ok(())
}
