//! The front end of the demo: it opens cases for guests, and reads the messages in them.

use serde::Deserialize;
use serde_json::{Value, json};
use writ_testkit::fleet::front::{FrontAnswer, send_request};

use crate::failure::Failure;

use super::super::not_so;
use super::place::FleetPlace;
use super::processes::wait_for;

/// The front end, with its token.
pub(super) struct FrontEnd<'a> {
    place: &'a FleetPlace,
    authorization: String,
}

/// A message of a case.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SaidText {
    pub(super) from: String,
    pub(super) text: String,
}

#[derive(Deserialize)]
struct SaidPage {
    is_open: bool,
    messages: Vec<SaidText>,
}

impl<'a> FrontEnd<'a> {
    pub(super) fn new(place: &'a FleetPlace, token: &str) -> Self {
        Self { place, authorization: format!("Bearer {token}") }
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<FrontAnswer, Failure> {
        let headers = [("authorization", self.authorization.as_str())];
        send_request(&self.place.cases(), (method, path), &headers, body)
            .await
            .map_err(|error| Failure::internal_error("asking the case router", error))
    }

    /// Opens a case, and returns its id.
    pub(super) async fn open_case(
        &self,
        (customer, case): (&str, &str),
        capability: &str,
        message: &str,
    ) -> Result<String, Failure> {
        // The one place where the names of customer and case are given: they go to the proxy.
        let body =
            json!({ "customer": customer, "case": case, "capability": capability, "message": message });
        let answer = self.ask("POST", "/cases", Some(&body)).await?;
        match answer.body.get("id").and_then(Value::as_str) {
            Some(id) if answer.status == 201 => Ok(id.to_owned()),
            Some(_) | None => Err(not_so(&format!("no case was opened: {} {}", answer.status, answer.body))),
        }
    }

    pub(super) async fn add_message(&self, case: &str, text: &str) -> Result<(), Failure> {
        let answer =
            self.ask("POST", &format!("/cases/{case}/messages"), Some(&json!({ "text": text }))).await?;
        if answer.status == 202 {
            Ok(())
        } else {
            Err(not_so(&format!("a message was not taken: {}", answer.body)))
        }
    }

    pub(super) async fn close_case(&self, case: &str) -> Result<(), Failure> {
        let answer = self.ask("POST", &format!("/cases/{case}/close"), None).await?;
        if answer.status == 200 {
            Ok(())
        } else {
            Err(not_so(&format!("a case was not closed: {}", answer.body)))
        }
    }

    async fn read_page(&self, case: &str) -> Result<SaidPage, Failure> {
        // Always from the first message: those of a demo are few, and no position has to be remembered.
        let answer = self.ask("GET", &format!("/cases/{case}/messages?after=0"), None).await?;
        serde_json::from_value(answer.body)
            .map_err(|error| Failure::internal_error("reading the messages of a case", error))
    }

    /// Waits until a message is such, and returns all of the case.
    pub(super) async fn wait_for_text(
        &self,
        case: &str,
        is: impl Fn(&SaidText) -> bool,
    ) -> Result<Vec<SaidText>, Failure> {
        wait_for("no answer came", async || {
            let page = self.read_page(case).await?;
            Ok(page.messages.iter().any(&is).then_some(page.messages))
        })
        .await
    }

    pub(super) async fn is_open(&self, case: &str) -> Result<bool, Failure> {
        Ok(self.read_page(case).await?.is_open)
    }
}

/// Returns the last message of one sender.
pub(super) fn last_of<'a>(messages: &'a [SaidText], sender: &str) -> Option<&'a str> {
    messages.iter().rev().find(|message| message.from == sender).map(|message| message.text.as_str())
}
