//! The changes of a case, each as one commit, and the choice of the next holder.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Duration;

use writ_policy::keys::ROUTER;
use writ_runtime::case_keys::{AgentBase, CaseKey, CaseKeys};
use writ_store::batch::Op;
use writ_store::fleet::{FleetHolder, FleetOp, HolderKeys, MAX_CASE_MESSAGE_BYTES};
use writ_types::digest::Digest;
use writ_types::entry::{CaseChange, CaseRecord, Fact, HolderRecord};
use writ_types::id::SessionId;
use writ_types::unit::Timestamp;

use super::choice::AgentChoice;
use super::config::{DEPLOY_WAIT, FleetAgent, RENEW_BEFORE, UNKNOWN_WAIT};
use super::error::CaseError;
use super::live::LiveCase;
use super::machine::{CaseEvent, CaseFault, CaseHolder, CaseState, LossCause};
use super::ports::StartFault;
use super::router::{CaseRouter, MAX_NAME_BYTES, check_text, encode_state};
use super::state::StoredState;
use super::ways::{note_last_ways, note_ways_out};
use crate::anomalies::{Anomaly, Measure, Reaction};

#[derive(Clone, Debug)]
pub(crate) struct CaseMove {
    pub(crate) change: CaseChange,
    pub(crate) reason: String,
    pub(crate) target: String,
    pub(crate) minted: Vec<Op>,
    pub(crate) key_ends: Option<Timestamp>,
}

impl CaseMove {
    pub(crate) const fn new(change: CaseChange, reason: String) -> Self {
        Self { change, reason, target: String::new(), minted: Vec::new(), key_ends: None }
    }

    /// Returns the entry of the ledger, with the holder that leaves and the one that begins.
    pub(crate) fn entry(
        &self,
        keys: &CaseKeys,
        live: &LiveCase,
        (ended, began): (Option<HolderRecord>, Option<HolderRecord>),
    ) -> Op {
        // One entry has the keys of both sides of a handover, even if no agent held the case in between.
        let earlier = if began.is_some() && ended.is_none() { live.earlier.clone() } else { None };
        let record = CaseRecord {
            case: live.row.case_token.clone(),
            customer: live.row.customer_token.clone(),
            change: self.change,
            router: ROUTER.to_owned(),
            ended,
            began,
            earlier,
            reader: None,
            target: self.target.clone(),
            reason: self.reason.clone(),
        };
        keys.entry(live.row.id, Fact::CaseMoved { record: Box::new(record) })
    }
}

impl CaseRouter {
    /// Changes a case: the step of its machine, the revocation of the key that ends, the holders' rows, the entry and the
    /// state are one commit. The process of a holder that leaves is ended after it.
    pub(crate) async fn advance_case(
        &self,
        live: &mut LiveCase,
        event: CaseEvent,
        note: CaseMove,
        began: Option<HolderRecord>,
    ) -> Result<(), CaseError> {
        let keys = &self.0.keys;
        let (id, now) = (live.row.id, keys.now());
        let step = live.machine.apply_event(event)?;
        // The machine does not know the hashes of the keys, so the record comes from here.
        let ended = step.ended.as_ref().and(live.holder.clone());
        let mut ops = Vec::new();
        if let Some(holder) = &step.ended {
            if let CaseHolder::Agent { key, .. } = holder {
                ops.extend(keys.revocation_of(id, (*key, live.key_ends.unwrap_or(now)), &note.reason));
            }
            ops.push(Op::Fleet(FleetOp::EndHolder { id, at: now }));
        }
        ops.push(note.entry(keys, live, (ended.clone(), began.clone())));
        ops.extend(note.minted);
        if let Some(record) = &began {
            let holder = FleetHolder {
                holder: record.name.clone(),
                keys: holder_keys(record, note.key_ends),
                since: now,
                until: None,
            };
            ops.push(Op::Fleet(FleetOp::BeginHolder { id, holder }));
        }
        // The next entry names the earlier holder too, also if the case waits in between.
        let earlier = ended.or_else(|| live.earlier.clone());
        let state = encode_state(&StoredState::new(&step.next, earlier.clone(), note.reason.clone()))?;
        let is_open = *step.next.state() != CaseState::Closed;
        // If another change came first, the commit is refused, and nothing of this one is written.
        let version = live.row.version;
        ops.push(Op::Fleet(FleetOp::Change { id, version, state, is_open, at: now }));
        keys.commit(ops).await?;
        if let Some(CaseHolder::Agent { key, .. }) = &step.ended {
            self.0.tokens.revoke_keys(&[*key]);
        }
        // After the commit: a load that is counted for a change that failed would leave an agent idle.
        self.count_load(live.holder.as_ref(), began.as_ref());
        self.note_holder(&live.row.case_token, began.as_ref());
        let same_agent = matches!(
            (&step.ended, &step.began),
            (Some(CaseHolder::Agent { agent: before, .. }), Some(CaseHolder::Agent { agent: after, .. })) if before == after
        );
        if step.ended.is_some() && !same_agent {
            note_last_ways(keys, live).await;
            live.agent = None;
            if let Some(holder) = &live.holder {
                self.watch().forget_work(&live.row.case_token, &holder.name);
            }
        }
        live.row.version = version.saturating_add(1);
        live.row.changed_at = now;
        (live.machine, live.holder, live.earlier) = (step.next, began, earlier);
        (live.key_ends, live.reason) = (note.key_ends, note.reason);
        Ok(())
    }

    /// Takes a case from its agent and gives it to the next one.
    pub(crate) async fn lose_case(
        &self,
        live: &mut LiveCase,
        cause: LossCause,
        reason: &str,
    ) -> Result<(), CaseError> {
        let note = CaseMove::new(CaseChange::Rerouted, format!("{}: {reason}", cause.as_str()));
        self.advance_case(live, CaseEvent::Lose(cause), note, None).await?;
        self.place_case(live).await
    }

    /// Puts a case into the queue for people.
    pub(crate) async fn queue_case(&self, live: &mut LiveCase, reason: &str) -> Result<(), CaseError> {
        let note = CaseMove::new(CaseChange::Queued, reason.to_owned());
        live.owes_since = None;
        self.advance_case(live, CaseEvent::Queue, note, None).await
    }

    /// Gives a waiting case to the agent with the fewest cases, among those that may take it. If there is none, the case waits for
    /// a person.
    pub(crate) async fn place_case(&self, live: &mut LiveCase) -> Result<(), CaseError> {
        let target = match live.machine.state() {
            CaseState::Open => None,
            CaseState::Escalating { target } => target.clone(),
            CaseState::Held(_) | CaseState::Queued | CaseState::Closed => return Ok(()),
        };
        let (capability, lost) = (&live.row.capability, live.machine.lost());
        let chosen = self.choose_agent(capability, lost, target.as_deref()).await?;
        let (agent, base) = match chosen {
            AgentChoice::Free(free) => *free,
            // A new case waits until one of them has room. A case that an agent has given up goes to a person instead.
            AgentChoice::Full if matches!(live.machine.state(), CaseState::Open) => return Ok(()),
            AgentChoice::Full => return self.queue_unplaced(live, target.as_deref()).await,
            AgentChoice::None { patience } => {
                let now = self.0.keys.now();
                // Looked at again each second: the list of agents may be older than what is deployed.
                if now.time_since(*live.waits_since.get_or_insert(now)) < patience {
                    return Ok(());
                }
                live.waits_since = None;
                return self.queue_unplaced(live, target.as_deref()).await;
            }
        };
        live.waits_since = None;
        match self.assign_case(live, (&agent, &base), target.unwrap_or_default()).await {
            Err(CaseError::Fault(CaseFault::TooMany)) => {
                self.queue_case(live, "it went through too many hands").await
            }
            placed => placed,
        }
    }

    async fn queue_unplaced(&self, live: &mut LiveCase, target: Option<&str>) -> Result<(), CaseError> {
        let wanted = target.unwrap_or(live.row.capability.as_str());
        let reason = format!("no agent is free for {wanted}; {}", live.reason);
        self.queue_case(live, reason.trim_end_matches("; ")).await
    }

    /// Gives a case back to agents, with a note for the next one: to the agent or role that is named, else to any. This is
    /// also how a person approves what an agent has asked for.
    ///
    /// # Errors
    ///
    /// If there is no such case, no person holds it and it is in no queue, no agent can take it, or the ledger cannot be
    /// written.
    pub async fn hand_back(
        &self,
        id: SessionId,
        (person, target): (&str, Option<&str>),
        note: &str,
    ) -> Result<(), CaseError> {
        check_text("name of the person", person, MAX_NAME_BYTES)?;
        check_text("note", note, MAX_CASE_MESSAGE_BYTES)?;
        let note = &self.mask_for(id, note).await?;
        let mut live = self.locked(id).await?;
        let event = CaseEvent::HandBack { target: target.map(str::to_owned) };
        live.machine.apply_event(event.clone())?;
        // Checked before anything is written: if no agent can take the case, it stays with the person.
        match self.choose_agent(&live.row.capability, &BTreeSet::new(), target).await? {
            AgentChoice::Full | AgentChoice::None { patience: Duration::ZERO } => {
                return Err(CaseError::NoAgent(target.unwrap_or(&live.row.capability).to_owned()));
            }
            AgentChoice::Free(..) | AgentChoice::None { .. } => {}
        }
        let moved = CaseMove::new(CaseChange::HandedBack, format!("by {person}"));
        let moved = CaseMove { target: target.unwrap_or_default().to_owned(), ..moved };
        self.advance_case(&mut live, event, moved, None).await?;
        self.add_said(&live, &format!("person {person}"), note).await?;
        self.place_case(&mut live).await
    }

    async fn assign_case(
        &self,
        live: &mut LiveCase,
        (agent, base): (&FleetAgent, &AgentBase),
        target: String,
    ) -> Result<(), CaseError> {
        // Every holder gets the same tokens, so that messages of one holder mean the same to the next.
        let tokens = (live.row.customer_token.as_str(), live.row.case_token.as_str());
        let (key, minted) = self.0.keys.mint_case_key(base, live.row.id, tokens, "minted")?;
        let reason = match live.reason.is_empty() {
            true => format!("for {}", live.row.capability),
            false => live.reason.clone(),
        };
        let record = HolderRecord {
            name: key.agent.clone(),
            key: Some(key.key),
            base: Some(key.base_hash),
            task: Some(key.hash),
        };
        let note = CaseMove {
            change: CaseChange::Assigned,
            reason: reason.clone(),
            target,
            minted: minted.into(),
            key_ends: Some(key.expires_at),
        };
        let event = CaseEvent::Assign { agent: key.agent.clone(), key: key.key };
        self.advance_case(live, event, note, Some(record)).await?;
        match self.start_agent(live, (agent, base), &key, handed_reason(&reason)).await {
            Ok(()) => {
                live.owes_since = Some(self.0.keys.now());
                Ok(())
            }
            Err(fault) => {
                let is_replaced = fault == StartFault::Replaced;
                let cause = if is_replaced { LossCause::Deployed } else { LossCause::Crash };
                let reason = format!("{}: it did not start: {fault}", cause.as_str());
                let note = CaseMove::new(CaseChange::Rerouted, reason);
                self.advance_case(live, CaseEvent::Lose(cause), note, None).await?;
                // The case is placed by the next `look_after_cases`, which sees the new version of the agent.
                if is_replaced { Ok(()) } else { Box::pin(self.place_case(live)).await }
            }
        }
    }

    /// Chooses the agent for a case.
    pub(crate) async fn choose_agent(
        &self,
        capability: &str,
        lost: &BTreeSet<String>,
        target: Option<&str>,
    ) -> Result<AgentChoice, CaseError> {
        // A target that no agent is named by is a person: waiting for an agent would be for nothing.
        let [mut is_stale, mut is_known, mut is_busy] = [false, target.is_some(), false];
        let mut best: Option<(usize, FleetAgent, AgentBase)> = None;
        let agents = self.agents().all();
        for agent in agents.iter() {
            let meant =
                target.is_none_or(|name| name == agent.name || agent.roles.iter().any(|role| role == name));
            // Fewest cases first; of equals, the one that is configured first.
            let load = self.load_of(&agent.name);
            let better = best.as_ref().is_none_or(|(least, _, _)| load < *least);
            let (is_full, is_barred) = (load >= agent.max_cases, lost.contains(&agent.name));
            is_known |= meant && is_barred;
            if !meant || !better || is_barred || (is_full && is_busy) {
                continue;
            }
            let base = match self.0.keys.check_base(&agent.base).await {
                Ok(base) => base,
                // An agent without a base key in force gets no case; the others are still considered.
                Err(error) => {
                    tracing::warn!(%error, agent = %agent.name, "an agent of the fleet has no base key in force");
                    is_stale |= agent.folder.is_some();
                    continue;
                }
            };
            if base.agent() != agent.name || !base.has_capability(capability) {
                continue;
            }
            is_known = true;
            match is_full {
                true => is_busy = true,
                false => best = Some((load, agent.clone(), base)),
            }
        }
        Ok(match best {
            Some((_, agent, base)) => AgentChoice::Free(Box::new((agent, base))),
            None if is_busy => AgentChoice::Full,
            None if is_stale => AgentChoice::None { patience: DEPLOY_WAIT },
            None if is_known => AgentChoice::None { patience: Duration::ZERO },
            None => AgentChoice::None { patience: UNKNOWN_WAIT },
        })
    }

    fn load_of(&self, agent: &str) -> usize {
        let loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads.get(agent).copied().unwrap_or(0)
    }

    pub(super) fn count_load(&self, ended: Option<&HolderRecord>, began: Option<&HolderRecord>) {
        let mut loads = self.0.loads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = ended.filter(|holder| holder.key.is_some())
            && let Some(load) = loads.get_mut(&ended.name)
        {
            *load = load.saturating_sub(1);
        }
        if let Some(began) = began.filter(|holder| holder.key.is_some()) {
            let load = loads.entry(began.name.clone()).or_default();
            *load = load.saturating_add(1);
        }
    }

    fn note_holder(&self, case: &str, began: Option<&HolderRecord>) {
        let mut holders = self.0.holders.lock().unwrap_or_else(PoisonError::into_inner);
        match began.filter(|holder| holder.key.is_some()) {
            Some(holder) => holders.insert(case.to_owned(), holder.name.clone()),
            None => holders.remove(case),
        };
    }

    /// Returns true if an agent holds a case now.
    pub(crate) fn is_holder(&self, case: &str, agent: &str) -> bool {
        let holders = self.0.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.get(case).is_some_and(|holder| holder == agent)
    }

    /// Performs the reaction that a rule about anomalies names.
    pub(crate) async fn apply_reaction(
        &self,
        live: &mut LiveCase,
        anomaly: &Anomaly,
    ) -> Result<(), CaseError> {
        let holds = live.holder.as_ref().is_some_and(|holder| holder.name == anomaly.agent);
        let reason = format!("rule '{}': agent {} has {}", anomaly.rule, anomaly.agent, anomaly.evidence);
        match anomaly.reaction {
            // Only the agent that has caused the anomaly loses the case, not one that holds it by now.
            Reaction::Revoke if holds && live.machine.key().is_some() => {
                self.lose_case(live, LossCause::Anomaly, &reason).await
            }
            Reaction::Revoke | Reaction::Alert => {
                let note = CaseMove::new(CaseChange::Alerted, reason);
                let entry = note.entry(&self.0.keys, live, (None, None));
                self.0.keys.commit(vec![entry]).await?;
                Ok(())
            }
        }
    }

    /// Looks after every open case: keys that were revoked or are about to end, agents that are silent, and cases that wait
    /// for an agent. A failure of one case is logged, and tried again with the next call.
    pub async fn look_after_cases(&self) {
        for id in self.open_ids() {
            if let Err(error) = self.look_after(id).await {
                tracing::error!(%error, case = %id, "a case could not be looked after");
            }
        }
    }

    async fn look_after(&self, id: SessionId) -> Result<(), CaseError> {
        let mut live = match self.locked(id).await {
            Err(CaseError::Unknown(_)) => return Ok(()),
            live => live?,
        };
        let now = self.0.keys.now();
        let (Some(key), Some(ends)) = (live.machine.key(), live.key_ends) else {
            return self.place_case(&mut live).await;
        };
        // Read from the store, since `writ keys revoke` goes past this router. Under a revoked base key nothing is done any more.
        let base_key = live.agent.as_ref().map(|agent| agent.base_key);
        for key in [Some(key), base_key].into_iter().flatten() {
            if self.0.keys.is_revoked(key).await? {
                return self.lose_revoked(&mut live).await;
            }
        }
        // The clock may have jumped past the time of renewal.
        if now >= ends {
            return self.lose_case(&mut live, LossCause::Ended, "its key has ended").await;
        }
        if live.owes_since.is_some_and(|since| now.time_since(since) > self.0.silence) {
            return self
                .lose_case(&mut live, LossCause::Silence, "it did not answer before its deadline")
                .await;
        }
        if ends.time_since(now) < RENEW_BEFORE {
            self.renew_key(&mut live).await?;
        }
        let tried = note_ways_out(&self.0.keys, &mut live).await?;
        if tried > 0 { self.count_amount(&mut live, Measure::WaysOut, tried).await } else { Ok(()) }
    }

    /// Takes a case from an agent whose key was revoked. Where its base key is in force, the revocation was about this work.
    /// Otherwise it was about the base key: another version was deployed, or the keys of the installation were rotated.
    async fn lose_revoked(&self, live: &mut LiveCase) -> Result<(), CaseError> {
        let in_force = match &live.agent {
            Some(agent) => self.0.keys.check_base(&agent.base).await.is_ok(),
            None => true,
        };
        match in_force {
            true => self.lose_case(live, LossCause::Revoked, "its key was revoked").await,
            false => self.lose_case(live, LossCause::Ended, "its base key is no longer in force").await,
        }
    }

    /// Replaces the key of a holder by a fresh one, while its base key allows it.
    async fn renew_key(&self, live: &mut LiveCase) -> Result<(), CaseError> {
        let Some(name) = live.holder.as_ref().map(|holder| holder.name.clone()) else { return Ok(()) };
        let agent = self.agents().find_agent(&name);
        let Some(agent) = agent else {
            return self.lose_case(live, LossCause::Ended, "its agent was retired").await;
        };
        // Its process holds the base key with which it started; a task key over another base key is not accepted with it.
        if live.holder.as_ref().and_then(|holder| holder.base)
            != Some(Digest::of_bytes(agent.base.as_bytes()))
        {
            return self
                .lose_case(live, LossCause::Deployed, "another version of its agent was deployed")
                .await;
        }
        let base = match self.0.keys.check_base(&agent.base).await {
            Ok(base) => base,
            Err(error) => {
                return self.lose_case(live, LossCause::Ended, &format!("its base key: {error}")).await;
            }
        };
        // The last key of a base key is not renewed: both end together.
        if live.key_ends.is_some_and(|ends| ends >= base.expires_at()) {
            return Ok(());
        }
        let tokens = (live.row.customer_token.as_str(), live.row.case_token.as_str());
        let (key, minted) = self.0.keys.mint_case_key(&base, live.row.id, tokens, "renewed")?;
        let record =
            HolderRecord { name, key: Some(key.key), base: Some(key.base_hash), task: Some(key.hash) };
        // The fresh key is handed over before the one before is revoked: at every moment a request carries one that is in force.
        self.0.keys.commit(minted.into()).await?;
        let handed = live.agent.as_mut().map(|running| running.process.replace_key(&key.token));
        if let Some(Err(fault)) = handed {
            self.revoke_fresh(live, &key).await?;
            return self
                .lose_case(live, LossCause::Crash, &format!("it cannot get a fresh key: {fault}"))
                .await;
        }
        let note = CaseMove {
            key_ends: Some(key.expires_at),
            ..CaseMove::new(CaseChange::Renewed, "its key was about to end".to_owned())
        };
        let renewed = self.advance_case(live, CaseEvent::Renew { key: key.key }, note, Some(record)).await;
        if renewed.is_err()
            && let Err(error) = self.revoke_fresh(live, &key).await
        {
            tracing::error!(%error, case = %live.row.id, "a key could not be revoked that no holder has");
        }
        renewed
    }

    /// Revokes a key that no holder is recorded with: the end of the case would not revoke it.
    async fn revoke_fresh(&self, live: &LiveCase, key: &CaseKey) -> Result<(), CaseError> {
        let why = "it could not take the place of the key before";
        let ops = self.0.keys.revocation_of(live.row.id, (key.key, key.expires_at), why);
        self.0.keys.commit(ops.into()).await?;
        self.0.tokens.revoke_keys(&[key.key]);
        Ok(())
    }
}

fn holder_keys(record: &HolderRecord, ends_at: Option<Timestamp>) -> Option<HolderKeys> {
    let (key, base, task, ends_at) = (record.key?, record.base?, record.task?, ends_at?);
    Some(HolderKeys { key, ends_at, base, task })
}

/// Returns the part of a reason that the next holder is given: of a loss the cause alone. The rest is for people: it names
/// customers across cases, and places of this machine.
fn handed_reason(reason: &str) -> &str {
    let lost = LossCause::ALL
        .iter()
        .find(|cause| reason.strip_prefix(cause.as_str()).is_some_and(|rest| rest.starts_with(':')));
    lost.map_or(reason, |cause| cause.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_holder_learns_the_cause_of_a_loss_and_an_agents_own_reason() {
        let anomaly = "anomaly: rule 'same customer from two cases then revoke': agent a has customer f also in case_tk_1";
        assert_eq!(handed_reason(anomaly), "anomaly");
        assert_eq!(handed_reason("crash: it did not start: the folder is missing"), "crash");
        assert_eq!(handed_reason("over $500 limit: ask a manager"), "over $500 limit: ask a manager");
        assert_eq!(handed_reason("crashes happen"), "crashes happen");
    }
}
