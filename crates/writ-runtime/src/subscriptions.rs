//! What a session keeps in the context: files, lines and URLs, read again at the beginning of each turn.
//!
//! Each reading is an action of its own that passes the door. One that would have to be asked about is not made: the
//! item says so instead, and so does one that cannot be read.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use writ_agent::event::WorkspaceItem;
use writ_policy::prepared::{Prepared, Sink};
use writ_store::batch::{Batch, Op};
use writ_tools::outcome::PerformedOutcome;
use writ_tools::render::render;
use writ_types::action::{Action, Fetch, ReadFile, ReadMode, Subscribe};
use writ_types::chat::{CHARS_PER_TOKEN, estimate_tokens};
use writ_types::error::{Exit, Report, ToReport as _};
use writ_types::quarantine::Quarantine;
use writ_types::taint::{Label, Source, Taint};

use crate::act::{Place, outcome_entry};
use crate::core::Core;
use crate::error::EngineError;
use crate::passage::{Passage, Standing};
use crate::perform;
use crate::session::{SUBSCRIPTIONS, Session};

/// What the harness calls itself where it reads what is subscribed to.
const TOOL: &str = "subscription";
/// The most subscriptions of one session: each costs a reading in every turn.
const MAX_SUBSCRIPTIONS: usize = 16;
/// The most estimated tokens of all subscriptions of a session together: an eighteenth of the default context.
const MAX_TOKENS: u64 = 10_000;
/// How long a turn's beginning may wait for them: after that none is begun, and the last ends within a fetch's limit.
const READING_MAX: Duration = Duration::from_secs(20);
/// The longest target in a title, in characters: with its lines a title stays below the 200 that a model is shown.
const MAX_TITLE_TARGET: usize = 140;
/// The most lines of a file that has none named; what is longer is cut by [`MAX_TOKENS`] anyway.
const MAX_LINES: u64 = 2_000;

/// One subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subscription {
    /// Its id in the session.
    id: String,
    /// A file of the work folder, or a URL.
    target: String,
    /// First and last line.
    lines: Option<(u64, u64)>,
    /// The number of the last turn that it is there for, unless something refers to it before.
    last_turn: u64,
    /// For how many turns it lasts from the last time that something has referred to it.
    #[serde(default = "one_turn")]
    turns: u64,
    /// What the actions rested on that subscribed to it; its target is no more to be trusted than they are.
    #[serde(default = "untrusted")]
    taint: Taint,
    /// A person has approved that its URL is read in each of its turns, though it rests on external content.
    #[serde(default)]
    approved: bool,
}

/// What is stored without a word of what it rests on.
const fn untrusted() -> Taint {
    Taint::External
}

/// What is stored without a number of turns ends when it would have.
const fn one_turn() -> u64 {
    1
}

/// The subscriptions of a session's metadata; what is none is left out.
pub(crate) fn read(stored: &Value) -> Vec<Subscription> {
    let list = stored.as_array().into_iter().flatten();
    list.filter_map(|one| serde_json::from_value(one.clone()).ok()).take(MAX_SUBSCRIPTIONS).collect()
}

impl Subscription {
    /// Whether it is a URL.
    fn is_of_the_web(&self) -> bool {
        matches!(self.action(), Action::Fetch(_))
    }

    /// Whether a text names it, by its id or by what it reads.
    fn is_named_in(&self, text: &str) -> bool {
        let inside = |c: char| c.is_alphanumeric() || c == '_';
        [&self.id, &self.target].into_iter().any(|name| {
            text.match_indices(name.as_str()).any(|(at, _)| {
                let before = text.get(..at).and_then(|before| before.chars().next_back());
                let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
                !before.is_some_and(inside) && !after.is_some_and(inside)
            })
        })
    }

    /// What it is called, in at most 200 characters.
    fn title(&self) -> String {
        let mut title: String = self.target.chars().take(MAX_TITLE_TARGET).collect();
        if title.len() < self.target.len() {
            title.push('…');
        }
        match self.lines {
            Some((first, last)) => format!("{title}, lines {first} to {last}"),
            None => title,
        }
    }

    /// What its target rests on.
    fn label(&self) -> Label {
        let source = Source { origin: TOOL.to_owned(), detail: self.id.clone(), entry: None };
        Label::from_source(self.taint, source)
    }

    /// What the wish to read it rests on: its target, unless a person has looked at that very target.
    fn wish_label(&self) -> Label {
        if self.approved { Label::new(Taint::Owner) } else { self.label() }
    }

    /// What reads it.
    fn action(&self) -> Action {
        let wish = Subscribe { target: self.target.clone(), lines: self.lines, turns: 1, stop: false };
        if let Some(url) = wish.url() {
            let url = url.to_owned();
            return Action::Fetch(Fetch {
                method: "GET".to_owned(),
                url,
                body: None,
                content_type: None,
                save_to: None,
                large: false,
            });
        }
        let (first_line, last) = self.lines.unwrap_or((1, MAX_LINES));
        let lines = last.saturating_sub(first_line).saturating_add(1);
        Action::ReadFile(ReadFile { path: self.target.clone(), mode: ReadMode::Text { first_line, lines } })
    }
}

impl Session {
    /// Notes which subscriptions a text of this turn refers to.
    pub(crate) fn refer(&self, text: &str) {
        let mut state = self.state();
        let named = state.subscriptions.iter().filter(|one| one.is_named_in(text));
        let ids: Vec<String> = named.map(|one| one.id.clone()).collect();
        state.referred.extend(ids);
    }
}

impl Core {
    /// Begins or ends a subscription, for which a permit has been consumed.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    pub(crate) async fn subscribe(
        &self,
        place: &Place,
        prepared: &Prepared,
        wish: &Subscribe,
    ) -> Result<PerformedOutcome, EngineError> {
        let failed = |text: String| {
            Ok(PerformedOutcome::Failed { report: Report::new(Exit::Usage, "subscription", text) })
        };
        let _one_at_a_time = place.session.granting.lock().await;
        let mut list = place.session.state().subscriptions.clone();
        if wish.stop {
            let before = list.len();
            list.retain(|one| one.id != wish.target);
            if list.len() == before {
                return failed(format!("there is no subscription '{}'", wish.target));
            }
            self.keep_subscriptions(&place.session, list).await?;
            return Ok(PerformedOutcome::Unsubscribed { id: wish.target.clone() });
        }
        let running = place.session.state().running.as_ref().map(|running| running.number);
        let next = self.store.next_turn_number(place.session.id)?;
        let (last_turn, turns) = (newest_turn(running, next).saturating_add(wish.turns), wish.turns);
        // Such a URL comes through the door with its owner's word only: written, or given to this ask.
        let taint = prepared.label.taint;
        let approved = taint == Taint::External && wish.url().is_some() && !self.is_owned(prepared)?;
        let same = list.iter_mut().find(|one| one.target == wish.target && one.lines == wish.lines);
        let id = if let Some(same) = same {
            same.last_turn = last_turn;
            same.turns = turns;
            same.taint = same.taint.join(taint);
            same.approved |= approved;
            same.id.clone()
        } else {
            if list.len() >= MAX_SUBSCRIPTIONS {
                return failed(format!("there are {MAX_SUBSCRIPTIONS} subscriptions already: end one"));
            }
            let taken = |id: &str| list.iter().any(|one| one.id == id);
            let mut ids = (1..=MAX_SUBSCRIPTIONS).map(|n| format!("s{n}"));
            let id = ids.find(|id| !taken(id)).unwrap_or_default();
            let (target, lines) = (wish.target.clone(), wish.lines);
            list.push(Subscription { id: id.clone(), target, lines, last_turn, turns, taint, approved });
            id
        };
        self.keep_subscriptions(&place.session, list).await?;
        Ok(PerformedOutcome::Subscribed { id, turns })
    }

    async fn keep_subscriptions(
        &self,
        session: &Session,
        list: Vec<Subscription>,
    ) -> Result<(), EngineError> {
        let value = serde_json::to_value(&list).map_err(|why| EngineError::Machine(why.to_string()))?;
        let (key, value) = (SUBSCRIPTIONS.to_owned(), Some(value));
        self.store
            .commit(Batch::relaxed(vec![Op::SetSessionMetadata { session: session.id, key, value }]))
            .await?;
        session.state().subscriptions = list;
        self.count_subscriptions();
        Ok(())
    }

    /// What is left of the subscriptions that a turn has referred to begins anew: by a word of its person, by its
    /// reply, or by an action ([`Session::refer`]). What a person has approved lasts as long as it was approved for.
    /// There is nothing to write where it has referred to none.
    pub(crate) fn renewal<'a>(
        &self,
        session: &'a Session,
        number: u64,
        said: &[&str],
    ) -> Option<Renewal<'a>> {
        for text in said {
            session.refer(text);
        }
        // Where they are being changed right now, nothing begins anew: the next reference does it.
        let one_at_a_time = session.granting.try_lock().ok()?;
        let mut state = session.state();
        let referred = std::mem::take(&mut state.referred);
        let mut list = state.subscriptions.clone();
        for one in list.iter_mut().filter(|one| !one.approved && referred.contains(&one.id)) {
            one.last_turn = one.last_turn.max(number.saturating_add(one.turns));
        }
        if list == state.subscriptions {
            return None;
        }
        let value = Some(serde_json::to_value(&list).ok()?);
        drop(state);
        let op = Op::SetSessionMetadata { session: session.id, key: SUBSCRIPTIONS.to_owned(), value };
        Some(Renewal { session, list, op, _one_at_a_time: one_at_a_time })
    }

    fn count_subscriptions(&self) {
        let count = self.sessions().values().map(|session| session.state().subscriptions.len()).sum();
        self.metrics.subscriptions(count);
    }
}

/// Subscriptions that begin anew, once that is stored; until then nobody else changes them.
pub(crate) struct Renewal<'a> {
    session: &'a Session,
    list: Vec<Subscription>,
    pub(crate) op: Op,
    _one_at_a_time: tokio::sync::MutexGuard<'a, ()>,
}

impl Renewal<'_> {
    /// It is stored.
    pub(crate) fn stored(self) {
        self.session.state().subscriptions = self.list;
    }
}

impl Place {
    /// Reads everything that the session is subscribed to, until `cancel` says so, and ends what has had its turns.
    ///
    /// # Errors
    ///
    /// If the store cannot be written. What cannot be read says so in its text.
    pub(crate) async fn materialize(
        &self,
        cancel: &CancellationToken,
    ) -> Result<Vec<WorkspaceItem>, EngineError> {
        let list = self.still_kept().await?;
        self.core.count_subscriptions();
        let titles = list.iter().map(|one| estimate_tokens(&one.title()).get());
        let mut left = MAX_TOKENS.saturating_sub(titles.sum());
        let mut items = Vec::new();
        let began = self.core.clock.now();
        for one in list {
            let (text, label) = if cancel.is_cancelled() {
                ("[not read: the turn was stopped]".to_owned(), one.label())
            } else if self.core.clock.now().since(began) < READING_MAX {
                self.look(&one, cancel).await?
            } else {
                ("[not read: the others took too long]".to_owned(), one.label())
            };
            let text = within(&text, left);
            left = left.saturating_sub(estimate_tokens(&text).get());
            items.push(WorkspaceItem { title: one.title(), id: one.id, text, label });
        }
        Ok(items)
    }

    /// The subscriptions that have turns left; the others end.
    async fn still_kept(&self) -> Result<Vec<Subscription>, EngineError> {
        // Until they are written only: the readings may note new hosts, which takes the same lock.
        let _one_at_a_time = self.session.granting.lock().await;
        let all = self.session.state().subscriptions.clone();
        let list: Vec<Subscription> =
            all.iter().filter(|one| one.last_turn >= self.number).cloned().collect();
        if list.len() < all.len() {
            self.core.keep_subscriptions(&self.session, list.clone()).await?;
        }
        Ok(list)
    }

    /// What one of them says now. Whatever comes of it is labelled with what its target rests on.
    async fn look(
        &self,
        one: &Subscription,
        cancel: &CancellationToken,
    ) -> Result<(String, Label), EngineError> {
        let own = one.label();
        let reader = if one.is_of_the_web() { "web_fetch" } else { "file_read" };
        if self.core.servers.registry().quarantine(reader) != Quarantine::Never {
            let why = format!("[not read: the results of {reader} are withheld from you]");
            return Ok((why, own));
        }
        let standing = Standing {
            authority: &self.authority,
            spent: self.spent,
            approval: None,
            task: false,
            mode: self.session.mode(),
            origins: None,
        };
        let permit = match self.core.pass(self.reading(one), standing).await? {
            Passage::Permit(permit) => permit,
            Passage::Denied(denial) => {
                return Ok((
                    self.core.redactor.mask(&format!("[not read: {}]", denial.outside())).into_owned(),
                    own,
                ));
            }
            Passage::Ask(_) => {
                let why = "[not read: its host has to be listed, or the user has to write its URL]";
                return Ok((why.to_owned(), own));
            }
            Passage::Simulated(_) => {
                return Ok(("[not read: this session only simulates]".to_owned(), own));
            }
        };
        let attempt = permit.attempt();
        let prepared = permit.prepared().clone();
        let reading = perform::perform(self, *permit, cancel);
        let read = tokio::select! {
            biased;
            // A reading that the stop has ended says nothing of what was to be read.
            () = self.core.stop_now.cancelled() => return Err(EngineError::Stopping),
            read = reading => read,
        };
        let (mut outcome, mut ops) = match read {
            Ok(performed) => (performed.outcome, performed.ops),
            // A turn can go on without what it is subscribed to.
            Err(EngineError::Sandbox(error)) => {
                (PerformedOutcome::Failed { report: error.report() }, Vec::new())
            }
            Err(error) => return Err(error),
        };
        let rendered = render(&prepared, &mut outcome, &self.core.redactor);
        ops.push(self.core.entry(self.session.id, self.at(), outcome_entry(attempt, &rendered)));
        self.core.store.commit(Batch::relaxed(ops)).await?;
        let mut label = rendered.label;
        label.join(&own);
        Ok((rendered.text.into_string(), label))
    }

    /// The wish to read one of them. It rests on the subscription, which has passed the door itself.
    fn reading(&self, one: &Subscription) -> Prepared {
        Prepared {
            agent: self.core.config.agent.clone(),
            session: Some(self.session.id),
            turn: self.turn,
            turn_number: self.number,
            call: None,
            tool: TOOL.to_owned(),
            sinks: vec![Sink { argument: "target".to_owned(), value: one.target.clone() }],
            label: one.wish_label(),
            bindings: Default::default(),
            idempotent: true,
            intent: format!("read what the session is subscribed to: {}", one.title()),
            action: one.action(),
        }
    }
}

/// The number of the newest turn of a session: the one that runs, which may not be stored yet, or the last one.
fn newest_turn(running: Option<u64>, next: u64) -> u64 {
    running.unwrap_or_default().max(next.saturating_sub(1))
}

/// A text within a number of estimated tokens, with a mark where something is missing.
fn within(text: &str, tokens: u64) -> String {
    if estimate_tokens(text).get() <= tokens {
        return text.to_owned();
    }
    let chars = usize::try_from(tokens.saturating_mul(CHARS_PER_TOKEN)).unwrap_or(usize::MAX);
    let kept: String = text.chars().take(chars).collect();
    format!("{kept}\n[cut: the subscriptions of a session have {MAX_TOKENS} tokens together]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscription(target: &str) -> Subscription {
        Subscription {
            id: "s1".into(),
            target: target.into(),
            lines: None,
            last_turn: 7,
            turns: 1,
            taint: Taint::Auth,
            approved: false,
        }
    }

    #[test]
    fn what_is_stored_is_read_within_bounds_and_nonsense_is_left_out() {
        let one = Subscription { lines: Some((1, 2)), ..subscription("a") };
        let good = serde_json::to_value(&one).expect("JSON");
        let mut list = vec![serde_json::json!({"id": 1}), Value::Null];
        list.extend(std::iter::repeat_n(good, 40));
        assert_eq!(read(&Value::from(list)), vec![one; MAX_SUBSCRIPTIONS]);
        assert!(read(&Value::Null).is_empty());
    }

    #[test]
    fn one_that_is_stored_without_what_it_rests_on_is_external_and_not_approved() {
        let old = serde_json::json!([{ "id": "s1", "target": "a", "lines": null, "last_turn": 7 }]);
        let old = read(&old).pop().expect("read");
        assert_eq!(old, Subscription { taint: Taint::External, ..subscription("a") });
        assert_eq!((old.label().taint, old.wish_label().taint), (Taint::External, Taint::External));
    }

    #[test]
    fn a_person_who_looks_at_a_target_lets_it_be_read_and_makes_it_no_more_trusted() {
        let made = |approved| Subscription { taint: Taint::External, approved, ..subscription("http://a/") };
        assert_eq!(made(false).wish_label().taint, Taint::External);
        assert_eq!(made(true).wish_label().taint, Taint::Owner);
        assert_eq!(made(true).label().taint, Taint::External);
        assert_eq!(subscription("a").wish_label().taint, Taint::Auth);
    }

    #[test]
    fn a_text_refers_to_it_by_its_id_or_by_what_it_reads_as_a_whole() {
        let one = subscription("src/lib.rs");
        for text in ["see src/lib.rs.", "./src/lib.rs", "[s1]", "s1", r#"{"path":"src/lib.rs"}"#] {
            assert!(one.is_named_in(text), "{text}");
        }
        for text in ["", "s12", "this1", "lib.rs", "src/lib.rsx", "src/lib", "S1"] {
            assert!(!one.is_named_in(text), "{text}");
        }
    }

    #[test]
    fn titles_are_short_whatever_the_target_is() {
        let one = Subscription { lines: Some((1, u64::MAX)), ..subscription(&"ä".repeat(2_000)) };
        assert!(one.title().chars().count() <= 200, "{}", one.title());
        assert!(one.title().contains("ä…, lines 1 to"), "{}", one.title());
        assert_eq!(subscription("a b").title(), "a b");
    }

    #[test]
    fn turns_are_counted_from_the_newest_turn() {
        assert_eq!(newest_turn(None, 1), 0, "before the first");
        assert_eq!(newest_turn(None, 16), 15, "nothing runs: the last one");
        assert_eq!(newest_turn(Some(16), 16), 16, "it runs and is not stored yet");
        assert_eq!(newest_turn(Some(16), 17), 16, "it runs and is stored");
    }

    /// Rows: SIL-087 (the cut)
    #[test]
    fn texts_are_cut_to_what_is_left() {
        assert_eq!(within("short", 100), "short");
        let cut = within(&"x".repeat(1_000), 10);
        assert!(
            cut.starts_with(&"x".repeat(30)) && !cut.contains(&"x".repeat(41)) && cut.contains("[cut"),
            "{cut}"
        );
        assert!(within("text", 0).starts_with("\n[cut"));
    }
}
