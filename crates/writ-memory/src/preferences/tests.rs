//! Signals that show a preference, and those that show none.

use super::*;

const DAY: i64 = 86_400_000;

fn said(day: i64, text: &str) -> (BehaviourSignal, Timestamp) {
    (BehaviourSignal::Said(text.to_owned()), Timestamp::from_millis(1_795_694_400_000 + day * DAY))
}

fn answered(day: i64, likeness: &str, approved: bool, reason: &str) -> (BehaviourSignal, Timestamp) {
    let (likeness, reason) = (likeness.to_owned(), reason.to_owned());
    let signal = BehaviourSignal::Answered { likeness, approved, reason };
    (signal, Timestamp::from_millis(1_795_694_400_000 + day * DAY))
}

fn texts(signals: &[(BehaviourSignal, Timestamp)]) -> Vec<String> {
    infer_preferences(signals).into_iter().map(|preference| preference.text).collect()
}

/// Rows: SIL-394 (in part: repeated choices are noticed, a single one is not)
#[test]
fn what_is_said_again_is_a_preference_and_what_is_said_once_is_none() {
    let corrections = [
        said(0, "No, use tabs, not spaces. Then run the tests."),
        said(2, "I said: use tabs not spaces!"),
        said(3, "Where do I find the tests?"),
    ];
    assert_eq!(
        infer_preferences(&corrections),
        [InferredPreference {
            key: "said spac tab use".to_owned(),
            text: "The owner's words about how things are done: «use tabs not spaces»".to_owned(),
            evidence: "you said it 2 times, 2 of them to correct: 2026-11-26 «use tabs, not spaces», \
                       2026-11-28 «use tabs not spaces»"
                .to_owned(),
        }]
    );
    assert_eq!(texts(&corrections[..1]), Vec::<String>::new());
    let choices = [
        said(0, "Answer in German, please"),
        said(1, "What is the weather? Please answer in German."),
        said(5, "Antworte kurz"),
        said(6, "answer in german"),
    ];
    assert_eq!(texts(&choices), ["The owner's words about how things are done: «answer in german»"]);
    assert_eq!(texts(&choices[..3]), Vec::<String>::new(), "twice is no habit");
}

#[test]
fn what_is_said_both_ways_copied_or_a_task_is_no_preference() {
    for signals in [
        vec![said(0, "No, use tabs"), said(1, "No, use tabs"), said(2, "No, don't use tabs")],
        // The copies of a fork.
        vec![said(0, "No, use tabs"), said(0, "No, use tabs"), said(0, "No, use tabs")],
        vec![
            said(0, "Make a backup of the disk"),
            said(1, "Make a backup of the disk"),
            said(2, "Make a backup of the disk"),
        ],
        vec![said(0, "Nothing is wrong"), said(1, "Nothing is wrong"), said(2, "Nothing is wrong")],
        vec![said(0, "no"), said(1, "no"), said(2, "no, no.")],
        vec![said(0, "No, use tabs! No, use tabs! No, use tabs!")],
        vec![said(0, &"No, use tabs. ".repeat(400)), said(1, &"No, use tabs. ".repeat(400))],
    ] {
        assert_eq!(texts(&signals), Vec::<String>::new(), "{signals:?}");
    }
}

/// Rows: SIL-394 (in part: denials are signals too)
#[test]
fn a_request_that_is_denied_each_time_is_a_preference() {
    let mail = "mail_send (mail), naming to";
    let denied = [
        answered(0, mail, false, ""),
        answered(1, mail, false, "write a draft"),
        answered(4, mail, false, "write a draft"),
        answered(4, "git_push (exec), naming remote", true, ""),
    ];
    let inferred = infer_preferences(&denied);
    assert_eq!(inferred.len(), 1);
    assert_eq!(inferred[0].text, "The owner does not want this done: mail_send (mail), naming to");
    assert_eq!(
        inferred[0].evidence,
        "you denied it 3 times from 2026-11-26 to 2026-11-30; you said: «write a draft»"
    );
    assert_eq!(infer_preferences(&denied[1..]), []);
    let approved = [denied.to_vec(), vec![answered(5, mail, true, "")]].concat();
    assert_eq!(infer_preferences(&approved), [], "an approval shows that it depends");
}
