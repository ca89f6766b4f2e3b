//! The abilities of this machine: the ladder, as `doctor` and `sandbox status` show it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::RunnerKind;

/// The strength of confinement here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Namespaces of their own, Landlock, seccomp.
    Full,
    /// No user namespaces: Landlock and seccomp alone, no network.
    Reduced,
    /// Nothing is run.
    Refuse,
}

impl Rung {
    /// The name used in records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reduced => "reduced",
            Self::Refuse => "refuse",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The means by which memory and processes are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cgroup {
    /// By control groups, version 2.
    V2,
    /// By control groups, version 1.
    V1,
    /// No control group is delegated: process limits and a watchdog that measures five times a second.
    Watchdog,
}

/// The result of the probe. It is made by running a program with the full recipe, not by asking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// The runner that was asked.
    pub runner: RunnerKind,
    /// The rung on which commands are confined.
    pub rung: Rung,
    /// The weaknesses against the first rung, in words, and their reasons.
    pub reduced: Vec<String>,
    /// Advice to the owner; empty on the first rung.
    pub hints: Vec<String>,
    /// True if user namespaces work.
    pub user_namespaces: bool,
    /// True if an overlay can be mounted; otherwise projects are copied.
    pub overlay: bool,
    /// Version of the Landlock interface; 0: none.
    pub landlock_abi: u32,
    /// True if the two seccomp filters can be installed.
    pub seccomp: bool,
    /// The means by which memory and processes are limited.
    pub cgroup: Cgroup,
    /// The toolchains that are shown inside, by path.
    pub toolchains: Vec<String>,
}
