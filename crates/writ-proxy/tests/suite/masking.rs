//! What an agent sees of personal data: tokens.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use writ_proxy::events::EventMeasure;
use writ_types::entry::{CustomerReading, Fact};

use crate::bed::{Bed, PERSONAL, Pair, error_of, refund_agent};

fn assert_clean(text: &str) {
    for value in PERSONAL.iter().chain(&["4111111111111111", "020 7946 0958"]) {
        assert!(!text.to_lowercase().contains(&value.to_lowercase()), "{value} in {text}");
    }
}

/// Declared columns and free text hold tokens, the same for the same value in one case.
///
/// Rows: SLO-028
#[tokio::test]
async fn answers_hold_tokens_in_place_of_personal_data() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    // The free text first: then nothing but its form tells of the address, the card and the number.
    let early = bed.ask(&pair, "notes", json!({})).await;
    let early = early.body["rows"][0]["note"].as_str().expect("a note").to_owned();
    for gone in ["ANN@example.com", "4111111111111111", "020 7946 0958"] {
        assert!(!early.contains(gone), "{early}");
    }
    let customer = bed.ask(&pair, "customer", json!({})).await;
    assert_eq!(customer.status, 200, "{customer:?}");
    assert_clean(&customer.body.to_string());
    let row = &customer.body["rows"][0];
    for (column, prefix) in
        [("name", "name_tk_"), ("email", "email_tk_"), ("phone", "phone_tk_"), ("card", "card_tk_")]
    {
        assert!(row[column].as_str().is_some_and(|text| text.starts_with(prefix)), "{row}");
    }
    assert_eq!(row["customer_id"], json!(bed.ann.0), "the customer's own token");
    // Now the case knows its names, and finds them in what people wrote.
    let notes = bed.ask(&pair, "notes", json!({})).await;
    assert_clean(&notes.body.to_string());
    let note = notes.body["rows"][0]["note"].as_str().expect("a note");
    for column in ["email", "card"] {
        assert!(note.contains(row[column].as_str().expect("a token")), "the same token in both: {note}");
    }
    assert!(note.contains("name_tk_") && note.contains("phone_tk_"), "{note}");
    assert_eq!((&notes.body["rows"][1]["note"], &notes.body["rows"][1]["id"]), (&Value::Null, &json!("A-2")));
    // Neither does the ledger hold any of it, nor the proxy's database in the clear.
    assert_clean(&format!("{:?}{:?}", bed.facts("outcome"), bed.facts("intent")));
    let stored = std::fs::read(bed.folder.path().join("proxy/proxy.db")).expect("reads");
    let log = std::fs::read(bed.folder.path().join("proxy/proxy.db-wal")).unwrap_or_default();
    for value in PERSONAL {
        for bytes in [&stored, &log] {
            assert!(!bytes.windows(value.len()).any(|window| window == value.as_bytes()), "{value}");
        }
    }
}

/// A case knows its customer before its first answer and before the first word of its guest: the proxy has read the declared
/// columns itself.
///
/// Rows: SLO-028 (in part: names in the first free text)
#[tokio::test]
async fn names_are_known_before_the_first_answer() {
    let bed = Bed::new().await;
    let said = bed.proxy.mask_text(&bed.ann.1, "Ann Example here, customer 101").await.expect("masked");
    assert_clean(&said);
    assert_eq!(said.rsplit(' ').next(), Some(bed.ann.0.as_str()), "an id of three characters: {said}");
    let pair = bed.keys(refund_agent(), &bed.ann);
    let notes = bed.ask(&pair, "notes", json!({})).await;
    assert_clean(&notes.body.to_string());
    let name = said.split(' ').next().expect("a token");
    let sent = bed.ask(&pair, "send_email", json!({ "order": name, "template": "apology" })).await;
    assert_eq!(sent.status, 200);
    assert_eq!(bed.desk.asked()[0]["order"], json!("Ann Example"), "the words that the shop has come back");
}

/// Personal data is found in other spellings: composed otherwise, with digits, spaces and dashes of another script, and with
/// signs in it that are not seen.
///
/// Rows: SLO-028 (in part: spellings)
#[tokio::test]
async fn personal_data_is_found_in_other_spellings() {
    let bed = Bed::new().await;
    for text in [
        "Ann\u{a0}Example",
        "A\u{200b}nn Exam\u{ad}ple",
        "\u{ff21}nn \u{ff25}xample",
        "ann@\u{200b}example.com",
        "\u{ff14}111 1111 1111 1111",
        "\u{660}\u{661}\u{667}\u{661}\u{662}\u{663}\u{664}\u{665}\u{666}\u{667}\u{668}",
    ] {
        let said = format!("I am {text}!");
        let masked = bed.proxy.mask_text(&bed.ann.1, &said).await.expect("masked");
        assert!(masked.is_ascii() && masked.contains("_tk_"), "{text:?}: {masked}");
        assert_clean(&masked);
    }
}

/// Where the proxy cannot read the names of a customer, a free text is one token as a whole, and no less.
///
/// Rows: SLO-028 (in part: names that cannot be read)
#[tokio::test]
async fn free_text_is_one_token_where_names_cannot_be_read() {
    let bed = Bed::new().await;
    let (shop, aside) = (bed.folder.path().join("shop.db"), bed.folder.path().join("aside.db"));
    std::fs::rename(&shop, &aside).expect("moves");
    // A connection that is open still reads the file.
    let bed = bed.restarted().await;
    let open = async |case: &str, known: &[&str]| {
        let known = known.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = BTreeMap::from([("name".to_owned(), known)]);
        let opened = bed.proxy.open_case(Some("shop"), "101", case, &known).await.expect("opens");
        (opened.customer_token, opened.case_token)
    };
    let note = async |case: &(String, String)| {
        let answer = bed.ask(&bed.keys(refund_agent(), case), "notes", json!({})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["rows"][0]["note"].as_str().expect("a note").to_owned()
    };
    let is_whole = |text: &str| text.starts_with("text_tk_") && text.len() == "text_tk_".len() + 32;
    let case = open("C-7", &[]).await;
    let said = bed.proxy.mask_text(&case.1, "I am Ann Example").await.expect("masked");
    assert!(is_whole(&said), "{said}");
    assert_eq!(bed.proxy.restore_text(&case.1, &said).await.expect("restored"), "I am Ann Example");
    std::fs::rename(&aside, &shop).expect("moves back");
    assert!(is_whole(&note(&case).await), "it is not tried again at once");
    bed.clock.0.go_on(std::time::Duration::from_secs(5));
    let read = note(&case).await;
    assert!(read.contains("card_tk_"), "twin: by now it has been read: {read}");
    assert_clean(&read);
    // No operation has the name any more.
    std::fs::remove_file(bed.folder.path().join("operations/customer.toml")).expect("removed");
    bed.proxy.reload_operations().expect("reloaded");
    assert!(is_whole(&note(&open("C-8", &[]).await).await));
    let read = note(&open("C-9", &["Ann Example"]).await).await;
    assert!(read.contains("name_tk_"), "twin: the router has named the customer: {read}");
    assert_clean(&read);
}

/// The number of times that the proxy has read of a customer for a case, as its ledger says, and the last entry about it, which
/// says which operation read how much of which columns, and no value.
fn readings(bed: &Bed, case: &(String, String)) -> (usize, CustomerReading) {
    let facts = bed.facts("customer_read");
    let text = format!("{facts:?}");
    assert_clean(&text);
    let record = |fact| if let Fact::CustomerRead { record } = fact { *record } else { panic!("{text}") };
    let mut of_case: Vec<CustomerReading> = facts.into_iter().map(record).collect();
    of_case.retain(|record| (&record.customer, &record.case) == (&case.0, &case.1));
    (of_case.len(), of_case.pop().expect("it was read"))
}

/// The operation and number of values of each source that was read, and the names of the others.
fn sources(reading: &CustomerReading) -> (Vec<(&str, u64)>, Vec<&str>) {
    let (read, unread): (Vec<_>, Vec<_>) =
        reading.sources.iter().partition(|source| source.failure.is_empty());
    let read = read.into_iter().map(|source| (source.operation.as_str(), source.values)).collect();
    (read, unread.into_iter().map(|source| source.operation.as_str()).collect())
}

/// Declares one more operation without parameters.
fn declare(bed: &Bed, name: &str, statement: &str, table: &str, personal: &str) {
    let text = format!(
        "name = \"{name}\"\n[target.sql]\ndatabase = \"shop\"\nstatement = \"{statement}\"\n\
         [target.sql.tables.{table}]\ncustomer = \"customer_id\"\n[personal]\n{personal}\n"
    );
    std::fs::write(bed.folder.path().join(format!("operations/{name}.toml")), text).expect("writes");
    bed.proxy.reload_operations().expect("reads it");
}

/// An operation that cannot be read leaves what the others tell, and the ledger names it. What is read has one entry, and is read
/// again where the operations change or the case is opened anew, not where it is only named again.
#[tokio::test]
async fn one_operation_that_cannot_be_read_leaves_what_the_others_tell() {
    let bed = Bed::new().await;
    let (read, first) = readings(&bed, &bed.ann);
    assert_eq!((read, first.left_out), (1, 0));
    let [customer] = first.sources.as_slice() else { panic!("one source: {first:?}") };
    assert!(customer.operation == "customer" && customer.values >= 3, "{first:?}");
    assert!(customer.columns.iter().any(|column| column == "name"), "{first:?}");
    let policies = format!("{:?}", bed.facts("policy_changed"));
    assert!(
        !policies.contains("customer's") && !policies.contains("values"),
        "no rule has changed: {policies}"
    );
    let again =
        async || bed.proxy.open_case(Some("shop"), "101", "C-1", &BTreeMap::new()).await.expect("opens");
    again().await;
    assert_eq!(readings(&bed, &bed.ann).0, 1, "it is known");
    declare(&bed, "broken", "SELECT email FROM nowhere", "nowhere", "email = \"email\"");
    let masked = bed.proxy.mask_text(&bed.ann.1, "Ann Example here").await.expect("masked");
    assert_clean(&masked);
    assert!(masked.starts_with("name_tk_") && masked.ends_with(" here"), "{masked}");
    let notes = bed.ask(&bed.keys(refund_agent(), &bed.ann), "notes", json!({})).await;
    assert!(
        notes.body["rows"][0]["note"].as_str().is_some_and(|note| note.contains("card_tk_")),
        "{notes:?}"
    );
    let (read, last) = readings(&bed, &bed.ann);
    assert_eq!((read, sources(&last)), (2, (vec![("customer", 0)], vec!["broken"])), "{last:?}");
    bed.proxy.close_case(&bed.ann.1).await.expect("closed");
    again().await;
    assert_eq!(readings(&bed, &bed.ann).0, 3, "its values were deleted");
    let masked = bed.proxy.mask_text(&bed.ann.1, "Ann Example here").await.expect("masked");
    assert!(masked.starts_with("name_tk_"), "{masked}");
}

/// Requests that wait while a statement takes too long are answered when it ends, and none of them begins it again.
#[tokio::test]
async fn a_slow_statement_is_read_once_for_all_that_wait() {
    let bed = Bed::new().await;
    let shop = rusqlite::Connection::open(bed.folder.path().join("shop.db")).expect("opens");
    shop.execute_batch(
        "CREATE TABLE numbers (customer_id TEXT, n INTEGER);
         INSERT INTO numbers WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 500)
             SELECT '101', n FROM c;",
    )
    .expect("a table");
    let slow = "SELECT a.n AS email FROM numbers AS a, numbers AS b, numbers AS c, numbers AS d, numbers AS e \
                WHERE a.n + b.n + c.n + d.n + e.n = 0";
    declare(&bed, "slow", slow, "numbers", "email = \"email\"");
    let before = readings(&bed, &bed.ann).0;
    let mask = async || bed.proxy.mask_text(&bed.ann.1, "Ann Example here").await.expect("masked");
    // Longer than what failed is left alone, and begun while the first of them reads.
    let later = async { bed.clock.0.go_on(std::time::Duration::from_secs(60)) };
    let (first, second, third, ()) = tokio::join!(mask(), mask(), mask(), later);
    for masked in [first, second, third] {
        assert!(masked.starts_with("name_tk_") && masked.ends_with(" here"), "{masked}");
    }
    let (read, last) = readings(&bed, &bed.ann);
    assert_eq!((read, sources(&last).1), (before + 1, vec!["slow"]), "{last:?}");
}

/// A statement that has no name for a customer, or one that is too short to be found, leaves free text whole.
///
/// Rows: SLO-028 (in part: names that are not there)
#[tokio::test]
async fn free_text_is_one_token_where_no_name_was_read() {
    let bed = Bed::new().await;
    let shop = rusqlite::Connection::open(bed.folder.path().join("shop.db")).expect("opens");
    shop.execute_batch(
        "INSERT INTO customers VALUES ('103', 'Al', NULL, NULL, NULL), ('105', 'Alma', NULL, NULL, NULL);
         INSERT INTO orders VALUES ('D-1', '103', 0, 'Al called'), ('D-2', '104', 0, 'Zoe called'),
             ('D-3', '105', 0, 'Alma called');",
    )
    .expect("rows");
    for (customer, prefix) in [("103", "text_tk_"), ("104", "text_tk_"), ("105", "name_tk_")] {
        let opened =
            bed.proxy.open_case(Some("shop"), customer, "C-5", &BTreeMap::new()).await.expect("opens");
        let pair = bed.keys(refund_agent(), &(opened.customer_token, opened.case_token));
        let notes = bed.ask(&pair, "notes", json!({})).await;
        let note = notes.body["rows"][0]["note"].as_str().expect("a note");
        assert!(note.starts_with(prefix), "{customer}: {note}");
    }
}

/// The same value has another token in another case, also of the same customer.
///
/// Rows: SLO-028 (in part: cases)
#[tokio::test]
async fn tokens_of_two_cases_cannot_be_linked() {
    let bed = Bed::new().await;
    let opened = bed.proxy.open_case(Some("shop"), "101", "C-9", &BTreeMap::new()).await.expect("opens");
    let second = (opened.customer_token, opened.case_token);
    assert_ne!(second.0, bed.ann.0, "of the same customer");
    let mut rows = Vec::new();
    for case in [&bed.ann, &second] {
        let pair = bed.keys(refund_agent(), case);
        rows.push(bed.ask(&pair, "customer", json!({})).await.body["rows"][0].clone());
        let again = bed.ask(&pair, "customer", json!({})).await.body["rows"][0].clone();
        assert_eq!(rows.last(), Some(&again), "stable in its case");
    }
    for column in ["customer_id", "name", "email", "phone", "card"] {
        assert_ne!(rows[0][column], rows[1][column], "{column}");
    }
    let again = bed.proxy.open_case(Some("shop"), "101", "C-1", &BTreeMap::new()).await.expect("is open");
    assert_eq!((again.customer_token, again.case_token), bed.ann, "a case that is open keeps its tokens");
}

/// What an agent has read in a chat stands in the ledger as tokens, and is performed as it was given.
#[tokio::test]
async fn personal_data_in_parameters_is_not_in_the_ledger() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let body = json!({ "order": "write to carol@example.com", "amount": 5 });
    assert_eq!(bed.ask(&pair, "refund", body).await.status, 200);
    let intents = format!("{:?}", bed.facts("intent"));
    assert!(!intents.contains("carol@example.com") && intents.contains("write to email_tk_"), "{intents}");
}

/// An amount that is written like a short id is an amount.
#[tokio::test]
async fn an_amount_that_equals_the_customers_id_stands_in_the_ledger() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    assert_eq!(
        bed.ask(&pair, "charge", json!({ "amount": 101 })).await.status,
        403,
        "twin: it is not granted"
    );
    let mut document = refund_agent();
    document["capabilities"]["charge"] = json!({});
    let pair = bed.keys(document, &bed.ann);
    assert_eq!(bed.ask(&pair, "charge", json!({ "amount": 101 })).await.status, 504);
    let intents = format!("{:?}", bed.facts("intent"));
    assert!(intents.contains("\"amount\": \"101\""), "{intents}");
}

/// What the router knows of a customer is found in texts from the first request on.
///
/// Rows: SLO-028 (in part: names in free text)
#[tokio::test]
async fn names_that_the_router_knows_are_found_at_once() {
    let bed = Bed::new().await;
    let known = BTreeMap::from([("name".to_owned(), vec!["Ann Example".to_owned()])]);
    let opened = bed.proxy.open_case(Some("shop"), "101", "C-8", &known).await.expect("opens");
    let pair = bed.keys(refund_agent(), &(opened.customer_token, opened.case_token));
    let notes = bed.ask(&pair, "notes", json!({})).await;
    assert_eq!(notes.status, 200);
    assert_clean(&notes.body.to_string());
    for bad in [("nonsense", "x"), ("name", " ")] {
        let known = BTreeMap::from([(bad.0.to_owned(), vec![bad.1.to_owned()])]);
        assert!(bed.proxy.open_case(None, "101", "C-9", &known).await.is_err(), "{bad:?}");
    }
}

/// What leaves has the values of the case's own customer in place of its tokens, and no others.
///
/// Rows: SLO-028 (in part: the way back) SLO-063
#[tokio::test]
async fn tokens_are_put_back_for_the_cases_own_customer_alone() {
    let bed = Bed::new().await;
    let (ann, bob) = (bed.keys(refund_agent(), &bed.ann), bed.keys(refund_agent(), &bed.bob));
    let row = bed.ask(&ann, "customer", json!({})).await.body["rows"][0].clone();
    let other = bed.ask(&bob, "customer", json!({})).await.body["rows"][0].clone();
    let text = |row: &Value| {
        format!(
            "for {} at {}",
            row["name"].as_str().expect("a token"),
            row["email"].as_str().expect("a token")
        )
    };
    let mail = |text: String| json!({ "order": text, "template": "apology" });
    let sent = bed.ask(&ann, "send_email", mail(text(&row))).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let expected =
        json!({ "order": "for Ann Example at ann@example.com", "what": "apology", "customer": "101" });
    assert_eq!(bed.desk.asked(), [expected]);
    let refused = bed.ask(&ann, "send_email", mail(text(&other))).await;
    assert_eq!((refused.status, bed.last_rule().as_str()), (403, "token"));
    assert_eq!(bed.desk.asked().len(), 1, "nothing of another case was sent");
    assert!(!format!("{:?}", bed.facts("intent")).contains("Example"), "tokens in the ledger");
}

/// What was found in free text has a token that the next request may name.
///
/// Rows: SLO-028 (in part: the way back)
#[tokio::test]
async fn a_token_from_free_text_is_known_to_the_next_request() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let notes = bed.ask(&pair, "notes", json!({})).await;
    let note = notes.body["rows"][0]["note"].as_str().expect("a note").to_owned();
    let sent = bed.ask(&pair, "send_email", json!({ "order": note, "template": "apology" })).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    let order = bed.desk.asked()[0]["order"].as_str().expect("a text").to_owned();
    // What the shop has as well is written as it stands there.
    assert_eq!(order, "Mrs Example (ann@example.com) paid with 4111 1111 1111 1111, call 020 7946 0958");
}

/// What an agent writes is performed byte for byte, also where the ledger has tokens and masks in its place.
#[tokio::test]
async fn parameters_are_performed_as_they_are_written() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    assert_eq!(bed.ask(&pair, "customer", json!({})).await.status, 200, "the case knows ann@example.com");
    let credential = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let text = format!("write Ann@EXAMPLE.com, ann@example.com: {credential}");
    let sent = bed.ask(&pair, "send_email", json!({ "order": text, "template": "apology" })).await;
    assert_eq!(sent.status, 200, "{sent:?}");
    assert_eq!(bed.desk.asked()[0]["order"], json!(text));
    let intents = format!("{:?}", bed.facts("intent"));
    assert!(!intents.contains(&credential) && !intents.contains("EXAMPLE.com"), "{intents}");
}

/// Names of fields are data, and a short id is one wherever it is read.
///
/// Rows: SLO-028 (in part: documents and ids)
#[tokio::test]
async fn fields_of_documents_and_ids_are_tokens() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let profile = bed.ask(&pair, "profile", json!({})).await;
    assert_eq!(profile.status, 200, "{profile:?}");
    let shown = profile.body.to_string();
    assert!(!shown.contains("Ann") && !shown.contains("street") && shown.contains("text_tk_"), "{shown}");
    let owners = bed.ask(&pair, "owners", json!({})).await;
    assert_eq!(owners.body["rows"][0], json!({ "owner": bed.ann.0, "id": "A-1" }));
}

/// Values in place of tokens are within the bounds of their parameter.
#[tokio::test]
async fn values_that_are_put_back_are_bounded() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let profile = bed.ask(&pair, "profile", json!({})).await;
    let long = profile.body["rows"][0]["address"].as_str().expect("a token").to_owned();
    for times in [1, 40] {
        let body = json!({ "order": long.repeat(times), "template": "apology" });
        assert_eq!(bed.ask(&pair, "send_email", body).await.status, 422, "{times}");
    }
    assert_eq!(bed.desk.asked(), [] as [Value; 0]);
}

/// A text of a guest gets the tokens that answers have for the same values, and the words come back for the guest alone.
#[tokio::test]
async fn a_text_for_agents_has_tokens_and_its_guest_reads_the_words() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let text = "I am 101: write to ann@example.com, card 4111 1111 1111 1111";
    let mask = async |case: &(String, String), text: &str| bed.proxy.mask_text(&case.1, text).await;
    let early = mask(&bed.ann, text).await.expect("masked");
    assert_clean(&early);
    let customer = bed.ask(&pair, "customer", json!({})).await;
    let row = &customer.body["rows"][0];
    for column in ["email", "card"] {
        assert!(early.contains(row[column].as_str().expect("a token")), "{early}: {row}");
    }
    // By now the case knows the name as well, which has no form of its own.
    let known = mask(&bed.ann, "Ann Example here").await.expect("masked");
    assert_clean(&known);
    assert_eq!(mask(&bed.ann, &known).await.expect("masked"), known, "tokens stay");
    let restored = bed.proxy.restore_text(&bed.ann.1, &early).await.expect("restored");
    assert_eq!(restored, text);
    // Of another case: nothing comes back, and nothing is the same.
    assert_eq!(bed.proxy.restore_text(&bed.bob.1, &early).await.expect("unchanged"), early);
    assert_ne!(mask(&bed.bob, text).await.expect("masked"), early);
    // The values are stored before the tokens leave: a token from the text is performed with its value.
    let token = early.split([' ', ',']).find(|word| word.starts_with("email_tk_")).expect("a token");
    let sent = bed.ask(&pair, "send_email", json!({ "order": token, "template": "apology" })).await;
    assert_eq!((sent.status, &bed.desk.asked()[0]["order"]), (200, &json!("ann@example.com")));
    bed.proxy.close_case(&bed.ann.1).await.expect("closed");
    for closed in [mask(&bed.ann, text).await, bed.proxy.restore_text(&bed.ann.1, &early).await] {
        closed.expect_err("there is no such case");
    }
}

/// An agent that makes personal data up fills its own share of the case, and is then refused; what its guest writes still comes in.
#[tokio::test]
async fn an_agent_cannot_fill_its_case_with_values() {
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let mut refused = 0;
    for n in 0..250 {
        let text: Vec<String> = (0..40).map(|m| format!("a{n}.{m}@b.example")).collect();
        let body = json!({ "order": text.join(" "), "template": "apology" });
        match bed.ask(&pair, "send_email", body).await.status {
            200 => assert_eq!(refused, 0),
            409 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!((200..230).contains(&refused), "{refused}");
    let masked = bed.proxy.mask_text(&bed.ann.1, "write to new@guest.example").await.expect("is masked");
    assert!(masked.starts_with("write to email_tk_"), "{masked}");
    // The rest of its share, one by one.
    let mail = async |order: &str| {
        bed.ask(&pair, "send_email", json!({ "order": order, "template": "apology" })).await.status
    };
    let mut last = 0;
    while mail(&format!("c{last}@b.example")).await == 200 {
        last += 1;
    }
    assert!(last <= 40, "{last}");
    // No answer says which of them the case knows.
    for text in ["ann@example.com", "new@b.example"] {
        assert_eq!(mail(text).await, 409, "{text}");
    }
    assert_eq!(mail("a0.0@b.example").await, 200, "what it has named before takes no room");
    // The next holder has a share of its own.
    let mut document = refund_agent();
    document["agent"] = json!("next-agent");
    let next = bed.keys(document, &bed.ann);
    let body = json!({ "order": "new@b.example", "template": "apology" });
    assert_eq!(bed.ask(&next, "send_email", body).await.status, 200);
    // What it reads has tokens, and these it may say.
    let read = bed.ask(&pair, "customer", json!({})).await;
    let token = read.body["rows"][0]["email"].as_str().expect("a token");
    assert_eq!((mail(token).await, mail("A-1 of 101").await), (200, 200));
}

/// A value that the case knows and an agent writes without its token is a guess that was right. Each counts once for the watch of the
/// router; after some of them the agent's key is revoked, and that of another agent is not.
#[tokio::test]
async fn right_guesses_count_and_end_with_the_key() {
    let bed = Bed::new().await;
    let names = ["Alma", "Berta", "Carla", "Doris", "Elena", "Frida", "Greta", "Helga", "Irena"];
    let known = names.map(|name| format!("{name} {name}sen")).to_vec();
    let known = BTreeMap::from([("name".to_owned(), known)]);
    let opened = bed.proxy.open_case(Some("shop"), "101", "G-1", &known).await.expect("opens");
    let case = (opened.customer_token, opened.case_token);
    let pair = bed.keys(refund_agent(), &case);
    let say = async |pair: &Pair, text: &str| {
        bed.ask(pair, "send_email", json!({ "order": text, "template": "apology" })).await
    };
    let counted = async || {
        let events = bed.proxy.read_events(0, std::time::Duration::ZERO).await.events;
        let of_agent = events.iter().filter(|one| one.subject.agent == "refund-agent");
        of_agent.filter(|one| one.measure == EventMeasure::Masked).map(|one| one.amount).sum::<u64>()
    };
    // Wrong guesses, addresses of its own, and tokens are none.
    let read = bed.ask(&pair, "customer", json!({})).await;
    let token = read.body["rows"][0]["name"].as_str().expect("a token");
    let own = format!("for {token}: Zoe Zander, shop@b.example; Ivo, Uwe, Max");
    for _ in 0..3 {
        assert_eq!(say(&pair, &own).await.status, 200);
    }
    assert_eq!(counted().await, 0);
    for (count, name) in (1..).zip(&names[..8]) {
        for text in [format!("is it {name} {name}sen?"), format!("{name} {name}SEN, shop@b.example")] {
            assert_eq!(say(&pair, &text).await.status, 200);
        }
        assert_eq!(counted().await, count, "{name}");
    }
    let over = say(&pair, "Irena Irenasen").await;
    let why = "too many values of this case were named without their tokens; the key is revoked";
    assert_eq!((over.status, error_of(&over)), (403, why));
    assert_eq!(counted().await, 9);
    for text in ["Irena Irenasen", "A-1"] {
        let dead = say(&pair, text).await;
        assert_eq!((dead.status, error_of(&dead)), (401, "a key was revoked"), "{text}");
    }
    let noted = format!("{:?}", bed.facts("policy_changed"));
    assert!(noted.contains("refund-agent has named more than 8 values of case"), "{noted}");
    assert!(!noted.contains("Irena"), "{noted}");
    let mut document = refund_agent();
    document["agent"] = json!("next-agent");
    let next = bed.keys(document, &case);
    assert_eq!(say(&next, "Irena Irenasen").await.status, 200, "twin: the next holder");
    // Another key of the same agent is of no more use in this case.
    let again = bed.keys(refund_agent(), &case);
    assert_eq!(say(&again, "A-1").await.status, 403);
    let other = bed.keys(refund_agent(), &bed.ann);
    assert_eq!(say(&other, "A-1").await.status, 200, "twin: another case");
}

/// Requests at once take no more room together than one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_once_share_the_room_of_their_case() {
    const AT_ONCE: usize = 60;
    let bed = Bed::new().await;
    let pair = bed.keys(refund_agent(), &bed.ann);
    let text = |n: usize| (0..40).map(|m| format!("a{n}.{m}@b.example")).collect::<Vec<_>>().join(" ");
    for n in 0..21 {
        let body = json!({ "order": text(n), "template": "apology" });
        assert_eq!(bed.ask(&pair, "send_email", body).await.status, 200);
    }
    // Of its share 410 values are left, and each of these needs 40 until it ends, which it never does.
    let before = bed.facts("intent").len();
    let (mut held, mut refused) = (tokio::task::JoinSet::new(), 0);
    for n in 0..AT_ONCE {
        let body = json!({ "order": text(200 + n), "amount": 1 });
        let request = crate::bed::request(Some(&pair.base), Some(&pair.task), "hold", &body);
        let proxy = bed.proxy.clone();
        held.spawn(async move { proxy.operate(request).await });
    }
    let begun = loop {
        while let Some(answer) = held.try_join_next() {
            assert_eq!(answer.expect("no panic").status, 409);
            refused += 1;
        }
        let begun = bed.facts("intent").len() - before;
        if begun + refused == AT_ONCE {
            break begun;
        }
        tokio::task::yield_now().await;
    };
    assert!((5..=10).contains(&begun), "{begun}");
}
