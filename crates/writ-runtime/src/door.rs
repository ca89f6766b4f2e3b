//! The door as a service: it gathers what store and keys know about an action, has the pure door of
//! `writ-policy` decide, and writes the decision down.
//!
//! It needs no engine, session or hub: the caller passes everything else in [`Circumstances`].
//!
//! The stages are re-entrant. `Door::precheck` changes nothing, and `Door::decide` checks the keys again:
//! gates may take long, and a key that was revoked meanwhile must not be used.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_policy::approval::{Approval, ApprovalError};
use writ_policy::budget::{BudgetConfig, BudgetFacts, Spent};
use writ_policy::door::{self, Ask, Decided, Denial, Facts, Grant, Mode, Verdicts};
use writ_policy::keys::Authority;
use writ_policy::keys::limits::{self, UsedToday};
use writ_policy::permit::{Permit, RedeemError, RequestOrigin};
use writ_policy::plan::{self, Planned};
use writ_policy::rules::RuleSet;
use writ_store::batch::Op;
use writ_store::journal::JournalWithOps;
use writ_store::reads::{LedgerReads as _, OperationReads as _};
use writ_types::action::{Action, ActionKind, Operate};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Entry, Fact};
use writ_types::frame::ServerFrame;
use writ_types::unit::Timestamp;

use crate::error::EngineError;
use crate::journal::{Journal, frames};
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::pending::Pending;

use earlier::Earlier;

mod earlier;

/// The outcome of putting an action before the door.
#[derive(Debug)]
pub enum Passage {
    /// It may be performed.
    Permit(Box<Permit>),
    /// It was decided and would be performed, but this session only simulates.
    Simulated(Box<Prepared>),
    /// A person must be asked.
    Ask(Box<Ask>),
    /// It was refused; the refusal is in the ledger.
    Denied(Box<Denial>),
}

/// The decision that an action would meet.
#[derive(Debug)]
pub(crate) enum Foreseen {
    /// It would be performed.
    Permit,
    /// A person would be asked.
    Ask(Box<Ask>),
    /// It would be refused.
    Deny(Box<Denial>),
}

/// The request beside the action: in the name of which key it is made, and what was spent.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The keys that it is made under.
    pub authority: &'a Authority,
    /// Tokens, money and calls that were spent or set aside before.
    pub spent: Spent,
    /// The approval that it is performed on, if it was asked about.
    pub approval: Option<&'a Result<Approval, ApprovalError>>,
    /// Set if an earlier approval may cover it.
    pub task: bool,
    /// Performed or simulated.
    pub mode: Mode,
    /// The texts that the arguments may be made of; `None` if the conversation was not searched for them.
    pub origins: Option<&'a Origins>,
    /// The origin of a request at the security proxy.
    pub request: Option<&'a RequestOrigin>,
}

impl<'a> RequestContext<'a> {
    /// Returns the request of a key that no earlier approval covers, to be performed.
    pub const fn of(authority: &'a Authority, spent: Spent) -> Self {
        Self {
            authority,
            spent,
            approval: None,
            task: false,
            mode: Mode::Execute,
            origins: None,
            request: None,
        }
    }
}

/// The work that an action belongs to, such as a conversation. It may end while an action of it is decided.
pub trait Work: Send + Sync {
    /// Returns why an action may not be performed any more, or `None` while the work goes on.
    fn refusal(&self, prepared: &Prepared) -> Option<String>;

    /// Shows a frame that was stored to those who watch.
    fn show(&self, seq: u64, frame: ServerFrame);
}

/// The circumstances of an action that only its caller knows.
pub struct Circumstances<'a> {
    /// The rules in force.
    pub rules: Arc<RuleSet>,
    /// The rules of the home: the rules that are tried beside them are compared, also where a project has its own.
    pub home_rules: Arc<RuleSet>,
    /// The hosts that may be reached.
    pub egress: EgressScope,
    /// The texts that the arguments may be made of.
    pub origins: Cow<'a, Origins>,
    /// Limits on tokens, money and calls.
    pub limits: BudgetConfig,
    /// The work that the action belongs to; `None`: it stands alone, and its frames are shown to no one.
    pub work: Option<Arc<dyn Work>>,
}

impl std::fmt::Debug for Circumstances<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circumstances").field("rules", &self.rules.digest()).finish_non_exhaustive()
    }
}

/// Settings of the door.
#[derive(Clone, Copy, Debug, Default)]
pub struct DoorConfig {
    /// After external content was read, everything that leaves the sandbox asks.
    pub strict: bool,
    /// Programs are run and files written by an approved plan alone.
    pub planned_only: bool,
}

/// Decides about actions, with a store and keys.
#[derive(Debug)]
pub struct Door {
    journal: Arc<Journal>,
    keys: Arc<Keys>,
    config: DoorConfig,
    metrics: Arc<Metrics>,
}

/// Facts of one decision, held while it is made.
struct DecisionFacts<'a> {
    circumstances: &'a Circumstances<'a>,
    revoked: BTreeSet<String>,
    budget: BudgetFacts,
    is_doubtful: bool,
    /// What operations of the security proxy have used today. Other actions have none.
    used: UsedToday,
}

/// Returns true for a refusal of the earlier approval that was tried, which is none of the action itself.
const fn is_of_what_was_tried(denial: &Denial) -> bool {
    matches!(denial.reason, DenyReason::Approval | DenyReason::Revoked)
}

impl Door {
    /// Creates a door over a journal and keys.
    pub(crate) fn new(
        (journal, keys): (Arc<Journal>, Arc<Keys>),
        config: DoorConfig,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { journal, keys, config, metrics }
    }

    /// Creates a door that stands alone: it counts for itself what it refuses and asks.
    pub fn alone(journal: Arc<Journal>, keys: Arc<Keys>, config: DoorConfig) -> Self {
        Self::new((journal, keys), config, Arc::new(Metrics::new()))
    }

    /// Puts an action before the door that no gate judges.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written; then nothing may be performed.
    pub async fn pass(
        &self,
        prepared: Prepared,
        standing: RequestContext<'_>,
        circumstances: &Circumstances<'_>,
    ) -> Result<Passage, EngineError> {
        self.decide(Pending::new(), prepared, standing, circumstances, &Verdicts::default()).await
    }

    /// Checks an action's keys, scope, limits and revocation, before anything else is asked about it.
    ///
    /// # Errors
    ///
    /// If the store cannot be read. The inner error is the refusal.
    pub(crate) async fn precheck(
        &self,
        prepared: &Prepared,
        standing: RequestContext<'_>,
        circumstances: &Circumstances<'_>,
    ) -> Result<Result<(), Box<Denial>>, EngineError> {
        let gathered = self.gather(prepared, &standing, circumstances).await?;
        let facts = self.facts(&gathered, standing);
        Ok(door::precheck(prepared.clone(), &facts, self.journal.valid_now()).map(drop))
    }

    /// Reads what store and keys say of an action.
    async fn gather<'a>(
        &self,
        prepared: &Prepared,
        standing: &RequestContext<'_>,
        circumstances: &'a Circumstances<'a>,
    ) -> Result<DecisionFacts<'a>, EngineError> {
        let store = &self.journal.store;
        let doubtful = match prepared.session {
            Some(session) => store.unknown_outcome(session, &prepared.action).await?,
            None => None,
        };
        let used = if let Action::Operate(operate) = &prepared.action {
            self.used_today(operate, standing.authority).await?
        } else {
            UsedToday::default()
        };
        let limits = circumstances.limits.clone();
        Ok(DecisionFacts {
            circumstances,
            revoked: self.keys.revoked(standing.authority).await?,
            budget: BudgetFacts { limits, spent: standing.spent },
            is_doubtful: doubtful.is_some(),
            used,
        })
    }

    /// Reads how much of the limits of an operation's keys is used. The redemption reads it again.
    async fn used_today(&self, operate: &Operate, authority: &Authority) -> Result<UsedToday, EngineError> {
        let uses = limits::counted_uses(operate, authority);
        if uses.is_empty() {
            return Ok(UsedToday::default());
        }
        let day = self.journal.budget_day(self.journal.clock.now());
        let used = self.journal.store.used_amounts(&uses, day).await?;
        Ok(UsedToday::from_counts(authority, &uses, &used))
    }

    fn facts<'a>(&self, gathered: &'a DecisionFacts<'a>, standing: RequestContext<'a>) -> Facts<'a> {
        Facts {
            authority: standing.authority,
            revoked: &gathered.revoked,
            rules: &gathered.circumstances.rules,
            egress: &gathered.circumstances.egress,
            origins: &gathered.circumstances.origins,
            strict: self.config.strict,
            plan: Planned { in_force: None, only: self.config.planned_only },
            budget: &gathered.budget,
            lost: gathered.is_doubtful,
            approval: standing.approval,
            used: Some(&gathered.used),
        }
    }

    /// Decides about an action as it would have been decided at a time, without a trace: no earlier approval is looked for,
    /// nothing is written, and nothing may be performed.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn foresee(
        &self,
        prepared: Prepared,
        standing: RequestContext<'_>,
        circumstances: &Circumstances<'_>,
        (verdicts, now): (&Verdicts, Timestamp),
    ) -> Result<Foreseen, EngineError> {
        let gathered = self.gather(&prepared, &standing, circumstances).await?;
        // What has an unknown outcome today had not begun at the time that is asked about.
        let facts = DecisionFacts { is_doubtful: false, ..gathered };
        let facts = self.facts(&facts, standing);
        let checked = match door::precheck(prepared, &facts, now) {
            Ok(checked) => checked,
            Err(denial) => return Ok(Foreseen::Deny(denial)),
        };
        Ok(match door::decide(checked, verdicts, &facts, now) {
            Decided::Grant(_) => Foreseen::Permit,
            Decided::Ask(ask) => Foreseen::Ask(ask),
            Decided::Deny(denial) => Foreseen::Deny(denial),
        })
    }

    /// Decides about an action, and redeems the grant: its intent is written before the permit is returned.
    /// `first` is written regardless of the decision, in the same transaction where that is possible.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written; then nothing may be performed.
    pub(crate) async fn decide(
        &self,
        mut first: Pending,
        mut prepared: Prepared,
        standing: RequestContext<'_>,
        circumstances: &Circumstances<'_>,
        verdicts: &Verdicts,
    ) -> Result<Passage, EngineError> {
        let (at, now) = (self.journal.clock.now(), self.journal.valid_now());
        let (session, turn, turn_number) = (prepared.session, prepared.turn, prepared.turn_number);
        let entry = |fact| {
            let fact = self.journal.scrubbed(fact);
            Op::Append(Box::new(Entry { at, session, turn, turn_number, fact }))
        };
        let gathered = self.gather(&prepared, &standing, circumstances).await?;
        let (mut earlier, work) = (Earlier::default(), circumstances.work.as_deref());
        let policy = circumstances.rules.digest();
        let only = standing.task && self.config.planned_only;
        if only && plan::is_needed(&prepared) {
            earlier.writ = self.writ_for(&prepared, policy, &mut earlier.tried).await?;
            // The turn's own key counts as well: a plan gives nothing to a key that was revoked.
            if earlier.writ.is_some()
                && let Err(denial) = door::precheck(prepared.clone(), &self.facts(&gathered, standing), now)
            {
                return self.refuse((work, standing.request), first, denial, entry).await;
            }
        }
        let mut is_shadowed_noted = false;
        let denial = loop {
            let facts = earlier.add_to(self.facts(&gathered, standing));
            let checked = match door::precheck(prepared, &facts, now) {
                Err(denial) => break denial,
                Ok(checked) => checked,
            };
            // Once for each action, not for each approval and plan that it is tried with.
            if !std::mem::replace(&mut is_shadowed_noted, true) {
                first.extend(
                    door::shadow_verdicts(&checked, &circumstances.home_rules, &facts).into_iter().map(entry),
                );
            }
            match door::decide(checked, verdicts, &facts, now) {
                Decided::Deny(denial) => break denial,
                Decided::Ask(ask) => {
                    if !standing.task || !self.find_earlier(&mut earlier, policy, &ask).await? {
                        self.metrics.asked();
                        self.write(work, first).await?;
                        return Ok(Passage::Ask(ask));
                    }
                    prepared = ask.prepared;
                }
                Decided::Grant(grant) => {
                    let again = earlier.is_any().then(|| grant.prepared().clone());
                    match (self.redeem(work, std::mem::take(&mut first), *grant, standing).await?, again) {
                        (Ok(passage), _) => return Ok(passage),
                        // Another action has used up what was left of it, or its key was revoked: something else covers
                        // it, or a person is asked after all.
                        (Err(denial), Some(again)) if is_of_what_was_tried(&denial) => {
                            if earlier.approval.take().is_none() {
                                earlier.writ = self.writ_for(&again, policy, &mut earlier.tried).await?;
                            }
                            prepared = again;
                        }
                        (Err(denial), _) => break denial,
                    }
                }
            }
        };
        self.refuse((work, standing.request), first, denial, entry).await
    }

    /// Writes a refusal into the ledger.
    async fn refuse(
        &self,
        (work, request): (Option<&dyn Work>, Option<&RequestOrigin>),
        mut first: Pending,
        denial: Box<Denial>,
        entry: impl Fn(Fact) -> Op,
    ) -> Result<Passage, EngineError> {
        self.metrics.denied();
        let requester = request.map(RequestOrigin::denied_requester);
        first.push(entry(denial.denial_fact_for(requester.as_ref())));
        self.write(work, first).await?;
        Ok(Passage::Denied(denial))
    }

    /// Searches for an earlier approval that may cover a request, then for plans, the newest first; returns true if there
    /// is one.
    async fn find_earlier(
        &self,
        earlier: &mut Earlier,
        policy: Digest,
        ask: &Ask,
    ) -> Result<bool, EngineError> {
        // Once for each action: an approval that could not be redeemed would be found again, and the loop would not end.
        let searched = std::mem::replace(&mut earlier.searched, true);
        earlier.approval = if searched { None } else { self.task_approval(ask).await?.map(Ok) };
        if earlier.approval.is_none() {
            earlier.writ = self.writ_for(&ask.prepared, policy, &mut earlier.tried).await?;
        }
        Ok(earlier.is_any())
    }

    async fn write(&self, work: Option<&dyn Work>, ops: Pending) -> Result<(), EngineError> {
        // Not synced: a denial or a question has had no effect that a power failure could leave without its record.
        match work {
            _ if ops.is_empty() => {}
            Some(work) => {
                let show = |seq, frame| work.show(seq, frame);
                drop(self.journal.commit_shown(ops.into_relaxed(), show).await?);
            }
            None => drop(self.journal.store.commit(ops.into_relaxed()).await?),
        }
        Ok(())
    }

    async fn redeem(
        &self,
        work: Option<&dyn Work>,
        first: Pending,
        grant: Grant,
        standing: RequestContext<'_>,
    ) -> Result<Result<Passage, Box<Denial>>, EngineError> {
        let (hash, kind) = (grant.hash(), grant.prepared().action.kind());
        // In work that has ended, neither a turn nor an approval from before performs anything; what its owner does
        // outside turns the work itself allows.
        let is_begun = standing.approval.is_some() || grant.prepared().turn.is_some();
        let over = work.filter(|_| is_begun).and_then(|work| work.refusal(grant.prepared()));
        if let Some(text) = over {
            self.write(work, first).await?;
            return Ok(Err(Box::new(Denial {
                prepared: Some(hash),
                kind,
                reason: DenyReason::Revoked,
                rule: "session".to_owned(),
                text,
            })));
        }
        if standing.mode == Mode::DryRun {
            self.write(work, first).await?;
            return Ok(Ok(Passage::Simulated(Box::new(grant.prepared().clone()))));
        }
        let now = self.journal.clock.now();
        let shown = frames(first.as_slice());
        let journal = JournalWithOps::new(&self.journal.store, first.into_ops());
        let grant = match standing.request {
            Some(origin) => grant.requested_by(origin),
            None => grant,
        };
        let redeemed = grant.redeem(&journal, self.journal.ids.attempt(now), now).await;
        // These frames were written even if the redemption failed.
        for (number, frame) in journal.into_frames().into_iter().zip(shown) {
            if let Some(work) = work {
                work.show(number.seq, frame);
            }
        }
        Ok(match redeemed {
            Ok(permit) => Ok(Passage::Permit(Box::new(permit))),
            Err(RedeemError::Unwritable(why)) => return Err(EngineError::Unwritable(why)),
            Err(refused) => Err(Box::new(redeem_denial((hash, kind), &refused))),
        })
    }
}

/// Returns the denial of what was granted and could not be redeemed.
fn redeem_denial((hash, kind): (Digest, ActionKind), refused: &RedeemError) -> Denial {
    let (reason, rule) = match refused {
        RedeemError::Exhausted(limit) => (DenyReason::Budget, limit.setting_name()),
        RedeemError::Revoked => (DenyReason::Revoked, "key"),
        RedeemError::ApprovalSpent(_) => (DenyReason::Approval, "single use"),
        RedeemError::UsedUp(_) => (DenyReason::UsedUp, "day"),
        RedeemError::Repeated(_) => (DenyReason::Repeated, "name"),
        // An error of its own at the caller; to the door it is a refusal like the others.
        RedeemError::Unwritable(_) => (DenyReason::Rule, "ledger"),
    };
    Denial { prepared: Some(hash), kind, reason, rule: rule.to_owned(), text: refused.to_string() }
}
