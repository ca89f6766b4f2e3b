//! The way through the door: gathers facts, lets the door decide, writes the decision down.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use writ_policy::approval::{Approval, ApprovalError};
use writ_policy::budget::{BudgetFacts, Spent};
use writ_policy::door::{self, Ask, Decided, Denial, Facts, Grant, Mode, Verdicts};
use writ_policy::egress::EgressScope;
use writ_policy::keys::Authority;
use writ_policy::origin::Origins;
use writ_policy::permit::{Permit, RedeemError};
use writ_policy::plan::{self, Planned};
use writ_policy::prepared::Prepared;
use writ_policy::rules::RuleSet;
use writ_store::batch::{Batch, Op};
use writ_store::journal::Following;
use writ_types::entry::{DenyReason, Entry, Fact, GateVerdict};
use writ_types::id::AskId;

use crate::closing::is_over;
use crate::commit::frames;
use crate::config::Execution;
use crate::core::Core;
use crate::error::EngineError;
use crate::gates::Gathered;
use crate::plans::Writ;
use crate::session::Session;

/// What came of a wish.
#[derive(Debug)]
pub(crate) enum Passage {
    /// It may be performed.
    Permit(Box<Permit>),
    /// It was decided and would be performed, but this session only simulates.
    Simulated(Box<Prepared>),
    /// A person must be asked.
    Ask(Box<Ask>),
    /// It was refused; the refusal is in the ledger.
    Denied(Box<Denial>),
}

/// What came of a model's call.
#[derive(Debug)]
pub(crate) enum Called {
    /// It was decided.
    Passed(Passage),
    /// Nothing was decided: a gate wants the tool to be called with these arguments. What was to be written first is
    /// handed back.
    Rewritten(serde_json::Value, Vec<Op>),
}

/// A model's call, as gates see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wording<'a> {
    /// What it says.
    pub(crate) arguments: &'a serde_json::Value,
    /// Whether gates may still have it say something else.
    pub(crate) rewritable: bool,
}

/// What the door is told besides the action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing<'a> {
    pub(crate) authority: &'a Authority,
    pub(crate) spent: Spent,
    pub(crate) approval: Option<&'a Result<Approval, ApprovalError>>,
    /// Whether an earlier approval for the task may cover it.
    pub(crate) task: bool,
    pub(crate) mode: Mode,
    /// What the arguments may be made of, where the conversation has been looked through for it.
    pub(crate) origins: Option<&'a Origins>,
}

/// What a person has said yes to earlier that an action is tried with.
#[derive(Default)]
struct Earlier {
    /// What is alike.
    approval: Option<Result<Approval, ApprovalError>>,
    /// A plan. Where only what is planned is done, it stays beside what is alike, which is a yes of its own and uses no step.
    writ: Option<Box<Writ>>,
    /// Whether what is alike was looked for.
    looked: bool,
    /// The plans that it was tried with.
    tried: BTreeSet<AskId>,
}

impl Earlier {
    const fn is_any(&self) -> bool {
        self.approval.is_some() || self.writ.is_some()
    }

    /// What the door is told where it may cover the action.
    fn govern<'a>(&'a self, mut facts: Facts<'a>) -> Facts<'a> {
        if let Some(writ) = &self.writ {
            writ.govern(&mut facts);
        }
        facts.approval = self.approval.as_ref().or(facts.approval);
        facts
    }
}

/// What the door is told, held for as long as it decides.
struct Known<'a> {
    revoked: BTreeSet<String>,
    rules: Arc<RuleSet>,
    egress: EgressScope,
    origins: Cow<'a, Origins>,
    budget: BudgetFacts,
    session: Option<Arc<Session>>,
    lost: bool,
}

impl Known<'_> {
    fn facts<'a>(&'a self, core: &Core, standing: Standing<'a>) -> Facts<'a> {
        Facts {
            authority: standing.authority,
            revoked: &self.revoked,
            rules: &self.rules,
            egress: &self.egress,
            origins: &self.origins,
            strict: core.config.strict,
            plan: Planned { in_force: None, only: core.config.execution == Execution::Planned },
            budget: &self.budget,
            lost: self.lost,
            approval: standing.approval,
            // Nobody performs such operations here.
            used: None,
        }
    }
}

/// Whether it was refused for what it was tried with, and not for what it is.
const fn is_of_what_was_tried(denial: &Denial) -> bool {
    matches!(denial.reason, DenyReason::Approval | DenyReason::Revoked)
}

impl Core {
    /// Puts a prepared action before the door.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written; nothing may be performed then.
    pub(crate) async fn pass(
        &self,
        prepared: Prepared,
        standing: Standing<'_>,
    ) -> Result<Passage, EngineError> {
        self.pass_after(Vec::new(), prepared, standing).await
    }

    /// Writes `first` and puts a prepared action before the door: in one transaction, if it is permitted. `first` is
    /// written whatever is decided; frames in it are of the action's session, and go to its watchers.
    ///
    /// # Errors
    ///
    /// As [`Self::pass`].
    pub(crate) async fn pass_after(
        &self,
        first: Vec<Op>,
        prepared: Prepared,
        standing: Standing<'_>,
    ) -> Result<Passage, EngineError> {
        match Box::pin(self.pass_call(first, prepared, standing, None)).await? {
            Called::Passed(passage) => Ok(passage),
            Called::Rewritten(..) => {
                Err(EngineError::Machine("a text that is no model's was rewritten".to_owned()))
            }
        }
    }

    /// As [`Self::pass_after`], for a call of a model where `wording` says what that is.
    ///
    /// # Errors
    ///
    /// As [`Self::pass`].
    pub(crate) async fn pass_call(
        &self,
        mut first: Vec<Op>,
        prepared: Prepared,
        standing: Standing<'_>,
        wording: Option<Wording<'_>>,
    ) -> Result<Called, EngineError> {
        // Boxed: what passes here may itself be under way in something that has passed, and rules need room on the stack.
        let verdicts = match Box::pin(self.heard(&prepared, standing, wording)).await? {
            Gathered { ops, arguments: Some(arguments), .. } => {
                first.extend(ops);
                return Ok(Called::Rewritten(arguments, first));
            }
            Gathered { verdicts, ops, arguments: None } => {
                first.extend(ops);
                verdicts
            }
        };
        Box::pin(self.decided(first, prepared, standing, &verdicts)).await.map(Called::Passed)
    }

    /// What gates say of an action that has passed its keys; what has not is for the decision to refuse.
    async fn heard(
        &self,
        prepared: &Prepared,
        standing: Standing<'_>,
        wording: Option<Wording<'_>>,
    ) -> Result<Gathered, EngineError> {
        if !self.judges_actions() {
            return Ok(Gathered::default());
        }
        let known = self.known(prepared, standing)?;
        let checked = door::precheck(prepared.clone(), &known.facts(self, standing), self.valid_now());
        if let Err(denial) = checked {
            // What no gate has heard is not done, even if its keys were good a moment later.
            let mut gathered = Gathered::default();
            gathered.verdicts.gates.push((denial.rule, GateVerdict::Block, denial.text));
            return Ok(gathered);
        }
        drop(known);
        self.gather(prepared, standing.authority, wording).await
    }

    /// What the door is told, as it is now.
    fn known<'a>(&self, prepared: &Prepared, standing: Standing<'a>) -> Result<Known<'a>, EngineError> {
        let at = prepared.session.map(|session| self.session(session)).transpose()?;
        let mut egress =
            at.as_deref().map_or_else(|| self.config.egress.clone(), |session| self.scope_of(session));
        let listed = Self::hosts_of_server(&prepared.action);
        let lost = prepared.session.map(|session| self.store.lost(session, &prepared.action)).transpose()?;
        let lost = lost.flatten().is_some();
        egress.granted.extend(listed.iter().filter_map(|host| host.parse().ok()));
        Ok(Known {
            revoked: self.revoked(standing.authority)?,
            rules: self.rules_of(at.as_deref()),
            egress,
            origins: self.origins_of(prepared, standing.origins)?,
            budget: BudgetFacts { limits: self.limits_of(at.as_deref()), spent: standing.spent },
            session: at,
            lost,
        })
    }

    /// The decision, with what is so now: scripts may have taken long.
    async fn decided(
        &self,
        mut first: Vec<Op>,
        mut prepared: Prepared,
        standing: Standing<'_>,
        verdicts: &Verdicts,
    ) -> Result<Passage, EngineError> {
        let (at, now) = (self.clock.now(), self.valid_now());
        let (session, turn, turn_number) = (prepared.session, prepared.turn, prepared.turn_number);
        let entry = |fact| {
            let fact = self.scrubbed(fact);
            Op::Append(Box::new(Entry { at, session, turn, turn_number, fact }))
        };
        let known = self.known(&prepared, standing)?;
        let (mut earlier, at) = (Earlier::default(), known.session.as_deref());
        let only = standing.task && self.config.execution == Execution::Planned;
        if only && plan::is_needed(&prepared) {
            earlier.writ = self.writ_for(&prepared, &mut earlier.tried)?;
            // The turn's own key counts as well: a plan is done by whoever may still do anything.
            if earlier.writ.is_some()
                && let Err(denial) = door::precheck(prepared.clone(), &known.facts(self, standing), now)
            {
                return self.refused(at, first, denial, entry).await;
            }
        }
        let mut is_told = false;
        let denial = loop {
            let facts = earlier.govern(known.facts(self, standing));
            let checked = match door::precheck(prepared, &facts, now) {
                Err(denial) => break denial,
                Ok(checked) => checked,
            };
            // Once for each wish, not for each approval and plan that it is tried with.
            if !std::mem::replace(&mut is_told, true) {
                first.extend(door::shadowed(&checked, &self.rules, &facts).into_iter().map(entry));
            }
            match door::decide(checked, verdicts, &facts, now) {
                Decided::Deny(denial) => break denial,
                Decided::Ask(ask) => {
                    if !standing.task || !self.find_earlier(&mut earlier, &ask)? {
                        self.metrics.asked();
                        self.write(at, first).await?;
                        return Ok(Passage::Ask(ask));
                    }
                    prepared = ask.prepared;
                }
                Decided::Grant(grant) => {
                    let again = earlier.is_any().then(|| grant.prepared().clone());
                    match (self.redeem(at, std::mem::take(&mut first), *grant, standing).await?, again) {
                        (Ok(passage), _) => return Ok(passage),
                        // Others have used up what was left of it, or its key was taken back: something else covers it, or
                        // a person is asked after all.
                        (Err(denial), Some(again)) if is_of_what_was_tried(&denial) => {
                            if earlier.approval.take().is_none() {
                                earlier.writ = self.writ_for(&again, &mut earlier.tried)?;
                            }
                            prepared = again;
                        }
                        (Err(denial), _) => break denial,
                    }
                }
            }
        };
        self.refused(at, first, denial, entry).await
    }

    /// Writes a refusal down.
    async fn refused(
        &self,
        at: Option<&Session>,
        mut first: Vec<Op>,
        denial: Box<Denial>,
        entry: impl Fn(Fact) -> Op,
    ) -> Result<Passage, EngineError> {
        self.metrics.denied();
        first.push(entry(denial.fact()));
        self.write(at, first).await?;
        Ok(Passage::Denied(denial))
    }

    /// Looks for what else a person has said yes to earlier that may cover an ask, and says whether there is anything: what
    /// is alike, then each plan, the newest first.
    fn find_earlier(&self, earlier: &mut Earlier, ask: &Ask) -> Result<bool, EngineError> {
        let looked = std::mem::replace(&mut earlier.looked, true);
        earlier.approval = if looked { None } else { self.task_approval(ask)?.map(Ok) };
        if earlier.approval.is_none() {
            earlier.writ = self.writ_for(&ask.prepared, &mut earlier.tried)?;
        }
        Ok(earlier.is_any())
    }

    async fn write(&self, at: Option<&Session>, ops: Vec<Op>) -> Result<(), EngineError> {
        match at {
            _ if ops.is_empty() => {}
            Some(session) => drop(self.commit_for(session, Batch::relaxed(ops)).await?),
            None => drop(self.store.commit(Batch::relaxed(ops)).await?),
        }
        Ok(())
    }

    async fn redeem(
        &self,
        at: Option<&Session>,
        first: Vec<Op>,
        grant: Grant,
        standing: Standing<'_>,
    ) -> Result<Result<Passage, Box<Denial>>, EngineError> {
        let (hash, kind) = (grant.hash(), grant.prepared().action.kind());
        // Of a closed session, nothing is done that a turn or a yes had begun; its hooks are told, and its owner may apply and
        // undo. A yes from before is taken back.
        let is_begun = standing.approval.is_some() || grant.prepared().turn.is_some();
        let over = at.filter(|session| is_begun && is_over(session, grant.prepared()));
        if let Some(session) = over {
            self.write(at, first).await?;
            return Ok(Err(Box::new(Denial {
                prepared: Some(hash),
                kind,
                reason: DenyReason::Revoked,
                rule: "session".to_owned(),
                text: EngineError::SessionClosed(session.id).to_string(),
            })));
        }
        if standing.mode == Mode::DryRun {
            self.write(at, first).await?;
            return Ok(Ok(Passage::Simulated(Box::new(grant.prepared().clone()))));
        }
        let now = self.clock.now();
        let shown = frames(&first);
        let journal = Following::new(&self.store, first);
        let redeemed = grant.redeem(&journal, self.ids.attempt(now), now).await;
        // Written whatever became of the redemption.
        for (number, frame) in journal.into_frames().into_iter().zip(shown) {
            if let Some(session) = at {
                session.hub.send(number.seq, frame);
            }
        }
        match redeemed {
            Ok(permit) => Ok(Ok(Passage::Permit(Box::new(permit)))),
            Err(RedeemError::Unwritable(why)) => Err(EngineError::Unwritable(why)),
            Err(RedeemError::Exhausted(limit)) => Ok(Err(Box::new(Denial {
                prepared: Some(hash),
                kind,
                reason: DenyReason::Budget,
                rule: limit.setting().to_owned(),
                text: limit.reason(),
            }))),
            Err(revoked @ RedeemError::Revoked) => Ok(Err(Box::new(Denial {
                prepared: Some(hash),
                kind,
                reason: DenyReason::Revoked,
                rule: "key".to_owned(),
                text: revoked.to_string(),
            }))),
            Err(spent @ RedeemError::ApprovalSpent(_)) => Ok(Err(Box::new(Denial {
                prepared: Some(hash),
                kind,
                reason: DenyReason::Approval,
                rule: "single use".to_owned(),
                text: spent.to_string(),
            }))),
        }
    }

    /// Which of an authority's keys were revoked.
    pub(crate) fn revoked(&self, authority: &Authority) -> Result<BTreeSet<String>, EngineError> {
        let mut revoked = BTreeSet::new();
        for id in authority.revocation_ids() {
            if self.store.is_revoked(id)? {
                revoked.insert(id.clone());
            }
        }
        Ok(revoked)
    }
}
