use writ_types::action::ActionKind;
use writ_types::id::AskId;
use writ_types::unit::Timestamp;

use super::*;

#[test]
fn reports_end_commands_with_the_documented_codes() {
    let ask = AskId::from_random(1);
    let reports = [
        (RuleError::Schema { origin: "o".into(), text: "x".into() }.report(), Exit::Config, "rules.schema"),
        (AuthError::Unknown.report(), Exit::Denied, "auth.unknown"),
        (AuthError::Empty.report(), Exit::Usage, "auth.empty"),
        (KeyError::Signature.report(), Exit::Denied, "key.signature"),
        (KeyError::Build("x".into()).report(), Exit::Bug, "key.build"),
        (ApprovalError::Expired.report(), Exit::Denied, "approval.expired"),
        (RedeemError::ApprovalSpent(ask).report(), Exit::Denied, "approval.spent"),
        (RedeemError::Unwritable("x".into()).report(), Exit::Blocked, "ledger.unwritable"),
        (PermitExpired(Timestamp::from_millis(0)).report(), Exit::Denied, "permit.expired"),
    ];
    for (report, exit, code) in reports {
        assert_eq!((report.exit, report.code.as_str()), (exit, code));
        assert!(!report.outside.is_empty());
    }
}

#[test]
fn what_only_the_log_may_know_stays_inside() {
    let report = RedeemError::Unwritable("/home/me/.writ/data/writ.db: disk full".into()).report();
    assert!(!report.outside.contains("/home/me") && report.inside.contains("/home/me"));
    let report = KeyError::Content("forged \u{1b}[2J".into()).report();
    assert!(!report.outside.contains("forged") && report.inside.contains("forged"));
}

#[test]
fn a_denial_ends_with_4_or_6_and_tells_no_host_path() {
    let denial = |reason| Denial {
        prepared: None,
        kind: ActionKind::WriteFile,
        reason,
        rule: "task key K: path".into(),
        text: "path '/home/me/secret' is outside what the task key grants".into(),
    };
    assert_eq!(denial(DenyReason::Budget).report().exit, Exit::Budget);
    for reason in [DenyReason::Scope, DenyReason::Capability, DenyReason::Rule, DenyReason::Approval] {
        let report = denial(reason).report();
        assert_eq!(report.exit, Exit::Denied);
        assert!(!report.outside.contains("/home/me"), "{}", report.outside);
        assert!(report.inside.contains("/home/me/secret") && report.inside.contains("task key K"));
    }
}
