//! Results of gates: what a script's end, its output and the reports of test runners show.

use serde::{Deserialize, Serialize};

/// The verdict of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptVerdict {
    /// It ran and passed.
    Pass,
    /// It ran and failed: another try may help.
    Fail,
    /// No further try: the unit is reassessed.
    Block,
    /// The script says that it does not apply. Alone it proves nothing.
    Skip,
    /// Nothing was proven: the script did not run, or ran no test. Never a pass.
    NotRun,
}
