//! Grants of keys, and their form as facts.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use biscuit_auth::Authorizer;
use biscuit_auth::builder::{Fact, Predicate, Rule, Scope, Term};
use writ_types::action::ActionKind;
use writ_types::digest::Digest;
use writ_types::id::KeyId;
use writ_types::unit::Timestamp;

use super::limits::{AmountLimit, OperationLimits};
use super::{Case, KeyError, LIMITS, MAX_UNDER, ROUTER};
use writ_inspect::scope::Dimension;

/// Kinds of action, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// For each granted kind, its scopes: an action must be covered in each of its dimensions.
    pub kinds: BTreeMap<ActionKind, BTreeSet<(Dimension, String)>>,
    /// Kinds that the owner has preapproved within the scopes, so that no rule asks again.
    pub preapproved: BTreeSet<ActionKind>,
    /// Limits of operations, by name. An operation without an entry is not limited.
    pub limits: BTreeMap<String, OperationLimits>,
}

impl Grants {
    /// Adds a kind with scopes.
    #[must_use]
    pub fn allow_kind<'a>(
        mut self,
        kind: ActionKind,
        scopes: impl IntoIterator<Item = (Dimension, &'a str)>,
    ) -> Self {
        let held = self.kinds.entry(kind).or_default();
        held.extend(scopes.into_iter().map(|(dimension, value)| (dimension, value.to_owned())));
        self
    }

    /// Preapproves a kind.
    #[must_use]
    pub fn preapprove_kind(mut self, kind: ActionKind) -> Self {
        self.preapproved.insert(kind);
        self
    }

    /// Returns true if a kind is granted with a scope that covers this value.
    pub fn covers_value(&self, kind: ActionKind, dimension: Dimension, value: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|scopes| {
            // The value must be covered in its own dimension: a path is no host.
            scopes.iter().any(|(held, scope)| *held == dimension && dimension.covers_value(scope, value))
        })
    }

    /// Returns true if `wider` grants everything that these grants do.
    pub fn is_within(&self, wider: &Self) -> bool {
        let kind = |(kind, scopes): (&ActionKind, &BTreeSet<(Dimension, String)>)| {
            wider.kinds.contains_key(kind)
                && scopes.iter().all(|(dimension, value)| wider.covers_value(*kind, *dimension, value))
        };
        let limited = |(operation, wide): (&String, &OperationLimits)| {
            // An operation that is not granted here cannot exceed the wider limits.
            let granted = self.covers_value(ActionKind::Operate, Dimension::Name, operation);
            !granted || self.limits.get(operation).is_some_and(|own| own.is_within(wide))
        };
        self.kinds.iter().all(kind)
            && self.preapproved.is_subset(&wider.preapproved)
            && wider.limits.iter().all(limited)
    }

    pub(super) fn to_facts(&self) -> Vec<Fact> {
        let kinds = self.kinds.keys().map(|kind| text_fact("capability", kind.as_str()));
        let scopes = self.kinds.iter().flat_map(|(kind, scopes)| {
            scopes.iter().map(|(dimension, value)| {
                let terms = [kind.as_str(), dimension.as_str(), value];
                Fact::new("scope".to_owned(), terms.map(|t| Term::Str(t.to_owned())).to_vec())
            })
        });
        let preapproved = self.preapproved.iter().map(|kind| text_fact("preapproved", kind.as_str()));
        let limits = self.limits.iter().flat_map(|(operation, limits)| limit_facts(operation, limits));
        kinds.chain(scopes).chain(preapproved).chain(limits).collect()
    }
}

fn limit_facts(operation: &str, limits: &OperationLimits) -> Vec<Fact> {
    let fact = |name: &str, parameter: &str, rest: Vec<Term>| {
        let mut terms = vec![Term::Str(operation.to_owned()), Term::Str(parameter.to_owned())];
        terms.extend(rest);
        Fact::new(name.to_owned(), terms)
    };
    let mut facts = Vec::new();
    for (parameter, amount) in &limits.amounts {
        facts.push(fact("amount", parameter, vec![Term::Integer(amount.min), Term::Integer(amount.max)]));
        facts.extend(amount.daily.map(|most| fact("daily", parameter, vec![Term::Integer(most)])));
    }
    for (parameter, most) in &limits.totals {
        facts.push(fact("total", parameter, vec![Term::Integer(*most)]));
    }
    for (parameter, values) in &limits.values {
        facts.extend(values.iter().map(|value| fact("value", parameter, vec![Term::Str(value.clone())])));
    }
    facts
}

pub(super) fn text_fact(name: &str, value: &str) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Str(value.to_owned())])
}

pub(super) fn number_fact(name: &str, value: u64) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Integer(i64::try_from(value).unwrap_or(i64::MAX))])
}

pub(super) fn time_fact(name: &str, at: Timestamp) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Integer(at.as_millis())])
}

/// A shape of facts: name and number of terms.
type Template = (&'static str, usize);

/// The facts that a base key holds. Nothing else is accepted.
pub(super) const BASE: [Template; 13] = [
    ("base", 1),
    ("installation", 1),
    ("epoch", 1),
    ("agent", 1),
    ("policy", 1),
    ("expires", 1),
    ("capability", 1),
    ("scope", 3),
    ("preapproved", 1),
    ("amount", 4),
    ("daily", 3),
    ("total", 3),
    ("value", 3),
];

/// The facts that a task key's block holds. Nothing else is accepted.
pub(super) const TASK: [Template; 18] = [
    ("task", 1),
    ("task_base", 1),
    ("session", 1),
    ("not_before", 1),
    ("expires", 1),
    ("capability", 1),
    ("scope", 3),
    ("preapproved", 1),
    ("amount", 4),
    ("daily", 3),
    ("total", 3),
    ("value", 3),
    ("task_id", 1),
    ("customer", 1),
    ("case", 1),
    ("granted_by", 1),
    ("under", 1),
    ("plan", 1),
];

/// The facts of one block.
pub(super) struct KeyFields(BTreeMap<&'static str, Vec<Vec<Term>>>);

impl KeyFields {
    /// Reads the facts of given templates that one block states itself.
    pub(super) fn read_fields(
        authorizer: &mut Authorizer,
        scope: Scope,
        templates: &[Template],
    ) -> Result<Self, KeyError> {
        let mut fields = BTreeMap::new();
        for &(name, arity) in templates {
            let variables: Vec<Term> = (0..arity).map(|n| Term::Variable(format!("v{n}"))).collect();
            // The authorizer only looks facts up: the rule joins nothing and derives nothing.
            let rule = Rule::new(
                Predicate::new("found".to_owned(), variables.clone()),
                vec![Predicate::new(name.to_owned(), variables)],
                vec![],
                // The scope confines the look-up to the facts that this block states itself.
                vec![scope.clone()],
            );
            let found: Vec<Fact> =
                authorizer.query_with_limits(rule, LIMITS).map_err(|_| KeyError::Missing("facts"))?;
            let rows: Vec<Vec<Term>> = found.into_iter().map(|fact| fact.predicate.terms).collect();
            fields.insert(name, rows);
        }
        Ok(Self(fields))
    }

    /// Counts the facts.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn take_only(&mut self, name: &'static str) -> Result<Term, KeyError> {
        match self.0.remove(name).unwrap_or_default().as_mut_slice() {
            // A fact that stands twice could be read either way.
            [row] => row.pop().ok_or(KeyError::Missing(name)),
            _ => Err(KeyError::Missing(name)),
        }
    }

    pub(super) fn take_parsed<T: FromStr>(&mut self, name: &'static str) -> Result<T, KeyError> {
        let Term::Str(text) = self.take_only(name)? else { return Err(KeyError::Missing(name)) };
        text.parse().map_err(|_| KeyError::Missing(name))
    }

    pub(super) fn take_number(&mut self, name: &'static str) -> Result<u64, KeyError> {
        let Term::Integer(value) = self.take_only(name)? else { return Err(KeyError::Missing(name)) };
        u64::try_from(value).map_err(|_| KeyError::Missing(name))
    }

    pub(super) fn take_time(&mut self, name: &'static str) -> Result<Timestamp, KeyError> {
        let Term::Integer(value) = self.take_only(name)? else { return Err(KeyError::Missing(name)) };
        Ok(Timestamp::from_millis(value))
    }

    pub(super) fn take_grants(&mut self) -> Result<Grants, KeyError> {
        let mut grants = Grants::default();
        for row in self.0.remove("capability").unwrap_or_default() {
            grants.kinds.entry(read_kind(&row, "capability")?).or_default();
        }
        for row in self.0.remove("preapproved").unwrap_or_default() {
            grants.preapproved.insert(read_kind(&row, "preapproved")?);
        }
        for row in self.0.remove("scope").unwrap_or_default() {
            let [_, Term::Str(dimension), Term::Str(value)] = row.as_slice() else {
                return Err(KeyError::Missing("scope"));
            };
            let dimension = Dimension::from_name(dimension).ok_or(KeyError::Missing("scope"))?;
            let scopes =
                // A scope for a kind that is not granted shows that the document was not written here.
                grants.kinds.get_mut(&read_kind(&row, "scope")?).ok_or(KeyError::Missing("capability"))?;
            scopes.insert((dimension, value.clone()));
        }
        self.take_limits(&mut grants)?;
        Ok(grants)
    }

    fn take_limits(&mut self, grants: &mut Grants) -> Result<(), KeyError> {
        for row in self.0.remove("amount").unwrap_or_default() {
            let [Term::Str(operation), Term::Str(name), Term::Integer(min), Term::Integer(max)] =
                row.as_slice()
            else {
                return Err(KeyError::Missing("amount"));
            };
            let amounts = &mut grants.limits.entry(operation.clone()).or_default().amounts;
            // Two bounds for one amount could be read either way.
            if amounts.insert(name.clone(), AmountLimit { min: *min, max: *max, daily: None }).is_some() {
                return Err(KeyError::Missing("amount"));
            }
        }
        for row in self.0.remove("daily").unwrap_or_default() {
            let [Term::Str(operation), Term::Str(name), Term::Integer(most)] = row.as_slice() else {
                return Err(KeyError::Missing("daily"));
            };
            let limits = grants.limits.get_mut(operation);
            let amount = limits.and_then(|limits| limits.amounts.get_mut(name));
            // A limit for the day needs bounds for one use, and stands once.
            let amount = amount.filter(|amount| amount.daily.is_none()).ok_or(KeyError::Missing("daily"))?;
            amount.daily = Some(*most);
        }
        for row in self.0.remove("total").unwrap_or_default() {
            let [Term::Str(operation), Term::Str(name), Term::Integer(most)] = row.as_slice() else {
                return Err(KeyError::Missing("total"));
            };
            let limits = grants.limits.get_mut(operation);
            let limits = limits.filter(|limits| limits.amounts.contains_key(name));
            // As the day's.
            let before = limits.ok_or(KeyError::Missing("total"))?.totals.insert(name.clone(), *most);
            if before.is_some() {
                return Err(KeyError::Missing("total"));
            }
        }
        for row in self.0.remove("value").unwrap_or_default() {
            let [Term::Str(operation), Term::Str(name), Term::Str(value)] = row.as_slice() else {
                return Err(KeyError::Missing("value"));
            };
            let values = &mut grants.limits.entry(operation.clone()).or_default().values;
            values.entry(name.clone()).or_default().insert(value.clone());
        }
        Ok(())
    }

    /// The case that a task key is for: all of it or nothing.
    pub(super) fn take_case(&mut self) -> Result<Option<Case>, KeyError> {
        let names = ["task_id", "customer", "case", "granted_by"];
        // A base key and a task key without a case have none of these facts.
        if names.iter().all(|name| self.0.get(name).is_none_or(Vec::is_empty)) {
            return Ok(None);
        }
        let granted_by: String = self.take_parsed("granted_by")?;
        if granted_by != ROUTER {
            return Err(KeyError::Missing("granted_by"));
        }
        let (task, customer) = (self.take_parsed("task_id")?, self.take_parsed("customer")?);
        Ok(Some(Case { task, customer, case: self.take_parsed("case")?, granted_by }))
    }

    /// The plan that a task key is for.
    pub(super) fn take_plan(&mut self) -> Result<Option<Digest>, KeyError> {
        if self.0.get("plan").is_none_or(Vec::is_empty) {
            return Ok(None);
        }
        self.take_parsed("plan").map(Some)
    }

    /// The ids of what a task key rests on.
    pub(super) fn take_under(&mut self) -> Result<BTreeSet<KeyId>, KeyError> {
        let rows = self.0.remove("under").unwrap_or_default();
        let ids = rows.iter().map(|row| match row.as_slice() {
            [Term::Str(text)] => text.parse().map_err(|_| KeyError::Missing("under")),
            _ => Err(KeyError::Missing("under")),
        });
        let ids: BTreeSet<KeyId> = ids.collect::<Result<_, _>>()?;
        // The bound on the chain holds for keys that were minted elsewhere as well.
        if ids.len() > MAX_UNDER { Err(KeyError::Missing("under")) } else { Ok(ids) }
    }
}

/// The name of a fact that fits no template, or that stands in the wrong block.
pub(super) fn odd_one(facts: &[Fact]) -> String {
    // The name alone is not enough: a fact of a known name may have another number of terms.
    let known = |fact: &&Fact| {
        let shape = (fact.predicate.name.as_str(), fact.predicate.terms.len());
        BASE.iter().chain(&TASK).any(|template| *template == shape)
    };
    let odd = facts.iter().find(|fact| !known(fact));
    odd.map_or_else(
        || "a fact in the wrong block".to_owned(),
        |fact| fact.predicate.name.chars().take(64).collect(),
    )
}

fn read_kind(row: &[Term], name: &'static str) -> Result<ActionKind, KeyError> {
    match row.first() {
        Some(Term::Str(text)) => ActionKind::from_name(text).ok_or(KeyError::Missing(name)),
        Some(_) | None => Err(KeyError::Missing(name)),
    }
}
