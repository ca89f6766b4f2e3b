//! The kinds of turns.

/// The task that a message gives the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A short answer.
    Talk,
    /// An answer that takes a while.
    Slow,
    /// An answer that takes a while, and that a client stops.
    Cancel,
    /// An answer of twenty thousand characters.
    Long,
    /// A command in the sandbox.
    Command,
    /// A command that needs an approval.
    Ask,
    /// A memory.
    Memory,
    /// A file.
    Write,
}

/// Twenty messages by their kind: most people mostly talk.
const MIX: [Kind; 20] = [
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Talk,
    Kind::Slow,
    Kind::Slow,
    Kind::Cancel,
    Kind::Long,
    Kind::Command,
    Kind::Command,
    Kind::Ask,
    Kind::Ask,
    Kind::Memory,
    Kind::Memory,
    Kind::Write,
    Kind::Write,
];

impl Kind {
    /// Every kind, for the figures.
    pub(super) const ALL: [Self; 8] = [
        Self::Talk,
        Self::Slow,
        Self::Cancel,
        Self::Long,
        Self::Command,
        Self::Ask,
        Self::Memory,
        Self::Write,
    ];

    /// One of the mix, by any number.
    pub(super) fn of(number: u64) -> Self {
        let index = usize::try_from(number).unwrap_or_default() % MIX.len();
        MIX.get(index).copied().unwrap_or(Self::Talk)
    }

    /// Its word in a message.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Talk => "talk",
            Self::Slow => "slow",
            Self::Cancel => "cancel",
            Self::Long => "long",
            Self::Command => "command",
            Self::Ask => "ask",
            Self::Memory => "memory",
            Self::Write => "write",
        }
    }
}
