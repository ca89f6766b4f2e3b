//! Standing orders, for their owner: keeping one that was signed, opening its session, listing them.

use std::sync::Arc;

use writ_policy::order::{self, OrderFacts, OrderToken};
use writ_store::batch::{Batch, Op};
use writ_store::keys::{KeyOp, OrderRow};
use writ_store::reads::{KeyReads as _, RevocationReads as _, SessionReads as _};
use writ_types::api::key::{OrderList, OrderName, OrderSession, OrderSummary, StoredOrder};
use writ_types::digest::Digest;
use writ_types::entry::Fact;

use super::MAX_LISTED;
use crate::error::{EngineError, KeysError};
use crate::methods::params::OrderRequest;
use crate::opening;
use crate::orders::session_of;
use crate::services::Services;

/// Stores an order.
///
/// # Errors
///
/// If it is not in force, grants more than a session does, or there is one with its id.
pub(super) async fn store_order(
    services: &Services,
    OrderRequest { token }: OrderRequest,
) -> Result<StoredOrder, EngineError> {
    let (at, now) = (services.journal.clock.now(), services.journal.valid_now());
    let id = token.claims.order;
    let facts = OrderFacts {
        installation: services.config.installation,
        epoch: services.config.epoch,
        seen_at: now,
        revoked: services.journal.store.is_revoked(&id.to_string()).await?,
    };
    let order = order::verify_order(&token, &facts, &services.keys.approvers().await?, now)?;
    let claims = order.claims();
    order::narrow_grants(&claims.capabilities, &crate::session::widest(claims.project.as_deref()))?;
    let text = serde_json::to_string(&token)
        .map_err(|error| EngineError::Params { method: "orders.issue".to_owned(), why: error.to_string() })?;
    let fact = Fact::Keyed {
        key: id,
        role: "order".to_owned(),
        change: "issued".to_owned(),
        grants: format!(
            "{}; sha256 {}",
            claims.describe_lines().join("; "),
            Digest::of_bytes(text.as_bytes())
        ),
    };
    let kept = OrderRow { id, token: text, expires_at: claims.expires_at, seen_at: at };
    services
        .journal
        .store
        .commit(Batch::synced(vec![services.journal.own_entry(fact), Op::Keys(KeyOp::Keep(kept))]))
        .await?;
    Ok(StoredOrder { order: id, name: claims.name.clone(), expires_at: claims.expires_at.to_string() })
}

/// Returns the session of an order that is in force, and opens it with its first use.
///
/// # Errors
///
/// If the order is not in force, its session was closed, or its folder cannot be used.
pub(super) async fn open_order(
    services: &Arc<Services>,
    OrderName { order: id }: OrderName,
) -> Result<OrderSession, EngineError> {
    let order = services.keys.order_in_force(id).await?;
    // Two that begin at once mean the same session.
    let _opening = services.sessions.opening.lock().await;
    let session = session_of(id)?;
    let session = match services.journal.store.session(session).await? {
        Some(_) => services.sessions.open_one(session).await?,
        None => opening::open_under(services, &order).await?,
    };
    Ok(OrderSession { session: session.id, order: id })
}

/// Lists the orders.
///
/// # Errors
///
/// If the store cannot be read.
pub(super) async fn list_orders(services: &Services) -> Result<OrderList, EngineError> {
    let mut listed = Vec::new();
    for kept in services.journal.store.standing_orders(MAX_LISTED).await? {
        let state = match services.keys.order_in_force(kept.id).await {
            Ok(_) => "in force".to_owned(),
            Err(EngineError::Keys(KeysError::Order(why))) => why.to_string(),
            Err(other) => return Err(other),
        };
        let Ok(OrderToken { claims, .. }) = serde_json::from_str(&kept.token) else { continue };
        let turns =
            services.journal.store.session(session_of(kept.id)?).await?.map_or(0, |row| row.turn_number);
        listed.push(OrderSummary {
            order: kept.id,
            name: claims.name,
            project: claims.project,
            state,
            expires_at: claims.expires_at.to_string(),
            turns,
            max_turns: claims.max_turns,
        });
    }
    Ok(OrderList { orders: listed })
}
