//! Progress of a unit: the window of its last turns, over all of its attempts.
//!
//! It is stored with the unit. A new attempt, a recovery or a restart clears nothing: only a tree that the unit has never had
//! before counts as progress. A worker that reads the same file for hours makes successful calls and none.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use writ_types::digest::Digest;

use crate::phase::PilotPhase;

/// Turns that are remembered.
const MAX_TURNS: usize = 64;
/// Trees that are remembered, to know one that comes back.
const MAX_TREES: usize = 256;

/// A turn, as the harness has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnTrace {
    /// The phase.
    pub phase: PilotPhase,
    /// Tool calls.
    pub calls: u32,
    /// Tool calls that succeeded.
    pub successes: u32,
    /// The digest of all calls with their arguments and results: the same again shows nothing new.
    pub calls_digest: Digest,
}

/// The window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressWindow {
    turns: VecDeque<TurnTrace>,
    trees: VecDeque<Digest>,
    /// Turns since the last new tree, in phases that change files.
    idle_turns: u32,
}

impl ProgressWindow {
    /// Adds a turn with the tree that it has left; returns true if that is a new one.
    pub fn add_turn(&mut self, turn: TurnTrace, tree: Digest) -> bool {
        // A tree that comes back is no progress: two attempts can undo each other for ever.
        let is_new = !self.trees.contains(&tree);
        if is_new {
            self.trees.push_back(tree);
            self.turns.clear();
        }
        // Research and review leave no tree of their own.
        let writes = matches!(turn.phase, PilotPhase::Execute | PilotPhase::Tdd);
        self.idle_turns = match (is_new, writes) {
            (true, _) => 0,
            (false, true) => self.idle_turns.saturating_add(1),
            // Reading is the work of the other phases; their time is bounded.
            (false, false) => self.idle_turns,
        };
        self.turns.push_back(turn);
        while self.turns.len() > MAX_TURNS {
            self.turns.pop_front();
        }
        while self.trees.len() > MAX_TREES {
            self.trees.pop_front();
        }
        is_new
    }

    /// Returns the number of last turns in one phase without a successful call.
    pub fn count_fruitless(&self) -> u32 {
        self.count_last(|turn| turn.successes == 0)
    }

    /// Returns the number of last turns in one phase without any call.
    pub fn count_silent(&self) -> u32 {
        self.count_last(|turn| turn.calls == 0)
    }

    fn count_last(&self, is_counted: impl Fn(&TurnTrace) -> bool) -> u32 {
        let Some(last) = self.turns.back() else { return 0 };
        let counted = self.turns.iter().rev().take_while(|turn| turn.phase == last.phase && is_counted(turn));
        u32::try_from(counted.count()).unwrap_or(u32::MAX)
    }

    /// Returns how often the calls of the last turn, with the same results, are in the window.
    pub fn count_repeats(&self) -> u32 {
        let Some(last) = self.turns.back().filter(|turn| turn.calls > 0) else { return 0 };
        let same = self.turns.iter().filter(|turn| turn.calls_digest == last.calls_digest);
        u32::try_from(same.count()).unwrap_or(u32::MAX)
    }

    /// Returns the number of turns of writing phases since the last new tree.
    pub const fn count_idle(&self) -> u32 {
        self.idle_turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(calls: u32, successes: u32, what: &str) -> TurnTrace {
        TurnTrace {
            phase: PilotPhase::Execute,
            calls,
            successes,
            calls_digest: Digest::of_bytes(what.as_bytes()),
        }
    }

    fn tree(name: &str) -> Digest {
        Digest::of_bytes(name.as_bytes())
    }

    #[test]
    fn only_a_tree_that_was_never_there_is_progress() {
        let mut window = ProgressWindow::default();
        assert!(window.add_turn(turn(1, 1, "a"), tree("1")));
        assert!(window.add_turn(turn(1, 1, "b"), tree("2")));
        // Back and forth between both.
        for n in 1..=10 {
            assert!(!window.add_turn(turn(1, 1, "c"), tree(if n % 2 == 0 { "2" } else { "1" })));
            assert_eq!(window.count_idle(), n);
        }
        assert!(window.add_turn(turn(1, 1, "d"), tree("3")));
        assert_eq!((window.count_idle(), window.count_repeats()), (0, 1));
    }

    /// The same question for hours: each answer is a success, and shows nothing new.
    #[test]
    fn repeated_calls_are_counted_although_they_succeed() {
        let mut window = ProgressWindow::default();
        for n in 1..=20 {
            window.add_turn(turn(1, 1, "grep"), tree("1"));
            window.add_turn(turn(1, 1, &format!("other {n}")), tree("1"));
            window.add_turn(turn(1, 1, "grep"), tree("1"));
            assert_eq!(window.count_repeats(), 2 * n);
            assert_eq!(window.count_fruitless(), 0);
        }
    }

    #[test]
    fn the_window_is_bounded_and_survives_a_restart() {
        let mut window = ProgressWindow::default();
        for n in 0..1_000 {
            window.add_turn(turn(0, 0, ""), tree(&n.to_string()));
        }
        for _ in 0..1_000 {
            window.add_turn(turn(0, 0, ""), tree("999"));
        }
        assert_eq!((window.turns.len(), window.trees.len()), (MAX_TURNS, MAX_TREES));
        let text = serde_json::to_string(&window).unwrap();
        assert_eq!(serde_json::from_str::<ProgressWindow>(&text).unwrap(), window);
        assert_eq!((window.count_idle(), window.count_silent()), (1_000, 64));
        // A turn of another phase begins a new count, and takes nothing from the idle ones.
        window.add_turn(TurnTrace { phase: PilotPhase::Verify, ..turn(0, 0, "") }, tree("999"));
        assert_eq!((window.count_idle(), window.count_silent()), (1_000, 1));
    }
}
