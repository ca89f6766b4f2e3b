//! A stream with a reader that may not block the engine: a pipe that is not read becomes full one day, and
//! each writer to it then stops.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written. What comes while they all wait is left out: the log's file has it.
const WAITING: usize = 256;

/// The time to wait for the last lines.
const LAST: Duration = Duration::from_millis(200);

/// The way to the thread that writes.
#[derive(Clone, Debug)]
pub(crate) struct Bystander {
    told: SyncSender<LogMessage>,
}

#[derive(Debug)]
enum LogMessage {
    Line(Vec<u8>),
    /// Everything before it was written.
    So(SyncSender<()>),
}

impl Bystander {
    /// Starts the thread that writes to `stream`; it ends with the last of those who tell it something.
    pub(super) fn start_writer(stream: impl Write + Send + 'static) -> Self {
        let (told, listening) = sync_channel(WAITING);
        std::thread::spawn(move || write_lines(&listening, stream));
        Self { told }
    }

    /// Gives the last lines a moment to be written.
    pub(crate) fn end_writer(&self) {
        let (so, written) = sync_channel(1);
        if self.told.try_send(LogMessage::So(so)).is_ok() {
            let _written = written.recv_timeout(LAST);
        }
    }
}

fn write_lines(listening: &Receiver<LogMessage>, mut stream: impl Write) {
    for told in listening {
        match told {
            LogMessage::Line(line) => {
                if stream.write_all(&line).and_then(|()| stream.flush()).is_err() {
                    // The reader has closed the stream.
                    return;
                }
            }
            LogMessage::So(so) => drop(so.try_send(())),
        }
    }
}

impl Write for Bystander {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A full queue leaves the line out.
        let _told = self.told.try_send(LogMessage::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Bystander {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a line only when it is told to.
    struct Slow(mpsc::Receiver<()>, mpsc::SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn whoever_tells_something_never_waits_for_whoever_listens() {
        let (go, gate) = mpsc::sync_channel(WAITING);
        let (said, heard) = mpsc::sync_channel(WAITING);
        let mut told = Bystander::start_writer(Slow(gate, said));
        // Ten times what may wait, and nobody listens yet.
        for n in 0..WAITING * 10 {
            told.write_all(format!("{n}").as_bytes()).expect("never fails");
        }
        for _ in 0..WAITING {
            go.send(()).expect("it listens");
        }
        let lines: Vec<Vec<u8>> = heard.iter().take(WAITING).collect();
        let numbers: Vec<String> = (0..WAITING).map(|n| n.to_string()).collect();
        let expected: Vec<&[u8]> = numbers.iter().map(String::as_bytes).collect();
        assert_eq!(lines, expected, "the first ones are kept, in order");
        // Whoever ends waits for the last line, not for a listener that stands still.
        let (go, gate) = mpsc::sync_channel(WAITING);
        let (said, heard) = mpsc::sync_channel(WAITING);
        let mut told = Bystander::start_writer(Slow(gate, said));
        told.write_all(b"unheard").expect("never fails");
        told.end_writer();
        assert!(heard.try_recv().is_err());
        go.send(()).expect("it listens");
        assert_eq!(heard.recv(), Ok(b"unheard".to_vec()));
        told.write_all(b"last").expect("never fails");
        go.send(()).expect("it listens");
        told.end_writer();
        assert_eq!(heard.try_recv(), Ok(b"last".to_vec()));
    }
}
