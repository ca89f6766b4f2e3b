//! Five hundred cases of fifty customers at random, with eight agents of which three are hostile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testkit::fleet::shop::{CUSTOMERS, ORDERS_EACH, ShopChange, customer_at, order_of};
use writ_testkit::fleet::{KnownPlaces, REFUND_AGENT, write_agents};

use crate::chance::{Chance, number_of};
use crate::engine::{Engine, Link};
use crate::proxy::RunningProxy;
use crate::{code, text};

use super::world::{CaseKeys, World, begun_operations, operate};

/// The seed; `WRIT_FLEET_SEED` sets another one.
const SEED: u64 = 23;
/// The cases.
const CASES: usize = 500;
/// The agents, by their limits; the last three are hostile.
const LIMITS: [i64; 8] = [100, 200, 300, 400, 500, 100, 250, 500];
/// The number of the first hostile one.
const HOSTILE: usize = 5;
/// The clients at once.
const CLIENTS: usize = 4;
/// The requests that a hostile agent sends as fast as it can, in one of so many of its cases.
const FLOOD: usize = 16;
const FLOODS: u64 = 8;
/// The cases that are given to real processes besides.
const LOCKED: u32 = 4;

/// A case and who works on it.
struct Work {
    agent: usize,
    customer: u32,
    keys: CaseKeys,
    /// Those of another case, of another agent and customer.
    other: CaseKeys,
    /// Those of a case of the same agent whose task key was revoked, and its customer.
    revoked: Option<(CaseKeys, u32)>,
    seed: u64,
}

impl Asked {
    /// True if it was performed: an answer may also be that of an earlier request of the same name.
    pub(super) fn is_performed(&self) -> bool {
        self.status == 200 && !self.is_repeated()
    }

    fn is_repeated(&self) -> bool {
        self.answer["repeated"] == true
    }
}

/// A request and its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) agent: usize,
    pub(super) customer: u32,
    /// The token of its case.
    pub(super) case: String,
    pub(super) operation: &'static str,
    pub(super) body: Value,
    pub(super) status: u16,
    pub(super) answer: Value,
}

fn agent_name(agent: usize) -> String {
    format!("agent-{agent}")
}

/// What an honest agent does with a case.
fn work_honestly(socket: &Path, work: &Work, chance: &mut Chance, asked: &mut Vec<Asked>) {
    let order = order_of(work.customer, u32::try_from(chance.below(u64::from(ORDERS_EACH))).expect("small"));
    let limit = u64::try_from(LIMITS[work.agent]).expect("positive");
    let amount = 1 + chance.below(limit);
    for (operation, body) in [
        ("read_orders", json!({})),
        ("read_customer", json!({})),
        ("refund", json!({ "order": order, "amount": amount })),
        ("send_email", json!({ "template": "confirmation", "order": order, "amount": amount })),
    ] {
        ask(socket, work, (&work.keys.base, &work.keys.task), (operation, body), asked);
    }
}

/// What a hostile one tries.
fn work_hostilely(socket: &Path, work: &Work, chance: &mut Chance, asked: &mut Vec<Asked>) {
    let stranger =
        (work.customer + 1 + u32::try_from(chance.below(u64::from(CUSTOMERS) - 1)).expect("small"))
            % CUSTOMERS;
    let (own, foreign) = (order_of(work.customer, 0), order_of(stranger, 0));
    let limit = LIMITS[work.agent];
    let (base, task) = (work.keys.base.as_str(), work.keys.task.as_str());
    let mut forged = task.to_owned();
    // One letter in the middle, so that it is still a text of its form.
    let middle = forged.len() / 2;
    let letter = if &forged[middle..=middle] == "A" { "B" } else { "A" };
    forged.replace_range(middle..=middle, letter);
    let tries: [((&str, &str), &'static str, Value); 16] = [
        ((base, task), "refund", json!({ "order": own, "amount": limit + 1 })),
        ((base, task), "refund", json!({ "order": own, "amount": i64::MAX })),
        ((base, task), "refund", json!({ "order": own, "amount": -1 })),
        ((base, task), "refund", json!({ "order": foreign, "amount": 1 })),
        ((base, task), "refund", json!({ "order": format!("{own}' OR '1'='1"), "amount": 1 })),
        (
            (base, task),
            "refund",
            json!({ "order": own, "amount": 1, "customer_token": work.other.customer_token }),
        ),
        ((base, task), "read_orders", json!({ "customer_token": work.other.customer_token })),
        ((base, task), "read_orders", json!({ "case_token": work.other.case_token })),
        ((base, task), "read_customer", json!({ "customer_token": customer_at(stranger).id })),
        ((base, task), "change_address", json!({ "address": "1 Elsewhere" })),
        ((base, task), "drop_tables", json!({})),
        ((base, task), "send_email", json!({ "template": "free text", "order": own, "amount": 1 })),
        ((base, &work.other.task), "read_orders", json!({})),
        ((&work.other.base, task), "read_orders", json!({})),
        ((base, &forged), "read_orders", json!({})),
        ((task, base), "read_orders", json!({})),
    ];
    for _ in 0..6 {
        let (keys, operation, body) = chance.pick(&tries).clone();
        ask(socket, work, keys, (operation, body), asked);
    }
    work_in_ways_of_attackers(socket, work, chance, asked);
    // It does its own work as well, so that not everything of it is refused.
    ask(socket, work, (base, task), ("read_orders", json!({})), asked);
    ask(socket, work, (base, task), ("refund", json!({ "order": own, "amount": limit })), asked);
}

/// Repeats a named request, also with another content, uses a revoked key, and floods.
fn work_in_ways_of_attackers(socket: &Path, work: &Work, chance: &mut Chance, asked: &mut Vec<Asked>) {
    let keys = (work.keys.base.as_str(), work.keys.task.as_str());
    let own = order_of(work.customer, 1);
    let name = format!("once-{}", chance.below(1_000_000));
    let before = asked.len();
    for amount in [7, 7, 7, 8, 7] {
        let deed = ("refund", json!({ "order": own, "amount": amount }));
        ask_named(socket, work, keys, deed, Some(&name), asked);
    }
    // The first is done and its answer repeated; the name is good for no other content.
    let done: Vec<(u16, bool)> = asked[before..].iter().map(|one| (one.status, one.is_repeated())).collect();
    assert_eq!(done, [(200, false), (200, true), (200, true), (409, false), (200, true)]);
    if let Some((revoked, customer)) = &work.revoked {
        let (status, answer) = operate(
            socket,
            (&revoked.base, &revoked.task),
            ("refund", &json!({ "order": order_of(*customer, 0), "amount": 1 })),
            Some(&name),
        )
        .expect("the proxy answers");
        let (body, case) =
            (json!({ "order": order_of(*customer, 0), "amount": 1 }), revoked.case_token.clone());
        assert_eq!(status, 401, "{answer}");
        let (agent, customer, operation) = (work.agent, *customer, "refund");
        asked.push(Asked { agent, customer, case, operation, body, status, answer });
    }
    if chance.below(FLOODS) == 0 {
        let flood = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..FLOOD)
                .map(|_| {
                    scope.spawn(move || {
                        let mut asked = Vec::new();
                        ask(socket, work, keys, ("read_orders", json!({})), &mut asked);
                        asked
                    })
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().expect("no client fails")).collect::<Vec<_>>()
        });
        asked.extend(flood);
    }
}

fn ask(socket: &Path, work: &Work, keys: (&str, &str), deed: (&'static str, Value), asked: &mut Vec<Asked>) {
    ask_named(socket, work, keys, deed, None, asked);
}

fn ask_named(
    socket: &Path,
    work: &Work,
    keys: (&str, &str),
    (operation, body): (&'static str, Value),
    name: Option<&str>,
    asked: &mut Vec<Asked>,
) {
    let (status, answer) = operate(socket, keys, (operation, &body), name).expect("the proxy answers");
    let (agent, customer, case) = (work.agent, work.customer, work.keys.case_token.clone());
    asked.push(Asked { agent, customer, case, operation, body, status, answer });
}

/// Gives a case to a locked-in process, as the router would, and returns what it says.
fn run_locked(world: &World, (base, task): (&Path, &Path), customer: u32) -> String {
    let folder = world.home.dir.path().join("agents").join(REFUND_AGENT);
    let order = order_of(customer, 1);
    let line = json!({ "case": {}, "conversation": [{ "from": "guest", "text": format!("Please refund 20 for order {order}") }] });
    let path = |path: &Path| path.to_str().expect("text").to_owned();
    let (base, task, folder) = (path(base), path(task), path(&folder));
    let args = [
        "run", "--base", &base, "--task", &task, "--folder", &folder, "--", "python3", "agent.py", "manager",
    ];
    let done = world.home.run_with(&args, format!("{line}\n").as_bytes());
    assert_eq!(code(&done), 0, "{}", text(&done));
    String::from_utf8(done.stdout).expect("UTF-8")
}

/// The parts of a run.
struct RunningFleet {
    world: World,
    engine: Engine,
    proxy: RunningProxy,
    link: Link,
    /// The base keys of the agents.
    bases: Vec<(String, PathBuf)>,
}

impl RunningFleet {
    fn start(world: World) -> Self {
        let engine = Engine::start(&world.home, &[]).expect("ready");
        let proxy = RunningProxy::start(&world.home);
        let bases = (0..LIMITS.len())
            .map(|agent| {
                let capabilities = json!({ "read_orders": {}, "read_customer": {}, "refund": { "max_amount": LIMITS[agent] },
                    "send_email": { "templates": ["confirmation"] } });
                world.issue_base(&agent_name(agent), &capabilities)
            })
            .collect();
        let link = Link::open(&world.home).expect("connects");
        Self { world, engine, proxy, link, bases }
    }

    /// Opens the cases of a seed, and has several clients at once work on them.
    fn play_cases(&mut self, seed: u64) -> Vec<Asked> {
        let mut chance = Chance::of_seed(seed);
        let opened: Vec<(usize, u32, CaseKeys)> = (0..CASES)
            .map(|case| {
                let agent = usize::try_from(chance.below(8)).expect("small");
                let customer = u32::try_from(chance.below(u64::from(CUSTOMERS))).expect("small");
                let (id, case) = (customer_at(customer).id, format!("case-{case}"));
                let keys = self.world.open_case(&mut self.link, &self.bases[agent].0, (&id, &case));
                (agent, customer, keys)
            })
            .collect();
        let revoked: Vec<(CaseKeys, u32)> = (HOSTILE..LIMITS.len())
            .map(|agent| {
                let customer = u32::try_from(agent).expect("small");
                let (id, case) = (customer_at(customer).id, format!("revoked-{agent}"));
                (self.world.open_revoked(&mut self.link, &self.bases[agent].0, (&id, &case)), customer)
            })
            .collect();
        let work: Vec<Work> = opened
            .iter()
            .map(|(agent, customer, keys)| {
                let other = opened.iter().find(|(a, c, _)| a != agent && c != customer).expect("another one");
                let (keys, other) = (keys.clone(), other.2.clone());
                let revoked = agent.checked_sub(HOSTILE).map(|place| revoked[place].clone());
                Work {
                    agent: *agent,
                    customer: *customer,
                    keys,
                    other,
                    revoked,
                    seed: chance.below(u64::MAX),
                }
            })
            .collect();
        work_at_once(&self.world.proxy("agents.sock"), &work)
    }

    /// Ends everything, and checks what holds whatever the database is.
    fn finish(self, asked: &[Asked]) {
        let Self { world, engine, proxy, link, .. } = self;
        drop(link);
        proxy.end(Signal::SIGTERM);
        check_reads(asked);
        check_changes(&world, asked);
        check_mails(&world, asked);
        check_entries(&world, asked);
        assert_eq!(engine.stop().code, Some(0));
        world.verify_ledgers();
    }
}

/// Works on the cases with [`CLIENTS`] clients.
fn work_at_once(socket: &Path, work: &[Work]) -> Vec<Asked> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = work
            .chunks(CASES.div_ceil(CLIENTS))
            .map(|part| {
                scope.spawn(move || {
                    let mut asked = Vec::new();
                    for work in part {
                        let mut chance = Chance::of_seed(work.seed);
                        let deed = if work.agent < HOSTILE { work_honestly } else { work_hostilely };
                        deed(socket, work, &mut chance, &mut asked);
                    }
                    asked
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("no client fails")).collect()
    })
}

/// Nothing of a customer is read or changed under the key of another's case, no amount is above its limit, and each request
/// has left one decision: by what the server of the database has logged of each statement, and by the ledger.
///
/// Rows: SLO-026 SLO-027 SLO-028
/// Rows: SLO-025 (in part: no data of another customer)
#[test]
fn needs_postgres_needs_python_no_statement_of_five_hundred_cases_leaves_its_customer_by_the_databases_own_log()
 {
    let mut fleet = RunningFleet::start(World::logged());
    let seed = number_of("WRIT_FLEET_SEED", SEED);
    eprintln!("seed {seed}");
    let asked = fleet.play_cases(seed);
    let shop = fleet.world.logged.as_ref().expect("it was started");
    // The server logs a statement before it performs it.
    let log = shop.read_log();
    assert_eq!(shop.find_strays(&log, &asked), Vec::<String>::new());
    // A statement without its scope is one, whoever sent it; and so is one of another customer, or one too many.
    for more in [
        "writ:LOG:  execute s9: SELECT id FROM orders ORDER BY id\n",
        "writ:LOG:  execute s9: UPDATE orders SET refunded = 1 WHERE (id = $1)\nwrit:DETAIL:  parameters: $1 = 'O1011'\n",
        "writ:LOG:  execute s9: SELECT id FROM orders AS o WHERE o.\"customer_id\" = $1\nwrit:DETAIL:  parameters: $1 = '101'\n",
        "writ:LOG:  statement: TABLE customers\n",
    ] {
        assert_ne!(shop.find_strays(&format!("{log}{more}"), &asked), Vec::<String>::new(), "{more}");
    }
    fleet.finish(&asked);
}

/// The same at SQLite, where the database notes changes alone; and locked-in processes, which hold no key, ask as well.
///
/// Rows: SLO-025 SLO-026 SLO-027 SLO-028 SLO-067 (in part: authority, other customers, a full record)
#[test]
fn needs_userns_needs_python_five_hundred_cases_at_random_stay_within_their_customers_and_limits() {
    let mut fleet = RunningFleet::start(World::new());
    let seed = number_of("WRIT_FLEET_SEED", SEED);
    eprintln!("seed {seed}");
    let mut asked = fleet.play_cases(seed);
    let RunningFleet { world, link, bases, .. } = &mut fleet;
    let socket = world.proxy("agents.sock");
    // The same with processes, which hold no key: a few, since each case is judged alike.
    let known = KnownPlaces { shop: &socket, ledgers: [&socket, &socket], key: &socket, mail: "127.0.0.1:9" };
    write_agents(&world.home.dir.path().join("agents"), &known).expect("written");
    for customer in 0..LOCKED {
        let keys =
            world.open_case(link, &bases[4].0, (&customer_at(customer).id, &format!("locked-{customer}")));
        let task = world.write_key("locked.jwt", &keys.task);
        let said = run_locked(world, (&bases[4].1, &task), customer);
        assert!(said.contains("are refunded"), "{said}");
        // It asks twice: for the refund, and for the mail.
        for (operation, body) in [
            ("refund", json!({ "order": order_of(customer, 1), "amount": 20 })),
            (
                "send_email",
                json!({ "template": "confirmation", "order": order_of(customer, 1), "amount": 20 }),
            ),
        ] {
            let (status, answer) = (200, json!({ "rows": [], "changed": 1, "truncated": false }));
            let case = keys.case_token.clone();
            asked.push(Asked { agent: 4, customer, case, operation, body, status, answer });
        }
    }
    fleet.finish(&asked);
}

/// What came back names orders of the case's own customer alone, and no one's name or address.
fn check_reads(asked: &[Asked]) {
    let everyone: Vec<_> = (0..CUSTOMERS).map(customer_at).collect();
    let mut read = 0;
    for one in asked {
        let shown = one.answer.to_string();
        for customer in 0..CUSTOMERS {
            for order in 0..ORDERS_EACH {
                let is_shown = shown.contains(&format!("\"{}\"", order_of(customer, order)));
                assert!(!is_shown || customer == one.customer, "a read across customers: {one:?}");
                read += usize::from(is_shown);
            }
        }
        for person in &everyone {
            let is_plain = shown.contains(&person.name) || shown.contains(&person.email);
            assert!(!is_plain, "a name or an address: {one:?}");
        }
    }
    assert!(read > CASES, "orders were read: {read}");
}

/// The database has noted the refunds that were answered with success, and no other change.
fn check_changes(world: &World, asked: &[Asked]) {
    let mut noted: BTreeMap<(String, String, i64), usize> = BTreeMap::new();
    for ShopChange { subject, customer, amount } in world.changes() {
        *noted.entry((subject, customer, amount)).or_default() += 1;
    }
    let mut answered: BTreeMap<(String, String, i64), usize> = BTreeMap::new();
    for one in asked
        .iter()
        .filter(|one| one.operation == "refund" && one.is_performed() && one.answer["changed"] == 1)
    {
        let amount = one.body["amount"].as_i64().expect("a number");
        assert!((1..=LIMITS[one.agent]).contains(&amount), "above its limit: {one:?}");
        let order = one.body["order"].as_str().expect("a text").to_owned();
        *answered.entry((order, customer_at(one.customer).id, amount)).or_default() += 1;
    }
    assert!(answered.len() > 100, "something was refunded");
    assert_eq!(noted, answered);
}

/// Each mail went to the customer of its case.
fn check_mails(world: &World, asked: &[Asked]) {
    let mut sent: BTreeMap<String, usize> = BTreeMap::new();
    for mail in world.sink.mails() {
        let [to] = mail.to.as_slice() else { panic!("one recipient: {mail:?}") };
        let order = mail
            .lines
            .iter()
            .find_map(|line| line.strip_prefix("Subject: Refund for order "))
            .expect("a subject");
        *sent.entry(format!("{to} {order}")).or_default() += 1;
    }
    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
    for one in asked.iter().filter(|one| one.operation == "send_email" && one.is_performed()) {
        let order = one.body["order"].as_str().expect("a text");
        *answered.entry(format!("{} {order}", customer_at(one.customer).email)).or_default() += 1;
    }
    assert_eq!(sent, answered);
}

/// Each request has left one decision, of its kind, and what was begun has its outcome.
fn check_entries(world: &World, asked: &[Asked]) {
    let entries = world.proxy_entries();
    let count = |event: &str| entries.iter().filter(|entry| entry["event"] == event).count();
    let performed = asked.iter().filter(|one| one.is_performed() || one.status == 503).count();
    let served = asked.iter().filter(|one| one.is_repeated()).count();
    let denied = asked.len() - performed - served;
    assert_eq!((count("intent"), count("denied"), count("served")), (performed, denied, served));
    assert!(served > 100, "{served} were repeated");
    for one in asked {
        assert!([200, 401, 403, 409, 422].contains(&one.status), "{one:?}");
    }
    for by in [401, 409] {
        assert!(asked.iter().any(|one| one.status == by), "{by}");
    }
    let of_case = |case: &str, operation: &str, order: &str, amount: &str| {
        [case, operation, order, amount].map(str::to_owned)
    };
    let mut answered: BTreeMap<[String; 4], usize> = BTreeMap::new();
    for one in asked.iter().filter(|one| one.is_performed()) {
        let order = one.body["order"].as_str().unwrap_or_default();
        let amount = one.body["amount"].as_i64().map(|amount| amount.to_string()).unwrap_or_default();
        *answered.entry(of_case(&one.case, one.operation, order, &amount)).or_default() += 1;
    }
    let mut entered: BTreeMap<[String; 4], usize> = BTreeMap::new();
    for begun in begun_operations(&entries) {
        let given = |name: &str| begun.parameters.get(name).map(String::as_str).unwrap_or_default();
        let row = of_case(given("case_token"), &begun.operation, given("order"), given("amount"));
        *entered.entry(row).or_default() += 1;
        assert_eq!(begun.outcome.as_deref(), Some("done"), "{begun:?}");
        let agent: usize =
            begun.agent.strip_prefix("agent-").and_then(|n| n.parse().ok()).expect("one of ours");
        if begun.operation == "refund" {
            let amount: i64 = begun.parameters["amount"].parse().expect("a number");
            assert!(amount <= LIMITS[agent], "{begun:?}");
        }
    }
    assert_eq!(entered, answered, "what was answered was begun for its own case, once");
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for one in asked.iter().filter(|one| one.status != 200) {
        *refused.entry(one.operation).or_default() += 1;
    }
    let mut denied: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["event"] == "denied") {
        let operation = entry.pointer("/payload/requester/operation").and_then(Value::as_str);
        *denied.entry(operation.expect("an operation")).or_default() += 1;
    }
    assert_eq!(denied, refused);
}
