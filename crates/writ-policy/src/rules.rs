//! Rules: Cedar policies over every action, with questions written as `@ask("reason") forbid`. Beside `@ask`,
//! `@risk("high")` raises what it takes to say yes; it never lowers it.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use cedar_policy::{
    Authorizer, Context, Decision, Effect, EntityId, EntityTypeName, EntityUid, PolicyId, PolicySet, Request,
    RestrictedExpression, Schema, ValidationMode, Validator,
};
use writ_types::action::{Action, ExecProfile, MemoryTrust, Place};
use writ_types::digest::{Digest, NotCanonical};
use writ_types::entry::Risk;
use writ_types::recipient::Recipient;

use writ_inspect::prepared::Prepared;
use writ_inspect::reach::Reach;
use writ_inspect::scope::{self, Dimension};
use writ_inspect::show;

mod evaluate;
mod schema;
mod shadow;

pub use shadow::{MAX_SHADOWS, Shadow};

/// The rules that are in force unless the home holds others.
pub const SHIPPED: &str = include_str!("rules/default.cedar");
/// The longest text of rules accepted, in bytes.
pub const MAX_RULES_BYTES: usize = 1024 * 1024;

/// The most people that a rule can want to say yes: more than that are a meeting.
pub const MAX_APPROVERS: u8 = 5;

/// The longest reason of a project's rule that is shown, in characters.
const MAX_FOREIGN_REASON_CHARS: usize = 200;

/// The verdict of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleVerdict {
    /// A rule permits it and none forbids it.
    Permit,
    /// Only rules with `@ask` forbid it; names of the rules and their reasons.
    Ask {
        /// The rules.
        rules: BTreeSet<String>,
        /// Their reasons.
        reasons: BTreeSet<String>,
        /// The highest risk that they name, if any does.
        risk: Option<Risk>,
        /// The number of people that must say yes.
        approvers: u8,
    },
    /// Forbidden by this rule, or permitted by none, or an evaluation failed.
    Forbid {
        /// The rule, or `no rule permits it`.
        rule: String,
    },
}

/// Rules that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Too long.
    #[error("{origin}: {bytes} bytes of rules; the limit is {MAX_RULES_BYTES}")]
    TooLong {
        /// The source of the rules.
        origin: String,
        /// Their size.
        bytes: usize,
    },
    /// Not Cedar.
    #[error("{origin}: {text}")]
    Syntax {
        /// The source of the rules.
        origin: String,
        /// The error.
        text: String,
    },
    /// Not in keeping with the schema.
    #[error("{origin}: a rule does not fit the schema: {text}")]
    Schema {
        /// The source of the rule.
        origin: String,
        /// The error.
        text: String,
    },
    /// A rule has no `@id`, or one that is taken.
    #[error("{origin}: every rule needs an @id of its own ('{id}')")]
    Id {
        /// The source of the rules.
        origin: String,
        /// The id.
        id: String,
    },
    /// A project's rule permits: projects can only narrow.
    #[error("{origin}: rule '{id}' permits; a project's rules can only forbid")]
    Widens {
        /// The source of the rules.
        origin: String,
        /// The rule.
        id: String,
    },
    /// `@risk` on a rule that does not ask, or a risk that there is not.
    #[error("{origin}: rule '{id}': @risk is \"low\", \"medium\", \"high\" or \"irreversible\", beside @ask")]
    Risk {
        /// The source of the rules.
        origin: String,
        /// The rule.
        id: String,
    },
    /// `@approvers` on a rule that does not ask, or no number that it can have.
    #[error("{origin}: rule '{id}': @approvers is \"1\" to \"{MAX_APPROVERS}\", beside @ask")]
    Approvers {
        /// The source of the rules.
        origin: String,
        /// The rule.
        id: String,
    },
    /// `@ask` on a rule that permits.
    #[error("{origin}: rule '{id}' has @ask but permits; only 'forbid' can ask")]
    AskingPermit {
        /// The source of the rules.
        origin: String,
        /// The rule.
        id: String,
    },
}

/// The origin of rules, which says if they may permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorship {
    /// The owner's.
    Home,
    /// A project's: it can only narrow.
    Project,
}

/// One file of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSource {
    /// Its name, for errors.
    pub origin: String,
    /// The author.
    pub authorship: Authorship,
    /// Its text.
    pub text: String,
}

impl RuleSource {
    /// The shipped rules.
    pub fn shipped_rules() -> Self {
        Self { origin: "shipped rules".into(), authorship: Authorship::Home, text: SHIPPED.into() }
    }
}

/// Facts for rules that are not in the action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleFacts {
    /// The owner has preapproved this kind, within the key's scopes.
    pub preapproved: bool,
    /// The hosts that the action would reach, as a class.
    pub reach: Reach,
    /// The action only reads, and all its destinations are values of the owner or of fields.
    pub owned: bool,
}

/// The rules in force.
#[derive(Debug)]
pub struct RuleSet {
    schema: Schema,
    all: PolicySet,
    /// The rules without those that ask: they apply after a yes.
    without_asks: PolicySet,
    /// The rules that a project has written: their reasons are not the owner's words.
    foreign: BTreeSet<String>,
    digest: Digest,
    authorizer: Authorizer,
    shadows: Vec<Shadow>,
}

impl RuleSet {
    /// Parses and validates rules against the schema of all actions.
    ///
    /// # Errors
    ///
    /// The first rule that cannot stand, with its origin.
    pub fn load_rules(sources: &[RuleSource]) -> Result<Self, RuleError> {
        let syntax = |text: String| RuleError::Syntax { origin: "schema".into(), text };
        // The schema is always the same, so the tests would find an error in it.
        let schema = Schema::from_str(&schema::schema_text()).map_err(|e| syntax(e.to_string()))?;
        let (mut all, mut without_asks) = (PolicySet::new(), PolicySet::new());
        let (mut foreign, mut origins) = (BTreeSet::new(), BTreeMap::new());
        for source in sources {
            let ids = source.add_to(&mut all, &mut without_asks)?;
            origins.extend(ids.iter().map(|id| (id.clone(), source.origin.clone())));
            if source.authorship == Authorship::Project {
                foreign.extend(ids);
            }
        }
        // Strict validation refuses a rule that could fail when it is evaluated.
        let result = Validator::new(schema.clone()).validate(&all, ValidationMode::Strict);
        if let Some(error) = result.validation_errors().next() {
            let origin = origins.remove(AsRef::<str>::as_ref(error.policy_id())).unwrap_or_default();
            return Err(RuleError::Schema { origin, text: error.to_string() });
        }
        let digest = Self::digest_of(sources)?;
        // Rules that are only tried are added later, and never decide.
        let (authorizer, shadows) = (Authorizer::new(), Vec::new());
        Ok(Self { schema, all, without_asks, foreign, digest, authorizer, shadows })
    }

    /// The digest that rules of these texts would have.
    ///
    /// # Errors
    ///
    /// If they have no canonical form.
    pub fn digest_of(sources: &[RuleSource]) -> Result<Digest, RuleError> {
        // The digest is of the texts in their order, since a later file can add to an earlier one.
        let texts: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
        let syntax =
            |error: NotCanonical| RuleError::Syntax { origin: "rules".into(), text: error.to_string() };
        Digest::of_canonical(&texts).map_err(syntax)
    }

    /// Hash of all rules in force: approvals are bound to it.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The names of all rules, sorted.
    pub fn rule_ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = self.all.policies().map(|policy| policy.id().to_string()).collect();
        ids.sort();
        ids
    }

    /// Returns true if there is a rule of that name.
    pub fn has_rule(&self, id: &str) -> bool {
        self.all.policy(&PolicyId::new(id)).is_some()
    }

    /// The text of a rule, if there is one of that name.
    pub fn rule_text(&self, id: &str) -> Option<String> {
        Some(self.all.policy(&PolicyId::new(id))?.to_string())
    }

    /// Judges a prepared action for each thing that it touches: deny wins over ask, ask over permit.
    /// An evaluation error is a refusal.
    pub fn judge_rules(&self, prepared: &Prepared, standing: RuleFacts) -> RuleVerdict {
        let (mut rules, mut reasons, mut risk, mut approvers) = (BTreeSet::new(), BTreeSet::new(), None, 1);
        // Every touched thing must be permitted: one forbidden file forbids the whole change.
        for target in rule_targets(&prepared.action) {
            match self.judge_target(prepared, &target, standing) {
                RuleVerdict::Permit => {}
                RuleVerdict::Ask {
                    rules: more_rules,
                    reasons: more_reasons,
                    risk: its,
                    approvers: needed,
                } => {
                    rules.extend(more_rules);
                    reasons.extend(more_reasons);
                    risk = risk.max(its);
                    approvers = approvers.max(needed);
                }
                refused @ RuleVerdict::Forbid { .. } => return refused,
            }
        }
        if rules.is_empty() {
            RuleVerdict::Permit
        } else {
            RuleVerdict::Ask { rules, reasons, risk, approvers }
        }
    }

    fn judge_target(&self, prepared: &Prepared, target: &str, standing: RuleFacts) -> RuleVerdict {
        let refused = |rule: &str| RuleVerdict::Forbid { rule: rule.to_owned() };
        let Some(request) = self.build_request(prepared, target, standing) else {
            return refused("the request does not fit the schema");
        };
        let answer = evaluate::evaluate(&self.authorizer, &request, &self.all);
        // Cedar skips a rule that fails, so a failing `forbid` would let the action through.
        if answer.diagnostics().errors().next().is_some() {
            return refused("a rule could not be evaluated");
        }
        if answer.decision() == Decision::Allow {
            return RuleVerdict::Permit;
        }
        // Sorted, so that the same request always names the same rule.
        let determining: BTreeSet<&PolicyId> = answer.diagnostics().reason().collect();
        if determining.is_empty() {
            return refused("no rule permits it");
        }
        let (mut rules, mut reasons, mut risk, mut approvers) = (BTreeSet::new(), BTreeSet::new(), None, 1);
        for id in determining {
            // One determining rule without `@ask` forbids, also where others only ask.
            let Some(reason) = self.all.annotation(id, "ask") else { return refused(id.as_ref()) };
            rules.insert(id.to_string());
            risk = risk.max(self.all.annotation(id, "risk").and_then(risk_named));
            approvers =
                approvers.max(self.all.annotation(id, "approvers").and_then(parse_people).unwrap_or(1));
            reasons.insert(self.reason_text(id, reason));
        }
        // A yes lifts the rules that ask, and nothing else: without a permit the answer is still no.
        let then = evaluate::evaluate(&self.authorizer, &request, &self.without_asks);
        if then.decision() == Decision::Deny || then.diagnostics().errors().next().is_some() {
            return refused("no rule permits it, even if approved");
        }
        RuleVerdict::Ask { rules, reasons, risk, approvers }
    }

    /// A rule's reason, for people: that of a project is marked as such, and short.
    fn reason_text(&self, id: &PolicyId, reason: &str) -> String {
        // The reason of a project is someone else's text, so it is cut and marked before a person reads it.
        if !self.foreign.contains(AsRef::<str>::as_ref(id)) {
            return reason.to_owned();
        }
        let reason: String = reason.chars().take(MAX_FOREIGN_REASON_CHARS).collect();
        format!("{}“{reason}”", of_project(id.as_ref()))
    }

    fn build_request(&self, prepared: &Prepared, target: &str, standing: RuleFacts) -> Option<Request> {
        let kind = prepared.action.kind();
        let action = entity_uid("Action", kind.as_str())?;
        let string = |value: &str| RestrictedExpression::new_string(value.to_owned());
        let facts = RuleCircumstances::circumstances_of(&prepared.action);
        // Only calls of foreign tools have declarations of the owner.
        let call = if let Action::CallTool(call) = &prepared.action { Some(call) } else { None };
        let context = Context::from_pairs([
            ("taint".to_owned(), string(prepared.label.taint.as_str())),
            ("place".to_owned(), string(facts.place)),
            ("profile".to_owned(), string(facts.profile)),
            ("trust".to_owned(), string(facts.trust)),
            ("tool".to_owned(), string(&prepared.tool)),
            ("network".to_owned(), RestrictedExpression::new_bool(facts.network)),
            ("preapproved".to_owned(), RestrictedExpression::new_bool(standing.preapproved)),
            ("reach".to_owned(), string(standing.reach.as_str())),
            ("owned".to_owned(), RestrictedExpression::new_bool(standing.owned)),
            ("large".to_owned(), RestrictedExpression::new_bool(is_large(&prepared.action))),
            ("effect".to_owned(), RestrictedExpression::new_bool(call.is_some_and(|call| call.effect))),
            ("declared".to_owned(), RestrictedExpression::new_bool(call.is_some_and(|call| call.declared))),
            ("risk".to_owned(), string(name_of(show::risk_of(&prepared.action)))),
        ])
        .ok()?;
        // The schema is passed along, so that a request that does not fit is refused and not evaluated.
        Request::new(
            entity_uid("Agent", &prepared.agent)?,
            action,
            entity_uid("Target", target)?,
            context,
            Some(&self.schema),
        )
        .ok()
    }
}

impl RuleSource {
    /// Adds its rules, and tells their names.
    fn add_to(&self, all: &mut PolicySet, without_asks: &mut PolicySet) -> Result<Vec<String>, RuleError> {
        let mut ids = Vec::new();
        // The bound comes before parsing: a project's file comes from outside.
        if self.text.len() > MAX_RULES_BYTES {
            return Err(RuleError::TooLong { origin: self.origin.clone(), bytes: self.text.len() });
        }
        let syntax = |text: String| RuleError::Syntax { origin: self.origin.clone(), text };
        let parsed = PolicySet::from_str(&self.text).map_err(|e| syntax(e.to_string()))?;
        if parsed.templates().next().is_some() {
            return Err(syntax("templates are not used here".into()));
        }
        for policy in parsed.policies() {
            let id = policy.annotation("id").unwrap_or_default().to_owned();
            let asks = policy.annotation("ask").is_some();
            match policy.effect() {
                // A project that could permit would lift the owner's rules.
                Effect::Permit if self.authorship == Authorship::Project => {
                    return Err(RuleError::Widens { origin: self.origin.clone(), id });
                }
                // `@ask` turns a `forbid` into a question; a `permit` has nothing to ask about.
                Effect::Permit if asks => {
                    return Err(RuleError::AskingPermit { origin: self.origin.clone(), id });
                }
                Effect::Permit | Effect::Forbid => {}
            }
            if let Some(risk) = policy.annotation("risk")
                && (!asks || risk_named(risk).is_none())
            {
                return Err(RuleError::Risk { origin: self.origin.clone(), id });
            }
            // A number of people on a rule that does not ask would be believed and never checked.
            if let Some(needed) = policy.annotation("approvers")
                && (!asks || parse_people(needed).is_none())
            {
                return Err(RuleError::Approvers { origin: self.origin.clone(), id });
            }
            let named = policy.new_id(PolicyId::new(&id));
            let taken = |_| RuleError::Id { origin: self.origin.clone(), id: id.clone() };
            // Verdicts and records name a rule by its id, so each must have one.
            if id.is_empty() {
                return Err(RuleError::Id { origin: self.origin.clone(), id });
            }
            all.add(named.clone()).map_err(taken)?;
            if !asks {
                without_asks.add(named).map_err(taken)?;
            }
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Returns the prefix of the reasons of a project's rules.
pub(crate) fn of_project(id: &str) -> String {
    format!("A rule of the project ('{id}') asks: ")
}

/// Parses the number of people in `@approvers`.
fn parse_people(number: &str) -> Option<u8> {
    number.parse().ok().filter(|number| (1..=MAX_APPROVERS).contains(number))
}

const fn name_of(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "low",
        Risk::Medium => "medium",
        Risk::High => "high",
        Risk::Irreversible => "irreversible",
    }
}

fn risk_named(name: &str) -> Option<Risk> {
    [Risk::Low, Risk::Medium, Risk::High, Risk::Irreversible].into_iter().find(|risk| name_of(*risk) == name)
}

fn entity_uid(kind: &str, id: &str) -> Option<EntityUid> {
    Some(EntityUid::from_type_name_and_id(EntityTypeName::from_str(kind).ok()?, EntityId::new(id)))
}

/// Returns true if an action saves more than the usual size.
const fn is_large(action: &Action) -> bool {
    matches!(action, Action::Fetch(fetch) if fetch.large)
}

/// The facts that rules may use besides agent, action and target.
struct RuleCircumstances {
    place: &'static str,
    profile: &'static str,
    trust: &'static str,
    network: bool,
}

impl RuleCircumstances {
    fn circumstances_of(action: &Action) -> Self {
        let none = Self { place: "", profile: "", trust: "", network: false };
        if let Action::Exec(exec) = action {
            let profile = match exec.profile {
                ExecProfile::Task => "task",
                ExecProfile::Verification => "verification",
                ExecProfile::Server => "server",
                ExecProfile::Gate => "gate",
            };
            return Self { profile, network: !exec.hosts.is_empty(), ..none };
        }
        if let Action::WriteFile(write) = action {
            let place = match write.place {
                Place::Overlay => "overlay",
                Place::Project => "project",
            };
            return Self { place, ..none };
        }
        // A memory's trust is its place: rules may ask before a truth is stored.
        if let Action::Remember(remember) = action {
            let trust = match remember.trust {
                MemoryTrust::Working => "working",
                MemoryTrust::Verified => "verified",
                MemoryTrust::Constitutional => "constitutional",
            };
            return Self { trust, ..none };
        }
        // A document is in no request before it is read, and read as external content.
        if matches!(action, Action::ModifySelf(modify) if modify.document().is_some()) {
            return Self { place: "documents", ..none };
        }
        let is_to_owner = matches!(action, Action::SendFile(send) if send.to == Recipient::Owner);
        if is_to_owner { Self { place: "owner", ..none } } else { none }
    }
}

/// Everything that a rule can name as resource: what the action touches. Place and profile stand in the context.
fn rule_targets(action: &Action) -> BTreeSet<String> {
    let touched: BTreeSet<String> = scope::attributes_of(action)
        .into_iter()
        .filter(|(dimension, _)| !matches!(dimension, Dimension::Place | Dimension::Profile))
        .map(|(_, value)| value)
        .collect();
    // An action that touches nothing by name is still judged once, by its kind.
    if touched.is_empty() { BTreeSet::from([action.kind().as_str().to_owned()]) } else { touched }
}

#[cfg(test)]
mod tests;
