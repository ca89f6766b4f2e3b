//! The network of a company: a real squid that wants a login, names that only it can look up, and a certificate authority
//! of one's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::mirror::Mirror;

/// How long squid may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits between two looks.
const STEP: Duration = Duration::from_millis(20);

type Process = std::process::Child;

/// A squid that lets `ann` with the password `p@ss` through, and finds these names on this machine.
struct Squid {
    port: u16,
    folder: tempfile::TempDir,
    process: Process,
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Squid {
    #[expect(clippy::disallowed_types, reason = "the test starts the proxy that it goes through")]
    fn start(names: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        // A squid that root starts goes on as another user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("open");
        let port = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
            free.local_addr().expect("an address").port()
        };
        let at = |name: &str| folder.path().join(name).display().to_string();
        let write =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("written");
        write("hosts", names.iter().map(|name| format!("127.0.0.1 {name}\n")).collect());
        write("login.sh", "while read -r pair; do case \"$pair\" in 'ann p@ss'|'ann p%40ss') echo OK;; *) echo ERR;; esac; done\n".to_owned());
        write(
            "squid.conf",
            format!(
                "http_port 127.0.0.1:{port}\npid_filename none\nhosts_file {}\ncache_log {}\naccess_log stdio:{}\n\
                 cache deny all\ncache_mem 8 MB\nnetdb_filename none\npinger_enable off\ncoredump_dir {}\n\
                 visible_hostname squid.test\nauth_param basic program /bin/sh {}\nauth_param basic children 1\n\
                 acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\n",
                at("hosts"),
                at("cache.log"),
                at("access.log"),
                at(""),
                at("login.sh"),
            ),
        );
        let program = ["/usr/sbin/squid", "/usr/bin/squid"].into_iter().find(|path| Path::new(path).exists());
        let process = std::process::Command::new(program.expect("squid is installed"))
            .args(["-N", "-f", &at("squid.conf")])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("squid starts");
        let squid = Self { port, folder, process };
        squid.until("cache.log", "Accepting HTTP Socket connections");
        squid
    }

    /// Waits until one of its logs has a word.
    fn until(&self, log: &str, word: &str) -> String {
        let (path, began) = (self.folder.path().join(log), Instant::now());
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if text.contains(word) {
                return text;
            }
            assert!(began.elapsed() < PATIENCE, "{word} is not in {log}: {text}");
            std::thread::park_timeout(STEP);
        }
    }

    fn address(&self, login: &str) -> String {
        format!("http://{login}127.0.0.1:{}", self.port)
    }
}

/// A bench whose model is at a name that only the proxy can look up.
fn inside(squid: &Squid, login: &str) -> Bench {
    let mut bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Hello from inside."));
    let base = bench.server.base_url_for(super::super::turns::wire("openai"));
    let there = base.replace("127.0.0.1", "models.corp.example");
    assert_ne!(base, there);
    bench.home = bench.home.with("WRIT_PROVIDERS__TEST__BASE_URL", &there);
    bench.home = bench.home.with("HTTP_PROXY", &squid.address(login));
    bench
}

#[test]
fn needs_squid_a_model_that_only_the_proxy_reaches_answers_and_doctor_shows_the_way() {
    let squid = Squid::start(&["models.corp.example"]);
    let bench = inside(&squid, "ann:p%40ss@");
    let done = bench.chat("hello", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(text(&done).contains("Hello from inside."), "{}", text(&done));
    let log = squid.until("access.log", "POST http://models.corp.example:");
    assert!(log.contains(" ann "), "{log}");
    let shown = text(&bench.home.run(&["doctor"]));
    let proxy =
        format!("http: http://127.0.0.1:{} (HTTP_PROXY), with user name and password ****", squid.port);
    assert!(
        shown.contains(&proxy) && shown.contains("models.corp.example") && !shown.contains("p@ss"),
        "{shown}"
    );
}

#[test]
fn needs_squid_a_login_that_is_refused_names_the_proxy_and_the_variable() {
    let squid = Squid::start(&["models.corp.example"]);
    let mut bench = inside(&squid, "ann:hunter2@");
    bench.home = bench.home.with("WRIT_MODELS__MAX_TRIES", "1");
    let done = bench.chat("hello", &[]);
    let shown = text(&done);
    assert_ne!(code(&done), 0, "{shown}");
    assert!(shown.contains("(407)") && shown.contains("(HTTP_PROXY)"), "{shown}");
    assert!(shown.contains("network.proxy_password"), "the remedy: {shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
    squid.until("access.log", "TCP_DENIED/407");
}

#[test]
fn needs_squid_a_page_over_tls_by_an_authority_of_ones_own_is_fetched_through_connect() {
    let (squid, mirror) = (Squid::start(&["depot.test"]), Mirror::start());
    let url = format!("https://depot.test:{}/inner", mirror.tls_port);
    let bench = Bench::new("openai", calls(vec![("web_fetch", json!({ "url": url }))], "Done."));
    let root = bench.home.root().to_owned();
    let authority = root.join("corp-root.pem");
    std::fs::write(&authority, &mirror.certificate).expect("written");
    let set = bench.home.run_with(&["secrets", "set", "proxy"], b"p@ss\n");
    assert_eq!(code(&set), 0, "{}", text(&set));
    let config = format!(
        "[egress]\nallowed = [\"depot.test:{}\"]\n[network]\nproxy = \"http://127.0.0.1:{}\"\nproxy_user = \"ann\"\n\
         proxy_password = \"secret:proxy\"\nunchecked_names = true\nca_file = [{authority:?}]\n",
        mirror.tls_port, squid.port
    );
    std::fs::write(root.join("config.toml"), config).expect("written");
    let done = bench.chat(&format!("Please read {url}."), &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert_eq!(mirror.asked(), ["GET /inner HTTP/1.1"]);
    squid.until("access.log", &format!("CONNECT depot.test:{}", mirror.tls_port));
    let made = super::connections(&bench);
    assert_eq!(made[0]["address"], serde_json::Value::Null, "the proxy has chosen it: {made:?}");
}

#[test]
fn an_authority_that_cannot_be_read_ends_the_start_with_its_setting_and_a_remedy() {
    let bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Hello."));
    let missing: PathBuf = bench.home.root().join("nowhere.pem");
    std::fs::write(bench.home.root().join("config.toml"), format!("[network]\nca_file = [{missing:?}]\n"))
        .expect("written");
    let done = bench.chat("hello", &[]);
    let shown = text(&done);
    assert_eq!(code(&done), 3, "{shown}");
    assert!(shown.contains("network.ca_file") && shown.contains("nowhere.pem"), "{shown}");
    assert!(shown.contains("correct the path"), "{shown}");
    assert_eq!(bench.server.recorded_requests().len(), 0);
}

#[test]
fn a_socks_proxy_is_refused_by_name_before_anything_is_sent() {
    let mut bench = Bench::new("openai", |_: &ParsedRequest| Reply::text("Hello."));
    bench.home = bench.home.with("ALL_PROXY", "socks5h://ann:hunter2@127.0.0.1:1080");
    let done = bench.chat("hello", &[]);
    let shown = text(&done);
    assert_eq!(code(&done), 3, "{shown}");
    assert!(shown.contains("ALL_PROXY names a SOCKS proxy") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn needs_userns_needs_curl_a_program_in_the_sandbox_trusts_the_owners_authority() {
    for trusted in [false, true] {
        let mirror = Mirror::start();
        let url = format!("https://depot.test:{}/inner", mirror.tls_port);
        let argv = ["curl", "-sS", "-m", "20", url.as_str()];
        let call = json!({ "argv": argv, "hosts": mirror.hosts() });
        let bench = super::bench(&mirror, vec![("shell_exec", call)]);
        if trusted {
            let root = bench.home.root().to_owned();
            let authority = root.join("corp-root.pem");
            std::fs::write(&authority, &mirror.certificate).expect("written");
            let config = std::fs::read_to_string(root.join("config.toml")).expect("reads");
            let config = format!("{config}[network]\nca_file = [{authority:?}]\n");
            std::fs::write(root.join("config.toml"), config).expect("written");
        }
        let done = bench.chat("Please look.", &[]);
        let request = super::last_request(&bench);
        assert_eq!(mirror.asked().len(), usize::from(trusted), "{}: {request}", text(&done));
        assert_eq!(request.contains("the page /inner"), trusted, "{request}");
    }
}
