//! Lines that begin with a slash: what they ask of the conversation, beside messages to the agent.

use serde_json::{Value, json};
use writ_inspect::show::escape_line;
use writ_runtime::methods::{
    AgentsNamed, BudgetPause, BudgetRenew, ContextCompact, ContextShow, Method, SessionsAgent,
    SessionsRename, SessionsShow,
};
use writ_types::api::NoParams;
use writ_types::api::session::{SessionAgent, SessionName, SessionTitle};
use writ_types::id::SessionId;

use crate::client::EngineClient;
use crate::cmd::{budget, context as show, memory, models, pilot, project, status};
use crate::context::Context;
use crate::failure::Failure;

/// The most conversations that are listed.
const MAX_LISTED: usize = 10;

/// The word for the agent that answers, and the model that is asked, where none is named.
const USUAL: &str = "usual";

/// The commands, and what each does.
const COMMANDS: [(&str, ChatCommand, &str); 17] = [
    ("help", ChatCommand::Help, "show these commands"),
    (
        "model",
        ChatCommand::Model,
        "show which models are used; /model NAME asks one first here, /model usual that of the agent",
    ),
    ("cost", ChatCommand::Cost, "show what this conversation and this day have used"),
    ("pause", ChatCommand::Pause, "pause this conversation: its models are not called until it is renewed"),
    ("renew", ChatCommand::Renew, "give this conversation a fresh allocation and let it go on"),
    ("diff", ChatCommand::Diff, "show what the agent has changed and not applied"),
    ("undo", ChatCommand::Undo, "take back what was applied last"),
    ("reasoning", ChatCommand::Reasoning, "show the whole reasoning that came last"),
    ("sessions", ChatCommand::Sessions, "list the latest conversations"),
    ("title", ChatCommand::Title, "name this conversation: /title NAME"),
    (
        "agent",
        ChatCommand::Agent,
        "list the named agents; /agent NAME lets one answer, /agent usual the usual one",
    ),
    ("memory", ChatCommand::Memory, "search what is remembered: /memory WORDS"),
    ("context", ChatCommand::Context, "show what the model sees, and what each part costs"),
    ("compact", ChatCommand::Compact, "summarise everything but the newest turn; the history stays"),
    ("plan", ChatCommand::Plan, "ask for a plan with checks before anything is done: /plan TEXT"),
    (
        "pilot",
        ChatCommand::Pilot,
        "steer the autopilot of this folder: /pilot COMMAND, as `writ pilot` takes it",
    ),
    ("stop", ChatCommand::Stop, "stop the turn that runs"),
];

/// A command of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    Model,
    Cost,
    Pause,
    Renew,
    Diff,
    Undo,
    Reasoning,
    Sessions,
    Title,
    Agent,
    Memory,
    Context,
    Compact,
    Plan,
    Pilot,
    Stop,
}

impl ChatCommand {
    /// Returns true if words may follow it.
    const fn takes_words(self) -> bool {
        matches!(self, Self::Title | Self::Model | Self::Agent | Self::Memory | Self::Plan | Self::Pilot)
    }
}

/// Returns the commands as they are typed, for completion.
pub(super) fn command_names() -> Vec<String> {
    COMMANDS.iter().map(|(name, _, _)| format!("/{name}")).collect()
}

/// An input line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatLine<'a> {
    /// A message to the agent.
    Message(&'a str),
    /// A command, and the words after it.
    Command(ChatCommand, &'a str),
    /// It begins like a command, and there is none of this name.
    Unknown(&'a str),
}

/// Returns true if a line ends the conversation: the word alone, as the end of the input does.
pub(super) fn ends_conversation(line: &str) -> bool {
    line == "exit"
}

/// Reads a line. A second slash makes a message of what would be a command.
pub(super) fn parse_line(line: &str) -> ChatLine<'_> {
    let Some(rest) = line.strip_prefix('/') else { return ChatLine::Message(line) };
    // Two slashes send a message that begins with one.
    if rest.starts_with('/') {
        return ChatLine::Message(rest);
    }
    let (word, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let words = words.trim();
    let found = COMMANDS.iter().find(|(name, _, _)| word.eq_ignore_ascii_case(name));
    let found = found.filter(|(_, command, _)| words.is_empty() || command.takes_words());
    found.map_or(ChatLine::Unknown(line), |(_, command, _)| ChatLine::Command(*command, words))
}

/// Returns the message by which a plan is asked for: the words are those of the person, and stand in the conversation.
pub(super) fn write_plan_request(words: &str) -> String {
    format!(
        "Make a plan for this with the tool plan, with checks, and do nothing before it is approved:\n{words}"
    )
}

/// Returns the message about a line that is no command.
pub(super) fn describe_refusal(line: &str) -> String {
    let word = line.split_whitespace().next().unwrap_or(line);
    format!(
        "{} is not a command, and was not sent: /help lists them; //… sends a line that begins with /",
        escape_line(word)
    )
}

/// Runs a command that asks the engine, over a connection of its own: frames of the conversation stay in theirs. Returns the
/// lines to show.
///
/// # Errors
///
/// If the engine cannot be asked, or refuses.
pub(super) async fn run_chat_command(
    context: &Context,
    session: SessionId,
    (command, words): (ChatCommand, &str),
) -> Result<Vec<String>, Failure> {
    if command == ChatCommand::Pilot {
        // Boxed: its commands are many, and this conversation waits below all of them.
        return Box::pin(pilot::run_typed(context, words)).await;
    }
    ask_engine(context, session, (command, words)).await
}

/// Asks the engine what a command of the conversation is about.
async fn ask_engine(
    context: &Context,
    session: SessionId,
    (command, words): (ChatCommand, &str),
) -> Result<Vec<String>, Failure> {
    let mut client = EngineClient::ensure(context).await?;
    match command {
        ChatCommand::Help => Ok(help_lines()),
        ChatCommand::Model if !words.is_empty() => choose_model(&mut client, session, words).await,
        ChatCommand::Model => {
            Ok(models::describe_models(&client.call_method(Method::ModelsList, json!({})).await?))
        }
        ChatCommand::Cost => {
            Ok(status::describe_costs(&client.call_method(Method::Status, json!({})).await?))
        }
        ChatCommand::Pause => {
            Ok(budget::describe_state(&client.ask::<BudgetPause>(&SessionName { session }).await?))
        }
        ChatCommand::Renew => {
            Ok(budget::describe_state(&client.ask::<BudgetRenew>(&SessionName { session }).await?))
        }
        ChatCommand::Diff => Ok(project::describe_diff(
            &client.call_method(Method::Diff, json!({ "session": session })).await?,
        )),
        ChatCommand::Undo => {
            let answer = project::undo_change(&mut client, json!({ "session": session })).await?;
            let text = ["applied", "text"].iter().find_map(|name| answer.get(*name)?.as_str());
            // If undoing needs an approval, its card is shown like any other.
            Ok(text.unwrap_or_default().lines().map(escape_line).collect())
        }
        ChatCommand::Sessions => {
            Ok(describe_sessions(&client.call_method(Method::SessionsList, json!({})).await?, session))
        }
        ChatCommand::Title => {
            let params = SessionTitle { session, title: words.to_owned() };
            let renamed = client.ask::<SessionsRename>(&params).await?;
            Ok(vec![format!("named \"{}\"", renamed.title.unwrap_or_default())])
        }
        ChatCommand::Agent if words.is_empty() => {
            let named = client.ask::<AgentsNamed>(&NoParams {}).await?.agents;
            let mut lines: Vec<String> =
                named.iter().map(|agent| format!("{}  {}", escape_line(&agent.name), agent.about)).collect();
            if lines.is_empty() {
                lines.push("there are none: agents/NAME.toml of the home describes one".to_owned());
            }
            Ok(lines)
        }
        ChatCommand::Agent => {
            let agent = (words != USUAL).then(|| words.to_owned());
            let chosen = client.ask::<SessionsAgent>(&SessionAgent { session, agent, model: None }).await?;
            let name = chosen.agent.unwrap_or_else(|| "the usual agent".to_owned());
            Ok(vec![format!("{} answers from the next message on", escape_line(&name))])
        }
        ChatCommand::Memory if words.is_empty() => Ok(vec!["say what to look for: /memory WORDS".to_owned()]),
        ChatCommand::Memory => {
            let params = json!({ "query": words, "limit": MAX_LISTED });
            Ok(memory::describe_memories(&client.call_method(Method::MemorySearch, params).await?))
        }
        ChatCommand::Context => {
            Ok(show::describe_view(&client.ask::<ContextShow>(&SessionName { session }).await?))
        }
        ChatCommand::Compact => {
            Ok(show::describe_outcome(&client.ask::<ContextCompact>(&SessionName { session }).await?))
        }
        ChatCommand::Plan => Ok(vec!["say what is to be done: /plan TEXT".to_owned()]),
        // Handled by the conversation itself, which knows the running turn and what was shown.
        ChatCommand::Stop | ChatCommand::Reasoning | ChatCommand::Pilot => Ok(Vec::new()),
    }
}

/// Lets a model be asked first in a conversation. The agent that answers stays.
async fn choose_model(
    client: &mut EngineClient,
    session: SessionId,
    name: &str,
) -> Result<Vec<String>, Failure> {
    let agent = client.ask::<SessionsShow>(&SessionName { session }).await?.summary.agent;
    let model = (name != USUAL).then(|| name.to_owned());
    let chosen = client.ask::<SessionsAgent>(&SessionAgent { session, agent, model }).await?;
    let name = chosen.model.unwrap_or_else(|| "the agent's own model".to_owned());
    Ok(vec![format!("{} is asked first from the next message on", escape_line(&name))])
}

fn help_lines() -> Vec<String> {
    let mut lines: Vec<String> =
        COMMANDS.iter().map(|(name, _, about)| format!("/{name:<9} {about}")).collect();
    lines.push("//…        send a line that begins with /".to_owned());
    lines.push("exit       end the conversation, as Ctrl-D does".to_owned());
    lines
}

/// The latest conversations, each with its folder.
fn describe_sessions(listed: &Value, own: SessionId) -> Vec<String> {
    let rows = listed.get("sessions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let line = |row: &Value| {
        let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
        let here = if text("session") == own.to_string() { " (this one)" } else { "" };
        let folder = if text("project").is_empty() { "no folder" } else { text("project") };
        let title = if text("title").is_empty() { "(nothing said yet)" } else { text("title") };
        let (id, title) = (escape_line(text("session")), escape_line(title));
        format!("{id}  {title}  ({}){here}", escape_line(folder))
    };
    let mut lines: Vec<String> = rows.iter().take(MAX_LISTED).map(line).collect();
    lines.push("`writ chat --session ID` continues one".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_begins_a_command_and_two_a_message() {
        assert_eq!(parse_line("hello /help"), ChatLine::Message("hello /help"));
        assert_eq!(parse_line("//etc/hosts is wrong"), ChatLine::Message("/etc/hosts is wrong"));
        assert_eq!(parse_line("/Diff "), ChatLine::Command(ChatCommand::Diff, ""));
        assert_eq!(parse_line("/memory  the heron"), ChatLine::Command(ChatCommand::Memory, "the heron"));
        assert_eq!(parse_line("/plan mend it"), ChatLine::Command(ChatCommand::Plan, "mend it"));
        assert!(write_plan_request("mend it").ends_with("approved:\nmend it"));
        let words = "status --json";
        assert_eq!(parse_line("/pilot status --json"), ChatLine::Command(ChatCommand::Pilot, words));
        assert_eq!(parse_line("/agent"), ChatLine::Command(ChatCommand::Agent, ""));
        assert_eq!(parse_line("/model a/b"), ChatLine::Command(ChatCommand::Model, "a/b"));
        for unknown in ["/", "/etc/hosts is wrong", "/diff all", "/halp"] {
            assert_eq!(parse_line(unknown), ChatLine::Unknown(unknown));
        }
        assert!(
            describe_refusal("/etc/hosts \u{1b}[2J")
                .starts_with("/etc/hosts is not a command, and was not sent")
        );
        assert_eq!(help_lines().len(), COMMANDS.len() + 2);
        assert_eq!(["exit", "exit now", "/exit", "Exit"].map(ends_conversation), [true, false, false, false]);
    }
}
