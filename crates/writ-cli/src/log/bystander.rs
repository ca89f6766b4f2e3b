//! A stream that is told what happens and may not hold anybody up: a pipe that nobody reads is full one day, and whoever
//! writes to it then stands still.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written. What comes while they all wait is left out: the log's file has it.
const WAITING: usize = 256;

/// The way to the thread that writes.
#[derive(Clone, Debug)]
pub(super) struct Bystander {
    lines: SyncSender<Vec<u8>>,
}

impl Bystander {
    /// Starts the thread that writes to `stream`; it ends with the last of those who tell it something.
    pub(super) fn start(stream: impl Write + Send + 'static) -> Self {
        let (lines, told) = sync_channel(WAITING);
        std::thread::spawn(move || write(&told, stream));
        Self { lines }
    }
}

fn write(told: &Receiver<Vec<u8>>, mut stream: impl Write) {
    for line in told {
        if stream.write_all(&line).and_then(|()| stream.flush()).is_err() {
            // Nobody is there any more.
            return;
        }
    }
}

impl Write for Bystander {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A full queue leaves the line out.
        let _told = self.lines.try_send(line.to_vec());
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
        let mut told = Bystander::start(Slow(gate, said));
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
    }
}
