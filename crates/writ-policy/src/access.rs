//! The access controller: which tools a conversation may use, by the gates that have had nothing to object to it.
//!
//! Levels lie one above the other. Where all gates that the next one wants have passed, the conversation rises to it;
//! when a level's time is over, it falls to [`PUBLIC`]. Nothing that a model says is among what decides. The owner has
//! every tool at any level, as long as nothing external has come into the turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use writ_types::unit::Timestamp;

use crate::principal::Principal;
use writ_inspect::gate::GateSet;

/// The level that every conversation begins with and falls back to.
pub const PUBLIC: &str = "public";
/// The most levels above it.
pub const MAX_LEVELS: usize = 20;
/// The most that is known of a customer, in values.
pub const MAX_CONTEXT: usize = 100;

/// `[access]`: without anything in it, levels decide nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// The tools of level `public`.
    pub public: Vec<String>,
    /// The levels above it, by name.
    pub levels: BTreeMap<String, LevelConfig>,
}

/// `[access.levels.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelConfig {
    /// The rank among the levels: a higher one lies above. No two levels share one.
    pub rank: u32,
    /// The gates that must have passed in this conversation.
    pub requires: Vec<String>,
    /// The tools that it adds to those below it.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Seconds until the level expires.
    pub expires_secs: u64,
}

/// A configuration that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Too many levels.
    #[error("'access.levels' has {0} levels; the limit is {MAX_LEVELS}")]
    TooMany(usize),
    /// A level that cannot be.
    #[error("'access.levels.{level}': {why}")]
    Level {
        /// Its name.
        level: String,
        /// The defect, in words.
        why: &'static str,
    },
    /// A gate that there is not.
    #[error("'access.levels.{level}' requires gate '{gate}', which does not exist")]
    Gate {
        /// The level.
        level: String,
        /// The name of the gate.
        gate: String,
    },
}

/// The level of a conversation, with the gates that have passed in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessState {
    level: String,
    verified: BTreeSet<String>,
    context: BTreeMap<String, String>,
    until: Option<Timestamp>,
}

impl Default for AccessState {
    fn default() -> Self {
        let (verified, context) = (BTreeSet::new(), BTreeMap::new());
        Self { level: PUBLIC.to_owned(), verified, context, until: None }
    }
}

impl AccessState {
    /// The level.
    pub fn level_name(&self) -> &str {
        &self.level
    }

    /// The gates that have passed, of those that levels want.
    pub const fn verified(&self) -> &BTreeSet<String> {
        &self.verified
    }

    /// The values that the harness has about the customer.
    pub const fn customer_context(&self) -> &BTreeMap<String, String> {
        &self.context
    }

    /// The same, with what the harness knows of the customer; more than [`MAX_CONTEXT`] values are left out.
    #[must_use]
    pub fn with_context(mut self, context: BTreeMap<String, String>) -> Self {
        self.context = context.into_iter().take(MAX_CONTEXT).collect();
        self
    }
}

/// A change of level, for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// The gates that led to it, or the expiry.
    pub why: String,
}

#[derive(Clone, Debug)]
struct Level {
    name: String,
    config: LevelConfig,
}

/// The levels in force.
#[derive(Clone, Debug, Default)]
pub struct Access {
    public: BTreeSet<String>,
    /// The lowest first.
    levels: Vec<Level>,
}

impl Access {
    /// Checks a configuration; `None`: levels decide nothing.
    ///
    /// # Errors
    ///
    /// The first level that cannot stand.
    pub fn new(config: &AccessConfig, gates: &GateSet) -> Result<Option<Self>, AccessError> {
        if config.levels.len() > MAX_LEVELS {
            return Err(AccessError::TooMany(config.levels.len()));
        }
        let mut levels = Vec::new();
        let mut ranks = BTreeSet::new();
        for (name, level) in &config.levels {
            let bad = |why| Err(AccessError::Level { level: name.clone(), why });
            if name == PUBLIC {
                // The tools of `public` are configured in their own place, and a second one would leave open
                // which counts.
                return bad("the level 'public' is there, with the tools of 'access.public'");
            }
            if level.requires.is_empty() {
                return bad("'requires' names no gate: every conversation would have it");
            }
            if level.expires_secs == 0 {
                return bad("'expires_secs' must be at least 1");
            }
            // With equal ranks the order of the levels would be that of their names.
            if !ranks.insert(level.rank) {
                return bad("another level has this 'rank'");
            }
            if let Some(gate) = level.requires.iter().find(|gate| !gates.has_gate(gate)) {
                return Err(AccessError::Gate { level: name.clone(), gate: gate.clone() });
            }
            // A level must not be reached by the agent's own words, nor by the opinion of a model.
            if !level.requires.iter().all(|gate| gates.hears_people(gate)) {
                return bad("'requires' names a gate that judges the agent, or that is a model's judgement");
            }
            levels.push(Level { name: name.clone(), config: level.clone() });
        }
        levels.sort_by_key(|level| level.config.rank);
        let access = Self { public: config.public.iter().cloned().collect(), levels };
        // An empty section changes nothing, so that a home without levels needs none.
        Ok((!access.public.is_empty() || !access.levels.is_empty()).then_some(access))
    }

    /// Falls to `public` where the level's time is over.
    pub fn expire_level(&self, state: &mut AccessState, now: Timestamp) -> Option<Transition> {
        // A level that the configuration no longer has is over, too.
        let known = self.rank_of(state).is_some() || state.level == PUBLIC;
        if known && state.until.is_none_or(|until| now < until) {
            return None;
        }
        let from = std::mem::replace(&mut state.level, PUBLIC.to_owned());
        // The gates count anew, or the old ones would lift the conversation again at once.
        (state.verified, state.until) = (BTreeSet::new(), None);
        Some(Transition { from, to: PUBLIC.to_owned(), why: "its time is over".to_owned() })
    }

    /// Gates have passed: rises as far as they reach, one level after the other.
    pub fn raise_level<'a>(
        &self,
        state: &mut AccessState,
        gates: impl IntoIterator<Item = &'a str>,
        now: Timestamp,
    ) -> Vec<Transition> {
        // First the expiry: gates that passed under an old level do not count for a new one.
        let mut transitions: Vec<Transition> = self.expire_level(state, now).into_iter().collect();
        let wanted =
            |gate: &str| self.levels.iter().any(|level| level.config.requires.iter().any(|g| g == gate));
        state.verified.extend(gates.into_iter().filter(|gate| wanted(gate)).map(str::to_owned));
        let mut next = self.rank_of(state).map_or(0, |place| place + 1);
        while let Some(level) = self.levels.get(next) {
            // A level above is reached through the one below it alone.
            if !level.config.requires.iter().all(|gate| state.verified.contains(gate)) {
                break;
            }
            let from = std::mem::replace(&mut state.level, level.name.clone());
            state.until = Some(now.plus_duration(Duration::from_secs(level.config.expires_secs)));
            let why = format!("passed: {}", level.config.requires.join(", "));
            transitions.push(Transition { from, to: level.name.clone(), why });
            next += 1;
        }
        transitions
    }

    /// Returns true if a turn may use a tool. `external`: something external has come into it.
    pub fn allows_tool(&self, state: &AccessState, who: &Principal, external: bool, tool: &str) -> bool {
        // After external content the owner's turn may act for someone else, so the levels hold.
        let bypass = match who {
            Principal::Owner => !external,
            Principal::Member(_)
            | Principal::Approver(_)
            | Principal::Viewer(_)
            | Principal::Guest { .. }
            | Principal::Harness { .. } => false,
        };
        bypass || self.tools_at(state).contains(tool)
    }

    /// The tools of a conversation's level.
    pub fn tools_at<'a>(&'a self, state: &AccessState) -> BTreeSet<&'a str> {
        let reached = self.rank_of(state).map_or(0, |place| place + 1);
        let above = self.levels.iter().take(reached).flat_map(|level| &level.config.tools);
        self.public.iter().chain(above).map(String::as_str).collect()
    }

    fn rank_of(&self, state: &AccessState) -> Option<usize> {
        self.levels.iter().position(|level| level.name == state.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use writ_inspect::gate::{GateConfig, GateSet};

    fn level(rank: u32, requires: &[&str], tools: &[&str]) -> LevelConfig {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        LevelConfig { rank, requires: list(requires), tools: list(tools), expires_secs: 60 }
    }

    fn gates() -> GateSet {
        let gate = |name: &str| GateConfig { name: name.into(), ..GateSet::shipped_gate() };
        GateSet::new(["id", "code", "extra"].map(gate).into()).expect("valid")
    }

    fn config() -> AccessConfig {
        AccessConfig {
            public: vec!["memory_search".into()],
            levels: BTreeMap::from([
                ("verified".to_owned(), level(1, &["id", "code"], &["orders"])),
                ("full".to_owned(), level(2, &["extra"], &["refund"])),
            ]),
        }
    }

    fn access() -> Access {
        Access::new(&config(), &gates()).expect("valid").expect("in force")
    }

    const fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    fn guest() -> Principal {
        Principal::Guest { case: "c".into() }
    }

    /// Rows: SIL-274 SIL-276 (in part: the levels themselves)
    #[test]
    fn a_level_is_reached_with_all_its_gates_and_not_before() {
        let (access, fresh) = (access(), AccessState::default());
        assert_eq!(
            (fresh.level_name(), fresh.verified().len(), fresh.customer_context().len()),
            (PUBLIC, 0, 0)
        );
        let told = BTreeMap::from([("name".to_owned(), "Ada".to_owned())]);
        let mut state = fresh.with_context(told.clone());
        let verified =
            |state: &AccessState| state.verified().iter().cloned().collect::<Vec<String>>().join(" ");
        assert_eq!(access.raise_level(&mut state, ["id", "drop-table"], at(0)), []);
        assert_eq!(
            (state.level_name(), verified(&state).as_str()),
            (PUBLIC, "id"),
            "one of two, and one that nobody wants"
        );
        let risen = access.raise_level(&mut state, ["code"], at(1));
        assert_eq!(
            risen.iter().map(|t| (t.from.as_str(), t.to.as_str())).collect::<Vec<_>>(),
            [(PUBLIC, "verified")]
        );
        assert_eq!((state.level_name(), verified(&state).as_str()), ("verified", "code id"));
        assert_eq!(access.tools_at(&state), BTreeSet::from(["memory_search", "orders"]));
        assert_eq!(access.raise_level(&mut state, ["extra"], at(2)).len(), 1);
        assert_eq!((state.level_name(), verified(&state).as_str()), ("full", "code extra id"));
        assert_eq!(access.tools_at(&state), BTreeSet::from(["memory_search", "orders", "refund"]));
        assert_eq!(state.customer_context(), &told, "rising changes nothing of what is known");
        assert!(access.expire_level(&mut state, at(62)).is_some());
        assert_eq!((state.level_name(), verified(&state).as_str()), (PUBLIC, ""));
        assert_eq!(state.customer_context(), &told, "nor does falling");
        // A higher level's gates alone do not lead past the one below it.
        assert_eq!(access.raise_level(&mut AccessState::default(), ["extra"], at(0)), []);
    }

    /// Rows: SIL-277 (in part: the level and its tools)
    #[test]
    fn what_has_expired_is_public_and_its_gates_must_pass_again() {
        let (access, mut state) = (access(), AccessState::default());
        access.raise_level(&mut state, ["id", "code"], at(0));
        assert_eq!(access.expire_level(&mut state, at(59)), None);
        let fallen = access.expire_level(&mut state, at(60)).expect("over");
        assert_eq!((fallen.from.as_str(), fallen.to.as_str()), ("verified", PUBLIC));
        assert_eq!(access.tools_at(&state), BTreeSet::from(["memory_search"]));
        assert!(state.verified().is_empty());
        assert_eq!(access.expire_level(&mut state, at(600)), None, "once");
        assert_eq!(access.raise_level(&mut state, ["code"], at(61)), []);
    }

    /// Rows: SIL-275 (in part: who may what) SIL-273 (in part: the same gates, the same level)
    #[test]
    fn the_owner_passes_by_levels_unless_something_external_came_in() {
        let (access, state) = (access(), AccessState::default());
        for (who, external, expected) in [
            (Principal::Owner, false, true),
            (Principal::Owner, true, false),
            (guest(), false, false),
            (Principal::Member("m".into()), false, false),
            (Principal::Harness { order: "o".into() }, false, false),
        ] {
            assert_eq!(access.allows_tool(&state, &who, external, "refund"), expected, "{who} {external}");
            assert!(access.allows_tool(&state, &who, external, "memory_search"), "{who} {external}");
        }
        for _ in 0..100 {
            let mut again = AccessState::default();
            access.raise_level(&mut again, ["id", "code"], at(5));
            assert_eq!(again.level_name(), "verified");
            assert!(!access.allows_tool(&again, &guest(), false, "refund"));
        }
    }

    #[test]
    fn levels_that_cannot_stand_are_refused() {
        let with = |name: &str, level: LevelConfig| {
            let mut config = config();
            config.levels.insert(name.to_owned(), level);
            Access::new(&config, &gates())
        };
        assert!(matches!(with("public", level(3, &["id"], &[])), Err(AccessError::Level { .. })));
        assert!(matches!(with("x", level(3, &[], &[])), Err(AccessError::Level { .. })));
        assert!(matches!(with("x", level(2, &["id"], &[])), Err(AccessError::Level { .. })));
        assert!(matches!(
            with("x", LevelConfig { expires_secs: 0, ..level(3, &["id"], &[]) }),
            Err(AccessError::Level { .. })
        ));
        assert!(matches!(with("x", level(3, &["nobody"], &[])), Err(AccessError::Gate { .. })));
        let many = AccessConfig {
            levels: (0..=20).map(|n| (format!("l{n}"), level(n, &["id"], &[]))).collect(),
            ..AccessConfig::default()
        };
        assert!(matches!(Access::new(&many, &gates()), Err(AccessError::TooMany(_))));
        assert!(
            Access::new(&AccessConfig::default(), &gates()).expect("valid").is_none(),
            "nothing is in force"
        );
    }
}
