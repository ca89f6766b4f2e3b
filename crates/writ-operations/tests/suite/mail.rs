//! Mails from templates.

use rusqlite::Connection;
use writ_testkit::mail_sink::{MailFault, MailSink};

use super::*;

const OPERATIONS: &str = r#"
name = "send_email"
parameters = { template = { role = "template" }, order = {} }
[target.mail]
server = "outgoing"
to = { database = "shop", table = "customers", customer = "id", email = "email", values = ["name"] }
[target.mail.templates.confirmation]
subject = "Your order {order}"
body = """
Dear {customer.name},
your order {order} is on its way. {{x}}
"""
[target.mail.templates.apology]
subject = "Sorry"
body = "{order}"
"#;

/// The time limit where a test is not about it.
const PATIENCE: Duration = Duration::from_secs(60);

fn world(sink: &MailSink) -> World {
    world_within(sink, PATIENCE)
}

fn world_within(sink: &MailSink, limit: Duration) -> World {
    let folder = TempDir::new().expect("a folder");
    let connection = Connection::open(folder.path().join("shop.db")).expect("a database");
    connection
        .execute_batch(
            "CREATE TABLE customers (id TEXT, email TEXT, name TEXT);
             INSERT INTO customers VALUES ('7', 'anna@example.org', 'Anna {order}'), ('8', 'a@b.example' || char(13) || char(10) || 'RCPT TO:<e@x>', 'E'),
                ('9', NULL, 'N'), ('10', 'one@example.org', ''), ('10', 'two@example.org', '');",
        )
        .expect("customers");
    let config = format!(
        "databases.shop = {{ kind = \"sqlite\", path = \"shop.db\" }}\n\
         mail.outgoing = {{ server = \"{}\", tls = \"none\", user = \"u\", password = \"planted\", from = \"Shop <shop@example.org>\" }}",
        sink.address()
    );
    World::within(folder, OPERATIONS, &config, limit)
}

/// A mail is a listed template, and goes to the case's own customer.
///
/// Rows: SLO-063
#[tokio::test]
async fn a_mail_is_its_template_and_goes_to_the_customer() {
    let sink = MailSink::start(MailFault::None).await.expect("a sink");
    let world = world(&sink);
    let result = world.perform("send_email", "7", json!({ "template": "confirmation", "order": "A1" })).await;
    assert_eq!(result.expect("a mail").changed, 1);
    let mail = sink.mails().pop().expect("a mail");
    assert_eq!(
        (mail.from.as_str(), mail.to.as_slice()),
        ("shop@example.org", &["anna@example.org".to_owned()][..])
    );
    assert_eq!(mail.login.as_deref(), Some("PLAIN AHUAcGw0bnRlZC1zM2NyZXQ="));
    for line in [
        "Subject: Your order A1",
        "To: anna@example.org",
        "Dear Anna {order},",
        "your order A1 is on its way. {x}",
    ] {
        assert!(mail.lines.iter().any(|one| one == line), "{line}: {:#?}", mail.lines);
    }
    // No other template, and no text of the agent's own.
    let promo = world.perform("send_email", "7", json!({ "template": "promo", "order": "A1" })).await;
    assert!(not_performed(promo).contains("no such template"));
    assert_eq!(sink.mails().len(), 1);
}

/// Lines in values are lines of the text, never of the head or of the protocol.
#[tokio::test]
async fn values_stay_in_their_place() {
    let sink = MailSink::start(MailFault::None).await.expect("a sink");
    let world = world(&sink);
    for text in HOSTILE {
        let before = sink.mails().len();
        let result = world.perform("send_email", "7", json!({ "template": "apology", "order": text })).await;
        assert_eq!(result.expect("a mail").changed, 1, "{text:?}");
        let mails = sink.mails();
        assert_eq!(mails.len(), before + 1, "one mail: {text:?}");
        let mail = mails.last().expect("a mail");
        assert_eq!(mail.to, ["anna@example.org"]);
        let head: Vec<&String> = mail.lines.iter().take_while(|line| !line.is_empty()).collect();
        assert!(head.iter().all(|line| !line.to_lowercase().starts_with("bcc")), "{head:?}");
        if text.chars().any(char::is_control) {
            let subject =
                world.perform("send_email", "7", json!({ "template": "confirmation", "order": text })).await;
            assert!(not_performed(subject).contains("subject"), "{text:?}");
        }
    }
    for (customer, what) in
        [("8", "address is none"), ("9", "address is none"), ("10", "exactly one"), ("11", "exactly one")]
    {
        let result =
            world.perform("send_email", customer, json!({ "template": "apology", "order": "x" })).await;
        assert!(not_performed(result).contains(what), "{customer}");
    }
}

/// Faults before the text was sent did nothing; one after it is unknown.
#[tokio::test]
async fn an_outcome_is_unknown_only_after_the_text_was_sent() {
    let mail = json!({ "template": "apology", "order": "x" });
    for (fault, limit, says) in [
        (MailFault::RefusesRecipients, PATIENCE, "550"),
        (MailFault::RefusesMails, PATIENCE, "554"),
        (MailFault::Silent, Duration::from_secs(2), "in time"),
    ] {
        let sink = MailSink::start(fault).await.expect("a sink");
        let what = not_performed(world_within(&sink, limit).perform("send_email", "7", mail.clone()).await);
        assert!(what.contains(says) && !what.contains("anna"), "{what}");
    }
    let sink = MailSink::start(MailFault::HangsUp).await.expect("a sink");
    let lost = world(&sink);
    unknown(lost.perform("send_email", "7", mail.clone()).await);
    drop(sink);
}
