//! Questions (elicitations) that a server at a URL asks a person during a call.

use std::collections::VecDeque;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::client::MAX_QUESTIONS;
use crate::elicitation::{Elicitation, ElicitationReply};
use crate::message::{self, ELICITATION};

/// A question for a person. If it is dropped without a reply, the server receives [`ElicitationReply::Cancel`].
#[derive(Debug)]
pub struct Question {
    /// The form.
    pub form: Elicitation,
    reply: oneshot::Sender<ElicitationReply>,
}

impl Question {
    /// Sends the person's reply, which is discarded if the call has ended.
    pub fn reply(self, reply: ElicitationReply) {
        let _sent = self.reply.send(reply);
    }
}

/// The sending end of a channel of questions to a person.
#[derive(Debug)]
pub struct Person(mpsc::Sender<Question>);

/// Creates a channel of questions to a person. At most `MAX_QUESTIONS` wait in it; further ones are refused.
pub fn question_channel() -> (Person, mpsc::Receiver<Question>) {
    let (questions, asked) = mpsc::channel(MAX_QUESTIONS);
    (Person(questions), asked)
}

/// The questions of one call that have no reply yet, in order.
#[derive(Debug, Default)]
pub(super) struct OpenQuestions<'a> {
    /// `None`: no person can be asked.
    person: Option<&'a Person>,
    open: VecDeque<(Value, oneshot::Receiver<ElicitationReply>)>,
}

impl<'a> OpenQuestions<'a> {
    pub(super) fn of(person: Option<&'a Person>) -> Self {
        Self { person, open: VecDeque::new() }
    }

    /// Returns the immediate answer to a request of the server; `None` if the person is asked, and the answer comes later.
    pub(super) fn immediate_answer(&mut self, id: Value, method: &str, params: &Value) -> Option<Value> {
        // Without a person, and for every other request, the answer is that of a client without optional features.
        let Some(Person(person)) = self.person.filter(|_| method == ELICITATION) else {
            return Some(message::answer_request(&id, method));
        };
        let form = match Elicitation::read(id.clone(), params) {
            Ok(form) => form,
            Err(why) => return Some(message::invalid_params(&id, why)),
        };
        let (reply, coming) = oneshot::channel();
        // Two bounds apply: questions of this call without a reply, and questions that the person has not seen yet.
        if self.open.len() >= MAX_QUESTIONS || person.try_send(Question { form, reply }).is_err() {
            return Some(message::answer_request(&id, method));
        }
        self.open.push_back((id, coming));
        None
    }

    /// Waits for the reply to the oldest open question, and returns the answer for the server. Never completes
    /// without an open question. Dropping the future loses no reply.
    pub(super) async fn take_reply(&mut self) -> Value {
        let Some((id, coming)) = self.open.front_mut() else { return std::future::pending().await };
        // A question that was dropped without a reply is cancelled, so that the server does not wait for
        // ever.
        let reply = coming.await.unwrap_or(ElicitationReply::Cancel);
        let answer = message::result_line(id, &reply.result());
        self.open.pop_front();
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn ask(asked: &mut OpenQuestions<'_>, id: u64) -> Option<Value> {
        asked.immediate_answer(json!(id), ELICITATION, &json!({ "message": format!("question {id}?") }))
    }

    fn code(answer: Option<Value>) -> Option<Value> {
        answer.map(|answer| answer["error"]["code"].clone())
    }

    fn result(id: u64, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "result": result })
    }

    /// Returns true if no reply is ready.
    async fn is_silent(asked: &mut OpenQuestions<'_>) -> bool {
        tokio::select! {
            biased;
            _ = asked.take_reply() => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn questions_are_put_in_order_and_each_reply_names_its_own() {
        let (person, mut questions) = question_channel();
        let mut asked = OpenQuestions::of(Some(&person));
        assert!((1..=3).all(|id| ask(&mut asked, id).is_none()));
        let mut next = || questions.try_recv().expect("a question");
        let (first, second, third) = (next(), next(), next());
        assert_eq!(first.form.message, "question 1?");
        second.reply(ElicitationReply::Decline);
        assert!(is_silent(&mut asked).await, "the first has none yet");
        first.reply(ElicitationReply::Accept(Map::from_iter([("a".to_owned(), json!(1))])));
        assert_eq!(asked.take_reply().await, result(1, json!({ "action": "accept", "content": { "a": 1 } })));
        assert_eq!(asked.take_reply().await, result(2, json!({ "action": "decline" })));
        drop(third);
        assert_eq!(asked.take_reply().await, result(3, json!({ "action": "cancel" })), "nobody has answered");
        assert!(is_silent(&mut asked).await);
    }

    #[tokio::test]
    async fn a_few_questions_wait_and_more_are_refused() {
        let (person, mut questions) = question_channel();
        let mut asked = OpenQuestions::of(Some(&person));
        let most = u64::try_from(MAX_QUESTIONS).expect("few");
        assert!((1..=most).all(|id| ask(&mut asked, id).is_none()));
        let first = questions.try_recv().expect("a question");
        assert_eq!(
            code(ask(&mut asked, 99)),
            Some(json!(message::METHOD_NOT_FOUND)),
            "one is with the person"
        );
        first.reply(ElicitationReply::Decline);
        asked.take_reply().await;
        assert_eq!(ask(&mut asked, 100), None, "one was answered");
    }

    #[test]
    fn what_is_no_question_and_what_nobody_can_be_asked_is_refused_at_once() {
        let (person, mut questions) = question_channel();
        let mut asked = OpenQuestions::of(Some(&person));
        assert_eq!(code(asked.immediate_answer(json!(1), ELICITATION, &json!({}))), Some(json!(-32_602)));
        let sampling = asked.immediate_answer(json!(2), "sampling/createMessage", &json!({ "message": "m" }));
        assert_eq!(code(sampling), Some(json!(message::METHOD_NOT_FOUND)));
        assert_eq!(asked.immediate_answer(json!(3), "ping", &Value::Null), Some(result(3, json!({}))));
        assert!(questions.try_recv().is_err());
        let refused = Some(json!(message::METHOD_NOT_FOUND));
        assert_eq!(code(ask(&mut OpenQuestions::default(), 4)), refused, "nobody is there");
        drop(questions);
        assert_eq!(code(ask(&mut asked, 5)), refused, "nobody is there any more");
    }
}
