use serde_json::{Value, json};

use super::*;

fn lists(giver: &str, results: &[Value]) -> Lists {
    let mut lists = Lists::nothing();
    for result in results {
        lists.add_result(giver, &Field::fields_of(result));
    }
    lists
}

/// The word by which a request leaves the record of a value out.
fn left_out(lists: &Lists, request: &str, value: &str) -> Option<String> {
    let fits = |name: &str| name == "id";
    let is_of = |giver: &str| giver == "mail";
    lists.leaves_out(request, &WantedValue { value, fits: &fits, is_of: &is_of })
}

fn mails() -> Value {
    json!({ "mails": [
        { "id": "m-1", "from": "hello@gym.test", "subject": "Course" },
        { "id": "m-2", "from": "tax@office.test", "subject": "Reminder of 2026" },
        { "id": "m-3", "from": "dan@club.test", "subject": "Invoice 471 for you" },
    ] })
}

/// Rows: SIL-168 (in part: what is chosen among records)
#[test]
fn records_without_a_word_of_the_request_are_left_out_where_others_have_one() {
    let mails = lists("mail", &[mails()]);
    for (request, meant, word) in [
        ("File the mails of the gym away.", "m-1", "gym"),
        ("GYM!", "m-1", "gym"),
        ("pay the invoices", "m-3", "invoices"),
        ("what of number 471?", "m-3", "471"),
        ("what dan@club.test wrote", "m-3", "dan@club.test"),
        ("courses of 2026, for you", "m-1", "courses"),
    ] {
        for id in ["m-1", "m-2", "m-3"] {
            let expected = (id != meant).then(|| word.to_owned());
            assert_eq!(left_out(&mails, request, id), expected, "{request} {id}");
        }
    }
    // By its id, and no word of others: these others were not meant.
    assert_eq!(left_out(&mails, "away with m-1", "m-1"), None);
    assert_eq!(left_out(&mails, "away with m-1", "m-2").as_deref(), Some("m-1"));
    assert_eq!(left_out(&mails, "m-1 and the invoices", "m-3"), None);
    assert_eq!(left_out(&mails, "m-1 and the invoices", "m-2").as_deref(), Some("invoices"));
    // Several words: a record that has any of them is meant.
    let both = "the gym's reminder";
    assert_eq!(left_out(&mails, both, "m-1"), None);
    assert_eq!(left_out(&mails, both, "m-2"), None);
    assert_eq!(left_out(&mails, both, "m-3").as_deref(), Some("gym"));
}

#[test]
fn a_request_that_tells_no_record_from_another_leaves_the_choice_open() {
    let mails = lists("mail", &[mails()]);
    for request in [
        "",
        "file away what came today",
        "of you",
        "2026",
        "47",
        "4711",
        "example.test",
        "mails from .test",
        "the new ones of today",
    ] {
        assert_eq!(left_out(&mails, request, "m-2"), None, "{request}");
    }
    // What is excluded tells nothing, up to the end of its sentence.
    for request in ["all but not the gym, please", "alles außer gym", "Do not touch (gym)! Thanks."] {
        assert_eq!(left_out(&mails, request, "m-2"), None, "{request}");
    }
    let two = "Go on without the club. The gym away.";
    assert_eq!(left_out(&mails, two, "m-2").as_deref(), Some("gym"));
    // What all have tells nothing, and what stands alone is no choice.
    let alike = json!([{ "id": "m-1", "tag": "gym" }, { "id": "m-2", "tag": "gyms" }]);
    assert_eq!(
        left_out(&lists("mail", &[alike]), "gym", "m-2").as_deref(),
        Some("gym"),
        "too short for an ending"
    );
    let alike = json!([{ "id": "m-1", "tag": "sport" }, { "id": "m-2", "tag": "sports" }]);
    assert_eq!(left_out(&lists("mail", &[alike]), "sport", "m-2"), None);
    let alone =
        lists("mail", &[json!({ "mails": [{ "id": "m-1", "from": "gym" }] }), json!({ "id": "m-2" })]);
    assert_eq!(left_out(&alone, "gym", "m-2"), None);
    // Long texts have too many words, and another server's lists are others.
    let long = json!([{ "id": "m-1", "body": format!("gym {}", "x ".repeat(100)) }, { "id": "m-2" }]);
    assert_eq!(left_out(&lists("mail", &[long]), "gym", "m-2"), None);
    assert_eq!(
        left_out(&lists("chat", &[json!([{ "id": "m-1", "from": "gym" }, { "id": "m-2" }])]), "gym", "m-2"),
        None
    );
}

#[test]
fn a_value_is_that_of_its_record_wherever_that_stands() {
    // A record that has another's id under a name that does not fit is not that one.
    let forged = json!([{ "id": "m-1", "from": "gym", "subject": "m-2" }, { "id": "m-2", "from": "tax" }]);
    assert_eq!(left_out(&lists("mail", &[forged]), "gym", "m-2").as_deref(), Some("gym"));
    // Lists in lists: the thread is that of the gym, whatever its mails say.
    let threads = json!({ "threads": [
        { "subject": "gym", "mails": [{ "id": "m-1", "from": "ann" }, { "id": "m-2", "from": "bob" }] },
        { "subject": "tax", "mails": [{ "id": "m-3", "from": "ann" }, { "id": "m-4", "from": "bob" }] },
    ] });
    let threads = lists("mail", &[threads]);
    assert_eq!(left_out(&threads, "gym", "m-2"), None);
    assert_eq!(left_out(&threads, "gym", "m-4").as_deref(), Some("gym"));
    assert_eq!(left_out(&threads, "ann", "m-3"), None);
    assert_eq!(left_out(&threads, "ann", "m-4").as_deref(), Some("ann"));
    // A record with an id is that of its id, and one that refers to another does not speak for it.
    let refers = json!([
        { "id": "m-1", "from": "gym", "reply_to_id": "m-2", "refs": [{ "id": "m-2" }] },
        { "id": "m-2", "from": "tax" },
    ]);
    assert_eq!(left_out(&lists("mail", &[refers]), "gym", "m-2").as_deref(), Some("gym"));
    // What one list leaves open another one tells; what one means is meant.
    let twice = [json!([{ "id": "m-2", "from": "tax" }, { "id": "m-5", "from": "tax" }]), mails()];
    assert_eq!(left_out(&lists("mail", &twice), "gym", "m-2").as_deref(), Some("gym"));
    let meant = [json!([{ "id": "m-2", "label": "gym" }, { "id": "m-5" }]), mails()];
    assert_eq!(left_out(&lists("mail", &meant), "gym", "m-2"), None);
    // Letters are read, not written.
    let other = json!([{ "id": "m-1", "from": "ＧＹＭ" }, { "id": "m-2", "from": "tax" }]);
    assert_eq!(left_out(&lists("mail", &[other]), "gym", "m-2").as_deref(), Some("gym"));
}

/// Words that all records have tell none from another, and a word of four letters is no year.
#[test]
fn words_that_all_have_leave_the_choice_open_whatever_ids_say() {
    let offers = lists(
        "mail",
        &[json!([{ "id": "m-1", "subject": "offer one" }, { "id": "m-2", "subject": "offer two" }])],
    );
    assert_eq!(left_out(&offers, "m-1 and the other offers", "m-2"), None);
    assert_eq!(left_out(&offers, "m-1 alone", "m-2").as_deref(), Some("m-1"), "twin");
    let courses =
        lists("mail", &[json!([{ "id": "m-1", "subject": "yoga" }, { "id": "m-2", "subject": "1999" }])]);
    assert_eq!(left_out(&courses, "the yoga course", "m-2").as_deref(), Some("yoga"));
    assert_eq!(left_out(&courses, "that of 1999", "m-1"), None, "too many dates share a year");
    let numbers = lists(
        "mail",
        &[json!([{ "id": "m-1", "subject": "no 4711" }, { "id": "m-2", "subject": "no 20471" }])],
    );
    assert_eq!(
        left_out(&numbers, "the invoice 4711", "m-2").as_deref(),
        Some("4711"),
        "four digits are no year by themselves"
    );
    assert_eq!(left_out(&numbers, "the invoice 20471", "m-1").as_deref(), Some("20471"));
}
