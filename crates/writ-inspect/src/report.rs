//! Reports of this crate's errors: exit codes, stable codes, and the text for those outside.

use writ_types::error::{Exit, Report, ToReport};

use crate::gate::GateError;
use crate::show::Unshowable;

impl ToReport for GateError {
    fn report(&self) -> Report {
        let code = match self {
            Self::TooMany(_) => "gate.too_many",
            Self::Name(_) => "gate.name",
            Self::Empty { .. } => "gate.empty",
            Self::Misplaced { .. } => "gate.misplaced",
            Self::Pattern { .. } => "gate.pattern",
            Self::Range(_) => "gate.range",
            Self::Check { .. } => "gate.check",
            Self::Escalation { .. } => "gate.escalation",
            Self::BadEscalation { .. } => "gate.bad_escalation",
            Self::Hook { .. } => "hook.misplaced",
            Self::Program { .. } => "hook.program",
        };
        Report::new(Exit::Config, code, self.to_string())
            .with_hint("Correct [[gates]], [[hooks]] or [escalations] in the configuration.")
    }
}

impl ToReport for Unshowable {
    fn report(&self) -> Report {
        Report::new(Exit::Denied, "approval.unshowable", self.to_string())
            .with_hint("Divide it into smaller steps.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_end_commands_with_the_documented_codes() {
        let reports = [
            (GateError::Empty { name: "g".into(), needs: "x" }.report(), Exit::Config, "gate.empty"),
            (Unshowable { bytes: 1 }.report(), Exit::Denied, "approval.unshowable"),
        ];
        for (report, exit, code) in reports {
            assert_eq!((report.exit, report.code.as_str()), (exit, code));
            assert!(!report.outside.is_empty());
        }
    }
}
