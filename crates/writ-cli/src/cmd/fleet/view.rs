//! `writ fleet status`: the fleet at one moment, or again and again.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use terminal_size::terminal_size;
use writ_fleet::cases::status::read_status;
use writ_inspect::show::escape_line;
use writ_runtime::methods;
use writ_types::api::NoParams;
use writ_types::api::fleet::{AgentStatus, CaseStatus, FleetStatus, SeenAnomaly};

use super::case_failure;
use crate::args::FleetStatusArgs;
use crate::client::EngineClient;
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::ledger::open_to_read;

/// The lines of a terminal that does not say how many it has.
const USUAL_LINES: usize = 24;
/// The most anomalies that people are shown; JSON has all that the router still knows.
const MAX_ANOMALIES: usize = 5;
/// The state of a case that waits for a person.
const QUEUED: &str = "queued";
/// The longest name or reason in a line, in characters.
const MAX_PART: usize = 120;

/// A fleet as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct FleetView {
    /// True if its router runs and was asked; else the cases are those of the database, and agents are not known.
    router: bool,
    #[serde(flatten)]
    fleet: FleetStatus,
}

/// Shows the fleet, once or whenever it has changed.
pub(super) async fn show_fleet(
    context: &Context,
    config: &Config,
    args: FleetStatusArgs,
) -> Result<(), Failure> {
    if args.watch {
        return watch_fleet(context, config, Duration::from_secs(args.every)).await;
    }
    let view = read_view(context, config).await?;
    context.out.print_either(&view, describe_view)
}

/// Asks the router, or reads the database if none runs.
async fn read_view(context: &Context, config: &Config) -> Result<FleetView, Failure> {
    if let Some(mut client) = EngineClient::connect(context).await? {
        match client.ask::<methods::FleetStatus>(&NoParams {}).await {
            Ok(fleet) => return Ok(FleetView { router: true, fleet }),
            // It went away between two questions, or has no router.
            Err(failure) if failure.has_code("fleet.none") || failure.has_code("client.gone") => {}
            Err(failure) => return Err(failure),
        }
    }
    let store = open_to_read(context, config)?;
    let cases = read_status(&store).await.map_err(|error| case_failure(&error))?;
    Ok(FleetView { router: false, fleet: FleetStatus { cases, ..FleetStatus::default() } })
}

/// Shows the fleet again when it has changed. The connection is closed in between, so that watching does not keep an engine
/// from ending.
async fn watch_fleet(context: &Context, config: &Config, every: Duration) -> Result<(), Failure> {
    let terminal = context.host.streams.output.is_terminal();
    let mut shown = None;
    loop {
        let view = read_view(context, config).await?;
        // Only changes are shown, so that a file of lines does not grow while nothing happens.
        if shown.as_ref() != Some(&view) {
            if context.out.json {
                context.out.json_line(&view)?;
            } else if terminal {
                // Asked each time, since a person may change the size of the window meanwhile.
                let lines = terminal_size().map_or(USUAL_LINES, |(_, height)| usize::from(height.0));
                context.out.print_bytes(draw_over(&describe_view(&view), lines).as_bytes())?;
            } else {
                context.out.print_line(format!("{}\n", describe_view(&view).join("\n")))?;
            }
            shown = Some(view);
        }
        tokio::time::sleep(every).await;
    }
}

/// Draws lines over those of before, from the top. What does not fit is counted: a screen that scrolls cannot be drawn over.
fn draw_over(lines: &[String], height: usize) -> String {
    // One line for what is left out, and one for the cursor.
    let room = height.saturating_sub(2).max(1);
    let mut drawn = String::from("\u{1b}[H");
    for line in lines.iter().take(room) {
        // The rest of the line is erased after it is written, so that nothing flickers.
        let _ = writeln!(drawn, "{line}\u{1b}[K");
    }
    if lines.len() > room {
        let _ = writeln!(drawn, "and {} lines more\u{1b}[K", lines.len() - room);
    }
    // Erases the rest of an earlier, longer list.
    drawn.push_str("\u{1b}[J");
    drawn
}

/// The name or reason of someone else, in one line and not too long.
fn part(text: &str) -> String {
    let line = escape_line(text);
    match line.char_indices().nth(MAX_PART) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

fn describe_view(view: &FleetView) -> Vec<String> {
    let FleetStatus { agents, cases, open, anomalies } = &view.fleet;
    // The router counts them all; the database is read as far as it is shown.
    let (all, waiting) = if view.router {
        let waiting = open.iter().filter(|one| one.state == QUEUED).map(|one| one.count).sum();
        (open.iter().map(|one| one.count).sum::<u64>(), waiting)
    } else {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        (count(cases.len()), count(cases.iter().filter(|case| case.state == QUEUED).count()))
    };
    let router = if view.router { "running" } else { "not running: what the database has" };
    let mut lines = vec![
        format!("router     {router}"),
        format!(
            "cases      {all} open, {waiting} {} for a person",
            if waiting == 1 { "waits" } else { "wait" }
        ),
    ];
    // The cases come last: there may be many, and the screen ends somewhere.
    lines.extend(agents.iter().map(describe_agent));
    lines.extend(anomalies.iter().take(MAX_ANOMALIES).map(describe_anomaly));
    lines.extend(cases.iter().map(describe_case));
    lines
}

fn describe_agent(agent: &AgentStatus) -> String {
    let version = agent.version.as_ref().map_or_else(String::new, |version| format!(" {}", part(version)));
    let roles = agent.roles.iter().map(|role| part(role)).collect::<Vec<_>>().join(", ");
    let roles = if roles.is_empty() { roles } else { format!("; roles: {roles}") };
    format!(
        "agent      {}{version}: {} of {} cases; {} requests a minute, {} refused, {} tokens{roles}",
        part(&agent.name),
        agent.cases,
        agent.max_cases,
        agent.requests_per_minute,
        agent.refused,
        agent.tokens,
    )
}

fn describe_anomaly(seen: &SeenAnomaly) -> String {
    format!(
        "anomaly    {} {} in {}: {} ({}), {}",
        seen.at,
        part(&seen.agent),
        part(&seen.case),
        part(&seen.rule),
        part(&seen.evidence),
        part(&seen.reaction),
    )
}

fn describe_case(case: &CaseStatus) -> String {
    let holder = match (&case.holder, &case.since) {
        (Some(holder), Some(since)) => format!("{} since {since}", part(holder)),
        (_, _) => "no one".to_owned(),
    };
    let number = |count: Option<u64>, what: &str| count.map(|count| format!(", {count} {what}"));
    let traffic = [
        number(case.requests_per_minute, "requests a minute"),
        number(case.refused, "refused"),
        number(case.tokens, "tokens"),
    ];
    format!(
        "{} {:<16} {:<12} {holder}{}; {}",
        case.case,
        part(&case.state),
        part(&case.capability),
        traffic.into_iter().flatten().collect::<String>(),
        part(&case.reason),
    )
}

#[cfg(test)]
mod tests {
    use writ_types::api::fleet::{AgentTotals, StateCount};
    use writ_types::id::SessionId;
    use writ_types::unit::Timestamp;

    use super::*;

    fn case(state: &str, holder: Option<&str>, reason: &str) -> CaseStatus {
        CaseStatus {
            case: SessionId::from_parts(Timestamp::from_millis(0), 1),
            case_token: "case_tk_1".into(),
            capability: "refund".into(),
            state: state.into(),
            holder: holder.map(str::to_owned),
            since: holder.map(|_| Timestamp::from_millis(0)),
            reason: reason.into(),
            requests_per_minute: Some(12),
            refused: Some(3),
            tokens: Some(1_240),
        }
    }

    fn agent(name: &str, cases: u64) -> AgentStatus {
        AgentStatus {
            name: name.into(),
            roles: vec!["manager".into()],
            version: Some("2".into()),
            cases,
            max_cases: 4,
            requests_per_minute: 12,
            refused: 3,
            tokens: 1_240,
            since_start: AgentTotals::default(),
        }
    }

    /// Rows: SLO-059 (in part: two agents with their tasks, rates, tokens and refusals; an ended task is gone) SLO-060 (in part: what is shown)
    #[test]
    fn agents_cases_and_anomalies_are_shown_with_their_numbers() {
        let count = |(state, count): (&str, u64)| StateCount { state: state.into(), count };
        let seen = SeenAnomaly {
            at: Timestamp::from_millis(0),
            agent: "bad-agent".into(),
            case: "case_tk_9".into(),
            rule: "refused > 5 in 1 min then revoke".into(),
            reaction: "revoke".into(),
            evidence: "6 refused".into(),
        };
        let fleet = FleetStatus {
            agents: vec![agent("refund-agent", 1), agent("manager-agent", 0)],
            cases: vec![
                case("held", Some("refund-agent"), "first choice"),
                case("queued", None, "over the limit"),
            ],
            open: [("held", 1), ("queued", 1)].map(count).into(),
            anomalies: vec![seen],
        };
        let view = FleetView { router: true, fleet };
        let text = describe_view(&view).join("\n");
        for line in [
            "cases      2 open, 1 waits for a person",
            "agent      refund-agent 2: 1 of 4 cases; 12 requests a minute, 3 refused, 1240 tokens; roles: manager",
            "agent      manager-agent 2: 0 of 4 cases; 12 requests a minute, 3 refused, 1240 tokens; roles: manager",
            "anomaly    1970-01-01T00:00:00.000Z bad-agent in case_tk_9: refused > 5 in 1 min then revoke (6 refused), revoke",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("held             refund       refund-agent since 1970"), "{text}");
        assert!(text.contains("queued           refund       no one, 12 requests a minute"), "{text}");
        let without = FleetView { router: true, fleet: FleetStatus { cases: Vec::new(), ..view.fleet } };
        assert!(!describe_view(&without).join("\n").contains("first choice"), "an ended case is gone");
        let json = serde_json::to_value(&without).expect("written");
        assert_eq!((&json["router"], &json["agents"][0]["tokens"]), (&true.into(), &1_240.into()));
    }

    #[test]
    fn texts_of_agents_are_one_bounded_line_each_and_move_nothing() {
        let hostile = format!("\u{1b}[2Jgone\nagent      forged{}\u{202e}", "x".repeat(10_000));
        let line = describe_case(&case("queued", None, &hostile));
        assert!(!line.contains(['\u{1b}', '\n', '\u{202e}']), "{line}");
        assert!(line.chars().count() < 400, "{}", line.len());
    }

    #[test]
    fn a_screen_is_drawn_over_and_never_scrolls() {
        let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        let drawn = draw_over(&lines, 24);
        assert_eq!(drawn.matches('\n').count(), 23, "one line stays free for the cursor");
        assert!(
            drawn.starts_with("\u{1b}[H") && drawn.ends_with("and 78 lines more\u{1b}[K\n\u{1b}[J"),
            "{drawn:?}"
        );
        assert!(draw_over(&lines[..3], 24).contains("line 2\u{1b}[K\n\u{1b}[J"));
    }
}
