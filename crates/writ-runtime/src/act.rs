//! One tool call: from a model's arguments through the door to what the model reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use writ_inspect::gate::Escalation;
use writ_inspect::prepared::Prepared;
use writ_inspect::redact::{self, Clean};
use writ_inspect::show::ShownText;
use writ_policy::door::{Ask, Denial};
use writ_policy::permit::Permit;
use writ_policy::plan;
use writ_store::batch::Op;
use writ_tools::def::{PathState, SearchTarget, ToolContext};
use writ_tools::error::ToolError;
use writ_tools::render::{MAX_RESULT_CHARS, Rendered, render_bounded, result_fields};
use writ_types::action::{Action, ActionKind};
use writ_types::chat::{ToolCall, ToolOutcome, ToolResult};
use writ_types::entry::{DenyReason, Fact, GatePoint, GateVerdict};
use writ_types::frame::ServerFrame;
use writ_types::taint::Label;
use writ_types::unit::MicroUsd;

use crate::door::{Passage, RequestContext};
use crate::error::EngineError;
use crate::gates::Wording;
use crate::outcome::{Acted, MAX_SUMMARY, REDACTOR, halted, outcome_entry, outcome_name};
use crate::passage::{self, PassageResult};
use crate::pending::Pending;
use crate::perform::{self, Performed};
use crate::place::CallPlace;
use crate::quarantine::{self, PutIn, unfit};
use crate::{asks, judging, own_call, trace};

/// Message to a model that tries to write a mask over the text that was masked.
const MASK_WRITTEN: &str = "not written: the text holds a mask such as [masked:secret:NAME], which stands for \
    something that you were not shown. Writing it would destroy that. Change only other lines, or have a program \
    read the value where it is.";

impl CallPlace {
    /// Works on one call. What is to be written `first` is written with its intent, or handed back.
    ///
    /// # Errors
    ///
    /// If the store or the sandbox cannot be used at all; what a tool cannot do is a result.
    pub(crate) async fn act(
        self,
        first: Pending,
        call: ToolCall,
        label: Label,
        cancel: CancellationToken,
    ) -> Result<Acted, EngineError> {
        let (services, name) = (Arc::clone(&self.services), call.name.clone());
        let step = self.spent.turn_tool_calls.saturating_add(1);
        let span = trace::tool(&services.servers.registry(), &name);
        let acting = async {
            let began = services.journal.clock.now();
            let acted = self.act_now(first, call, label, cancel).await?;
            trace::tool_ended(
                (&services.servers.registry(), &services.life.metrics),
                (&name, step),
                services.journal.clock.now().time_since(began),
                acted.result.outcome,
            );
            Ok(acted)
        };
        acting.instrument(span).await
    }

    async fn act_now(
        self,
        mut first: Pending,
        mut call: ToolCall,
        label: Label,
        cancel: CancellationToken,
    ) -> Result<Acted, EngineError> {
        if let Some(own) = Box::pin(own_call::answer(&self, &mut first, (&call, &label), &cancel)).await? {
            return Ok(own);
        }
        let (mut rewritable, mut put_in) = (true, PutIn::default());
        let passage = loop {
            let (filled, prepared) = match self.filled(&mut first, &call, &label, &mut put_in).await? {
                Ok(ready) => ready,
                Err(refused) => return Ok(self.refuse_call(&mut first, &call, refused)),
            };
            if !self.session.state().subscriptions.list.is_empty() {
                self.session.refer(&serde_json::to_string(&prepared.action).unwrap_or_default());
            }
            let started = self.step(&call, "started", &prepared.intent, "");
            let standing = RequestContext {
                task: true,
                mode: self.session.mode(),
                origins: self.origins.as_deref(),
                ..RequestContext::of(&self.authority, self.spent)
            };
            let wording = Some(Wording { arguments: &filled.arguments, rewritable });
            match Box::pin(passage::pass_call(&self.services, first, prepared, standing, wording)).await? {
                // The rewritten call is prepared and decided like any other, but cannot be rewritten a second time.
                PassageResult::Rewritten(arguments, back) => {
                    (call.arguments, first, rewritable) = (arguments, back, false);
                }
                PassageResult::Passed(passage) => {
                    // After the end of the step before it, which may have been among the first.
                    if let Some(started) = started {
                        self.session.hub.pass(started);
                    }
                    break passage;
                }
            }
        };
        match passage {
            Passage::Denied(denial) => Ok(self.denied(&call, &denial, (label, &put_in))),
            Passage::Simulated(prepared) => Ok(self.simulated(&call, &prepared, label)),
            Passage::Ask(ask) => self.ask(&call, *ask, label).await,
            Passage::Permit(permit) => Box::pin(self.perform(&call, *permit, (&label, &cancel))).await,
        }
    }

    /// Fills in the values that the call's handles name, and prepares the call. `Err` holds the text for the
    /// model instead, which quotes none of those values.
    async fn filled(
        &self,
        first: &mut Pending,
        call: &ToolCall,
        label: &Label,
        put_in: &mut PutIn,
    ) -> Result<Result<(ToolCall, Prepared), Rendered>, EngineError> {
        let refused = |text| Ok(Err(Rendered { text, label: label.clone(), outcome: ToolOutcome::Failed }));
        let filled = match quarantine::put_in(self, call, put_in).await? {
            Ok(filled) => filled,
            Err(text) => return refused(text),
        };
        match self.prepare(first, &filled, &put_in.label(label)).await? {
            Ok(mut prepared) => {
                if let Some(text) = quarantine::escapes(self, &prepared) {
                    return refused(text);
                }
                put_in.bind(&mut prepared);
                Ok(Ok((filled, prepared)))
            }
            Err(_) if !put_in.is_empty() => refused(unfit(false)),
            Err(problem) => Ok(Err(problem)),
        }
    }

    /// Performs what a call was permitted.
    async fn perform(
        &self,
        call: &ToolCall,
        permit: Permit,
        (read, cancel): (&Label, &CancellationToken),
    ) -> Result<Acted, EngineError> {
        let (attempt, began) = (permit.attempt(), self.services.journal.clock.now());
        let (touched, inside) = (touches(permit.action()), is_inside(permit.action()));
        self.services.life.metrics.tool(&call.name);
        let Performed { prepared, mut outcome, mut ops, .. } =
            Box::pin(perform::perform(self, permit, cancel)).await?;
        let redactor = &self.services.journal.redactor;
        let most = MAX_RESULT_CHARS.min(self.result_chars);
        let (rendered, whole) = render_bounded(&prepared, &mut outcome, redactor, most);
        let said = (prepared.tool.as_str(), rendered.outcome, &*rendered.text);
        let (heard, ends) = judging::told_after(self, said, began, cancel).await?;
        ops.extend(self.leaked(&call.name, rendered.text.masked_secrets()));
        let fields = result_fields(&outcome, &self.services.journal.redactor);
        let about = (&prepared, attempt, read);
        let told =
            quarantine::told(&self.services, &self.session, about, &outcome, (rendered, whole, &fields))
                .await?;
        ops.push(self.services.journal.entry(self.session.id, self.at(), told.fact));
        ops.extend(told.op);
        ops.extend(heard);
        let mut acted = self.result(call, told.rendered, &prepared.intent, ops);
        acted.ends = ends;
        (acted.touched, acted.inside) = (touched, inside);
        (acted.result.fields, acted.result.kept) = (fields, told.kept);
        Ok(acted)
    }

    /// Opens an ask for a call, and says so.
    async fn ask(&self, call: &ToolCall, ask: Ask, label: Label) -> Result<Acted, EngineError> {
        let (intent, hash, kind) = (ask.prepared.intent.clone(), ask.hash, ask.prepared.action.kind());
        let plan = (kind == ActionKind::Plan).then(|| ShownText::new(&ask.prepared, "").ok()).flatten();
        let opened = asks::open_ask(&self.services, &self.session, ask, "").await?;
        let text = match &opened {
            Ok(ask) => format!(
                "Not performed: a person must approve it first (ask {ask}). It is performed as soon as \
                 they do. Do not repeat the call; go on with other work, or end and say what waits."
            ),
            Err(why) => format!("Refused: {why}."),
        };
        let outcome = if opened.is_ok() { ToolOutcome::Waiting } else { ToolOutcome::Denied };
        let refused = opened.as_ref().err().map(|why| Fact::Denied {
            prepared: Some(hash),
            kind,
            reason: DenyReason::Approval,
            rule: "complete text".to_owned(),
            text: why.clone(),
            outside: text.clone(),
            requester: None,
        });
        let planned = plan.map(|shown| Fact::Planned { plan: hash, text: shown.text().to_owned() });
        let facts = refused.into_iter().chain(planned.filter(|_| opened.is_ok()));
        let ops: Pending =
            facts.map(|fact| self.services.journal.entry(self.session.id, self.at(), fact)).collect();
        let rendered = Rendered { text: self.services.journal.redactor.clean_text(text), label, outcome };
        let mut acted = self.result(call, rendered, &intent, ops);
        acted.ask = opened.ok();
        Ok(acted)
    }

    async fn prepare(
        &self,
        first: &mut Pending,
        call: &ToolCall,
        label: &Label,
    ) -> Result<Result<Prepared, Rendered>, EngineError> {
        let tools = self.services.servers.registry();
        let toolset = tools.toolset_of(&self.profile.roles, &self.profile.allow_list(&tools));
        let needs = match toolset.needed_file(call) {
            Ok(needs) => needs,
            Err(error) => {
                return Ok(Err(toolset.render_refusal(&error, label, &self.services.journal.redactor)));
            }
        };
        let peeked = match needs {
            None => None,
            Some(path) => {
                // The sandbox may take long.
                self.services.journal.commit_for(&self.session.hub, first.take().into_relaxed()).await?;
                Some(self.peek(path.as_str()).await?)
            }
        };
        let settings = self.services.outside.settings.now();
        let context = ToolContext {
            agent: &self.profile.agent,
            session: Some(self.session.id),
            turn: self.turn,
            turn_number: self.number,
            label,
            config: &settings.timeouts,
            search: self.services.outside.search.as_ref().map(|search| SearchTarget {
                provider: search.provider(),
                host: search.host(),
                max_results: search.max_results(),
            }),
        };
        Ok(match toolset.prepare_call(call, peeked.as_ref(), &context) {
            Ok(mut prepared) => {
                // A memory belongs to everybody only if the owner's own words made it.
                if let Action::Remember(remember) = &mut prepared.action {
                    remember.taint = label.taint;
                    // Secrets that this conversation has read may be in the text, even if the current message
                    // does not rest on them.
                    remember.secret = label.secret || self.session.state().secrecy.secret;
                    self.services.journal.redactor.scrub_text(&mut remember.text);
                }
                if let Action::Plan(proposed) = &mut prepared.action {
                    plan::mark_external(proposed, label, self.origins.as_deref());
                }
                if matches!(prepared.action, Action::WriteFile(_))
                    && redact::has_mask(&call.arguments.to_string())
                {
                    let (text, label) = (Clean::fixed_text(MASK_WRITTEN), label.clone());
                    return Ok(Err(Rendered { text, label, outcome: ToolOutcome::Failed }));
                }
                Ok(prepared)
            }
            Err(error) => Err(toolset.render_refusal(&error, label, &self.services.journal.redactor)),
        })
    }

    async fn peek(&self, path: &str) -> Result<PathState, EngineError> {
        let workspace = self.services.workspace(&self.session).await?;
        perform::peek(&workspace, path).await
    }

    /// Returns the ledger entry and the status frame for secrets of this home that a program or file has put
    /// out.
    pub(crate) fn leaked(&self, tool: &str, secrets: &BTreeSet<String>) -> Pending {
        if secrets.is_empty() {
            return Pending::new();
        }
        let names = secrets.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let (point, gate, verdict) = (GatePoint::Execution, REDACTOR.to_owned(), GateVerdict::Transform);
        let reason = format!("{names} stood in what {tool} returned, and was masked");
        let text = format!(
            "{reason}. Programs that read it there know it: change it, and store it where no program sees it."
        );
        let fact = Fact::Gated { point, gate, verdict, reason };
        Pending::from([
            self.services.journal.entry(self.session.id, self.at(), fact),
            Op::Frame { session: self.session.id, frame: Box::new(ServerFrame::Status { text }) },
        ])
    }

    /// Refuses a call with wrong arguments: the model reads what is wrong with them, and the ledger has it.
    pub(crate) fn refuse_arguments(
        &self,
        first: &mut Pending,
        (call, label): (&ToolCall, &Label),
        error: &ToolError,
    ) -> Acted {
        let tools = self.services.servers.registry();
        let toolset = tools.toolset_of(&self.profile.roles, &self.profile.allow_list(&tools));
        let refused = toolset.render_refusal(error, label, &self.services.journal.redactor);
        self.refuse_call(first, call, refused)
    }

    fn refuse_call(&self, first: &mut Pending, call: &ToolCall, refused: Rendered) -> Acted {
        first.push(self.malformed(&call.name, &refused));
        self.result(call, refused, "wrong arguments", std::mem::take(first))
    }

    /// Returns the kind of action under which calls of a tool are recorded that become none.
    pub(crate) fn kind_of(&self, tool: &str) -> ActionKind {
        let kind =
            self.services.servers.registry().find_tool(tool).and_then(|tool| tool.actions().first().copied());
        kind.unwrap_or(ActionKind::CallTool)
    }

    /// Returns the ledger entry for a call that could not become an action. Such calls include hosts and
    /// paths that lead elsewhere than they seem to.
    fn malformed(&self, tool: &str, refused: &Rendered) -> Op {
        let text: String = refused.text.chars().take(MAX_SUMMARY).collect();
        let fact = Fact::Denied {
            prepared: None,
            kind: self.kind_of(tool),
            reason: DenyReason::Shape,
            rule: "arguments".to_owned(),
            outside: text.clone(),
            text,
            requester: None,
        };
        self.services.journal.entry(self.session.id, self.at(), fact)
    }

    pub(crate) fn denied(&self, call: &ToolCall, denial: &Denial, (label, put_in): (Label, &PutIn)) -> Acted {
        let text = self.services.journal.redactor.clean_text(denial.outside_text());
        // A denial can quote its action, and so a value that the model has not seen.
        let text = if put_in.is_empty() { text } else { unfit(true) };
        let rendered = Rendered { text, label, outcome: ToolOutcome::Denied };
        let mut acted = self.result(call, rendered, &denial.text, Pending::new());
        acted.ends = match self.followed(denial) {
            Some(Escalation::Respond { text }) => Some(text.clone()),
            _ if denial.reason == DenyReason::Halt => Some(halted(&denial.text)),
            Some(_) | None => None,
        };
        acted
    }

    /// Returns the escalation that is configured to follow a gate's refusal; `None` for other refusals.
    fn followed(&self, denial: &Denial) -> Option<&Escalation> {
        if denial.reason == DenyReason::Gate {
            self.services.gates.set.escalation_after(&denial.rule)
        } else {
            None
        }
    }

    fn simulated(&self, call: &ToolCall, prepared: &Prepared, label: Label) -> Acted {
        let text =
            Clean::fixed_text("Not performed: this session only simulates. Go on as if it had been done.");
        let rendered = Rendered { text, label, outcome: ToolOutcome::Simulated };
        let mut fact =
            outcome_entry(self.services.journal.ids.attempt(self.services.journal.clock.now()), &rendered);
        // There is no intent of it, so this is the one entry that can say which action it was.
        if let Fact::Outcome { summary, .. } = &mut fact {
            *summary = prepared.intent.chars().take(MAX_SUMMARY).collect();
        }
        let ops = Pending::from([self.services.journal.entry(self.session.id, self.at(), fact)]);
        self.result(call, rendered, &prepared.intent, ops)
    }

    pub(crate) fn result(
        &self,
        call: &ToolCall,
        rendered: Rendered,
        summary: &str,
        mut ops: Pending,
    ) -> Acted {
        let output: &str = &rendered.text;
        if let Some(frame) = self.step(call, outcome_name(rendered.outcome), summary, output) {
            ops.push(Op::Frame { session: self.session.id, frame: Box::new(frame) });
        }
        let result = ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            outcome: rendered.outcome,
            text: rendered.text.into_string(),
            label: rendered.label,
            fields: Vec::new(),
            kept: None,
        };
        Acted { result, ask: None, ops, touched: false, inside: false, ends: None, cost: MicroUsd::ZERO }
    }
}

/// Returns true if performing the action may change the work folder.
const fn touches(action: &Action) -> bool {
    if let Action::Fetch(fetch) = action {
        return fetch.save_to.is_some();
    }
    matches!(action, Action::Exec(_) | Action::WriteFile(_))
}

/// Returns true if performing the action only reads the store, or hands in operations for it.
const fn is_inside(action: &Action) -> bool {
    matches!(action, Action::Remember(_) | Action::Recall(_) | Action::ReadResult(_))
}
