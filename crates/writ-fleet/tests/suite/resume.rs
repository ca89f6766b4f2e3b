//! A router that ends at any of its steps resumes with one holder.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use writ_fleet::cases::config::{CasesConfig, RENEW_BEFORE, UNKNOWN_WAIT};
use writ_fleet::cases::ports::{
    AgentHost, AgentProcess, CaseTokenSource, PortFault, StartOrder, StartedAgent,
};
use writ_fleet::cases::router::CaseRouter;
use writ_fleet::cases::status::live_status;
use writ_policy::keys::{KeyToken, TASK_KEY_TTL};
use writ_store::reads::{FleetReads as _, RevocationReads as _};

use super::support::{Fleet, die_if, refund_case};

/// Agents that read and say nothing: what happens is up to the router alone.
#[derive(Debug, Default)]
struct Quiet {
    router_dies: Arc<AtomicBool>,
}

#[derive(Debug)]
struct QuietProcess {
    _far: tokio::io::DuplexStream,
    router_dies: Arc<AtomicBool>,
}

impl AgentProcess for QuietProcess {
    fn replace_key(&mut self, _task: &KeyToken) -> Result<(), PortFault> {
        die_if(&self.router_dies);
        Ok(())
    }
}

impl AgentHost for Quiet {
    fn start_agent(&self, _order: StartOrder) -> BoxFuture<'_, Result<StartedAgent, PortFault>> {
        async {
            let (output, far) = tokio::io::duplex(64);
            let process = Box::new(QuietProcess { _far: far, router_dies: Arc::clone(&self.router_dies) });
            Ok(StartedAgent { input: Box::new(tokio::io::sink()), output: Box::new(output), process })
        }
        .boxed()
    }
}

/// Where a router that looks after its cases is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Where a key is handed out or a revocation is passed on: between two commits.
    BetweenCommits,
    /// After so many polls, wherever that is.
    Polls(usize),
}

impl Cut {
    /// Looks after the cases until the cut. `true` where the router came to its end.
    async fn look_after(self, router: &CaseRouter, dies: &AtomicBool) -> bool {
        match self {
            Cut::BetweenCommits => {
                dies.store(true, Ordering::SeqCst);
                let ended = AssertUnwindSafe(router.look_after_cases()).catch_unwind().await.is_ok();
                dies.store(false, Ordering::SeqCst);
                ended
            }
            Cut::Polls(polls) => {
                let looking = CutOff { inner: Box::pin(router.look_after_cases()), polls };
                looking.await.is_some()
            }
        }
    }

    /// The next place to cut, until a router came to its end: more polls change nothing.
    fn next(self, ended: bool) -> Option<Self> {
        match self {
            Cut::BetweenCommits => Some(Cut::Polls(1)),
            Cut::Polls(polls) => (!ended).then_some(Cut::Polls(polls + 1)),
        }
    }
}

/// A future that is cut off after so many polls, as a process that is killed.
struct CutOff<F> {
    inner: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for CutOff<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        self.inner.as_mut().poll(context).map(Some)
    }
}

/// Rows: SLO-053 (in part: after a kill)
#[tokio::test]
async fn a_router_that_is_cut_off_at_any_step_resumes_with_one_holder() {
    let mut next = Some(Cut::BetweenCommits);
    while let Some(cut) = next {
        let fleet = Fleet::new().await;
        let agents = |fleet: &Fleet| vec![fleet.agent("one", 500, &["-"]), fleet.agent("two", 501, &["-"])];
        let router = fleet.start_with(agents(&fleet), &[], Arc::new(Quiet::default())).await;
        let id = router.open_case(refund_case("hello")).await.expect("opens");
        // One loses the case, which is then given to the next: two commits with a gap between them.
        let held = fleet.keys.store().fleet_holders(id).await.expect("reads");
        let keys = held[0].keys.clone().expect("an agent");
        let ops = fleet.keys.revocation_of(id, (keys.key, keys.ends_at), "by the owner");
        fleet.keys.commit(ops.into()).await.expect("commits");
        let ended = cut.look_after(&router, &fleet.tokens.router_dies).await;
        next = cut.next(ended);
        drop(router);
        let fleet = fleet.restarted().await;
        if cut == Cut::BetweenCommits {
            let holders = fleet.keys.store().fleet_holders(id).await.expect("reads");
            assert!(!ended && holders.iter().all(|holder| holder.until.is_some()), "{holders:?}");
        }
        let router = fleet.start_with(agents(&fleet), &[], Arc::new(Quiet::default())).await;
        let holders = fleet.keys.store().fleet_holders(id).await.expect("reads");
        let open: Vec<_> = holders.iter().filter(|holder| holder.until.is_none()).collect();
        assert_eq!(open.len(), 1, "after {cut:?}: {holders:?}");
        for holder in &holders {
            let key = holder.keys.as_ref().expect("agents alone").key.to_string();
            let revoked = fleet.keys.store().is_revoked(&key).await.expect("reads");
            assert_eq!(revoked, holder.until.is_some(), "after {cut:?}: {holder:?}");
        }
        let access = fleet.access(id).await;
        assert_eq!((access.contradictions.len(), access.intervals.len()), (0, holders.len()));
        drop(router);
    }
}

/// A key that was handed out, and that no holder was recorded with, is revoked when the router begins again.
///
/// Rows: SLO-053 (in part: a kill while a key is renewed)
#[tokio::test]
async fn a_key_that_a_killed_router_has_just_renewed_is_revoked() {
    let mut next = Some(Cut::BetweenCommits);
    while let Some(cut) = next {
        let fleet = Fleet::new().await;
        // It may be silent until its key is renewed.
        let start = async |fleet: &Fleet| {
            let host = Quiet { router_dies: Arc::clone(&fleet.tokens.router_dies) };
            let agents = vec![fleet.agent("one", 500, &["-"])];
            let config = CasesConfig { agents, silence: TASK_KEY_TTL, ..CasesConfig::default() };
            let tokens: Arc<dyn CaseTokenSource> = Arc::clone(&fleet.tokens) as Arc<dyn CaseTokenSource>;
            CaseRouter::start(fleet.keys.clone(), config, tokens, Arc::new(host)).await.expect("starts")
        };
        let router = start(&fleet).await;
        let id = router.open_case(refund_case("hello")).await.expect("opens");
        fleet.hand.go_on(TASK_KEY_TTL.saturating_sub(RENEW_BEFORE) + std::time::Duration::from_secs(1));
        let ended = cut.look_after(&router, &fleet.tokens.router_dies).await;
        next = cut.next(ended);
        drop(router);
        let fleet = fleet.restarted().await;
        let keys_of = async |fleet: &Fleet| {
            let issued = fleet.keys.issued_for_cases().await.expect("reads");
            let mut keys = Vec::new();
            for (case, key, _) in issued {
                assert_eq!(case, id);
                keys.push((key, fleet.keys.is_revoked(key).await.expect("reads")));
            }
            keys
        };
        if cut == Cut::BetweenCommits {
            let in_force = keys_of(&fleet).await.iter().filter(|(_, is_revoked)| !is_revoked).count();
            assert_eq!((ended, in_force), (false, 2), "cut off between the two commits");
        }
        let router = start(&fleet).await;
        let holders = fleet.keys.store().fleet_holders(id).await.expect("reads");
        let held = holders.last().and_then(|holder| holder.keys.as_ref()).map(|keys| keys.key);
        for (key, is_revoked) in keys_of(&fleet).await {
            assert_eq!(is_revoked, Some(key) != held, "after {cut:?}: {holders:?}");
        }
        drop(router);
    }
}

/// Rows: SLO-053 (in part: what a person holds stays a person's)
#[tokio::test]
async fn a_person_holds_a_case_across_restarts_and_the_queue_stays() {
    let fleet = Fleet::new().await;
    let router = fleet.start_with(Vec::new(), &[], Arc::new(Quiet::default())).await;
    let taken = router.open_case(refund_case("hello")).await.expect("opens");
    router.take_case(taken, "owner").await.expect("takes it");
    // Ids of one moment have no order.
    fleet.hand.go_on(std::time::Duration::from_secs(1));
    let mut other = refund_case("hello");
    other.names.case = "order 18".into();
    let queued = router.open_case(other).await.expect("opens");
    fleet.hand.go_on(UNKNOWN_WAIT);
    router.look_after_cases().await;
    drop(router);
    let fleet = fleet.restarted().await;
    let router = fleet.start_with(Vec::new(), &[], Arc::new(Quiet::default())).await;
    let status = live_status(&router).await.expect("reads");
    let found: Vec<_> =
        status.iter().map(|one| (one.case, one.state.as_str(), one.holder.as_deref())).collect();
    assert_eq!(found, [(taken, "held by a person", Some("owner")), (queued, "queued", None)]);
    assert_eq!(fleet.access(taken).await.intervals.len(), 1);
}

async fn holding(router: &CaseRouter) -> Vec<String> {
    let status = live_status(router).await.expect("reads");
    let held = status.iter().filter(|one| one.state == "held").filter_map(|one| one.holder.clone());
    let mut held: Vec<String> = held.collect();
    held.sort();
    held
}

/// After a restart an agent has no more cases than it may: those that it holds are counted before one is placed.
#[tokio::test]
async fn an_agent_takes_no_more_cases_than_it_may_after_a_restart() {
    let fleet = Fleet::new().await;
    let agents = |fleet: &Fleet| {
        let mut agent = fleet.agent("one", 500, &["-"]);
        agent.max_cases = 2;
        vec![agent]
    };
    let router = fleet.start_with(agents(&fleet), &[], Arc::new(Quiet::default())).await;
    for name in ["order 17", "order 18", "order 19"] {
        let mut case = refund_case("hello");
        case.names.case = name.into();
        router.open_case(case).await.expect("opens");
        // Ids of one moment have no order.
        fleet.hand.go_on(std::time::Duration::from_secs(1));
    }
    assert_eq!(holding(&router).await, ["one", "one"]);
    drop(router);
    let fleet = fleet.restarted().await;
    let router = fleet.start_with(agents(&fleet), &[], Arc::new(Quiet::default())).await;
    router.look_after_cases().await;
    assert_eq!(holding(&router).await, ["one", "one"]);
}
