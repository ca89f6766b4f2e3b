//! Standing approvals: what is alike is done in any conversation, within limits that a person has signed.

use std::collections::BTreeSet;

use super::*;

/// How a command ends that waits for an answer, and one that was used wrongly.
const WAITING: i32 = 5;
const USAGE: i32 = 2;

/// The owner's rule that asks about each payment.
const ASK: &str = "@id(\"ask-pay\") @ask(\"It pays.\")
forbid (principal, action == Action::\"call_tool\", resource == Target::\"crm/pay\");";

fn bank() -> Desk {
    let desk = Desk::new();
    desk.mode("bank");
    assert_eq!(code(&desk.add(&[])), 0);
    std::fs::write(desk.bench.home.root().join("policies/pay.cedar"), ASK).expect("written");
    desk.say("[tools.pay]\nsinks = [\"to\", \"amount\"]\ncontent = [\"memo\"]\n");
    desk
}

fn pay(to: &str, amount: &str, memo: &str) -> String {
    format!(r#"crm__pay {{"to": "{to}", "amount": {amount}, "memo": "{memo}"}}"#)
}

impl Desk {
    /// Asks for a payment, which is asked about, and answers with these flags.
    fn approve(&self, message: &str, flags: &[&str]) -> String {
        assert_eq!(code(&self.chat(message)), WAITING, "{message}");
        let ask = self.bench.ask();
        let approved = self.bench.home.run(&[&["approvals", "approve", &ask, "--yes"], flags].concat());
        assert_eq!(code(&approved), 0, "{}", text(&approved));
        ask
    }

    fn paid(&self, message: &str) -> usize {
        let said = self.said(message);
        assert!(
            said.contains("It said: ") && said.contains("paid "),
            "{said} {:?}",
            self.bench.events("denied")
        );
        1
    }

    fn asked(&self, message: &str) -> usize {
        assert_eq!(code(&self.chat(message)), WAITING, "{message}");
        let ask = self.bench.ask();
        assert_eq!(code(&self.bench.home.run(&["approvals", "deny", &ask])), 0);
        1
    }
}

/// One yes with limits: the same payment is made in other conversations without a question, another one asks, and so does
/// what is one use or one amount too much; the card and the list say what was signed; a restart changes nothing.
///
/// Rows: SIL-152 SIL-153
/// Rows: SF-016 (in part: no second question, also after a restart)
#[test]
fn needs_userns_needs_python_what_is_alike_is_done_within_limits_and_nothing_else() {
    let desk = bank();
    let rent = pay("ann", "5", "rent");
    assert_eq!(code(&desk.chat(&rent)), WAITING);
    let ask = desk.bench.ask();
    let shown = text(&desk.bench.home.run(&["approvals", "show", &ask]));
    assert!(
        shown.contains("Allow this exact request (10 times, 7 days) (--standing): ")
            && shown.contains("'argument to' = ann"),
        "{shown}"
    );
    let approve = |flags: &[&str]| {
        desk.bench.home.run(&[&["approvals", "approve", &ask, "--yes", "--standing"], flags].concat())
    };
    for flags in
        [&["--uses", "1001"][..], &["--days", "91"], &["--total", "memo=5"], &["--total", "amount=4"]]
    {
        assert_eq!(code(&approve(flags)), USAGE, "{flags:?}");
    }
    let approved = approve(&["--uses", "4", "--days", "30", "--total", "amount=20"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    assert!(text(&approved).contains("amount 20 in all"), "{}", text(&approved));

    let mut passed = desk.paid(&pay("ann", "7.5", "something else"));
    stop_engine_of(&desk.bench.home);
    let mut overruns = desk.asked(&pay("bob", "5", "rent"));
    overruns += desk.asked(&pay("ann", "7.51", "more than is left"));
    overruns += desk.asked(&pay("ann", "-1", "back"));
    let standing = desk.bench.home.json(&["approvals", "standing"]);
    let first = &standing["approvals"][0];
    assert_eq!((&first["uses_left"], &first["total_left"]), (&json!(2), &json!("7.5")), "{standing}");
    passed += desk.paid(&pay("ann", "7", "rent"));
    passed += desk.paid(&pay("ann", "0.25", "rent"));
    // The fifth: the total would still admit it.
    overruns += desk.asked(&pay("ann", "0.25", "rent"));
    let amounts: Vec<String> = desk.calls();
    assert_eq!(amounts.len(), 4, "{amounts:?}");
    let answered = text(&desk.bench.home.run(&["audit", "export"]));
    assert!(
        answered.contains("\"scope\":\"standing\"") && answered.contains("20 in all"),
        "what was signed is on record"
    );
    // The first question is what was approved.
    let asked = desk.bench.events("asked").len() - 1;
    assert_eq!(asked, overruns, "each is on record");
    println!("THREAT 5 attempts={overruns} refused={overruns} entries={asked} entry=asked twins={passed}");
    desk.verify();
}

/// Threat 5: taken back while a payment runs on it, that is stopped, and the next one is asked about.
///
/// Rows: SIL-154
/// Rows: SF-016 (in part: what was taken back is asked about again)
#[test]
fn needs_userns_needs_python_what_runs_on_an_approval_that_is_taken_back_is_stopped() {
    let desk = bank();
    let ask = desk.approve(&pay("ann", "5", "rent"), &["--standing"]);
    let twins = desk.calls().len();
    let mut attempts = 0;
    let mut refused = std::thread::scope(|scope| {
        attempts += 1;
        let slow = scope.spawn(|| desk.chat(&pay("ann", "5", "slowly")));
        while desk.calls().len() < 2 {
            assert!(!slow.is_finished(), "it waits for ever");
            std::thread::yield_now();
        }
        let revoked = desk.bench.home.json(&["approvals", "revoke", &ask]);
        assert_eq!(revoked["stopped"], 1, "{revoked}");
        let said = text(&slow.join().expect("ends"));
        assert!(said.contains("cancel") || said.contains("stopped"), "{said}");
        1
    });
    attempts += 1;
    refused += desk.asked(&pay("ann", "5", "rent"));
    assert_eq!(desk.bench.home.json(&["approvals", "standing"])["approvals"], json!([]));
    assert_eq!(code(&desk.bench.home.run(&["approvals", "revoke", &ask])), USAGE);
    // The first question is what was approved; its second answer takes that back.
    let taken_back =
        |row: &Value| row["payload"]["ask"] == ask.as_str() && row["payload"]["decision"] == "deny";
    let taken_back = desk.bench.events("answered").iter().filter(|row| taken_back(row)).count();
    let entries = desk.bench.events("asked").len() - 1 + taken_back;
    assert_eq!((taken_back, entries), (1, attempts), "each is on record");
    println!(
        "THREAT 5 attempts={attempts} refused={refused} entries={entries} entry=asked|answered twins={twins}"
    );
    desk.verify();
}

/// A conversation's own yes, and one that a session signs, cannot stand; nor is there a standing one of what changes a
/// project.
#[test]
fn needs_userns_needs_python_what_is_not_offered_cannot_stand() {
    let desk = bank();
    let ask = desk.approve(&pay("ann", "5", "rent"), &[]);
    assert_eq!(code(&desk.bench.home.run(&["approvals", "revoke", &ask])), USAGE);
    desk.asked(&pay("ann", "5", "rent"));
    desk.verify();
}

/// What was approved again and again is suggested to stand, with what that would have meant by the rules in force; one no, and it
/// is not.
///
/// Rows: SIL-330 (what is approved again and again is suggested to stand)
#[test]
fn needs_userns_needs_python_what_is_approved_each_time_is_suggested_to_stand() {
    let desk = bank();
    let suggest = || desk.bench.home.json(&["policy", "suggest"]);
    for amount in ["5", "6", "7"] {
        assert_eq!(suggest()["suggestions"], json!([]), "before {amount}");
        desk.approve(&pay("ann", amount, "rent"), &[]);
    }
    let suggestions = suggest()["suggestions"].clone();
    let first = &suggestions[0];
    assert_eq!((&first["asked"], &first["would_ask"]), (&json!(3), &json!(1)), "{suggestions}");
    assert_eq!(first["say"], "writ approvals approve ASK --standing --uses 3 --days 30 --total amount=18");
    let since = |days: &str| desk.bench.home.run(&["policy", "suggest", "--json", "--since", days]);
    let of = |days: &str| -> Value { serde_json::from_slice(&since(days).stdout).expect("JSON") };
    assert_eq!(of("30d"), of("30"), "a day is a day");
    assert_eq!(of("0d")["asked"], 0, "not so long ago");
    for wrong in ["30h", "d", "-1", ""] {
        assert_eq!(code(&since(wrong)), USAGE, "{wrong:?}");
    }
    // Each is judged again by the rules as they are now.
    let rule = desk.bench.home.root().join("policies/pay.cedar");
    for now in
        [ASK.replace("@ask", "@approvers(\"2\") @ask"), ASK.replace("@ask(\"It pays.\")", ""), String::new()]
    {
        std::fs::write(&rule, &now).expect("written");
        assert_eq!(suggest()["suggestions"], json!([]), "{now}");
    }
    std::fs::write(&rule, "not a rule").expect("written");
    assert_eq!(code(&since("30")), 3, "{}", text(&since("30")));
    std::fs::write(&rule, ASK).expect("written");
    assert_eq!(suggest()["suggestions"], suggestions);
    assert!(text(&desk.bench.home.run(&["policy", "suggest"])).contains("lets through none that you denied"));
    desk.asked(&pay("ann", "900", "rent"));
    assert_eq!(suggest()["suggestions"], json!([]));
}

/// A yes to a group is one to what nothing marks, each signed by itself; what is odd in it stays, and is answered by itself.
#[test]
fn needs_userns_needs_python_a_yes_to_a_group_leaves_out_what_is_odd_in_it() {
    let desk = bank();
    let review = |more: &[&str]| desk.bench.home.run(&[&["approvals", "review"], more].concat());
    let first = desk.approve(&pay("ann", "10", "rent"), &[]);
    for (to, amount) in [("ann", "5"), ("ann", "6"), ("bob", "7"), ("ann", "8")] {
        assert_eq!(code(&desk.chat(&pay(to, amount, "rent"))), WAITING, "{to} {amount}");
    }
    let groups = desk.bench.home.json(&["approvals", "review"])["groups"].clone();
    let asks = groups[0]["asks"].as_array().expect("a group").clone();
    assert_eq!((groups.as_array().map(Vec::len), asks.len()), (Some(1), 4), "{groups}");
    let (alike, odd): (Vec<Value>, Vec<Value>) = asks.into_iter().partition(|ask| ask["together"] == true);
    let [odd] = odd.as_slice() else { panic!("{groups}") };
    assert_eq!(odd["anomalies"], json!(["to = bob was never approved before"]), "{groups}");
    let ids = |asks: &[Value]| -> BTreeSet<String> {
        asks.iter().map(|ask| ask["ask_id"].as_str().expect("an id").to_owned()).collect()
    };
    let answered = || -> BTreeSet<String> {
        let rows = desk.bench.events("answered");
        let asks = rows.iter().map(|row| row["payload"]["ask"].as_str().expect("an ask").to_owned());
        asks.filter(|ask| *ask != first).collect()
    };

    // Without a person nothing is signed; and a group that is not there is none.
    let unsaid = review(&["--approve", "1"]);
    assert_eq!((code(&unsaid), answered().len()), (WAITING, 0), "{}", text(&unsaid));
    // With its quotes: ids are chance, and could spell it.
    assert!(!text(&unsaid).contains("\"bob\""), "only what would be signed is shown: {}", text(&unsaid));
    assert_eq!(code(&review(&["--approve", "2", "--yes"])), USAGE);

    let signed = review(&["--approve", "1", "--yes", "--json"]);
    assert_eq!(code(&signed), 0, "{}", text(&signed));
    let signed: Value = serde_json::from_slice(&signed.stdout).expect("JSON");
    let approved = signed["approved"].as_array().expect("a list").clone();
    assert_eq!((ids(&approved), answered()), (ids(&alike), ids(&alike)), "{signed}");
    assert_eq!((&signed["not_approved"], &signed["unknown"]), (&json!([]), &json!([])));
    assert_eq!(desk.calls().len(), 1 + alike.len(), "each was made once");
    assert!(desk.calls().iter().all(|call| !call.contains("bob")), "{:?}", desk.calls());

    assert_eq!(desk.bench.ask(), odd["ask_id"], "the odd one waits");
    let left = review(&["--approve", "1", "--yes"]);
    assert_eq!(code(&left), USAGE, "each ask of its group is answered by itself: {}", text(&left));
    desk.verify();
}

/// The owner's rule that asks before a server is started.
const ASK_START: &str = "@id(\"ask-start\") @ask(\"It starts a server.\")
forbid (principal, action == Action::\"exec\", resource) when { context.profile == \"server\" };";

/// A server that was started on an approval ends when that is taken back, and its next start is asked about.
#[test]
fn needs_userns_needs_python_a_server_that_was_started_on_an_approval_ends_with_it() {
    let desk = Desk::new();
    desk.mode("bank");
    assert_eq!(code(&desk.add(&[])), 0);
    std::fs::write(desk.bench.home.root().join("policies/start.cedar"), ASK_START).expect("written");
    desk.say("[tools.pay]\nsinks = [\"to\", \"amount\"]\ncontent = [\"memo\"]\n");
    let rent = pay("ann", "5", "rent");
    desk.chat(&rent);
    let ask = desk.bench.ask();
    let approved = desk.bench.home.run(&["approvals", "approve", &ask, "--yes"]);
    assert_eq!(code(&approved), 0, "{}", text(&approved));
    let session = desk.bench.home.json(&["status"])["session"]["session"].as_str().expect("one").to_owned();
    let more = || desk.bench.home.run(&["chat", "-m", &rent, "--session", &session]);
    // That a server was started is content from outside, so the payment is asked about by itself.
    more();
    let paying = desk.bench.ask();
    assert_ne!(paying, ask);
    let paid = desk.bench.home.run(&["approvals", "approve", &paying, "--yes"]);
    assert_eq!(code(&paid), 0, "{}", text(&paid));
    assert_eq!(desk.calls().len(), 1, "the server runs, and is called");
    let revoked = desk.bench.home.json(&["approvals", "revoke", &ask]);
    assert_eq!(revoked["stopped"], 1, "{revoked}");
    more();
    assert_ne!(desk.bench.ask(), ask, "its start is asked about anew");
    assert_eq!(desk.calls().len(), 1, "and nobody was paid");
    assert_eq!(
        code(&desk.bench.home.run(&["approvals", "revoke", &ask])),
        USAGE,
        "nothing runs on it any more"
    );
    desk.verify();
}
