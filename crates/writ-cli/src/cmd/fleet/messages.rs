//! `writ fleet messages`: the conversation of a case, from the router that runs: it records that a person reads it.

use std::time::Duration;

use writ_inspect::show::{escape_line, escape_text};
use writ_runtime::methods::FleetMessages;
use writ_types::api::fleet::{MessageQuery, SentMessage};

use super::{connect_router, find_case};
use crate::args::MessagesArgs;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

/// The time between two looks at a conversation that is followed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shows the conversation of a case.
pub(super) async fn show_messages(
    context: &Context,
    config: &Config,
    args: &MessagesArgs,
) -> Result<(), Failure> {
    let case = find_case(context, config, &args.case).await?;
    let mut client = connect_router(context).await?;
    let mut after = args.after;
    loop {
        let page = client.ask::<FleetMessages>(&MessageQuery { case, after }).await?;
        page.messages.iter().try_for_each(|one| print_message(context, one))?;
        // A page is cut where an answer is full, so only an empty one is the end.
        if let Some(last) = page.messages.last() {
            after = last.n;
            continue;
        }
        // A closed case gets no further message, so there is nothing left to follow.
        if !args.follow || !page.is_open {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
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
