//! What keys grant, and how it is written as facts.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use biscuit_auth::Authorizer;
use biscuit_auth::builder::{Fact, Predicate, Rule, Scope, Term};
use writ_types::action::ActionKind;
use writ_types::unit::Timestamp;

use super::{KeyError, LIMITS};
use crate::scope::Dimension;

/// Kinds of action, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// For each granted kind, its scopes: an action must be covered in each of its dimensions.
    pub kinds: BTreeMap<ActionKind, BTreeSet<(Dimension, String)>>,
    /// Kinds that the owner has approved beforehand within the scopes, so that no rule asks again.
    pub preapproved: BTreeSet<ActionKind>,
}

impl Grants {
    /// Adds a kind with scopes.
    #[must_use]
    pub fn allow<'a>(
        mut self,
        kind: ActionKind,
        scopes: impl IntoIterator<Item = (Dimension, &'a str)>,
    ) -> Self {
        let held = self.kinds.entry(kind).or_default();
        held.extend(scopes.into_iter().map(|(dimension, value)| (dimension, value.to_owned())));
        self
    }

    /// Approves a kind beforehand.
    #[must_use]
    pub fn preapprove(mut self, kind: ActionKind) -> Self {
        self.preapproved.insert(kind);
        self
    }

    /// Whether a kind is granted with a scope that covers this value.
    pub fn covers(&self, kind: ActionKind, dimension: Dimension, value: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|scopes| {
            scopes.iter().any(|(held, scope)| *held == dimension && dimension.covers(scope, value))
        })
    }

    pub(super) fn to_facts(&self) -> Vec<Fact> {
        let kinds = self.kinds.keys().map(|kind| text("capability", kind.as_str()));
        let scopes = self.kinds.iter().flat_map(|(kind, scopes)| {
            scopes.iter().map(|(dimension, value)| {
                let terms = [kind.as_str(), dimension.as_str(), value];
                Fact::new("scope".to_owned(), terms.map(|t| Term::Str(t.to_owned())).to_vec())
            })
        });
        let preapproved = self.preapproved.iter().map(|kind| text("preapproved", kind.as_str()));
        kinds.chain(scopes).chain(preapproved).collect()
    }
}

pub(super) fn text(name: &str, value: &str) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Str(value.to_owned())])
}

pub(super) fn number(name: &str, value: u64) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Integer(i64::try_from(value).unwrap_or(i64::MAX))])
}

pub(super) fn time(name: &str, at: Timestamp) -> Fact {
    Fact::new(name.to_owned(), vec![Term::Integer(at.as_millis())])
}

/// A shape of facts: name and number of terms.
type Template = (&'static str, usize);

/// The facts that a base key holds. Nothing else is accepted.
pub(super) const BASE: [Template; 9] = [
    ("base", 1),
    ("installation", 1),
    ("epoch", 1),
    ("agent", 1),
    ("policy", 1),
    ("expires", 1),
    ("capability", 1),
    ("scope", 3),
    ("preapproved", 1),
];

/// The facts that a task key's block holds. Nothing else is accepted.
pub(super) const TASK: [Template; 8] = [
    ("task", 1),
    ("task_base", 1),
    ("session", 1),
    ("not_before", 1),
    ("expires", 1),
    ("capability", 1),
    ("scope", 3),
    ("preapproved", 1),
];

/// The facts of one block.
pub(super) struct Fields(BTreeMap<&'static str, Vec<Vec<Term>>>);

impl Fields {
    /// Reads the facts of given templates that one block states itself.
    pub(super) fn read(
        authorizer: &mut Authorizer,
        scope: Scope,
        templates: &[Template],
    ) -> Result<Self, KeyError> {
        let mut fields = BTreeMap::new();
        for &(name, arity) in templates {
            let variables: Vec<Term> = (0..arity).map(|n| Term::Variable(format!("v{n}"))).collect();
            let rule = Rule::new(
                Predicate::new("found".to_owned(), variables.clone()),
                vec![Predicate::new(name.to_owned(), variables)],
                vec![],
                vec![scope.clone()],
            );
            let found: Vec<Fact> =
                authorizer.query_with_limits(rule, LIMITS).map_err(|_| KeyError::Missing("facts"))?;
            let rows: Vec<Vec<Term>> = found.into_iter().map(|fact| fact.predicate.terms).collect();
            fields.insert(name, rows);
        }
        Ok(Self(fields))
    }

    /// How many facts there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    fn only(&mut self, name: &'static str) -> Result<Term, KeyError> {
        match self.0.remove(name).unwrap_or_default().as_mut_slice() {
            [row] if row.len() == 1 => row.pop().ok_or(KeyError::Missing(name)),
            _ => Err(KeyError::Missing(name)),
        }
    }

    pub(super) fn parsed<T: FromStr>(&mut self, name: &'static str) -> Result<T, KeyError> {
        let Term::Str(text) = self.only(name)? else { return Err(KeyError::Missing(name)) };
        text.parse().map_err(|_| KeyError::Missing(name))
    }

    pub(super) fn number(&mut self, name: &'static str) -> Result<u64, KeyError> {
        let Term::Integer(value) = self.only(name)? else { return Err(KeyError::Missing(name)) };
        u64::try_from(value).map_err(|_| KeyError::Missing(name))
    }

    pub(super) fn time(&mut self, name: &'static str) -> Result<Timestamp, KeyError> {
        let Term::Integer(value) = self.only(name)? else { return Err(KeyError::Missing(name)) };
        Ok(Timestamp::from_millis(value))
    }

    pub(super) fn grants(&mut self) -> Result<Grants, KeyError> {
        let mut grants = Grants::default();
        for row in self.0.remove("capability").unwrap_or_default() {
            grants.kinds.entry(kind(&row, "capability")?).or_default();
        }
        for row in self.0.remove("preapproved").unwrap_or_default() {
            grants.preapproved.insert(kind(&row, "preapproved")?);
        }
        for row in self.0.remove("scope").unwrap_or_default() {
            let [_, Term::Str(dimension), Term::Str(value)] = row.as_slice() else {
                return Err(KeyError::Missing("scope"));
            };
            let dimension = Dimension::from_name(dimension).ok_or(KeyError::Missing("scope"))?;
            let scopes =
                grants.kinds.get_mut(&kind(&row, "scope")?).ok_or(KeyError::Missing("capability"))?;
            scopes.insert((dimension, value.clone()));
        }
        Ok(grants)
    }
}

/// The name of a fact that fits no template, or that stands in the wrong block.
pub(super) fn odd_one(facts: &[Fact]) -> String {
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

fn kind(row: &[Term], name: &'static str) -> Result<ActionKind, KeyError> {
    match row.first() {
        Some(Term::Str(text)) => ActionKind::from_name(text).ok_or(KeyError::Missing(name)),
        Some(_) | None => Err(KeyError::Missing(name)),
    }
}
