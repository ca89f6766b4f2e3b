//! The settings that apply to each kind of gate: one that would be ignored is refused.

use super::Gate;
use super::config::{
    GateAction, GateConfig, GateError, GateProvider, Lane, MAX_SCRIPT_BYTES, MAX_SCRIPT_MS, Point,
};
use super::escalation::Escalation;

/// Checks the configuration of a gate.
///
/// # Errors
///
/// The first setting that does not apply.
pub(super) fn check_gate(gate: &Gate) -> Result<(), GateError> {
    // The provider first: a setting of another provider explains most of the later findings.
    let found = of_provider(&gate.config)
        .or_else(|| of_point(gate))
        .or_else(|| of_action(gate))
        .or_else(|| of_lane(gate))
        .or_else(|| of_escalation(gate));
    match found {
        None => Ok(()),
        Some((key, why)) => Err(GateError::Misplaced { name: gate.config.name.clone(), key, why }),
    }
}

/// A setting and what is wrong with it.
type Wrong = Option<(&'static str, &'static str)>;

fn of_provider(gate: &GateConfig) -> Wrong {
    let only = |is_set: bool, providers: &[GateProvider], key, why| {
        (is_set && !providers.contains(&gate.provider)).then_some((key, why))
    };
    let predicate = [GateProvider::Predicate];
    let ranges = gate.min.is_some() || gate.max.is_some();
    let files = !gate.below.is_empty() || !gate.extensions.is_empty() || gate.max_bytes.is_some();
    let (script, prompt) = (gate.script.is_some() || gate.timeout_ms.is_some(), gate.prompt.is_some());
    only(!gate.contains.is_empty(), &predicate, "contains", "belongs to provider 'predicate'")
        // One helper, so that each setting names all the providers that it may stand with.
        .or_else(|| only(ranges, &predicate, "min, max", "belong to provider 'predicate'"))
        .or_else(|| only(files, &predicate, "below, extensions, max_bytes", "belong to provider 'predicate'"))
        .or_else(|| {
            let both = [GateProvider::Predicate, GateProvider::Regex];
            only(gate.pattern.is_some(), &both, "pattern", "belongs to provider 'regex' or 'predicate'")
        })
        .or_else(|| {
            only(!gate.checks.is_empty(), &[GateProvider::Guard], "checks", "belongs to provider 'guard'")
        })
        .or_else(|| {
            only(script, &[GateProvider::Script], "script, timeout_ms", "belong to provider 'script'")
        })
        .or_else(|| only(prompt, &[GateProvider::Llm], "prompt", "belongs to provider 'llm'"))
        .or_else(|| {
            let long = gate.script.as_ref().is_some_and(|script| script.len() > MAX_SCRIPT_BYTES);
            long.then_some(("script", "is longer than 16 KiB: have it call a program"))
        })
        .or_else(|| {
            let late = gate.timeout_ms.is_some_and(|ms| !(1..=MAX_SCRIPT_MS).contains(&ms));
            late.then_some(("timeout_ms", "must be from 1 to 60000"))
        })
}

fn of_point(gate: &Gate) -> Wrong {
    let config = &gate.config;
    let on_text = matches!(config.on, Point::Input | Point::Output);
    if on_text && config.field.is_some() {
        return Some(("field", "is a part of an action: use 'execution' or 'access'"));
    }
    if on_text && !config.tools.is_empty() {
        return Some(("tools", "belongs to 'execution' and 'access'"));
    }
    // A model would have to read the arguments of an action, which may be secret.
    if !on_text && config.provider == GateProvider::Llm {
        return Some(("on", "must be 'input' or 'output' for provider 'llm'"));
    }
    gate.checks.iter().find_map(|check| check.misplaced_setting(config.on))
}

fn of_action(gate: &Gate) -> Wrong {
    let config = &gate.config;
    match config.action {
        GateAction::Block => None,
        GateAction::Ask | GateAction::Replace if gate.is_outside() => {
            Some(("action", "is said by a script itself, and by a model never"))
        }
        GateAction::Ask => None,
        GateAction::Replace if !matches!(config.on, Point::Input | Point::Output) => {
            Some(("action", "cannot be 'replace' for an action: what runs is what was decided about"))
        }
        GateAction::Replace if !gate.checks.iter().all(super::check::GateCheck::can_replace) => {
            Some(("action", "cannot be 'replace': what this finds has no place in the text"))
        }
        GateAction::Replace => None,
    }
}

fn of_lane(gate: &Gate) -> Wrong {
    let config = &gate.config;
    // This check is a list of phrases from honest texts, too, so it advises as a model does.
    let lists = config.checks.iter().any(|check| check == "detect_jailbreak");
    if config.provider == GateProvider::Llm && config.lane == Some(Lane::Policy) {
        return Some(("lane", "of a model is 'quality': set promote_to_policy to have it block"));
    }
    if config.promote_to_policy && !(config.provider == GateProvider::Llm || lists) {
        return Some(("promote_to_policy", "belongs to provider 'llm' and to the check 'detect_jailbreak'"));
    }
    if config.promote_to_policy && config.provider != GateProvider::Llm && config.lane == Some(Lane::Quality)
    {
        return Some(("promote_to_policy", "contradicts 'lane'"));
    }
    None
}

fn of_escalation(gate: &Gate) -> Wrong {
    let (config, after) = (&gate.config, gate.after.as_ref()?);
    // A sequel needs a block, which these gates do not give.
    if gate.only_advises() || config.action != GateAction::Block {
        return Some(("on_block", "means nothing for a gate that does not block"));
    }
    match after {
        Escalation::SuppressAndRephrase { .. } if config.on != Point::Output => {
            Some(("on_block", "can be 'suppress_and_rephrase' at 'output' only"))
        }
        Escalation::Retry { .. } if config.on != Point::Output && !gate.is_outside() => Some((
            "on_block",
            "can be 'retry' where doing it again can come out differently: at 'output', \
                               or with a script or a model",
        )),
        Escalation::Respond { .. }
        | Escalation::Report
        | Escalation::EscalateHuman
        | Escalation::TransferToQueue { .. }
        | Escalation::SuppressAndRephrase { .. }
        | Escalation::Retry { .. }
        | Escalation::SpawnTask => None,
    }
}
