use writ_types::unit::{MicroUsd, Timestamp};

use super::*;

fn sample() -> PilotReport {
    PilotReport {
        project: "shop".to_owned(),
        made_at: Timestamp::from_millis(1_750_000_000_000),
        cost: MicroUsd::new(7),
        units: vec![
            ReportUnit {
                id: "milestone/m1".to_owned(),
                title: "Sign in".to_owned(),
                phase: "complete".to_owned(),
                status: "succeeded".to_owned(),
                cost: MicroUsd::new(1_500_000),
                ..ReportUnit::default()
            },
            ReportUnit {
                id: "task/m1/s1/t1".to_owned(),
                depth: 2,
                title: "Form".to_owned(),
                phase: "verify".to_owned(),
                status: "blocked".to_owned(),
                blocker: "a ceiling".to_owned(),
                ..ReportUnit::default()
            },
        ],
        runs: vec![ReportRun {
            unit: "task/m1/s1/t1".to_owned(),
            phase: "execute".to_owned(),
            attempt: 2,
            end: "stalled".to_owned(),
            millis: 12_345,
            cost: MicroUsd::new(7),
            ..ReportRun::default()
        }],
        gates: vec![ReportGate {
            unit: "slice/m1/s1".to_owned(),
            name: "test".to_owned(),
            verdict: "not_run".to_owned(),
            summary: "no test was run".to_owned(),
            attempt: 3,
            millis: 1_250,
            ..ReportGate::default()
        }],
        moves: vec![ReportMove {
            unit: "task/m1/s1/t1".to_owned(),
            from: "verify".to_owned(),
            to: "execute".to_owned(),
            cause: "gate_failed".to_owned(),
            ..ReportMove::default()
        }],
        reviews: vec![ReportReview { unit: "slice/m1/s1".to_owned(), findings: "- a:1 (low): x".to_owned() }],
        commits: vec![ReportCommit {
            id: "abc".to_owned(),
            unit: "slice/m1/s1".to_owned(),
            subject: "slice/m1/s1: Form".to_owned(),
            ..ReportCommit::default()
        }],
        ..PilotReport::default()
    }
}

#[test]
fn a_report_shows_work_gates_attempts_phases_and_costs() {
    let html = write_html(&sample());
    for part in [
        "<p>1 of 2 units complete, 1 blocked; 0 of 1 gates passed; 1 attempts, $0.000007. Made 2025-06-15T15:06:40.000Z.</p>",
        "<td>milestone/m1</td><td>Sign in</td><td>complete</td><td><span class=\"good\">succeeded</span></td><td>$1.500000</td>",
        "<td>&emsp;&emsp;task/m1/s1/t1</td><td>Form</td><td>verify</td><td><span class=\"open\">blocked: a ceiling</span></td>",
        "<td>3</td><td><span class=\"open\">not_run</span></td><td>1.2</td><td>no test was run</td>",
        "<td>2</td><td><span class=\"bad\">stalled</span></td><td></td><td>1970-01-01T00:00:00.000Z</td><td>12.3</td><td>0</td><td>$0.000007</td>",
        "<td>verify</td><td>execute</td><td>gate_failed</td>",
        "<td>slice/m1/s1</td><td>- a:1 (low): x</td>",
        "<td>abc</td><td>slice/m1/s1</td><td>1970-01-01T00:00:00.000Z</td><td>slice/m1/s1: Form</td>",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    let empty = write_html(&PilotReport::default());
    assert_eq!(empty.matches("<p>None.</p>").count(), 6);
    assert!(empty.contains("0 of 0 units complete"));
}

/// Every text of a report may come from an agent.
#[test]
fn nothing_of_an_agent_is_markup() {
    let hostile = "<script>alert(1)</script>\"'&\u{202e}\n<img src=x onerror=y>";
    let text = || hostile.to_owned();
    let report = PilotReport {
        project: text(),
        made_at: Timestamp::from_millis(0),
        units: vec![ReportUnit {
            id: text(),
            title: text(),
            phase: text(),
            status: text(),
            blocker: text(),
            request: text(),
            ..ReportUnit::default()
        }],
        runs: vec![ReportRun {
            unit: text(),
            phase: text(),
            error: text(),
            end: text(),
            ..ReportRun::default()
        }],
        gates: vec![ReportGate {
            unit: text(),
            name: text(),
            verdict: text(),
            summary: text(),
            ..ReportGate::default()
        }],
        moves: vec![ReportMove {
            unit: text(),
            from: text(),
            to: text(),
            cause: text(),
            ..ReportMove::default()
        }],
        reviews: vec![ReportReview { unit: text(), findings: text() }],
        commits: vec![ReportCommit { id: text(), unit: text(), subject: text(), ..ReportCommit::default() }],
        ..PilotReport::default()
    };
    let html = write_html(&report);
    let escaped =
        "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;\\u{202e}\\n&lt;img src=x onerror=y&gt;";
    assert_eq!(html.matches(escaped).count(), 2 + 6 + 4 + 4 + 4 + 2 + 3);
    assert!(!html.contains("<script") && !html.contains("<img") && !html.contains('\u{202e}'));
    assert!(html.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("<link"));
}

#[test]
fn a_report_is_bounded() {
    let unit = ReportUnit { title: "é".repeat(10_000), ..ReportUnit::default() };
    let report = PilotReport { units: vec![unit; MAX_ROWS + 3], ..PilotReport::default() };
    let html = write_html(&report);
    assert!(html.contains("<p>3 more rows are left out.</p>"));
    assert!(html.contains(&format!("{}…</td>", "é".repeat(500))));
    assert!(html.len() < 8 * 1024 * 1024);
}
