//! A mail server that takes mails and sends none, with faults.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The most mails in the record.
const MAX_MAILS: usize = 1_000;
/// The longest line, in bytes.
const MAX_LINE: u64 = 64 * 1024;
/// The most lines of a mail.
const MAX_LINES: usize = 10_000;

/// The fault of a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MailFault {
    /// None.
    #[default]
    None,
    /// It refuses every recipient.
    RefusesRecipients,
    /// It refuses every mail after it has come in.
    RefusesMails,
    /// It closes the connection once a mail has come in, without an answer.
    HangsUp,
    /// It accepts connections and never greets.
    Silent,
}

/// A mail, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaughtMail {
    /// The sender of the envelope.
    pub from: String,
    /// The recipients of the envelope.
    pub to: Vec<String>,
    /// The lines of the mail, head and body, without the dots of the protocol.
    pub lines: Vec<String>,
    /// The rest of the line `AUTH`, in base64.
    pub login: Option<String>,
}

/// A running mail server. Dropping it stops it.
#[derive(Debug)]
pub struct MailSink {
    address: SocketAddr,
    mails: Arc<Mutex<Vec<CaughtMail>>>,
    running: JoinHandle<()>,
}

impl MailSink {
    /// Starts a server on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(fault: MailFault) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mails = Arc::new(Mutex::new(Vec::new()));
        let caught = Arc::clone(&mails);
        let running = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let caught = Arc::clone(&caught);
                connections.spawn(async move {
                    let (from_client, to_client) = stream.into_split();
                    // A client that leaves in the middle has sent no mail.
                    let _ended = serve_client(BufReader::new(from_client), to_client, fault, &caught).await;
                });
            }
        });
        Ok(Self { address, mails, running })
    }

    /// The address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The mails that came.
    pub fn mails(&self) -> Vec<CaughtMail> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for MailSink {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn serve_client(
    mut reader: impl AsyncBufReadExt + Unpin,
    mut writer: impl AsyncWriteExt + Unpin,
    fault: MailFault,
    caught: &Mutex<Vec<CaughtMail>>,
) -> io::Result<()> {
    if fault == MailFault::Silent {
        // Until the client gives up.
        read_line(&mut reader).await?;
        return Ok(());
    }
    writer.write_all(b"220 sink.test ESMTP\r\n").await?;
    let (mut from, mut to, mut login) = (String::new(), Vec::new(), None);
    loop {
        let Some(line) = read_line(&mut reader).await? else { return Ok(()) };
        let (verb, rest) = line.split_once([' ', ':']).unwrap_or((&line, ""));
        let answer = match verb.to_ascii_uppercase().as_str() {
            "EHLO" => "250-sink.test\r\n250-AUTH PLAIN\r\n250 8BITMIME\r\n",
            "AUTH" => {
                login = Some(rest.to_owned());
                "235 ok\r\n"
            }
            "MAIL" => {
                from = within_brackets(rest);
                "250 ok\r\n"
            }
            "RCPT" if fault == MailFault::RefusesRecipients => "550 no such person\r\n",
            "RCPT" => {
                to.push(within_brackets(rest));
                "250 ok\r\n"
            }
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await?;
                let lines = read_mail(&mut reader).await?;
                if fault == MailFault::HangsUp {
                    return Ok(());
                }
                if fault == MailFault::RefusesMails {
                    "554 not this one\r\n"
                } else {
                    let mail = CaughtMail { from: from.clone(), to: to.clone(), lines, login: login.clone() };
                    let mut mails = caught.lock().unwrap_or_else(PoisonError::into_inner);
                    if mails.len() < MAX_MAILS {
                        mails.push(mail);
                    }
                    "250 taken\r\n"
                }
            }
            "QUIT" => {
                writer.write_all(b"221 bye\r\n").await?;
                return Ok(());
            }
            _ => "502 what\r\n",
        };
        writer.write_all(answer.as_bytes()).await?;
    }
}

async fn read_line(reader: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let count = reader.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    let line = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
    Ok((count > 0).then_some(line))
}

async fn read_mail(reader: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    while lines.len() < MAX_LINES {
        match read_line(reader).await? {
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(line) if line == "." => break,
            Some(line) => lines.push(line.strip_prefix('.').map(str::to_owned).unwrap_or(line)),
        }
    }
    Ok(lines)
}

fn within_brackets(text: &str) -> String {
    let inner = text.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or_else(String::new, |(inner, _)| inner.to_owned())
}
