//! HTTP/2 goes through a tunnel as it is.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::mirror::pem;
use super::{connections, last_request};

/// A server that speaks HTTP/2 alone, and says in which version it was asked for what. It ends with its input.
const SERVER: &str = r"
const http2 = require('node:http2'), fs = require('node:fs'), { createPrivateKey } = require('node:crypto');
const [cert, der] = process.argv.slice(1).map((path) => fs.readFileSync(path));
const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' }).export({ format: 'pem', type: 'pkcs8' });
const server = http2.createSecureServer({ cert, key, allowHTTP1: false });
server.on('request', (request, response) => response.end(`${request.httpVersion} ${request.url} of-stream ${request.stream.id};`));
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
";

#[expect(clippy::disallowed_types, reason = "the server's side of a connection, made by who speaks HTTP/2")]
fn server(folder: &std::path::Path) -> (Child, u16) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["depot.test".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.join("ca.pem"), folder.join("key.der"));
    std::fs::write(&certificate, pem(cert.der())).expect("written");
    std::fs::write(&key, signing_key.serialize_der()).expect("written");
    let mut node = std::process::Command::new("node");
    node.args(["-e", SERVER]).args([&certificate, &key]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = node.spawn().expect("node");
    let mut port = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut port).expect("a line");
    (child, port.trim().parse().expect("a port"))
}

/// Rows: WIN-169 (in part: HTTP/2 through a tunnel)
#[test]
fn needs_userns_needs_curl_needs_node_http2_goes_through_a_tunnel_to_a_listed_host_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut server, port) = server(folder.path());
    let (listed, other) = (format!("depot.test:{port}"), format!("other.test:{port}"));
    let base = format!("https://{listed}");
    let curl = |urls: &str| {
        let script = format!(
            "curl -sS --http2 -m 20 --cacert /work/ca.pem -w ' version %{{http_version}} made %{{num_connects}}\\n' {urls}"
        );
        ("shell_exec", json!({ "argv": ["sh", "-c", script], "hosts": [&listed] }))
    };
    let list = vec![curl(&format!("{base}/one {base}/two")), curl(&format!("https://{other}/three"))];
    let bench = Bench::new("openai", calls(list, "Done."));
    let config = format!(
        "[egress]\nallowed = [\"{listed}\"]\n[[egress.pin]]\nhost = \"depot.test\"\naddress = \"127.0.0.1\"\n\
         [[egress.pin]]\nhost = \"other.test\"\naddress = \"127.0.0.1\"\n"
    );
    std::fs::write(bench.home.root().join("config.toml"), config).expect("written");
    std::fs::copy(folder.path().join("ca.pem"), bench.project().join("ca.pem")).expect("copied");
    let done = bench.chat("fetch them", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let said = last_request(&bench);
    for told in ["2.0 /one of-stream 1; version 2 made 1", "2.0 /two of-stream 3; version 2 made 0"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(said.contains("403") && !said.contains("/three of-stream"), "{said}");
    let made = connections(&bench);
    let of = |host: &str| -> Vec<&str> {
        made.iter().filter(|one| one["host"] == host).filter_map(|one| one["verdict"].as_str()).collect()
    };
    assert_eq!((of("depot.test"), of("other.test")), (vec!["allowed"], vec!["denied"]), "{made:?}");
    drop(server.stdin.take());
    server.wait().expect("ended");
}
