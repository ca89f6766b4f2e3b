//! Performing what the door has permitted, and recording its outcome before the answer leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use writ_operations::{Operation, OperationResult, OperationSet, PerformError, TargetKind};
use writ_policy::keys::limits::LimitUse;
use writ_policy::permit::Permit;
use writ_store::batch::{Batch, Op};
use writ_store::error::StoreError;
use writ_store::operations::{MAX_CASE_VALUES, MAX_SEALED_BYTES, OperationOp};
use writ_store::reads::LedgerReads as _;
use writ_types::action::Action;
use writ_types::chat::ToolOutcome;
use writ_types::digest::Digest;
use writ_types::entry::Fact;
use writ_types::id::{AttemptId, EntrySeq, SessionId};
use writ_types::taint::{Label, Taint};

use super::{BusyPlace, ProxyAnswer, ProxyState};
use crate::cases::{Cases, OpenCase, ReservedSpace, TokenValues};
use crate::error::ProxyError;
use crate::events::{EventMeasure, EventSubject};
use crate::learn::Knowledge;
use crate::mask::Masker;
use crate::once::answer_place;
use crate::refusal::status;

/// The most tokens that an outcome names; their number is always there.
const MAX_NAMED_TOKENS: usize = 64;
/// The quarters of a case's room for values that answers may take: the last one is for guests.
const ROOM_OF_ANSWERS: usize = 3;
/// Room that sealing adds to an answer, in bytes.
const SEAL_BYTES: usize = 64;

/// A request that has its permit.
pub(super) struct GrantedRequest {
    pub(super) permit: Box<Permit>,
    /// The operations in force when it was decided.
    pub(super) operations: Arc<OperationSet>,
    pub(super) case: Arc<OpenCase>,
    /// Who asked, for the router's watch.
    pub(super) subject: EventSubject,
    /// The parameters as they are performed.
    pub(super) values: BTreeMap<String, String>,
    /// How far the values of its customer are known.
    pub(super) knowledge: Knowledge,
    /// Personal values of the parameters, which stand in the ledger as tokens.
    pub(super) fresh: TokenValues,
    /// The amounts that were counted.
    pub(super) uses: Vec<LimitUse>,
    /// The name under which it is performed once, and its answer stored.
    pub(super) name: Option<String>,
    pub(super) _place: BusyPlace,
    /// The room of its case for the values of the parameters.
    pub(super) _space: ReservedSpace,
}

/// The result of an operation that was performed.
struct FoundResult<'a> {
    result: &'a OperationResult,
    /// The reason why it has changed no row, if it should have.
    missed: Option<&'a str>,
    /// Personal values of the parameters.
    fresh: TokenValues,
    knowledge: Knowledge,
}

/// An attempt that has begun.
struct Begun {
    attempt: AttemptId,
    session: Option<SessionId>,
    /// The entry of its decision.
    entry: EntrySeq,
    /// It has a name by which its target knows it again.
    is_known_again: bool,
}

fn error_answer(status: u16, error: &str) -> ProxyAnswer {
    ProxyAnswer { status, body: json!({ "error": error }) }
}

fn unavailable_answer() -> ProxyAnswer {
    error_answer(status::UNAVAILABLE, "the target is not available; nothing was performed")
}

/// Answers where nothing is changed since the case has no such row, also where another customer has it.
fn missed_answer(operation: &Operation) -> ProxyAnswer {
    let found_none = json!({ "rows": [], "changed": 0, "truncated": false, "missed": true });
    let missing = json!({ "error": "there is no such record in this case", "missed": true });
    match operation.needs_row() {
        true => ProxyAnswer { status: status::MISSING, body: missing },
        false => ProxyAnswer { status: 200, body: found_none },
    }
}

/// Answers where something may have been performed.
pub(super) fn unknown_answer() -> ProxyAnswer {
    error_answer(status::UNKNOWN, "the outcome is unknown; it is not performed again")
}

/// Returns the operation of a permitted request, if it is declared still.
fn find_operation<'a>(action: &Action, operations: &'a OperationSet) -> Option<&'a Operation> {
    let Action::Operate(operate) = action else { return None };
    operations.get(&operate.operation)
}

impl ProxyState {
    /// Performs a permitted request, and records its outcome.
    pub(super) async fn perform_granted(&self, granted: GrantedRequest) -> ProxyAnswer {
        let GrantedRequest {
            permit,
            operations,
            case,
            subject,
            knowledge,
            values,
            fresh,
            uses,
            name,
            _place,
            _space,
        } = granted;
        let target = find_operation(permit.action(), &operations);
        let begun = Begun {
            attempt: permit.attempt(),
            session: permit.prepared().session,
            entry: permit.entry(),
            is_known_again: name.is_some() && target.is_some_and(Operation::is_idempotent),
        };
        // The target knows a repetition by its key, which is another one in every case.
        let key = name.as_ref().map(|name| format!("{} {name}", case.token));
        let key = key.unwrap_or_else(|| begun.attempt.to_string());
        let Some(operation) = target else {
            let why = "there is no such operation";
            return self.note_failure(&begun, &case, (fresh, uses), why, unavailable_answer()).await;
        };
        // Before it is performed: the result may repeat these values, and has their tokens then.
        case.learn_values(fresh.clone());
        // What the permit names with tokens and masks is performed as it was asked for, byte for byte: a value that is put
        // back from the map of tokens could be written otherwise.
        let restore =
            |name: &str, recorded: &str| Some(values.get(name).map_or(recorded, String::as_str).to_owned());
        let performed =
            self.targets.perform(*permit, self.clock.now(), operation, &case.scope, &key, &restore).await;
        match performed {
            Ok(result) => {
                let missed = find_miss(operation, &result);
                if missed.is_some() {
                    self.count_events(&subject, &[(EventMeasure::Missed, 1)]);
                }
                if let Some(why) = missed.filter(|_| operation.needs_row()) {
                    let (why, answer) = (format!("missed: {why}"), missed_answer(operation));
                    return self.note_failure(&begun, &case, (fresh, uses), &why, answer).await;
                }
                // A read shows by its rows that it has found nothing.
                let missed = missed.filter(|_| !operation.is_read());
                let rows = u64::try_from(result.rows.len()).unwrap_or(u64::MAX);
                if rows > 0 {
                    self.count_events(&subject, &[(EventMeasure::RecordsRead, rows)]);
                }
                let found = FoundResult { result: &result, missed, fresh, knowledge };
                self.note_success(&begun, &case, found, name.is_some()).await
            }
            // Answered like a change that found no row: the row that has the key may be another customer's.
            Err(PerformError::Taken { what }) => {
                self.count_events(&subject, &[(EventMeasure::Missed, 1)]);
                let (why, answer) = (format!("missed: {what}"), missed_answer(operation));
                self.note_failure(&begun, &case, (fresh, uses), &why, answer).await
            }
            Err(PerformError::NotPerformed { what }) => {
                self.note_failure(&begun, &case, (fresh, uses), &what, unavailable_answer()).await
            }
            Err(PerformError::Unknown { what }) => self.note_unknown(&begun, &case, fresh, &what).await,
        }
    }

    fn make_outcome(&self, begun: &Begun, outcome: ToolOutcome, summary: String, result: Digest) -> Op {
        let label = Label::new(Taint::External);
        let fact = Fact::Outcome { attempt: begun.attempt, outcome, summary, result, label };
        self.make_entry(fact, begun.session)
    }

    /// Records a result and the values behind its tokens; only then the answer leaves.
    async fn note_success(
        &self,
        begun: &Begun,
        case: &OpenCase,
        found: FoundResult<'_>,
        named: bool,
    ) -> ProxyAnswer {
        let mut masker = Masker::new(&self.secret, &self.redactor, case);
        let FoundResult { result, missed, fresh, knowledge } = found;
        masker.fresh = fresh;
        masker.hides_text = knowledge != Knowledge::Named;
        let rows = masker.mask_result(result);
        let mut summary = summarise_result(rows.len(), result, &masker);
        let mut body = json!({ "rows": rows, "changed": result.changed, "truncated": result.truncated });
        if let (Some(why), Some(fields)) = (missed, body.as_object_mut()) {
            summary = format!("missed: {why}; {summary}");
            fields.insert("missed".to_owned(), Value::Bool(true));
        }
        // What was found is known to the case by now.
        let has_room =
            masker.fresh.is_empty() || Cases::has_room(case, &TokenValues::default(), ROOM_OF_ANSWERS);
        let written = match has_room {
            true => self.write_success(begun, case, &masker.fresh, (&body, summary), named).await,
            false => {
                self.cases.forget_case(&case.token);
                Err(StoreError::TooLarge { what: "number of values of a case", limit: MAX_CASE_VALUES }
                    .into())
            }
        };
        let Err(error) = written else { return ProxyAnswer { status: 200, body } };
        tracing::error!(%error, "the outcome of an operation could not be recorded with its values");
        // Where a case has no room for the values, the ledger still says what was performed, and its rows stay here.
        let body = json!({ "rows": [], "changed": result.changed, "truncated": true });
        let summary =
            format!("{} changed; the rows are withheld: their values could not be stored", result.changed);
        match self.write_success(begun, case, &TokenValues::default(), (&body, summary), named).await {
            Ok(()) => ProxyAnswer { status: 200, body },
            Err(error) => {
                tracing::error!(%error, "the outcome of an operation could not be recorded");
                unknown_answer()
            }
        }
    }

    async fn write_success(
        &self,
        begun: &Begun,
        case: &OpenCase,
        fresh: &TokenValues,
        (body, summary): (&Value, String),
        named: bool,
    ) -> Result<(), ProxyError> {
        let bytes = serde_json::to_vec(body).unwrap_or_default();
        let mut ops = Vec::new();
        if named {
            let place = answer_place(begun.attempt);
            // Too large an answer is not stored: a repetition then gets its counts alone.
            let fits = bytes.len().saturating_add(SEAL_BYTES) <= MAX_SEALED_BYTES;
            let short = json!({ "rows": [], "changed": body.get("changed"), "truncated": true });
            let short = self.secret.seal(&place, &serde_json::to_vec(&short).unwrap_or_default())?;
            let answer = if fits { self.secret.seal(&place, &bytes)? } else { short.clone() };
            let (attempt, case) = (begun.attempt, case.token.clone());
            ops.push(Op::Operations(OperationOp::KeepAnswer { attempt, case, answer, short }));
        }
        ops.push(self.make_outcome(begun, ToolOutcome::Done, summary, Digest::of_bytes(&bytes)));
        self.commit_end(case, fresh, Batch::relaxed(ops)).await
    }

    /// Records that nothing was performed, gives back what was counted, and answers.
    async fn note_failure(
        &self,
        begun: &Begun,
        case: &OpenCase,
        (fresh, uses): (TokenValues, Vec<LimitUse>),
        why: &str,
        answer: ProxyAnswer,
    ) -> ProxyAnswer {
        // Amounts were counted on the day of the decision, which may have ended since.
        let decided = match self.store.ledger_row(begun.entry).await {
            Ok(row) => row.map_or_else(|| self.clock.now(), |row| row.at),
            Err(error) => return super::answer_unwritable(&error.into()),
        };
        let at = self.journal.budget_day(decided);
        let back = Op::Operations(OperationOp::Return { attempt: begun.attempt, uses, at });
        let outcome = self.make_outcome(begun, ToolOutcome::Failed, why.to_owned(), Digest::of_bytes(b""));
        let mut ops = open_name(begun);
        ops.extend([back, outcome]);
        match self.commit_failed(case, &fresh, Batch::relaxed(ops)).await {
            Ok(()) => answer,
            Err(error) => super::answer_unwritable(&error),
        }
    }

    /// Records that no one knows what was performed.
    async fn note_unknown(
        &self,
        begun: &Begun,
        case: &OpenCase,
        fresh: TokenValues,
        why: &str,
    ) -> ProxyAnswer {
        let outcome = self.make_outcome(begun, ToolOutcome::Unknown, why.to_owned(), Digest::of_bytes(b""));
        let mut ops = open_name(begun);
        ops.push(outcome);
        if let Err(error) = self.commit_failed(case, &fresh, Batch::synced(ops)).await {
            // The intent stays open, and the next start records it.
            tracing::error!(%error, "an unknown outcome could not be recorded");
        }
        unknown_answer()
    }

    /// Writes the end of an attempt without a result, and leaves out its parameters where a case has no room for them.
    async fn commit_failed(
        &self,
        case: &OpenCase,
        fresh: &TokenValues,
        batch: Batch,
    ) -> Result<(), ProxyError> {
        match self.commit_end(case, fresh, batch.clone()).await {
            Err(_) if !fresh.is_empty() => self.commit_end(case, &TokenValues::default(), batch).await,
            written => written,
        }
    }

    /// Writes the end of an attempt, with the values behind its tokens.
    async fn commit_end(
        &self,
        case: &OpenCase,
        fresh: &TokenValues,
        mut batch: Batch,
    ) -> Result<(), ProxyError> {
        if !fresh.is_empty() {
            // First, since the entry after them names their tokens.
            batch.ops.insert(0, Op::Operations(self.cases.seal_values(&case.token, fresh)?));
        }
        let written = self.store.commit(batch).await;
        if written.is_err() {
            // What was learned is not stored, so it is learned again.
            self.cases.forget_case(&case.token);
        }
        written?;
        self.cases.share_values(case, fresh);
        Ok(())
    }
}

/// Leaves the name of an attempt that has no answer to the same request, where its target knows that again.
fn open_name(begun: &Begun) -> Vec<Op> {
    let open = || Op::Operations(OperationOp::OpenName { attempt: begun.attempt });
    begun.is_known_again.then(open).into_iter().collect()
}

/// Returns the reason why a statement has found nothing where a row was named. Of another customer's row there is nothing to see
/// or change, so an agent that names its id has missed, as has one that does again what was done.
fn find_miss(operation: &Operation, result: &OperationResult) -> Option<&'static str> {
    let is_empty = match operation.is_read() {
        true => operation.parameters().next().is_some() && result.rows.is_empty(),
        false => result.changed == 0,
    };
    (operation.kind() == TargetKind::Sql && is_empty).then_some("no row of this case")
}

/// Says what was read and changed: counts and tokens, no value.
fn summarise_result(rows: usize, result: &OperationResult, masker: &Masker<'_>) -> String {
    let named: Vec<&str> = masker.tokens.iter().take(MAX_NAMED_TOKENS).map(String::as_str).collect();
    let more = masker.tokens.len().saturating_sub(named.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{rows} rows read, {} changed; tokens: {}{more}", result.changed, named.join(" "))
}
