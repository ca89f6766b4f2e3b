use serde_json::{Value, json};

use super::*;

fn lists(giver: &str, results: &[Value]) -> Lists {
    let mut lists = Lists::nothing();
    for result in results {
        lists.add_result(giver, &Field::fields_of(result));
    }
    lists
}

/// The word of a request that other records of the list have and the record with this id has not; `None`: the request
/// leaves this record in.
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
    // A request that names one record by its id means no other record.
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
    // Words after "not" or "except" pick no record, up to the end of their sentence.
    for request in ["all but not the gym, please", "alles außer gym", "Do not touch (gym)! Thanks."] {
        assert_eq!(left_out(&mails, request, "m-2"), None, "{request}");
    }
    let two = "Go on without the club. The gym away.";
    assert_eq!(left_out(&mails, two, "m-2").as_deref(), Some("gym"));
    // A word that all records have picks none, and a list of one record offers no choice.
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
    // A long text has too many words to be compared, and the list of another server does not count.
    let long = json!([{ "id": "m-1", "body": format!("gym {}", "x ".repeat(100)) }, { "id": "m-2" }]);
    assert_eq!(left_out(&lists("mail", &[long]), "gym", "m-2"), None);
    assert_eq!(
        left_out(&lists("chat", &[json!([{ "id": "m-1", "from": "gym" }, { "id": "m-2" }])]), "gym", "m-2"),
        None
    );
}

#[test]
fn a_value_is_that_of_its_record_wherever_that_stands() {
    // A record that has another's id in a field of another name is not that record.
    let forged = json!([{ "id": "m-1", "from": "gym", "subject": "m-2" }, { "id": "m-2", "from": "tax" }]);
    assert_eq!(left_out(&lists("mail", &[forged]), "gym", "m-2").as_deref(), Some("gym"));
    // A list within a list: the words of the mails do not count for the thread that they are in.
    let threads = json!({ "threads": [
        { "subject": "gym", "mails": [{ "id": "m-1", "from": "ann" }, { "id": "m-2", "from": "bob" }] },
        { "subject": "tax", "mails": [{ "id": "m-3", "from": "ann" }, { "id": "m-4", "from": "bob" }] },
    ] });
    let threads = lists("mail", &[threads]);
    assert_eq!(left_out(&threads, "gym", "m-2"), None);
    assert_eq!(left_out(&threads, "gym", "m-4").as_deref(), Some("gym"));
    assert_eq!(left_out(&threads, "ann", "m-3"), None);
    assert_eq!(left_out(&threads, "ann", "m-4").as_deref(), Some("ann"));
    // A record that has an id of its own is not taken for the record that it refers to.
    let refers = json!([
        { "id": "m-1", "from": "gym", "reply_to_id": "m-2", "refs": [{ "id": "m-2" }] },
        { "id": "m-2", "from": "tax" },
    ]);
    assert_eq!(left_out(&lists("mail", &[refers]), "gym", "m-2").as_deref(), Some("gym"));
    // Where one list leaves the choice open, another one may decide it; a record that any list picks is picked.
    let twice = [json!([{ "id": "m-2", "from": "tax" }, { "id": "m-5", "from": "tax" }]), mails()];
    assert_eq!(left_out(&lists("mail", &twice), "gym", "m-2").as_deref(), Some("gym"));
    let meant = [json!([{ "id": "m-2", "label": "gym" }, { "id": "m-5" }]), mails()];
    assert_eq!(left_out(&lists("mail", &meant), "gym", "m-2"), None);
    // Fullwidth letters count as the plain ones that a person reads.
    let other = json!([{ "id": "m-1", "from": "ＧＹＭ" }, { "id": "m-2", "from": "tax" }]);
    assert_eq!(left_out(&lists("mail", &[other]), "gym", "m-2").as_deref(), Some("gym"));
}

/// Words that all records have pick none of them, and a word of four letters is not taken for a year.
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
