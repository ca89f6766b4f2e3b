//! Standing orders: grants for unattended work, signed by the owner's approver key.
//!
//! Work under an order has the kinds of action that the order names, no wider than a session of its owner,
//! until it ends, is revoked, or is used up. Its task keys rest on the order and are revoked with it.

use std::collections::BTreeMap;

use ed25519_dalek::{Signature, Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use writ_types::action::ActionKind;
use writ_types::digest::{NotCanonical, canonical_json};
use writ_types::id::{InstallationId, KeyId};
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::approval::{Approvers, MAX_SKEW_MS};
use crate::budget::BudgetConfig;
use crate::keys::grants::Grants;
use writ_inspect::scope::Dimension;
use writ_inspect::show::is_plain;

/// Separates standing orders from everything else that the same key signs.
const DOMAIN: &[u8] = b"writ standing order v1\n";
/// The longest lifetime of an order: after a year its owner signs again.
pub const MAX_LIFETIME: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The longest name of an order, in characters.
pub const MAX_NAME_CHARS: usize = 64;
/// The most scopes of an order: what a person signs, a person has read.
pub const MAX_SCOPES: usize = 64;

/// The grants by kind of action: the values of each dimension that is narrowed. A dimension that is not named
/// is as wide as in a session of the owner.
pub type Capabilities = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// The signed content of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderClaims {
    /// The installation that it is good for.
    pub installation: InstallationId,
    /// The epoch that it is good for.
    pub epoch: u64,
    /// Its id.
    pub order: KeyId,
    /// The name that its owner gave it.
    pub name: String,
    /// The folder that it works on, if any.
    pub project: Option<String>,
    /// The grants.
    pub capabilities: Capabilities,
    /// Tokens of all its turns together.
    pub max_tokens: Tokens,
    /// Money of all its turns together; `None`: as the configuration says.
    pub max_cost: Option<MicroUsd>,
    /// The number of turns that it opens.
    pub max_turns: u64,
    /// When it was signed.
    pub issued_at: Timestamp,
    /// When it ends, at most [`MAX_LIFETIME`] later.
    pub expires_at: Timestamp,
    /// The enrolled approver key that signs: its public half, hexadecimal.
    pub approver: String,
}

/// A signed order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderToken {
    /// The claims under the signature.
    pub claims: OrderClaims,
    /// Ed25519 over the domain and the claims' canonical form, hexadecimal.
    pub signature: String,
}

/// An order that is in force. Made only by [`verify_order`].
///
/// ```compile_fail,E0451
/// fn forged(claims: writ_policy::order::OrderClaims) -> writ_policy::order::StandingOrder {
///     writ_policy::order::StandingOrder { claims }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingOrder {
    claims: OrderClaims,
}

/// The reason why an order is not in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No enrolled approver key has signed it.
    #[error("no approver key that is enrolled has signed this standing order")]
    Signature,
    /// It is for another installation or an earlier epoch.
    #[error("the standing order belongs to another installation, or to the time before a restore")]
    Foreign,
    /// It has not begun, or is over.
    #[error("the standing order has expired, or was signed for longer than a year")]
    Expired,
    /// The clock is behind the time at which it was last looked at.
    #[error("the clock was set back since the standing order was last used")]
    ClockSetBack,
    /// It was revoked.
    #[error("the standing order was revoked")]
    Revoked,
    /// All its turns were opened.
    #[error("the standing order has opened all its {0} turns")]
    UsedUp(u64),
    /// It says something that no order may.
    #[error("{0}")]
    Content(String),
}

impl OrderToken {
    /// Signs claims.
    ///
    /// # Errors
    ///
    /// If the claims have no canonical form.
    pub fn sign_claims(claims: OrderClaims, key: &SigningKey) -> Result<Self, NotCanonical> {
        let signature = hex::encode(key.sign(&signed_bytes(&claims)?).to_bytes());
        Ok(Self { claims, signature })
    }
}

fn signed_bytes(claims: &OrderClaims) -> Result<Vec<u8>, NotCanonical> {
    Ok([DOMAIN, &canonical_json(claims)?].concat())
}

/// Facts about an order that are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderFacts {
    /// This installation.
    pub installation: InstallationId,
    /// The epoch in force.
    pub epoch: u64,
    /// The latest time at which it was looked at.
    pub seen_at: Timestamp,
    /// The order was revoked.
    pub revoked: bool,
}

/// Checks that an order is in force: signed by an approver key that is enrolled now, for here, not over, not revoked.
/// Whether it opens another turn is for [`StandingOrder::opens_turn`] to say.
///
/// # Errors
///
/// The first thing that is wrong with it.
pub fn verify_order(
    token: &OrderToken,
    facts: &OrderFacts,
    approvers: &Approvers,
    now: Timestamp,
) -> Result<StandingOrder, OrderError> {
    let claims = &token.claims;
    // The key must be enrolled now: an order ends when its signer's key is revoked.
    let key = approvers.keys.get(&claims.approver).ok_or(OrderError::Signature)?;
    let mut bytes = [0; 64];
    hex::decode_to_slice(&token.signature, &mut bytes).map_err(|_| OrderError::Signature)?;
    let message = signed_bytes(claims).map_err(|_| OrderError::Signature)?;
    key.verify_strict(&message, &Signature::from_bytes(&bytes)).map_err(|_| OrderError::Signature)?;
    if claims.installation != facts.installation || claims.epoch != facts.epoch {
        return Err(OrderError::Foreign);
    }
    if facts.revoked {
        return Err(OrderError::Revoked);
    }
    // The last time of use is stored, so setting the clock back does not revive an order.
    let early = |since: Timestamp| since.as_millis() > now.as_millis().saturating_add(MAX_SKEW_MS);
    if early(facts.seen_at) {
        return Err(OrderError::ClockSetBack);
    }
    // If the clock was set back, the time of its last use counts.
    let latest = now.max(facts.seen_at);
    // A signer could write any end into the claims, so the lifetime is bounded here as well.
    let too_long = claims.expires_at > claims.issued_at.plus_duration(MAX_LIFETIME);
    if early(claims.issued_at) || latest >= claims.expires_at || too_long {
        return Err(OrderError::Expired);
    }
    check_content(claims)?;
    Ok(StandingOrder { claims: claims.clone() })
}

/// Checks the content of an order alone; the signer looks at that first.
///
/// # Errors
///
/// The first entry that no order may have.
pub fn check_content(claims: &OrderClaims) -> Result<(), OrderError> {
    let wrong = |text: String| Err(OrderError::Content(text));
    let name = &claims.name;
    // It stands on a line of what a person signs, and must not make two of it.
    let one_line = is_plain(name) && !name.contains(['\n', '\t']);
    if name.trim().is_empty() || name.chars().count() > MAX_NAME_CHARS || !one_line {
        return wrong(format!("the name must be 1 to {MAX_NAME_CHARS} plain characters"));
    }
    if claims.max_turns == 0 || claims.max_tokens == Tokens::ZERO {
        return wrong("max_turns and max_tokens must be at least 1".to_owned());
    }
    let mut scopes = 0_usize;
    // A person signs this list: each entry must be something that exists and can be read.
    for (kind, narrowed) in &claims.capabilities {
        if ActionKind::from_name(kind).is_none() {
            return wrong(format!("there is no capability '{}'", kind.escape_debug()));
        }
        for (dimension, values) in narrowed {
            if Dimension::from_name(dimension).is_none() {
                return wrong(format!("'{}' limits nothing of '{kind}'", dimension.escape_debug()));
            }
            if let Some(odd) = values.iter().find(|value| !is_plain(value)) {
                return wrong(format!("'{}' cannot be shown as it is", odd.escape_debug()));
            }
            scopes = scopes.saturating_add(values.len());
        }
    }
    if claims.capabilities.is_empty() || scopes > MAX_SCOPES {
        return wrong(format!(
            "it must name at least one capability, and at most {MAX_SCOPES} values in them"
        ));
    }
    Ok(())
}

/// Narrows the grants of an owner's session to those of the order.
///
/// # Errors
///
/// If more is named than that.
pub fn narrow_grants(capabilities: &Capabilities, widest: &Grants) -> Result<Grants, OrderError> {
    let mut grants = Grants::default();
    for (name, narrowed) in capabilities {
        let wrong = || OrderError::Content(format!("a session does not grant all that '{name}' names"));
        let kind = ActionKind::from_name(name).ok_or_else(wrong)?;
        // An order cannot grant more than its owner's session has.
        let wide = widest.kinds.get(&kind).ok_or_else(wrong)?;
        let is_named = |dimension: Dimension| narrowed.contains_key(dimension.as_str());
        // A dimension that the order does not name stays as wide as in a session.
        let mut scopes: std::collections::BTreeSet<_> =
            wide.iter().filter(|(dimension, _)| !is_named(*dimension)).cloned().collect();
        for (dimension, values) in narrowed {
            let dimension = Dimension::from_name(dimension).ok_or_else(wrong)?;
            for value in values {
                // A value outside the session's own scopes would widen it.
                if !widest.covers_value(kind, dimension, value) {
                    return Err(wrong());
                }
                scopes.insert((dimension, value.clone()));
            }
        }
        grants.kinds.insert(kind, scopes);
    }
    Ok(grants)
}

impl StandingOrder {
    /// Returns the signed claims.
    pub const fn claims(&self) -> &OrderClaims {
        &self.claims
    }

    /// Checks that the order opens another turn.
    ///
    /// # Errors
    ///
    /// If it has opened all of them.
    pub const fn opens_turn(&self, turns: u64) -> Result<(), OrderError> {
        if turns < self.claims.max_turns { Ok(()) } else { Err(OrderError::UsedUp(self.claims.max_turns)) }
    }
}

impl OrderClaims {
    /// The limits under it: never wider than the configuration's.
    #[must_use]
    pub fn budget_limits(&self, config: &BudgetConfig) -> BudgetConfig {
        // The lower of both limits counts.
        let cost = match (self.max_cost, config.max_cost_per_session) {
            (Some(own), Some(other)) => Some(own.min(other)),
            (own, other) => own.or(other),
        };
        BudgetConfig {
            max_tokens_per_session: config.max_tokens_per_session.min(self.max_tokens),
            max_cost_per_session: cost,
            ..config.clone()
        }
    }

    /// Every line of what a person signs.
    pub fn describe_lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("standing order {} ({})", self.name, self.order),
            format!("until {}", self.expires_at),
            format!("at most {} turns and {}", self.max_turns, self.max_tokens),
        ];
        lines.extend(self.max_cost.map(|cost| format!("at most {cost}")));
        lines.extend(self.project.as_ref().map(|project| format!("works on {}", project.escape_debug())));
        for (kind, narrowed) in &self.capabilities {
            let scopes: Vec<String> = narrowed
                .iter()
                .map(|(dimension, values)| {
                    format!(
                        "{dimension}: {}",
                        values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
                    )
                })
                .collect();
            let scopes = match scopes.is_empty() {
                true => "as in a session of yours".to_owned(),
                false => format!("{}; everything else about it as in a session of yours", scopes.join("; ")),
            };
            lines.push(format!("may {kind}: {scopes}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{EPOCH, NOW, all_grants, approver, approvers, installation, key, later};

    fn claims() -> OrderClaims {
        OrderClaims {
            installation: installation(),
            epoch: EPOCH,
            order: KeyId::from_parts(NOW, 9),
            name: "nightly".into(),
            project: None,
            capabilities: [("recall".to_owned(), BTreeMap::new())].into(),
            max_tokens: Tokens::new(1_000),
            max_cost: None,
            max_turns: 2,
            issued_at: NOW,
            expires_at: later(86_400_000),
            approver: hex::encode(approver().verifying_key().as_bytes()),
        }
    }

    fn facts() -> OrderFacts {
        OrderFacts { installation: installation(), epoch: EPOCH, seen_at: NOW, revoked: false }
    }

    fn check(claims: OrderClaims, facts: OrderFacts, now: Timestamp) -> Result<StandingOrder, OrderError> {
        verify_order(&OrderToken::sign_claims(claims, &approver()).expect("signs"), &facts, &approvers(), now)
    }

    #[test]
    fn an_order_is_in_force_as_long_as_it_says_and_no_longer() {
        let order = check(claims(), facts(), NOW).expect("in force");
        assert_eq!(order.claims(), &claims());
        assert!(check(claims(), facts(), later(86_399_999)).is_ok());
        for over in [86_400_000, i64::MAX - NOW.as_millis()] {
            assert_eq!(check(claims(), facts(), later(over)), Err(OrderError::Expired));
        }
        assert_eq!(check(claims(), facts(), later(-60_001)).err(), Some(OrderError::ClockSetBack));
        // An order that has been seen to be over stays over if the clock is set back, within the skew or beyond it.
        for (seen, now, error) in [
            (86_400_000, 86_399_999, OrderError::Expired),
            (86_400_000, 0, OrderError::ClockSetBack),
            (50_000_000, 1_000, OrderError::ClockSetBack),
        ] {
            let facts = OrderFacts { seen_at: later(seen), ..facts() };
            assert_eq!(check(claims(), facts, later(now)), Err(error), "{seen} {now}");
        }
        let lasts =
            |secs| OrderClaims { expires_at: NOW.plus_duration(Duration::from_secs(secs)), ..claims() };
        assert!(check(lasts(31_622_400), facts(), NOW).is_ok(), "366 days, as long as one may be in force");
        assert_eq!(check(lasts(31_622_401), facts(), NOW), Err(OrderError::Expired));
        let ahead = |ms| check(OrderClaims { issued_at: later(ms), ..claims() }, facts(), NOW).is_ok();
        assert!(ahead(MAX_SKEW_MS) && !ahead(MAX_SKEW_MS + 1), "a clock that goes ahead");
        assert_eq!(order.opens_turn(1), Ok(()));
        assert_eq!(order.opens_turn(2), Err(OrderError::UsedUp(2)));
    }

    #[test]
    fn an_order_of_somebody_else_or_for_somewhere_else_is_none() {
        for elsewhere in [
            OrderFacts { epoch: EPOCH + 1, ..facts() },
            OrderFacts { installation: InstallationId::from_parts(later(0), 2), ..facts() },
        ] {
            assert_eq!(check(claims(), elsewhere, NOW), Err(OrderError::Foreign));
        }
        let revoked = OrderFacts { revoked: true, ..facts() };
        assert_eq!(check(claims(), revoked, NOW), Err(OrderError::Revoked));
        let stranger = OrderToken::sign_claims(claims(), &key(9)).expect("signs");
        assert_eq!(verify_order(&stranger, &facts(), &approvers(), NOW), Err(OrderError::Signature));
        let own = OrderClaims { approver: hex::encode(key(9).verifying_key().as_bytes()), ..claims() };
        let own = OrderToken::sign_claims(own, &key(9)).expect("signs");
        assert_eq!(verify_order(&own, &facts(), &approvers(), NOW), Err(OrderError::Signature));
        let mut changed = OrderToken::sign_claims(claims(), &approver()).expect("signs");
        changed.claims.max_turns += 1;
        assert_eq!(verify_order(&changed, &facts(), &approvers(), NOW), Err(OrderError::Signature));
    }

    #[test]
    fn what_cannot_be_read_in_earnest_is_not_signed() {
        let narrowed = |dimension: &str, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            [("exec".to_owned(), BTreeMap::from([(dimension.to_owned(), values)]))].into()
        };
        for bad in [
            OrderClaims { name: " ".into(), ..claims() },
            OrderClaims { name: "a\u{202e}b".into(), ..claims() },
            OrderClaims { name: "a\nmay exec".into(), ..claims() },
            OrderClaims { name: "a\tb".into(), ..claims() },
            OrderClaims { name: "n".repeat(MAX_NAME_CHARS + 1), ..claims() },
            OrderClaims { max_turns: 0, ..claims() },
            OrderClaims { max_tokens: Tokens::ZERO, ..claims() },
            OrderClaims { capabilities: Capabilities::new(), ..claims() },
            OrderClaims { capabilities: [("everything".to_owned(), BTreeMap::new())].into(), ..claims() },
            OrderClaims { capabilities: narrowed("planet", &["mars"]), ..claims() },
            OrderClaims { capabilities: narrowed("host", &["docs.rs\u{200b}"]), ..claims() },
            OrderClaims { capabilities: narrowed("host", &["docs.rs"; MAX_SCOPES + 1]), ..claims() },
        ] {
            assert!(matches!(check(bad.clone(), facts(), NOW), Err(OrderError::Content(_))), "{bad:?}");
        }
        let good = OrderClaims { capabilities: narrowed("host", &["docs.rs"]), ..claims() };
        assert!(check(good.clone(), facts(), NOW).is_ok());
        for most in [
            OrderClaims { name: "n".repeat(MAX_NAME_CHARS), ..claims() },
            OrderClaims { capabilities: narrowed("host", &["docs.rs"; MAX_SCOPES]), ..claims() },
        ] {
            assert!(check(most.clone(), facts(), NOW).is_ok(), "exactly at a bound: {most:?}");
        }
        // The text also names grants that are not narrowed, so that the signer reads everything that is granted.
        let said = good.describe_lines().concat();
        assert!(
            said.contains("may exec: host: \"docs.rs\"; everything else about it as in a session"),
            "{said}"
        );
    }

    #[test]
    fn an_order_grants_what_it_names_of_what_a_session_grants() {
        let of = |text: &str| {
            let capabilities: Capabilities = serde_json::from_str(text).expect("JSON");
            narrow_grants(&capabilities, &all_grants())
        };
        let grants = of(r#"{"recall": {}, "fetch": {"host": []}, "read_file": {"path": ["/work/a.txt/b"]}}"#);
        let grants = grants.expect("narrower");
        assert!(grants.is_within(&all_grants()) && grants.kinds.len() == 3);
        assert!(
            !grants.covers_value(ActionKind::Fetch, Dimension::Host, "docs.rs"),
            "an empty list grants nothing"
        );
        assert!(
            grants.covers_value(ActionKind::Recall, Dimension::Memory, "session"),
            "as wide as a session"
        );
        assert!(!grants.covers_value(ActionKind::ReadFile, Dimension::Path, "/work/a.txt"));
        for wider in [
            r#"{"fetch": {"host": ["evil.example"]}}"#,
            r#"{"fetch": {"host": ["*"]}}"#,
            r#"{"nothing": {}}"#,
        ] {
            assert!(matches!(of(wider), Err(OrderError::Content(_))), "{wider}");
        }
    }

    #[test]
    fn limits_are_the_narrower_ones() {
        let config = BudgetConfig { max_cost_per_session: Some(MicroUsd::new(5)), ..BudgetConfig::default() };
        let of =
            |max_tokens, max_cost| OrderClaims { max_tokens, max_cost, ..claims() }.budget_limits(&config);
        let narrow = of(Tokens::new(7), Some(MicroUsd::new(3)));
        assert_eq!(
            (narrow.max_tokens_per_session, narrow.max_cost_per_session),
            (Tokens::new(7), Some(MicroUsd::new(3)))
        );
        let wide = of(Tokens::MAX, None);
        assert_eq!(wide.max_tokens_per_session, config.max_tokens_per_session);
        assert_eq!(wide.max_cost_per_session, config.max_cost_per_session);
    }
}
