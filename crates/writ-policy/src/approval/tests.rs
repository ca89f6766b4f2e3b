use super::*;
use crate::fixture::{
    EPOCH, NOW, approver, approvers, claims, expected, harness, key, later, prepared, signed,
};
use writ_types::action::{Action, Say};

fn good() -> ApprovalClaims {
    claims(Digest::of_bytes(b"action"))
}

fn check(claims: ApprovalClaims) -> Result<Approval, ApprovalError> {
    verify_approval(&signed(claims), &expected(&good()), &approvers(), NOW)
}

fn by_session(claims: ApprovalClaims) -> ApprovalToken {
    let approver = Approver::Session { principal: "owner".into() };
    ApprovalToken::sign_claims(ApprovalClaims { approver, ..claims }, &harness()).expect("signs")
}

/// Rows: SIL-162
#[test]
fn checking_uses_nothing_up() {
    let token = signed(good());
    for _ in 0..10 {
        let approval = verify_approval(&token, &expected(&good()), &approvers(), NOW).expect("good");
        assert_eq!(approval.claims(), &good());
    }
    let late = verify_approval(&token, &expected(&good()), &approvers(), later(86_400_000));
    assert_eq!(late, Err(ApprovalError::Expired));
}

#[test]
fn an_approval_is_good_for_what_it_names_only() {
    let other = Digest::of_bytes(b"other");
    let refused = [
        (ApprovalClaims { epoch: EPOCH + 1, ..good() }, ApprovalError::Foreign),
        (
            ApprovalClaims { installation: InstallationId::from_parts(NOW, 9), ..good() },
            ApprovalError::Foreign,
        ),
        (ApprovalClaims { ask: AskId::from_random(8), ..good() }, ApprovalError::Mismatch("another ask")),
        (ApprovalClaims { prepared: other, ..good() }, ApprovalError::Mismatch("the action has changed")),
        (ApprovalClaims { shown: other, ..good() }, ApprovalError::Mismatch("another text was shown")),
        (ApprovalClaims { nonce: "00".into(), ..good() }, ApprovalError::Nonce),
        (ApprovalClaims { nonce: "0".repeat(31), ..good() }, ApprovalError::Nonce),
        (ApprovalClaims { nonce: "x".repeat(32), ..good() }, ApprovalError::Nonce),
        (ApprovalClaims { nonce: String::new(), ..good() }, ApprovalError::Nonce),
        (ApprovalClaims { expires_at: NOW, ..good() }, ApprovalError::Expired),
        (ApprovalClaims { issued_at: later(MAX_SKEW_MS + 1), ..good() }, ApprovalError::Expired),
    ];
    for (claims, error) in refused {
        assert_eq!(check(claims.clone()), Err(error), "{claims:?}");
    }
    assert!(check(ApprovalClaims { expires_at: later(1), ..good() }).is_ok());
    assert!(check(ApprovalClaims { issued_at: later(MAX_SKEW_MS), ..good() }).is_ok());
    // The ask ends when it ends, whatever the answer says.
    let ended = Expected { expires_at: NOW, ..expected(&good()) };
    assert_eq!(verify_approval(&signed(good()), &ended, &approvers(), NOW), Err(ApprovalError::Expired));
}

#[test]
fn every_bit_of_the_signature_and_every_claim_counts() {
    let token = signed(good());
    let signature = hex::decode(&token.signature).expect("hexadecimal");
    for at in 0..signature.len() {
        let mut flipped = signature.clone();
        flipped[at] ^= 1 << (at % 8);
        let forged = ApprovalToken { signature: hex::encode(flipped), ..token.clone() };
        let said = verify_approval(&forged, &expected(&good()), &approvers(), NOW);
        assert_eq!(said, Err(ApprovalError::Signature), "byte {at}");
    }
    for signature in [String::new(), "zz".repeat(64), token.signature[2..].to_owned()] {
        let forged = ApprovalToken { signature, ..token.clone() };
        let said = verify_approval(&forged, &expected(&good()), &approvers(), NOW);
        assert_eq!(said, Err(ApprovalError::Signature));
    }
    // Claims that were changed after signing, even to other good ones.
    let changed = [
        ApprovalClaims { decision: Decision::Deny, ..good() },
        ApprovalClaims { nonce: "f".repeat(32), ..good() },
        ApprovalClaims { expires_at: later(90_000_000), ..good() },
        ApprovalClaims { issued_at: later(-1), ..good() },
    ];
    for claims in changed {
        let forged = ApprovalToken { claims, ..token.clone() };
        let said = verify_approval(&forged, &expected(&good()), &approvers(), NOW);
        assert_eq!(said, Err(ApprovalError::Signature));
    }
}

#[test]
fn the_domain_keeps_other_signatures_out() {
    let bare = canonical_json(&good()).expect("canonical");
    let signature = hex::encode(approver().sign(&bare).to_bytes());
    let forged = ApprovalToken { claims: good(), signature, passkey: None };
    let said = verify_approval(&forged, &expected(&good()), &approvers(), NOW);
    assert_eq!(said, Err(ApprovalError::Signature));
}

#[test]
fn only_enrolled_approvers_count() {
    let stranger = Approver::Key { public: hex::encode(key(9).verifying_key().as_bytes()) };
    let claims = ApprovalClaims { approver: stranger, ..good() };
    let token = ApprovalToken::sign_claims(claims, &key(9)).expect("signs");
    let said = |token| verify_approval(token, &expected(&good()), &approvers(), NOW);
    assert_eq!(said(&token), Err(ApprovalError::UnknownApprover));
    // Revoked: no longer among the keys.
    let mut fewer = approvers();
    fewer.keys.clear();
    let revoked = verify_approval(&signed(good()), &expected(&good()), &fewer, NOW);
    assert_eq!(revoked, Err(ApprovalError::UnknownApprover));
    // Signed by one, claimed for another.
    let borrowed = ApprovalToken::sign_claims(good(), &harness()).expect("signs");
    assert_eq!(said(&borrowed), Err(ApprovalError::Signature));
    let session = Approver::Session { principal: "owner".into() };
    let borrowed = ApprovalToken::sign_claims(ApprovalClaims { approver: session, ..good() }, &approver());
    assert_eq!(said(&borrowed.expect("signs")), Err(ApprovalError::Signature));
}

#[test]
fn the_way_of_signing_reaches_so_far() {
    let said = |token: &ApprovalToken, risk| {
        verify_approval(token, &Expected { risk, ..expected(&good()) }, &approvers(), NOW).map(|_| ())
    };
    for (risk, by_a_session, by_a_key) in [
        (Risk::Low, true, true),
        (Risk::Medium, true, true),
        (Risk::High, false, true),
        (Risk::Irreversible, false, false),
    ] {
        let refused = || Err(ApprovalError::TooRisky(risk));
        assert_eq!(said(&by_session(good()), risk), if by_a_session { Ok(()) } else { refused() });
        assert_eq!(said(&signed(good()), risk), if by_a_key { Ok(()) } else { refused() });
        // Anybody who may answer may say no.
        let no = ApprovalClaims { decision: Decision::Deny, ..good() };
        assert_eq!(said(&by_session(no.clone()), risk), Ok(()));
        assert_eq!(said(&signed(no), risk), Ok(()));
    }
}

/// Vectors 1 to 3 of RFC 8032, section 7.1: secret key, public key, message, signature.
const RFC_8032: [[&str; 4]; 3] = [
    [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ],
    [
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ],
    [
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ],
];

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).expect("hexadecimal of the right length");
    bytes
}

/// Rows: SIL-158
#[test]
fn signatures_are_those_of_rfc_8032() {
    for [secret, public, message, signature] in RFC_8032 {
        let signer = SigningKey::from_bytes(&bytes(secret));
        let message = hex::decode(message).expect("hexadecimal");
        assert_eq!(signer.verifying_key().as_bytes(), &bytes(public));
        assert_eq!(signer.sign(&message).to_bytes(), bytes(signature));
        assert!(is_good(&signer.verifying_key(), &message, &bytes(signature)));
        let mut flipped = bytes(signature);
        flipped[0] ^= 1;
        assert!(!is_good(&signer.verifying_key(), &message, &flipped));
        assert!(!is_good(&key(9).verifying_key(), &message, &bytes(signature)));
    }
}

/// The hash in a token is SHA-256 over the canonical form, worked out here by hand.
#[test]
fn the_prepared_hash_is_that_of_the_canonical_form() {
    use sha2::Digest as _;
    let action = Action::Say(Say { to: writ_types::recipient::Recipient::Owner, text: "é".into() });
    let prepared = prepared(action);
    let policy = Digest::of_bytes(b"policy");
    let session = prepared.session.expect("has one");
    let script = Digest::of_bytes(b"script");
    let canonical = format!(
        r#"{{"action":{{"kind":"say","text":"é","to":"owner"}},"agent":"assistant","bindings":{{"script":"{script}"}},"idempotent":false,"policy":"{policy}","session":"{session}","sinks":[{{"argument":"path","value":"a"}}],"taint":"owner","tool":"tool","v":1}}"#
    );
    let by_hand: [u8; 32] = sha2::Sha256::digest(canonical.as_bytes()).into();
    assert_eq!(prepared.hash(policy).expect("canonical"), Digest::from_bytes(by_hand));
}

#[test]
fn tokens_read_back_as_written_and_nothing_else_is_read() {
    let token = signed(good());
    let json = serde_json::to_string(&token).expect("writes");
    assert_eq!(serde_json::from_str::<ApprovalToken>(&json).expect("reads"), token);
    let more = json.replacen("{", r#"{"uses":5,"#, 1);
    assert!(serde_json::from_str::<ApprovalToken>(&more).is_err());
}

/// As [`verify`] checks signatures.
fn is_good(key: &VerifyingKey, message: &[u8], signature: &[u8; 64]) -> bool {
    key.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
}

fn offered() -> TaskTerms {
    TaskTerms { pattern: Digest::of_bytes(b"pattern"), risk: Risk::Medium, uses: 20, standing: None }
}

/// An approval for the task says what was offered and nothing more, and ends in time.
#[test]
fn an_approval_for_the_task_is_what_was_offered_and_no_more() {
    let wanted = Expected { task: Some(offered()), ..expected(&good()) };
    let hour = later(60 * 60 * 1_000);
    let for_task = |task: TaskTerms| ApprovalClaims { task: Some(task), expires_at: hour, ..good() };
    let check = |claims: ApprovalClaims| verify_approval(&signed(claims), &wanted, &approvers(), NOW);
    assert_eq!(check(for_task(offered())).expect("good").claims().task, Some(offered()));
    assert!(check(good()).is_ok(), "once is good as well");
    let other = Digest::of_bytes(b"other");
    for task in [
        TaskTerms { pattern: other, ..offered() },
        TaskTerms { risk: Risk::High, ..offered() },
        TaskTerms { uses: 21, ..offered() },
    ] {
        assert_eq!(check(for_task(task)), Err(ApprovalError::Mismatch("another scope was offered")));
    }
    let denied = ApprovalClaims { decision: Decision::Deny, ..for_task(offered()) };
    assert_eq!(check(denied), Err(ApprovalError::Mismatch("another scope was offered")));
    let long = ApprovalClaims { expires_at: later(60 * 60 * 1_000 + 1), ..for_task(offered()) };
    assert_eq!(check(long), Err(ApprovalError::Mismatch("it would be good for too long")));
    let nothing = verify_approval(&signed(for_task(offered())), &expected(&good()), &approvers(), NOW);
    assert_eq!(nothing, Err(ApprovalError::Mismatch("another scope was offered")));
    // What was not signed does not count: the terms are part of what is signed.
    let mut widened = signed(for_task(TaskTerms { uses: 1, ..offered() }));
    widened.claims.task = Some(offered());
    assert_eq!(verify_approval(&widened, &wanted, &approvers(), NOW), Err(ApprovalError::Signature));
}

/// What a standing approval says besides is signed with it, within what was offered, by a key that its owner holds; it
/// outlives its ask and not its own time, and a clock that is set back makes it no longer.
///
/// Rows: SIL-385
#[test]
fn a_standing_approval_is_within_what_was_offered_and_signed_by_a_key() {
    let day = 24 * 60 * 60;
    let total = |text: &str| Some(text.parse().expect("an amount"));
    let (plain, counted) = (Digest::of_bytes(b"plain"), Digest::of_bytes(b"counted"));
    let wanted = Expected { standing: vec![(plain, None), (counted, total("5"))], ..expected(&good()) };
    let terms = |pattern, total| TaskTerms {
        pattern,
        uses: 100,
        standing: Some(StandingTerms { secs: 7 * day, total }),
        ..offered()
    };
    let ends = later(7 * 24 * 60 * 60 * 1_000);
    let claims = |task| ApprovalClaims { task: Some(task), expires_at: ends, ..good() };
    let at = |claims, now| verify_approval(&signed(claims), &wanted, &approvers(), now).map(drop);
    let check = |task| at(claims(task), NOW);
    for good in [terms(plain, None), terms(counted, total("5")), terms(counted, total("500"))] {
        assert_eq!(check(good), Ok(()));
    }
    let limits = |uses, secs| TaskTerms {
        uses,
        standing: Some(StandingTerms { secs, total: None }),
        ..terms(plain, None)
    };
    let wrong = [
        terms(Digest::of_bytes(b"another task"), None),
        terms(plain, total("5")),
        terms(counted, None),
        terms(counted, total("4")),
        TaskTerms { risk: Risk::High, ..terms(plain, None) },
        limits(0, day),
        limits(standing::MAX_USES + 1, day),
        limits(1, 0),
        limits(1, standing::MAX_TTL.as_secs() + 1),
    ];
    for task in wrong {
        assert_eq!(check(task), Err(ApprovalError::Mismatch("another scope was offered")), "{task:?}");
    }
    let good = claims(terms(plain, None));
    let after_its_ask = later(3 * 24 * 60 * 60 * 1_000);
    assert_eq!(at(good.clone(), after_its_ask), Ok(()));
    assert_eq!(at(good.clone(), ends), Err(ApprovalError::Expired));
    assert_eq!(at(good.clone(), later(-MAX_SKEW_MS - 1)), Err(ApprovalError::Expired));
    let longer = ApprovalClaims { expires_at: later(8 * 24 * 60 * 60 * 1_000), ..good.clone() };
    assert_eq!(at(longer, NOW), Err(ApprovalError::Mismatch("it would be good for too long")));
    let by_session =
        ApprovalClaims { approver: Approver::Session { principal: "owner".into() }, ..good.clone() };
    let by_session = ApprovalToken::sign_claims(by_session, &harness()).expect("signs");
    assert_eq!(verify_approval(&by_session, &wanted, &approvers(), NOW), Err(ApprovalError::NeedsKey));
    // What it covers is signed: a task outside of it needs another signature.
    let mut widened = signed(good);
    widened.claims.task = Some(terms(counted, total("500")));
    assert_eq!(verify_approval(&widened, &wanted, &approvers(), NOW), Err(ApprovalError::Signature));
}

/// Two people, each with a key of their own: one of them twice is one, a session is nobody, and a no is a no.
#[test]
fn where_two_must_say_yes_one_of_them_is_not_enough() {
    let other = key(77);
    let public = hex::encode(other.verifying_key().as_bytes());
    let mut approvers = approvers();
    approvers.keys.insert(public.clone(), other.verifying_key());
    let wanted = Expected { approvers: 2, ..expected(&good()) };
    let first = signed(good());
    let second = ApprovalClaims { approver: Approver::Key { public }, nonce: "ab".repeat(16), ..good() };
    let second = ApprovalToken::sign_claims(second, &other).expect("signs");
    let all = |tokens: &[&ApprovalToken]| {
        let tokens: Vec<_> = tokens.iter().map(|token| (*token).clone()).collect();
        verify_all(&tokens, &wanted, &approvers, NOW)
    };
    assert_eq!(all(&[&first, &second]).map(|approval| approval.count_people()), Ok(2));
    let names = |token: &ApprovalToken| match &token.claims.approver {
        Approver::Key { public } => format!("key {public}"),
        Approver::Session { .. } | Approver::Passkey { .. } => panic!("a key"),
    };
    let by = all(&[&first, &second]).expect("both");
    assert_eq!(by.signer_keys(), &BTreeSet::from([names(&first), names(&second)]), "each by their own name");
    assert_eq!(by.passkey_use(), None);
    assert_eq!(all(&[&first]), Err(ApprovalError::TooFew { given: 1, needed: 2 }));
    assert_eq!(all(&[]), Err(ApprovalError::TooFew { given: 0, needed: 2 }));
    let again = signed(ApprovalClaims { nonce: "cd".repeat(16), ..good() });
    assert_eq!(all(&[&first, &again]), Err(ApprovalError::Twice));
    assert_eq!(all(&[&first, &by_session(good())]), Err(ApprovalError::NeedsKeys));
    let mut forged = second.clone();
    forged.signature = first.signature.clone();
    assert_eq!(all(&[&first, &forged]), Err(ApprovalError::Signature));
    let no = by_session(ApprovalClaims { decision: Decision::Deny, ..good() });
    assert!(verify_approval(&no, &wanted, &approvers, NOW).is_ok(), "anybody who may answer may say no");
}

/// Trust in a host outlives its conversation: it is good for the host that the card has offered, alone, with a yes, and by
/// a key of whoever gives it.
#[test]
fn trust_in_a_host_is_signed_for_what_was_offered_and_by_a_key() {
    let host = Some("docs.example:443".to_owned());
    let wanted = Expected { host: host.clone(), values: true, ..expected(&good()) };
    let trusting = ApprovalClaims { host: host.clone(), ..good() };
    let check =
        |claims: ApprovalClaims| verify_approval(&signed(claims), &wanted, &approvers(), NOW).map(|_| ());
    assert_eq!(trusting.answer_scope(), ApprovalScope::Host);
    assert_eq!(ApprovalClaims { values: true, ..good() }.answer_scope(), ApprovalScope::Values);
    assert_eq!(good().answer_scope(), ApprovalScope::Once);
    assert_eq!(check(trusting.clone()), Ok(()));
    assert_eq!(check(good()), Ok(()), "what is offered need not be taken");
    let mismatch = Err(ApprovalError::Mismatch("another scope was offered"));
    let task =
        Some(TaskTerms { pattern: Digest::of_bytes(b"p"), risk: Risk::Medium, uses: 2, standing: None });
    for other in [
        ApprovalClaims { host: Some("evil.example:443".into()), ..good() },
        ApprovalClaims { host: Some(String::new()), ..good() },
        ApprovalClaims { decision: Decision::Deny, ..trusting.clone() },
        ApprovalClaims { values: true, ..trusting.clone() },
        ApprovalClaims { task, ..trusting.clone() },
    ] {
        assert_eq!(check(other.clone()), mismatch, "{other:?}");
    }
    let endorsing = ApprovalClaims { values: true, ..good() };
    assert_eq!(check(endorsing.clone()), Ok(()), "where values are offered");
    let none = expected(&good());
    assert_eq!(verify_approval(&signed(endorsing), &none, &approvers(), NOW).map(|_| ()), mismatch);
    assert_eq!(verify_approval(&signed(trusting.clone()), &none, &approvers(), NOW).map(|_| ()), mismatch);
    let said = verify_approval(&by_session(trusting), &wanted, &approvers(), NOW);
    assert_eq!(said, Err(ApprovalError::NeedsKey));
}
