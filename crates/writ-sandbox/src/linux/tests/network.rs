//! The way out of a sandbox: through the proxy on its own listener, and no other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use writ_egress::connect::{Later, Resolver};
use writ_egress::gatekeeper::{Gatekeeper, NotAsked, NotRecorded};
use writ_egress::proxy::{Proxy, ProxyConfig};
use writ_inspect::egress::host::Target;
use writ_inspect::egress::{EgressScope, Pin};
use writ_types::entry::{ConnectionRecord, Verdict};
use writ_types::id::AskId;

use super::*;
use crate::exec::Listener;

/// A scope, and the records of what was done in it.
#[derive(Debug)]
struct Keeper {
    scope: Arc<EgressScope>,
    records: Mutex<Vec<ConnectionRecord>>,
}

impl Gatekeeper for Keeper {
    fn current_scope(&self) -> Later<'_, Arc<EgressScope>> {
        Box::pin(async { Arc::clone(&self.scope) })
    }

    fn ask_person<'a>(&'a self, _: &'a Target) -> Later<'a, Result<AskId, NotAsked>> {
        Box::pin(async { Ok(AskId::from_random(1)) })
    }

    fn store_records<'a>(&'a self, batch: Vec<ConnectionRecord>) -> Later<'a, Result<(), NotRecorded>> {
        Box::pin(async {
            self.records.lock().unwrap().extend(batch);
            Ok(())
        })
    }
}

/// Nothing has an address but what is pinned.
#[derive(Debug)]
struct NoNames;

impl Resolver for NoNames {
    fn resolve_name<'a>(&'a self, _: &'a str, _: u16) -> Later<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Err(io::Error::other("no such name")) })
    }
}

/// A server of files, which counts what it sends.
async fn files(folder: PathBuf) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let folder = folder.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let head = String::from_utf8(head).unwrap();
                let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/");
                let path = folder.join(path.trim_start_matches('/'));
                let path = if path.is_dir() { path.join("index.html") } else { path };
                let (status, body) = match fs::read(&path) {
                    Ok(body) => ("200 OK", body),
                    Err(_) => ("404 Not Found", Vec::new()),
                };
                let media = if path.extension().is_some_and(|end| end == "html") {
                    "text/html"
                } else {
                    "application/octet-stream"
                };
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
            });
        }
    });
    address
}

fn scope(name: &str, server: SocketAddr) -> EgressScope {
    EgressScope {
        allowed: vec![format!("{name}:{}", server.port()).parse().unwrap()],
        pins: vec![Pin { host: name.parse().unwrap(), address: server.ip() }],
        registries: Default::default(),
        ..EgressScope::default()
    }
}

impl Fixture {
    /// A shell script with a way out that whoever holds the receiver serves.
    async fn with_network(&self, script: &str, network: mpsc::Sender<Listener>) -> ExecResult {
        let mut action = exec(&["sh", "-c", script]);
        action.hosts = vec!["pages.test".into()];
        action.timeout_ms = 120_000;
        let options = ExecOptions { network: Some(network), ..ExecOptions::default() };
        self.workspace.run_exec(action, options).await.unwrap()
    }

    /// A shell script behind the proxy. Returns what it did and what was recorded.
    async fn behind_proxy(&self, scope: EgressScope, script: &str) -> (ExecResult, Vec<ConnectionRecord>) {
        let keeper = Arc::new(Keeper { scope: Arc::new(scope), records: Mutex::default() });
        let (sender, mut receiver) = mpsc::channel::<Listener>(1);
        let stop = CancellationToken::new();
        let (gatekeeper, token) = (Arc::clone(&keeper) as Arc<dyn Gatekeeper>, stop.clone());
        let serving = tokio::spawn(async move {
            let listener: OwnedFd = receiver.recv().await.expect("a listener").into();
            let proxy = Proxy::new(ProxyConfig::default(), Arc::new(NoNames));
            proxy.serve(listener, gatekeeper, "shell_exec", token).await
        });
        let result = self.with_network(script, sender).await;
        stop.cancel();
        serving.await.unwrap().unwrap();
        let records = keeper.records.lock().unwrap().clone();
        (result, records)
    }
}

/// Rows: WIN-169
#[tokio::test]
async fn curl_reaches_a_listed_host_and_every_other_way_out_fails() {
    let fixture = Fixture::new().await;
    fs::create_dir(fixture.dir.join("www")).unwrap();
    fs::write(fixture.dir.join("www/page"), "from outside\n").unwrap();
    let server = files(fixture.dir.join("www")).await;
    let port = server.port();
    let script = format!(
        r#"
        curl -sS -m 10 http://pages.test:{port}/page || echo NOT REACHED
        no() {{ name=$1; shift; "$@" >/tmp/out 2>&1 && echo "OPEN: $name: $(cat /tmp/out)"; }}
        # Unlisted, blocked by the proxy.
        no unlisted curl -sSf -m 5 http://unlisted.test/
        no tunnel curl -sSf -m 5 https://unlisted.test/
        no port curl -sSf -m 5 http://pages.test:22/
        no literal curl -sSf -m 5 http://127.0.0.1:{port}/page --proxy http://127.0.0.1:3128 --noproxy ''
        no metadata curl -sSf -m 5 http://169.254.169.254/
        # Around the proxy: there is nothing there.
        no direct curl -sSf -m 5 --noproxy '*' http://pages.test:{port}/page
        no loopback curl -sSf -m 5 --noproxy '*' http://127.0.0.1:{port}/page
        no loopback6 curl -sSf -m 5 --noproxy '*' 'http://[::1]:{port}/page'
        no unset env -u http_proxy -u HTTP_PROXY -u ALL_PROXY -u all_proxy curl -sSf -m 5 http://pages.test:{port}/page
        no raw python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)'
        no udp python3 -c 'import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("192.0.2.1", 53)); s.send(b"x")'
        no name python3 -c 'import socket; socket.getaddrinfo("pages.test", 80)'
        no netlink python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)'
        # The listener is nobody's inside: it is not open, and its port is not free.
        no socket sh -c 'ls -l /proc/self/fd /proc/$PPID/fd | grep -q socket:'
        no rebind python3 -c 'import socket; socket.create_server(("127.0.0.1", 3128))'
        echo done
        "#
    );
    let (result, records) = fixture.behind_proxy(scope("pages.test", server), &script).await;
    assert_eq!(result.stdout.text, "from outside\ndone\n", "{result:?}");
    let verdicts: Vec<_> =
        records.iter().map(|record| (record.host.as_str(), record.port, record.verdict)).collect();
    assert_eq!(
        verdicts,
        [
            ("pages.test", port, Verdict::Allowed),
            ("unlisted.test", 80, Verdict::Asked),
            ("unlisted.test", 443, Verdict::Asked),
            ("pages.test", 22, Verdict::Denied),
            ("127.0.0.1", port, Verdict::Denied),
            ("169.254.169.254", 80, Verdict::Denied),
        ]
    );
    assert!(records[0].received > 13 && records[0].sent > 0, "{records:?}");
}

/// Rows: WIN-155 (in part: the variables)
#[tokio::test]
async fn programs_are_told_of_the_proxy_when_and_only_when_there_is_one() {
    let fixture = Fixture::new().await;
    let told = "env | grep -iE 'proxy|^PIP_|npm_config|^CARGO|^GIT_' | sort";
    assert_eq!(fixture.sh(told).await, "GIT_CONFIG_SYSTEM=/etc/gitconfig");
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    let result = fixture.with_network(told, sender).await;
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "npm_config_proxy"] {
        assert!(result.stdout.text.contains(&format!("{name}=http://127.0.0.1:3128\n")), "{result:?}");
    }
    assert!(result.stdout.text.contains("NO_PROXY=localhost,127.0.0.1,::1\n"), "{result:?}");

    // The host's end is not inherited by what the host starts.
    let listener: OwnedFd = receiver.recv().await.expect("a listener").into();
    let flags = nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_GETFD).unwrap();
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "{}", listener.as_raw_fd());
}

/// Rows: WIN-173
#[tokio::test]
async fn without_the_proxy_there_is_no_network() {
    let fixture = Fixture::new().await;
    let script = "curl -sS -m 5 http://pages.test/; echo $?";
    // Nobody takes the listener: it is closed before, or while, the program runs.
    let (sender, receiver) = mpsc::channel::<Listener>(1);
    drop(receiver);
    let result = fixture.with_network(script, sender).await;
    assert_eq!(result.stdout.text, "7\n", "connection refused: {result:?}");
    // A command that names no host gets no listener, even where one could be taken.
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    let options = ExecOptions { network: Some(sender), ..ExecOptions::default() };
    let result = fixture.workspace.run_exec(exec(&["sh", "-c", script]), options).await.unwrap();
    assert_eq!(result.stdout.text, "6\n", "no such host: {result:?}");
    assert!(receiver.recv().await.is_none());
}

/// Rows: SIL-185 (in part: hosts are refused)
#[tokio::test]
async fn a_verification_and_the_second_rung_have_no_network() {
    let fixture = Fixture::new().await;
    let with = |sender| ExecOptions { network: Some(sender), ..ExecOptions::default() };
    let mut verification = exec(&["true"]);
    verification.hosts = vec!["pages.test".into()];
    verification.profile = ExecProfile::Verification;
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    let refused = fixture.workspace.run_exec(verification, with(sender)).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
    assert!(receiver.recv().await.is_none());

    let config = SandboxConfig { forbid_user_namespaces: true, ..SandboxConfig::default() };
    let fixture = Fixture::with(config).await;
    let mut action = exec(&["true"]);
    action.hosts = vec!["pages.test".into()];
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    let refused = fixture.workspace.run_exec(action, with(sender)).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
    assert!(receiver.recv().await.is_none());
}

/// A sandbox that cannot be made says why, whether a listener was expected or not.
#[tokio::test]
async fn a_failure_before_the_listener_is_reported() {
    let fixture = Fixture::new().await;
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    let mut action = exec(&["no-such-program"]);
    action.hosts = vec!["pages.test".into()];
    let options = ExecOptions { network: Some(sender), ..ExecOptions::default() };
    let result = fixture.workspace.run_exec(action, options).await.unwrap();
    assert_eq!(result.ending, Ending::NotFound);
    assert!(receiver.recv().await.is_some());
    // The project goes away: the overlay cannot be mounted, and no listener comes.
    let (sender, mut receiver) = mpsc::channel::<Listener>(1);
    fs::remove_dir_all(&fixture.project).unwrap();
    let mut action = exec(&["true"]);
    action.hosts = vec!["pages.test".into()];
    let options = ExecOptions { network: Some(sender), ..ExecOptions::default() };
    let failed = fixture.workspace.run_exec(action, options).await;
    assert!(matches!(failed, Err(SandboxError::Setup { .. })), "{failed:?}");
    assert!(receiver.recv().await.is_none());
}

/// pip, npm and git from a local mirror through the proxy, into the session's own home and work folder.
#[tokio::test]
async fn package_managers_work_through_the_proxy() {
    let fixture = Fixture::new().await;
    // What is mirrored is made in the sandbox, and served from the session's folder.
    fixture
        .sh(r#"
        set -e
        mkdir -p www/simple/writdemo www/npm/package && cd www
        python3 - <<'END'
import zipfile
files = {"writdemo.py": "print('pip works')\n",
         "writdemo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: writdemo\nVersion: 1.0\n",
         "writdemo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
record = "".join(f"{name},,\n" for name in files) + "writdemo-1.0.dist-info/RECORD,,\n"
with zipfile.ZipFile("simple/writdemo/writdemo-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
    wheel.writestr("writdemo-1.0.dist-info/RECORD", record)
open("simple/writdemo/index.html", "w").write(
    '<a href="writdemo-1.0-py3-none-any.whl">writdemo-1.0-py3-none-any.whl</a>')
END
        echo '{"name":"writdemo","version":"1.0.0","main":"index.js"}' > npm/package/package.json
        echo 'console.log("npm works")' > npm/package/index.js
        tar czf npm/writdemo-1.0.0.tgz -C npm package
        git init -q -b main repo && cd repo
        echo 'git works' > file && git add file
        git -c user.name=a -c user.email=a@b commit -q -m first
        git update-server-info
        "#)
        .await;
    let server = files(fixture.dir.join("data/upper/www")).await;
    let at = format!("http://pages.test:{}", server.port());
    let script = format!(
        r#"
        set -e
        pip install -q --index-url {at}/simple/ --trusted-host pages.test writdemo >&2
        python3 -m writdemo
        mkdir -p n && cd n && npm init -y >/dev/null && npm install --no-save {at}/npm/writdemo-1.0.0.tgz >&2
        node -e 'require("writdemo")'
        cd .. && git clone -q {at}/repo/.git cloned && cat cloned/file
        "#
    );
    let (result, records) = fixture.behind_proxy(scope("pages.test", server), &script).await;
    assert_eq!(result.stdout.text, "pip works\nnpm works\ngit works\n", "{result:?} {records:?}");
    assert!(records.len() >= 6, "{records:?}");
    let odd: Vec<_> = records.iter().filter(|record| record.host != "pages.test").collect();
    assert!(odd.is_empty(), "{odd:?}");
    // It is still there for the next command, which has no network.
    assert_eq!(fixture.sh("python3 -m writdemo").await, "pip works");
}

/// cargo from a local registry through the proxy; afterwards it builds from what it fetched, without a network.
#[tokio::test]
async fn cargo_works_through_the_proxy() {
    let fixture = Fixture::new().await;
    let made = r#"
        set -e
        mkdir -p www/crates/writdemo/1.0.0 www/index/wr/it made/writdemo-1.0.0/src app/src app/.cargo
        printf '[package]\nname = "writdemo"\nversion = "1.0.0"\nedition = "2021"\n' > made/writdemo-1.0.0/Cargo.toml
        echo 'pub fn hello() -> &'"'"'static str { "cargo works" }' > made/writdemo-1.0.0/src/lib.rs
        tar czf www/crates/writdemo/1.0.0/download -C made writdemo-1.0.0
        sum=$(sha256sum www/crates/writdemo/1.0.0/download | cut -d' ' -f1)
        echo '{"name":"writdemo","vers":"1.0.0","deps":[],"cksum":"'$sum'","features":{},"yanked":false}' > www/index/wr/it/writdemo
        printf '[package]\nname = "app"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\nwritdemo = { version = "1", registry = "mirror" }\n' > app/Cargo.toml
        echo 'fn main() { println!("{}", writdemo::hello()) }' > app/src/main.rs
        "#;
    fixture.sh(made).await;
    let server = files(fixture.dir.join("data/upper/www")).await;
    let at = format!("http://pages.test:{}", server.port());
    let script = format!(
        r#"
        set -e
        echo '{{"dl":"{at}/crates"}}' > www/index/config.json
        cd app
        printf '[registries.mirror]\nindex = "sparse+{at}/index/"\n' > .cargo/config.toml
        # Over plain HTTP cargo would ask to change to HTTP/2, which the proxy refuses.
        CARGO_HTTP_MULTIPLEXING=false cargo run -q
        "#
    );
    let (result, records) = fixture.behind_proxy(scope("pages.test", server), &script).await;
    assert_eq!(result.stdout.text, "cargo works\n", "{result:?} {records:?}");
    assert!(records.iter().all(|record| record.host == "pages.test"), "{records:?}");
    let mut again = exec(&["sh", "-c", "cd app && touch src/main.rs && cargo run -q --offline"]);
    again.timeout_ms = 120_000;
    let again = fixture.workspace.run_exec(again, ExecOptions::default()).await.unwrap();
    assert_eq!(again.stdout.text, "cargo works\n", "{again:?}");
}
