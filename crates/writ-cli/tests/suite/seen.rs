//! What an agent could see: real agents, locked in by `writ run`, work on personal data through a real `writ proxy`; then
//! everything that they have, and everything that came to them, is searched for what they must not know.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::proxy::{CaseKeys, RunningProxy, Shop};
use crate::run::{below, memory_of};

/// The customers of the shop.
const CUSTOMERS: usize = 50;
/// The most of one file that is searched, in bytes.
const FILE_MAX: u64 = 16 * 1024 * 1024;
/// The bytes that are looked at as one.
const PAGE: usize = 4096;
/// The parts of a key that are searched for have this length.
const KEY_PART: usize = 24;

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

/// A running agent.
struct SeenAgent {
    launcher: Child,
    lines: BufReader<ChildStdout>,
    first: String,
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
    let mut launcher = std::process::Command::new(env!("CARGO_BIN_EXE_writ"))
        .arg("run")
        .args(["--base".as_ref(), files[0].as_os_str(), "--task".as_ref(), files[1].as_os_str()])
        .args(["--", "python3", "-c", include_str!("seen.py")])
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
    SeenAgent { launcher, lines, first }
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

/// Two agents read what is stored of their customers, in columns and in free text. No name, address, number or id of any
/// customer is in the memory, the files and variables of any of their processes, nor in a byte that came over their
/// connections, and neither is a part of any key, their own among them.
///
/// Rows: SLO-028 SLO-041
#[test]
fn needs_userns_needs_python_nothing_that_an_agent_could_see_holds_personal_data_or_a_key() {
    let shop = Shop::new();
    furnish(&shop);
    let proxy = RunningProxy::start(&shop.home);
    let guests = [7, 31].map(Guest::number);
    let grants = json!({ "customer": {}, "notes": {}, "orders": {}, "refund": { "max_amount": 500 } });
    let keys = guests.each_ref().map(|guest| shop.keys_of("support-agent", &grants, &guest.id, &guest.case));
    let mut agents =
        [("one", &keys[0]), ("two", &keys[1])].map(|(name, keys)| start_agent(&shop, name, keys));

    let secrets: Vec<String> = (0..CUSTOMERS).flat_map(|n| Guest::number(n).secrets()).collect();
    let personal = Needles::of_texts(&secrets);
    let of_keys =
        Needles::of_keys(&keys.iter().flat_map(|keys| [&keys.base, &keys.task]).collect::<Vec<_>>());
    // What is searched for is found where it is: in the launcher and in the database.
    assert!(of_keys.find(&memory_of(agents[0].launcher.id())).is_some());
    assert!(personal.find(&fs::read(shop.proxy("shop.db")).expect("reads")).is_some());

    let mut tokens = Vec::new();
    for agent in &agents {
        assert!(agent.first.starts_with("ready 200 200 200 200 "), "{}", agent.first);
        assert!(!agent.first.contains("500"), "{}", agent.first);
        let sights = sights_of(agent);
        for (place, bytes) in &sights {
            assert_eq!(personal.find(bytes), None, "in {place}");
            assert_eq!(of_keys.find(bytes), None, "a key in {place}");
        }
        // It was at work there: its memory and its file hold the tokens in place of each kind.
        for (place, kind) in [("memory", "name_tk_"), ("/tmp/seen", "card_tk_"), ("/tmp/seen", "email_tk_")] {
            let there = Needles::of_texts(&[kind.to_owned()]);
            assert!(
                sights.iter().any(|(at, bytes)| at.contains(place) && there.find(bytes).is_some()),
                "no {kind} in {place}"
            );
        }
        let (_, seen) = sights.iter().find(|(place, _)| place.ends_with("/tmp/seen")).expect("a file");
        let seen = String::from_utf8_lossy(seen).into_owned();
        let words = seen.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        tokens.push(words.filter(|word| word.contains("_tk_")).map(str::to_owned).collect::<BTreeSet<_>>());
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
    proxy.end(Signal::SIGTERM);
}
