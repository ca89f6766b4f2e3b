//! `writ sessions`: conversations as a person keeps them. `writ replay`: one of them under today's rules.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::json;
use writ_inspect::show::escape_line;
use writ_runtime::methods::{
    SessionsCassette, SessionsDelete, SessionsErase, SessionsFork, SessionsHistory, SessionsList,
    SessionsRename, SessionsReplay, SessionsRestore, SessionsSearch, SessionsShow,
};
use writ_types::api::cassette::{CassetteQuery, ReplayStep, ReplayVerdict};
use writ_types::api::session::{
    HistoryMessage, HistoryQuery, SessionFilter, SessionFork, SessionHits, SessionName, SessionQuery,
    SessionSummary, SessionTitle,
};
use writ_types::chat::Role;
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::unit::MicroUsd;

use crate::args::{ReplayArgs, SessionsCommand};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::terminal;

/// Runs `writ sessions …`.
///
/// # Errors
///
/// If there is no such session, or the engine refuses.
pub(crate) fn run_sessions(context: &Context, command: &SessionsCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            SessionsCommand::List { deleted, lines } => {
                list_sessions(context, &mut client, *deleted, *lines).await
            }
            SessionsCommand::Show { session } => show_session(context, &mut client, *session).await,
            SessionsCommand::Rename { session, title } => {
                let params = SessionTitle { session: *session, title: title.clone() };
                let renamed = client.ask::<SessionsRename>(&params).await?;
                context.out.print_either(&renamed, |row| vec![summary_line(row)])
            }
            SessionsCommand::Search { words, limit } => {
                let params = SessionQuery { q: words.join(" "), limit: Some(*limit) };
                let found = client.ask::<SessionsSearch>(&params).await?;
                context.out.print_either(&found, describe_hits)
            }
            SessionsCommand::Fork { session, turn } => {
                let params = SessionFork { session: *session, turn: *turn };
                let forked = client.ask::<SessionsFork>(&params).await?;
                context.out.print_either(&forked, |row| {
                    let after = format!("{} turns were copied", row.turns);
                    vec![after, format!("writ chat --session {} goes on with the copy", row.session)]
                })
            }
            SessionsCommand::Export { session, out } => {
                export_session(context, &mut client, *session, out.as_deref()).await
            }
            SessionsCommand::Delete { session, erase, yes } => {
                delete_session(context, &mut client, *session, (*erase, *yes)).await
            }
            SessionsCommand::Restore { session } => {
                let restored = client.ask::<SessionsRestore>(&SessionName { session: *session }).await?;
                context.out.print_either(&restored, |_| {
                    vec![format!(
                        "it is back, and closed: writ sessions fork {session} makes a copy that goes on"
                    )]
                })
            }
        }
    })
}

async fn list_sessions(
    context: &Context,
    client: &mut EngineClient,
    deleted: bool,
    lines: usize,
) -> Result<(), Failure> {
    let mut listed = client.ask::<SessionsList>(&SessionFilter { deleted }).await?;
    listed.sessions.truncate(lines);
    context.out.print_either(&listed, |listed| {
        if listed.sessions.is_empty() {
            let none = if deleted {
                "no conversation is deleted"
            } else {
                "there is no conversation yet: writ chat"
            };
            return vec![none.to_owned()];
        }
        listed.sessions.iter().map(summary_line).collect()
    })
}

/// One line about a session, for lists.
pub(super) fn summary_line(row: &SessionSummary) -> String {
    let title = row.title.as_deref().unwrap_or("(nothing said yet)");
    let folder = row.project.as_deref().map(|path| format!(", {}", escape_line(path))).unwrap_or_default();
    let agent = row.agent.as_deref().map(|name| format!(", agent {}", escape_line(name))).unwrap_or_default();
    let state = match (&row.erased_at, &row.deleted_at, &row.closed_at) {
        // An erased session was deleted before, and a deleted one closed: the last state is shown.
        (Some(_), _, _) => ", erased",
        (None, Some(_), _) => ", deleted",
        (None, None, Some(_)) => ", closed",
        (None, None, None) => "",
    };
    let (turns, cost) = (row.turns, dollars(row.cost));
    let at = row.updated_at.get(..16).unwrap_or(&row.updated_at).replace('T', " ");
    format!("{}  {at}  {}  ({turns} turns, {cost}{folder}{agent}{state})", row.session, escape_line(title))
}

/// An amount in dollars, with as many digits as it needs.
pub(super) fn dollars(cost: MicroUsd) -> String {
    let (whole, rest) = (cost.get() / 1_000_000, cost.get() % 1_000_000);
    if rest % 10_000 == 0 { format!("${whole}.{:02}", rest / 10_000) } else { format!("${whole}.{rest:06}") }
}

async fn show_session(
    context: &Context,
    client: &mut EngineClient,
    session: SessionId,
) -> Result<(), Failure> {
    let details = client.ask::<SessionsShow>(&SessionName { session }).await?;
    let (mut messages, mut after) = (Vec::new(), 0);
    loop {
        let page = client.ask::<SessionsHistory>(&HistoryQuery { session, after, limit: None }).await?;
        messages.extend(page.messages);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let shown = json!({ "session": details, "messages": messages });
    context.out.print_either(&shown, |_| {
        let head = std::iter::once(summary_line(&details.summary));
        let forked =
            details.summary.forked_from.map(|(from, turn)| format!("copied from {from} after turn {turn}"));
        head.chain(forked).chain(messages.iter().flat_map(message_lines)).collect()
    })
}

fn message_lines(message: &HistoryMessage) -> Vec<String> {
    let by = match message.role {
        Role::User => "you",
        Role::Assistant => "agent",
        Role::System => "writ",
        // Results of tools are not shown; they are in the ledger.
        Role::Tool => return Vec::new(),
    };
    let text = message.text.trim();
    // A message of calls alone has no words to show.
    if text.is_empty() {
        return Vec::new();
    }
    let lines = text.lines().map(|line| format!("  {}", escape_line(line)));
    std::iter::once(format!("{by} (turn {}):", message.turn_number)).chain(lines).collect()
}

fn describe_hits(found: &SessionHits) -> Vec<String> {
    let mut lines: Vec<String> = found
        .hits
        .iter()
        .map(|hit| {
            let title = hit.title.as_deref().map(escape_line).unwrap_or_default();
            format!("{} turn {}  {title}\n    {}", hit.session, hit.turn_number, hit.excerpt)
        })
        .collect();
    if lines.is_empty() {
        lines.push("nothing found".to_owned());
    }
    if found.more {
        lines.push("older messages were not looked through: use more words, or a larger -n".to_owned());
    }
    lines
}

async fn delete_session(
    context: &Context,
    client: &mut EngineClient,
    session: SessionId,
    (erase, yes): (bool, bool),
) -> Result<(), Failure> {
    if erase && !yes {
        let question = format!("Erase what was said in {session}? Nothing brings it back.");
        if !terminal::confirm_yes(&context.host.streams, &question)? {
            return Err(Failure::new(
                Exit::Denied,
                "sessions.kept",
                "nothing was erased",
                "--yes does not ask",
            ));
        }
    }
    let deleted = client.ask::<SessionsDelete>(&SessionName { session }).await?;
    if !erase {
        return context.out.print_either(&deleted, |deleted| {
            let until = deleted.erased_after.as_deref().unwrap_or_default();
            vec![
                format!("deleted; its content is erased after {until}"),
                format!("writ sessions restore {session} brings it back"),
            ]
        });
    }
    let erased = client.ask::<SessionsErase>(&SessionName { session }).await?;
    context.out.print_either(&erased, |erased| {
        let left = match erased.left {
            0 => String::new(),
            left => format!("; {left} are still needed, such as those of approvals in force"),
        };
        let done = format!("erased, with the content of {} entries of the ledger{left}", erased.entries);
        std::iter::once(done).chain((!erased.hint.is_empty()).then(|| erased.hint.clone())).collect()
    })
}

async fn export_session(
    context: &Context,
    client: &mut EngineClient,
    session: SessionId,
    out: Option<&Path>,
) -> Result<(), Failure> {
    let (mut lines, mut after) = (Vec::new(), 0);
    loop {
        let page = client.ask::<SessionsCassette>(&CassetteQuery { session, after }).await?;
        for track in &page.tracks {
            let line = serde_json::to_string(track);
            lines.push(line.map_err(|error| Failure::internal_error("writing a cassette", error))?);
        }
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let text = format!("{}\n", lines.join("\n"));
    let Some(path) = out else { return context.out.print_bytes(text.as_bytes()) };
    // A conversation is its owner's alone, and no file is written over.
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        let text = format!("{} cannot be written: {error}", path.display());
        Failure::new(Exit::Usage, "sessions.export", &text, "name a file that is not there yet")
    })?;
    let written = json!({ "file": path, "lines": lines.len() });
    context.out.print_either(&written, |_| {
        vec![
            format!("{} lines in {}", lines.len(), path.display()),
            format!("writ chat --cassette {} plays its model", path.display()),
        ]
    })
}

/// Runs `writ replay`.
///
/// # Errors
///
/// If there is no such session, or it was erased.
pub(crate) fn run_replay(context: &Context, args: &ReplayArgs) -> Result<(), Failure> {
    context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        let (mut steps, mut after) = (Vec::new(), 0);
        loop {
            let query = CassetteQuery { session: args.session, after };
            let page = client.ask::<SessionsReplay>(&query).await?;
            steps.extend(page.steps);
            match page.next {
                Some(next) => after = next,
                None => break,
            }
        }
        // People look for what the rules of today would decide differently; the rest is only counted.
        let changed: Vec<&ReplayStep> = steps.iter().filter(|step| step.is_changed()).collect();
        let shown: Vec<&ReplayStep> = if args.all { steps.iter().collect() } else { changed.clone() };
        let unknown = steps.iter().filter(|step| step.would == ReplayVerdict::Unknown).count();
        let result = json!({
            "session": args.session,
            "calls": steps.len(),
            "changed": changed.len(),
            "unknown": unknown,
            "steps": shown,
        });
        context.out.print_either(&result, |_| {
            let mut lines: Vec<String> = shown.iter().map(|step| step_line(step)).collect();
            let unasked: BTreeSet<&str> =
                steps.iter().flat_map(|step| &step.gates).map(String::as_str).collect();
            let judged = steps.len().saturating_sub(unknown);
            lines.push(match changed.len() {
                0 => format!("{judged} calls would be decided as they were; nothing was performed"),
                count => {
                    format!("{count} of {judged} calls would be decided differently; nothing was performed")
                }
            });
            if !unasked.is_empty() {
                let names: Vec<String> = unasked.into_iter().map(escape_line).collect();
                lines.push(format!("not asked, since they run a program: {}", names.join(", ")));
            }
            if unknown > 0 {
                let text = "cannot be judged: malformed then, or made with tools or files that are gone";
                lines.push(format!("{unknown} calls {text}"));
            }
            lines
        })
    })
}

fn step_line(step: &ReplayStep) -> String {
    let by = if step.rule.is_empty() { String::new() } else { format!(" [{}]", escape_line(&step.rule)) };
    let why = if step.why.is_empty() { String::new() } else { format!(": {}", step.why) };
    let (did, would) = (verdict(step.did), verdict(step.would));
    let change = if step.did == step.would { did.to_owned() } else { format!("{did} \u{2192} {would}") };
    format!("turn {}  {}  {change}{by}{why}", step.turn, step.intent)
}

const fn verdict(verdict: ReplayVerdict) -> &'static str {
    match verdict {
        ReplayVerdict::Permit => "permitted",
        ReplayVerdict::Approved => "approved",
        ReplayVerdict::Ask => "asked",
        ReplayVerdict::Deny => "denied",
        ReplayVerdict::Unknown => "not judged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_as_many_digits_as_they_need() {
        let shown = |micro| dollars(MicroUsd::new(micro));
        assert_eq!(
            [0, 10_000, 1_230_000, 1, 2_000_345].map(shown),
            ["$0.00", "$0.01", "$1.23", "$0.000001", "$2.000345"]
        );
    }
}
