//! Mails from templates, to the customer's own address.

use std::sync::Arc;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use writ_egress::Egress;
use writ_egress::host::HostPort;
use writ_egress::target::TargetPlace;
use writ_types::digest::Digest;

use super::OperationRequest;
use super::config::{MailConfig, MailTls};
use super::starttls::{SmtpStream, start_tls};
use crate::check::CUSTOMER;
use crate::error::PerformError;
use crate::operation::MailTarget;
use crate::result::OperationResult;

/// The most bytes of a filled mail.
const MAX_MAIL_BYTES: usize = 256 * 1024;
/// The longest subject, in characters.
const MAX_SUBJECT_CHARS: usize = 200;
/// The name that servers are greeted with.
const HELLO: &str = "writ.localhost";

/// A mail server.
pub(crate) struct MailServer {
    server: HostPort,
    tls: MailTls,
    login: Option<(String, SecretString)>,
    from: Mailbox,
    egress: Arc<Egress>,
}

impl std::fmt::Debug for MailServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MailServer").field("server", &self.server).finish_non_exhaustive()
    }
}

impl MailServer {
    pub(crate) fn new(config: MailConfig, egress: Arc<Egress>) -> Self {
        let MailConfig { server, tls, login, from } = config;
        Self { server, tls, login, from, egress }
    }

    /// Sends a mail. `customer` is the row with the customer's address and the values of templates.
    pub(crate) async fn send_mail(
        &self,
        target: &MailTarget,
        request: OperationRequest<'_>,
        customer: OperationResult,
        limit: Duration,
    ) -> Result<OperationResult, PerformError> {
        let mail = self.write_mail(target, request, &customer)?;
        let deadline = Instant::now() + limit;
        let connecting = timeout_at(deadline, self.open_mail(&mail, limit)).await;
        let mut connection = connecting.unwrap_or_else(|_| Err(too_slow()))?;
        // From here on the server may take the mail.
        let sent = timeout_at(deadline, connection.message(&mail.formatted())).await;
        match sent {
            Ok(Ok(_)) => {}
            // An answer with a status is the server's decision: it has not taken the mail.
            Ok(Err(why)) if why.status().is_some() => {
                return Err(PerformError::not_performed(describe_error(
                    "the mail server refuses the mail",
                    &why,
                )));
            }
            Ok(Err(_)) => return Err(PerformError::unknown("the connection broke after the mail was sent")),
            Err(_) => {
                return Err(PerformError::unknown(
                    "the mail server did not say in time that it took the mail",
                ));
            }
        }
        // The mail is taken; how the connection ends changes nothing.
        if let Ok(Err(error)) = timeout_at(deadline, connection.quit()).await {
            tracing::debug!(%error, "a mail server did not say goodbye");
        }
        Ok(OperationResult { rows: Vec::new(), changed: 1, truncated: false })
    }

    fn write_mail(
        &self,
        target: &MailTarget,
        request: OperationRequest<'_>,
        customer: &OperationResult,
    ) -> Result<Message, PerformError> {
        let refused = |what: &str| PerformError::not_performed(what.to_owned());
        let [row] = customer.rows.as_slice() else {
            return Err(refused("the customer does not have exactly one address"));
        };
        let name = target.chosen_by.as_ref().map(|parameter| request.place_text(parameter)).transpose()?;
        let template = match &name {
            Some(name) => target.templates.get(name),
            None => target.templates.values().next(),
        };
        let template = template.ok_or_else(|| refused("there is no such template"))?;
        let value = |place: &str| -> Result<String, PerformError> {
            match place.strip_prefix(CUSTOMER).and_then(|rest| rest.strip_prefix('.')) {
                Some(column) => {
                    let index = target.values.iter().position(|value| value == column);
                    let cell = index.and_then(|index| row.get(index + 1));
                    Ok(cell.map_or_else(String::new, |(_, value, _)| plain_text(value)))
                }
                None => request.place_text(place),
            }
        };
        let subject = template.subject.fill_places(value)?;
        let body = template.body.fill_places(value)?;
        // One line: more would be headers of their own for a careless reader.
        if subject.chars().any(char::is_control) || subject.chars().count() > MAX_SUBJECT_CHARS {
            return Err(refused("the subject would have more than one line of 200 characters"));
        }
        if body.len() > MAX_MAIL_BYTES || body.contains('\0') {
            return Err(refused("the text is too long, or has a zero byte"));
        }
        let to = row.first().and_then(|(_, value, _)| value.as_str()).unwrap_or_default();
        let to: Address = to.parse().map_err(|_| refused("the customer's address is none"))?;
        let shown: &str = to.as_ref();
        if !shown.is_ascii() || shown.chars().any(char::is_control) {
            return Err(refused("the customer's address is none that every server takes"));
        }
        // From the key of the request, so that two copies of one mail have one id.
        let id = Digest::of_bytes(request.key.as_bytes());
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(subject)
            .message_id(Some(format!("<{id}@{}>", self.from.email.domain())))
            .header(ContentType::TEXT_PLAIN)
            .body(body.replace("\r\n", "\n").replace('\r', "\n"))
            .map_err(|_| refused("the mail cannot be written"))
    }

    /// Connects, logs in, and names sender and recipient. Nothing is sent yet.
    async fn open_mail(&self, mail: &Message, limit: Duration) -> Result<AsyncSmtpConnection, PerformError> {
        let unreachable =
            |why| PerformError::not_performed(format!("the mail server cannot be reached: {why}"));
        let place = TargetPlace::Host(self.server.clone());
        let stream = self.egress.connect_target(&place, limit).await.map_err(unreachable)?;
        let host = self.server.host();
        let stream = match self.tls {
            MailTls::None => SmtpStream::plain(stream),
            MailTls::Implicit => {
                SmtpStream::plain(self.egress.secure_target(stream, host, limit).await.map_err(unreachable)?)
            }
            MailTls::Starttls => {
                let stream = start_tls(stream, HELLO).await.map_err(PerformError::not_performed)?;
                SmtpStream::greeted(
                    self.egress.secure_target(stream, host, limit).await.map_err(unreachable)?,
                )
            }
        };
        let refused = |why: lettre::transport::smtp::Error| {
            PerformError::not_performed(describe_error("the mail server refuses", &why))
        };
        let stream: Box<dyn AsyncTokioStream> = Box::new(stream);
        let hello = ClientId::Domain(HELLO.to_owned());
        let mut connection =
            AsyncSmtpConnection::connect_with_transport(stream, &hello).await.map_err(refused)?;
        if let Some((user, password)) = &self.login {
            let credentials = Credentials::new(user.clone(), password.expose_secret().to_owned());
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(refused)?;
        }
        let envelope = mail.envelope();
        connection.command(Mail::new(envelope.from().cloned(), Vec::new())).await.map_err(refused)?;
        for recipient in envelope.to() {
            connection.command(Rcpt::new(recipient.clone(), Vec::new())).await.map_err(refused)?;
        }
        connection.command(Data).await.map_err(refused)?;
        Ok(connection)
    }
}

/// A value in a text for people.
fn plain_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

fn too_slow() -> PerformError {
    PerformError::not_performed("the mail server did not answer in time")
}

/// The status of an answer. Its text can repeat the address.
fn describe_error(what: &str, why: &lettre::transport::smtp::Error) -> String {
    match why.status() {
        Some(code) => format!("{what} (SMTP {code})"),
        None => format!("{what}: the connection broke, or its answer is none"),
    }
}
