//! Package managers, git and curl as people have them, inside the sandbox, behind the proxy, against a local mirror.

use std::path::Path;

use serde_json::{Value, json};
use writ_types::digest::Digest;

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::mirror::Mirror;
use super::{connections, last_request};

/// The word that every package says.
pub(super) const WORD: &str = "from-the-mirror-7c1";

/// Makes what the mirror serves: a wheel, an npm package, a crate, a repository.
const FIXTURE: &str = r#"
set -eu
cd "$1"
mkdir -p simple/tiny-wheel npm/tiny-node/package npm/files crates tiny-crate-1.0.0/src index/ti/ny repo-work
python3 - "$2" <<'PY'
import sys, zipfile
with zipfile.ZipFile("simple/tiny-wheel/tiny_wheel-1.0-py3-none-any.whl", "w") as wheel:
    info = "tiny_wheel-1.0.dist-info/"
    wheel.writestr("tiny_wheel.py", f"WORD = '{sys.argv[1]}'\n")
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n")
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", f"tiny_wheel.py,,\n{info}METADATA,,\n{info}WHEEL,,\n{info}RECORD,,\n")
PY
echo '<a href="tiny_wheel-1.0-py3-none-any.whl">tiny_wheel-1.0-py3-none-any.whl</a>' > simple/tiny-wheel/index.html
echo '{"name": "tiny-node", "version": "1.0.0", "main": "index.js"}' > npm/tiny-node/package/package.json
echo "module.exports = '$2'" > npm/tiny-node/package/index.js
tar -czf npm/files/tiny-node-1.0.0.tgz -C npm/tiny-node package
printf '[package]\nname = "tiny-crate"\nversion = "1.0.0"\nedition = "2021"\n' > tiny-crate-1.0.0/Cargo.toml
echo "pub const WORD: &str = \"$2\";" > tiny-crate-1.0.0/src/lib.rs
tar -czf crates/tiny-crate-1.0.0.crate tiny-crate-1.0.0
cd repo-work
git init -q -b main
echo "$2" > word.txt
git add word.txt
git -c user.name=t -c user.email=t@example.org commit -q -m one
cd ..
git clone -q --bare repo-work repo.git
git -C repo.git update-server-info
"#;

/// Runs a script on the host, with nothing of its environment but the path.
#[expect(clippy::disallowed_types, reason = "the fixture is made by the programs that know how")]
fn host(script: &str, args: &[&str]) {
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", script, "fixture"]).args(args).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = shell.env("HOME", "/nonexistent").output().expect("sh");
    assert!(output.status.success(), "{}", text(&output));
}

/// A mirror of the fixture; what names its own address is written when that is known.
pub(super) fn mirror(folder: &Path) -> Mirror {
    std::fs::create_dir(folder).expect("made");
    host(FIXTURE, &[folder.to_str().expect("UTF-8"), WORD]);
    let mirror = Mirror::of(folder);
    let base = format!("https://depot.test:{}", mirror.tls_port);
    let tarball = format!("{base}/npm/files/tiny-node-1.0.0.tgz");
    let version = json!({ "name": "tiny-node", "version": "1.0.0", "dist": { "tarball": tarball } });
    let packument =
        json!({ "name": "tiny-node", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
    let write = |path: &str, text: Value| {
        std::fs::write(folder.join(path), format!("{text}\n")).expect("written");
    };
    write("npm/tiny-node/index.html", packument);
    let checksum =
        Digest::of_bytes(&std::fs::read(folder.join("crates/tiny-crate-1.0.0.crate")).expect("read"));
    write(
        "index/ti/ny/tiny-crate",
        json!({ "name": "tiny-crate", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false,
                "cksum": checksum.to_string() }),
    );
    write("index/config.json", json!({ "dl": format!("{base}/crates/{{crate}}-{{version}}.crate") }));
    mirror
}

fn sh(script: String, hosts: &[String]) -> (&'static str, Value) {
    ("shell_exec", json!({ "argv": ["sh", "-ec", script], "hosts": hosts, "timeout_secs": 120 }))
}

/// What the tools answered, newest turn, as one text each.
pub(super) fn results(bench: &Bench) -> Vec<String> {
    let request: Value = serde_json::from_str(&last_request(bench)).expect("JSON");
    let messages = request["messages"].as_array().expect("messages").clone();
    let of_tools = messages.iter().filter(|message| message["role"] == "tool");
    let text = |message: &Value| {
        let text = message["content"].as_str().expect("a text");
        // Between the marks of what is external.
        let text = text.split_once('\n').map_or(text, |(_, text)| text);
        text.rsplit_once('\n').map_or(text, |(text, _)| text).trim().to_owned()
    };
    of_tools.map(text).collect()
}

/// Issue: package managers work through the proxy, into the session's overlay, and what they brought is still there in
/// a sandbox without a network.
///
/// Rows: WIN-169
#[test]
fn needs_userns_needs_curl_needs_pip_needs_npm_needs_git_packages_come_through_the_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror(&folder.path().join("www"));
    let (hosts, port, tls) = (mirror.hosts(), mirror.port, mirror.tls_port);
    let node = format!("--registry https://depot.test:{tls}/npm/ --cafile /work/ca.pem");
    let list = vec![
        sh(
            format!(
                "/usr/bin/python3 -m pip install --user --quiet --index-url http://depot.test:{port}/simple \
                 --trusted-host depot.test tiny-wheel 2>&1; echo pip $?"
            ),
            &hosts,
        ),
        sh(
            format!(
                "/usr/bin/python3 -m pip install --target /work/tls --quiet --cert /work/ca.pem \
                 --index-url https://depot.test:{tls}/simple tiny-wheel 2>&1; echo pip $?"
            ),
            &hosts,
        ),
        sh(format!("npm install {node} --no-audit tiny-node 2>&1; echo npm $?"), &hosts),
        sh(
            format!(
                "git -c http.sslCAInfo=/work/ca.pem clone -q https://depot.test:{tls}/repo.git over-tls 2>&1
                 git clone -q http://depot.test:{port}/repo.git plain 2>&1; echo git $?"
            ),
            &hosts,
        ),
        sh(
            format!(
                "curl -sS --cacert /work/ca.pem https://depot.test:{tls}/repo.git/HEAD
                 curl -sS http://depot.test:{port}/repo.git/HEAD"
            ),
            &hosts,
        ),
        sh(
            "/usr/bin/python3 -c 'import tiny_wheel; print(tiny_wheel.WORD)'
             PYTHONPATH=/work/tls /usr/bin/python3 -c 'import tiny_wheel; print(tiny_wheel.WORD)'
             node -e 'console.log(require(\"tiny-node\"))'; cat over-tls/word.txt plain/word.txt"
                .to_owned(),
            &[],
        ),
    ];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    std::fs::write(bench.project().join("ca.pem"), &mirror.certificate).expect("written");
    let done = bench.chat("install them", &[]);
    assert_eq!(code(&done), 5, "the diff waits: {}", text(&done));
    let results = results(&bench);
    let words = [WORD; 5].join("\n");
    assert_eq!(results.last().map(String::as_str), Some(words.as_str()), "{results:#?}");
    for (result, end) in results.iter().zip(["pip 0", "pip 0", "npm 0", "git 0", "ref: refs/heads/main"]) {
        assert!(result.ends_with(end), "{end}: {result}");
    }
    let made = connections(&bench);
    let wrong: Vec<&Value> =
        made.iter().filter(|one| one["host"] != "depot.test" || one["verdict"] != "allowed").collect();
    assert!(!made.is_empty() && wrong.is_empty(), "{wrong:?}");
    let left: Vec<String> = std::fs::read_dir(bench.project())
        .expect("reads")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(left, ["ca.pem"], "nothing is in the project before the approval");
}

/// The same for cargo, with a registry of its own.
#[test]
fn needs_userns_needs_python_needs_git_a_crate_comes_through_the_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let mirror = mirror(&folder.path().join("www"));
    let tls = mirror.tls_port;
    let cargo = format!(
        "export CARGO_HOME=/work/.cargo-home CARGO_HTTP_CAINFO=/work/ca.pem
         export CARGO_REGISTRIES_MIRROR_INDEX=sparse+https://depot.test:{tls}/index/
         cargo fetch --quiet 2>&1; echo cargo $?"
    );
    let build = "export CARGO_HOME=/work/.cargo-home CARGO_REGISTRIES_MIRROR_INDEX=sparse+https://depot.test:PORT/index/
         cargo check --offline --quiet 2>&1; echo check $?"
        .replace("PORT", &tls.to_string());
    let mut bench = Bench::new("openai", calls(vec![sh(cargo, &mirror.hosts()), sh(build, &[])], "Done."));
    // The toolchain that built this test, wherever it is.
    let toolchain = Path::new(env!("CARGO")).parent().and_then(Path::parent).expect("a toolchain");
    bench.home.env.push(("WRIT_SANDBOX__READ_ONLY".to_owned(), format!("[{toolchain:?}]")));
    mirror.list_in(&bench);
    let project = bench.project();
    std::fs::write(project.join("ca.pem"), &mirror.certificate).expect("written");
    std::fs::create_dir(project.join("src")).expect("made");
    std::fs::write(project.join("src/lib.rs"), "pub const WORD: &str = tiny_crate::WORD;\n")
        .expect("written");
    let manifest = "[package]\nname = \"uses\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\n\
                    tiny-crate = { version = \"1\", registry = \"mirror\" }\n";
    std::fs::write(project.join("Cargo.toml"), manifest).expect("written");
    let done = bench.chat("build it", &[]);
    assert_eq!(code(&done), 5, "the diff waits: {}", text(&done));
    let results = results(&bench);
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(results[0].ends_with("cargo 0") && results[1].ends_with("check 0"), "{results:#?}");
    assert!(mirror.asked().contains(&"GET /crates/tiny-crate-1.0.0.crate HTTP/1.1".to_owned()));
}

/// Threats 14 and 16. What is no request for a listed host on its port does not leave, by the proxy or beside it; the
/// twin is the first line.
///
/// Rows: SLO-002 (in part: programs of an agent; nothing runs an agent of one's own yet)
/// Rows: WIN-169 (every other way out fails) WIN-174 (in part: addresses and odd ports) WIN-409
#[test]
fn needs_userns_needs_curl_needs_python_every_other_way_out_fails() {
    let mirror = Mirror::start();
    let (port, tls) = (mirror.port, mirror.tls_port);
    let raw = r#"
import socket, sys
def talk(*parts):
    with socket.create_connection(("127.0.0.1", 3128), 10) as proxy:
        proxy.settimeout(10)
        proxy.sendall("\r\n".join(parts + ("", "")).encode())
        return proxy.recv(64).split(b" ")[1].decode()
port, tls = sys.argv[1:]
host = f"depot.test:{port}"
good = f"http://{host}/raw"
print("raw", talk(f"GET {good} HTTP/1.1", f"Host: {host}"),
    talk(f"GET {good} HTTP/1.1", "Host: evil.test"),
    talk(f"GET {good} HTTP/1.1", f"Host: {host}", f"Host: {host}"),
    talk(f"GET http://user:pw@{host}/raw HTTP/1.1", f"Host: {host}"),
    talk(f"CONNECT evil.test\0.depot.test:{tls} HTTP/1.1", "Host: depot.test"),
    talk(f"CONNECT depot.test.:{tls} HTTP/1.1", f"Host: evil.test:{tls}"),
    talk("CONNECT depot.test:22 HTTP/1.1", "Host: depot.test:22"),
    talk("CONNECT [::ffff:169.254.169.254]:443 HTTP/1.1", "Host: [::ffff:169.254.169.254]:443"),
    talk(f"GET {good} HTTP/1.1", f"Host: {host}", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"))
"#;
    let script = format!(
        r#"
        curl -sS -m 10 http://depot.test:{port}/twin; echo
        no() {{ name=$1; shift; "$@" >/tmp/out 2>&1 && echo "OPEN: $name: $(cat /tmp/out)"; true; }}
        no port curl -sSf -m 5 http://depot.test:22/
        no other-port curl -sSf -m 5 http://depot.test/
        no address curl -sSf -m 5 --noproxy '' --proxy http://127.0.0.1:3128 http://127.0.0.1:{port}/
        no octal curl -sSf -m 5 --noproxy '' --proxy http://127.0.0.1:3128 http://0177.0.0.1:{port}/
        no inside curl -sSf -m 5 --noproxy '' --proxy http://127.0.0.1:3128 http://localhost:{port}/
        no metadata curl -sSf -m 5 http://169.254.169.254/
        no direct curl -sSf -m 5 --noproxy '*' http://127.0.0.1:{port}/
        no direct6 curl -sSf -m 5 --noproxy '*' 'http://[::1]:{port}/'
        no sni curl -sSkf -m 5 --connect-to evil.test:443:depot.test:{tls} https://evil.test/
        no tcp python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)'
        no udp python3 -c 'import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("192.0.2.1", 53)); s.send(b"x")'
        no name python3 -c 'import socket; socket.getaddrinfo("depot.test", 80)'
        python3 /work/raw.py {port} {tls}
        "#
    );
    let list = vec![sh(script, &mirror.hosts())];
    let bench = Bench::new("openai", calls(list, "Done."));
    mirror.list_in(&bench);
    std::fs::write(bench.project().join("raw.py"), raw).expect("written");
    let done = bench.chat("try", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let said = results(&bench);
    let expected = "the page /twin\nraw 200 400 400 400 400 400 403 403 400";
    assert_eq!(said.last().map(String::as_str), Some(expected), "{said:#?}");
    assert_eq!(mirror.asked(), ["GET /twin HTTP/1.1", "GET /raw HTTP/1.1"], "nothing else has arrived");
    let made = connections(&bench);
    let rules = |verdict: &str| -> Vec<&str> {
        let of = made.iter().filter(|one| one["verdict"] == verdict);
        of.map(|one| one["rule"].as_str().expect("a rule")).collect()
    };
    assert_eq!(rules("allowed"), ["granted", "granted"], "{made:?}");
    assert_eq!(rules("cut"), ["tunnel.other_host"], "a name inside that is not the tunnel's");
    assert_eq!(rules("asked"), ["unknown"], "listed with other ports than the web's");
    let inside = made.iter().find(|one| one["host"] == "localhost").expect("a record");
    assert_eq!((&inside["verdict"], &inside["rule"]), (&json!("denied"), &json!("own_address")), "{inside}");
}
