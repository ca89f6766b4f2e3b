//! The way out of servers of tools.

use serde_json::json;

use super::super::mcp::{Desk, READ_ONLY};
use super::super::{code, text};
use super::connections;
use super::mirror::Mirror;

/// A server reaches the hosts that its owner's file names, which is leave enough; what programs of the session may reach is
/// no business of it, and nobody is asked for it.
#[test]
fn needs_userns_needs_python_a_server_reaches_its_own_hosts_and_no_others() {
    let (desk, mirror) = (Desk::new(), Mirror::start());
    mirror.list_in(&desk.bench);
    // Pinned to this machine, and in no list.
    let own = format!("plain.test:{}", mirror.port);
    let added = desk.add(&["--hosts", &own]);
    assert_eq!(code(&added), 0, "{}", text(&added));
    desk.say(READ_ONLY);
    let fetch = |url: &str| desk.said(&format!(r#"crm__behave {{"how": "fetch {url}"}}"#));
    let reached = fetch(&mirror.url("plain", "/mine"));
    assert!(reached.contains("fetched 200: the page /mine"), "{reached}");
    let listed = fetch(&mirror.url("depot", "/listed"));
    assert!(listed.contains("fetched 403"), "{listed}");
    assert_eq!(mirror.asked(), ["GET /mine HTTP/1.1"]);
    assert_eq!(desk.bench.count("asked"), 0);
    let made = connections(&desk.bench);
    let verdicts: Vec<_> = made.iter().map(|one| (&one["host"], &one["verdict"])).collect();
    assert!(verdicts.contains(&(&json!("plain.test"), &json!("allowed"))), "{made:?}");
    assert!(
        verdicts.contains(&(&json!("depot.test"), &json!("asked")))
            || verdicts.contains(&(&json!("depot.test"), &json!("denied"))),
        "{made:?}"
    );
}
