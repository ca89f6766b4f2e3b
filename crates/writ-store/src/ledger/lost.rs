//! Wishes that were begun, and of which nobody knows whether they were done.

use rusqlite::{Connection, params};
use writ_policy::prepared::{leaves_nothing, wish};
use writ_types::action::Action;
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{AttemptId, SessionId};
use writ_types::unit::Timestamp;

use crate::codec::{self, execute};
use crate::error::StoreError;
use crate::store::Store;

/// The most lost wishes of a session that are kept: the oldest go first.
pub const MAX_LOST: usize = 1_000;

/// Notes what became of an attempt: a wish that is lost, or one of which it is known again what came of it.
pub(super) fn ended(conn: &Connection, attempt: AttemptId, outcome: ToolOutcome) -> Result<(), StoreError> {
    // That a second attempt has failed says nothing of the first.
    let is_lost = match outcome {
        ToolOutcome::Unknown => true,
        ToolOutcome::Done => false,
        ToolOutcome::Failed
        | ToolOutcome::Denied
        | ToolOutcome::Waiting
        | ToolOutcome::Simulated
        | ToolOutcome::Cancelled => return Ok(()),
    };
    let sql = "SELECT l.seq, l.session, p.payload FROM intent i JOIN ledger l ON l.seq = i.entry
               JOIN ledger_payload p ON p.seq = l.seq
               WHERE i.attempt = ?1 AND l.session IS NOT NULL
               AND (?2 OR EXISTS (SELECT 1 FROM lost WHERE lost.session = l.session))";
    let begun = codec::query_one(conn, sql, params![attempt.to_string(), is_lost], |row| {
        Ok((row.get::<_, i64>("seq")?, row.get::<_, String>("session")?, row.get::<_, String>("payload")?))
    })?;
    let Some((entry, session, payload)) = begun else { return Ok(()) };
    let Ok(Fact::Intent { action, idempotent, .. }) = serde_json::from_str(&payload) else { return Ok(()) };
    let Ok(wish) = wish(&action) else { return Ok(()) };
    if !is_lost {
        execute(
            conn,
            "DELETE FROM lost WHERE session = ?1 AND wish = ?2",
            params![session, wish.as_bytes()],
        )?;
        return Ok(());
    }
    if idempotent || leaves_nothing(&action) {
        return Ok(());
    }
    let sql = "INSERT OR REPLACE INTO lost (session, wish, entry) VALUES (?1, ?2, ?3)";
    execute(conn, sql, params![session, wish.as_bytes(), entry])?;
    let sql = "DELETE FROM lost WHERE session = ?1 AND entry <= (SELECT entry FROM lost WHERE session = ?1
               ORDER BY entry DESC LIMIT 1 OFFSET ?2)";
    execute(conn, sql, params![session, codec::limit(MAX_LOST)])?;
    Ok(())
}

impl Store {
    /// When a session began to do just this and nobody knows whether it was done; nothing, if it never did, if it does
    /// no harm to do it twice, or if it was done since.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn lost(&self, session: SessionId, action: &Action) -> Result<Option<Timestamp>, StoreError> {
        let session = session.to_string();
        self.read(|conn| {
            let sql = "SELECT EXISTS (SELECT 1 FROM lost WHERE session = ?1) AS some";
            if codec::query_one(conn, sql, [&session], |row| Ok(row.get("some")?))? != Some(true) {
                return Ok(None);
            }
            // What has no canonical form is refused by the door.
            let Ok(wish) = wish(action) else { return Ok(None) };
            begun(conn, &session, wish)
        })
    }
}

fn begun(conn: &Connection, session: &str, wish: Digest) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT l.at FROM lost JOIN ledger l ON l.seq = lost.entry WHERE lost.session = ?1 AND lost.wish = ?2";
    codec::query_one(conn, sql, params![session, wish.as_bytes()], |row| codec::get_time(row, "at"))
}

#[cfg(test)]
mod tests {
    use writ_types::action::Forget;
    use writ_types::entry::Entry;
    use writ_types::id::MemoryId;
    use writ_types::taint::{Label, Taint};

    use super::*;
    use crate::batch::Op;
    use crate::testing::*;

    fn forget(n: u128) -> Action {
        Action::Forget(Forget { memory: MemoryId::from_parts(at(0), n) })
    }

    fn begun(n: u128, action: Action, idempotent: bool) -> Op {
        let Fact::Intent { attempt, prepared, label, .. } = intent(n).fact else { panic!("an intent") };
        let fact = Fact::Intent { attempt, prepared, action, call: None, approval: None, idempotent, label };
        Op::Append(Box::new(Entry { fact, ..intent(n) }))
    }

    fn ended(n: u128, outcome: ToolOutcome) -> Op {
        let fact = Fact::Outcome {
            attempt: attempt(n),
            outcome,
            summary: String::new(),
            result: Digest::of(b""),
            label: Label::new(Taint::Owner),
        };
        Op::Append(Box::new(Entry { fact, ..intent(n) }))
    }

    /// What is lost is so over a restart, for its session and just this; until something is known again.
    #[test]
    fn a_lost_wish_is_known_until_it_is_known_what_came_of_it() {
        let home = Home::new().with_session(1);
        let lost = |home: &Home, action: &Action| home.store.lost(session(1), action).expect("reads");
        home.commit(vec![begun(1, forget(1), false), ended(1, ToolOutcome::Failed)]);
        assert_eq!(lost(&home, &forget(1)), None);
        home.commit(vec![begun(2, forget(1), false), ended(2, ToolOutcome::Unknown)]);
        home.commit(vec![begun(3, forget(2), true), ended(3, ToolOutcome::Unknown)]);
        home.commit(vec![begun(4, action("x"), false), ended(4, ToolOutcome::Unknown)]);
        let home = home.reopened();
        let begun_at = intent(2).at;
        assert_eq!(lost(&home, &forget(1)), Some(begun_at));
        assert_eq!(home.store.lost(session(2), &forget(1)), Ok(None), "another session");
        assert_eq!(
            (lost(&home, &forget(2)), lost(&home, &forget(3))),
            (None, None),
            "idempotent, and another one"
        );
        assert_eq!(lost(&home, &action("x")), None, "reading leaves nothing");
        home.commit(vec![begun(5, forget(3), false), ended(5, ToolOutcome::Done)]);
        assert_eq!(lost(&home, &forget(1)), Some(begun_at), "that was another one");
        for (n, outcome) in [(7, ToolOutcome::Failed), (8, ToolOutcome::Cancelled), (9, ToolOutcome::Denied)]
        {
            home.commit(vec![begun(n, forget(1), false), ended(n, outcome)]);
            assert_eq!(lost(&home, &forget(1)), Some(begun_at), "{outcome:?} says nothing of the first");
        }
        home.commit(vec![begun(6, forget(1), false), ended(6, ToolOutcome::Done)]);
        assert_eq!(lost(&home, &forget(1)), None);
    }

    #[test]
    fn what_is_lost_is_bounded_for_a_session_and_the_oldest_goes() {
        let home = Home::new().with_session(1);
        let count = MAX_LOST as u128 + 2;
        let ops = (1..=count).flat_map(|n| [begun(n, forget(n), false), ended(n, ToolOutcome::Unknown)]);
        home.commit(ops.collect());
        let known = (1..=count).filter(|n| home.store.lost(session(1), &forget(*n)) != Ok(None));
        assert!(known.eq(3..=count));
    }
}
