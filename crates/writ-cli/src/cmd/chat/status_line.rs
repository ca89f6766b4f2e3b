//! The line after each turn of a conversation: the model, how full its window is, the cost, and what waits.

use writ_inspect::show::escape_line;
use writ_runtime::methods::{SessionsShow, SessionsUsage};
use writ_types::api::session::{SessionName, TurnUsage};
use writ_types::id::SessionId;
use writ_types::unit::MicroUsd;

use crate::client::EngineClient;
use crate::cmd::sessions::dollars;
use crate::context::Context;
use crate::failure::Failure;

/// Asks the engine for the line, over a connection of its own; `None`: no model was asked yet.
///
/// # Errors
///
/// If the engine cannot be asked.
pub(super) async fn read_status_line(
    context: &Context,
    session: SessionId,
    open: usize,
) -> Result<Option<String>, Failure> {
    let mut client = EngineClient::ensure(context).await?;
    let used = client.ask::<SessionsUsage>(&SessionName { session }).await?;
    let details = client.ask::<SessionsShow>(&SessionName { session }).await?;
    let agent = details.summary.agent.as_deref();
    Ok(used.turns.first().map(|turn| line(turn, details.summary.cost, agent, open)))
}

fn line(turn: &TurnUsage, total: MicroUsd, agent: Option<&str>, open: usize) -> String {
    let agent = agent.map(|name| format!("{} on ", escape_line(name))).unwrap_or_default();
    let context = match turn.window.map(|window| window.get()).filter(|window| *window > 0) {
        Some(window) => {
            let share = u128::from(turn.context.get()).saturating_mul(100) / u128::from(window);
            format!("context {share} % of {}", thousands(window))
        }
        None => format!("context {} tokens", thousands(turn.context.get())),
    };
    let cost = format!("{} this turn, {} in all", dollars(turn.cost), dollars(total));
    let waits = match open {
        0 => String::new(),
        1 => " \u{b7} 1 question waits".to_owned(),
        open => format!(" \u{b7} {open} questions wait"),
    };
    format!("{agent}{} \u{b7} {context} \u{b7} {cost}{waits}", escape_line(&turn.model))
}

/// A number of tokens in thousands where it has some.
fn thousands(tokens: u64) -> String {
    if tokens >= 10_000 { format!("{}k", tokens / 1_000) } else { tokens.to_string() }
}

#[cfg(test)]
mod tests {
    use writ_types::chat::Usage;
    use writ_types::id::TurnId;
    use writ_types::unit::{Timestamp, Tokens};

    use super::*;

    #[test]
    fn the_line_says_model_window_cost_and_what_waits() {
        let turn = |window| TurnUsage {
            turn: TurnId::from_parts(Timestamp::from_millis(0), 1),
            number: 1,
            model: "local/small".to_owned(),
            usage: Usage::default(),
            cost: MicroUsd::new(1_200),
            calls: 1,
            context: Tokens::new(24_000),
            window,
        };
        assert_eq!(
            line(&turn(Some(Tokens::new(200_000))), MicroUsd::new(20_000), Some("reader"), 2),
            "reader on local/small \u{b7} context 12 % of 200k \u{b7} $0.001200 this turn, $0.02 in all \u{b7} 2 questions wait"
        );
        let unknown = line(&turn(None), MicroUsd::ZERO, None, 0);
        assert_eq!(unknown, "local/small \u{b7} context 24k tokens \u{b7} $0.001200 this turn, $0.00 in all");
    }
}
