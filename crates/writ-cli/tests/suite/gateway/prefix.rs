//! The page behind a reverse proxy that shows it below a path of its own: by hand as proxies send it, and behind a real nginx.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::turns::{Bench, calls};
use super::super::{code, text};
use super::{Stream, Web};

/// How long nginx may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it waits between two looks.
const STEP: Duration = Duration::from_millis(20);

/// A server with these settings.
fn web(settings: &str) -> Web {
    let bench = Bench::new("openai", calls(Vec::new(), "Yes. I do."));
    std::fs::write(bench.home.root().join("config.toml"), format!("[server]\n{settings}\n"))
        .expect("written");
    Web::over(bench, &[])
}

/// The path of a link that begins a session of the page.
fn link(web: &Web, port: u16) -> String {
    let link = web.bench.home.json(&["status", "--link"]);
    let link = link["link"].as_str().expect("a link").to_owned();
    link.split_once(&format!("localhost:{port}")).expect("this server").1.to_owned()
}

#[test]
fn a_proxy_that_leaves_the_path_is_served_below_it_and_elsewhere_as_before() {
    let web = web("base_path = \"/writ/\"");
    let bare = web.ask("GET", "/writ", &[], "");
    assert_eq!((bare.status, bare.header("location")), (308, Some("/writ/")));
    for path in ["/writ/", "/"] {
        let page = web.ask("GET", path, &[], "");
        assert_eq!(page.status, 200, "{page:?}");
        assert!(!page.body.contains("=\"/"), "an address from the root of the host: {}", page.body);
    }
    for file in ["manifest.json", "sw.js", "app.js", "js/socket.js", "icons/icon.svg", "style.css"] {
        assert_eq!(web.ask("GET", &format!("/writ/{file}"), &[], "").status, 200, "{file}");
    }
    let manifest = web.ask("GET", "/writ/manifest.json", &[], "").body;
    assert!(!manifest.contains("\"/"), "{manifest}");
    // What is guarded stays so below the path.
    for path in
        ["/writ/api/v1/state", "/writ/writ/api/v1/state", "/written/api/v1/state", "/writ//api/v1/state"]
    {
        let refused = web.ask("GET", path, &[], "");
        assert!(matches!(refused.status, 401 | 404), "{path}: {refused:?}");
    }
    assert_eq!(web.api("GET", "/writ/api/v1/state", &Value::Null).status, 200);
    let answer = web.ask("GET", &format!("/writ{}", link(&web, web.port)), &[], "");
    assert_eq!((answer.status, answer.header("location")), (303, Some("../")), "{answer:?}");
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("; Path=/writ/;") && !cookie.contains("Secure"), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair").to_owned();
    let own = [("Cookie", pair.as_str()), ("Sec-Fetch-Site", "same-origin")];
    let out = web.ask("POST", "/writ/api/v1/logout", &own, "");
    assert_eq!(out.status, 204, "{out:?}");
    assert!(out.header("set-cookie").is_some_and(|cookie| cookie.contains("Path=/writ/;")), "{out:?}");
    let bearer = web.bearer();
    assert!(web.socket("/writ/ws", &[("Authorization", &bearer)]).is_ok());
}

#[test]
fn what_a_proxy_says_of_its_path_counts_only_where_it_is_trusted() {
    let says = [("X-Forwarded-Prefix", "/writ"), ("X-Forwarded-Proto", "https")];
    for (settings, cookie) in [("", "Path=/;"), ("trusted_proxies = [\"127.0.0.1\"]", "Path=/writ/;")] {
        let web = web(settings);
        let answer = web.ask("GET", &link(&web, web.port), &says, "");
        let set = answer.header("set-cookie").expect("a cookie").to_owned();
        assert!(set.contains(cookie), "{settings}: {set}");
        assert_eq!(set.ends_with("Secure"), !settings.is_empty(), "{set}");
        let kept = web.ask("GET", "/writ/health", &says, "");
        assert_eq!(kept.status, if settings.is_empty() { 404 } else { 200 }, "{kept:?}");
        // Neither a name nor a path can be slipped in.
        for wrong in ["//evil.example", "/a;Domain=evil.example", "/../x", "/api"] {
            let answer = web.ask("GET", &link(&web, web.port), &[("X-Forwarded-Prefix", wrong)], "");
            assert!(
                answer.header("set-cookie").is_some_and(|set| set.contains("Path=/;")),
                "{wrong}: {answer:?}"
            );
        }
        let foreign = web.raw("GET / HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: localhost\r\nConnection: close\r\n\r\n", b"");
        assert_eq!(foreign.status, 403, "{foreign:?}");
    }
}

#[test]
fn a_base_path_that_is_none_is_a_typed_error() {
    for wrong in ["writ", "//host", "/api/writ", "/a b"] {
        let bench = Bench::new("openai", calls(Vec::new(), "Yes."));
        let config = format!("[server]\nbase_path = {wrong:?}\n");
        std::fs::write(bench.home.root().join("config.toml"), config).expect("written");
        let done = bench.chat("hello", &[]);
        assert_eq!(code(&done), 3, "{wrong}: {}", text(&done));
        assert!(text(&done).contains("server.base_path"), "{wrong}: {}", text(&done));
    }
}

type Process = std::process::Child;

/// An nginx that shows the server below `/writ/`.
struct Nginx {
    _folder: tempfile::TempDir,
    process: Process,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    free.local_addr().expect("an address").port()
}

impl Nginx {
    /// `rest` stands behind the server's address: `/` takes the path off, nothing leaves it.
    #[expect(clippy::disallowed_types, reason = "the test starts the proxy that it goes through")]
    fn start(port: u16, server: u16, rest: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = folder.path().display();
        let config = format!(
            "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/error.log;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {at}/b;\nproxy_temp_path {at}/p;\nfastcgi_temp_path {at}/f;\n\
             uwsgi_temp_path {at}/u;\nscgi_temp_path {at}/s;\n\
             map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n\
             server {{ listen 127.0.0.1:{port};\nlocation /writ/ {{ proxy_pass http://127.0.0.1:{server}{rest};\n\
             proxy_http_version 1.1;\nproxy_set_header Host $http_host;\nproxy_set_header X-Forwarded-For $remote_addr;\n\
             proxy_set_header X-Forwarded-Proto $scheme;\nproxy_set_header X-Forwarded-Prefix /writ;\n\
             proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection $connection_upgrade;\n\
             proxy_buffering off;\n}} }} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, config).expect("written");
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let process = std::process::Command::new(program.expect("nginx is installed"))
            .args([
                "-p",
                &at.to_string(),
                "-e",
                &format!("{at}/error.log"),
                "-c",
                &file.display().to_string(),
            ])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("nginx starts");
        let began = Instant::now();
        while Stream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "nginx does not listen");
            std::thread::park_timeout(STEP);
        }
        Self { _folder: folder, process }
    }
}

#[test]
fn needs_nginx_page_link_cookie_api_and_websocket_work_below_a_path() {
    for (rest, settings) in [
        // It takes the path off, and says so.
        ("/", "trusted_proxies = [\"127.0.0.1\"]"),
        // It takes the path off, and nobody believes it.
        ("/", ""),
        // It leaves the path.
        ("", "base_path = \"/writ\""),
    ] {
        let port = free_port();
        let mut web = web(&format!("allowed_hosts = [\"localhost:{port}\"]\n{settings}"));
        let (own, bearer) = (web.port, web.bearer());
        let _nginx = Nginx::start(port, own, rest);
        let path = link(&web, own);
        // From here on everything goes through nginx.
        web.port = port;
        let case = format!("{rest:?} {settings}");
        assert_eq!(web.ask("GET", "/writ", &[], "").status, 301, "{case}");
        let page = web.ask("GET", "/writ/", &[], "");
        assert!(page.status == 200 && page.body.contains("src=\"app.js\""), "{case}: {page:?}");
        for file in ["app.js", "sw.js", "manifest.json", "js/api.js"] {
            assert_eq!(web.ask("GET", &format!("/writ/{file}"), &[], "").status, 200, "{case}: {file}");
        }
        let answer = web.ask("GET", &format!("/writ{path}"), &[], "");
        assert_eq!((answer.status, answer.header("location")), (303, Some("../")), "{case}: {answer:?}");
        let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
        let scope = if settings.is_empty() { "Path=/;" } else { "Path=/writ/;" };
        assert!(cookie.contains(scope), "{case}: {cookie}");
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        let origin = format!("http://localhost:{port}");
        let headers =
            [("Cookie", pair.as_str()), ("Origin", origin.as_str()), ("Sec-Fetch-Site", "same-origin")];
        assert_eq!(web.ask("GET", "/writ/api/v1/state", &headers, "").status, 200, "{case}");
        let mut socket = web.socket("/writ/ws", &headers).unwrap_or_else(|status| panic!("{case}: {status}"));
        let _session = socket.join(None, 0);
        assert!(web.socket("/writ/ws", &[("Authorization", &bearer)]).is_ok(), "{case}");
        let foreign =
            web.ask("GET", "/writ/api/v1/state", &[("Origin", "http://evil.example"), headers[0]], "");
        assert_eq!(foreign.status, 403, "{case}: {foreign:?}");
    }
}
