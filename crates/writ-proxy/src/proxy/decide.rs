//! The checks of a request, in their order: keys, user, operation, parameters, case, name, door.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_operations::Operation;
use writ_operations::parameter::Parameter;
use writ_policy::budget::{BudgetConfig, Spent};
use writ_policy::keys::Authority;
use writ_policy::keys::limits::{self, CASE, CUSTOMER, REQUEST_NAME};
use writ_policy::permit::{OnceName, Permit, RequestOrigin};
use writ_runtime::door::{Circumstances, Passage, RequestContext};
use writ_store::batch::{Batch, Op};
use writ_store::reads::{LedgerReads as _, RevocationReads as _};
use writ_types::action::{Action, Operate};
use writ_types::digest::Digest;
use writ_types::entry::{DenyReason, Fact, Requester};
use writ_types::taint::{Label, Taint};

use super::perform::GrantedRequest;
use super::router::make_note;
use super::{Admission, BusyPlace, Peer, ProxyRequest, ProxyState, RequestEnd, is_granted};
use crate::cases::{CaseSpace, Cases, OpenCase, TokenValues};
use crate::error::ProxyError;
use crate::events::{EventMeasure, EventSubject};
use crate::keys::ShownKeys;
use crate::known::MIN_NUMBER_CHARS;
use crate::learn::learn_customer;
use crate::mask::{Masker, PutBackError, put_back};
use crate::naming::{MAX_GUESSES, NamedValues, Naming};
use crate::once::{Earlier, find_earlier, is_name, once_name};
use crate::refusal::{ProxyRefusal, UNDER_WAY};
use crate::search::Depth;

/// The quarters of a case's room for values that may be taken when an agent writes more of them. The rest is for what operations
/// read, and for guests: no agent can make a case deaf.
const ROOM_OF_PARAMETERS: usize = 2;

/// The time after which keys are looked at again, where the body of their request has not come by then.
const CHECKED_FOR: Duration = Duration::from_millis(100);

impl ProxyState {
    /// Verifies who asks, and takes a place among the requests of that agent.
    pub(super) async fn identify_agent(
        self: &Arc<Self>,
        request: &ProxyRequest,
        requester: &mut Requester,
    ) -> Result<(Arc<Authority>, BusyPlace), RequestEnd> {
        let authority = self.check_agent(request, requester).await?;
        let place = BusyPlace::take(self, &authority).ok_or_else(ProxyRefusal::refuse_busy)?;
        Ok((authority, place))
    }

    /// Verifies who asks.
    pub(super) async fn check_agent(
        &self,
        request: &ProxyRequest,
        requester: &mut Requester,
    ) -> Result<Arc<Authority>, RequestEnd> {
        let shown = ShownKeys { base: request.base.clone(), task: request.task.clone() };
        let now = self.journal.valid_now();
        let authority = self.keys.check_keys(&shown, requester, now).await??;
        // The router's own list as well: an answer that is repeated, and the list of operations, do not pass the door.
        let ids: Vec<String> = authority.revocation_ids().iter().cloned().collect();
        if !self.store.revoked_among(&ids).await?.is_empty() {
            return Err(
                ProxyRefusal::refuse_unproven(DenyReason::Revoked, "revoked", "a key was revoked").into()
            );
        }
        // A copied key is of no use to the programs of another user.
        if let Some(agent) = self.agents.get(authority.agent()) {
            let is_own = matches!(request.peer, Peer::Local(uid) if agent.uids.contains(&uid));
            if !is_own {
                let error = "the key belongs to another agent";
                return Err(ProxyRefusal::refuse_unproven(DenyReason::Binding, "user", error).into());
            }
        }
        Ok(authority)
    }

    /// Takes a request through all checks, up to the permit.
    pub(super) async fn grant_request(
        self: &Arc<Self>,
        request: &ProxyRequest,
        requester: &mut Requester,
        admission: Admission,
    ) -> Result<GrantedRequest, RequestEnd> {
        let Admission { mut authority, place, since, .. } = admission;
        // A key may have been revoked while the body came.
        if self.clock.elapsed().saturating_sub(since) >= CHECKED_FOR {
            authority = self.check_agent(request, requester).await?;
        }
        let name = request.operation.as_str();
        // Before the operation is looked up: a key learns only of its own operations which of them exist.
        if !is_granted(&authority, name) {
            let error = "the key does not grant this operation";
            return Err(ProxyRefusal::refuse_forbidden(DenyReason::Capability, "operation", error).into());
        }
        let operations = self.operations();
        let Some(operation) = operations.get(name) else {
            let error = "there is no such operation";
            return Err(ProxyRefusal::refuse_forbidden(DenyReason::Capability, "undeclared", error).into());
        };
        let mut body = read_body(&request.body)?;
        let case = self.find_case(&authority, &mut body).await?;
        let knowledge = learn_customer(self, &case).await;
        let given = check_given(operation, &body, &case)?;
        check_amounts(operation, &authority, &given.shown)?;
        let once = self.name_request(request, &case, &given.shown)?;
        if let Some(once) = &once {
            match find_earlier(&self.store, &self.secret, once).await? {
                Earlier::New => {}
                Earlier::Done(attempt, body) => return Err(RequestEnd::Served(attempt, body)),
                Earlier::Refused(refusal) => return Err(refusal.into()),
            }
        }
        let (recorded, fresh, named) =
            self.recorded_parameters(operation, &authority, &case, &given.shown, once.as_ref());
        let subject = subject_of(&authority, &case);
        self.count_named(&authority, &case, (&named, &subject)).await?;
        // Also where the case knows the values: another answer would confirm a guess at one.
        let wanted = CaseSpace { values: named.tokens.len(), bytes: named.bytes };
        let space = Cases::reserve_space(&case, wanted, ROOM_OF_PARAMETERS);
        let space = space.ok_or_else(ProxyRefusal::refuse_full)?;
        let action = Operate { operation: name.to_owned(), parameters: recorded };
        let uses = limits::counted_uses(&action, &authority);
        let only_reads = operation.is_read();
        let origin = RequestOrigin { requester: requester.clone(), denied_prompt: None, once, only_reads };
        let mut prepared = prepare_operation(action, &authority, only_reads, operations.digest());
        if operation.is_idempotent() && self.is_known_again(&prepared).await? {
            prepared.call = None;
        }
        let permit = self.pass_door(prepared, &authority, &origin).await?;
        let name = origin.once.map(|once| once.name);
        Ok(GrantedRequest {
            permit,
            operations,
            case,
            subject,
            knowledge,
            values: given.values,
            fresh,
            uses,
            name,
            _place: place,
            _space: space,
        })
    }

    /// Finds the case of the keys. Tokens in the parameters must be those of the keys.
    async fn find_case(
        &self,
        authority: &Authority,
        body: &mut Map<String, Value>,
    ) -> Result<Arc<OpenCase>, RequestEnd> {
        let outside = |rule| {
            ProxyRefusal::refuse_forbidden(DenyReason::Scope, rule, "this is outside the case of the key")
        };
        let of_key = authority.task().case.as_ref().ok_or_else(|| outside("no case"))?;
        for (name, expected) in [(CUSTOMER, &of_key.customer), (CASE, &of_key.case)] {
            // A raw number of a customer is refused like another customer's token.
            if body.remove(name).is_some_and(|given| given != Value::String(expected.clone())) {
                return Err(outside(name).into());
            }
        }
        let found = self.cases.find_case(&of_key.case).await?;
        let case = found.filter(|case| case.customer_token == of_key.customer);
        case.ok_or_else(|| outside("closed case").into())
    }

    /// Returns the name under which the request is performed once, if it has one.
    fn name_request(
        &self,
        request: &ProxyRequest,
        case: &OpenCase,
        given: &BTreeMap<String, String>,
    ) -> Result<Option<OnceName>, ProxyRefusal> {
        let Some(name) = request.once.as_ref() else { return Ok(None) };
        if !is_name(name) {
            let error = "an idempotency key has 1 to 128 visible ASCII characters";
            return Err(ProxyRefusal::refuse_malformed(error.to_owned()));
        }
        let parts: Vec<&str> =
            given.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
        let scope = format!("{} {}", case.token, request.operation);
        Ok(Some(once_name(&self.secret, scope, name, &parts)))
    }

    /// Returns the parameters as they stand in the ledger: with tokens in place of what an agent has read in a chat; the values
    /// that the case does not know, and all that they name.
    fn recorded_parameters(
        &self,
        operation: &Operation,
        authority: &Authority,
        case: &OpenCase,
        given: &BTreeMap<String, String>,
        once: Option<&OnceName>,
    ) -> (BTreeMap<String, String>, TokenValues, NamedValues) {
        // What a key limits must stay as it is, so that the door can judge it.
        let mut plain: BTreeSet<&str> = BTreeSet::new();
        for grants in [&authority.base().grants, &authority.task().grants] {
            let limits = grants.limits.get(operation.name());
            plain.extend(limits.iter().flat_map(|limits| limits.amounts.keys().map(String::as_str)));
            plain.extend(limits.iter().flat_map(|limits| limits.values.keys().map(String::as_str)));
        }
        let mut masker = Masker::new(&self.secret, &self.redactor, case);
        let mut recorded: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in given {
            // As in answers: of short numbers any could be the id of the customer.
            let is_number = |(own, parameter): (&str, &Parameter)| own == name && !parameter.is_text();
            let is_short = value.len() < MIN_NUMBER_CHARS && operation.parameters().any(is_number);
            let value = match is_short || plain.contains(name.as_str()) {
                true => value.clone(),
                false => masker.mask_text(value, Depth::Plain),
            };
            recorded.insert(name.clone(), value);
        }
        recorded.insert(CUSTOMER.to_owned(), case.customer_token.clone());
        recorded.insert(CASE.to_owned(), case.token.clone());
        // With its name a request is another one than its twin.
        if let Some(once) = once {
            recorded.insert(REQUEST_NAME.to_owned(), once.name.clone());
        }
        let mut tokens = masker.tokens;
        tokens.retain(|token| *token != case.customer_token && *token != case.token);
        let bytes = tokens.iter().map(String::len).chain(given.values().map(String::len)).sum();
        (recorded, masker.fresh, NamedValues { tokens, bytes, known: masker.found })
    }

    /// Counts the values that an agent names without their tokens. One that guesses too many right loses its key.
    async fn count_named(
        &self,
        authority: &Authority,
        case: &OpenCase,
        (named, subject): (&NamedValues, &EventSubject),
    ) -> Result<(), RequestEnd> {
        let naming = case.lasting.shares.count_named(authority.agent(), named);
        if let Naming::Within(guesses @ 1..) | Naming::Over(guesses @ 1..) = naming {
            self.count_events(subject, &[(EventMeasure::Masked, guesses)]);
        }
        match naming {
            Naming::Within(_) => Ok(()),
            Naming::Full => Err(ProxyRefusal::refuse_full().into()),
            Naming::Over(_) => {
                let (task, at) = (authority.task(), self.clock.now());
                let id = task.key.to_string();
                let summary = format!(
                    "revoked: {id}: {} has named more than {MAX_GUESSES} values of case {} without their tokens",
                    authority.agent(),
                    case.token
                );
                let revoke = Op::Revoke { id, at, expires_at: Some(task.expires_at) };
                self.store.commit(Batch::synced(vec![revoke, make_note(self, summary)])).await?;
                Err(ProxyRefusal::refuse_guesses().into())
            }
        }
    }

    /// Returns true if what has an unknown outcome is the same request under the same name, by which its target knows it again.
    async fn is_known_again(&self, prepared: &Prepared) -> Result<bool, ProxyError> {
        let (Some(session), Action::Operate(wanted)) = (prepared.session, &prepared.action) else {
            return Ok(false);
        };
        let Some(name) = wanted.parameters.get(REQUEST_NAME) else { return Ok(false) };
        let Some(begun) = self.store.unknown_outcome(session, &prepared.action).await? else {
            return Ok(false);
        };
        let entry = self.store.ledger_row(begun).await?.and_then(|row| row.entry());
        let Some(Fact::Intent { action: Action::Operate(begun), .. }) = entry.map(|entry| entry.fact) else {
            return Ok(false);
        };
        Ok(begun.operation == wanted.operation && begun.parameters.get(REQUEST_NAME) == Some(name))
    }

    /// Asks the door, which writes the decision.
    async fn pass_door(
        &self,
        prepared: Prepared,
        authority: &Authority,
        origin: &RequestOrigin,
    ) -> Result<Box<Permit>, RequestEnd> {
        let context =
            RequestContext { request: Some(origin), ..RequestContext::of(authority, Spent::default()) };
        let circumstances = Circumstances {
            rules: Arc::clone(&self.rules),
            home_rules: Arc::clone(&self.rules),
            egress: EgressScope::default(),
            origins: Cow::Owned(Origins::default()),
            limits: BudgetConfig { max_tool_calls_per_turn: u64::MAX, ..BudgetConfig::default() },
            work: None,
        };
        match self.door.pass(prepared, context, &circumstances).await? {
            Passage::Permit(permit) => Ok(permit),
            Passage::Denied(denial) => Err(RequestEnd::Recorded(ProxyRefusal::refuse_denied(&denial))),
            // Nothing asks but an earlier request of the same content without a known outcome.
            Passage::Ask(_) => Err(ProxyRefusal::refuse_repeated(UNDER_WAY).into()),
            Passage::Simulated(_) => {
                Err(ProxyRefusal::refuse_forbidden(DenyReason::Rule, "simulated", "the rules forbid it")
                    .into())
            }
        }
    }
}

/// The parameters of a request.
struct GivenParameters {
    /// As the agent has written them, with tokens.
    shown: BTreeMap<String, String>,
    /// As they are performed, with the values of the case in place of its tokens.
    values: BTreeMap<String, String>,
}

/// Puts values in place of tokens, and checks what is then performed against the declaration.
fn check_given(
    operation: &Operation,
    body: &Map<String, Value>,
    case: &OpenCase,
) -> Result<GivenParameters, ProxyRefusal> {
    let mut restored = body.clone();
    for value in restored.values_mut() {
        let Value::String(text) = value else { continue };
        *text = put_back(text, case).map_err(|error| match error {
            PutBackError::Foreign => {
                let error = "a parameter holds a token that is none of this case";
                ProxyRefusal::refuse_forbidden(DenyReason::Scope, "token", error)
            }
            PutBackError::TooLong => ProxyRefusal::refuse_malformed(
                "a parameter is too long with the values of its tokens".to_owned(),
            ),
        })?;
    }
    let values = operation
        .check_parameters(&restored)
        .map_err(|error| ProxyRefusal::refuse_malformed(error.to_string()))?;
    let shown = |(name, value): (&String, &String)| {
        let text = body.get(name).and_then(Value::as_str).unwrap_or(value);
        (name.clone(), text.to_owned())
    };
    Ok(GivenParameters { shown: values.iter().map(shown).collect(), values })
}

/// Refuses an amount that the keys do not bound where they bound another one of the same operation: it would lead around that.
fn check_amounts(
    operation: &Operation,
    authority: &Authority,
    given: &BTreeMap<String, String>,
) -> Result<(), ProxyRefusal> {
    let grants = [&authority.base().grants, &authority.task().grants];
    let limits: Vec<_> = grants.iter().filter_map(|grants| grants.limits.get(operation.name())).collect();
    let is_bounded = |name: &&str| {
        limits.iter().any(|limits| limits.amounts.contains_key(*name) || limits.totals.contains_key(*name))
    };
    let (bounded, open): (Vec<&str>, Vec<&str>) = operation.amount_parameters().partition(is_bounded);
    if !bounded.is_empty() && open.iter().any(|name| given.contains_key(*name)) {
        let error = "a value is outside the limits of the key";
        return Err(ProxyRefusal::refuse_forbidden(DenyReason::Limit, "unbounded", error));
    }
    Ok(())
}

/// Names the agent, case and customer of a request in the events for the router.
fn subject_of(authority: &Authority, case: &OpenCase) -> EventSubject {
    EventSubject {
        agent: authority.agent().to_owned(),
        case_token: case.token.clone(),
        customer: case.fingerprint.clone(),
    }
}

/// Reads the parameters of a request.
fn read_body(body: &Result<Vec<u8>, String>) -> Result<Map<String, Value>, ProxyRefusal> {
    let bytes = body.as_ref().map_err(|why| ProxyRefusal::refuse_malformed(why.clone()))?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    // The parser's own text could quote what stands in the body.
    let malformed =
        || ProxyRefusal::refuse_malformed("the body must be a JSON object of parameters".to_owned());
    serde_json::from_slice(bytes).map_err(|_| malformed())
}

fn prepare_operation(action: Operate, authority: &Authority, only_reads: bool, declared: Digest) -> Prepared {
    let intent = format!("operation {}", action.operation);
    Prepared {
        action: Action::Operate(action),
        agent: authority.agent().to_owned(),
        session: Some(authority.task().session),
        turn: None,
        turn_number: 0,
        // With a call, the door asks about a repetition of what has an unknown outcome.
        call: (!only_reads).then(|| "request".to_owned()),
        tool: "proxy".to_owned(),
        sinks: Vec::new(),
        // Two keys have proven who asks; how far that goes is in the keys.
        label: Label::new(Taint::Auth),
        // The declared operations belong to what is decided.
        bindings: BTreeMap::from([("operations".to_owned(), declared)]),
        idempotent: only_reads,
        intent,
    }
}
