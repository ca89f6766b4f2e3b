//! A prepared action: exactly what would run, in a form that can be hashed, shown and approved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use writ_types::action::{Action, Exec};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::id::{SessionId, TurnId};
use writ_types::taint::Label;

/// An argument that says who, where or what is touched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sink {
    /// The argument's name, as the tool declares it.
    pub argument: String,
    /// Its final value.
    pub value: String,
}

/// An action after its performer has resolved it: final argv, canonical paths, digests, sinks.
///
/// Serialisable, so that an ask survives a restart. Its [`hash`](Self::hash) covers everything that decides
/// its effect, and if it may be repeated; the turn, the model's call id and the sources are left out, so that
/// equal requests of one session are one ask. The intent is part of the shown text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The action.
    pub action: Action,
    /// The requesting agent.
    pub agent: String,
    /// The session that it belongs to.
    pub session: Option<SessionId>,
    /// The turn that requested it.
    pub turn: Option<TurnId>,
    /// The number of that turn.
    pub turn_number: u64,
    /// The model's call that requested it.
    pub call: Option<String>,
    /// The tool that made it, or the harness's word for its own actions.
    pub tool: String,
    /// The arguments that say who, where, what is touched.
    pub sinks: Vec<Sink>,
    /// The label of its arguments.
    pub label: Label,
    /// Digests of what is executed or read: executable, script, inputs, by name.
    pub bindings: BTreeMap<String, Digest>,
    /// Performing it twice has the effect of performing it once.
    pub idempotent: bool,
    /// Its purpose, in one line, for people.
    pub intent: String,
}

/// The content of the hash of a prepared action.
#[derive(Serialize)]
struct Canonical<'a> {
    v: u8,
    action: &'a Action,
    agent: &'a str,
    session: Option<SessionId>,
    tool: &'a str,
    sinks: &'a [Sink],
    taint: &'a str,
    bindings: &'a BTreeMap<String, Digest>,
    idempotent: bool,
    policy: Digest,
}

impl Prepared {
    /// The hash that approvals, asks and intents name, under the rules with digest `policy`.
    ///
    /// # Errors
    ///
    /// If a value in the action has no canonical form.
    pub fn hash(&self, policy: Digest) -> Result<Digest, NotCanonical> {
        Digest::of_canonical(&Canonical {
            // A version, so that a later form cannot have the hash of an older one.
            v: 1,
            action: &self.action,
            agent: &self.agent,
            session: self.session,
            tool: &self.tool,
            sinks: &self.sinks,
            // Of the label only the taint: other parts of it may grow between the question and the answer.
            taint: self.label.taint.as_str(),
            bindings: &self.bindings,
            idempotent: self.idempotent,
            // With the rules, so that an approval under other rules is no approval.
            policy,
        })
    }
}

/// Hashes the part that two attempts of the same action share, under any labels, rules and settings of a
/// tool. The time limit of a program is no part of it.
///
/// # Errors
///
/// If a value in the action has no canonical form.
pub fn request_digest(action: &Action) -> Result<Digest, NotCanonical> {
    if let Action::Exec(exec) = action {
        // The model may guess another time limit for the same request, which is no other request.
        return Digest::of_canonical(&Action::Exec(Exec { timeout_ms: 0, ..exec.clone() }));
    }
    if let Action::CallTool(call) = action {
        // Declarations of the owner may change between two attempts: the call itself is what is repeated.
        return Digest::of_canonical(&(&call.server, &call.tool, &call.arguments));
    }
    Digest::of_canonical(action)
}

/// Returns true if an action leaves no trace that a second attempt would double, so that an attempt without
/// an outcome can be repeated.
pub const fn leaves_nothing(action: &Action) -> bool {
    // The owner's file says if a tool changes something; without an entry it does.
    if let Action::CallTool(call) = action { !call.effect } else { action.kind().row().is_repeatable }
}

#[cfg(test)]
mod tests {
    use writ_types::action::CallTool;
    use writ_types::entry::Risk;

    use super::*;
    use crate::fixture::{call_tool, exec, fetch};

    /// The digest stays the same if only the owner's description of a tool, a label or the time limit changes; other arguments
    /// change it.
    #[test]
    fn a_request_is_the_same_if_only_labels_and_limits_differ() {
        let same = |one: &Action, other: &Action| {
            request_digest(one).expect("canonical") == request_digest(other).expect("canonical")
        };
        let call = |change: fn(&mut CallTool)| {
            let mut call = call_tool();
            change(&mut call);
            Action::CallTool(call)
        };
        let plain = call(|_| {});
        let words: [fn(&mut CallTool); 6] = [
            |call| call.declared = !call.declared,
            |call| call.risk = Risk::Irreversible,
            |call| call.whom.push("to".into()),
            |call| call.named.push("id".into()),
            |call| call.sends = !call.sends,
            |call| call.host = Some("elsewhere.example".into()),
        ];
        assert!(words.into_iter().all(|change| same(&plain, &call(change))));
        let others: [fn(&mut CallTool); 3] = [
            |call| call.tool.push('x'),
            |call| call.server.push('x'),
            |call| call.arguments = serde_json::json!({ "id": "another" }),
        ];
        assert!(others.into_iter().all(|change| !same(&plain, &call(change))));
        let longer = Action::Exec(Exec { timeout_ms: 7, ..exec() });
        assert!(same(&Action::Exec(exec()), &longer));
        let other = Action::Exec(Exec { argv: vec!["true".into(), "x".into()], ..exec() });
        assert!(!same(&Action::Exec(exec()), &other));
        assert!(!same(
            &Action::Fetch(fetch("https://a.example/")),
            &Action::Fetch(fetch("https://b.example/"))
        ));
    }
}
