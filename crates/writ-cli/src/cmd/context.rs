//! `writ context`: what the model sees, what it costs, what has left, what stays.

use writ_inspect::show::escape_line;
use writ_runtime::methods::{self as m, SessionsList};
use writ_types::api::context::{
    CompactionOutcome, CompactionSummary, ContextDiff, ContextPin, ContextPins, ContextView, MessageChange,
    SessionTopicList, TopicChoice,
};
use writ_types::api::session::{SessionFilter, SessionName};
use writ_types::error::Exit;
use writ_types::id::SessionId;
use writ_types::unit::MicroUsd;

use crate::args::{ContextCommand, SessionChoice};
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// Runs `writ context …`.
pub(crate) fn run_context(context: &Context, command: ContextCommand) -> Result<(), Failure> {
    context.load_ready_config()?;
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        match command {
            ContextCommand::Show(choice) => {
                let name = name_session(&mut client, choice).await?;
                let view = client.ask::<m::ContextShow>(&name).await?;
                context.out.print_either(&view, describe_view)
            }
            ContextCommand::Diff(choice) => {
                let name = name_session(&mut client, choice).await?;
                let diff = client.ask::<m::ContextDiff>(&name).await?;
                context.out.print_either(&diff, describe_diff)
            }
            ContextCommand::Pin { row, choice } => {
                let SessionName { session } = name_session(&mut client, choice).await?;
                let pins = client.ask::<m::ContextPin>(&ContextPin { session, row }).await?;
                context.out.print_either(&pins, describe_pins)
            }
            ContextCommand::Unpin { row, choice } => {
                let SessionName { session } = name_session(&mut client, choice).await?;
                let pins = client.ask::<m::ContextUnpin>(&ContextPin { session, row }).await?;
                context.out.print_either(&pins, describe_pins)
            }
            ContextCommand::Topic { name, none, choice } => {
                let SessionName { session } = name_session(&mut client, choice).await?;
                let choice = TopicChoice { session, topic: name, leave: none };
                let topics = client.ask::<m::ContextTopic>(&choice).await?;
                context.out.print_either(&topics, describe_topics)
            }
            ContextCommand::Compact(choice) => {
                let name = name_session(&mut client, choice).await?;
                let outcome = client.ask::<m::ContextCompact>(&name).await?;
                context.out.print_either(&outcome, describe_outcome)
            }
        }
    })
}

/// Names the session of a command: the one that it says, else the one that was used last.
pub(crate) async fn name_session(
    client: &mut EngineClient,
    SessionChoice { session }: SessionChoice,
) -> Result<SessionName, Failure> {
    if let Some(session) = session {
        return Ok(SessionName { session });
    }
    // The engine lists the newest first.
    let listed = client.ask::<SessionsList>(&SessionFilter::default()).await?;
    let newest: Option<SessionId> = listed.sessions.first().map(|newest| newest.session);
    let session = newest.ok_or_else(|| {
        Failure::new(Exit::Usage, "context.no_session", "there is no session yet", "`writ chat` begins one")
    })?;
    Ok(SessionName { session })
}

pub(super) fn describe_view(view: &ContextView) -> Vec<String> {
    let model = view.model.as_deref().map_or_else(|| "no model".to_owned(), escape_line);
    let mut lines = vec![
        format!("session   {}", view.session),
        format!("model     {model}; profile {}", escape_line(&view.profile)),
        format!(
            "used      {} of {}; summarised above {}, evicted above {}",
            view.used, view.budget, view.compacts_above, view.evicts_above
        ),
        format!("cost      {} for sending it once, uncached", describe_cost(view.cost_micro_usd)),
    ];
    // Without a correction the line would say nothing.
    if view.real_per_1000 != 1_000 {
        lines.push(format!("counted   {} real tokens for 1,000 estimated ones", view.real_per_1000));
    }
    // The least trusted part decides for all of the request.
    lines.push(format!("trust     {}", view.taint));
    lines.push(String::new());
    lines.extend(view.items.iter().map(|item| {
        let row = item.row.map_or_else(String::new, |row| format!("#{row}"));
        let pinned = if item.pinned { "*" } else { " " };
        let text = if item.begins.is_empty() { &item.source } else { &item.begins };
        format!(
            "{pinned} {:<9} {row:>7} {:>8} {:>10}  {}",
            item.zone,
            item.tokens.get(),
            describe_cost(item.cost_micro_usd),
            escape_line(text)
        )
    }));
    // A view is bounded, and says by how much.
    if view.more > 0 {
        lines.push(format!("and {} more", view.more));
    }
    if view.evicted > 0 {
        lines.push(format!("{} items are left out of the next request: `writ context diff`", view.evicted));
    }
    lines.push("* never leaves; #N can be pinned with `writ context pin N`".to_owned());
    lines.extend(view.compactions.iter().map(describe_compaction));
    if !view.recalled.is_empty() {
        lines.push("the last message brought these memories:".to_owned());
    }
    lines.extend(view.recalled.iter().map(|memory| {
        format!("  {}  {} ({})", memory.id, escape_line(&memory.begins), escape_line(&memory.why))
    }));
    lines
}

fn describe_cost(cost: Option<MicroUsd>) -> String {
    cost.map_or_else(|| "n/a".to_owned(), |cost| cost.to_string())
}

fn describe_compaction(compaction: &CompactionSummary) -> String {
    format!(
        "compaction {} at {}: {} messages, {} to {}, by {}, {} remembered ({})",
        compaction.number,
        compaction.at,
        compaction.messages,
        compaction.tokens_before,
        compaction.tokens_after,
        escape_line(&compaction.by),
        compaction.remembered,
        escape_line(&compaction.reason),
    )
}

fn describe_diff(diff: &ContextDiff) -> Vec<String> {
    let mut lines = vec![format!(
        "{} messages in the history, {} of them in the context as they were said",
        diff.messages, diff.whole
    )];
    if diff.more > 0 {
        lines.push(format!("{} older ones are not listed", diff.more));
    }
    lines.extend(diff.changed.iter().map(|message| {
        let state = match message.state {
            MessageChange::Summarised => "summarised",
            MessageChange::Carried => "beside it",
            MessageChange::Shortened => "shortened",
            MessageChange::LeftOut => "left out",
        };
        format!("#{:<7} {state:<11} {}", message.row, escape_line(&message.begins))
    }));
    lines
}

fn describe_topics(list: &SessionTopicList) -> Vec<String> {
    let mut lines = vec![match &list.topic {
        Some(topic) => format!("about {}", escape_line(topic)),
        None => "about no topic".to_owned(),
    }];
    let others = list.topics.iter().filter(|topic| list.topic.as_ref() != Some(topic));
    lines.extend(others.map(|topic| format!("not shown: {}", escape_line(topic))));
    lines
}

fn describe_pins(pins: &ContextPins) -> Vec<String> {
    if pins.pins.is_empty() {
        return vec!["nothing is pinned".to_owned()];
    }
    let rows: Vec<String> = pins.pins.iter().map(|row| format!("#{row}")).collect();
    vec![format!("pinned: {}", rows.join(", "))]
}

pub(super) fn describe_outcome(outcome: &CompactionOutcome) -> Vec<String> {
    match &outcome.compaction {
        Some(compaction) => {
            let mut lines = vec![describe_compaction(compaction)];
            lines.extend(compaction.summary.lines().map(|line| format!("  {}", escape_line(line))));
            lines
        }
        None => vec!["there is nothing to summarise".to_owned()],
    }
}
