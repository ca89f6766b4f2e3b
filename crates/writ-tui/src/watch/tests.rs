//! Views of statuses that were made up.

use unicode_width::UnicodeWidthStr as _;
use writ_types::api::model::{ProviderLimits, StatedLimit, StatedLimits};
use writ_types::api::pilot::{PilotBlockerLine, PilotCounts, PilotRunningLine, PilotTokens, PilotTotals};
use writ_types::id::PilotId;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use super::*;

const HOSTILE: &str = "a\u{1b}[2J\u{7}\u{202e}b\nc";

fn unit(id: &str, title: &str) -> PilotUnitLine {
    PilotUnitLine {
        id: id.to_owned(),
        title: title.to_owned(),
        phase: "execute".to_owned(),
        status: "running".to_owned(),
        attempt: 1,
        is_over: false,
        is_running: false,
        cost: MicroUsd::new(1_500),
    }
}

fn look(units: Vec<PilotUnitLine>) -> WatchLook {
    let at = Timestamp::from_millis(0);
    let log = |n: usize| PilotLogLine {
        at,
        attempt: 1,
        kind: "tool".to_owned(),
        text: format!("line {n} {HOSTILE}"),
        took_ms: None,
        tokens: None,
        cost: None,
    };
    let status = PilotStatus {
        project: "/p".to_owned(),
        session: PilotId::from_parts(at, 1),
        state: "running".to_owned(),
        plans: Vec::new(),
        units,
        blockers: vec![PilotBlockerLine {
            unit: "slice/m1/s1".to_owned(),
            event: "UATPending".to_owned(),
            detail: HOSTILE.to_owned(),
            since: at,
        }],
        cost: MicroUsd::new(2_000_000),
        next: None,
        since: None,
        model: String::new(),
        circuits: Vec::new(),
        rate_limits: vec![ProviderLimits {
            provider: HOSTILE.to_owned(),
            stated: StatedLimits::new(
                at,
                StatedLimit::new(Some(60), Some(0), None),
                StatedLimit::default(),
                [("retry-after".to_owned(), HOSTILE.to_owned())].into(),
            ),
        }],
        settings: Vec::new(),
        warnings: vec![HOSTILE.to_owned()],
    };
    let logged = status.units.first().map(|unit| unit.id.clone());
    WatchLook { status, snapshot: None, logged, log: (0..20).map(log).collect() }
}

fn tree() -> Vec<PilotUnitLine> {
    let mut units = vec![unit("milestone/m1", "Sums"), unit("slice/m1/s1", HOSTILE)];
    units.extend(
        (1..=40).map(|n| unit(&format!("task/m1/s1/t{n}"), &format!("task {n} 漢字漢字漢字漢字漢字"))),
    );
    units
}

/// Whatever a project, a planner or an agent writes, no row of any size has a character that acts unseen, and none is wider or one of
/// too many.
#[test]
fn no_row_acts_on_the_terminal_or_leaves_it() {
    let mut view = WatchView::default();
    view.take_look(look(tree()));
    view.note_fault(HOSTILE);
    view.press_key(WatchKey::Last);
    for size in [(1, 1), (8, 20), (10, 33), (24, 80), (60, 200)] {
        let rows = view.draw_rows(size, Paint::Plain);
        assert!(rows.len() <= size.0.max(MIN_SIZE.0), "{size:?}: {rows:#?}");
        for row in &rows {
            assert!(!row.chars().any(writ_types::visible::acts_unseen), "{row:?}");
            assert!(row.width() <= size.1.max(MIN_SIZE.1), "{size:?}: {row:?}");
        }
        assert!(rows.last().is_some_and(|row| row.starts_with("q: leave")), "{rows:#?}");
    }
}

/// A view shows units with phase and cost, a unit at work with its calls, tokens and last entry, blockers, the limits that a provider has
/// stated, the money spent, and the last lines of the selected unit.
#[test]
fn a_view_shows_units_blockers_money_and_last_lines() {
    let mut view = WatchView::default();
    assert_eq!(view.draw_rows((24, 80), Paint::Plain), ["the engine is asked …"]);
    let mut shown = look(tree());
    shown.snapshot = Some(PilotSnapshot {
        generated_at: Timestamp::from_millis(0),
        session: shown.status.session,
        project: "/p".to_owned(),
        state: "running".to_owned(),
        ticks: 1,
        counts: PilotCounts { running: 1, retrying: 0, queued: 2 },
        running: vec![PilotRunningLine {
            unit_id: "slice/m1/s1".to_owned(),
            phase: "execute".to_owned(),
            session_id: None,
            turn_count: 3,
            last_event: "model_called".to_owned(),
            started_at: Timestamp::from_millis(0),
            tokens: PilotTokens { total: Tokens::new(1_234), ..PilotTokens::default() },
        }],
        retrying: Vec::new(),
        totals: PilotTotals::default(),
        rate_limits: Vec::new(),
    });
    view.take_look(shown);
    let rows = view.draw_rows((30, 140), Paint::Plain);
    let text = rows.join("\n");
    for part in [
        "running, $2.000000, 0 of 42 units are over; 1 run, 0 wait for another try, 2 are ready  /p",
        "> milestone/m1 execute $0.001500  Sums",
        "slice/m1/s1 execute [runs: 3 calls, 1234 tokens, model_called]",
        "UATPending slice/m1/s1: a\\u{1b}[2J",
        "said at 1970-01-01T00:00:00.000Z: 0 requests left of 60",
        "last lines of milestone/m1",
        "tool line 19 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("line 12 ") && rows.len() == 30, "{text}");
}

/// Arrows move the selection by units, stop at both ends, and the list follows; the selection stays with its unit when others come.
#[test]
fn the_selection_moves_and_stays_with_its_unit() {
    let mut view = WatchView::default();
    assert_eq!((view.press_key(WatchKey::Down), view.selected_unit()), (WatchEffect::None, None));
    view.take_look(look(tree()));
    assert_eq!(view.press_key(WatchKey::Up), WatchEffect::None, "it is the first");
    assert_eq!(
        (view.press_key(WatchKey::Down), view.selected_unit()),
        (WatchEffect::Selected, Some("slice/m1/s1"))
    );
    assert!(
        !view.draw_rows((30, 80), Paint::Plain).join("\n").contains("line 19"),
        "they were of another unit"
    );
    view.take_look(look(tree()));
    assert!(!view.draw_rows((30, 80), Paint::Plain).join("\n").contains("line 19"), "it was asked before");
    view.press_key(WatchKey::Last);
    assert_eq!(view.press_key(WatchKey::PageDown), WatchEffect::None, "it is the last");
    assert!(
        view.draw_rows((24, 80), Paint::Plain).iter().any(|row| row.starts_with(">     task/m1/s1/t40 "))
    );
    view.press_key(WatchKey::PageUp);
    assert_eq!(view.selected_unit(), Some("task/m1/s1/t30"));
    let mut more = vec![unit("milestone/m0", "Earlier")];
    more.extend(tree());
    view.take_look(look(more));
    assert_eq!(view.selected_unit(), Some("task/m1/s1/t30"));
    view.take_look(look(vec![unit("milestone/m2", "Other")]));
    assert_eq!(view.selected_unit(), Some("milestone/m2"));
    assert_eq!(view.press_key(WatchKey::Leave), WatchEffect::Leave);
}

/// An engine that does not answer, or is gone, ends no view: the last answer stays, with the reason above it, until there is another.
///
/// Rows: SF-481 (in part: a look that fails)
#[test]
fn a_failed_look_leaves_the_last_one() {
    let mut view = WatchView::default();
    view.take_look(look(tree()));
    let before = view.draw_rows((40, 80), Paint::Plain);
    view.note_fault("the engine is silent");
    let rows = view.draw_rows((40, 80), Paint::Plain);
    assert_eq!((rows[0].as_str(), &rows[1]), ("not up to date: the engine is silent", &before[0]));
    view.take_look(look(tree()));
    assert_eq!(view.draw_rows((40, 80), Paint::Plain), before);
}
