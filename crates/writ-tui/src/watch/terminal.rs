//! The terminal of a view: a screen of its own, keys as they are pressed, and everything put back at the end.

use std::fmt;
use std::io::{self, Read as _, Write};
use std::thread;

use nix::sys::termios::{self, LocalFlags, SetArg, Termios};
use tokio::sync::mpsc;

use super::keys::{KeyReader, WatchKey};
use crate::error::EditorError;

/// The keys that wait until they are read.
const MAX_WAITING_KEYS: usize = 64;
/// Changes to a screen of its own and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// Shows the cursor and changes back.
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// A terminal that shows a view. Dropping it puts the terminal back as it was.
pub struct WatchTerminal<W: Write> {
    out: W,
    before: Termios,
    keys: mpsc::Receiver<WatchKey>,
    shown: Vec<String>,
    size: (usize, usize),
}

impl<W: Write> fmt::Debug for WatchTerminal<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchTerminal").field("size", &self.size).finish_non_exhaustive()
    }
}

impl<W: Write> WatchTerminal<W> {
    /// Takes the terminal of standard input. Its output goes to `out`, which is the same terminal.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be set up.
    pub fn open_terminal(mut out: W) -> Result<Self, EditorError> {
        let failed = |error: nix::errno::Errno| EditorError::Terminal(error.into());
        let before = termios::tcgetattr(io::stdin()).map_err(failed)?;
        let mut own = before.clone();
        // Keys come one by one and unseen, also Ctrl-C: it leaves the view, which then puts the terminal back.
        own.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &own).map_err(failed)?;
        let (sender, keys) = mpsc::channel(MAX_WAITING_KEYS);
        let started = thread::Builder::new().name("writ-keys".into()).spawn(move || read_keys(&sender));
        let entered = out.write_all(ENTER).and_then(|()| out.flush());
        // From here on the terminal is put back however this ends.
        let terminal = Self { out, before, keys, shown: Vec::new(), size: (0, 0) };
        started.map_err(EditorError::Terminal)?;
        entered.map_err(EditorError::Terminal)?;
        Ok(terminal)
    }

    /// Shows rows on a terminal of so many rows and columns: those that differ from what is shown are written.
    ///
    /// # Errors
    ///
    /// If the terminal cannot be written to.
    pub fn show_rows(&mut self, rows: Vec<String>, size: (usize, usize)) -> io::Result<()> {
        let text = change_rows(&self.shown, &rows, self.size != size);
        (self.shown, self.size) = (rows, size);
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Returns the next key. A terminal that was closed is left. Safe to be cancelled.
    pub async fn next_key(&mut self) -> WatchKey {
        self.keys.recv().await.unwrap_or(WatchKey::Leave)
    }
}

impl<W: Write> Drop for WatchTerminal<W> {
    fn drop(&mut self) {
        // A terminal that was closed cannot be restored.
        let _written = self.out.write_all(LEAVE).and_then(|()| self.out.flush());
        let _restored = termios::tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

/// Reads keys until the input ends or the view is left; at the latest the thread ends with the process.
fn read_keys(keys: &mpsc::Sender<WatchKey>) {
    let (mut reader, mut bytes) = (KeyReader::default(), [0_u8; 64]);
    loop {
        let read = match io::stdin().lock().read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        for key in bytes.iter().take(read).filter_map(|byte| reader.push_byte(*byte)) {
            if keys.blocking_send(key).is_err() {
                return;
            }
        }
    }
}

/// Returns what is to be written so that a screen which shows `before` shows `after`.
fn change_rows(before: &[String], after: &[String], is_new: bool) -> String {
    let mut text = String::new();
    if is_new {
        text.push_str("\x1b[2J");
    }
    for place in 0..before.len().max(after.len()) {
        let (old, new) = (before.get(place), after.get(place));
        if is_new || old != new {
            let row = new.map_or("", String::as_str);
            text.push_str(&format!("\x1b[{};1H{row}\x1b[K", place.saturating_add(1)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// Only rows that differ are written, those that are not there any more are cleared, and another size writes all of them.
    #[test]
    fn only_what_has_changed_is_written() {
        let (one, two) = (rows(&["a", "b", "c"]), rows(&["a", "x"]));
        assert_eq!(change_rows(&one, &two, false), "\x1b[2;1Hx\x1b[K\x1b[3;1H\x1b[K");
        assert_eq!(change_rows(&two, &two, false), "");
        assert_eq!(change_rows(&two, &two, true), "\x1b[2J\x1b[1;1Ha\x1b[K\x1b[2;1Hx\x1b[K");
    }
}
