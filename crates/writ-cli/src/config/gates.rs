//! `[[gates]]`, `[[hooks]]` and `[escalations]`.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Value;
use writ_inspect::gate::{self, GateError, GateSet, Hook, HookConfig, MAX_SCRIPT_BYTES, Program};
use writ_policy::access::Access;

use super::Config;
use super::layer::Finding;
use super::merge::Effective;
use super::policies::read_bounded;

/// The programs of hooks, below the home.
const HOOKS: &str = "hooks";
/// The programs of a project's hooks, below the project.
const PROJECT_HOOKS: &str = ".writ/hooks";
/// The least of an entry of `[[gates]]`.
pub(super) const GATE_NEEDS: &str = "a gate needs at least name, on, provider and what that looks for";
/// The least of an entry of `[[hooks]]`.
pub(super) const HOOK_NEEDS: &str = "a hook needs at least name, on and run";

/// The gates or hooks of a configuration; what cannot be one becomes a finding.
pub(super) fn read_list<T: DeserializeOwned>(
    (section, needs): (&str, &str),
    list: Option<Value>,
    effective: &Effective,
    findings: &mut Vec<Finding>,
) -> Vec<T> {
    let Some(Value::Table(list)) = list else { return Vec::new() };
    let mut found = Vec::new();
    for (n, one) in list {
        let path = vec![section.to_owned(), n];
        match one.try_into::<T>() {
            Ok(one) => found.push(one),
            Err(error) => findings.push(Finding {
                origin: effective.origin_of(&path),
                text: format!("this entry of [[{section}]]: {}", error.message().trim()),
                hint: needs.into(),
            }),
        }
    }
    found
}

impl Config {
    /// Builds the hooks and gates.
    ///
    /// # Errors
    ///
    /// The first invalid one, or a hook of the home with a program that cannot be read.
    pub(crate) fn gate_set(&self) -> Result<GateSet, GateError> {
        let hooks = self.hooks_with(|hook| self.read_program(hook));
        for hook in &hooks {
            // A broken hook of a project must not keep the engine from starting.
            if let (Err(why), None) = (&hook.program, &hook.config.project) {
                return Err(GateError::Program { name: hook.config.name.clone(), why: why.clone() });
            }
        }
        GateSet::with_escalations(self.gates.clone(), &self.escalations)?.with_hooks(hooks)
    }

    /// The hooks with their programs, those included that cannot be called.
    pub(crate) fn build_hooks(&self) -> Vec<Hook> {
        self.hooks_with(|hook| self.read_program(hook))
    }

    fn hooks_with(&self, program: impl Fn(&HookConfig) -> Result<Program, String>) -> Vec<Hook> {
        let ready = |config: &HookConfig| Hook { config: config.clone(), program: program(config) };
        self.hooks.iter().map(ready).collect()
    }

    /// The program of a hook, as it is now.
    fn read_program(&self, hook: &HookConfig) -> Result<Program, String> {
        let folder = match &hook.project {
            Some(project) => Path::new(project).join(PROJECT_HOOKS),
            None => self.home.join(HOOKS),
        };
        let text = read_bounded(&folder.join(&hook.run), MAX_SCRIPT_BYTES)
            .map_err(|error| format!("'{}' cannot be read: {error}", hook.run))?;
        gate::check_program(hook, text)
    }

    /// Puts the shipped gates before the others, where none of these replaces them.
    pub(super) fn add_shipped_gates(&mut self) {
        let shipped = GateSet::shipped_gate();
        if self.general.gates_shipped && !self.gates.iter().any(|gate| gate.name == shipped.name) {
            self.gates.insert(0, shipped);
        }
    }

    pub(super) fn check_gates(&self, findings: &mut Vec<Finding>) {
        // Their programs are read when they are needed.
        let hooks = self.hooks_with(|_| Err(String::new()));
        let gates = GateSet::with_escalations(self.gates.clone(), &self.escalations);
        let error = match gates.and_then(|gates| gates.with_hooks(hooks)) {
            Ok(gates) => {
                if let Err(error) = Access::new(&self.access, &gates) {
                    findings.push(self.finding_of(error.to_string(), "access"));
                }
                return;
            }
            Err(error) => error,
        };
        let section = match error {
            GateError::BadEscalation { .. } => "escalations",
            GateError::Hook { .. } | GateError::Program { .. } => "hooks",
            GateError::TooMany(_)
            | GateError::Name(_)
            | GateError::Empty { .. }
            | GateError::Misplaced { .. }
            | GateError::Pattern { .. }
            | GateError::Range(_)
            | GateError::Check { .. }
            | GateError::Escalation { .. } => "gates",
        };
        findings.push(self.finding_of(error.to_string(), section));
    }
}
