//! An attempt at a unit: its stages, its turns, its end.

use serde::{Deserialize, Serialize};

/// The most characters at the end of a reply in which a marker is looked for (SF 5.4.1).
pub const MARKER_CHARS: usize = 200;

/// A stage of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStage {
    /// The folder of the work is made or found.
    PreparingWorkspace,
    /// The text of the next turn is rendered.
    BuildingPrompt,
    /// The agent's program is started.
    LaunchingAgent,
    /// Its session is opened.
    InitializingSession,
    /// A turn is under way.
    StreamingTurn,
    /// The session is closed, and the hooks after it run.
    Finishing,
    /// Ended without a failure.
    Succeeded,
    /// Ended by a failure.
    Failed,
    /// Ended because its time was over.
    TimedOut,
    /// Ended because nothing came from the agent for too long.
    Stalled,
    /// Ended from outside; never tried again.
    Canceled,
}

impl AttemptStage {
    /// Every stage.
    pub const ALL: [Self; 11] = [
        Self::PreparingWorkspace,
        Self::BuildingPrompt,
        Self::LaunchingAgent,
        Self::InitializingSession,
        Self::StreamingTurn,
        Self::Finishing,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Stalled,
        Self::Canceled,
    ];

    /// Returns true for the five ends.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::TimedOut | Self::Stalled | Self::Canceled)
    }

    /// Returns true if an attempt can go from this stage to another.
    pub const fn can_become(self, next: Self) -> bool {
        let is_step = matches!(
            (self, next),
            (Self::PreparingWorkspace, Self::BuildingPrompt)
                // The first turn opens the session, later ones use it.
                | (Self::BuildingPrompt, Self::LaunchingAgent | Self::StreamingTurn)
                | (Self::LaunchingAgent, Self::InitializingSession)
                | (Self::InitializingSession, Self::StreamingTurn)
                | (Self::StreamingTurn, Self::BuildingPrompt | Self::Finishing)
                | (Self::Finishing, Self::Succeeded)
        );
        let is_bad_end = next.is_end() && !matches!(next, Self::Succeeded);
        is_step || (is_bad_end && !self.is_end())
    }
}

/// The recorded end of an attempt (SF 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    /// Ended cleanly. Nothing is proven by it: the conditions of the phase decide.
    Success,
    /// Ended by a failure.
    Failure,
    /// The unit was given up.
    Abandoned,
    /// Ended from outside; never tried again.
    Canceled,
    /// Ended by a crash, a loss of the claim, or a state that no worker expects.
    Interrupted,
    /// The time of the unit was over.
    UnitTimeout,
    /// The time of a turn was over.
    TurnTimeout,
    /// Nothing came from the agent for too long.
    Stalled,
}

impl RunEnd {
    /// Every end.
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Failure,
        Self::Abandoned,
        Self::Canceled,
        Self::Interrupted,
        Self::UnitTimeout,
        Self::TurnTimeout,
        Self::Stalled,
    ];

    /// Returns true if the attempt counts as a failure that is tried again after a pause.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failure | Self::UnitTimeout | Self::TurnTimeout | Self::Stalled)
    }

    /// Returns the end that belongs to the last stage of an attempt; `None` while it is under way.
    pub const fn of_stage(stage: AttemptStage, is_turn: bool) -> Option<Self> {
        match stage {
            AttemptStage::Succeeded => Some(Self::Success),
            AttemptStage::Failed => Some(Self::Failure),
            AttemptStage::TimedOut if is_turn => Some(Self::TurnTimeout),
            AttemptStage::TimedOut => Some(Self::UnitTimeout),
            AttemptStage::Stalled => Some(Self::Stalled),
            AttemptStage::Canceled => Some(Self::Canceled),
            AttemptStage::PreparingWorkspace
            | AttemptStage::BuildingPrompt
            | AttemptStage::LaunchingAgent
            | AttemptStage::InitializingSession
            | AttemptStage::StreamingTurn
            | AttemptStage::Finishing => None,
        }
    }
}

/// The kind of a turn. Its number alone decides, never the model (SF 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// The first of an attempt: the whole task.
    First,
    /// A later one: a short text that steers.
    Continuation,
}

impl TurnKind {
    /// Returns the kind of the turn with this number, counted from one in each attempt.
    pub const fn of_turn(number: u32) -> Self {
        if number <= 1 { Self::First } else { Self::Continuation }
    }
}

/// A worker's own word about its turn, at the end of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnMarker {
    /// It takes the work of this phase for done. The harness checks.
    Complete,
    /// It needs a person.
    Blocked,
    /// It cannot do it.
    GivingUp,
}

impl TurnMarker {
    /// Every marker.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Blocked, Self::GivingUp];

    /// Returns its name: the word within its text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Blocked => "blocked",
            Self::GivingUp => "giving_up",
        }
    }

    /// Returns its text in a reply.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Complete => "<turn_status>complete</turn_status>",
            Self::Blocked => "<turn_status>blocked</turn_status>",
            Self::GivingUp => "<turn_status>giving_up</turn_status>",
        }
    }

    /// Finds the marker in the last [`MARKER_CHARS`] characters of a worker's reply; the last one, if there are several.
    pub fn find_in(reply: &str) -> Option<Self> {
        // Walked from the end: a reply may have megabytes.
        let start = reply.char_indices().rev().nth(MARKER_CHARS - 1).map_or(0, |(at, _)| at);
        let tail = reply.get(start..)?;
        // A worker that corrects itself means its last word.
        let placed = Self::ALL.into_iter().filter_map(|marker| Some((tail.rfind(marker.text())?, marker)));
        placed.max_by_key(|(at, _)| *at).map(|(_, marker)| marker)
    }
}

/// Returns true if a reply without a marker ends with a question, which no person answers while the autopilot works.
pub fn asks_person(reply: &str) -> bool {
    TurnMarker::find_in(reply).is_none() && reply.trim_end().ends_with(['?', '？', '؟'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use AttemptStage as Is;

    /// Rows: SF-072
    #[test]
    fn an_attempt_has_eleven_stages_in_order_and_no_way_out_of_an_end() {
        let path = [
            Is::PreparingWorkspace,
            Is::BuildingPrompt,
            Is::LaunchingAgent,
            Is::InitializingSession,
            Is::StreamingTurn,
            Is::BuildingPrompt,
            Is::StreamingTurn,
            Is::Finishing,
            Is::Succeeded,
        ];
        assert!(path.windows(2).all(|pair| pair[0].can_become(pair[1])));
        assert_eq!(Is::ALL.len(), 11);
        let mut possible = 0;
        for from in Is::ALL {
            for to in Is::ALL {
                let is_possible = from.can_become(to);
                assert!(!(from.is_end() && is_possible), "{from:?} {to:?}");
                // Every stage before the end can fail; only the last one can succeed.
                if !from.is_end() && to.is_end() {
                    assert_eq!(is_possible, to != Is::Succeeded || from == Is::Finishing, "{from:?} {to:?}");
                }
                possible += u32::from(is_possible);
            }
        }
        // Six stages with four bad ends each, seven steps of the path, and success.
        assert_eq!(possible, 24 + 7 + 1);
        for stage in Is::ALL {
            assert_eq!(RunEnd::of_stage(stage, false).is_some(), stage.is_end());
        }
        assert_eq!(RunEnd::of_stage(Is::TimedOut, true), Some(RunEnd::TurnTimeout));
    }

    #[test]
    fn a_question_counts_at_the_end_of_a_reply_alone() {
        for asks in ["Which one?", "Done.\nIs that right?  \n", "どれ？"] {
            assert!(asks_person(asks), "{asks}");
        }
        let marked = format!("Is that right?\n{}", TurnMarker::Blocked.text());
        for said in ["", "?!", "Why? It was wrong.", marked.as_str()] {
            assert!(!asks_person(said), "{said}");
        }
    }

    #[test]
    fn only_ends_that_another_try_can_mend_count_as_failures() {
        let counted: Vec<RunEnd> = RunEnd::ALL.into_iter().filter(|end| end.is_failure()).collect();
        assert_eq!(counted, [RunEnd::Failure, RunEnd::UnitTimeout, RunEnd::TurnTimeout, RunEnd::Stalled]);
    }

    /// Rows: SF-075 (the choice; the prompts need the shell)
    #[test]
    fn the_number_of_a_turn_alone_gives_its_kind() {
        let kinds: Vec<TurnKind> = (1..=3).map(TurnKind::of_turn).collect();
        assert_eq!(kinds, [TurnKind::First, TurnKind::Continuation, TurnKind::Continuation]);
    }

    /// Rows: SF-140 SF-144 (what is read; the next turn needs the shell)
    #[test]
    fn a_marker_counts_only_at_the_end_of_a_reply_and_only_as_it_is_written() {
        for marker in TurnMarker::ALL {
            assert_eq!(TurnMarker::find_in(&format!("done\n{}", marker.text())), Some(marker));
            assert_eq!(marker.text(), format!("<turn_status>{}</turn_status>", marker.name()));
            // As far from the end as it may be, in characters of several bytes; and one farther.
            let room = MARKER_CHARS - marker.text().chars().count();
            let reply = |after: usize| format!("{}{}{}", "é".repeat(300), marker.text(), "語".repeat(after));
            assert_eq!(TurnMarker::find_in(&reply(room)), Some(marker));
            assert_eq!(TurnMarker::find_in(&reply(room + 1)), None);
        }
        let twice = format!("{} … {}", TurnMarker::Complete.text(), TurnMarker::Blocked.text());
        assert_eq!(TurnMarker::find_in(&twice), Some(TurnMarker::Blocked), "the last word counts");
        for text in [
            "",
            "done",
            "<turn_status>Complete</turn_status>",
            "<turn_status> complete </turn_status>",
            "<turn_status>complete",
            "<turn_status>done</turn_status>",
            "turn_status: complete",
        ] {
            assert_eq!(TurnMarker::find_in(text), None, "{text}");
        }
    }
}
