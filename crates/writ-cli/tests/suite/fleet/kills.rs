//! Proxy and engine are killed at moments of chance, while agents go on asking; `cases` has the whole fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use writ_testkit::fleet::shop::{customer_at, order_of};

use crate::engine::{Engine, Link};
use crate::proxy::RunningProxy;

use super::world::{CaseKeys, World, begun_operations, operate};
use crate::chance::{Chance, number_of};

#[path = "kills/cases.rs"]
mod cases;

/// The kills of a run of the suite; `cargo xtask soak --fleet` sets `WRIT_FLEET_KILLS`.
const KILLS: u64 = 6;
/// The agents that ask at once.
const CLIENTS: u32 = 8;
/// The most answers between two kills.
const MOST_BETWEEN: u64 = 40;
/// The most requests of one agent: each has an amount of its own.
const MOST_AMOUNT: i64 = 500;
/// The most orders of an agent; with the amount an order names one request.
const ORDERS: u32 = 2;

/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// What a request came to, as its agent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Done,
    Unknown,
    /// It was under way for another one.
    UnderWay,
}

/// A refund: an order and an amount, which together are asked for once.
type Refund = (String, i64);

/// The number of proxies that were started, for those who wait for the next one.
#[derive(Default)]
struct Started {
    number: Mutex<u64>,
    more: Condvar,
}

impl Started {
    fn number(&self) -> u64 {
        *self.number.lock().expect("locks")
    }

    fn count_one(&self) {
        *self.number.lock().expect("locks") += 1;
        self.more.notify_all();
    }

    /// Waits for the next one, but not for long.
    fn pause(&self) {
        let number = self.number.lock().expect("locks");
        let seen = *number;
        drop(self.more.wait_timeout_while(number, PAUSE, |number| *number == seen).expect("locks"));
    }

    fn wait_after(&self, seen: u64) {
        let number = self.number.lock().expect("locks");
        drop(self.more.wait_while(number, |number| *number == seen).expect("locks"));
    }
}

/// Asks for one refund after the other, each again and again under its name until the answer is certain.
fn ask_until(
    (socket, keys, customer): (&Path, &CaseKeys, u32),
    (stop, started): (&AtomicBool, &Started),
    answered: &SyncSender<()>,
) -> BTreeMap<Refund, Known> {
    let mut known = BTreeMap::new();
    for number in 0..i64::from(ORDERS) * MOST_AMOUNT {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let order = order_of(customer, u32::try_from(number / MOST_AMOUNT).expect("small"));
        let amount = number % MOST_AMOUNT + 1;
        let (body, name) = (json!({ "order": order, "amount": amount }), format!("r-{number}"));
        let certain = loop {
            let seen = started.number();
            match operate(socket, (&keys.base, &keys.task), ("refund", &body), Some(&name)) {
                Some((200, answer)) => {
                    assert_eq!(answer["changed"], 1, "{answer}");
                    break Known::Done;
                }
                // It was under way when its proxy was killed.
                Some((409 | 504, _)) => break Known::Unknown,
                // No proxy is there, or it ended in the middle.
                None => started.wait_after(seen),
                // The engine's database is being recovered.
                Some((503, _)) => std::thread::yield_now(),
                Some(other) => panic!("{other:?}"),
            }
        };
        known.insert((order, amount), certain);
        // The one who counts may have counted enough, and listens no longer.
        let _counted = answered.send(());
    }
    known
}

/// Waits for a number of answers.
fn wait_for(answered: &Receiver<()>, count: u64) {
    for _ in 0..count {
        answered.recv().expect("agents go on");
    }
}

/// The money that moved is what the ledger says, nothing is done twice, and what is unknown is recorded as unknown.
///
/// Rows: SLO-027 (in part: killed) SLO-047 (in part: the list survives)
#[test]
fn needs_python_the_money_that_moved_is_that_of_the_ledger_over_kills_at_moments_of_chance() {
    let (kills, seed) = (number_of("WRIT_FLEET_KILLS", KILLS), number_of("WRIT_FLEET_SEED", 23));
    eprintln!("seed {seed}, {kills} kills");
    let mut chance = Chance::of_seed(seed);
    let world = World::new();
    let mut engine = Engine::start(&world.home, &[]).expect("ready");
    let first = RunningProxy::start(&world.home);
    let (base, _) = world.issue_base("agent", &json!({ "refund": { "max_amount": MOST_AMOUNT } }));
    let mut link = Link::open(&world.home).expect("connects");
    let cases: Vec<CaseKeys> = (0..CLIENTS)
        .map(|place| world.open_case(&mut link, &base, (&customer_at(place).id, &format!("case-{place}"))))
        .collect();
    drop(link);
    let socket = world.proxy("agents.sock");
    let (stop, started) = (AtomicBool::new(false), Started::default());
    let (sender, answered) = sync_channel(1024);
    let mut known: BTreeMap<Refund, Known> = BTreeMap::new();
    let proxy = std::thread::scope(|scope| {
        let mut proxy = first;
        let agents: Vec<_> = (0..CLIENTS)
            .zip(&cases)
            .map(|(place, keys)| {
                let (socket, flow, sender) = (&socket, (&stop, &started), sender.clone());
                scope.spawn(move || ask_until((socket, keys, place), flow, &sender))
            })
            .collect();
        for _ in 0..kills {
            wait_for(&answered, 1 + chance.below(MOST_BETWEEN));
            // The engine's database is what the proxy asks about revocations.
            if chance.below(4) == 0 {
                engine.signal(Signal::SIGKILL);
                engine.wait();
                engine = Engine::start(&world.home, &[]).expect("ready again");
            } else {
                proxy.end(Signal::SIGKILL);
                proxy = RunningProxy::start(&world.home);
                started.count_one();
            }
        }
        wait_for(&answered, u64::from(CLIENTS));
        stop.store(true, Ordering::Relaxed);
        // No agent waits for room to say that it has an answer.
        drop(answered);
        for agent in agents {
            known.extend(agent.join().expect("no agent fails"));
        }
        proxy
    });
    proxy.end(Signal::SIGTERM);
    assert_eq!(engine.stop().code, Some(0));
    eprintln!("{}", check_money(&world, &known));
    world.verify_ledgers();
}

/// Compares the database's own log, the ledger and what the agents know; returns the figures.
fn check_money(world: &World, known: &BTreeMap<Refund, Known>) -> String {
    let mut moved: BTreeSet<Refund> = BTreeSet::new();
    for change in world.changes() {
        let refund = (change.subject, change.amount);
        assert!(moved.insert(refund.clone()), "done twice: {refund:?}");
    }
    let mut recorded: BTreeMap<Refund, String> = BTreeMap::new();
    for begun in begun_operations(&world.proxy_entries()) {
        let refund =
            (begun.parameters["order"].clone(), begun.parameters["amount"].parse().expect("a number"));
        let outcome = begun.outcome.expect("whatever was begun has an outcome");
        assert_eq!(recorded.insert(refund.clone(), outcome), None, "begun twice: {refund:?}");
    }
    let (mut done, mut unknown, mut money) = (0, 0, 0);
    for (refund, outcome) in &recorded {
        let has_moved = moved.remove(refund);
        match outcome.as_str() {
            "done" => {
                assert!(has_moved, "the ledger says done: {refund:?}");
                (done, money) = (done + 1, money + refund.1);
            }
            "unknown" => {
                assert_ne!(known.get(refund), Some(&Known::Done), "{refund:?}");
                unknown += 1;
            }
            other => panic!("{other}: {refund:?}"),
        }
    }
    assert_eq!(moved, BTreeSet::new(), "money that no entry tells of");
    for (refund, certain) in known {
        let outcome = recorded.get(refund).map(String::as_str);
        let expected = match certain {
            Known::Done => &["done"][..],
            Known::Unknown => &["unknown"],
            Known::UnderWay => &["done", "unknown"],
        };
        assert!(outcome.is_some_and(|outcome| expected.contains(&outcome)), "{refund:?}: {outcome:?}");
    }
    assert!(done > 0);
    format!("{done} done with {money}, {unknown} unknown")
}
