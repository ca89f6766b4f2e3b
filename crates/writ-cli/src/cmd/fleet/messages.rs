//! `writ fleet messages`: the conversation of a case, from the database.

use std::time::Duration;

use writ_fleet::cases::error::CaseError;
use writ_inspect::show::{escape_line, escape_text};
use writ_store::fleet::CaseMessage;
use writ_store::reads::FleetReads as _;
use writ_store::store::Store;
use writ_types::api::fleet::{MessagePage, SentMessage};
use writ_types::id::SessionId;

use super::{case_failure, find_case};
use crate::args::MessagesArgs;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The messages that are read at once: each may have 64 KiB.
const PAGE: usize = 64;
/// The time between two looks at a conversation that is followed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows the conversation of a case.
pub(super) async fn show_messages(
    context: &Context,
    config: &Config,
    args: &MessagesArgs,
) -> Result<(), Failure> {
    let case = find_case(context, config, &args.case).await?;
    let store = open_to_read(context, config)?;
    let mut after = args.after;
    loop {
        let page = read_page(&store, case, after).await?;
        after = page.messages.last().map_or(after, |last| last.n);
        page.messages.iter().try_for_each(|one| print_message(context, one))?;
        // A full page may have another behind it.
        if page.messages.len() == PAGE {
            continue;
        }
        // A closed case gets no further message, so there is nothing left to follow.
        if !args.follow || !page.is_open {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn read_page(store: &Store, case: SessionId, after: u64) -> Result<MessagePage, Failure> {
    // The end is read before the messages, so that the last ones are not missed.
    let row = store.fleet_case(case).await?;
    let row = row.ok_or_else(|| case_failure(&CaseError::Unknown(case.to_string())))?;
    let messages = store.fleet_messages(case, after, PAGE).await?;
    let said = |CaseMessage { n, sender, text, at }| SentMessage { n, from: sender, text, at };
    Ok(MessagePage { is_open: row.is_open, messages: messages.into_iter().map(said).collect() })
}

/// Prints a message: a line of JSON, or its sender with its text below.
fn print_message(context: &Context, message: &SentMessage) -> Result<(), Failure> {
    if context.out.json {
        return context.out.json_line(message);
    }
    context.out.print_line(describe_message(message).join("\n"))
}

/// The lines of a message. Its text is indented, so that none of its lines looks like a sender's.
fn describe_message(message: &SentMessage) -> Vec<String> {
    let head = format!("{} {} {}", message.n, message.at, escape_line(&message.from));
    let text = escape_text(&message.text);
    std::iter::once(head).chain(text.lines().map(|line| format!("    {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use writ_types::unit::Timestamp;

    use super::*;

    #[test]
    fn a_guest_cannot_write_lines_of_others() {
        let message = SentMessage {
            n: 1,
            from: "guest".into(),
            text: "hello\n2 1970-01-01T00:00:00.000Z person owner\r\u{1b}[1A\u{202e}".into(),
            at: Timestamp::from_millis(0),
        };
        let lines = describe_message(&message);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], "1 1970-01-01T00:00:00.000Z guest");
        assert!(lines[1..].iter().all(|line| line.starts_with("    ")), "{lines:?}");
        assert!(!lines.concat().contains(['\r', '\u{1b}', '\u{202e}']), "{lines:?}");
    }
}
