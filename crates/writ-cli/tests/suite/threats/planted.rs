//! Case 22, planted execution, where the work is verified: whatever lies in a project to be obeyed by whoever opens,
//! builds or tests it runs in the verification sandbox at most, and leaves nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::engine::{Engine, Link};
use crate::turns::{Bench, calls};
use crate::{code, text};

/// A value that the engine knows and nothing inside may.
const SECRET: &str = "planted-secret-value-7351";

/// What is planted: a path, and a text in which `MARKS` is a folder of the host.
const PLANTED: &[(&str, &str)] = &[
    ("conftest.py", "import planted\nplanted.act('conftest')\n"),
    ("sitecustomize.py", "import planted\nplanted.act('sitecustomize')\n"),
    (
        "planted.py",
        "import os\n\
         def act(name):\n\
         \x20   for path in ('MARKS/' + name, '/work/left-by-' + name):\n\
         \x20       try: open(path, 'w').write('x')\n\
         \x20       except OSError: pass\n\
         \x20   print('planted', name)\n",
    ),
    ("pyvenv.cfg", "home = MARKS\ninclude-system-site-packages = true\n"),
    ("bin/python3", "#!/bin/sh\ntouch MARKS/python3 /work/left-by-python3\necho planted python3\n"),
    (".envrc", "touch MARKS/envrc\n"),
    (
        ".vscode/tasks.json",
        r#"{"tasks":[{"command":"touch MARKS/vscode","runOptions":{"runOn":"folderOpen"}}]}"#,
    ),
    (
        ".git/config",
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch MARKS/fsmonitor\n\tpager = touch MARKS/pager\n",
    ),
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/hooks/post-checkout", "#!/bin/sh\ntouch MARKS/hook\n"),
    ("vendor/.git/config", "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch MARKS/nested\n"),
    ("vendor/.git/HEAD", "ref: refs/heads/main\n"),
    ("vendor/.git/hooks/post-commit", "#!/bin/sh\ntouch MARKS/nested-hook\n"),
    ("worktree/.git", "gitdir: ../vendor/.git\n"),
    ("check.py", CHECK),
];

/// The check that is run: it says what it sees, and tries what it must not be able to do.
const CHECK: &str = r#"
import os, socket, subprocess, sys
sys.path.insert(0, os.getcwd())
import conftest
address = sys.argv[1].split(":")
try:
    socket.create_connection((address[0], int(address[1])), 5)
    print("network open")
except OSError:
    print("network closed")
for folder in (".", "vendor", "worktree"):
    subprocess.run(["git", "-C", folder, "status"], capture_output=True)
subprocess.run(["./bin/python3"])
subprocess.run(["sh", ".envrc"], capture_output=True)
found = []
for top in ("/proc/1/environ", "/proc/self/environ", "/proc/%d/environ" % os.getppid()):
    try: found.append(open(top, "rb").read().decode("utf-8", "replace"))
    except OSError: pass
print("environment", " ".join(found).replace("\0", " "))
print("work", sorted(name for name in os.listdir(".") if name.startswith("left-by")))
assert open("answer.txt").read() == "42\n"
"#;

fn plant(project: &Path, marks: &Path) {
    for (path, content) in PLANTED {
        let path = project.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, content.replace("MARKS", &marks.display().to_string())).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
    std::fs::write(project.join("answer.txt"), "42\n").expect("written");
}

/// How many of what is planted are traps; the others are what these need.
fn traps() -> usize {
    let is_trap = |text: &str| ["MARKS", "planted.act", "gitdir"].iter().any(|word| text.contains(word));
    PLANTED.iter().filter(|(path, text)| *path != "planted.py" && is_trap(text)).count()
}

/// Every file below a folder, with its content.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(&path).expect("reads");
                found.insert(path, content);
            }
        }
    }
    found
}

/// A bench whose project is full of traps, and the folder in which they would leave their marks.
fn trapped(list: Vec<(&'static str, Value)>) -> (Bench, PathBuf) {
    let mut bench = Bench::new("anthropic", calls(list, "Done."));
    bench.home = bench.home.with("PLANTED_SECRET", SECRET);
    let set = bench.home.run_with(&["secrets", "set", "planted"], SECRET.as_bytes());
    assert_eq!(code(&set), 0, "{}", text(&set));
    let marks = bench.home.dir.path().join("marks");
    std::fs::create_dir(&marks).expect("made");
    plant(&bench.project(), &marks);
    (bench, marks)
}

fn address(bench: &Bench) -> String {
    let url = bench.server.base_url();
    let rest = url.split("://").nth(1).expect("an address");
    rest.split('/').next().expect("an address").to_owned()
}

/// Rows: SIL-184 SIL-185
#[test]
fn needs_userns_needs_git_needs_python_verification_runs_traps_inside_and_keeps_nothing_of_them() {
    let (bench, marks) = trapped(Vec::new());
    let project = bench.project();
    let folder = project.to_str().expect("UTF-8").to_owned();
    let before = files(&project);
    let address = address(&bench);
    assert!(
        address.parse::<std::net::SocketAddr>().is_ok(),
        "{address}: something listens there on the host"
    );
    let verify = |argv: &[&str]| {
        let args = ["sandbox", "exec", "--verification", "--project", &folder, "--"];
        bench.home.run(&[&args[..], argv].concat())
    };
    let environment = verify(&["env"]);
    assert_eq!(code(&environment), 0, "{}", text(&environment));
    let environment = text(&environment);
    let names: Vec<&str> = environment.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["HOME", "PATH"], "{environment}");
    // Twice: each run begins with a fresh snapshot.
    let (mut attempts, mut twins) = (0, 0);
    for _ in 0..2 {
        attempts += traps();
        let shell = format!("PYTHONPATH=/work python3 check.py {address}");
        let checked = verify(&["sh", "-c", &shell]);
        let said = text(&checked);
        // The twin: the honest part of the check passes, and what it imports is the project's own.
        assert_eq!(code(&checked), 0, "{said}");
        twins += 1;
        for planted in ["planted sitecustomize", "planted conftest", "planted python3"] {
            assert!(said.contains(planted), "{planted} runs inside: {said}");
        }
        assert!(said.contains("network closed"), "{said}");
        assert!(!said.contains(SECRET) && !said.contains("WRIT_"), "{said}");
        let works: Vec<&str> = said.lines().filter(|line| line.starts_with("work ")).collect();
        let of_this_run =
            ["work ['left-by-conftest', 'left-by-python3', 'left-by-sitecustomize']", "work []"];
        assert!(works.len() == 1 && of_this_run.contains(&works[0]), "{said}");
        let left = verify(&["sh", "-c", "ls | grep left-by; true"]);
        assert_eq!(text(&left), "", "nothing is left for the next run");
    }
    let reached = std::fs::read_dir(&marks).expect("reads").count();
    assert_eq!(reached, 0, "something ran on the host");
    assert!(files(&project) == before, "the project is as it was");
    let failed = verify(&["sh", "-c", "rm answer.txt; python3 check.py 127.0.0.1:9"]);
    assert_eq!(code(&failed), 1, "a check that fails says so: {}", text(&failed));
    assert!(project.join("answer.txt").exists(), "what verification deletes is its copy");
    let intents = bench.events("intent");
    let run = |row: &&Value| row["payload"]["action"]["profile"] == "verification";
    let entries = intents.iter().filter(run).count();
    assert!(entries > twins, "each run is on record: {intents:?}");
    println!(
        "THREAT 22 attempts={attempts} refused={} entries={entries} entry=intent twins={twins}",
        attempts - reached
    );
}

#[test]
fn needs_userns_needs_git_needs_python_what_the_agent_plants_is_named_and_runs_nowhere_on_the_host() {
    let mark = std::env::temp_dir().join(format!("writ-planted-{}", std::process::id()));
    let conftest = format!("open({:?}, 'w')\n", mark.display().to_string());
    let envrc = format!("touch {}\n", mark.display());
    let list = vec![
        ("file_write", json!({ "path": "tests/conftest.py", "content": conftest })),
        ("file_write", json!({ "path": "sub/.envrc", "content": envrc })),
        ("file_write", json!({ "path": "notes.txt", "content": "plain\n" })),
    ];
    let (bench, marks) = trapped(list);
    let engine = Engine::start(&bench.home, &[]).expect("ready");
    let mut link = Link::open(&bench.home).expect("connects");
    let session = link.join(None, Some(&bench.project())).expect("joined");
    assert_eq!(link.ask("plant", "one").expect("answered").exit.code(), 5);
    let shell =
        "python3 -c 'import sys; sys.path.insert(0, \"tests\"); import conftest'; cat notes.txt; touch more";
    for _ in 0..2 {
        let params = json!({ "argv": ["sh", "-c", shell], "session": session, "verification": true });
        let verified = link.call("sandbox.exec", params).expect("an answer");
        assert_eq!(verified["stdout"], "plain\n", "the agent's work is what is verified: {verified}");
    }
    let diff = link.call("diff", json!({ "session": session })).expect("a diff");
    let paths: Vec<&str> =
        diff["changes"].as_array().expect("a list").iter().filter_map(|one| one["path"].as_str()).collect();
    assert_eq!(paths, ["notes.txt", "sub/.envrc", "tests/conftest.py"], "verification adds nothing");
    // The person is told who obeys these files; the plain one beside them is not spoken of.
    let card = link.asks().expect("asks").pop().expect("an ask");
    for path in ["sub/.envrc", "tests/conftest.py"] {
        let named = diff["text"].as_str().is_some_and(|text| text.contains(path));
        assert!(named && card.shown.contains(path), "{}", card.shown);
    }
    let approved = bench.home.run(&["approvals", "approve", card.ask_id.as_str(), "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let written = std::fs::read_to_string(bench.project().join("tests/conftest.py")).expect("applied");
    assert_eq!(written, conftest, "what was approved is there, and was not run");
    let plain = std::fs::read_to_string(bench.project().join("notes.txt")).expect("applied");
    assert_eq!(plain, "plain\n", "the twin");
    assert!(!mark.exists(), "what the agent planted ran on the host");
    assert_eq!(std::fs::read_dir(&marks).expect("reads").count(), 0, "something ran on the host");
    let applied: Vec<String> = bench.events("applied").iter().map(|row| row["payload"].to_string()).collect();
    let named = |path: &str| applied.iter().any(|row| row.contains(path));
    let traps = ["tests/conftest.py", "sub/.envrc"];
    let entries = traps.iter().filter(|path| named(path)).count();
    assert_eq!(entries, traps.len(), "what was applied is on record: {applied:?}");
    println!("THREAT 22 attempts={0} refused={0} entries={entries} entry=applied twins=1", traps.len());
    assert_eq!(engine.stop().code, Some(0));
}
