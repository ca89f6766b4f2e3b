//! Notifications of the terminal: something waits for a person who may look elsewhere.

use crate::env::Env;

/// Values of `TERM_PROGRAM` of terminals that show OSC 9 as a notification, by their documentation.
const PROGRAMS: [&str; 4] = ["iTerm.app", "WezTerm", "ghostty", "WarpTerminal"];
/// Values of `TERM` of such terminals.
const TERMS: [&str; 3] = ["xterm-kitty", "xterm-ghostty", "foot"];
/// Variables of programs between the terminal and this one, which pass no such sequence on.
const BETWEEN: [&str; 3] = ["TMUX", "STY", "ZELLIJ"];

/// The occasion of a notification. Its text is ours alone: nothing that an agent or a page has written is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalNotice {
    /// A question waits.
    Asks,
    /// A long turn has ended.
    Ended,
}

impl TerminalNotice {
    const fn text(self) -> &'static str {
        match self {
            Self::Asks => "Writ: a question waits for you",
            Self::Ended => "Writ: the turn has ended",
        }
    }

    /// Returns what is written to a terminal with these variables: OSC 9 where it is known to be shown, else the bell. ConEmu and
    /// Windows Terminal take numbers behind OSC 9 for orders, so they get the bell.
    pub(super) fn for_terminal(self, env: &Env) -> String {
        let is = |name: &str, known: &[&str]| env.text_of(name).is_some_and(|value| known.contains(&value));
        let direct = BETWEEN.iter().all(|name| env.text_of(name).is_none());
        if direct && (is("TERM_PROGRAM", &PROGRAMS) || is("TERM", &TERMS)) {
            return format!("\x1b]9;{}\x07", self.text());
        }
        "\x07".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_shows_notifications_gets_one_and_others_ring() {
        let kitty = Env::from_pairs(&[("TERM", "xterm-kitty")]);
        assert_eq!(TerminalNotice::Asks.for_terminal(&kitty), "\x1b]9;Writ: a question waits for you\x07");
        let wezterm = Env::from_pairs(&[("TERM", "xterm-256color"), ("TERM_PROGRAM", "WezTerm")]);
        assert_eq!(TerminalNotice::Ended.for_terminal(&wezterm), "\x1b]9;Writ: the turn has ended\x07");
        for other in [
            Env::from_pairs(&[("TERM", "xterm")]),
            Env::from_pairs(&[("TERM", "dumb")]),
            Env::from_pairs(&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/tmux-0/default,1,0")]),
            Env::from_pairs(&[("TERM_PROGRAM", "vscode"), ("WT_SESSION", "1")]),
            Env::default(),
        ] {
            assert_eq!(TerminalNotice::Asks.for_terminal(&other), "\x07");
        }
    }
}
