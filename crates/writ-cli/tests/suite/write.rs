//! What `--write` brings into a project, and what it says of the rest.

use serde_json::json;

use super::turns::{Bench, calls};
use super::{Home, code, text};

/// More files than two diffs list.
const MANY: usize = 4_500;

fn script(script: &str) -> Bench {
    let argv = json!({"argv": ["sh", "-c", script]});
    Bench::new("openai", calls(vec![("shell_exec", argv)], "Done."))
}

/// More than one diff lists is brought out all the same, and what cannot be is named.
#[test]
fn needs_userns_everything_that_can_be_is_applied_and_the_rest_is_named() {
    let bench = script(&format!(
        "mkdir many && cd many && seq -f f%g {MANY} | xargs touch && cd .. && ln -s many link && \
         touch odd && chmod u+s odd && mkdir taken && touch \"$(printf 'a\\nb')\""
    ));
    let done = bench.chat("make them", &["--write"]);
    let said = text(&done);
    assert_eq!(code(&done), 0, "{said}");
    assert_eq!(std::fs::read_dir(bench.project().join("many")).expect("reads").count(), MANY, "{said}");
    for left in ["link: symbolic link", "odd: set-user-id", "{a}b: name that cannot be shown"] {
        assert!(said.contains("Left out:") && said.contains(left), "{left}: {said}");
    }
}

/// A file of Windows is read, patched in one call with the line ends that the model saw, and applied with its own.
#[test]
fn needs_userns_what_was_read_of_a_windows_file_can_be_patched_in_one_call() {
    let patch = json!({ "path": "a.cs", "old": "two\nthree\n", "new": "2\nthree\nfour\n" });
    let reads = ("file_read", json!({ "path": "a.cs" }));
    let bench = Bench::new("openai", calls(vec![reads, ("file_patch", patch)], "Done."));
    let file = bench.project().join("a.cs");
    std::fs::write(&file, "\u{feff}one\r\ntwo\r\nthree\r\n").expect("written");
    let done = bench.chat("change it", &["--write"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let written = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(written, "\u{feff}one\r\n2\r\nthree\r\nfour\r\n");
}

/// Work that a bound keeps back is no work that is done.
#[test]
fn needs_userns_a_file_beyond_the_bound_is_named_and_the_turn_is_not_done() {
    let bench = script("truncate -s 65M large && echo small > small");
    let done = bench.chat("make them", &["--write"]);
    assert_eq!(code(&done), 10, "{}", text(&done));
    assert!(text(&done).contains("Left out: large: too large"), "{}", text(&done));
    assert!(bench.project().join("small").exists() && !bench.project().join("large").exists());
}

/// Files that other programs obey are named, since nobody is asked about them.
#[test]
fn needs_userns_files_that_other_programs_obey_are_named() {
    let obeyed = [".envrc", ".vscode/tasks.json", ".github/workflows/ci.yml", ".gitattributes", "Makefile"];
    let bench = script(&format!(
        "mkdir -p .vscode .github/workflows && for f in {} plain.txt; do echo x > $f; done",
        obeyed.join(" ")
    ));
    let done = bench.chat("make them", &["--write"]);
    let said = text(&done);
    assert_eq!(code(&done), 0, "{said}");
    for name in obeyed {
        assert!(bench.project().join(name).exists(), "{name}");
        assert!(said.contains(&format!("{name} (")), "{name}: {said}");
    }
    assert!(said.contains("Other programs obey") && !said.contains("plain.txt"), "{said}");
}

/// As inside a container: the home lies on an overlay, on which no other one can be written, though it can be read.
const ON_AN_OVERLAY: &str = r#"
set -eu
mount -t tmpfs none "$2"
mkdir "$2/upper" "$2/work"
mount -t overlay -o "userxattr,lowerdir=$1,upperdir=$2/upper,workdir=$2/work" none "$1"
cd "$1"
result=0
"$3" chat -m work --project "$1/project" || result=$?
kill "$(cat "$WRIT_HOME/runtime/lock")"
exit "$result"
"#;

#[test]
#[expect(clippy::disallowed_types, reason = "a namespace of its own, in which an overlay is mounted")]
fn needs_userns_a_project_is_copied_where_an_overlay_can_be_read_and_not_written() {
    let program = json!({ "argv": ["sh", "-c", "cat a.txt; echo two > b.txt"] });
    let bench = Bench::new(
        "openai",
        calls(vec![("file_read", json!({ "path": "a.txt" })), ("shell_exec", program)], "Done."),
    );
    std::fs::write(bench.project().join("a.txt"), "a word of the project").expect("written");
    let layers = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", ON_AN_OVERLAY, "sh"]);
    command.args([bench.home.dir.path(), layers.path()]).arg(env!("CARGO_BIN_EXE_writ"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", bench.home.dir.path());
    command
        .env("WRIT_HOME", bench.home.root())
        .envs(bench.home.env.iter().map(|(name, value)| (name, value)));
    let done = command.stdin(std::process::Stdio::null()).output().expect("unshare");
    assert_eq!(code(&done), 5, "the change is asked about: {}", text(&done));
    let said = bench.requests().pop().expect("a request");
    assert_eq!(said.matches("a word of the project").count(), 2, "the tool and the program read it: {said}");
    assert!(text(&done).contains("b.txt"), "{}", text(&done));
}

/// The home inside has a name, too: what lies below one of the same name outside is not hidden by it.
const A_HOME_OF_THAT_NAME: &str = r#"
set -eu
mount -t tmpfs none /home
bin=/home/agent/.pyenv/versions/3.99.0/bin
mkdir -p "$bin"
printf '#!/bin/sh\necho "the tool runs in $HOME"\n' > "$bin/tool"
chmod +x "$bin/tool"
echo root:x:0:0::/home/agent:/bin/sh > "$WRIT_HOME/passwd"
mount --bind "$WRIT_HOME/passwd" /etc/passwd
export HOME=/home/agent
result=0
"$1" sandbox exec -- tool || result=$?
kill "$(cat "$WRIT_HOME/runtime/lock")"
exit "$result"
"#;

#[test]
#[expect(clippy::disallowed_types, reason = "a namespace of its own, in which another home is mounted")]
fn needs_userns_toolchains_of_a_home_that_is_called_as_the_one_inside_are_seen() {
    let home = Home::ready();
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", A_HOME_OF_THAT_NAME, "sh"]);
    command.arg(env!("CARGO_BIN_EXE_writ")).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("WRIT_HOME", home.root()).envs(home.env.iter().map(|(name, value)| (name, value)));
    let done = command.stdin(std::process::Stdio::null()).output().expect("unshare");
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(text(&done).contains("the tool runs in /home/agent"), "{}", text(&done));
}
