//! Folders of agents, and what is wrong with some.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use ed25519_dalek::SigningKey;
use writ_policy::keys::{BaseClaims, KeyToken, Verifier, mint_base};
use writ_types::error::ToReport as _;
use writ_types::id::{InstallationId, KeyId};
use writ_types::unit::Timestamp;

use super::deployed::{check_digest, read_deployed, stamp};
use super::error::AgentError;
use super::folder::{FolderPlace, MAX_DEPTH, MAX_ENTRIES, MAX_FILE_BYTES};
use super::key_file::{key_path, name_key, read_key, write_fresh_key};
use super::manifest::{AgentFolder, AgentManifest, MANIFEST, MAX_POLICY_BYTES, is_agent_name};
use super::place::AgentsPlace;

const GOOD: &str = "name = \"refund-agent\"\nversion = \"1\"\nprogram = [\"python3\", \"agent.py\"]\n\
    roles = [\"manager\"]\npolicies = [\"policy.md\"]\nmax_cases = 4\n[capabilities]\n\
    refund = { max_amount = 500 }\nescalate_to = [\"human\"]\n[limits]\nmemory = 64\n";

fn at() -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000)
}

fn agent_in(folder: &Path) {
    fs::create_dir_all(folder.join("lib")).expect("made");
    fs::write(folder.join(MANIFEST), GOOD).expect("written");
    fs::write(folder.join("policy.md"), "# Policy\n").expect("written");
    fs::write(folder.join("agent.py"), "print()\n").expect("written");
    fs::write(folder.join("lib/part.py"), "").expect("written");
}

fn read(folder: &Path) -> Result<AgentFolder, AgentError> {
    AgentFolder::read_folder(folder, FolderPlace::Source)
}

struct Keys {
    root: SigningKey,
    verifier: Verifier,
}

impl Keys {
    fn new() -> Self {
        let [root, router] = [1, 2].map(|seed| SigningKey::from_bytes(&[seed; 32]));
        let installation = InstallationId::from_parts(at(), 1);
        let verifier =
            Verifier { root: root.verifying_key(), router: router.verifying_key(), installation, epoch: 1 };
        Self { root, verifier }
    }

    fn sign(&self, agent: &AgentFolder) -> KeyToken {
        let manifest = &agent.manifest;
        let document =
            manifest.base_document(Path::new(MANIFEST), manifest.ends_at(at())).expect("a document");
        let claims = BaseClaims {
            key: KeyId::from_parts(at(), 1),
            installation: self.verifier.installation,
            epoch: 1,
            agent: document.agent,
            policy: agent.digest(),
            expires_at: document.expires,
            grants: document.grants,
        };
        mint_base(&claims, &self.root).expect("signed")
    }
}

/// Rows: SLO-005 (in part: what is missing, by line)
#[test]
fn mistakes_of_a_manifest_have_a_line_and_a_hint() {
    let good = AgentManifest::parse_text(Path::new(MANIFEST), GOOD).expect("good");
    assert_eq!((good.max_cases, good.expires_days, good.limits.memory), (4, 365, Some(64)));
    assert_eq!(good.ends_at(at()).time_since(at()).as_secs(), 365 * 86_400);
    for (from, to, line, what) in [
        ("max_cases = 4", "max_case = 4", 6, "unknown field"),
        ("max_cases = 4", "max_cases = 0", 6, "it must be 1 to 1000"),
        ("max_cases = 4", "max_cases = -1", 6, "invalid value"),
        ("max_cases = 4", "expires_days = 731", 6, "it must be 1 to 730"),
        ("refund-agent", "refund agent", 1, "letters, digits"),
        ("refund-agent", ".hidden", 1, "begins with a dot"),
        ("refund-agent", "human", 1, "queue for people"),
        ("\"1\"", "1", 2, "expected a string"),
        ("[\"python3\", \"agent.py\"]", "[]", 3, "1 to 64 words"),
        ("[\"python3\", \"agent.py\"]", "[\"\"]", 3, "1 to 64 words"),
        ("[\"manager\"]", "[\"manager\", \"manager\"]", 4, "stands twice"),
        ("[\"manager\"]", "[\"human\"]", 4, "queue for people"),
        ("policy.md", "../policy.md", 5, "no Markdown file of the folder"),
        ("policy.md", "policy.txt", 5, "no Markdown file of the folder"),
        ("{ max_amount = 500 }", "{ amount = 500 }", 8, "'amount' is no limit"),
        ("{ max_amount = 500 }", "{ min_amount = 1 }", 8, "no upper bound"),
        ("{ max_amount = 500 }", "500", 8, "must be an object"),
        ("[\"human\"]", "[]", 9, "list of names"),
        ("memory = 64", "memory = 15", 11, "it must be 16 to"),
        ("memory = 64", "disk = 1", 11, "unknown field"),
        ("name = ", "nam = ", 1, "unknown field"),
        ("version = \"1\"\n", "", 1, "missing field `version`"),
        ("[capabilities]", "[capabilities", 7, ""),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = AgentManifest::parse_text(Path::new(MANIFEST), &text).expect_err(to);
        let AgentError::Manifest { line: found, what: said, hint, .. } = &error else { panic!("{error}") };
        assert!(*found == line && said.contains(what) && !hint.is_empty(), "{to}: {error}");
        assert_eq!(error.report().code, "agent.manifest");
    }
    let empty = GOOD.replace("refund = { max_amount = 500 }\nescalate_to = [\"human\"]\n", "");
    assert!(AgentManifest::parse_text(Path::new(MANIFEST), &empty).is_err(), "an agent without a capability");
    let long = format!("{GOOD}#{}", "x".repeat(64 * 1024));
    assert!(AgentManifest::parse_text(Path::new(MANIFEST), &long).is_err());
    for (name, good) in [("a-b_c.1", true), ("", false), (".a", false), ("a/b", false), ("..", false)] {
        assert_eq!(is_agent_name(name), good, "{name}");
    }
}

#[test]
fn the_digest_is_that_of_paths_contents_and_what_can_be_executed() {
    let temp = tempfile::tempdir().expect("temp dir");
    let (one, two) = (temp.path().join("one"), temp.path().join("two"));
    agent_in(&one);
    // Made in another order.
    fs::create_dir(&two).expect("made");
    fs::write(two.join("agent.py"), "print()\n").expect("written");
    agent_in(&two);
    let digest = read(&one).expect("reads").digest();
    assert_eq!(read(&two).expect("reads").digest(), digest);
    // Beside the agent, and no part of it.
    fs::create_dir(two.join(".keys")).expect("made");
    fs::write(two.join(".keys/base.jwt"), "key").expect("written");
    fs::create_dir(two.join(".git")).expect("made");
    assert_eq!(read(&two).expect("reads").digest(), digest);
    let deployed = AgentFolder::read_folder(&two, FolderPlace::Deployed).expect_err("a key in it");
    assert!(deployed.to_string().contains("no part of an agent"), "{deployed}");

    let change = |doing: &dyn Fn(&Path), undo: &dyn Fn(&Path)| {
        doing(&one);
        assert_ne!(read(&one).expect("reads").digest(), digest);
        undo(&one);
        assert_eq!(read(&one).expect("reads").digest(), digest);
    };
    let script = |folder: &Path| folder.join("agent.py");
    let put = |path: &Path, text: &str| fs::write(path, text).expect("written");
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    change(&|at| put(&script(at), "print(1)\n"), &|at| put(&script(at), "print()\n"));
    change(&|at| set(&script(at), 0o744), &|at| set(&script(at), 0o640));
    change(&|at| put(&at.join("more"), ""), &|at| fs::remove_file(at.join("more")).expect("removed"));
    change(&|at| fs::create_dir(at.join("d")).expect("made"), &|at| {
        fs::remove_dir(at.join("d")).expect("gone")
    });
    let rename = |folder: &Path, from: &str, to: &str| {
        fs::rename(folder.join(from), folder.join(to)).expect("renamed");
    };
    change(&|at| rename(at, "lib/part.py", "part.py"), &|at| rename(at, "part.py", "lib/part.py"));
    // A folder of this name at another place is a part like any other.
    change(&|at| fs::create_dir(at.join("lib/.keys")).expect("made"), &|at| {
        fs::remove_dir(at.join("lib/.keys")).expect("gone");
    });
}

#[test]
fn folders_with_links_devices_too_much_or_without_a_policy_are_refused() {
    let temp = tempfile::tempdir().expect("temp dir");
    let mut n = 0;
    let mut refused = |make: &dyn Fn(&Path), what: &str| {
        n += 1;
        let folder = temp.path().join(n.to_string());
        agent_in(&folder);
        make(&folder);
        let error = read(&folder).expect_err(what);
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert!(!error.report().hint.is_empty());
    };
    refused(&|at| symlink("agent.py", at.join("link")).expect("made"), "it is a link");
    refused(&|at| symlink("/etc", at.join("lib/etc")).expect("made"), "it is a link");
    let pipe = |at: &Path| {
        nix::unistd::mkfifo(&at.join("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("made");
    };
    refused(&pipe, "neither a file nor a folder");
    let named = |at: &Path| {
        fs::write(at.join(std::ffi::OsStr::from_bytes(b"\xff.py")), "").expect("written");
    };
    refused(&named, "not UTF-8");
    let large = |at: &Path| {
        fs::File::create(at.join("large")).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("made");
    };
    refused(&large, "more than 33554432 bytes");
    let many = |at: &Path| {
        (0..=MAX_ENTRIES).for_each(|n| fs::write(at.join(n.to_string()), "").expect("written"));
    };
    refused(&many, "more than 4096 files");
    let deep = |at: &Path| fs::create_dir_all(at.join("d/".repeat(MAX_DEPTH + 1))).expect("made");
    refused(&deep, "more than 32 deep");
    refused(&|at| fs::remove_file(at.join(MANIFEST)).expect("removed"), "there is no agent.toml");
    refused(&|at| fs::write(at.join(MANIFEST), b"name = \"\xff\"").expect("written"), "no UTF-8");
    refused(&|at| fs::remove_file(at.join("policy.md")).expect("removed"), "there is no policy 'policy.md'");
    refused(&|at| fs::write(at.join("policy.md"), b"\xff").expect("written"), "'policy.md' is no UTF-8");
    let long = "x".repeat(usize::try_from(MAX_POLICY_BYTES).expect("small") + 1);
    refused(&|at| fs::write(at.join("policy.md"), &long).expect("written"), "more than 262144 bytes");
    assert!(read(&temp.path().join("none")).is_err() && read(&temp.path().join("1/agent.py")).is_err());
}

#[test]
fn the_error_of_a_key_file_says_its_mode_and_the_highest_one() {
    let error = AgentError::KeyMode { path: "base.jwt".into(), mode: 0o700 };
    assert_eq!(error.to_string(), "the base key base.jwt has the mode 700, which gives more than 600");
}

/// Rows: SLO-009 SLO-033 (in part)
#[test]
fn a_deployed_agent_is_read_with_its_key_and_checked_before_each_start() {
    let (temp, keys) = (tempfile::tempdir().expect("temp dir"), Keys::new());
    let (source, agents) = (temp.path().join("source"), temp.path().join("agents"));
    assert!(read_deployed(&agents, &keys.verifier).expect("nothing there").agents.is_empty());
    let before = stamp(&agents).expect("a mark");
    agent_in(&source);
    let agent = read(&source).expect("reads");
    let token = keys.sign(&agent);
    let place = AgentsPlace::lock_folder(&agents).expect("locked");
    // Twice: the second takes the place of the first.
    for _ in 0..2 {
        let copy = place.copy_agent(&source, &agent, &token).expect("copied");
        place.put_copy(copy, &keys.verifier).expect("placed");
    }
    let found = read_deployed(&agents, &keys.verifier).expect("reads");
    assert!(found.defects.is_empty(), "{:?}", found.defects);
    let [deployed] = found.agents.as_slice() else { panic!("one agent: {:?}", found.agents) };
    assert_eq!(deployed.agent.name, "refund-agent");
    assert_eq!(deployed.agent.command, ["python3", "agent.py"]);
    assert_eq!(deployed.agent.folder.as_deref(), Some(deployed.folder.as_path()));
    assert_eq!((deployed.agent.max_cases, deployed.agent.limits.memory), (4, Some(64)));
    assert_eq!((deployed.digest, deployed.version.as_str()), (agent.digest(), "1"));
    deployed.check_folder().expect("as approved");
    let placed = stamp(&agents).expect("a mark");
    assert!(placed != before && placed == stamp(&agents).expect("a mark"));

    let defect = |code: &str| {
        let found = read_deployed(&agents, &keys.verifier).expect("reads");
        let [(name, error)] = found.defects.as_slice() else { panic!("one defect for {code}") };
        assert_eq!((name.as_str(), error.report().code.as_str()), ("refund-agent", code), "{error}");
        let start = deployed.check_folder().expect_err("it does not start");
        assert!(found.agents.is_empty(), "{start}");
    };
    let (key, script) = (key_path(&deployed.home), deployed.folder.join("agent.py"));
    for mode in [0o644, 0o640, 0o660, 0o604, 0o700, 0o4600, 0o2600, 0o1600] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).expect("opened");
        defect("agent.key_mode");
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("closed");
    assert_ne!(stamp(&agents).expect("a mark"), placed, "a key that is closed again is noticed");
    fs::write(&script, "print('other')\n").expect("changed");
    defect("agent.changed");
    fs::write(&script, "print()\n").expect("as before");
    deployed.check_folder().expect("as approved");
    let kept = fs::read(&key).expect("reads");
    fs::write(&key, "bm90IGEga2V5").expect("written");
    defect("agent.key");
    fs::remove_file(&key).expect("removed");
    defect("agent.no_key");
    fs::write(&key, &kept).expect("written");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("closed");
    deployed.check_folder().expect("as approved");
    fs::rename(agents.join("refund-agent"), agents.join("other")).expect("renamed");
    let found = read_deployed(&agents, &keys.verifier).expect("reads");
    assert!(matches!(found.defects.as_slice(), [(name, AgentError::OtherAgent { .. })] if name == "other"));
    fs::rename(agents.join("other"), agents.join("refund-agent")).expect("renamed");
    assert!(place.remove_agent("refund-agent").expect("removed"));
    assert!(!place.remove_agent("refund-agent").expect("gone already"));
    let left: Vec<_> = fs::read_dir(&agents).expect("reads").flatten().map(|one| one.file_name()).collect();
    assert_eq!(left, [".lock"], "nothing else is left over");
}

/// A start that is under way goes on with the folder that was checked, whatever is deployed meanwhile.
#[test]
fn another_version_lies_beside_the_one_before_and_takes_nothing_from_it() {
    let (temp, keys) = (tempfile::tempdir().expect("temp dir"), Keys::new());
    let (source, agents) = (temp.path().join("source"), temp.path().join("agents"));
    agent_in(&source);
    let place = AgentsPlace::lock_folder(&agents).expect("locked");
    let deploy = |script: &str| {
        fs::write(source.join("agent.py"), script).expect("written");
        let agent = read(&source).expect("reads");
        let copy = place.copy_agent(&source, &agent, &keys.sign(&agent)).expect("copied");
        place.put_copy(copy, &keys.verifier).expect("placed");
        let mut found = read_deployed(&agents, &keys.verifier).expect("reads");
        assert!(found.defects.is_empty(), "{:?}", found.defects);
        found.agents.remove(0)
    };
    let script = |agent: &super::deployed::DeployedAgent| fs::read_to_string(agent.folder.join("agent.py"));
    let first = deploy("print(1)\n");
    assert!(!first.is_replaced());
    let second = deploy("print(2)\n");
    assert_ne!(first.folder, second.folder);
    assert_eq!(script(&first).expect("still there"), "print(1)\n");
    assert_eq!(script(&second).expect("there"), "print(2)\n");
    assert!(first.is_replaced() && !second.is_replaced());
    first.check_folder().expect_err("its key was replaced");
    // What is deployed again is the same folder, also where it was changed meanwhile.
    fs::write(second.folder.join("agent.py"), "print(3)\n").expect("changed");
    let again = deploy("print(2)\n");
    assert_eq!((again.folder.clone(), script(&again).expect("there")), (second.folder, "print(2)\n".into()));
    // With the next version the oldest goes.
    let third = deploy("print(4)\n");
    assert!(!first.folder.exists() && again.folder.exists() && third.folder.exists());
    let back = deploy("print(2)\n");
    assert!(!back.is_replaced() && third.folder.exists());
    place.remove_agent("refund-agent").expect("removed");
    assert!(back.is_replaced(), "it is retired");
}

#[test]
fn a_key_gets_its_name_once_it_is_recorded_and_stays_out_of_histories() {
    let (temp, keys) = (tempfile::tempdir().expect("temp dir"), Keys::new());
    agent_in(temp.path());
    let agent = read(temp.path()).expect("reads");
    let token = keys.sign(&agent);
    write_fresh_key(temp.path(), &token).expect("written");
    assert!(matches!(read_key(temp.path()), Err(AgentError::NoKey { .. })));
    name_key(temp.path()).expect("named");
    assert_eq!(read_key(temp.path()).expect("reads"), token);
    assert_eq!(fs::read_to_string(temp.path().join(".keys/.gitignore")).expect("reads"), "*\n");
    assert_eq!(read(temp.path()).expect("reads").digest(), agent.digest(), "the key is no part of it");
    let other = check_digest("a", agent.digest(), writ_types::digest::Digest::of_bytes(b""));
    assert_eq!(other.expect_err("another").report().code, "agent.changed");
    // Keys are written through no link.
    let linked = temp.path().join("linked");
    fs::create_dir(&linked).expect("made");
    symlink(temp.path().join(".keys"), linked.join(".keys")).expect("made");
    assert!(write_fresh_key(&linked, &token).is_err());
}
