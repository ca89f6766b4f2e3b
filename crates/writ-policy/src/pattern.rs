//! What actions have in common that one approval for the task covers.

use std::collections::BTreeMap;
use std::time::Duration;

use writ_types::action::{Action, Exec, Fetch, Place};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::entry::Risk;
use writ_types::frame::{Pattern, TaskOffer};

use crate::prepared::Prepared;
use crate::scope::host_of;
use crate::show;

/// How often an approval for the task is good, what was asked about included: as often as a person may still have an
/// idea of what they have allowed.
pub const MAX_TASK_USES: u32 = 20;
/// How long an approval for the task is good: what is wished later is asked about again.
pub const TASK_APPROVAL_TTL: Duration = Duration::from_secs(60 * 60);

/// Separates patterns from everything else that is hashed here.
const DOMAIN: &str = "writ approval pattern v1";

/// The pattern of an action under the rules with digest `policy`; `None`: each one is asked about by itself.
pub fn of(prepared: &Prepared, policy: Digest) -> Option<Pattern> {
    if show::risk(&prepared.action) == Risk::Irreversible {
        return None;
    }
    let parameters = parameters(&prepared.action)?;
    Some(Pattern {
        agent: prepared.agent.clone(),
        session: prepared.session?,
        tool: prepared.tool.clone(),
        action: prepared.action.kind().as_str().to_owned(),
        parameters: parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        taint: prepared.label.taint,
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
        "fetch" => {
            let saved = match pattern.parameters.get(SAVED) {
                Some(path) => format!(", saved to {}", show::argument(path)),
                None => String::new(),
            };
            format!("{} from any address at {}{saved}", named(METHOD), named(ORIGIN))
        }
        "search" => format!("any search with {} at {}", named(PROVIDER), named(HOST)),
        "exec" => format!("the same command again ({})", named(RUN)),
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
const METHOD: &str = "method";
const ORIGIN: &str = "origin";
const SAVED: &str = "saved to";
const PROVIDER: &str = "provider";
const HOST: &str = "host";
const RUN: &str = "run";

type Parameters = BTreeMap<&'static str, String>;

fn parameters(action: &Action) -> Option<Parameters> {
    match action {
        Action::WriteFile(write) if write.place == Place::Project && write.content.is_none() => {
            Some([(PROJECT, write.root.clone())].into())
        }
        Action::Fetch(fetch) => of_fetch(fetch),
        Action::Search(search) => {
            Some([(PROVIDER, search.provider.clone()), (HOST, search.host.clone())].into())
        }
        Action::Exec(exec) => of_exec(exec),
        // What stays inside or is granted for the whole session asks no second time; what changes the agent or
        // reaches others is read each time.
        Action::WriteFile(_)
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
        | Action::Connect(_) => None,
    }
}

/// Reading from one place. What sends a body is read each time.
fn of_fetch(fetch: &Fetch) -> Option<Parameters> {
    let reads = matches!(fetch.method.as_str(), "GET" | "HEAD") && fetch.body.is_none() && !fetch.large;
    if !reads || host_of(&fetch.url) == fetch.url {
        return None;
    }
    let (scheme, rest) = fetch.url.split_once("://")?;
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
    let origin = format!("{scheme}://{authority}").to_ascii_lowercase();
    let saved = fetch.save_to.iter().map(|path| (SAVED, path.clone()));
    Some([(METHOD, fetch.method.clone()), (ORIGIN, origin)].into_iter().chain(saved).collect())
}

/// The same command: only how long it may take can be another.
fn of_exec(exec: &Exec) -> Option<Parameters> {
    let given = (&exec.argv, &exec.cwd, &exec.env, &exec.stdin, &exec.hosts);
    let all = Digest::of_canonical(&given).ok()?;
    let argv: Vec<String> = exec.argv.iter().map(|argument| show::argument(argument)).collect();
    Some([(RUN, argv.join(" ")), ("in full", all.to_string())].into())
}

#[cfg(test)]
mod tests;
