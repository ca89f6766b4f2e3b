//! The story: four guests, three agents, and what each wall stopped.

use std::path::Path;
use std::{fs, io};

use serde_json::{Value, json};
use writ_runtime::methods::Method;
use writ_testkit::fleet::front::send_request;
use writ_testkit::fleet::shop::{ShopChange, customer_at, order_of, read_changes};
use writ_testkit::fleet::{ADDRESS_AGENT, CHANGE_ADDRESS, OPEN, READY, REFUND_AGENT, RULE, SENIOR_AGENT};
use writ_testkit::mail_sink::MailSink;
use writ_types::entry::CaseChange;
use writ_types::id::SessionId;

use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;

use super::super::{not_so, print_text};
use super::cases::{FrontEnd, SaidText, last_of};
use super::place::FleetPlace;
use super::processes::wait_for;
use super::proof;
use super::record::{CaseMoveEntry, Ledger};

/// The capability of refunds.
const REFUND: &str = "refund";
/// The agents.
const AGENTS: [&str; 3] = [REFUND_AGENT, SENIOR_AGENT, ADDRESS_AGENT];
/// The guests, by their places among the customers.
const GUESTS: [u32; 4] = [0, 1, 2, 3];
/// The attempts of the hostile agent that succeed, since they are its right.
const PERMITTED: [&str; 2] = ["own customer", "temporary folder"];
/// The deepest folder in which key files are looked for.
const MOST_DEPTH: usize = 4;

/// The walls of the hostile agent's attempts, by how the name of an attempt begins.
const WALLS: [(&str, &str, &str); 9] = [
    ("another customer", "read another customer", "the proxy: its task key covers one customer"),
    (
        "a customer's number",
        "name a customer by its number",
        "the proxy: agents have tokens, and no number is one",
    ),
    ("database file", "way out 1, open the shop's database", "its sandbox: the file is not there"),
    (
        "network by name",
        "way out 2, a server by its name",
        "its sandbox: two names exist, and this is none of them",
    ),
    ("network", "way out 2, connect to the mail server", "its sandbox: an empty network"),
    (
        "another agent's key",
        "way out 3, copy another agent's key",
        "its sandbox: the file is not there, nor its own key",
    ),
    (
        "a forged key",
        "way out 3, send a forged key",
        "its launcher: sent its own keys instead, which grant no refund",
    ),
    ("ledger", "way out 4, overwrite the ledger", "its sandbox: the file is not there"),
    ("file", "way out 4, leave a file behind", "its sandbox: /tmp alone can be written, and goes with it"),
];

/// The things that the story is played with.
pub(super) struct Story<'a> {
    pub(super) context: &'a Context,
    pub(super) place: &'a FleetPlace,
    pub(super) client: EngineClient,
    pub(super) engine: Ledger,
    pub(super) proxy: Ledger,
    front: FrontEnd<'a>,
    sink: &'a MailSink,
    /// The cases, with the words that name them.
    pub(super) cases: Vec<(&'static str, SessionId)>,
}

/// Tells the story.
///
/// # Errors
///
/// If anything differs from it.
pub(super) async fn tell_story(
    context: &Context,
    place: &FleetPlace,
    (sink, token): (&MailSink, &str),
) -> Result<(), Failure> {
    let key = proof::proxy_key(context, place)?;
    let mut story = Story {
        context,
        place,
        client: EngineClient::ensure(context).await?,
        engine: Ledger::of_engine(context)?,
        proxy: Ledger::of_proxy(place, key)?,
        front: FrontEnd::new(place, token),
        sink,
        cases: Vec::new(),
    };
    place.deploy_agents(context)?;
    story.introduce_agents().await?;
    story.refund_small_amount().await?;
    story.escalate_larger_amount().await?;
    story.ask_for_foreign_order().await?;
    let hostile = story.try_ways_out().await?;
    story.catch_agent(hostile).await?;
    proof::show_holders(&story).await?;
    proof::verify_ledgers(&mut story, key).await
}

impl Story<'_> {
    fn print(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        print_text(self.context, text)
    }

    /// Waits until the router knows the agents, and prints what each may do, from the folder that was blessed.
    async fn introduce_agents(&mut self) -> Result<(), Failure> {
        let client = &mut self.client;
        // The router looks at the folder of agents from time to time, not at each deployment.
        wait_for("the router does not know its agents", async || {
            let status = client.call_method(Method::FleetStatus, json!({})).await?;
            let known = status.get("agents").and_then(Value::as_array).map_or(0, Vec::len);
            Ok((known == AGENTS.len()).then_some(()))
        })
        .await?;
        self.print("Blessed and deployed, each with a base key for exactly this:")?;
        for name in AGENTS {
            let text = read_manifest(&self.context.home.agents().join(name))
                .map_err(|error| Failure::internal_error("reading a deployed agent", error))?;
            let declared: toml::Table =
                text.parse().map_err(|error| Failure::internal_error("reading a deployed agent", error))?;
            let capabilities = declared.get("capabilities").and_then(toml::Value::as_table);
            let may: Vec<String> = capabilities.into_iter().flatten().map(describe_capability).collect();
            let note = if name == ADDRESS_AGENT { "   <- hostile, and no one knows" } else { "" };
            self.print(format!("  {name:<14} {}{note}", may.join(", ")))?;
        }
        Ok(())
    }

    async fn open_case(
        &mut self,
        name: &'static str,
        guest: u32,
        (capability, message): (&str, &str),
    ) -> Result<SessionId, Failure> {
        let customer = customer_at(guest).id;
        self.print(format!("\n{name}, customer {customer}: \"{message}\""))?;
        let case = self.front.open_case((&customer, &format!("chat-{guest}")), capability, message).await?;
        let case =
            case.parse().map_err(|error| Failure::internal_error("reading the id of a case", error))?;
        self.cases.push((name, case));
        Ok(case)
    }

    fn changes(&self) -> Result<Vec<ShopChange>, Failure> {
        read_changes(&self.place.shop()).map_err(|error| Failure::internal_error("reading the shop", error))
    }

    /// Checks that the database itself has noted this refund as the last of so many changes.
    fn check_refund(&self, (guest, amount): (u32, i64), count: usize) -> Result<(), Failure> {
        let expected = ShopChange { subject: order_of(guest, 0), customer: customer_at(guest).id, amount };
        // An agent could say anything; the triggers of the database do not.
        let changes = self.changes()?;
        // The number counts, too: a refund that was made twice has the right last change.
        if changes.len() == count && changes.last() == Some(&expected) {
            return Ok(());
        }
        Err(not_so(&format!("the shop has noted {changes:?}")))
    }

    /// The first guest: an amount within the limit.
    async fn refund_small_amount(&mut self) -> Result<(), Failure> {
        let [guest, ..] = GUESTS;
        let message = format!("Please refund 500 for order {}.", order_of(guest, 0));
        let case = self.open_case("case 1", guest, (REFUND, &message)).await?;
        let reply = self.wait_for_refund(case, REFUND_AGENT).await?;
        self.check_refund((guest, 500), 1)?;
        self.check_mails(guest, 1)?;
        self.print(format!("  {REFUND_AGENT}: {reply}"))?;
        self.print(
            "  DONE: its base key allows 500; the mail has the name of the customer, the agent saw none",
        )?;
        self.front.close_case(&case.to_string()).await
    }

    async fn wait_for_refund(&self, case: SessionId, agent: &str) -> Result<String, Failure> {
        let sender = format!("agent {agent}");
        let said = self
            .front
            .wait_for_text(&case.to_string(), |one| one.from == sender && one.text.contains("are refunded"))
            .await?;
        last_of(&said, &sender).map(str::to_owned).ok_or_else(|| not_so("the agent said nothing"))
    }

    /// Checks that the mails went to their customers, and the last one to this.
    fn check_mails(&self, guest: u32, count: usize) -> Result<(), Failure> {
        let (mails, customer) = (self.sink.mails(), customer_at(guest));
        // The name in the text shows that the proxy has put it in.
        let is_right = mails.last().is_some_and(|mail| {
            mail.to == [customer.email.clone()] && mail.lines.iter().any(|line| line.contains(&customer.name))
        });
        if is_right && mails.len() == count {
            Ok(())
        } else {
            Err(not_so("the mail did not go to its customer"))
        }
    }

    /// The second guest: one above the limit, which a manager may refund.
    async fn escalate_larger_amount(&mut self) -> Result<(), Failure> {
        let [_, guest, ..] = GUESTS;
        let message = format!("Please refund 501 for order {}.", order_of(guest, 0));
        let case = self.open_case("case 2", guest, (REFUND, &message)).await?;
        let reply = self.wait_for_refund(case, SENIOR_AGENT).await?;
        self.check_refund((guest, 501), 2)?;
        self.check_mails(guest, 2)?;
        let refused = self.proxy.refused_requests()?;
        let refused = refused
            .iter()
            .find(|one| one.agent == REFUND_AGENT && one.operation == REFUND)
            .ok_or_else(|| not_so("501 was not refused"))?;
        self.print(format!(
            "  {REFUND_AGENT} asked for 501: REFUSED by the proxy [{}], entry {}: {}",
            refused.rule, refused.seq, refused.text
        ))?;
        // The ledger says in which order the keys ended and began.
        let moves = self.engine.case_moves(case)?;
        let escalated = find_move(&moves, CaseChange::Escalated, "the case was not escalated")?;
        let handed = moves
            .iter()
            .find(|one| {
                one.seq > escalated.seq
                    && one.record.began.as_ref().is_some_and(|holder| holder.name == SENIOR_AGENT)
            })
            .ok_or_else(|| not_so("the case did not go to the manager"))?;
        self.print(format!(
            "  {REFUND_AGENT} escalated to {}: its key was revoked (entry {}), then {SENIOR_AGENT} got one of its own (entry {})",
            escalated.record.target, escalated.seq, handed.seq
        ))?;
        self.print(format!("  {SENIOR_AGENT}: {reply}"))?;
        self.print("  DONE: the same tokens, another key, and the conversation so far")?;
        self.front.close_case(&case.to_string()).await
    }

    /// The third guest names an order of the first one.
    async fn ask_for_foreign_order(&mut self) -> Result<(), Failure> {
        let [first, _, guest, _] = GUESTS;
        let message = format!("Please refund 50 for order {}.", order_of(first, 0));
        let case = self.open_case("case 3", guest, (REFUND, &message)).await?;
        let said =
            self.front.wait_for_text(&case.to_string(), |one| one.text.contains("none of yours")).await?;
        // The last change is still that of the second case: nothing was done for this one.
        self.check_refund((GUESTS[1], 501), 2)?;
        let reply = last_of(&said, &format!("agent {REFUND_AGENT}")).unwrap_or_default();
        self.print(format!("  {REFUND_AGENT}: {reply}"))?;
        self.print("  STOPPED by the scope that the proxy adds to each statement: rows of other customers are not there")?;
        self.front.close_case(&case.to_string()).await
    }

    /// The fourth guest gets the hostile agent, which tries everything.
    async fn try_ways_out(&mut self) -> Result<SessionId, Failure> {
        let [.., guest] = GUESTS;
        // Before the agent has the case, so that a change at any moment of it shows.
        let before = (self.changes()?, self.sink.mails().len());
        let case = self.open_case("case 4", guest, (CHANGE_ADDRESS, "I have moved to 9 Hill Road.")).await?;
        // It waits there for the guest, so that no attempt is cut off by its end.
        let said = self.front.wait_for_text(&case.to_string(), |one| one.text == READY).await?;
        for (what, result) in said.iter().filter_map(read_attempt) {
            if PERMITTED.contains(&what) {
                if !result.starts_with(OPEN) {
                    return Err(not_so(&format!("{what}: {result}")));
                }
                continue;
            }
            let (_, deed, wall) = WALLS
                .iter()
                // The first that fits counts: a longer name stands before its own beginning.
                .find(|(name, ..)| what.starts_with(name))
                .ok_or_else(|| not_so(&format!("an attempt without a wall: {what}")))?;
            // Its own word counts only against it: what it could have changed is looked at below.
            if result.starts_with(OPEN) {
                return Err(not_so(&format!("{what} was open: {result}")));
            }
            self.print(format!("  {ADDRESS_AGENT}, {deed}: {}", shorten(result)))?;
            self.print(format!("      STOPPED by {wall}"))?;
        }
        if (self.changes()?, self.sink.mails().len()) != before {
            return Err(not_so("the hostile agent has changed something"));
        }
        Ok(case)
    }

    /// The hostile agent goes on until a rule catches it; a person takes the case.
    async fn catch_agent(&mut self, case: SessionId) -> Result<(), Failure> {
        let id = case.to_string();
        // While it still holds the case: its launcher's files go with it.
        let keys = copy_keys(&self.place.home(), &id)?;
        self.front.add_message(&id, "Is it done?").await?;
        let moves = wait_for("the rule did not catch the agent", async || {
            let moves = self.engine.case_moves(case)?;
            Ok(moves.iter().any(|one| one.record.change == CaseChange::Queued).then_some(moves))
        })
        .await?;
        let caught = find_move(&moves, CaseChange::Rerouted, "the agent was not caught")?;
        // An agent that is silent or crashes loses its case as well, which would prove no rule.
        if !caught.record.reason.contains(RULE) {
            return Err(not_so(&format!("it was taken from it otherwise: {}", caught.record.reason)));
        }
        self.print(format!("  {ADDRESS_AGENT} goes on asking for refunds: {}", caught.record.reason))?;
        self.print(format!("  CAUGHT: its key was revoked and its process ended, entry {}", caught.seq))?;
        self.try_copied_keys(&keys).await?;
        // Operations granted before the revocation do not matter here.
        let later = self.proxy.granted_operations(ADDRESS_AGENT)?;
        if later.iter().any(|(at, _)| *at > caught.at) {
            return Err(not_so("the hostile agent was served after its key was revoked"));
        }
        self.print(format!("  no other agent has {CHANGE_ADDRESS}, so the case waits for a person"))?;
        self.client.call_method(Method::FleetTake, json!({ "case": id })).await?;
        let answer = json!({ "case": id, "text": "I have changed it by hand." });
        self.client.call_method(Method::FleetAnswer, answer).await?;
        let said = self.front.wait_for_text(&id, |one| one.from.starts_with("person")).await?;
        let person = said.iter().rev().find(|one| one.from.starts_with("person"));
        let SaidText { from, text } = person.ok_or_else(|| not_so("no person answered"))?;
        self.print(format!("  {from}: {text}"))?;
        self.client.call_method(Method::FleetClose, json!({ "case": id, "reason": "done" })).await?;
        if self.front.is_open(&id).await? { Err(not_so("the case is still open")) } else { Ok(()) }
    }

    /// A copy of the dead keys, sent by hand past every sandbox.
    async fn try_copied_keys(&self, (base, task): &(String, String)) -> Result<(), Failure> {
        let headers = [("writ-base-key", base.as_str()), ("writ-task-key", task.as_str())];
        let socket = self.place.proxy("agents.sock");
        let answer =
            send_request(&socket, ("POST", "/v1/operations/read_orders"), &headers, Some(&json!({})))
                .await
                .map_err(|error| Failure::internal_error("asking the proxy", error))?;
        let error = answer.body.get("error").and_then(Value::as_str).unwrap_or_default();
        // A 403 would mean that the keys still count, and only this operation was refused.
        if answer.status != 401 {
            return Err(not_so(&format!("copied keys were answered with {} {}", answer.status, answer.body)));
        }
        self.print(format!("  a copy of its keys, sent by hand past its sandbox: 401 {error}"))
    }
}

fn find_move<'m>(
    moves: &'m [CaseMoveEntry],
    change: CaseChange,
    otherwise: &str,
) -> Result<&'m CaseMoveEntry, Failure> {
    moves.iter().find(|one| one.record.change == change).ok_or_else(|| not_so(otherwise))
}

/// Reads a line of the hostile agent: what it tried, and what came of it.
fn read_attempt(said: &SaidText) -> Option<(&str, &str)> {
    if said.from != format!("agent {ADDRESS_AGENT}") { None } else { said.text.split_once(" | ") }
}

/// The end of a long error says nothing more.
fn shorten(text: &str) -> String {
    const MOST_CHARS: usize = 90;
    let short: String = text.chars().take(MOST_CHARS).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

fn describe_capability((name, limits): (&String, &toml::Value)) -> String {
    // A list of targets stands without a name of its own.
    let Some(limits) = limits.as_table() else { return format!("{name} {limits}") };
    if limits.is_empty() {
        return name.clone();
    }
    let limits: Vec<String> = limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{name} ({})", limits.join(", "))
}

/// Copies the keys of a case's holder, as their owner could: agents cannot.
fn copy_keys(home: &Path, case: &str) -> Result<(String, String), Failure> {
    let mut found = Vec::new();
    collect_keys(home, case, 0, &mut found);
    let key = |role: &str| {
        let path = found.iter().find(|path| path.to_string_lossy().ends_with(&format!("-{role}.jwt")));
        let text = path.and_then(|path| fs::read_to_string(path).ok());
        text.map(|text| text.trim().to_owned()).ok_or_else(|| not_so("the launcher has no key of the case"))
    };
    Ok((key("base")?, key("task")?))
}

fn collect_keys(folder: &Path, case: &str, depth: usize, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && depth < MOST_DEPTH {
            collect_keys(&path, case, depth.saturating_add(1), found);
        } else if name.to_string_lossy().starts_with(case) {
            found.push(path);
        }
    }
}

/// Reads the `agent.toml` of a deployed agent; its program is in a folder with the name of its digest.
fn read_manifest(home: &Path) -> io::Result<String> {
    for entry in fs::read_dir(home)? {
        let file = entry?.path().join("agent.toml");
        if file.exists() {
            return fs::read_to_string(file);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
