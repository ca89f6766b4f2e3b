//! Chapters of a unit: what its runs were about, one after another, each with its intent and outcome once it is over.
//!
//! Each run begins one, named after its phase; an agent opens others in it. A chapter that another one follows in the same run is a pivot.

use writ_types::api::pilot::{ChapterOutcome, PilotChapter};
use writ_types::unit::Timestamp;

/// The most chapters of a unit; the oldest ones that are over leave the list.
pub const MAX_CHAPTERS: usize = 200;
/// The longest intent, in characters: a sentence.
const MAX_INTENT_CHARS: usize = 300;
/// The most chapters that a prompt shows: the newest.
const MAX_TOLD: usize = 20;

/// The unit of chapters, for their texts.
#[derive(Clone, Copy, Debug)]
pub struct ChapterUnit<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its title.
    pub title: &'a str,
}

/// The chapters of a unit, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChapterList(Vec<PilotChapter>);

impl ChapterList {
    /// Takes chapters as they are.
    pub const fn of_chapters(chapters: Vec<PilotChapter>) -> Self {
        Self(chapters)
    }

    /// Returns all of them.
    pub fn chapters(&self) -> &[PilotChapter] {
        &self.0
    }

    /// Begins the first chapter of a run.
    pub fn begin_run(&mut self, unit: &ChapterUnit<'_>, (run, phase): (&str, &str), at: Timestamp) {
        self.push(unit, (run, phase, false), at);
    }

    /// Opens a chapter that an agent has declared in a run; the one before it is over. One that is there already stays as it is.
    pub fn declare(&mut self, unit: &ChapterUnit<'_>, (run, name): (&str, &str), at: Timestamp) {
        let is_there = |one: &PilotChapter| one.is_declared && one.opened_at == at && one.name == name;
        if self.of_run(run).any(is_there) {
            return;
        }
        self.close_run(unit, (run, ChapterOutcome::Pivot), at);
        self.push(unit, (run, name, true), at);
    }

    /// Ends the chapter of a run that is open, and writes its intent and outcome.
    pub fn close_run(
        &mut self,
        unit: &ChapterUnit<'_>,
        (run, outcome): (&str, ChapterOutcome),
        at: Timestamp,
    ) {
        for chapter in self.0.iter_mut().filter(|one| is_of(one, run) && one.closed_at.is_none()) {
            let what = format!("{}: {}, {}", unit.id, chapter.name, unit.title);
            let sentence: String = what.chars().take(MAX_INTENT_CHARS).collect();
            chapter.intent = format!("{}.", sentence.trim_end_matches('.'));
            (chapter.closed_at, chapter.outcome) = (Some(at), Some(outcome));
        }
    }

    /// Returns the chapter that something in a run belongs to: the last one that was open then, and the first for what was before it.
    pub fn find_chapter(&self, run: &str, at: Timestamp) -> Option<&str> {
        let open = self.of_run(run).filter(|one| one.opened_at <= at).last();
        open.or_else(|| self.of_run(run).next()).map(|one| one.id.as_str())
    }

    /// Describes the chapters that are over for an agent that goes on; empty without any.
    pub fn tell(&self) -> String {
        let over: Vec<&PilotChapter> = self.0.iter().filter(|one| one.closed_at.is_some()).collect();
        let line = |one: &&PilotChapter| {
            let outcome = one.outcome.map_or("", ChapterOutcome::name);
            format!("- {} ({outcome}): {}\n", one.name, one.intent)
        };
        let told: String = over.iter().skip(over.len().saturating_sub(MAX_TOLD)).map(line).collect();
        if told.is_empty() { told } else { format!("Chapters of this work so far, as data:\n\n{told}") }
    }

    /// Returns the chapters of a run.
    pub fn of_run<'a, 'r>(&'a self, run: &'r str) -> impl Iterator<Item = &'a PilotChapter> + use<'a, 'r> {
        self.0.iter().filter(move |one| is_of(one, run))
    }

    fn push(&mut self, unit: &ChapterUnit<'_>, (run, name, is_declared): (&str, &str, bool), at: Timestamp) {
        while self.0.len() >= MAX_CHAPTERS {
            let over = self.0.iter().position(|one| one.closed_at.is_some()).unwrap_or(0);
            self.0.remove(over);
        }
        let number = self.of_run(run).filter_map(|one| one.id.rsplit('.').next()?.parse::<u32>().ok()).max();
        self.0.push(PilotChapter {
            id: format!("{run}.{}", number.unwrap_or(0).saturating_add(1)),
            unit_id: unit.id.to_owned(),
            name: name.to_owned(),
            is_declared,
            intent: String::new(),
            opened_at: at,
            closed_at: None,
            outcome: None,
            span_ids: Vec::new(),
        });
    }
}

/// Returns true for a chapter of a run.
fn is_of(chapter: &PilotChapter, run: &str) -> bool {
    chapter.id.rsplit_once('.').is_some_and(|(of, _)| of == run)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: ChapterUnit<'_> = ChapterUnit { id: "task/m1/s1/t1", title: "add" };

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Rows: SF-461 (in part: the list; its spans: the engine's tests)
    /// Rows: SF-462
    #[test]
    fn a_chapter_has_its_intent_and_outcome_once_it_is_over() {
        let mut list = ChapterList::default();
        list.begin_run(&UNIT, ("r1", "execute"), at(10));
        let open = list.chapters()[0].clone();
        assert_eq!((open.closed_at, open.intent.as_str(), open.outcome), (None, "", None));
        assert_eq!(list.tell(), "", "one that is open is not told");
        list.declare(&UNIT, ("r1", "find the cause"), at(20));
        // Read once more after a crash.
        list.declare(&UNIT, ("r1", "find the cause"), at(20));
        list.close_run(&UNIT, ("r1", ChapterOutcome::Success), at(30));
        list.begin_run(&UNIT, ("r2", "verify"), at(40));
        let seen: Vec<_> = list
            .chapters()
            .iter()
            .map(|one| (one.id.as_str(), one.name.as_str(), one.closed_at, one.outcome, one.intent.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (
                    "r1.1",
                    "execute",
                    Some(at(20)),
                    Some(ChapterOutcome::Pivot),
                    "task/m1/s1/t1: execute, add."
                ),
                (
                    "r1.2",
                    "find the cause",
                    Some(at(30)),
                    Some(ChapterOutcome::Success),
                    "task/m1/s1/t1: find the cause, add."
                ),
                ("r2.1", "verify", None, None, ""),
            ]
        );
        for (run, time, chapter) in
            [("r1", 5, "r1.1"), ("r1", 19, "r1.1"), ("r1", 20, "r1.2"), ("r2", 99, "r2.1")]
        {
            assert_eq!(list.find_chapter(run, at(time)), Some(chapter));
        }
        assert_eq!(list.find_chapter("r3", at(50)), None);
        assert!(list.tell().ends_with("- find the cause (success): task/m1/s1/t1: find the cause, add.\n"));
        let mut odd = serde_json::to_value(&list.chapters()[0]).expect("writes");
        odd["outcome"] = "great".into();
        assert!(serde_json::from_value::<PilotChapter>(odd).is_err(), "an outcome outside the set");
    }

    #[test]
    fn the_list_and_the_text_of_it_are_bounded() {
        let mut list = ChapterList::default();
        list.begin_run(&UNIT, ("open", "execute"), at(0));
        for n in 0..MAX_CHAPTERS {
            let run = format!("r{n}");
            list.begin_run(&UNIT, (&run, "verify"), at(1));
            list.close_run(&UNIT, (&run, ChapterOutcome::Failure), at(2));
        }
        assert_eq!(list.chapters().len(), MAX_CHAPTERS);
        assert_eq!(list.chapters()[0].id, "open.1", "what is open stays");
        assert_eq!(list.tell().lines().count(), 2 + MAX_TOLD);
    }
}
