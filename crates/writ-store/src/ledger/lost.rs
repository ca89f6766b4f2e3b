//! Actions that were begun and have an unknown outcome.

use rusqlite::{Connection, params};
use writ_inspect::prepared::{leaves_nothing, request_digest};
use writ_policy::keys::limits::{CASE, REQUEST_NAME};
use writ_types::action::{Action, Operate};
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{AskId, AttemptId, EntrySeq, SessionId};

use crate::bounds::MAX_READ_ROWS;
use crate::codec::{self, execute, int};
use crate::error::StoreError;
use crate::sessions;

/// The most actions of a session with an unknown outcome that are stored one by one. From there on every
/// action of the session counts as one.
pub const MAX_LOST: usize = 1_000;

/// Records the outcome of an attempt: an unknown one, or one that settles an earlier unknown one.
pub(super) fn record_outcome(
    conn: &Connection,
    attempt: AttemptId,
    outcome: ToolOutcome,
) -> Result<(), StoreError> {
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
               AND (?2 OR EXISTS (SELECT 1 FROM lost WHERE lost.session = l.session OR lost.session GLOB 'case *'))";
    let begun = codec::query_one(conn, sql, params![attempt.to_string(), is_lost], |row| {
        Ok((row.get::<_, i64>("seq")?, row.get::<_, String>("session")?, row.get::<_, String>("payload")?))
    })?;
    let Some((entry, session, payload)) = begun else { return Ok(()) };
    let Ok(Fact::Intent { action, idempotent, .. }) = serde_json::from_str(&payload) else { return Ok(()) };
    let Some((session, request)) = lost_place(&session, &action) else { return Ok(()) };
    let most = codec::limit(MAX_LOST);
    if !is_lost {
        // The same operation under another name proves nothing about this one.
        if let Action::Operate(operate) = &action
            && !has_name_of(conn, &session, request, operate)?
        {
            return Ok(());
        }
        // If a session has reached the limit, some of its unknown outcomes have no row; then no row is removed, because all are needed.
        let sql = "DELETE FROM lost WHERE session = ?1 AND wish = ?2
                   AND (SELECT count(*) FROM lost WHERE session = ?1) < ?3";
        execute(conn, sql, params![session, request.as_bytes(), most])?;
        return Ok(());
    }
    if idempotent || leaves_nothing(&action) {
        return Ok(());
    }
    let sql = "INSERT OR REPLACE INTO lost (session, wish, entry) SELECT ?1, ?2, ?3
               WHERE (?5 IS NULL OR EXISTS (SELECT 1 FROM proxy_case WHERE token = ?5))
               AND (EXISTS (SELECT 1 FROM lost WHERE session = ?1 AND wish = ?2)
               OR (SELECT count(*) FROM lost WHERE session = ?1) < ?4)";
    // What was under way when its case was closed goes with the case.
    execute(conn, sql, params![session, request.as_bytes(), entry, most, case_of(&action)])?;
    Ok(())
}

/// Returns true if the operation with an unknown outcome has the name of this one, so that this one settles it.
fn has_name_of(
    conn: &Connection,
    place: &str,
    request: Digest,
    operate: &Operate,
) -> Result<bool, StoreError> {
    let Some(name) = operate.parameters.get(REQUEST_NAME) else { return Ok(false) };
    let sql = "SELECT p.payload FROM lost JOIN ledger_payload p ON p.seq = lost.entry
               WHERE lost.session = ?1 AND lost.wish = ?2";
    let begun = codec::query_one(conn, sql, params![place, request.as_bytes()], |row| {
        Ok(row.get::<_, String>("payload")?)
    })?;
    let begun = begun.and_then(|payload| serde_json::from_str(&payload).ok());
    let Some(Fact::Intent { action: Action::Operate(begun), .. }) = begun else { return Ok(false) };
    Ok(begun.parameters.get(REQUEST_NAME) == Some(name))
}

/// Forgets what has an unknown outcome in a case that is closed.
pub(crate) fn forget_case(conn: &Connection, case: &str) -> Result<(), StoreError> {
    execute(conn, "DELETE FROM lost WHERE session = ?1", [case_place(case)])?;
    Ok(())
}

/// Returns true if an open session still needs this intent to know that the outcome of its action is unknown.
/// A closed session does not begin anything.
pub(super) fn rests_on(conn: &Connection, intent: EntrySeq) -> Result<bool, StoreError> {
    let sql = "SELECT s.metadata FROM ledger l JOIN lost ON lost.session = l.session AND lost.entry = l.seq
               JOIN session s ON s.id = l.session WHERE l.seq = ?1";
    let session = codec::query_one(conn, sql, [int(intent.0)], |row| Ok(row.get("metadata")?))?;
    session.map_or(Ok(false), |metadata: String| Ok(!sessions::is_closed(&metadata)?))
}

/// Deletes the digest of an erased intent's action, which would confirm a guess at it.
pub(super) fn forget_erased(conn: &Connection, intent: EntrySeq) -> Result<(), StoreError> {
    // Those of operations stand under their case.
    let sql = "DELETE FROM lost WHERE entry = ?1";
    execute(conn, sql, [int(intent.0)])?;
    Ok(())
}

pub(crate) fn unknown_outcome(
    conn: &Connection,
    session: SessionId,
    action: &Action,
) -> Result<Option<EntrySeq>, StoreError> {
    if leaves_nothing(action) {
        return Ok(None);
    }
    // The door refuses an action without a canonical form, so such an action was never begun.
    let session = session.to_string();
    let Some((place, lost)) = lost_place(&session, action) else { return Ok(None) };
    Ok(read_begun(conn, &place, lost)?.max(under_way(conn, &session, action, (&place, lost))?))
}

/// Returns true if the same operation of a case runs.
pub(crate) fn is_under_way(conn: &Connection, operate: &Operate) -> Result<bool, StoreError> {
    let action = Action::Operate(operate.clone());
    // One without a case has no place but its session.
    if case_of(&action).is_none() {
        return Ok(false);
    }
    let Some((place, digest)) = lost_place("", &action) else { return Ok(false) };
    Ok(under_way(conn, "", &action, (&place, digest))?.is_some())
}

/// Returns the place and the digest under which an action with an unknown outcome is stored. An operation of the security
/// proxy belongs to its case, with any key, and its name is no part of it: under another name it does the same.
fn lost_place(session: &str, action: &Action) -> Option<(String, Digest)> {
    let (mut place, mut content) = (session.to_owned(), None);
    if let Action::Operate(operate) = action {
        let mut unnamed = operate.clone();
        unnamed.parameters.remove(REQUEST_NAME);
        if let Some(case) = case_of(action) {
            place = case_place(case);
        }
        content = Some(Action::Operate(unnamed));
    }
    Some((place, request_digest(content.as_ref().unwrap_or(action)).ok()?))
}

/// Returns the case of an operation of the security proxy.
fn case_of(action: &Action) -> Option<&str> {
    let Action::Operate(operate) = action else { return None };
    operate.parameters.get(CASE).map(String::as_str)
}

fn case_place(case: &str) -> String {
    format!("case {case}")
}

pub(crate) fn begun_since(
    conn: &Connection,
    session: SessionId,
    action: &Action,
    ask: &AskId,
) -> Result<bool, StoreError> {
    let Some(begun) = unknown_outcome(conn, session, action)? else { return Ok(false) };
    let sql = "SELECT l.seq, p.payload FROM ledger l JOIN ledger_payload p ON p.seq = l.seq
               WHERE l.session = ?1 AND l.event = 'asked' ORDER BY l.seq DESC LIMIT ?2";
    let params = params![session.to_string(), codec::limit(MAX_READ_ROWS)];
    let asked = codec::query(conn, sql, params, |row| {
        Ok((EntrySeq(codec::get_uint(row, "seq")?), row.get::<_, String>("payload")?))
    })?;
    let is_it = |payload: &str| matches!(serde_json::from_str(payload), Ok(Fact::Asked { ask: asked, .. }) if asked == *ask);
    // An ask that is older than everything that was read counts as one since which the action was begun.
    Ok(asked.into_iter().find(|(_, payload)| is_it(payload)).is_none_or(|(asked, _)| begun > asked))
}

fn read_begun(conn: &Connection, session: &str, request: Digest) -> Result<Option<EntrySeq>, StoreError> {
    let sql = "SELECT entry FROM lost WHERE session = ?1
               AND (wish = ?2 OR (SELECT count(*) FROM lost WHERE session = ?1) >= ?3)
               ORDER BY entry DESC LIMIT 1";
    let params = params![session, request.as_bytes(), codec::limit(MAX_LOST)];
    codec::query_one(conn, sql, params, |row| Ok(EntrySeq(codec::get_uint(row, "entry")?)))
}

/// Returns the intent of an attempt without an outcome: it runs, or its process has failed. Those of a case count, whatever
/// session they are of.
fn under_way(
    conn: &Connection,
    session: &str,
    action: &Action,
    place: (&str, Digest),
) -> Result<Option<EntrySeq>, StoreError> {
    // In this order: few are open, and a session may have any number of entries.
    let sql = "SELECT l.seq, l.session, p.payload FROM intent i CROSS JOIN ledger l ON l.seq = i.entry
               CROSS JOIN ledger_payload p ON p.seq = l.seq
               WHERE i.closed_by IS NULL AND (l.session = ?1 OR instr(p.payload, ?3) > 0)
               ORDER BY i.entry DESC LIMIT ?2";
    // A text that no payload has, where there is no case.
    let case = case_of(action).unwrap_or("\n");
    let open = codec::query(conn, sql, params![session, codec::limit(MAX_READ_ROWS), case], |row| {
        let session: Option<String> = row.get("session")?;
        Ok((
            EntrySeq(codec::get_uint(row, "seq")?),
            session.unwrap_or_default(),
            row.get::<_, String>("payload")?,
        ))
    })?;
    let is_it = |session: &str, payload: &str| {
        let Ok(Fact::Intent { action, idempotent, .. }) = serde_json::from_str(payload) else { return false };
        let same = lost_place(session, &action);
        !idempotent
            && !leaves_nothing(&action)
            && same.is_some_and(|(at, found)| (at.as_str(), found) == place)
    };
    Ok(open.into_iter().find(|(_, session, payload)| is_it(session, payload)).map(|(entry, ..)| entry))
}

#[cfg(test)]
mod tests {
    use writ_types::action::Forget;
    use writ_types::entry::Entry;
    use writ_types::id::MemoryId;
    use writ_types::taint::{Label, Taint};

    use super::*;
    use crate::batch::Op;
    use crate::sessions::CLOSED_AT;
    use crate::testing::*;

    fn forget(n: u128) -> Action {
        Action::Forget(Forget { memory: MemoryId::from_parts(at(0), n) })
    }

    fn begun(n: u128, action: Action, idempotent: bool) -> Op {
        let Fact::Intent { attempt, prepared, label, .. } = intent(n).fact else { panic!("an intent") };
        let (call, approval, requester) = (None, None, None);
        let fact = Fact::Intent { attempt, prepared, action, call, approval, idempotent, label, requester };
        Op::Append(Box::new(Entry { fact, ..intent(n) }))
    }

    fn ended(n: u128, outcome: ToolOutcome) -> Op {
        let fact = Fact::Outcome {
            attempt: attempt(n),
            outcome,
            summary: String::new(),
            result: Digest::of_bytes(b""),
            label: Label::new(Taint::Owner),
        };
        Op::Append(Box::new(Entry { fact, ..intent(n) }))
    }

    /// What is lost is so over a restart, for its session and just this; until something is known again.
    #[test]
    fn an_unknown_outcome_stays_until_it_is_settled() {
        let home = TestHome::new().with_session(1);
        let lost = |home: &TestHome, action: &Action| {
            home.store.blocking().unknown_outcome(session(1), action).expect("reads")
        };
        home.commit(vec![begun(1, forget(1), false), ended(1, ToolOutcome::Failed)]);
        assert_eq!(lost(&home, &forget(1)), None);
        home.commit(vec![begun(2, forget(1), false), ended(2, ToolOutcome::Unknown)]);
        home.commit(vec![begun(3, forget(2), true), ended(3, ToolOutcome::Unknown)]);
        home.commit(vec![begun(4, action("x"), false), ended(4, ToolOutcome::Unknown)]);
        let home = home.reopened();
        let begun_at = EntrySeq(2);
        assert_eq!(lost(&home, &forget(1)), Some(begun_at));
        assert_eq!(
            home.store.blocking().unknown_outcome(session(2), &forget(1)),
            Ok(None),
            "another session"
        );
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

    /// What counts is which of them the ledger has first, and not the clock.
    #[test]
    fn a_question_knows_of_what_was_begun_before_it() {
        let home = TestHome::new().with_session(1);
        let asked = |n: u64| home.commit(vec![Op::OpenAsk(Box::new(ask(n, &n.to_string())))]);
        let since = |n| home.store.blocking().begun_since(session(1), &forget(1), &ask_id(n)).expect("reads");
        asked(1);
        assert!(!since(1), "nothing was begun");
        home.commit(vec![begun(1, forget(1), false), ended(1, ToolOutcome::Unknown)]);
        asked(2);
        assert_eq!(
            (since(1), since(2), since(3)),
            (true, false, true),
            "before, after, and one that nobody knows"
        );
        home.commit(vec![begun(2, forget(1), false)]);
        assert!(since(2), "it is under way again");
    }

    /// What is under way, or was left open, is lost as well, for its session and just this.
    #[test]
    fn an_attempt_under_way_counts_as_unknown() {
        let home = TestHome::new().with_session(1);
        let lost = |n| home.store.blocking().unknown_outcome(session(1), &forget(n)).expect("reads");
        home.commit(vec![begun(1, forget(1), false), begun(2, forget(2), true)]);
        assert_eq!((lost(1), lost(2), lost(3)), (Some(EntrySeq(0)), None, None), "one may be repeated");
        assert_eq!(
            home.store.blocking().unknown_outcome(session(2), &forget(1)),
            Ok(None),
            "another session"
        );
        home.commit(vec![ended(1, ToolOutcome::Failed)]);
        assert_eq!(lost(1), None, "it is known what came of it");
    }

    /// Where too many are lost to be told apart, whatever could be is lost, and stays so.
    #[test]
    fn a_session_that_has_lost_too_much_has_lost_everything() {
        let home = TestHome::new().with_session(1).with_session(2);
        let all = |range: std::ops::RangeInclusive<u128>| {
            let ops = range.flat_map(|n| [begun(n, forget(n), false), ended(n, ToolOutcome::Unknown)]);
            home.commit(ops.collect());
        };
        let (most, lost) = (MAX_LOST as u128, |n| {
            home.store.blocking().unknown_outcome(session(1), &forget(n)).expect("reads")
        });
        all(1..=most - 1);
        assert_eq!((lost(1), lost(most)), (Some(EntrySeq(0)), None));
        all(most..=most + 2);
        let another = most + 7;
        assert!([1, most, most + 2, another].into_iter().all(|n| lost(n).is_some()));
        assert_eq!(
            home.store.blocking().unknown_outcome(session(1), &action("x")),
            Ok(None),
            "reading leaves nothing"
        );
        assert_eq!(
            home.store.blocking().unknown_outcome(session(2), &forget(1)),
            Ok(None),
            "another session"
        );
        home.commit(vec![begun(another, forget(1), false), ended(another, ToolOutcome::Done)]);
        assert!(lost(most + 2).is_some(), "it stands in no row");
    }

    /// An intent whose outcome is unknown stays while its session may request the same again; then the payload can be erased.
    #[test]
    fn what_was_lost_is_erased_when_its_session_is_closed() {
        let home = TestHome::new().with_session(1);
        home.commit(vec![begun(1, forget(1), false), ended(1, ToolOutcome::Unknown)]);
        let erase = || home.try_commit(vec![Op::ErasePayload { entry: EntrySeq(0), at: at(9) }]).map(|_| ());
        let refused = erase().expect_err("it would be done again without a question");
        assert!(refused.to_string().contains("repeating it would not ask"), "{refused}");
        assert_eq!(home.store.blocking().old_payloads(at(1_000), at(1_000)), Ok(vec![EntrySeq(1)]));
        let value = Some("now".into());
        home.commit(vec![Op::SetSessionMetadata { session: session(1), key: CLOSED_AT.to_owned(), value }]);
        assert_eq!(erase(), Ok(()));
        assert_eq!(
            home.store.blocking().unknown_outcome(session(1), &forget(1)),
            Ok(None),
            "nothing is left of it"
        );
    }
}
