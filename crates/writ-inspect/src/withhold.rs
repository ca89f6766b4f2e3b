//! Withholding: replaces content above a provider's clearance with marks, and restores it in the reply.
//!
//! The reply goes to the owner or through the door with the real values in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use writ_types::chat::{ChatMessage, ModelReply, ModelRequest, Part};
use writ_types::taint::Clearance;

use crate::gate;

/// The most values that are withheld in one session.
pub const MAX_VALUES: usize = 5_000;

/// The most that they take together, in bytes: more than any context has.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The beginning and end of a mark.
const MARK: (&str, &str) = ("[withheld:", "]");

/// The instruction for a model that reads marks.
const NOTE: &str = "\n\nWhat you may not be told is replaced: a mark such as [withheld:3] stands for a text or value. Write \
                    the mark where what it stands for belongs; do not guess what that is.";

/// There is more to withhold than can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more would have to be withheld from the model than can be stored")]
pub struct TooMuch;

/// The content withheld in a session, by the numbers of its marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    numbers: BTreeMap<Arc<str>, usize>,
    values: Vec<Arc<str>>,
    bytes: usize,
    /// The marks that were made for the request at hand.
    shown: BTreeSet<usize>,
}

/// Returns true if a request names persons in a recognisable way.
pub fn is_personal(request: &ModelRequest) -> bool {
    // Numbers of persons stand in arguments and results as well as in texts.
    let is_personal = |text: &str| !gate::personal_in(text).is_empty();
    is_personal(&request.system)
        || request.messages.iter().flat_map(|message| &message.parts).any(|part| match part {
            Part::Text { text } => is_personal(text),
            Part::Result(result) => is_personal(&result.text),
            Part::Call(call) => any_text(&call.arguments, &is_personal),
            // It has come from the model that it goes back to.
            Part::Reasoning(_) => false,
            // Nothing here can look into it, so it counts as if it did.
            Part::File(_) => true,
        })
}

impl Withheld {
    /// Replaces content above this clearance: whole texts by their label, and, where only public content may
    /// be sent, names of persons. Returns the numbers of the marks in the request: its reply can mean no
    /// others.
    ///
    /// # Errors
    ///
    /// If that is too much. The request may not be sent then.
    pub fn hide_content(
        &mut self,
        request: &mut ModelRequest,
        clearance: Clearance,
    ) -> Result<BTreeSet<usize>, TooMuch> {
        // Numbers stay the same for the session, but only those of this request may be restored in its reply.
        self.shown.clear();
        if clearance == Clearance::Public {
            self.hide_persons(&mut request.system)?;
        }
        for message in &mut request.messages {
            let whole = message.label.clearance() > clearance;
            // A shared message is copied only where something of it is hidden.
            if whole || clearance == Clearance::Public {
                self.hide_in(Arc::make_mut(message), whole)?;
            }
        }
        // The note follows in any case, since an older message may already hold marks.
        request.system.push_str(NOTE);
        Ok(std::mem::take(&mut self.shown))
    }

    /// Returns what these marks stand for, by their numbers.
    pub fn withheld_values(&self, shown: &BTreeSet<usize>) -> BTreeMap<usize, &str> {
        let value = |number: &usize| Some((*number, self.values.get(number.checked_sub(1)?)?.as_ref()));
        shown.iter().filter_map(value).collect()
    }

    fn hide_in(&mut self, message: &mut ChatMessage, whole: bool) -> Result<(), TooMuch> {
        // Reasoning cannot be rewritten, and may repeat what is hidden here.
        let is_shown = |part: &Part| match part {
            Part::Reasoning(piece) => !whole && !piece.any_text(&|text| !gate::personal_in(text).is_empty()),
            Part::Text { .. } | Part::Result(_) | Part::Call(_) | Part::File(_) => true,
        };
        if !message.parts.iter().all(is_shown) {
            // All reasoning of a message goes: a provider refuses one piece without its neighbours.
            message.parts.retain(|part| !matches!(part, Part::Reasoning(_)));
        }
        // Nothing can be marked within a file. The line that names it stays.
        message.parts.retain(|part| !matches!(part, Part::File(_)));
        let mut hide = |text: &mut String| match whole {
            true => self.hide_whole(text),
            false => self.hide_persons(text),
        };
        for part in &mut message.parts {
            match part {
                Part::Text { text } => hide(text)?,
                Part::Result(result) => hide(&mut result.text)?,
                Part::Call(call) => each_text(&mut call.arguments, &mut hide)?,
                Part::Reasoning(_) | Part::File(_) => {}
            }
        }
        Ok(())
    }

    fn hide_whole(&mut self, text: &mut String) -> Result<(), TooMuch> {
        if !text.is_empty() {
            *text = self.mark_for(text)?;
        }
        Ok(())
    }

    fn hide_persons(&mut self, text: &mut String) -> Result<(), TooMuch> {
        let (mut hidden, mut done) = (String::new(), 0);
        for at in gate::personal_in(text) {
            // Of two that overlap, what the first has left of the second.
            let from = at.start.max(done);
            let (Some(before), Some(value)) = (text.get(done..from), text.get(from..at.end)) else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            hidden.push_str(before);
            hidden.push_str(&self.mark_for(value)?);
            done = at.end;
        }
        hidden.push_str(text.get(done..).unwrap_or_default());
        *text = hidden;
        Ok(())
    }

    fn mark_for(&mut self, value: &str) -> Result<String, TooMuch> {
        // One value has one mark in the whole session, so the model can see that two places mean the same.
        let number = match self.numbers.get(value) {
            Some(number) => *number,
            None => {
                let bytes = self.bytes.saturating_add(value.len());
                if self.values.len() >= MAX_VALUES || bytes > MAX_BYTES {
                    // Nothing is left out silently: a request that cannot be hidden completely is not sent.
                    return Err(TooMuch);
                }
                let value: Arc<str> = value.into();
                self.values.push(Arc::clone(&value));
                self.bytes = bytes;
                self.numbers.insert(value, self.values.len());
                self.values.len()
            }
        };
        self.shown.insert(number);
        Ok(format!("{}{number}{}", MARK.0, MARK.1))
    }

    /// Restores the content of marks in a reply, of those that its request has `shown`. Any other mark stays:
    /// content that another model was not shown, or that has left the context, comes back by no number.
    pub fn restore_content(&self, reply: &mut ModelReply, shown: &BTreeSet<usize>) {
        if shown.is_empty() {
            return;
        }
        reply.text = self.restore_text(&reply.text, shown);
        for call in &mut reply.calls {
            // Restoring stores nothing, so it cannot fail.
            let _infallible = each_text(&mut call.arguments, &mut |text| {
                *text = self.restore_text(text, shown);
                Ok(())
            });
        }
    }

    fn restore_text(&self, text: &str, shown: &BTreeSet<usize>) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once(MARK.0) {
            out.push_str(before);
            let value = after.split_once(MARK.1).and_then(|(number, after)| {
                let number: usize = number.parse().ok().filter(|number| shown.contains(number))?;
                Some((self.values.get(number.checked_sub(1)?)?, after))
            });
            match value {
                Some((value, after)) => {
                    out.push_str(value);
                    rest = after;
                }
                None => {
                    // An unknown mark stays as it was written: it may be the model's own text.
                    out.push_str(MARK.0);
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        out
    }
}

fn any_text(value: &Value, is: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, is)),
        Value::Object(fields) => fields.iter().any(|(name, item)| is(name) || any_text(item, is)),
        Value::Number(number) => is(&number.to_string()),
        Value::Null | Value::Bool(_) => false,
    }
}

/// Numbers are texts here, too, and so are names of fields: an account is one as well as the other.
fn each_text(
    value: &mut Value,
    change: &mut impl FnMut(&mut String) -> Result<(), TooMuch>,
) -> Result<(), TooMuch> {
    match value {
        Value::String(text) => change(text),
        Value::Number(number) => {
            let (before, mut text) = (number.to_string(), number.to_string());
            change(&mut text)?;
            if text != before {
                *value = Value::String(text);
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| each_text(item, change)),
        Value::Object(fields) => {
            for (mut name, mut item) in std::mem::take(fields) {
                change(&mut name)?;
                each_text(&mut item, change)?;
                fields.insert(name, item);
            }
            Ok(())
        }
        Value::Null | Value::Bool(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_types::chat::{Role, StopReason, ToolCall, ToolSpecs, Usage};
    use writ_types::taint::{Label, Taint};
    use writ_types::unit::Tokens;

    use super::*;

    fn request(parts: Vec<(Part, Label)>) -> ModelRequest {
        let message = |(part, label)| Arc::new(ChatMessage { role: Role::User, parts: vec![part], label });
        ModelRequest {
            system: "You help.".into(),
            messages: parts.into_iter().map(message).collect(),
            tools: ToolSpecs::default(),
            max_output_tokens: Tokens::new(100),
            form: None,
            effort: None,
        }
    }

    fn text(text: &str) -> Part {
        Part::Text { text: text.into() }
    }

    fn call(arguments: Value) -> ToolCall {
        ToolCall { id: "c1".into(), name: "send".into(), arguments }
    }

    fn answer(text: &str, arguments: Value) -> ModelReply {
        ModelReply {
            text: text.into(),
            calls: vec![call(arguments)],
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            model: "m".into(),
            reasoning: Vec::new(),
        }
    }

    #[test]
    fn persons_and_what_is_not_public_are_hidden_and_come_back_in_the_answer() {
        let (own, private) = (Label::new(Taint::Owner), Label::new(Taint::External));
        let sent = vec![
            (
                text("Write to ann@mail.example.org and ann@mail.example.org, or +49 30 1234567-8."),
                own.clone(),
            ),
            (text("Dear owner, the code of the door is 4711."), private.clone()),
            (Part::Call(call(json!({"to": ["ann@mail.example.org"], "n": 4}))), own),
            (text("What anybody may read."), private.mark_public()),
        ];
        let mut hidden = request(sent.clone());
        assert!(is_personal(&hidden));
        let mut withheld = Withheld::default();
        let shown = withheld.hide_content(&mut hidden, Clearance::Public).expect("fits");
        let said = serde_json::to_string(&hidden).expect("JSON");
        assert!(!said.contains("ann@") && !said.contains("4711") && !said.contains("1234567"), "{said}");
        assert!(
            said.contains("[withheld:1] and [withheld:1], or [withheld:2].") && said.contains("anybody"),
            "{said}"
        );
        assert!(!is_personal(&hidden));
        let mut reply = answer(
            "It says: [withheld:3]",
            json!({"to": "[withheld:1]", "x": ["[withheld:9]", "[withheld:"]}),
        );
        withheld.restore_content(&mut reply, &shown);
        assert_eq!(reply.text, "It says: Dear owner, the code of the door is 4711.");
        let expected = json!({"to": "ann@mail.example.org", "x": ["[withheld:9]", "[withheld:"]});
        assert_eq!(reply.calls[0].arguments, expected);
        // A number restores only a text whose placeholder this request has shown, even if the session withholds others.
        let mut guessed = answer("[withheld:3]", json!({}));
        withheld.restore_content(&mut guessed, &[1, 2].into());
        assert_eq!(guessed.text, "[withheld:3]");
        // The same marks for the same values, whenever it is sent.
        let mut again = request(sent);
        withheld.hide_content(&mut again, Clearance::Public).expect("fits");
        assert_eq!(again, hidden);
    }

    #[test]
    fn whoever_may_be_told_the_owners_affairs_is_told_all_but_secrets() {
        let private = Label::new(Taint::External);
        let secret = Label { secret: true, ..private.clone() };
        let mut hidden =
            request(vec![(text("ann@mail.example.org"), private), (text("a diagnosis"), secret)]);
        let mut withheld = Withheld::default();
        withheld.hide_content(&mut hidden, Clearance::Personal).expect("fits");
        let said = serde_json::to_string(&hidden).expect("JSON");
        assert!(said.contains("ann@mail.example.org") && !said.contains("diagnosis"), "{said}");
    }

    #[test]
    fn numbers_and_names_of_fields_are_persons_as_well_as_texts() {
        for arguments in [json!({"account": 4_929_420_573_595_709_u64}), json!({"ann@mail.example.org": 1})] {
            let mut hidden = request(vec![(Part::Call(call(arguments.clone())), Label::new(Taint::Owner))]);
            assert!(is_personal(&hidden), "{arguments}");
            let mut withheld = Withheld::default();
            let shown = withheld.hide_content(&mut hidden, Clearance::Public).expect("fits");
            let said = serde_json::to_string(&hidden).expect("JSON");
            assert!(!said.contains("ann@") && !said.contains("4929420573595709"), "{said}");
            assert!(!is_personal(&hidden));
            let mut reply = answer("", json!({"[withheld:1]": "[withheld:1]"}));
            withheld.restore_content(&mut reply, &shown);
            assert!(!reply.calls[0].arguments.to_string().contains("withheld"), "{reply:?}");
        }
    }

    #[test]
    fn what_is_too_much_is_not_sent() {
        let many: String = (0..=MAX_VALUES).map(|n| format!("a{n}@mail.example.org ")).collect();
        let mut hidden = request(vec![(text(&many), Label::new(Taint::Owner))]);
        assert_eq!(Withheld::default().hide_content(&mut hidden, Clearance::Public), Err(TooMuch));
        let whole = |bytes: usize| {
            let mut hidden = request(vec![(text(&"x".repeat(bytes)), Label::new(Taint::External))]);
            Withheld::default().hide_content(&mut hidden, Clearance::Public).map(drop)
        };
        for (bytes, expected) in
            [(16_777_216, Ok(())), (16_777_217, Err(TooMuch)), (16_777_223, Err(TooMuch))]
        {
            assert_eq!(whole(bytes), expected, "{bytes}");
        }
    }

    /// Whom only what is public may be told is told no persons of the system's texts either; others are.
    #[test]
    fn persons_in_the_systems_texts_are_hidden_where_only_what_is_public_may_be_told() {
        for (clearance, hidden) in [(Clearance::Public, true), (Clearance::Personal, false)] {
            let mut asked = request(vec![(text("hello"), Label::new(Taint::Owner))]);
            asked.system = "Write to ann@mail.example.org.".into();
            Withheld::default().hide_content(&mut asked, clearance).expect("little");
            assert_eq!(!asked.system.contains("ann@"), hidden, "{}", asked.system);
            assert!(asked.system.starts_with("Write to ") && asked.messages[0].parts == [text("hello")]);
        }
    }
}
