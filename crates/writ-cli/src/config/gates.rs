//! `[[gates]]` and `[escalations]`.

use toml::Value;
use writ_policy::access::Access;
use writ_policy::gate::{GateConfig, GateError, GateSet};

use super::Config;
use super::layer::Finding;
use super::merge::Effective;

/// The gates of a configuration; what cannot be one becomes a finding.
pub(super) fn read(
    list: Option<Value>,
    effective: &Effective,
    findings: &mut Vec<Finding>,
) -> Vec<GateConfig> {
    let Some(Value::Table(list)) = list else { return Vec::new() };
    let mut gates = Vec::new();
    for (n, gate) in list {
        let path = vec!["gates".to_owned(), n];
        match gate.try_into::<GateConfig>() {
            Ok(gate) => gates.push(gate),
            Err(error) => findings.push(Finding {
                origin: effective.blame(&path),
                text: format!("this gate: {}", error.message().trim()),
                hint: "a gate needs at least name, on, provider and what that looks for".into(),
            }),
        }
    }
    gates
}

impl Config {
    /// The gates, made ready.
    ///
    /// # Errors
    ///
    /// The first that cannot stand.
    pub(crate) fn gate_set(&self) -> Result<GateSet, GateError> {
        GateSet::with(self.gates.clone(), &self.escalations)
    }

    /// Puts the shipped gates before the others, where none of these replaces them.
    pub(super) fn add_shipped_gates(&mut self) {
        let shipped = GateSet::shipped();
        if self.general.gates_shipped && !self.gates.iter().any(|gate| gate.name == shipped.name) {
            self.gates.insert(0, shipped);
        }
    }

    pub(super) fn check_gates(&self, findings: &mut Vec<Finding>) {
        let error = match self.gate_set() {
            Ok(gates) => {
                if let Err(error) = Access::new(&self.access, &gates) {
                    findings.push(self.blamed(error.to_string(), "access"));
                }
                return;
            }
            Err(error) => error,
        };
        let section = match error {
            GateError::BadEscalation { .. } => "escalations",
            GateError::TooMany(_)
            | GateError::Name(_)
            | GateError::Empty { .. }
            | GateError::Misplaced { .. }
            | GateError::Pattern { .. }
            | GateError::Range(_)
            | GateError::Check { .. }
            | GateError::Escalation { .. } => "gates",
        };
        findings.push(self.blamed(error.to_string(), section));
    }
}
