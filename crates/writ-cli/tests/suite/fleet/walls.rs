//! The database from where an agent stands: not there but through the proxy, and there with both keys alone.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use writ_testkit::fleet::shop::{customer_at, order_of};

use crate::engine::{Engine, Link};
use crate::proxy::RunningProxy;
use crate::{code, text};

use super::world::{World, operate, send};

/// Tries what it is handed, and says in one line what came of each.
const AGENT: &str = r#"
import json, socket, sqlite3, sys, urllib.request
shop, server, agents = sys.argv[1:]
def outcome(deed):
    try:
        return "OPEN " + repr(deed())
    except Exception as error:
        return type(error).__name__
def ask():
    url = "https://security-proxy.silo.internal/v1/operations/read_orders"
    request = urllib.request.Request(url, b"{}", {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["rows"]
def connect(family, place):
    with socket.socket(family) as stream:
        stream.settimeout(10)
        stream.connect(place)
host, port = server.rsplit(":", 1)
print(json.dumps({
    "file": outcome(lambda: sqlite3.connect("file:%s?mode=rw" % shop, uri=True).execute("SELECT id FROM orders").fetchall()),
    "server": outcome(lambda: connect(socket.AF_INET, (host, int(port)))),
    "other port": outcome(lambda: connect(socket.AF_INET, ("security-proxy.silo.internal", 5432))),
    "socket": outcome(lambda: connect(socket.AF_UNIX, agents)),
    "proxy": ask(),
}))
"#;

/// Rows: SLO-062
#[test]
fn needs_userns_needs_python_an_agent_reaches_the_database_through_the_proxy_with_both_keys_alone() {
    let world = World::new();
    let engine = Engine::start(&world.home, &[]).expect("ready");
    let proxy = RunningProxy::start(&world.home);
    let (base, base_file) = world.issue_base("reader", &json!({ "read_orders": {} }));
    let mut link = Link::open(&world.home).expect("connects");
    let keys = world.open_case(&mut link, &base, (&customer_at(0).id, "case"));
    let task_file = world.write_key("task.jwt", &keys.task);
    let path = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (agents, server) = (world.proxy("agents.sock"), world.sink.address().to_string());
    let places = [path(&world.proxy("shop.db")), server, path(&agents)];
    let mut args =
        ["run", "--base", &path(&base_file), "--task", &path(&task_file), "--", "python3", "-c", AGENT]
            .map(str::to_owned)
            .to_vec();
    args.extend(places);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = world.home.run(&args);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let said: Value = serde_json::from_slice(&done.stdout).expect("a line");
    // All of it is there for those outside.
    assert!(world.proxy("shop.db").exists() && agents.exists());
    for way in ["file", "server", "other port", "socket"] {
        let outcome = said[way].as_str().expect("a text");
        assert!(outcome.ends_with("Error"), "{way}: {outcome}");
    }
    let rows = said["proxy"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["id"] == order_of(0, 0).as_str()), "{said}");
    // Without keys, with one, and with both: the same request at the same socket.
    let with = |headers: &[(&str, &str)]| {
        send(&agents, "/v1/operations/read_orders", headers, "{}").expect("answers")
    };
    let (base, task) = (("writ-base-key", keys.base.as_str()), ("writ-task-key", keys.task.as_str()));
    for headers in [&[][..], &[base], &[task]] {
        let (status, body) = with(headers);
        assert_eq!((status, body.get("rows")), (401, None), "{body}");
    }
    assert_eq!(with(&[base, task]).0, 200, "twin");
    let both = (keys.base.as_str(), keys.task.as_str());
    assert_eq!(operate(&agents, both, ("read_customer", &json!({})), None).expect("answers").0, 403);
    drop(link);
    proxy.end(Signal::SIGTERM);
    assert_eq!(engine.stop().code, Some(0));
}
