//! What actions have in common that one approval for the task covers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use writ_types::action::{Action, ActionKind, Exec, Place};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::frame::{Pattern, TaskOffer};
use writ_types::taint::Taint;

use crate::door::TAINT_RULE;
use crate::egress::EgressScope;
use crate::prepared::Prepared;
use crate::{reach, show};

/// How often an approval for the task is good, what was asked about included: as often as a person may still have an
/// idea of what they have allowed.
pub const MAX_TASK_USES: u32 = 20;
/// How long an approval for the task is good: what is wished later is asked about again.
pub const TASK_APPROVAL_TTL: Duration = Duration::from_secs(60 * 60);

/// Separates patterns from everything else that is hashed here.
const DOMAIN: &str = "writ approval pattern v1";

/// The pattern of an action that `asking` rules ask about under the rules with digest `policy`; `None`: each one is
/// asked about by itself.
pub fn of(
    prepared: &Prepared,
    policy: Digest,
    asking: &BTreeSet<String>,
    egress: &EgressScope,
) -> Option<Pattern> {
    let parameters = parameters(&prepared.action, egress)?;
    let (mut taint, mut rules) = (prepared.label.taint, asking.clone());
    if prepared.action.kind() == ActionKind::Exec {
        // The very same command: what has been read meanwhile, its own output first of all, is in none of its words.
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

/// What an approval's claims name: everything that a pattern says.
///
/// # Errors
///
/// If it has no canonical form.
pub fn digest(pattern: &Pattern) -> Result<Digest, NotCanonical> {
    Digest::of_canonical(&(DOMAIN, pattern))
}

/// What a pattern covers, in words that hide nothing.
pub fn words(pattern: &Pattern) -> String {
    let named = |name: &str| show::argument(pattern.parameters.get(name).map_or("", String::as_str));
    let covered = match pattern.action.as_str() {
        "write_file" => format!("whatever else this session changes in {}, not shown before", named(PROJECT)),
        "exec" => {
            let input =
                pattern.parameters.get(INPUT).map(|digest| format!(", with the same input ({digest})"));
            let hosts = match pattern.parameters.get(HOSTS) {
                Some(hosts) => format!("; it reaches {}", show::argument(hosts)),
                None => String::new(),
            };
            let run = pattern.parameters.get(RUN).map_or("", String::as_str);
            let input = input.unwrap_or_default();
            format!(
                "the same command again, whatever was read before and is in the files that it uses: {run}{input}{hosts}"
            )
        }
        other => format!("{} with {:?}", show::argument(other), pattern.parameters),
    };
    format!("{covered} (tool {})", show::argument(&pattern.tool))
}

/// What an approval for the task leads to, in words that hide nothing: the same in every program, since they are made
/// from what is signed.
pub fn consequence(offer: &TaskOffer) -> String {
    format!(
        "It is done, and so is, without asking: {}. In this conversation alone, {} times in all, for {} minutes.",
        words(&offer.pattern),
        offer.uses,
        offer.secs.min(TASK_APPROVAL_TTL.as_secs()) / 60,
    )
}

const PROJECT: &str = "project";
const RUN: &str = "run";
const INPUT: &str = "input";
const HOSTS: &str = "hosts";

type Parameters = BTreeMap<&'static str, String>;

fn parameters(action: &Action, egress: &EgressScope) -> Option<Parameters> {
    match action {
        Action::WriteFile(write) if write.place == Place::Project && write.content.is_none() => {
            Some([(PROJECT, write.root.clone())].into())
        }
        Action::Exec(exec) if !reach::is_asked_each_time(exec, egress) => of_exec(exec),
        // What stays inside or is granted for the whole session asks no second time; what changes the agent or
        // reaches others is read each time. So is what is fetched or searched for: words of its own carry out what the
        // agent has read.
        Action::WriteFile(_)
        | Action::Exec(_)
        | Action::Fetch(_)
        | Action::Search(_)
        | Action::ReadFile(_)
        | Action::Browse(_)
        | Action::Recall(_)
        | Action::Remember(_)
        | Action::Forget(_)
        | Action::Say(_)
        | Action::SendFile(_)
        | Action::CallTool(_)
        | Action::CreateTool(_)
        | Action::InstallSkill(_)
        | Action::Docker(_)
        | Action::Subscribe(_)
        | Action::Message(_)
        | Action::Handoff(_)
        | Action::Spawn(_)
        | Action::Escalate(_)
        | Action::ModelCall(_)
        | Action::Vcs(_)
        | Action::ModifySelf(_)
        | Action::Operate(_)
        | Action::Connect(_)
        | Action::Plan(_) => None,
    }
}

/// The same command: only how long it may take can be another.
fn of_exec(exec: &Exec) -> Option<Parameters> {
    let given = (&exec.argv, &exec.cwd, &exec.env, exec.profile, &exec.stdin, &exec.hosts);
    let all = Digest::of_canonical(&given).ok()?;
    let argv: Vec<String> = exec.argv.iter().map(|argument| show::argument(argument)).collect();
    let mut parameters: Parameters = [(RUN, argv.join(" ")), ("in full", all.to_string())].into();
    if let Some(input) = &exec.stdin {
        parameters.insert(INPUT, Digest::of(input.as_bytes()).to_string());
    }
    if !exec.hosts.is_empty() {
        parameters.insert(HOSTS, exec.hosts.join(", "));
    }
    Some(parameters)
}

pub mod standing;

#[cfg(test)]
mod tests;
