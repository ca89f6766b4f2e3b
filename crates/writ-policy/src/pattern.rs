//! Patterns: the parts of an action that one approval for the task covers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use writ_types::action::{Action, ActionKind, Exec, Place};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::frame::{Pattern, TaskOffer};
use writ_types::taint::Taint;

use crate::reasons::TAINT_RULE;
use writ_inspect::egress::EgressScope;
use writ_inspect::prepared::Prepared;
use writ_inspect::{reach, show};

/// The most uses of an approval for the task, the first included: as many as a person can still have in mind.
pub const MAX_TASK_USES: u32 = 20;
/// The lifetime of an approval for the task. Later requests are asked about again.
pub const TASK_APPROVAL_TTL: Duration = Duration::from_secs(60 * 60);

/// Separates patterns from everything else that is hashed here.
const DOMAIN: &str = "writ approval pattern v1";

/// Derives the pattern of an action that `asking` rules ask about under the rules with digest `policy`.
/// Returns `None` if each such action is asked about alone.
pub fn pattern_of(
    prepared: &Prepared,
    policy: Digest,
    asking: &BTreeSet<String>,
    egress: &EgressScope,
) -> Option<Pattern> {
    let parameters = pattern_parameters(&prepared.action, egress)?;
    let (mut taint, mut rules) = (prepared.label.taint, asking.clone());
    if prepared.action.kind() == ActionKind::Exec {
        // The very same command: what has been read meanwhile, its own output first of all, is in none of its words.
        // The pattern is the command itself, which no external content has changed, so its label does not
        // matter.
        taint = Taint::External;
        rules.remove(TAINT_RULE);
    }
    Some(Pattern {
        agent: prepared.agent.clone(),
        session: Some(prepared.session?),
        tool: prepared.tool.clone(),
        action: prepared.action.kind().as_str().to_owned(),
        parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        taint,
        rules,
        policy,
    })
}

/// Hashes a pattern; the claims of an approval hold this hash.
///
/// # Errors
///
/// If it has no canonical form.
pub fn pattern_digest(pattern: &Pattern) -> Result<Digest, NotCanonical> {
    Digest::of_canonical(&(DOMAIN, pattern))
}

/// Describes the actions that a pattern covers, in words that hide nothing.
pub fn describe_pattern(pattern: &Pattern) -> String {
    let named = |name: &str| show::quote_argument(pattern.parameters.get(name).map_or("", String::as_str));
    let covered = match pattern.action.as_str() {
        "write_file" => {
            format!("all further changes of this session in {}, not shown before", named(PROJECT))
        }
        "exec" => {
            let input =
                pattern.parameters.get(INPUT).map(|digest| format!(", with the same input ({digest})"));
            let hosts = match pattern.parameters.get(HOSTS) {
                Some(hosts) => format!("; it reaches {}", show::quote_argument(hosts)),
                None => String::new(),
            };
            let run = pattern.parameters.get(RUN).map_or("", String::as_str);
            let input = input.unwrap_or_default();
            format!(
                "the same command again, regardless of what was read before and of the files that it uses: {run}{input}{hosts}"
            )
        }
        other => format!("{} with {:?}", show::quote_argument(other), pattern.parameters),
    };
    format!("{covered} (tool {})", show::quote_argument(&pattern.tool))
}

/// Describes the consequence of an approval for the task, in words that hide nothing. It is the same in every
/// program, since it is made from the signed content.
pub fn describe_consequence(offer: &TaskOffer) -> String {
    format!(
        "It is done, and so is, without asking: {}. In this conversation alone, {} times in all, for {} minutes.",
        describe_pattern(&offer.pattern),
        offer.uses,
        offer.secs.min(TASK_APPROVAL_TTL.as_secs()) / 60,
    )
}

const PROJECT: &str = "project";
const RUN: &str = "run";
const INPUT: &str = "input";
const HOSTS: &str = "hosts";

type Parameters = BTreeMap<&'static str, String>;

fn pattern_parameters(action: &Action, egress: &EgressScope) -> Option<Parameters> {
    if let Action::WriteFile(write) = action
        && write.place == Place::Project
        && write.content.is_none()
    {
        // A diff is applied as a whole, and the pattern is its folder.
        return Some([(PROJECT, write.root.clone())].into());
    }
    if let Action::Exec(exec) = action
        && !reach::is_asked_each_time(exec, egress)
    {
        return of_exec(exec);
    }
    // Nothing else has a pattern. What stays inside or is granted for the whole session asks only once anyway. What changes the
    // agent or reaches others is read each time, and so are URLs and queries: they can carry out what the agent has read.
    None
}

/// The same command: only how long it may take can be another.
fn of_exec(exec: &Exec) -> Option<Parameters> {
    // Everything but the time limit: the model may guess another one for the same command.
    let given = (&exec.argv, &exec.cwd, &exec.env, exec.profile, &exec.stdin, &exec.hosts);
    let all = Digest::of_canonical(&given).ok()?;
    let argv: Vec<String> = exec.argv.iter().map(|argument| show::quote_argument(argument)).collect();
    let mut parameters: Parameters = [(RUN, argv.join(" ")), ("in full", all.to_string())].into();
    if let Some(input) = &exec.stdin {
        parameters.insert(INPUT, Digest::of_bytes(input.as_bytes()).to_string());
    }
    if !exec.hosts.is_empty() {
        parameters.insert(HOSTS, exec.hosts.join(", "));
    }
    Some(parameters)
}

pub mod standing;

#[cfg(test)]
mod tests;
