//! Requests of the engine's own, which need no permit: each goes to one place that the owner names, or to this machine.

use std::time::Duration;

use secrecy::SecretString;

use crate::consult::{self, ConsultAnswer, EngineRequest};
use crate::deliver::{self, DeliverError, DeliveryReceipt, Endpoint};
use crate::loopback;
use crate::perform::Egress;
use crate::target::{self, ApiAnswer, ApiFailure, ApiRequest, TargetFault, TargetPlace, TargetStream};

impl Egress {
    /// Posts a body and returns the status of the answer, of which nothing else is stored. No client is lent,
    /// no redirect followed. It takes no permit, since no agent asks for it: the engine reports its own work,
    /// to the place that its owner's configuration names and to no other.
    ///
    /// # Errors
    ///
    /// If the endpoint cannot be reached or does not answer within `limit`.
    pub async fn post_report(
        &self,
        to: &Endpoint,
        content_type: &'static str,
        bearer: Option<&SecretString>,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<DeliveryReceipt, DeliverError> {
        deliver::post_report(self, to, content_type, bearer, body, limit).await
    }

    /// Asks the host of an address for its head, without a credential, and returns the status. It shows that the way there
    /// is open: proxy, name, port and certificate. No permit is needed, because the address is one of the owner's
    /// configuration, and nothing but that request is sent.
    ///
    /// # Errors
    ///
    /// If the host cannot be reached or does not answer within `limit`.
    pub async fn probe_endpoint(&self, at: &Endpoint, limit: Duration) -> Result<u16, DeliverError> {
        deliver::request_head(self, at, limit).await
    }

    /// Sends the request and returns the answer. No client is lent, no redirect followed. It takes no permit,
    /// since no agent asks for it: the engine asks for its own credentials, at the place that its owner names
    /// and at no other.
    ///
    /// # Errors
    ///
    /// If the endpoint cannot be reached, answers too much, or does not answer within `limit`.
    pub async fn send_question(
        &self,
        at: &Endpoint,
        question: EngineRequest,
        limit: Duration,
    ) -> Result<ConsultAnswer, DeliverError> {
        consult::send_question(self, at, question, limit).await
    }

    /// The body of `GET http://127.0.0.1:PORT/PATH` (or `[::1]`) where that is answered with 200 within `limit`, and
    /// nothing otherwise. Nothing is sent but that: no body, no key, no redirect followed; and it goes to this machine
    /// alone, so that it needs no permit.
    pub async fn ask_loopback(&self, port: u16, path: &str, limit: Duration) -> Option<Vec<u8>> {
        loopback::get_body(self, port, path, limit).await
    }

    /// Connects to a server that the owner's configuration names, through the network's proxy where there is one. No
    /// redirect, no other host. It takes no permit: its caller has consumed the one of the operation.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached within `limit`.
    pub async fn connect_target(
        &self,
        place: &TargetPlace,
        limit: Duration,
    ) -> Result<TargetStream, TargetFault> {
        target::connect_target(self, place, limit).await
    }

    /// Opens TLS on a connection, for the host of this name.
    ///
    /// # Errors
    ///
    /// If the name is none, or the certificate is not trusted.
    pub async fn secure_target(
        &self,
        stream: TargetStream,
        host: &str,
        limit: Duration,
    ) -> Result<TargetStream, TargetFault> {
        target::secure_target(self, stream, host, limit).await
    }

    /// Sends a request to an API that the owner's configuration names, and returns its answer. No redirect is followed.
    /// It takes no permit: its caller has consumed the one of the operation.
    ///
    /// # Errors
    ///
    /// If nothing was sent, or no answer of at most `max_answer` bytes came within `limit`.
    pub async fn call_api(
        &self,
        at: &Endpoint,
        request: ApiRequest,
        max_answer: usize,
        limit: Duration,
    ) -> Result<ApiAnswer, ApiFailure> {
        target::call_api(self, at, request, max_answer, limit).await
    }
}
