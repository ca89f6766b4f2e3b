//! The people besides the owner who can read a structured answer: those that its records name, where the
//! owner has declared the fields.

use std::cell::Cell;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use writ_types::taint::MAX_READERS;

use crate::config::Readers;

/// Returns the people who can read all of an answer: those that each of its records names, or the nearest
/// record around it that names any. It is empty where the owner has not declared the fields, or the model
/// reads more than the structured answer.
pub fn of(rule: &Readers, text: &str, structured: Option<&Value>, is_error: bool) -> BTreeSet<String> {
    let (Readers::Named(fields), Some(structured), false) = (rule, structured, is_error) else {
        return BTreeSet::new();
    };
    // Servers repeat a structured answer as a text; what stands only there has no readers.
    // The text is compared as a value, since servers format it in different ways.
    let is_same = || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured);
    if !text.trim().is_empty() && !is_same() {
        return BTreeSet::new();
    }
    let mut common = Common { fields, readers: None };
    common.visit_record(structured, &Named::default());
    common.readers.unwrap_or_default().into_iter().map(str::to_owned).collect()
}

/// The people that a record names.
#[derive(Default)]
struct Named<'a> {
    readers: BTreeSet<&'a str>,
    /// True once they have been taken in.
    is_met: Cell<bool>,
}

/// The people that everything so far names.
struct Common<'a> {
    fields: &'a [String],
    readers: Option<BTreeSet<&'a str>>,
}

impl<'a> Common<'a> {
    fn visit_record(&mut self, value: &'a Value, around: &Named<'a>) {
        match value {
            Value::Array(items) if !items.is_empty() => {
                items.iter().for_each(|item| self.visit_record(item, around))
            }
            Value::Object(map) if !map.is_empty() => {
                let own = self.named_people(map);
                // The nearest record that names readers decides for what is in it.
                let named = if own.readers.is_empty() { around } else { &own };
                // The fields that name the readers of a record are readable for these readers.
                let others =
                    map.iter().filter(|(name, value)| !self.record_names(name) || people_in(value).is_none());
                for (_, value) in others.collect::<Vec<_>>() {
                    self.visit_record(value, named);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => self.intersect_people(around),
        }
    }

    fn record_names(&self, field: &str) -> bool {
        self.fields.iter().any(|one| one == field)
    }

    fn named_people(&self, map: &'a Map<String, Value>) -> Named<'a> {
        let values =
            map.iter().filter(|(name, _)| self.record_names(name)).filter_map(|(_, value)| people_in(value));
        // Bounded, since the list goes into a label that is stored.
        Named { readers: values.flatten().take(MAX_READERS).collect(), is_met: Cell::new(false) }
    }

    fn intersect_people(&mut self, named: &Named<'a>) {
        // Each record counts once, also where it has many values.
        if named.is_met.replace(true) {
            return;
        }
        match &mut self.readers {
            // Only those who can read everything remain.
            Some(readers) => readers.retain(|reader| named.readers.contains(reader)),
            None => self.readers = Some(named.readers.clone()),
        }
    }
}

/// The persons that a value names: a text, or a list of nothing but texts.
fn people_in(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(person) => Some(vec![person]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mail() -> Readers {
        Readers::Named(vec!["from".into(), "to".into()])
    }

    fn readers(structured: &Value) -> String {
        of(&mail(), "", Some(structured), false).into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn those_can_read_an_answer_whom_all_of_its_records_name() {
        for (answer, expected) in [
            (json!({ "id": 1, "from": "zoe", "to": ["me", "bob"], "text": "x" }), "bob me zoe"),
            (json!({ "mails": [{ "from": "zoe", "text": "x" }, { "from": "zoe", "to": "me" }] }), "zoe"),
            (json!({ "mails": [{ "from": "zoe", "text": "x" }, { "from": "eve", "text": "y" }] }), ""),
            (json!({ "mails": [{ "from": "zoe", "text": "x" }, { "text": "a note of the owner's" }] }), ""),
            (json!({ "mails": [{ "from": "zoe", "text": "x" }], "next": "page 2" }), ""),
            (
                json!({ "from": "zoe", "parts": [{ "name": "a.pdf" }, { "from": "bob", "name": "b.pdf" }] }),
                "",
            ),
            (json!({ "from": "zoe", "parts": [{ "name": "a.pdf" }, {}, []] }), "zoe"),
            (json!({ "from": { "name": "zoe", "mail": "zoe" }, "text": "x" }), ""),
            (json!({ "from": ["zoe", { "mail": "eve" }], "text": "x" }), ""),
            (json!({ "from": [], "text": "x" }), ""),
            (json!({ "FROM": "zoe", "text": "x" }), ""),
            (json!({ "mails": [] }), ""),
            (json!([]), ""),
            (json!("zoe"), ""),
        ] {
            assert_eq!(readers(&answer), expected, "{answer}");
        }
    }

    #[test]
    fn what_the_model_reads_besides_has_no_readers() {
        let answer = json!({ "from": "zoe", "text": "x" });
        let of = |rule: &Readers, text: &str, is_error| of(rule, text, Some(&answer), is_error).len();
        assert_eq!(of(&mail(), &answer.to_string(), false), 1, "the same once more");
        assert_eq!(of(&mail(), &format!("{answer:#}\n"), false), 1);
        for text in ["x", "{\"from\":\"zoe\"}", &format!("{answer} and more")] {
            assert_eq!(of(&mail(), text, false), 0, "{text}");
        }
        assert_eq!(of(&mail(), "", true), 0, "an error is about something else");
        for rule in [Readers::Private, Readers::Public, Readers::Secret, Readers::Named(Vec::new())] {
            assert_eq!(of(&rule, "", false), 0);
        }
        assert!(super::of(&mail(), "zoe", None, false).is_empty());
    }

    #[test]
    fn of_many_persons_some_are_left_out() {
        let many: Vec<String> = (0..=MAX_READERS).map(|n| format!("p{n}")).collect();
        let known = of(&mail(), "", Some(&json!({ "to": many, "text": "x" })), false);
        assert_eq!(known.len(), MAX_READERS);
    }
}
