//! Reviews of pending asks: similar asks in groups, and anomalies within them.
//!
//! The rules are few, fixed and explained in words. An ask with an anomaly is answered alone, and so is one
//! of high risk: an answer to a group only signs several cards one after the other.

use std::collections::{BTreeMap, BTreeSet};

use writ_types::action::Action;
use writ_types::api::approval::ReviewBand;
use writ_types::entry::Risk;
use writ_types::id::AskId;
use writ_types::taint::Taint;
use writ_types::unit::{Amount, Timestamp};

use crate::cadence::MIN_ALIKE;
use crate::pattern::standing;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope::{self, Dimension};
use writ_inspect::show;

/// The highest risk that is answered in a group: what a tap reaches.
pub const MAX_TOGETHER: Risk = Risk::Medium;
/// From how many approvals of a tool on its usual hours are known.
pub const MIN_HOURS_KNOWN: usize = 10;
/// Hours between an ask and all earlier approvals of the tool from which the hour is unusual.
pub const UNUSUAL_HOURS: i64 = 4;
/// Multiple of the longest approved text of the tool from which a text is unusual.
pub const UNUSUAL_SIZE: usize = 4;
/// The most values of one ask that are compared; the rest counts as one that is new.
const MAX_PLACES: usize = 64;

const HOUR_MS: i64 = 60 * 60 * 1_000;
const HOURS_OF_DAY: i64 = 24;

/// An ask, as far as it is compared.
#[derive(Clone, Copy, Debug)]
pub struct ReviewedAsk<'a> {
    /// The ask.
    pub ask: &'a AskId,
    /// The action.
    pub prepared: &'a Prepared,
    /// The harm that a wrong yes does.
    pub risk: Risk,
    /// The number of people that must say yes.
    pub approvers: u8,
    /// The length of the shown text, in bytes.
    pub shown_bytes: usize,
    /// When it was asked.
    pub at: Timestamp,
}

/// Asks that are alike: the same tool, naming the same kinds of things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlikeAsks {
    /// The common properties of the group, in words.
    pub likeness: String,
    /// The asks, in the order in which they were given.
    pub members: Vec<GroupMember>,
}

/// An ask of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The ask.
    pub ask: AskId,
    /// The unusual properties of this ask, in words.
    pub anomalies: Vec<String>,
    /// The reason to answer it alone; `None` if it may be answered with its group.
    pub alone: Option<&'static str>,
    /// How far earlier answers speak for it.
    pub band: ReviewBand,
}

impl GroupMember {
    /// Returns true if a yes to its group may include it.
    pub const fn goes_with_others(&self) -> bool {
        self.anomalies.is_empty() && self.alone.is_none()
    }
}

/// Groups what waits, and marks what is unlike `approved`.
pub fn review_asks(waiting: &[ReviewedAsk<'_>], approved: &[ReviewedAsk<'_>]) -> Vec<AlikeAsks> {
    // Compared are approvals of the same tool: another tool's values say nothing about this one.
    let mut known: BTreeMap<&str, ToolHistory> = BTreeMap::new();
    for asked in approved {
        known.entry(&asked.prepared.tool).or_default().take_in(asked);
    }
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for asked in approved {
        let times = alike.entry(describe_likeness(asked.prepared)).or_default();
        *times = times.saturating_add(1);
    }
    let mut groups: BTreeMap<String, Vec<GroupMember>> = BTreeMap::new();
    let nothing = ToolHistory::default();
    for asked in waiting {
        let before = known.get(asked.prepared.tool.as_str()).unwrap_or(&nothing);
        let (ask, anomalies, alone) = (asked.ask.clone(), find_anomalies(asked, before), reason_alone(asked));
        let likeness = describe_likeness(asked.prepared);
        let times = alike.get(&likeness).copied().unwrap_or_default();
        let band = band_of(times, anomalies.is_empty() && alone.is_none());
        groups.entry(likeness).or_default().push(GroupMember { ask, anomalies, alone, band });
    }
    groups.into_iter().map(|(likeness, members)| AlikeAsks { likeness, members }).collect()
}

#[derive(Default)]
struct ToolHistory {
    // The maximum over all of them: what was approved once is known.
    places: BTreeSet<(String, String)>,
    /// The largest of each amount.
    amounts: BTreeMap<String, Amount>,
    /// The hour of the day of each, by UTC.
    hours: Vec<i64>,
    /// The length of the longest text.
    longest: Option<usize>,
}

impl ToolHistory {
    fn take_in(&mut self, asked: &ReviewedAsk<'_>) {
        self.places.extend(named_places(asked.prepared));
        for (name, amount) in named_amounts(asked.prepared) {
            let most = self.amounts.entry(name).or_insert(amount);
            *most = (*most).max(amount);
        }
        self.hours.push(hour_of_day(asked.at));
        self.longest = self.longest.max(Some(asked.shown_bytes));
    }
}

/// Describes the common properties of similar asks.
pub fn describe_likeness(prepared: &Prepared) -> String {
    let names: BTreeSet<String> =
        named_places(prepared).into_iter().map(|(name, _)| show::quote_argument(&name)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    format!("{} ({}), naming {names}", show::quote_argument(&prepared.tool), prepared.action.kind().as_str())
}

/// The band of an ask of whose likeness so many were approved, and that is usual or not.
const fn band_of(times: usize, is_usual: bool) -> ReviewBand {
    match times {
        0 => ReviewBand::Novel,
        _ if !is_usual => ReviewBand::Low,
        _ if times >= MIN_ALIKE => ReviewBand::High,
        _ => ReviewBand::Medium,
    }
}

fn reason_alone(asked: &ReviewedAsk<'_>) -> Option<&'static str> {
    if matches!(asked.prepared.action, Action::Plan(_)) {
        Some("it is a plan")
    } else if asked.risk > MAX_TOGETHER {
        Some("a wrong yes does much harm")
    } else if asked.approvers > 1 {
        Some("several people must approve it")
    } else {
        None
    }
}

fn find_anomalies(asked: &ReviewedAsk<'_>, before: &ToolHistory) -> Vec<String> {
    let mut found = Vec::new();
    let own = named_places(asked.prepared);
    // Bounded, since a call may name thousands of things; the rest counts as one anomaly.
    for (name, value) in own.iter().take(MAX_PLACES).filter(|place| !before.places.contains(*place)) {
        found.push(format!(
            "{} = {} was never approved before",
            show::quote_argument(name),
            show::quote_argument(value)
        ));
    }
    if own.len() > MAX_PLACES {
        found.push(format!("it names {} things", own.len()));
    }
    for (argument, amount) in named_amounts(asked.prepared) {
        let largest = before.amounts.get(&argument);
        let argument = show::quote_argument(&argument);
        match largest {
            None => found.push(format!("no {argument} was approved before; this is {amount}")),
            Some(most) if amount > *most => {
                found
                    .push(format!("{argument} = {amount} is more than the {most} that was approved at most"));
            }
            Some(_) => {}
        }
    }
    // An outsider may have chosen the values, and a group is read less closely.
    if asked.prepared.label.taint == Taint::External && !asked.prepared.sinks.is_empty() {
        found.push("what it names may come from outside".to_owned());
    }
    if is_odd_hour(asked.at, &before.hours) {
        found.push("nothing like it was approved at about this time of day".to_owned());
    }
    if before.longest.is_some_and(|longest| asked.shown_bytes > longest.saturating_mul(UNUSUAL_SIZE)) {
        found.push(format!("its text is more than {UNUSUAL_SIZE} times as long as any that was approved"));
    }
    found
}

/// Lists the recipients, places and things that an action names, without amounts: names and values.
fn named_places(prepared: &Prepared) -> BTreeSet<(String, String)> {
    let attributes = scope::attributes_of(&prepared.action).into_iter().filter_map(|(dimension, value)| {
        let counts = match dimension {
            Dimension::Host | Dimension::Recipient | Dimension::Name => true,
            // Files of a folder come and go.
            Dimension::Path
            | Dimension::Place
            | Dimension::Profile
            | Dimension::Provider
            | Dimension::Memory => false,
        };
        counts.then(|| (dimension.as_str().to_owned(), value))
    });
    let is_call = matches!(prepared.action, Action::CallTool(_));
    let amounts: BTreeSet<String> = named_amounts(prepared).into_iter().map(|(name, _)| name).collect();
    let sinks = prepared.sinks.iter().filter(|sink| is_call && !amounts.contains(&sink.argument));
    attributes.chain(sinks.map(|sink| (sink.argument.clone(), sink.value.clone()))).collect()
}

fn named_amounts(prepared: &Prepared) -> Vec<(String, Amount)> {
    if let Action::CallTool(call) = &prepared.action {
        standing::variable_amounts(call, &prepared.sinks)
    } else {
        Vec::new()
    }
}

/// The hour of the day, by UTC.
const fn hour_of_day(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(HOUR_MS).rem_euclid(HOURS_OF_DAY)
}

/// Returns true if an hour of the day is far from those of all approvals.
fn is_odd_hour(at: Timestamp, before: &[i64]) -> bool {
    let apart = |other: &i64| {
        // Around midnight: 23 and 1 are two hours apart.
        let apart = (hour_of_day(at) - other).abs();
        apart.min(HOURS_OF_DAY - apart)
    };
    // With few approvals every hour would be unusual.
    before.len() >= MIN_HOURS_KNOWN
        && before.iter().map(apart).min().is_some_and(|near| near >= UNUSUAL_HOURS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_types::action::{CallTool, Fetch};

    use super::*;
    use crate::fixture::{NOW, call_tool, fetch, later, plan, prepared, tainted};
    use writ_inspect::prepared::Sink;

    fn pay(to: &str, amount: u64) -> Prepared {
        let arguments = json!({ "to": to, "amount": amount });
        let sink = |argument: &str, value: String| Sink { argument: argument.into(), value };
        let sinks = vec![sink("to", to.into()), sink("amount", amount.to_string())];
        let call = CallTool { arguments, declared: true, ..call_tool() };
        Prepared { sinks, ..prepared(Action::CallTool(call)) }
    }

    struct Row(AskId, Prepared, Risk, u8, usize, Timestamp);

    fn row(n: u64, prepared: Prepared) -> Row {
        Row(AskId::from_random(n), prepared, Risk::Medium, 1, 100, NOW)
    }

    fn told(waiting: &[Row], approved: &[Row]) -> Vec<AlikeAsks> {
        fn asked(row: &Row) -> ReviewedAsk<'_> {
            let Row(ask, prepared, risk, approvers, shown_bytes, at) = row;
            ReviewedAsk {
                ask,
                prepared,
                risk: *risk,
                approvers: *approvers,
                shown_bytes: *shown_bytes,
                at: *at,
            }
        }
        let waiting: Vec<_> = waiting.iter().map(asked).collect();
        let approved: Vec<_> = approved.iter().map(asked).collect();
        review_asks(&waiting, &approved)
    }

    fn only(group: &[AlikeAsks]) -> &GroupMember {
        let [AlikeAsks { members, .. }] = group else { panic!("{group:?}") };
        let [member] = members.as_slice() else { panic!("{members:?}") };
        member
    }

    #[test]
    fn alike_asks_are_one_group_and_what_was_approved_before_is_no_anomaly() {
        let approved = [row(1, pay("ann", 50)), row(2, pay("bob", 10))];
        let read = Fetch { url: "https://docs.example/".into(), ..fetch("https://docs.example/") };
        let waiting = [row(3, pay("ann", 20)), row(4, prepared(Action::Fetch(read))), row(5, pay("bob", 50))];
        let groups = told(&waiting, &approved);
        let sizes: Vec<usize> = groups.iter().map(|group| group.members.len()).collect();
        assert_eq!(sizes, [2, 1], "{groups:?}");
        assert!(groups[0].members.iter().all(GroupMember::goes_with_others), "{groups:?}");
        assert!(groups[0].likeness.contains("(call_tool), naming"), "{}", groups[0].likeness);
    }

    /// Each rule by itself, with its reason in words.
    #[test]
    fn each_anomaly_is_told_in_words_and_keeps_its_ask_out_of_the_group() {
        let approved = [row(1, pay("ann", 50))];
        let says = |row: Row, approved: &[Row], words: &str| {
            let groups = told(&[row], approved);
            let member = only(&groups);
            assert!(!member.goes_with_others());
            assert_eq!(member.anomalies.len(), 1, "{member:?}");
            assert!(member.anomalies[0].contains(words), "{member:?}");
        };
        says(row(2, pay("eve", 50)), &approved, "to = eve was never approved before");
        says(row(2, pay("ann", 51)), &approved, "amount = 51 is more than the 50");
        let outside = Prepared { label: tainted(call(), Taint::External).label, ..pay("ann", 50) };
        says(row(2, outside), &approved, "from outside");
        says(
            Row(AskId::from_random(2), pay("ann", 50), Risk::Medium, 1, 401, NOW),
            &approved,
            "4 times as long",
        );
        let long = Row(AskId::from_random(2), pay("ann", 50), Risk::Medium, 1, 400, NOW);
        assert!(only(&told(&[long], &approved)).goes_with_others(), "as long as four of them");
        let usual: Vec<Row> = (0..10).map(|n| row(n, pay("ann", 50))).collect();
        let late = later(UNUSUAL_HOURS * 3_600_000);
        says(Row(AskId::from_random(20), pay("ann", 50), Risk::Low, 1, 100, late), &usual, "time of day");
        // Shortly before midnight is near to shortly after.
        let at = |hour: i64| {
            later((hour - NOW.as_millis().div_euclid(3_600_000).rem_euclid(HOURS_OF_DAY)) * 3_600_000)
        };
        let nights: Vec<Row> =
            (0..10).map(|n| Row(AskId::from_random(n), pay("ann", 50), Risk::Low, 1, 100, at(23))).collect();
        for (hour, odd) in [(1, false), (0, false), (12, true)] {
            let asked = Row(AskId::from_random(20), pay("ann", 50), Risk::Low, 1, 100, at(24 + hour));
            assert_eq!(only(&told(&[asked], &nights)).goes_with_others(), !odd, "{hour}");
        }
        // A day later is no other hour, and of few approvals no hour is known.
        for (at, before) in [(later(86_400_000), &usual[..]), (late, &usual[..9])] {
            let groups = told(&[Row(AskId::from_random(20), pay("ann", 50), Risk::Low, 1, 100, at)], before);
            assert!(only(&groups).goes_with_others());
        }
    }

    /// Each ask is in one band, by what was answered before; no band but the two highest goes with a group.
    ///
    /// Rows: SIL-369 (in part: the bands; a teaching card is none of its own)
    #[test]
    fn each_ask_is_in_the_band_that_earlier_answers_put_it_in() {
        let habit: Vec<Row> = (0..MIN_ALIKE).map(|n| row(n as u64, pay("ann", 50))).collect();
        let band = |asked: Row, approved: &[Row]| only(&told(&[asked], approved)).band;
        let usual = || row(90, pay("ann", 50));
        assert_eq!(band(usual(), &habit), ReviewBand::High);
        assert_eq!(band(usual(), &habit[1..]), ReviewBand::Medium, "four times are no habit");
        assert_eq!(band(row(90, pay("eve", 50)), &habit), ReviewBand::Low, "another recipient");
        let dear = Row(AskId::from_random(90), pay("ann", 50), Risk::High, 1, 100, NOW);
        assert_eq!(band(dear, &habit), ReviewBand::Low, "a wrong yes does much harm");
        assert_eq!(band(usual(), &[]), ReviewBand::Novel);
        let groups = told(&[usual(), row(91, pay("eve", 50)), row(92, pay("ann", 1))], &habit);
        let together: Vec<ReviewBand> = groups[0]
            .members
            .iter()
            .filter(|member| member.goes_with_others())
            .map(|member| member.band)
            .collect();
        assert_eq!(together, [ReviewBand::High, ReviewBand::High], "{groups:?}");
    }

    fn call() -> Action {
        Action::CallTool(call_tool())
    }

    #[test]
    fn what_does_much_harm_is_answered_by_itself() {
        let approved = [row(1, pay("ann", 50)), row(2, prepared(Action::Plan(plan())))];
        for risk in [Risk::High, Risk::Irreversible] {
            let groups = told(&[Row(AskId::from_random(3), pay("ann", 5), risk, 1, 100, NOW)], &approved);
            assert!(only(&groups).alone.is_some() && only(&groups).anomalies.is_empty());
        }
        let two = told(&[Row(AskId::from_random(3), pay("ann", 5), Risk::Low, 2, 100, NOW)], &approved);
        assert!(only(&two).alone.is_some());
        let plan = told(&[row(3, prepared(Action::Plan(plan())))], &approved);
        assert_eq!(only(&plan).alone, Some("it is a plan"));
    }

    /// What names very many things is unusual by that alone, and few of them are listed.
    #[test]
    fn what_names_many_things_says_how_many() {
        let naming = |count: usize| {
            let sinks =
                (0..count).map(|n| Sink { argument: "to".into(), value: format!("p{n:03}") }).collect();
            Prepared { sinks, ..prepared(call()) }
        };
        let count = |n: usize| only(&told(&[row(1, naming(n))], &[])).anomalies.len();
        let named = named_places(&naming(MAX_PLACES)).len() - MAX_PLACES;
        let says = |n: usize| {
            let groups = told(&[row(1, naming(n - named))], &[]);
            only(&groups).anomalies.iter().any(|why| why.starts_with("it names "))
        };
        assert!(!says(MAX_PLACES) && says(MAX_PLACES + 1));
        assert!(count(MAX_PLACES * 2) <= MAX_PLACES + 3, "no more are listed");
    }
}
