//! Router, proxy, launchers and agents are killed at moments of chance, while cases go from hand to hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use writ_testkit::fleet::front::send_request;
use writ_testkit::fleet::shop::{ORDERS_EACH, customer_at, order_of};
use writ_types::api::fleet::AccessInterval;

use crate::cases_needs_python::{launchers, wait_for};
use crate::engine::{Engine, PATIENCE, stop_engine_of};
use crate::proxy::RunningProxy;
use crate::run::below;
use crate::{Home, code, text};

use super::super::world::World;
use super::{KILLS, Known, Refund, Started, check_money};
use crate::chance::{Chance, number_of};

const AGENT: &str = include_str!("agent.py");
/// The guests at once.
const GUESTS: u32 = 4;
/// The most steps of guests between two kills.
const MOST_STEPS: u64 = 8;
/// The most milliseconds after such a step, so that a kill falls between two of them as well.
const MOST_LINGER: u64 = 400;
/// The most requests of one case.
const REQUESTS: u64 = 3;
/// The most that an agent refunds; every third request is above it, and goes to a manager.
const LIMIT: i64 = 100_000;
/// The looks at a conversation after which a person looks at the queue.
const LOOKS: u32 = 50;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// Each `writ run`.
    Launchers,
    Router,
    /// One process of each agent.
    Agents,
    Proxy,
    RouterAndProxy,
}

/// In turn, so that a few kills meet all of them.
const VICTIMS: [Victim; 5] =
    [Victim::Launchers, Victim::Router, Victim::Agents, Victim::Proxy, Victim::RouterAndProxy];

/// What guests and people share.
struct FrontEnd<'a> {
    home: &'a Home,
    socket: PathBuf,
    bearer: String,
    stop: AtomicBool,
    started: Started,
    steps: SyncSender<()>,
    /// Cases that a guest waits for.
    wanted: Mutex<BTreeSet<String>>,
    /// Held to read while a case is opened.
    opening: RwLock<()>,
}

impl FrontEnd<'_> {
    /// The open cases and their states; none where the engine goes away meanwhile.
    fn cases(&self) -> Vec<(String, String)> {
        let shown = self.home.run(&["fleet", "status", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let text = |one: &Value, name: &str| one[name].as_str().expect("a text").to_owned();
        let cases = shown["cases"].as_array().into_iter().flatten();
        cases.map(|one| (text(one, "case"), text(one, "state"))).collect()
    }

    /// A person takes over what waits in the queue, and ends it. The router may be killed in between: then it is done again.
    fn look_at_queue(&self, case: &str) {
        let cases = self.cases();
        let state = cases.iter().find(|(id, _)| id == case).map(|(_, state)| state.as_str());
        if state == Some("queued") {
            let _taken = self.home.run(&["fleet", "take", case]);
        }
        if matches!(state, Some("queued" | "held by a person")) {
            let _answered = self.home.run(&["fleet", "answer", case, "a person looks at it"]);
            let _closed = self.home.run(&["fleet", "close", case]);
        }
    }

    /// Closes the cases whose openings got no answer: no guest knows of them.
    fn close_unknown(&self) {
        let _none_is_opened = self.opening.write().expect("locks");
        for (case, _) in self.cases() {
            if !self.wanted.lock().expect("locks").contains(&case) {
                let _closed = self.home.run(&["fleet", "close", &case]);
            }
        }
    }
}

/// A guest after the other, each with a case of its own.
struct Guests<'a> {
    front: &'a FrontEnd<'a>,
    runtime: Runtime,
    place: u32,
    chance: Chance,
    /// The number of the next request: each has an amount of its own.
    next: u32,
    known: BTreeMap<Refund, Known>,
}

impl Guests<'_> {
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let headers = [("authorization", self.front.bearer.as_str())];
        let asked = send_request(&self.front.socket, (method, path), &headers, body);
        // The engine is not there, or ended in the middle.
        let answer = self.runtime.block_on(asked).ok()?;
        Some((answer.status, answer.body))
    }

    /// Asks again and again, until there is an answer; for what may be done twice.
    fn ask_until(&self, path: &str, body: &Value) -> u16 {
        let begun = Instant::now();
        loop {
            match self.ask("POST", path, Some(body)) {
                Some((409 | 503, _)) | None => {}
                Some((status, _)) => return status,
            }
            assert!(begun.elapsed() < PATIENCE, "{path} is not answered");
            self.front.started.pause();
        }
    }

    fn next_refund(&mut self) -> Refund {
        let number = self.next;
        self.next += 1;
        let more = if number % 3 == 1 { LIMIT } else { 0 };
        (order_of(self.place, number % ORDERS_EACH), i64::from(number) + 1 + more)
    }

    /// Says that something has happened.
    fn step(&self) {
        // The one who counts may have counted enough.
        let _counted = self.front.steps.try_send(());
    }

    /// Opens a case. One whose opening gets no answer may be open: then another one is opened, for another refund.
    fn open(&mut self) -> Option<(String, Refund)> {
        while !self.front.stop.load(Ordering::Relaxed) {
            let refund = self.next_refund();
            let case = format!("case {}-{}", self.place, self.next);
            let body = json!({ "customer": customer_at(self.place).id, "case": case, "capability": "refund",
                "message": words(0, &refund) });
            let opening = self.front.opening.read().expect("locks");
            match self.ask("POST", "/cases", Some(&body)) {
                Some((201, opened)) => {
                    let id = opened["id"].as_str().expect("an id").to_owned();
                    self.front.wanted.lock().expect("locks").insert(id.clone());
                    return Some((id, refund));
                }
                Some((503, _)) | None => {}
                Some(other) => panic!("{other:?}"),
            }
            drop(opening);
            self.front.started.pause();
        }
        None
    }

    /// Waits until an agent says what a request came to; `None`: the case has ended.
    fn until_answered(&self, case: &str, number: u64) -> Option<Known> {
        let (begun, mut looks) = (Instant::now(), 0);
        loop {
            match self.ask("GET", &format!("/cases/{case}/messages"), None) {
                Some((200, page)) => {
                    if let Some(known) = find_answer(&page, number) {
                        return Some(known);
                    }
                    if page["is_open"] == false {
                        return None;
                    }
                }
                Some((503, _)) | None => {}
                Some(other) => panic!("{other:?}"),
            }
            looks += 1;
            if looks >= LOOKS {
                looks = 0;
                self.front.look_at_queue(case);
            }
            let waited = begun.elapsed();
            assert!(waited < PATIENCE, "{case}: request {number} is not answered: {:?}", self.front.cases());
            self.front.started.pause();
        }
    }

    /// Has one case opened, worked on and closed; `None`: no further one is wanted.
    fn serve_one(&mut self) -> Option<()> {
        let (case, mut refund) = self.open()?;
        self.step();
        for number in 0..=self.chance.below(REQUESTS) {
            if number > 0 {
                refund = self.next_refund();
                let said = json!({ "text": words(number, &refund) });
                let status = self.ask_until(&format!("/cases/{case}/messages"), &said);
                assert!([202, 404].contains(&status), "{status}");
                self.step();
            }
            let Some(known) = self.until_answered(&case, number) else { break };
            self.known.insert(refund.clone(), known);
            self.step();
        }
        // What is open at the end is looked at.
        if self.front.stop.load(Ordering::Relaxed) {
            return None;
        }
        let status = self.ask_until(&format!("/cases/{case}/close"), &json!({}));
        assert!([200, 404].contains(&status), "{status}");
        self.front.wanted.lock().expect("locks").remove(&case);
        self.step();
        Some(())
    }
}

/// What a guest writes.
fn words(number: u64, (order, amount): &Refund) -> String {
    format!("refund {number} {order} {amount}")
}

fn find_answer(page: &Value, number: u64) -> Option<Known> {
    let messages = page["messages"].as_array().expect("a list").iter();
    let mut said = messages.filter(|one| one["from"].as_str().is_some_and(|from| from.starts_with("agent ")));
    said.find_map(|one| {
        let (of, outcome) = one["text"].as_str()?.split_once(' ')?;
        if of.parse() != Ok(number) {
            return None;
        }
        match outcome {
            "done" => Some(Known::Done),
            "unknown" => Some(Known::UnderWay),
            other => panic!("request {number}: {other}"),
        }
    })
}

fn serve_guests(front: &FrontEnd<'_>, place: u32, seed: u64) -> BTreeMap<Refund, Known> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let chance = Chance::of_seed(seed.wrapping_add(u64::from(place)));
    let mut guests = Guests { front, runtime, place, chance, next: 0, known: BTreeMap::new() };
    while guests.serve_one().is_some() {}
    guests.known
}

/// What is killed and started again.
struct Running {
    engine: Engine,
    proxy: Option<RunningProxy>,
}

impl Running {
    fn start(home: &Home) -> Self {
        let proxy = Some(RunningProxy::start(home));
        Self { engine: Engine::start(home, &[]).expect("ready"), proxy }
    }

    /// Kills it, and starts it again where that is not the router's work. Returns false if there is none now.
    fn kill(&mut self, victim: Victim, front: &FrontEnd<'_>, chance: &mut Chance) -> bool {
        let (router, proxy) = match victim {
            Victim::Router => (true, false),
            Victim::Proxy => (false, true),
            Victim::RouterAndProxy => (true, true),
            // All that run, since one alone may just have ended its case.
            Victim::Launchers => {
                return launchers(&self.engine).into_iter().filter(|pid| kill_one(&[*pid], chance)).count()
                    > 0;
            }
            Victim::Agents => {
                let all = launchers(&self.engine).into_iter();
                return all.filter(|pid| kill_one(&below(*pid), chance)).count() > 0;
            }
        };
        if router {
            self.engine.signal(Signal::SIGKILL);
            self.engine.wait();
        }
        if proxy {
            self.proxy.take().expect("it runs").end(Signal::SIGKILL);
            self.proxy = Some(RunningProxy::start(front.home));
        }
        if router {
            self.engine = Engine::start(front.home, &[]).expect("ready again");
        }
        front.started.count_one();
        if router {
            front.close_unknown();
        }
        true
    }
}

/// Kills one of some processes.
fn kill_one(pids: &[u32], chance: &mut Chance) -> bool {
    if pids.is_empty() {
        return false;
    }
    let pid = i32::try_from(*chance.pick(pids)).expect("a process id");
    // It may have ended meanwhile.
    kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()
}

/// Waits for a number of steps of guests, and some time more.
fn wait_for_moment(steps: &Receiver<()>, chance: &mut Chance) {
    wait_for_steps(steps, 1 + chance.below(MOST_STEPS));
    let end = Instant::now() + Duration::from_millis(chance.below(MOST_LINGER));
    while steps.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
}

fn wait_for_steps(steps: &Receiver<()>, count: u64) {
    for _ in 0..count {
        steps.recv_timeout(PATIENCE).expect("guests go on");
    }
}

/// Deploys the agents; every process of theirs has `mark` among its arguments.
fn deploy_agents(home: &Home, mark: &str) {
    for (name, roles, above, most) in [
        ("clerk", "", "manager", LIMIT),
        ("second-clerk", "", "manager", LIMIT),
        ("senior", "\"manager\"", "human", 10 * LIMIT),
    ] {
        let folder = home.dir.path().join("sources").join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let manifest = format!(
            "name = \"{name}\"\nversion = \"1\"\nprogram = [\"python3\", \"agent.py\", \"{above}\", \"{mark}\"]\n\
             roles = [{roles}]\nmax_cases = 8\n\
             [capabilities]\nrefund = {{ max_amount = {most} }}\nescalate_to = [\"manager\", \"human\"]\n"
        );
        std::fs::write(folder.join("agent.toml"), manifest).expect("written");
        std::fs::write(folder.join("agent.py"), AGENT).expect("written");
        let folder = folder.to_str().expect("UTF-8");
        for args in [&["agent", "bless", folder, "--yes"][..], &["agent", "deploy", folder]] {
            let done = home.run(args);
            assert_eq!(code(&done), 0, "{args:?}: {}", text(&done));
        }
    }
    // The commands have started one, without the router.
    stop_engine_of(home);
    let config = home.root().join("config.toml");
    let mut lines = std::fs::read_to_string(&config).expect("is there");
    lines.push_str("\n[fleet]\ncases = true\n");
    std::fs::write(config, lines).expect("written");
}

/// One case has one holder at every moment, whatever is killed; what a holder leaves behind ends with its time; and the money
/// that moved is that of the ledger.
///
/// Rows: SLO-048 (in part: after a crash) SLO-051 (in part: over kills) SLO-053 (in part: over kills)
#[test]
fn needs_userns_needs_python_a_case_has_one_holder_at_every_moment_over_kills_of_all_who_touch_it() {
    let (kills, seed) = (number_of("WRIT_FLEET_KILLS", KILLS), number_of("WRIT_FLEET_SEED", 23));
    eprintln!("seed {seed}, {kills} kills");
    let mut chance = Chance::of_seed(seed);
    let world = World::new();
    let home = &world.home;
    let mark = home.dir.path().to_str().expect("UTF-8").to_owned();
    deploy_agents(home, &mark);
    let token = home.json(&["fleet", "token"])["token"].as_str().expect("a token").to_owned();
    let (sender, steps) = sync_channel(1024);
    let front = FrontEnd {
        home,
        socket: home.root().join("runtime/cases.sock"),
        bearer: format!("Bearer {token}"),
        stop: AtomicBool::new(false),
        started: Started::default(),
        steps: sender,
        wanted: Mutex::default(),
        opening: RwLock::default(),
    };
    let mut running = Running::start(home);
    let mut known: BTreeMap<Refund, Known> = BTreeMap::new();
    std::thread::scope(|scope| {
        let front = &front;
        let guests: Vec<_> =
            (0..GUESTS).map(|place| scope.spawn(move || serve_guests(front, place, seed))).collect();
        for (_, victim) in (0..kills).zip(VICTIMS.iter().cycle()) {
            wait_for_moment(&steps, &mut chance);
            while !running.kill(*victim, front, &mut chance) {
                wait_for_steps(&steps, 1);
            }
        }
        wait_for_steps(&steps, u64::from(GUESTS));
        front.stop.store(true, Ordering::Relaxed);
        for guest in guests {
            known.extend(guest.join().expect("no guest fails"));
        }
    });
    check_leftovers(&front, &running.engine, &mark);
    assert_eq!(running.engine.stop().code, Some(0));
    running.proxy.expect("it runs").end(Signal::SIGTERM);
    eprintln!("{}; {}", check_money(&world, &known), check_holders(&world));
    world.verify_ledgers();
}

/// The processes that have a word among their arguments.
fn marked(word: &str) -> BTreeSet<u32> {
    let all = std::fs::read_dir("/proc").expect("reads").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
    .collect()
}

/// The files of agents' launchers: keys and reports.
fn launch_files(home: &Home) -> Vec<String> {
    let files = std::fs::read_dir(home.root().join("runtime/agents")).expect("reads");
    files.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect()
}

/// Whoever holds a case has one process, two key files and a report; no other agent has any, and after the last case none is left.
fn check_leftovers(front: &FrontEnd<'_>, engine: &Engine, mark: &str) {
    let fits = || {
        let (cases, files, running) = (front.cases(), launch_files(front.home), launchers(engine));
        let held: Vec<&str> =
            cases.iter().filter(|(_, state)| state == "held").map(|(case, _)| case.as_str()).collect();
        let of = |case: &str| files.iter().filter(|file| file.starts_with(&format!("{case}-"))).count();
        let own: BTreeSet<u32> =
            running.iter().flat_map(|pid| std::iter::once(*pid).chain(below(*pid))).collect();
        held.iter().all(|case| of(case) == 3)
            && (files.len(), running.len()) == (3 * held.len(), held.len())
            && marked(mark).is_subset(&own)
    };
    let shown = || format!("{:?} {:?} {:?}", front.cases(), launch_files(front.home), marked(mark));
    wait_for(fits, shown);
    for (case, _) in front.cases() {
        let closed = front.home.run(&["fleet", "close", &case]);
        assert_eq!(code(&closed), 0, "{}", text(&closed));
    }
    wait_for(
        || launch_files(front.home).is_empty() && marked(mark).is_empty() && launchers(engine).is_empty(),
        shown,
    );
    assert!(front.cases().is_empty());
}

/// Who holds a case, entry by entry.
#[derive(Default)]
struct HeldCase {
    token: String,
    holder: Option<Value>,
    /// The keys of those whose time has ended.
    ended: Vec<String>,
    /// The number of times that it was given to someone.
    times: usize,
}

/// Follows each case through the engine's ledger, and has the command say the same; returns the figures.
fn check_holders(world: &World) -> String {
    let export = world.home.run(&["audit", "export"]);
    assert_eq!(code(&export), 0, "{}", text(&export));
    let export = String::from_utf8(export.stdout).expect("UTF-8");
    let (mut cases, mut revoked) = (BTreeMap::<String, HeldCase>::new(), BTreeSet::<String>::new());
    let mut tasks = BTreeMap::<String, String>::new();
    let mut changes = BTreeMap::<String, u32>::new();
    for line in export.lines() {
        let entry: Value = serde_json::from_str(line).expect("a row");
        let of = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        if entry["event"] == "keyed" && of("/payload/change") == "revoked" {
            revoked.insert(of("/payload/key"));
        }
        if entry["event"] != "case_moved" {
            continue;
        }
        let cause = of("/payload/record/reason").split(':').next().unwrap_or_default().to_owned();
        let kind = match of("/payload/record/change").as_str() {
            "rerouted" => cause,
            change => change.to_owned(),
        };
        *changes.entry(kind).or_default() += 1;
        let record = &entry["payload"]["record"];
        let case = cases.entry(of("/session")).or_default();
        case.token = of("/payload/record/case");
        if !record["ended"].is_null() {
            assert_eq!(case.holder.take().as_ref(), Some(&record["ended"]), "{entry}");
            case.ended.extend(record["ended"]["key"].as_str().map(str::to_owned));
        }
        if !record["began"].is_null() {
            assert_eq!(case.holder, None, "two at once: {entry}");
            let alive = case.ended.iter().find(|key| !revoked.contains(*key));
            assert_eq!(alive, None, "the key of an earlier holder is in force: {entry}");
            (case.holder, case.times) = (Some(record["began"].clone()), case.times + 1);
            tasks.extend(record["began"]["task"].as_str().map(|task| (task.to_owned(), case.token.clone())));
        }
    }
    for (id, case) in &cases {
        assert_eq!(case.holder, None, "{id} has ended");
        assert_eq!(case.ended.iter().find(|key| !revoked.contains(*key)), None, "{id}");
        check_access(&world.home, id, case.times);
    }
    check_performers(world, &tasks);
    for kind in ["escalated", "restart", "crash"] {
        assert!(changes.contains_key(kind), "no case was {kind}: {changes:?}");
    }
    format!("{} cases with {} holders: {changes:?}", cases.len(), tasks.len())
}

/// The command shows as many holders, one after the other, and no contradiction.
fn check_access(home: &Home, case: &str, times: usize) {
    if times == 0 {
        return;
    }
    let access = home.json(&["fleet", "access", case]);
    assert_eq!(access["contradictions"], json!([]), "{access}");
    let holders: Vec<AccessInterval> = serde_json::from_value(access["holders"].clone()).expect("intervals");
    assert_eq!(holders.len(), times, "{access}");
    for (place, one) in holders.iter().enumerate() {
        let until = one.until.expect("the case has ended");
        assert!(one.since <= until, "{access}");
        assert!(holders.get(place + 1).is_none_or(|next| until <= next.since), "{access}");
    }
}

/// Whatever the proxy performed was asked for under a key that a holder of that very case had.
fn check_performers(world: &World, tasks: &BTreeMap<String, String>) {
    for entry in world.proxy_entries() {
        if entry["event"] != "intent" {
            continue;
        }
        let of = |path: &str| entry.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let case = tasks.get(of("/payload/requester/task"));
        assert_eq!(case.map(String::as_str), Some(of("/payload/action/parameters/case_token")), "{entry}");
    }
}
