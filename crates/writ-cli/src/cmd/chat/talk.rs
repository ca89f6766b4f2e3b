//! The conversation itself: frames to the screen, lines to the engine, approvals in between.

use std::collections::VecDeque;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};
use writ_policy::approval::ApprovalToken;
use writ_tui::editor::{Completions, Input, LineEditor};
use writ_tui::renderer::{RenderMode, Renderer};
use writ_tui::screen::USUAL_COLUMNS;
use writ_types::entry::{ApprovalScope, Decision};
use writ_types::frame::{Card, ClientFrame, Numbered, ServerFrame};
use writ_types::id::{SessionId, TurnId};

use crate::approve::{self, ApprovalChoice};
use crate::client::EngineClient;
use crate::clock;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

use super::commands::{self, ChatCommand, ChatLine};
use super::news::{FrameNews, read_news};
use super::notice::TerminalNotice;
use super::question::{
    ChatQuestion, add_question, output_failure, print_note, settle_question, show_question,
};
use super::{end_with, status_line};

/// The length of a turn after which its end rings.
const LONG_TURN: Duration = Duration::from_secs(20);

/// The prompt of a message.
const MESSAGE_PROMPT: &str = "> ";

/// The prompt of an answer, or a message in its place.
const ANSWER_PROMPT: &str = "answer> ";

/// A client in a session.
pub(super) struct Conversation<'a> {
    pub(super) context: &'a Context,
    pub(super) config: &'a Config,
    pub(super) client: EngineClient,
    pub(super) session: SessionId,
    pub(super) mode: RenderMode,
    /// The project's folder; its files can be completed.
    pub(super) project: Option<PathBuf>,
}

/// The state of a conversation at the terminal.
struct TalkState {
    /// The turn that runs.
    running: Option<TurnId>,
    /// The open questions; the first one is on the screen.
    asked: VecDeque<ChatQuestion>,
    /// The time since when nothing has come in a turn, or after a message.
    quiet: Option<Instant>,
    /// The beginning of the turn that ran last.
    began: Instant,
}

impl TalkState {
    fn new() -> Self {
        Self { running: None, asked: VecDeque::new(), quiet: None, began: Instant::now() }
    }

    fn prompt(&self) -> &'static str {
        if self.asked.is_empty() { MESSAGE_PROMPT } else { ANSWER_PROMPT }
    }
}

/// The columns that the terminal has now.
fn terminal_columns() -> usize {
    terminal_size::terminal_size().map_or(USUAL_COLUMNS, |(width, _)| usize::from(width.0))
}

impl Conversation<'_> {
    fn renderer<W: Write>(&self, out: W) -> Renderer<W> {
        let renderer = Renderer::new(out, self.mode);
        if self.context.host.streams.output.is_terminal() {
            renderer.on_screen(terminal_columns)
        } else {
            renderer
        }
    }

    /// Sends a message; returns the id that its answer will name.
    pub(super) async fn send_message(&mut self, text: &str, quoted: String) -> Result<String, Failure> {
        let text = self.attach_files(text).await?;
        let client_id: String = hex::encode(clock::random_bytes());
        let message = ClientFrame::Message {
            text,
            quoted,
            client_id: client_id.clone(),
            signature: None,
            sender: None,
        };
        self.client.send_frame(&message).await?;
        Ok(client_id)
    }

    /// One message, one answer; ends as the turn does that has taken the message in. Others may speak in the
    /// same session: what they are answered is shown, and does not end it.
    pub(super) async fn run_once(mut self, text: &str, quoted: String) -> Result<(), Failure> {
        let mut renderer = self.renderer(self.context.host.streams.output.clone());
        let mut pressed = self.context.host.stops.listen_interrupts()?;
        let mut running = None;
        let own = self.send_message(text, quoted).await?;
        let (mut ticks, mut quiet) = (start_ticks(), Instant::now());
        loop {
            let frame = tokio::select! {
                frame = self.client.receive_frame() => frame?,
                _ = ticks.tick() => {
                    // The elapsed time is shown where nothing else comes.
                    show_wait(quiet, &mut renderer)?;
                    continue;
                }
                () = pressed.pressed() => {
                    self.cancel_turn(running).await?;
                    continue;
                }
            };
            quiet = Instant::now();
            // A card that was open before is another turn's.
            if frame.seq == 0 && matches!(frame.frame, ServerFrame::ApprovalRequest(_)) {
                continue;
            }
            renderer.write_frame(&frame).map_err(|error| output_failure(&error))?;
            match read_news(&frame.frame) {
                FrameNews::Running(turn) => running = Some(turn),
                FrameNews::Ended(exit, answers) if answers.is_empty() || answers.contains(&own) => {
                    return end_with(exit);
                }
                FrameNews::Ended(..) => running = None,
                FrameNews::Asked(card) => self.print_hint(&card),
                // A client that sends one message and leaves cannot answer; the turn waits for another
                // client.
                FrameNews::Gate(gate) => {
                    self.context.out.print_remark(format!("hint: writ approvals approve {}", gate.ask));
                }
                FrameNews::Nothing | FrameNews::Settled(_) => {}
            }
        }
    }

    fn print_hint(&self, card: &Card) {
        self.context.out.print_remark(format!("hint: writ approvals approve {}", card.ask_id));
    }

    /// Stops the turn that runs; without one, ends the command.
    async fn cancel_turn(&mut self, running: Option<TurnId>) -> Result<(), Failure> {
        match running {
            // The turn ends with a frame of its own; until then the client stays.
            Some(turn) => self.client.send_frame(&ClientFrame::Cancel { turn }).await,
            None => Err(Failure::Interrupted),
        }
    }

    /// A conversation at the terminal.
    pub(super) async fn run_interactive(mut self) -> Result<(), Failure> {
        let config = writ_tui::config::TerminalConfig::default();
        let history = self.context.home.runtime().join("chat_history");
        let commands = commands::command_names();
        let completions = Completions { project: self.project.clone(), commands };
        let (mut editor, printer) = LineEditor::start_editor(&config, Some(history), completions)?;
        let mut renderer = self.renderer(printer);
        let mut pressed = self.context.host.stops.listen_interrupts()?;
        let mut state = TalkState::new();
        let mut ticks = start_ticks();
        self.context.out.print_remark(format!(
            "session {} - Esc stops a turn, Ctrl-D or exit ends; a backslash at the end continues a line, @ and Tab name a file",
            self.session
        ));
        loop {
            tokio::select! {
                frame = self.client.receive_frame() => {
                    self.handle_frame(&frame?, &mut state, &mut renderer).await?;
                }
                () = pressed.pressed() => self.cancel_turn(state.running.take()).await?,
                // The elapsed time would be written over a question that waits for its answer.
                _ = ticks.tick(), if state.asked.is_empty() => {
                    if let Some(since) = state.quiet {
                        show_wait(since, &mut renderer)?;
                    }
                }
                input = editor.read_input(state.prompt()) => {
                    if self.handle_input(input?, &mut state, &mut renderer).await?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Shows a frame, and follows what it means for the conversation.
    async fn handle_frame<W: Write>(
        &self,
        frame: &Numbered,
        state: &mut TalkState,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        let news = read_news(&frame.frame);
        // One question at a time: it is shown when it is the one that is asked. What came of an answer comes to this
        // client and to the session: the session's frame is shown.
        let is_repeated = frame.seq == 0 && matches!(news, FrameNews::Settled(_));
        if !is_repeated && !matches!(news, FrameNews::Asked(_) | FrameNews::Gate(_)) {
            renderer.write_frame(frame).map_err(|error| output_failure(&error))?;
        }
        match news {
            FrameNews::Running(turn) => {
                // A further frame of the same turn is no new beginning.
                if state.running.replace(turn) != Some(turn) {
                    state.began = Instant::now();
                }
                state.quiet = Some(Instant::now());
            }
            FrameNews::Ended(..) => {
                // One that was shown as running was worked on: what it has used is known now.
                if state.running.take().is_some() {
                    self.show_status_line(state.asked.len(), renderer).await?;
                    self.notify_away(state.began);
                }
                state.quiet = None;
            }
            FrameNews::Asked(card) => {
                self.notify(TerminalNotice::Asks);
                add_question(ChatQuestion::Card(card), &mut state.asked, renderer)?;
            }
            FrameNews::Gate(gate) => {
                self.notify(TerminalNotice::Asks);
                add_question(ChatQuestion::Gate(gate), &mut state.asked, renderer)?;
            }
            FrameNews::Settled(ask) => settle_question(&ask, &mut state.asked, renderer)?,
            FrameNews::Nothing => {}
        }
        Ok(())
    }

    /// Takes in what the person did at the prompt; `Break`: the conversation has ended.
    async fn handle_input<W: Write>(
        &mut self,
        input: Input,
        state: &mut TalkState,
        renderer: &mut Renderer<W>,
    ) -> Result<ControlFlow<()>, Failure> {
        match input {
            Input::End => return Ok(self.end_conversation()),
            Input::Stopped => {
                renderer.leave_row();
                match state.running.take() {
                    Some(turn) => self.client.send_frame(&ClientFrame::Cancel { turn }).await?,
                    None => print_note("nothing runs; Ctrl-D ends", renderer)?,
                }
            }
            Input::Interrupted => {
                renderer.leave_row();
                // Without a turn the interrupt ends the command.
                if state.running.is_none() {
                    self.say_how_to_resume();
                }
                self.cancel_turn(state.running.take()).await?;
            }
            Input::Line(line) => {
                renderer.leave_row();
                if commands::ends_conversation(line.trim()) {
                    return Ok(self.end_conversation());
                }
                self.handle_typed(line.trim(), state, renderer).await?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Takes a line that was typed: a command, an answer or a message.
    async fn handle_typed<W: Write>(
        &mut self,
        line: &str,
        state: &mut TalkState,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        match commands::parse_line(line) {
            ChatLine::Command(ChatCommand::Stop, _) => match state.running.take() {
                Some(turn) => self.client.send_frame(&ClientFrame::Cancel { turn }).await,
                None => print_note("nothing runs", renderer),
            },
            ChatLine::Command(ChatCommand::Reasoning, _) => {
                renderer.unfold_reasoning().iter().try_for_each(|line| print_note(line, renderer))
            }
            // A message like any other, so that the plan is the conversation's and its card comes here.
            ChatLine::Command(ChatCommand::Plan, words) if !words.is_empty() => {
                state.quiet = Some(Instant::now());
                self.send_typed(&commands::write_plan_request(words)).await
            }
            ChatLine::Command(command, words) => self.handle_command((command, words), renderer).await,
            ChatLine::Unknown(line) => print_note(&commands::describe_refusal(line), renderer),
            ChatLine::Message(line) => {
                // A message starts a turn, unless it answers a question.
                if state.asked.is_empty() && !line.is_empty() {
                    state.quiet = Some(Instant::now());
                }
                self.handle_line(line, &mut state.asked, renderer).await
            }
        }
    }

    /// Shows the model, how full its window is, what the conversation has cost, and the number of open questions. What the
    /// engine cannot say now is left out.
    async fn show_status_line<W: Write>(
        &self,
        open: usize,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        if self.context.out.quiet || self.context.out.json {
            return Ok(());
        }
        match status_line::read_status_line(self.context, self.session, open).await {
            Ok(Some(line)) => print_note(&line, renderer),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Notifies the person, who may have turned away: by the terminal's own means, else with its bell.
    fn notify(&self, notice: TerminalNotice) {
        let mut output = self.context.host.streams.output.clone();
        if output.is_terminal() && !self.context.out.quiet {
            let bytes = notice.for_terminal(&self.context.env);
            // A terminal without a bell shows nothing.
            let _rung = output.write_all(bytes.as_bytes()).and_then(|()| output.flush());
        }
    }

    /// Notifies when a turn that took long has ended.
    fn notify_away(&self, began: Instant) {
        if began.elapsed() >= LONG_TURN {
            self.notify(TerminalNotice::Ended);
        }
    }

    fn end_conversation(&self) -> ControlFlow<()> {
        self.say_how_to_resume();
        ControlFlow::Break(())
    }

    fn say_how_to_resume(&self) {
        self.context
            .out
            .print_remark(format!("writ chat --session {} continues this conversation", self.session));
    }

    /// Runs a command, and shows what it says. What the engine refuses ends the command, and not the conversation.
    async fn handle_command<W: Write>(
        &self,
        command: (ChatCommand, &str),
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        match commands::run_chat_command(self.context, self.session, command).await {
            Ok(lines) => lines.iter().try_for_each(|line| print_note(line, renderer)),
            Err(failure) => {
                self.context.out.print_failure(&failure);
                Ok(())
            }
        }
    }

    async fn handle_line<W: Write>(
        &mut self,
        line: &str,
        asked: &mut VecDeque<ChatQuestion>,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        let card = match asked.front() {
            Some(ChatQuestion::Card(card)) => card.as_ref().clone(),
            Some(ChatQuestion::Gate(gate)) => {
                // Shown again where it is neither: the turn goes on with a yes or a no.
                let Some((decision, answers)) = gate.parse_answer(line) else {
                    return self.queue_message(line, asked, renderer).await;
                };
                let (ask_id, reason) = (gate.ask.clone(), String::new());
                self.client
                    .send_frame(&ClientFrame::GateResponse { ask_id, decision, reason, answers })
                    .await?;
                asked.pop_front();
                return show_question(asked, renderer);
            }
            None if line.is_empty() => return Ok(()),
            None => return self.send_typed(line).await,
        };
        match line.to_lowercase().as_str() {
            yes @ ("y" | "yes" | "t" | "task" | "v" | "values" | "h" | "host") => {
                match self.sign_card(&card, yes).await {
                    Ok(token) => {
                        let scope = approve::scope_of(Some(&token));
                        let signature = serde_json::to_value(&token)
                            .map_err(|error| Failure::internal_error("writing the approval", error))?;
                        // The question is removed once its answer is signed, before the engine's reply.
                        asked.pop_front();
                        self.answer_card(card, (Decision::Approve, scope), Some(signature)).await?;
                    }
                    // A locked keyring is no reason to lose the conversation: the question stays.
                    Err(failure) => self.context.out.print_failure(&failure),
                }
            }
            "n" | "no" => {
                asked.pop_front();
                self.answer_card(card, (Decision::Deny, ApprovalScope::Once), None).await?;
            }
            "" => {
                // An empty line leaves the question open, for another surface.
                asked.pop_front();
                self.print_hint(&card);
            }
            _ => return self.queue_message(line, asked, renderer).await,
        }
        show_question(asked, renderer)
    }

    /// Sends what was typed at a question and is no answer to it: the engine takes it in with the next turn.
    async fn queue_message<W: Write>(
        &mut self,
        line: &str,
        asked: &VecDeque<ChatQuestion>,
        renderer: &mut Renderer<W>,
    ) -> Result<(), Failure> {
        if !line.is_empty() {
            // Text that is no answer is a message, so that nothing typed is dropped.
            self.send_typed(line).await?;
            print_note("sent as a message; the question is still open", renderer)?;
        }
        show_question(asked, renderer)
    }

    async fn answer_card(
        &mut self,
        card: Card,
        (decision, scope): (Decision, ApprovalScope),
        signature: Option<serde_json::Value>,
    ) -> Result<(), Failure> {
        let (ask_id, shown_hash) = (card.ask_id, Some(card.shown_hash));
        let reason = String::new();
        let answer = ClientFrame::ApprovalResponse { ask_id, decision, scope, signature, shown_hash, reason };
        self.client.send_frame(&answer).await
    }

    async fn sign_card(&mut self, card: &Card, yes: &str) -> Result<ApprovalToken, Failure> {
        let given = match yes {
            "t" | "task" => ApprovalChoice::Task,
            "v" | "values" => ApprovalChoice::Values,
            "h" | "host" => ApprovalChoice::Host,
            _ => ApprovalChoice::Once,
        };
        approve::sign_approval(self.context, self.config, &mut self.client, (card, &given)).await
    }
}

/// The time without frames after which the elapsed time is shown.
const QUIET: Duration = Duration::from_secs(2);

/// A tick for each second.
fn start_ticks() -> Interval {
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
    renderer.show_wait(quiet.as_secs()).map_err(|error| output_failure(&error))
}
