//! Reads that answer several questions at once, on one snapshot.

use std::collections::BTreeSet;

use rusqlite::Connection;
use writ_types::id::{AskId, SessionId};
use writ_types::unit::Timestamp;

use super::{AskState, PlanRow, StoredApproval, StoredAsk, plans};
use crate::codec;
use crate::error::StoreError;

/// An ask, and its approval if it has one.
pub(crate) type AskWithApproval = (StoredAsk, Option<StoredApproval>);

fn with_approvals(conn: &Connection, asks: Vec<StoredAsk>) -> Result<Vec<AskWithApproval>, StoreError> {
    let with_approval = |ask: StoredAsk| {
        // An open ask cannot have one, and most that are listed are open.
        let approval = match ask.state {
            AskState::Open => None,
            AskState::Approved | AskState::Denied | AskState::Expired | AskState::Used => {
                super::read_approval(conn, &ask.card.ask_id)?
            }
        };
        Ok((ask, approval))
    };
    asks.into_iter().map(with_approval).collect()
}

pub(crate) fn ask_with_approval(
    conn: &Connection,
    ask: &AskId,
) -> Result<Option<AskWithApproval>, StoreError> {
    codec::snapshot(conn, |conn| {
        let found = super::read_ask(conn, ask)?;
        Ok(with_approvals(conn, found.into_iter().collect())?.pop())
    })
}

pub(crate) fn asks_with_approvals(
    conn: &Connection,
    state: Option<AskState>,
    limit: usize,
) -> Result<Vec<AskWithApproval>, StoreError> {
    codec::snapshot(conn, |conn| with_approvals(conn, super::read_asks(conn, state, limit)?))
}

pub(crate) fn waiting_asks_with_approvals(
    conn: &Connection,
    session: SessionId,
    limit: usize,
) -> Result<Vec<AskWithApproval>, StoreError> {
    codec::snapshot(conn, |conn| with_approvals(conn, super::waiting_asks(conn, session, limit)?))
}

pub(crate) fn overdue_asks_with_approvals(
    conn: &Connection,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<AskWithApproval>, StoreError> {
    codec::snapshot(conn, |conn| with_approvals(conn, super::overdue_asks(conn, now, limit)?))
}

pub(crate) fn plans_left_with_approvals(
    conn: &Connection,
    session: Option<SessionId>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(PlanRow, StoredAsk, StoredApproval)>, StoreError> {
    codec::snapshot(conn, |conn| {
        let mut found = Vec::new();
        for plan in plans::plans_left(conn, session, now, limit)? {
            let (ask, approval) = (super::read_ask(conn, &plan.ask)?, super::read_approval(conn, &plan.ask)?);
            found.extend(ask.zip(approval).map(|(ask, approval)| (plan, ask, approval)));
        }
        Ok(found)
    })
}

pub(crate) fn revoked_among(conn: &Connection, ids: &[String]) -> Result<BTreeSet<String>, StoreError> {
    codec::snapshot(conn, |conn| {
        let mut revoked = BTreeSet::new();
        for id in ids {
            if super::is_revoked(conn, id)? {
                revoked.insert(id.clone());
            }
        }
        Ok(revoked)
    })
}
