//! What an agent could see: real agents, locked in by `writ run`, work on personal data through a real `writ proxy`, and ask
//! models through the router of a real engine; then everything that they have, and everything that they sent and got, is searched
//! for what they must not know.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::runtime::Runtime;
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, ReplyFault};

use crate::Home;
use crate::engine::{Engine, stop_engine_of};
use crate::proxy::{CaseKeys, RunningProxy, Shop};
use crate::run::{below, memory_of};
use crate::turns::wire;

/// The customers of the shop.
const CUSTOMERS: usize = 50;
/// The most of one file that is searched, in bytes.
const FILE_MAX: u64 = 16 * 1024 * 1024;
/// The bytes that are looked at as one.
const PAGE: usize = 4096;
/// The parts of a key that are searched for have this length.
const KEY_PART: usize = 24;
/// The key of the provider of models.
const PROVIDER_KEY: &str = "the-key-of-the-script-5561";

/// A customer, as the shop knows them.
struct Guest {
    id: String,
    case: String,
    name: String,
    given: String,
    family: String,
    email: String,
    phone: String,
    card: String,
    iban: String,
    street: String,
}

impl Guest {
    fn number(n: usize) -> Self {
        let letters: String = [n / 26, n % 26]
            .map(|n| char::from(b'a' + u8::try_from(n).expect("a letter")))
            .into_iter()
            .collect();
        let (given, family) = (format!("Ozwin{letters}"), format!("Threlkeld{letters}"));
        Self {
            id: format!("KD-7431-{n:02}"),
            case: format!("CASE-5520-{n:02}"),
            name: format!("{given} {family}"),
            email: format!("ozwin.{letters}@threlkeld-{letters}.example"),
            phone: format!("+44 20 7946 09{n:02}"),
            card: with_check_digit(&format!("411122223333{n:03}")),
            iban: iban(n),
            street: format!("{n} Marrowgate Crescent"),
            given,
            family,
        }
    }

    /// Everything about it that no agent may see, as text.
    fn secrets(&self) -> Vec<String> {
        let digits = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let spaced = |text: &str| {
            text.as_bytes().chunks(4).map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(" ")
        };
        let plain = [
            &self.id,
            &self.case,
            &self.given,
            &self.family,
            &self.email,
            &self.phone,
            &self.card,
            &self.street,
        ];
        let mut all: Vec<String> = plain.into_iter().cloned().collect();
        all.extend([self.iban.clone(), spaced(&self.iban), spaced(&self.card), digits(&self.phone)]);
        all.extend([self.given.to_uppercase(), self.family.to_uppercase(), self.email.to_uppercase()]);
        all.push(self.phone.trim_start_matches("+44 ").to_owned());
        all
    }
}

/// Adds the digit with which cards are checked.
fn with_check_digit(digits: &str) -> String {
    let sum: u32 = digits
        .chars()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let value = digit.to_digit(10).expect("a digit") * if at % 2 == 0 { 2 } else { 1 };
            value / 10 + value % 10
        })
        .sum();
    format!("{digits}{}", (10 - sum % 10) % 10)
}

/// A bank account with the digits with which accounts are checked.
fn iban(n: usize) -> String {
    let account = format!("37040044{:010}", 532_013_000 + n);
    // The letters «DE» are 13 and 14.
    let number: u128 = format!("{account}131400").parse().expect("a number");
    format!("DE{:02}{account}", 98 - number % 97)
}

/// Fills the shop, and declares what agents may read of it.
fn furnish(shop: &Shop) {
    let read = |name: &str, columns: &str, table: &str, personal: &str| {
        let text = format!(
            "name = \"{name}\"\n[target.sql]\ndatabase = \"shop\"\nstatement = \"SELECT {columns} FROM {table}\"\n\
             tables.{table} = {{ customer = \"customer_id\" }}\n[personal]\n{personal}"
        );
        fs::write(shop.home.root().join(format!("operations/{name}.toml")), text).expect("written");
    };
    let personal = "customer_id = \"customer\"\nname = \"name\"\nemail = \"email\"\nphone = \"phone\"\ncard = \"card\"\n\
                    iban = \"iban\"\nstreet = \"address\"\n";
    read("customer", "customer_id, name, email, phone, card, iban, street", "customers", personal);
    read("notes", "note", "notes", "note = \"text\"\n");
    read("orders", "id, customer_id, refunded", "orders", "customer_id = \"customer\"\n");
    let database = shop.database();
    database
        .execute_batch(
            "CREATE TABLE customers (customer_id TEXT, name TEXT, email TEXT, phone TEXT, card TEXT, iban TEXT, street TEXT);
             CREATE TABLE notes (customer_id TEXT, note TEXT);",
        )
        .expect("made");
    for n in 0..CUSTOMERS {
        let Guest { id, name, email, phone, card, iban, street, .. } = &Guest::number(n);
        let sql = "INSERT INTO customers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        database.execute(sql, [id, name, email, phone, card, iban, street]).expect("written");
        let notes = [
            format!(
                "{name} called from {phone}, lives at {street}; {} is customer {id}",
                name.to_uppercase()
            ),
            format!("Refund to {iban} or card {card}. Write to {}, not to {email}", email.to_uppercase()),
        ];
        for note in notes {
            database.execute("INSERT INTO notes VALUES (?1, ?2)", [id, &note]).expect("written");
        }
        database.execute("INSERT INTO orders VALUES (?1, ?2, 0)", [&format!("A-{n}"), id]).expect("written");
    }
}

/// A model that says again whatever it was sent, and fails where it is asked to.
struct EchoModel {
    server: ModelServer,
    // The server's tasks run here; dropped last.
    _runtime: Runtime,
}

impl EchoModel {
    /// Starts it, and makes it the one of a home whose engine has a router.
    fn start(home: &mut Home) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let script = |request: &ParsedRequest| match request.last_user_text() {
            "fail" => Reply::text("").with_fault(ReplyFault::Status { status: 400, retry_after: None }),
            _ => Reply::text(&request.raw.to_string()),
        };
        let server = runtime.block_on(ModelServer::start(script)).expect("serves");
        for (name, value) in [
            ("WRIT_MODELS__DEFAULT", "test/scripted"),
            ("WRIT_PROVIDERS__TEST__KIND", "openai"),
            ("WRIT_PROVIDERS__TEST__BASE_URL", &server.base_url_for(wire("openai"))),
            ("WRIT_PROVIDERS__TEST__API_KEY", "env:SCRIPTED_KEY"),
            ("SCRIPTED_KEY", PROVIDER_KEY),
            ("WRIT_FLEET__MODEL_ROUTER", "true"),
        ] {
            home.env.push((name.to_owned(), value.to_owned()));
        }
        Self { server, _runtime: runtime }
    }
}

/// Both directions of the connections to a server, copied on their way.
#[derive(Clone, Default)]
struct CopiedBytes {
    sent: Arc<Mutex<Vec<u8>>>,
    got: Arc<Mutex<Vec<u8>>>,
}

impl CopiedBytes {
    /// Listens at `at`, and passes everything on to the server at `to`.
    fn start(at: &Path, to: PathBuf) -> Self {
        let copied = Self::default();
        let listener = UnixListener::bind(at).expect("bound");
        let own = copied.clone();
        std::thread::spawn(move || {
            for agent in listener.incoming().flatten() {
                let server = UnixStream::connect(&to).expect("the server is there");
                let (from, back) = (agent.try_clone().expect("cloned"), server.try_clone().expect("cloned"));
                let (sent, got) = (Arc::clone(&own.sent), Arc::clone(&own.got));
                std::thread::spawn(move || pass_bytes(from, server, &sent));
                std::thread::spawn(move || pass_bytes(back, agent, &got));
            }
        });
        copied
    }
}

/// Passes bytes on until they end, and writes them down before.
fn pass_bytes(mut from: UnixStream, mut to: UnixStream, copy: &Mutex<Vec<u8>>) {
    let mut block = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut block) {
        copy.lock().expect("whole").extend_from_slice(&block[..read]);
        if to.write_all(&block[..read]).is_err() {
            break;
        }
    }
    // The other end may be gone already.
    let _shut = to.shutdown(Shutdown::Write);
}

/// A running agent.
struct SeenAgent {
    launcher: Child,
    lines: BufReader<ChildStdout>,
    first: String,
    /// What went over the ways to the proxy and to the router: without TLS, and with the keys that the launcher adds.
    ways: [CopiedBytes; 2],
}

/// Starts an agent with the keys of a case.
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn start_agent(shop: &Shop, name: &str, keys: &CaseKeys) -> SeenAgent {
    let dir = shop.home.dir.path();
    let files = [("base", &keys.base), ("task", &keys.task)].map(|(role, key)| {
        let path = dir.join(format!("{name}-{role}.jwt"));
        fs::write(&path, key).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
        path
    });
    let router = shop.home.root().join("runtime/llm-router.sock");
    let sockets = ["proxy", "router"].map(|way| dir.join(format!("{name}-{way}.sock")));
    let ways = [(&sockets[0], shop.proxy("agents.sock")), (&sockets[1], router)]
        .map(|(at, to)| CopiedBytes::start(at, to));
    let mut launcher = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .arg("run")
        .args(["--base".as_ref(), files[0].as_os_str(), "--task".as_ref(), files[1].as_os_str()])
        .args(["--proxy-socket".as_ref(), sockets[0].as_os_str()])
        .args(["--router-socket".as_ref(), sockets[1].as_os_str()])
        .args(["--", "python3", "-c", include_str!("seen.py"), &word_of(name)])
        .env_clear()
        .envs(shop.home.variables(&[]))
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(launcher.stdout.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("reads");
    SeenAgent { launcher, lines, first, ways }
}

/// The word that an agent says to models.
fn word_of(name: &str) -> String {
    format!("marrow-{name}-8814")
}

/// Texts and bytes to search for, by their first two bytes.
struct Needles(Vec<Vec<Vec<u8>>>);

impl Needles {
    fn new(all: impl Iterator<Item = Vec<u8>>) -> Self {
        let mut heads = vec![Vec::new(); 1 << 16];
        for needle in all {
            heads[usize::from(needle[0]) << 8 | usize::from(needle[1])].push(needle);
        }
        Self(heads)
    }

    /// Texts, also as programs hold them that give two or four bytes to a character.
    fn of_texts(texts: &[String]) -> Self {
        let wide = |text: &String, zeros: usize| {
            text.bytes()
                .flat_map(|byte| std::iter::once(byte).chain(std::iter::repeat_n(0, zeros)))
                .collect::<Vec<u8>>()
        };
        Self::new(texts.iter().flat_map(|text| [0, 1, 3].map(|zeros| wide(text, zeros))))
    }

    /// The beginning, the middle and the end of each key, as text and as bytes.
    fn of_keys(keys: &[&String]) -> Self {
        let parts = |bytes: Vec<u8>| {
            let last = bytes.len() - KEY_PART;
            // A biscuit begins alike for all.
            [last / 4, last / 2, last / 4 * 3, last].map(|at| bytes[at..at + KEY_PART].to_vec())
        };
        let bytes = keys.iter().map(|key| URL_SAFE_NO_PAD.decode(key.as_bytes()).expect("base64"));
        let texts = keys.iter().map(|key| key.as_bytes().to_vec());
        Self::new(texts.chain(bytes).flat_map(parts))
    }

    /// The first one that is in some bytes.
    fn find(&self, bytes: &[u8]) -> Option<String> {
        let mut before = 0_usize;
        for (page, part) in bytes.chunks(PAGE).enumerate() {
            // Most of a program's memory is empty.
            if part.iter().all(|byte| *byte == 0) {
                before = 0;
                continue;
            }
            for (at, byte) in part.iter().enumerate() {
                let heads = &self.0[before << 8 | usize::from(*byte)];
                before = usize::from(*byte);
                if heads.is_empty() {
                    continue;
                }
                let rest = &bytes[(page * PAGE + at).saturating_sub(1)..];
                if let Some(found) = heads.iter().find(|needle| rest.starts_with(needle)) {
                    return Some(String::from_utf8_lossy(found).into_owned());
                }
            }
        }
        None
    }
}

/// The files below a folder of a sandbox, as its first process sees it.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // Not the folder's own word: devices are mounted on files.
            let kind = fs::symlink_metadata(entry.path()).expect("a kind").file_type();
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Everything that the processes of an agent have, by its place.
fn sights_of(agent: &SeenAgent) -> Vec<(String, Vec<u8>)> {
    let mut sights = Vec::new();
    let processes = below(agent.launcher.id());
    // The zygote, the first process, the agent and its child.
    assert!(processes.len() >= 4, "{processes:?}");
    for pid in &processes {
        sights.push((format!("memory of {pid}"), memory_of(*pid)));
        for name in ["environ", "cmdline", "mountinfo", "maps", "status", "net/tcp", "net/unix", "comm"] {
            let path = format!("/proc/{pid}/{name}");
            sights.push((path.clone(), fs::read(&path).unwrap_or_default()));
        }
    }
    let root = PathBuf::from(format!("/proc/{}/root", processes.last().expect("one")));
    for folder in ["tmp", "etc", "home", "root", "run", "var", "work", "dev"] {
        for path in files_below(&root.join(folder)) {
            let mut bytes = Vec::new();
            let file = fs::File::open(&path).expect("opens");
            file.take(FILE_MAX).read_to_end(&mut bytes).expect("reads");
            sights.push((path.display().to_string(), bytes));
        }
    }
    sights
}

/// Returns what an agent sent and got, by its way. The launcher adds both keys to what is sent; those of the agent itself are taken out
/// again, as often as there were requests.
fn ways_of(agent: &SeenAgent, keys: &CaseKeys) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (way, copied) in ["proxy", "router"].into_iter().zip(&agent.ways) {
        let mut sent =
            String::from_utf8(copied.sent.lock().expect("whole").clone()).expect("the agent sends text");
        let requests = sent.matches(" HTTP/1.1\r\n").count();
        assert!(requests >= 9, "{requests} requests to the {way}");
        for (header, key) in [("writ-base-key", &keys.base), ("writ-task-key", &keys.task)] {
            let line = format!("{header}: {key}\r\n");
            assert_eq!(sent.matches(&line).count(), requests, "{header} at the {way}");
            sent = sent.replace(&line, "");
        }
        all.push((format!("sent to the {way}"), sent.into_bytes()));
        all.push((format!("got from the {way}"), copied.got.lock().expect("whole").clone()));
    }
    all
}

/// Two agents read what is stored of their customers, in columns and in free text, and ask models about it. No name, address, number
/// or id of any customer is in the memory, the files and variables of any of their processes, nor in a byte that they sent or
/// got over their two ways out, and neither is a part of any key, their own among them, or a word of the other agent.
///
/// Rows: SLO-028 SLO-041
#[test]
fn needs_userns_needs_python_nothing_that_an_agent_could_see_holds_personal_data_or_a_key() {
    let mut shop = Shop::new();
    furnish(&shop);
    let model = EchoModel::start(&mut shop.home);
    let proxy = RunningProxy::start(&shop.home);
    let guests = [7, 31].map(Guest::number);
    let grants = json!({ "customer": {}, "notes": {}, "orders": {}, "refund": { "max_amount": 500 }, "model_call": {} });
    let keys = guests.each_ref().map(|guest| shop.keys_of("support-agent", &grants, &guest.id, &guest.case));
    // The commands have started one.
    stop_engine_of(&shop.home);
    let engine = Engine::start(&shop.home, &[]).expect("ready");
    let names = ["one", "two"];
    let mut agents = [0, 1].map(|n| start_agent(&shop, names[n], &keys[n]));

    let mut secrets: Vec<String> = (0..CUSTOMERS).flat_map(|n| Guest::number(n).secrets()).collect();
    secrets.push(PROVIDER_KEY.to_owned());
    let personal = Needles::of_texts(&secrets);
    let of_keys =
        Needles::of_keys(&keys.iter().flat_map(|keys| [&keys.base, &keys.task]).collect::<Vec<_>>());
    // What is searched for is found where it is: in the launcher, on its way to the proxy, and in the database.
    assert!(of_keys.find(&memory_of(agents[0].launcher.id())).is_some());
    assert!(of_keys.find(&agents[0].ways[0].sent.lock().expect("whole")).is_some());
    assert!(personal.find(&fs::read(shop.proxy("shop.db")).expect("reads")).is_some());

    let mut tokens = Vec::new();
    for (n, agent) in agents.iter().enumerate() {
        assert!(agent.first.starts_with("ready 200 200 200 200 200 200 200 200 "), "{}", agent.first);
        assert!(!agent.first.contains("500"), "{}", agent.first);
        let mut sights = sights_of(agent);
        sights.extend(ways_of(agent, &keys[n]));
        let of_the_other = Needles::of_texts(&[word_of(names[1 - n])]);
        for (place, bytes) in &sights {
            assert_eq!(personal.find(bytes), None, "in {place}");
            assert_eq!(of_keys.find(bytes), None, "a key in {place}");
            assert_eq!(of_the_other.find(bytes), None, "in {place}");
        }
        // It was at work there: each place holds the tokens in place of a kind, and its own word.
        let own = word_of(names[n]);
        for (place, kind) in [
            ("memory", "name_tk_"),
            ("/tmp/seen", "card_tk_"),
            ("/tmp/seen", "email_tk_"),
            ("got from the proxy", "iban_tk_"),
            ("sent to the router", "name_tk_"),
            ("got from the router", "name_tk_"),
            ("got from the router", &own),
            ("memory", &own),
        ] {
            let there = Needles::of_texts(&[kind.to_owned()]);
            assert!(
                sights.iter().any(|(at, bytes)| at.contains(place) && there.find(bytes).is_some()),
                "no {kind} in {place}"
            );
        }
        let (_, seen) = sights.iter().find(|(place, _)| place.ends_with("/tmp/seen")).expect("a file");
        let seen = String::from_utf8_lossy(seen).into_owned();
        let words = seen.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        // But for the one that the agent has made up.
        let words = words.filter(|word| word.contains("_tk_") && *word != "cust_tk_other");
        tokens.push(words.map(str::to_owned).collect::<BTreeSet<_>>());
    }
    // One token for a value in a case, and another one in the other.
    let (one, two) = (&tokens[0], &tokens[1]);
    assert!(one.len() >= 7 && two.len() >= 7 && one.is_disjoint(two), "{tokens:?}");
    for agent in &mut agents {
        drop(agent.launcher.stdin.take());
        let mut rest = String::new();
        agent.lines.read_to_string(&mut rest).expect("reads");
        assert_eq!(agent.launcher.wait().expect("it ends").code(), Some(0));
        // Its streams are a way out of its own.
        assert!(rest.contains("name_tk_"), "{rest}");
        assert_eq!((personal.find(rest.as_bytes()), of_keys.find(rest.as_bytes())), (None, None));
    }
    // Nor has the provider behind the router seen more than the agents.
    let asked = model.server.recorded_requests();
    assert!(asked.len() >= 6, "{asked:?}");
    for request in asked {
        let shown = format!("{} {:?} {}", request.path, request.headers, request.body);
        assert_eq!(
            (personal.find(shown.as_bytes()), of_keys.find(shown.as_bytes())),
            (None, None),
            "{shown}"
        );
    }
    proxy.end(Signal::SIGTERM);
    assert_eq!(engine.stop().code, Some(0));
}
