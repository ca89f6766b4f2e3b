//! The cadence of questions: how many a person is asked, how fast and how they are answered, and what that speaks for.
//!
//! A person who is asked too often stops reading. What was approved each time without a doubt may be approved for longer;
//! what was approved for longer and was then denied or taken back may be asked about again. Both are offers: nothing here
//! changes what is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use writ_types::id::AskId;
use writ_types::unit::Timestamp;

/// The time over which answers are counted.
pub const COUNTED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The number of approvals of one likeness, without a denial, from which a longer one is offered: fewer are no habit.
pub const MIN_ALIKE: usize = 5;

/// The answer to an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTime {
    /// A person said yes.
    Approved,
    /// A person said no.
    Denied,
    /// No one answered in time.
    Expired,
}

/// An ask that was answered, as far as it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnsweredAsk {
    /// The name of the group of similar asks, as in [`crate::review`].
    pub likeness: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it was answered or ended.
    pub answered_at: Timestamp,
    /// The answer.
    pub answer: AnswerTime,
}

/// Counts of asks by their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskCounts {
    /// Asks that were approved.
    pub approved: usize,
    /// Asks that were denied.
    pub denied: usize,
    /// Asks that no one answered.
    pub expired: usize,
    /// The time to an answer that half of the answers took at most; none without an answer.
    pub median: Option<Duration>,
}

/// Counts answers, in all and by likeness.
pub fn count_answers(asks: &[AnsweredAsk]) -> (AskCounts, BTreeMap<&str, AskCounts>) {
    let mut alike: BTreeMap<&str, Vec<&AnsweredAsk>> = BTreeMap::new();
    for ask in asks {
        alike.entry(&ask.likeness).or_default().push(ask);
    }
    let all: Vec<&AnsweredAsk> = asks.iter().collect();
    (count(&all), alike.into_iter().map(|(likeness, asks)| (likeness, count(&asks))).collect())
}

fn count(asks: &[&AnsweredAsk]) -> AskCounts {
    let of = |answer: AnswerTime| asks.iter().filter(|ask| ask.answer == answer).count();
    let answered = asks.iter().filter(|ask| ask.answer != AnswerTime::Expired);
    let mut times: Vec<Duration> = answered.map(|ask| ask.answered_at.time_since(ask.asked_at)).collect();
    times.sort_unstable();
    let middle = times.len().saturating_sub(1) / 2;
    AskCounts {
        approved: of(AnswerTime::Approved),
        denied: of(AnswerTime::Denied),
        expired: of(AnswerTime::Expired),
        median: times.get(middle).copied(),
    }
}

impl AskCounts {
    /// Returns true if the answers speak for one approval in place of the next questions: there were enough, all of them yes,
    /// and nothing of it was taken back.
    pub const fn speaks_for_longer(&self, undone: usize) -> bool {
        self.approved >= MIN_ALIKE && self.denied == 0 && undone == 0
    }
}

/// An approval that lasts, and what has come since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingApproval {
    /// The ask that was answered with it.
    pub ask: AskId,
    /// The likeness of what it covers.
    pub likeness: String,
    /// When it was given.
    pub given_at: Timestamp,
    /// The number of things under it that were taken back since.
    pub undone: usize,
}

/// Returns how often something like a lasting approval was denied since, if that or what was taken back speaks for asking
/// again.
pub fn speaks_for_asking(approval: &LastingApproval, asks: &[AnsweredAsk]) -> Option<usize> {
    let denied = asks.iter().filter(|ask| {
        ask.likeness == approval.likeness
            && ask.answer == AnswerTime::Denied
            && ask.answered_at >= approval.given_at
    });
    let denied = denied.count();
    (denied > 0 || approval.undone > 0).then_some(denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(likeness: &str, at: i64, secs: i64, answer: AnswerTime) -> AnsweredAsk {
        AnsweredAsk {
            likeness: likeness.to_owned(),
            asked_at: Timestamp::from_millis(at),
            answered_at: Timestamp::from_millis(at + secs * 1_000),
            answer,
        }
    }

    /// Rows: SIL-366 (in part: what was denied is counted apart for each likeness)
    #[test]
    fn answers_are_counted_and_what_expired_has_no_time() {
        let (yes, no, late) = (AnswerTime::Approved, AnswerTime::Denied, AnswerTime::Expired);
        let asks = [ask("a", 0, 2, yes), ask("a", 0, 90, no), ask("b", 0, 4, yes), ask("b", 0, 86_400, late)];
        let (all, alike) = count_answers(&asks);
        assert_eq!((all.approved, all.denied, all.expired), (2, 1, 1));
        assert_eq!(all.median, Some(Duration::from_secs(4)));
        assert_eq!(alike["a"].median, Some(Duration::from_secs(2)), "the lower of two");
        assert_eq!(count_answers(&[]).0, AskCounts::default());
        assert_eq!(count_answers(&asks[3..]).0.median, None);
    }

    /// Rows: SIL-368 (in part: below the least number there is no offer, and one doubt ends it)
    #[test]
    fn a_habit_without_a_doubt_speaks_for_longer_and_one_doubt_does_not() {
        let mut asks: Vec<AnsweredAsk> = (0..5).map(|n| ask("a", n, 1, AnswerTime::Approved)).collect();
        assert!(count_answers(&asks).0.speaks_for_longer(0));
        assert!(!count_answers(&asks).0.speaks_for_longer(1), "one was taken back");
        assert!(!count_answers(&asks[1..]).0.speaks_for_longer(0), "four are no habit");
        asks.push(ask("a", 9, 1, AnswerTime::Denied));
        assert!(!count_answers(&asks).0.speaks_for_longer(0));
    }

    /// Rows: SIL-367 (in part: what was denied since is an offer to be asked again)
    #[test]
    fn only_what_came_after_an_approval_speaks_against_it() {
        let approval = |undone| LastingApproval {
            ask: "Ab3dEf9Z".parse().expect("an id"),
            likeness: "a".to_owned(),
            given_at: Timestamp::from_millis(10_000),
            undone,
        };
        let asks = [ask("a", 0, 5, AnswerTime::Denied), ask("b", 20_000, 1, AnswerTime::Denied)];
        assert_eq!(speaks_for_asking(&approval(0), &asks), None);
        assert_eq!(speaks_for_asking(&approval(2), &asks), Some(0));
        let later = [ask("a", 20_000, 1, AnswerTime::Denied)];
        assert_eq!(speaks_for_asking(&approval(0), &later), Some(1));
    }
}
