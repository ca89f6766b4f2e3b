//! Hierarchical ids of units: `milestone/m1`, `slice/m1/s2`, `task/m1/s2/t3`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest number in an id: seven digits are enough for any plan, and keep names of folders short.
const MAX_NUMBER: u32 = 9_999_999;

/// The type of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitType {
    /// A goal, reached by slices.
    Milestone,
    /// A part of a milestone that is merged as a whole: it has a branch of its own.
    Slice,
    /// A piece of work of a slice, for one worker.
    Task,
}

impl UnitType {
    /// Every type, from the outermost on.
    pub const ALL: [Self; 3] = [Self::Milestone, Self::Slice, Self::Task];

    /// Returns its name in ids and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Milestone => "milestone",
            Self::Slice => "slice",
            Self::Task => "task",
        }
    }
}

/// The id of a unit. It is the key of its row, and says where the unit belongs (first resolution).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UnitId {
    /// `milestone/m1`
    Milestone(u32),
    /// `slice/m1/s2`
    Slice(u32, u32),
    /// `task/m1/s2/t3`
    Task(u32, u32, u32),
}

/// Text that is no id of a unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no unit: ids are milestone/m1, slice/m1/s2 and task/m1/s2/t3")]
pub struct InvalidUnitId(pub String);

impl UnitId {
    /// Returns the id of a task without a slice, for work that was asked for directly.
    pub const fn of_ad_hoc(number: u32) -> Self {
        Self::Task(0, 0, number)
    }

    /// Returns its type.
    pub const fn unit_type(self) -> UnitType {
        match self {
            Self::Milestone(_) => UnitType::Milestone,
            Self::Slice(..) => UnitType::Slice,
            Self::Task(..) => UnitType::Task,
        }
    }

    /// Returns the unit that it belongs to; `None` for a milestone and for a task without a slice.
    pub const fn parent(self) -> Option<Self> {
        match self {
            Self::Milestone(_) | Self::Task(0, 0, _) => None,
            Self::Slice(milestone, _) => Some(Self::Milestone(milestone)),
            Self::Task(milestone, slice, _) => Some(Self::Slice(milestone, slice)),
        }
    }

    /// Returns the unit above all that it belongs to, which has the plan: its milestone, or itself where it was asked for directly.
    pub const fn root(self) -> Self {
        match self {
            Self::Milestone(_) | Self::Task(0, 0, _) => self,
            Self::Slice(milestone, _) | Self::Task(milestone, ..) => Self::Milestone(milestone),
        }
    }

    /// Returns true for a task without a slice.
    pub const fn is_ad_hoc(self) -> bool {
        matches!(self, Self::Task(0, 0, _))
    }

    /// Returns the id of a child with this number; `None` for a task, which has no children.
    pub const fn child(self, number: u32) -> Option<Self> {
        match self {
            Self::Milestone(milestone) => Some(Self::Slice(milestone, number)),
            Self::Slice(milestone, slice) => Some(Self::Task(milestone, slice, number)),
            Self::Task(..) => None,
        }
    }

    /// Returns its last number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Milestone(number) | Self::Slice(_, number) | Self::Task(_, _, number) => number,
        }
    }

    /// Returns true if this unit is `other`, or a part of it.
    pub fn is_within(self, other: Self) -> bool {
        let parent = self.parent();
        let grandparent = parent.and_then(Self::parent);
        self == other || parent == Some(other) || grandparent == Some(other)
    }

    /// Compares the texts of two ids by code unit (SF 5.2): `t10` comes before `t2`.
    pub fn cmp_text(self, other: Self) -> Ordering {
        let key = |id: Self| {
            let numbers = match id {
                Self::Milestone(milestone) => [milestone, 0, 0],
                Self::Slice(milestone, slice) => [milestone, slice, 0],
                Self::Task(milestone, slice, task) => [milestone, slice, task],
            };
            // Where one number is the beginning of another, what follows it (`/` or nothing) is below every digit.
            (id.unit_type(), numbers.map(left_aligned))
        };
        key(self).cmp(&key(other))
    }

    /// Returns its name as a folder. Each id has another one, since ids have no other characters than these.
    pub fn folder_name(self) -> String {
        self.to_string().replace('/', "_")
    }

    /// Reads the short form that `code_depends_on` has: `m1/s2` (SF 12.3).
    pub fn parse_slice(text: &str) -> Option<Self> {
        let (milestone, slice) = text.split_once('/')?;
        Some(Self::Slice(read_number(milestone, 'm')?, read_number(slice, 's')?))
    }
}

/// Returns the digits of a number and their count, in an order that is that of its text.
const fn left_aligned(number: u32) -> (u64, u32) {
    let digits = if number == 0 { 1 } else { number.ilog10() + 1 };
    // Ten digits hold every number of 32 bits.
    (number as u64 * 10_u64.pow(10 - digits), digits)
}

/// Reads a letter and a number without leading zeros, so that one unit has one id.
fn read_number(part: &str, letter: char) -> Option<u32> {
    let digits = part.strip_prefix(letter)?;
    let is_plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    // Seven digits at most, so the number always fits.
    let number = if is_plain && digits.len() <= 7 { digits.parse().ok()? } else { return None };
    (number <= MAX_NUMBER).then_some(number)
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Milestone(milestone) => write!(f, "milestone/m{milestone}"),
            Self::Slice(milestone, slice) => write!(f, "slice/m{milestone}/s{slice}"),
            Self::Task(milestone, slice, task) => write!(f, "task/m{milestone}/s{slice}/t{task}"),
        }
    }
}

impl FromStr for UnitId {
    type Err = InvalidUnitId;

    fn from_str(text: &str) -> Result<Self, InvalidUnitId> {
        let parts: Vec<&str> = text.split('/').take(5).collect();
        let found = match parts.as_slice() {
            ["milestone", milestone] => read_number(milestone, 'm').map(Self::Milestone),
            ["slice", milestone, slice] => {
                read_number(milestone, 'm').zip(read_number(slice, 's')).map(|(m, s)| Self::Slice(m, s))
            }
            ["task", milestone, slice, task] => {
                let slice = read_number(milestone, 'm').zip(read_number(slice, 's'));
                slice.zip(read_number(task, 't')).map(|((m, s), t)| Self::Task(m, s, t))
            }
            _ => None,
        };
        found.ok_or_else(|| InvalidUnitId(text.chars().take(60).collect()))
    }
}

impl TryFrom<String> for UnitId {
    type Error = InvalidUnitId;

    fn try_from(text: String) -> Result<Self, InvalidUnitId> {
        text.parse()
    }
}

impl From<UnitId> for String {
    fn from(id: UnitId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Rows: SF-019 (the three patterns, and the parent that an id names)
    #[test]
    fn ids_have_three_patterns_and_name_their_parent() {
        for (text, parent, kind) in [
            ("milestone/m1", None, UnitType::Milestone),
            ("slice/m1/s2", Some("milestone/m1"), UnitType::Slice),
            ("task/m1/s2/t3", Some("slice/m1/s2"), UnitType::Task),
            ("task/m0/s0/t7", None, UnitType::Task),
        ] {
            let id: UnitId = text.parse().unwrap();
            assert_eq!((id.to_string().as_str(), id.unit_type()), (text, kind));
            assert_eq!(id.parent().map(|parent| parent.to_string()).as_deref(), parent);
        }
        for text in [
            "",
            "m1",
            "milestone/1",
            "milestone/m",
            "milestone/m01",
            "milestone/m1/s1",
            "slice/m1",
            "slice/m1/t1",
            "task/m1/s2",
            "task/m1/s2/t3/x",
            "task/m1/s2/t-3",
            "task/m1/s2/t3 ",
            "Task/m1/s2/t3",
            "task/../s2/t3",
            "task/m1/s2/t99999999",
            "epic/m1",
            "task/m1/s2/t3\0",
            "task/m1/s2/t٣",
        ] {
            assert!(text.parse::<UnitId>().is_err(), "{text}");
        }
        let deep: UnitId = "task/m1/s2/t3".parse().unwrap();
        assert_eq!(deep.child(1), None, "a task has no parts");
        assert_eq!(UnitId::of_ad_hoc(7), UnitId::Task(0, 0, 7));
        assert!(deep.is_within(UnitId::Milestone(1)) && !deep.is_within(UnitId::Slice(1, 3)));
        assert_eq!(UnitId::parse_slice("m1/s2"), Some(UnitId::Slice(1, 2)));
        assert_eq!(UnitId::parse_slice("slice/m1/s2"), None);
        // By code unit: `t10` comes before `t2`.
        assert_eq!(UnitId::Task(1, 1, 10).cmp_text(UnitId::Task(1, 1, 2)), Ordering::Less);
    }

    /// Rows: SF-220 (the names of units; other texts are no ids)
    #[test]
    fn folders_have_a_name_for_each_id() {
        assert_eq!(UnitId::Task(1, 2, 3).folder_name(), "task_m1_s2_t3");
        let numbers = [0, 1, 2, 11, 12, 112];
        let all = numbers
            .iter()
            .flat_map(|a| numbers.iter().flat_map(move |b| numbers.map(|c| UnitId::Task(*a, *b, c))));
        let names: BTreeSet<String> = all.map(UnitId::folder_name).collect();
        assert_eq!(names.len(), 6 * 6 * 6);
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The order that `cmp_text` computes from numbers is that of the texts.
        #[test]
        fn ids_are_ordered_as_their_texts(
            kinds in (0..3_u8, 0..3_u8),
            a in prop::array::uniform3(prop_oneof![0..30_u32, 0..2_000_000_u32]),
            b in prop::array::uniform3(prop_oneof![0..30_u32, 0..2_000_000_u32]),
        ) {
            let make = |kind: u8, [x, y, z]: [u32; 3]| match kind {
                0 => UnitId::Milestone(x),
                1 => UnitId::Slice(x, y),
                _ => UnitId::Task(x, y, z),
            };
            let (a, b) = (make(kinds.0, a), make(kinds.1, b));
            prop_assert_eq!(a.cmp_text(b), a.to_string().cmp(&b.to_string()));
        }

        /// Reading never panics, and what is read is written as it was.
        #[test]
        fn what_is_read_is_written_the_same(text in "\\PC{0,30}|(task|slice|milestone)(/[mst][0-9]{1,8}){1,3}") {
            if let Ok(id) = text.parse::<UnitId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
