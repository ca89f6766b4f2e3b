//! One owner for each outside thing: processes, sockets, the database, the environment, `unsafe`.

use super::Finding;
use crate::source::{Mention, Source};
use crate::workspace::{Crate, Kind};

/// The tasks of the repository are no part of the product.
const TASKS: &[&str] = &["xtask/", "tools/"];

/// Paths that only some folders may name outside tests.
struct Owned {
    what: &'static str,
    paths: &'static [&'static str],
    owners: &'static [&'static str],
}

const OWNED: &[Owned] = &[
    Owned {
        what: "processes",
        paths: &["std::process::Command", "tokio::process", "nix::unistd::execve", "nix::unistd::execvp"],
        // What the testbed starts (a database) is for tests, and nothing ships it.
        owners: &["crates/writ-sandbox/", "crates/writ-testbed/"],
    },
    Owned {
        what: "outbound sockets",
        paths: &[
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "tokio::net::TcpStream",
            "tokio::net::TcpSocket",
            "tokio::net::UdpSocket",
            "tokio::net::lookup_host",
            "reqwest",
            "hyper::client",
            "hyper_util::client",
            "socket2",
        ],
        owners: &["crates/writ-egress/", "crates/writ-testkit/", "crates/writ-testbed/"],
    },
    Owned {
        what: "listening sockets",
        paths: &["std::net::TcpListener", "tokio::net::TcpListener", "axum::serve"],
        owners: &[
            "crates/writ-egress/",
            "crates/writ-fleet/src/cases/server.rs",
            "crates/writ-gateway/",
            "crates/writ-launch/",
            "crates/writ-proxy/",
            "crates/writ-testkit/",
            "crates/writ-testbed/",
        ],
    },
    Owned { what: "model clients", paths: &["genai"], owners: &["crates/writ-models/"] },
    // Operations speak to the databases of customers, never to Writ's own, and so does the bench that compares them. The demo's
    // shop is one of those.
    Owned {
        what: "SQL",
        paths: &["rusqlite", "tokio_postgres"],
        owners: &[
            "crates/writ-store/",
            "crates/writ-operations/src/targets",
            "crates/writ-testkit/src/fleet/shop.rs",
            "crates/writ-cli/examples/bench/operations.rs",
        ],
    },
    Owned { what: "foreign SQL", paths: &["sqlparser"], owners: &["crates/writ-operations/src/statement"] },
    Owned { what: "mail", paths: &["lettre"], owners: &["crates/writ-operations/src/targets"] },
    Owned {
        what: "the environment",
        paths: &[
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
            "std::env::set_var",
            "std::env::remove_var",
        ],
        owners: &["crates/writ-cli/", "crates/writ-sandbox/src/sys"],
    },
    Owned {
        what: "results of tools, which are made from what the redactor has cleaned,",
        paths: &["writ_types::chat::ToolResult"],
        owners: &[
            "crates/writ-types/",
            "crates/writ-agent/",
            "crates/writ-runtime/src/act.rs",
            "crates/writ-runtime/src/asks/tell.rs",
            "crates/writ-runtime/src/outcome.rs",
            "crates/writ-runtime/src/session.rs",
            // What a locked agent sends of its own results: it goes to its model, and no turn of ours reads it.
            "crates/writ-fleet/src/models/prompt.rs",
            // Readers alone, of results that were cleaned before they were stored: the values that fill the slots of a
            // plan, and stored turns that are recorded as a cassette or decided again. None of them makes a result.
            "crates/writ-inspect/src/origin/slots.rs",
            "crates/writ-runtime/src/calls/cassette.rs",
            "crates/writ-runtime/src/calls/replay.rs",
        ],
    },
    Owned {
        what: "limits of their rate that providers state, which are shown and decide nothing,",
        paths: &[
            "writ_models::rate",
            "crate::rate::RateBoard",
            "crate::rate::RateHeaders",
            "writ_types::api::model::StatedLimit",
            "writ_types::api::model::StatedLimits",
            "writ_types::api::model::ProviderLimits",
        ],
        owners: &[
            "crates/writ-types/",
            // The two that take the headers from an answer, the board that keeps them, and the two that hand them on to be shown.
            "crates/writ-models/src/call/attempt.rs",
            "crates/writ-models/src/embedding.rs",
            "crates/writ-models/src/rate",
            "crates/writ-models/src/call.rs",
            "crates/writ-runtime/src/pilot.rs",
        ],
    },
    Owned { what: "untyped errors", paths: &["anyhow"], owners: &["crates/writ-cli/"] },
];

/// Paths that the pure crates may not name outside tests.
const IMPURE: &[&str] = &[
    "tokio",
    "std::fs",
    "std::net",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "jiff::Timestamp::now",
];
/// The crates that are pure: no runtime, no I/O, no clock.
const PURE: &[&str] = &[
    "crates/writ-types/",
    "crates/writ-inspect/",
    "crates/writ-policy/",
    "crates/writ-agent/",
    "crates/writ-plan/",
    "crates/writ-autopilot/",
];
/// The only folder that may use `unsafe`.
const UNSAFE: &str = "crates/writ-sandbox/";

/// Dependencies that only some crates may ship.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("reqwest", &["writ-egress"]),
    ("hyper", &["writ-egress", "writ-fleet", "writ-gateway", "writ-launch", "writ-proxy", "writ-testkit"]),
    (
        "hyper-util",
        &["writ-egress", "writ-fleet", "writ-gateway", "writ-launch", "writ-proxy", "writ-testkit"],
    ),
    ("axum", &["writ-gateway", "writ-fleet", "writ-proxy", "writ-testkit", "writ-testbed"]),
    ("genai", &["writ-models"]),
    ("rusqlite", &["writ-store", "writ-operations", "writ-testkit"]),
    ("tokio-postgres", &["writ-operations"]),
    ("sqlparser", &["writ-operations"]),
    ("lettre", &["writ-operations"]),
    ("cedar-policy", &["writ-policy"]),
    ("landlock", &["writ-sandbox"]),
    ("seccompiler", &["writ-sandbox"]),
    ("anyhow", &["writ-cli", "xtask", "task-process", "task-bench", "task-mutants"]),
];

/// Checks what each source file names.
pub(super) fn check_sources(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_shipped = |source: &&Source| !lies_in(source, TASKS) && !is_build_script(&source.path);
    for source in sources.iter().filter(is_shipped) {
        for owned in OWNED.iter().filter(|owned| !lies_in(source, owned.owners)) {
            let shipped = source.paths.iter().filter(|mention| !mention.in_test);
            findings.extend(named(shipped, owned.paths).map(|mention| {
                let text =
                    format!("`{}`: {} belong to {}", mention.name, owned.what, owned.owners.join(", "));
                Finding::new("owner", &source.path, text).at(mention.line)
            }));
        }
        if lies_in(source, PURE) {
            let shipped = source.paths.iter().filter(|mention| !mention.in_test);
            findings.extend(named(shipped, IMPURE).map(|mention| {
                let text = format!("`{}`: this crate is pure", mention.name);
                Finding::new("pure", &source.path, text).at(mention.line)
            }));
        }
        if !source.path.starts_with(UNSAFE) {
            findings.extend(source.unsafes.iter().map(|mention| {
                let text = format!("`unsafe` belongs to {UNSAFE}");
                Finding::new("owner", &source.path, text).at(mention.line)
            }));
        }
    }
    findings
}

/// Checks what each crate depends on.
pub(super) fn check_manifests(crates: &[Crate]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in crates {
        let pure = PURE.contains(&one.folder.as_str());
        for dependency in &one.dependencies {
            let owners =
                DEPENDENCIES.iter().find(|(name, _)| *name == dependency.name).map(|(_, owners)| owners);
            let item = format!("{} -> {}", one.name, dependency.name);
            if dependency.kind == Kind::Shipped
                && let Some(owners) = owners
                && !owners.contains(&one.name.as_str())
            {
                findings.push(Finding::new(
                    "owner",
                    item.clone(),
                    format!("belongs to {}", owners.join(", ")),
                ));
            }
            if pure && dependency.name == "tokio" {
                findings.push(Finding::new("pure", item, "this crate is pure"));
            }
        }
    }
    findings
}

/// Returns true if a file runs while a crate is built, and is no part of it.
fn is_build_script(path: &str) -> bool {
    let inner = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    inner.is_some_and(|(_, file)| file == "build.rs")
}

fn lies_in(source: &Source, folders: &[&str]) -> bool {
    folders.iter().any(|folder| source.path.starts_with(folder))
}

/// The mentions that name one of `paths`: it, something below it, or a glob above it.
fn named<'a>(
    mentions: impl Iterator<Item = &'a Mention>,
    paths: &'static [&'static str],
) -> impl Iterator<Item = &'a Mention> {
    mentions.filter(|mention| {
        paths.iter().any(|path| {
            let below =
                mention.name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
            let above = mention.name.strip_suffix("*").is_some_and(|head| path.starts_with(head));
            below || above
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn texts(path: &str, text: &str) -> Vec<String> {
        let source = Source::parse(path, text).unwrap();
        check_sources(&[source]).into_iter().map(|finding| finding.text).collect()
    }

    /// Only `writ-sandbox` starts processes.
    ///
    /// Rows: SIL-194
    #[test]
    fn a_process_outside_the_sandbox_is_found() {
        let code = "use std::process::Command;\nfn a() { Command::new(\"x\"); }";
        assert_eq!(texts("crates/writ-tools/src/a.rs", code).len(), 2);
        assert_eq!(texts("crates/writ-tools/src/a.rs", "use std::process::*;").len(), 1);
        assert_eq!(
            texts("crates/writ-tools/src/a.rs", "fn a() { tokio::process::Command::new(\"x\"); }").len(),
            1
        );
        assert_eq!(texts("crates/writ-sandbox/src/a.rs", code), [""; 0]);
        assert_eq!(texts("crates/writ-tools/src/a.rs", "fn a() { std::process::exit(1) }"), [""; 0]);
        assert_eq!(texts("crates/writ-tools/src/a/tests.rs", code), [""; 0]);
        assert_eq!(texts("crates/writ-tools/build.rs", code), [""; 0], "runs while it is built");
        assert_eq!(texts("crates/writ-tools/src/build.rs", code).len(), 2);
    }

    /// Only `writ-egress` reaches out.
    #[test]
    fn a_socket_outside_egress_is_found() {
        for code in
            ["use std::net::TcpStream;", "use reqwest::Client;", "fn a() { tokio::net::UdpSocket::bind(1); }"]
        {
            assert_eq!(texts("crates/writ-models/src/a.rs", code).len(), 1, "{code}");
            assert_eq!(texts("crates/writ-egress/src/a.rs", code), [""; 0]);
        }
        assert_eq!(texts("crates/writ-runtime/src/a.rs", "use tokio::net::TcpListener;").len(), 1);
        assert_eq!(texts("crates/writ-gateway/src/a.rs", "use tokio::net::TcpListener;"), [""; 0]);
    }

    /// Only `writ-store` writes SQL; only the binary reads the environment and has untyped errors.
    #[test]
    fn sql_environment_and_untyped_errors_have_owners() {
        let code = "use rusqlite::Connection;\nfn a() -> anyhow::Result<()> { std::env::var(\"A\") }";
        assert_eq!(texts("crates/writ-runtime/src/a.rs", code).len(), 3);
        assert_eq!(texts("crates/writ-cli/src/a.rs", code).len(), 1);
        assert_eq!(texts("crates/writ-store/src/a.rs", code).len(), 2);
    }

    /// No tool's result is made but where a `Rendered` comes in, whose text is `Clean`.
    ///
    /// Rows: WIN-220
    #[test]
    fn a_tool_result_round_the_redactor_is_found() {
        let code = "use writ_types::chat::ToolResult;\nfn a() -> ToolResult { ToolResult { text } }";
        assert_ne!(texts("crates/writ-runtime/src/perform.rs", code), [""; 0]);
        assert_ne!(texts("crates/writ-tools/src/render.rs", "use writ_types::chat::*;"), [""; 0]);
        assert_eq!(texts("crates/writ-runtime/src/act.rs", code), [""; 0]);
        let shipped = include_str!("../../../crates/writ-tools/src/render.rs");
        assert!(shipped.contains("pub text: Clean,"), "what results are made from");
    }

    /// No file that retries, routes or dispatches can name what providers state of their limits, and what it is shown as has no number.
    ///
    /// Rows: SF-476 (in part: the check of imports)
    #[test]
    fn a_decision_that_reads_stated_limits_is_found() {
        for path in [
            "crates/writ-autopilot/src/schedule.rs",
            "crates/writ-pilot/src/drive.rs",
            "crates/writ-runtime/src/model.rs",
            "crates/writ-models/src/failover.rs",
            "crates/writ-models/src/retry.rs",
        ] {
            for code in [
                "use crate::rate::RateHeaders;",
                "use crate::rate::{RateBoard, RateHeaders};",
                "use writ_types::api::model::ProviderLimits;",
                "fn a(limits: &writ_types::api::model::StatedLimits) {}",
            ] {
                assert_ne!(texts(path, code), [""; 0], "{path}: {code}");
            }
        }
        assert_eq!(texts("crates/writ-gateway/src/http.rs", "use crate::rate::Limiter;"), [""; 0]);
        let shown = include_str!("../../../crates/writ-types/src/api/model/stated.rs");
        for public in
            ["pub at:", "pub requests:", "pub tokens:", "pub limit:", "pub remaining:", "pub reset:"]
        {
            assert!(!shown.contains(public), "{public} can be read");
        }
    }

    /// Only `writ-sandbox` has `unsafe`, and tests are no excuse.
    #[test]
    fn unsafe_outside_the_sandbox_is_found() {
        assert_eq!(texts("crates/writ-store/src/a/tests.rs", "fn a() { unsafe { b() } }").len(), 1);
        assert_eq!(texts("crates/writ-sandbox/src/a.rs", "fn a() { unsafe { b() } }"), [""; 0]);
    }

    /// Design 2 gives the sandbox, which forks and makes namespaces, the only `unsafe`; all else has none.
    ///
    /// Rows: SCL-008
    #[test]
    fn the_sources_have_unsafe_in_the_sandbox_alone() {
        let root = crate::workspace::root().unwrap();
        let sources = crate::source::parse_all(&crate::source::texts(&root).unwrap()).unwrap();
        let found: Vec<Finding> =
            check_sources(&sources).into_iter().filter(|finding| finding.text.contains("unsafe")).collect();
        assert_eq!(found, []);
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        assert!(
            manifest.lines().any(|line| line.trim() == "unsafe_code = \"deny\""),
            "the compiler refuses it"
        );
    }

    /// The door and the turn machine know no runtime, no files and no clock.
    #[test]
    fn the_pure_crates_stay_pure() {
        let code = "use std::time::Instant;\nfn a() { Instant::now(); tokio::spawn(b); std::fs::read(c); }";
        assert_eq!(texts("crates/writ-policy/src/a.rs", code).len(), 3);
        assert_eq!(texts("crates/writ-agent/src/a.rs", code).len(), 3);
        assert_eq!(texts("crates/writ-agent/tests/suite.rs", code), [""; 0]);
        assert_eq!(texts("crates/writ-runtime/src/a.rs", code), [""; 0]);
    }

    #[test]
    fn a_dependency_of_another_owner_is_found() {
        let dependency = |name: &str, kind| Dependency { name: name.to_owned(), kind };
        let one = Crate {
            name: "writ-policy".to_owned(),
            layer: Some(1),
            dependencies: vec![
                dependency("anyhow", Kind::Shipped),
                dependency("rusqlite", Kind::Development),
                dependency("tokio", Kind::Development),
                dependency("cedar-policy", Kind::Shipped),
            ],
            folder: "crates/writ-policy/".to_owned(),
            manifest: String::new(),
            module_layers: Vec::new(),
        };
        let items: Vec<String> = check_manifests(&[one]).into_iter().map(|finding| finding.item).collect();
        assert_eq!(items, ["writ-policy -> anyhow", "writ-policy -> tokio"]);
    }
}
