//! The clients: one that asks again and again, and many of them at once.

#![expect(clippy::disallowed_types, reason = "a build tool is a client of what it measures on loopback")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::page::{PAGE, page};

/// The name of the server of pages. Proxies know its address; it is never looked up.
pub(super) const HOST: &str = "pages.test";
/// Clients at once.
pub(super) const CLIENTS: usize = 16;
/// Longer than an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A page over a connection of its own.
    Single,
    /// A page over a connection that was there before.
    Kept,
    /// A tunnel of its own, in which it says hello as in TLS and gets the page.
    Tunnel,
}

/// The way to the server of pages.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The port that clients connect to.
    port: u16,
    /// The port of the server, if the former is a proxy.
    behind: Option<u16>,
    hello: Vec<u8>,
}

/// A client.
#[derive(Debug)]
pub(super) struct Client<'a> {
    route: &'a Route,
    kind: Kind,
    kept: Option<TcpStream>,
}

impl Route {
    /// Without a proxy.
    pub(super) fn direct(port: u16, hello: &[u8]) -> Self {
        Self { port, behind: None, hello: hello.to_owned() }
    }

    /// Through the proxy on a port.
    pub(super) fn through(proxy: u16, port: u16, hello: &[u8]) -> Self {
        Self { port: proxy, behind: Some(port), hello: hello.to_owned() }
    }

    /// A client of this route.
    pub(super) const fn client(&self, kind: Kind) -> Client<'_> {
        Client { route: self, kind, kept: None }
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A request for the page.
    fn request(&self, last: bool) -> String {
        let authority = format!("{HOST}:{}", self.behind.unwrap_or(self.port));
        let url = if self.behind.is_some() { format!("http://{authority}/page") } else { "/page".to_owned() };
        let connection = if last { "Connection: close\r\n" } else { "" };
        format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n{connection}\r\n")
    }
}

impl Client<'_> {
    /// Returns the port that it connects to.
    pub(super) const fn port(&self) -> u16 {
        self.route.port
    }

    /// Asks once and checks the answer; how long it took, with the connection where that is new.
    pub(super) fn ask(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        match self.kind {
            Kind::Single => {
                let mut stream = self.route.connect()?;
                stream.write_all(self.route.request(true).as_bytes())?;
                answered(&mut stream)?;
                ended(&mut stream)?;
            }
            Kind::Kept => {
                let mut stream = match self.kept.take() {
                    Some(stream) => stream,
                    None => self.route.connect()?,
                };
                stream.write_all(self.route.request(false).as_bytes())?;
                answered(&mut stream)?;
                self.kept = Some(stream);
            }
            Kind::Tunnel => {
                let mut stream = self.route.connect()?;
                if let Some(behind) = self.route.behind {
                    let request =
                        format!("CONNECT {HOST}:{behind} HTTP/1.1\r\nHost: {HOST}:{behind}\r\n\r\n");
                    stream.write_all(request.as_bytes())?;
                    let (head, rest) = head(&mut stream)?;
                    ensure!(is_good(&head) && rest.is_empty(), "{head}");
                }
                stream.write_all(&self.route.hello)?;
                let mut body = Vec::new();
                stream.read_to_end(&mut body)?;
                ensure!(body == page(), "another page, of {} bytes", body.len());
            }
        }
        Ok(begun.elapsed())
    }
}

/// So many requests, by all clients together; how long each took, and all of them.
pub(super) fn burst(route: &Route, kind: Kind, requests: u32) -> Result<(Vec<Duration>, Duration)> {
    let left = AtomicU32::new(requests);
    let client = || -> Result<Vec<Duration>> {
        let (mut client, mut took) = (route.client(kind), Vec::new());
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            took.push(client.ask()?);
        }
        Ok(took)
    };
    let begun = Instant::now();
    let took = std::thread::scope(|scope| -> Result<Vec<Duration>> {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        let mut took = Vec::new();
        for client in clients {
            took.extend(client.join().map_err(|_| anyhow!("a client panicked"))??);
        }
        Ok(took)
    })?;
    Ok((took, begun.elapsed()))
}

/// Reads the page with its head.
fn answered(stream: &mut TcpStream) -> Result<()> {
    let (head, mut body) = head(stream)?;
    ensure!(is_good(&head), "{head}");
    let length = length(&head).with_context(|| format!("no length: {head}"))?;
    ensure!(length == PAGE, "a page of {length} bytes");
    let mut step = [0; 4_096];
    while body.len() < length {
        match stream.read(&mut step)? {
            0 => bail!("the page ended after {} bytes", body.len()),
            count => body.extend(step.iter().take(count)),
        }
    }
    ensure!(body == page(), "another page");
    Ok(())
}

/// Nothing comes any more.
fn ended(stream: &mut TcpStream) -> Result<()> {
    ensure!(stream.read(&mut [0; 1])? == 0, "more than the page");
    Ok(())
}

/// Reads up to the end of a head; the head, and what came behind it.
fn head(stream: &mut TcpStream) -> Result<(String, Vec<u8>)> {
    let (mut said, mut step) = (Vec::new(), [0; 4_096]);
    loop {
        if let Some(end) = said.windows(4).position(|part| part == b"\r\n\r\n") {
            let rest = said.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&said).into_owned(), rest));
        }
        match stream.read(&mut step)? {
            0 => bail!("no answer: {}", String::from_utf8_lossy(&said)),
            count => said.extend(step.iter().take(count)),
        }
    }
}

fn is_good(head: &str) -> bool {
    head.split(' ').nth(1) == Some("200")
}

fn length(head: &str) -> Option<usize> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    length.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::page::Pages;
    use super::*;

    #[test]
    fn heads_are_read_whatever_their_case() {
        let head = "HTTP/1.1 200 Connection established\r\ncontent-LENGTH:  12\r\n\r\n";
        assert!(is_good(head) && !is_good("HTTP/1.1 403 Forbidden\r\n\r\n") && !is_good(""));
        assert_eq!((length(head), length("HTTP/1.1 200 OK\r\n\r\n")), (Some(12), None));
    }

    #[test]
    fn every_kind_gets_its_page() {
        let pages = Pages::serve().unwrap();
        let route = Route::direct(pages.port(), &[0x16, 3, 1, 0, 1, 1]);
        for kind in [Kind::Single, Kind::Kept, Kind::Tunnel] {
            let (took, all) = burst(&route, kind, 40).unwrap();
            assert_eq!(took.len(), 40, "{kind:?}");
            assert!(took.iter().all(|one| *one <= all), "{kind:?}");
        }
        let away = Route::direct(crate::socket::free_port().unwrap(), &[]);
        assert!(burst(&away, Kind::Single, 1).is_err(), "nobody is there");
    }
}
