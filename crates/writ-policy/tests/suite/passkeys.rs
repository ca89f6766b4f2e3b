//! Passkeys against an authenticator in software: honest ceremonies pass, and each thing that can be wrong with one
//! is refused for that reason, although everything is signed with the right key.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::SigningKey;
use proptest::prelude::*;
use serde_json::{Value, json};
use writ_inspect::webauthn::{
    Asserted, Assertion, Enrolled, Passkey, PasskeyError, Registration, challenge_of, counts_on, site_of,
    text_of, verify_assertion, verify_registration,
};
use writ_policy::approval::{
    ApprovalClaims, ApprovalError, ApprovalToken, Approver, Approvers, Expected, SignedAnswer,
    verify_approval,
};
use writ_testbed::passkey::{Ceremony, SoftPasskey, encode_attestation};
use writ_types::digest::Digest;
use writ_types::entry::{Decision, Risk};
use writ_types::id::{AskId, InstallationId};
use writ_types::unit::Timestamp;

const ORIGIN: &str = "http://localhost:8420";
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);

fn challenge() -> Digest {
    Digest::of_bytes(b"what was shown")
}

fn honest() -> Ceremony {
    Ceremony::honest_ceremony(&text_of(challenge().as_bytes()), ORIGIN)
}

fn enrolled(made: Value) -> Result<Enrolled, PasskeyError> {
    let made: Registration = serde_json::from_value(made).map_err(|_| PasskeyError::Malformed("page"))?;
    verify_registration(&made, &challenge(), ORIGIN)
}

fn known(key: &SoftPasskey) -> Passkey {
    enrolled(key.enrol_passkey(&honest())).expect("an honest enrolment").passkey
}

fn asserted(signed: Value, passkey: &Passkey) -> Result<Asserted, PasskeyError> {
    let signed: Assertion = serde_json::from_value(signed).map_err(|_| PasskeyError::Malformed("page"))?;
    verify_assertion(&signed, passkey, &challenge(), ORIGIN)
}

/// Both algorithms.
fn keys() -> [SoftPasskey; 2] {
    [SoftPasskey::es256(7), SoftPasskey::ed25519(8)]
}

/// The attestation object of what a page sends.
fn object_of(made: &Value) -> Vec<u8> {
    let text = made["response"]["attestationObject"].as_str().expect("text");
    URL_SAFE_NO_PAD.decode(text).expect("base64url")
}

#[test]
fn an_honest_passkey_is_taken_in_and_its_signatures_count() {
    for key in keys() {
        let first = enrolled(key.enrol_passkey(&Ceremony { sign_count: 4, ..honest() })).expect("honest");
        assert_eq!(first.sign_count, 4);
        assert_eq!(
            (first.passkey.credential_id(), first.passkey.site_id()),
            (key.id().as_str(), "localhost")
        );
        let kept = Passkey::from_bytes(&first.passkey.to_bytes()).expect("what was kept is read");
        assert_eq!(kept, first.passkey);
        let said =
            asserted(key.sign_challenge(&Ceremony { sign_count: 5, ..honest() }), &kept).expect("honest");
        assert_eq!(said, Asserted { user_verified: true, sign_count: 5 });
        let unverified =
            asserted(key.sign_challenge(&Ceremony { flags: 1, ..honest() }), &kept).expect("honest");
        assert!(!unverified.user_verified);
        // Extensions that nobody asked for, and a key that is synchronised.
        let more = Ceremony { flags: 0x9d, trailing: b"\xa1\x63foo\xf5".to_vec(), ..honest() };
        assert!(asserted(key.sign_challenge(&more), &kept).is_ok());
        assert!(enrolled(key.enrol_passkey(&more)).is_ok());
    }
    // The key may vouch for itself.
    let [es256, ed25519] = keys();
    assert!(enrolled(es256.enrol_signed(&honest(), 0x26)).is_ok());
    assert!(enrolled(ed25519.enrol_signed(&honest(), 0x27)).is_ok());
}

/// What is wrong with a ceremony, and what is said of it.
fn wrong_ceremonies() -> Vec<(Ceremony, PasskeyError)> {
    let malformed = PasskeyError::Malformed;
    let mut wrong = vec![
        (Ceremony { challenge: text_of(&[0; 32]), ..honest() }, PasskeyError::Challenge),
        (Ceremony { challenge: String::new(), ..honest() }, PasskeyError::Challenge),
        // The same bytes in another spelling are another text.
        (Ceremony { challenge: format!("{}=", honest().challenge), ..honest() }, PasskeyError::Challenge),
        (Ceremony { site: "localhost.evil.example".into(), ..honest() }, PasskeyError::Site),
        (Ceremony { site: "evil.example".into(), ..honest() }, PasskeyError::Site),
        (Ceremony { site: String::new(), ..honest() }, PasskeyError::Site),
        (Ceremony { cross_origin: true, ..honest() }, PasskeyError::Origin),
        (Ceremony { flags: 0x04, ..honest() }, PasskeyError::Absent),
        (Ceremony { flags: 0x00, ..honest() }, PasskeyError::Absent),
        // Copied, although it cannot be copied.
        (Ceremony { flags: 0x15, ..honest() }, malformed("authenticator data")),
        // Something follows that no flag names, and the reverse.
        (Ceremony { trailing: vec![0xa0], ..honest() }, malformed("extensions")),
        (Ceremony { flags: 0x85, ..honest() }, malformed("extensions")),
        (Ceremony { flags: 0x85, trailing: vec![0xa0, 0], ..honest() }, malformed("extensions")),
        (Ceremony { flags: 0x85, trailing: vec![0x00], ..honest() }, malformed("extensions")),
    ];
    for origin in [
        "http://localhost:8421",
        "https://localhost:8420",
        "http://localhost",
        "http://LOCALHOST:8420",
        "http://127.0.0.1:8420",
        "http://localhost:8420/",
        "https://evil.example",
        "null",
        "",
    ] {
        wrong.push((Ceremony { origin: origin.into(), ..honest() }, PasskeyError::Origin));
    }
    wrong
}

#[test]
fn whatever_is_wrong_with_a_ceremony_is_refused_although_it_is_signed() {
    for key in keys() {
        let passkey = known(&key);
        for (ceremony, error) in wrong_ceremonies() {
            assert_eq!(asserted(key.sign_challenge(&ceremony), &passkey), Err(error), "{ceremony:?}");
            assert_eq!(enrolled(key.enrol_passkey(&ceremony)), Err(error), "{ceremony:?}");
        }
        let asked = Ceremony { kind: Some("webauthn.get"), ..honest() };
        assert_eq!(enrolled(key.enrol_passkey(&asked)), Err(PasskeyError::Kind));
        for kind in ["webauthn.create", "payment.get", ""] {
            let asked = Ceremony { kind: Some(kind), ..honest() };
            assert_eq!(asserted(key.sign_challenge(&asked), &passkey), Err(PasskeyError::Kind), "{kind}");
        }
        let unverified = Ceremony { flags: 0x01, ..honest() };
        assert_eq!(enrolled(key.enrol_passkey(&unverified)), Err(PasskeyError::Unverified));
        // A signature with a new key inside is none.
        let with_key = Ceremony { flags: 0x45, ..honest() };
        let refused = Err(PasskeyError::Malformed("authenticator data"));
        assert_eq!(asserted(key.sign_challenge(&with_key), &passkey), refused);
    }
}

#[test]
fn another_key_credential_or_algorithm_does_not_count() {
    let [es256, ed25519] = keys();
    let (first, second) = (known(&es256), known(&ed25519));
    assert_eq!(
        asserted(ed25519.sign_challenge(&honest()), &first),
        Err(PasskeyError::Key),
        "another credential"
    );
    let other = SoftPasskey::es256(9).with_credential_id(&[7; 20]);
    assert_eq!(
        asserted(other.sign_challenge(&honest()), &first),
        Err(PasskeyError::Signature),
        "another key"
    );
    // A signature of one algorithm where the key has the other.
    let confused = ed25519.with_credential_id(&[7; 20]);
    assert_eq!(asserted(confused.sign_challenge(&honest()), &first), Err(PasskeyError::Signature));
    let confused = es256.with_credential_id(&[8; 16]);
    assert_eq!(asserted(confused.sign_challenge(&honest()), &second), Err(PasskeyError::Signature));
    // An attestation of another algorithm than its key's.
    assert_eq!(enrolled(es256.enrol_signed(&honest(), 0x27)), Err(PasskeyError::Attestation));
    assert_eq!(enrolled(ed25519.enrol_signed(&honest(), 0x26)), Err(PasskeyError::Attestation));
}

#[test]
fn keys_that_are_none_or_of_other_algorithms_are_refused() {
    let key = SoftPasskey::es256(7);
    let said = |cose: &[u8]| {
        let data = key.new_key(&honest(), cose);
        let object = encode_attestation(b"\x64none", b"\xa0", &data);
        enrolled(key.enrolment(&honest(), &object)).map(|_| ())
    };
    let good = key.cose();
    assert_eq!(said(&good), Ok(()));
    let with = |at: usize, byte: u8| {
        let mut cose = good.clone();
        cose[at] = byte;
        cose
    };
    for (cose, what) in [
        (with(4, 0x27), "the name of another algorithm"),
        (with(4, 0x38), "RS256, cut"),
        (with(2, 1), "another kind of key"),
        (with(6, 2), "another curve"),
        ([&good[..], &[0]].concat(), "something after it"),
        (good[..good.len() - 1].to_vec(), "cut"),
        ([&[0xa6], &good[1..], &[0x23, 0]].concat(), "one member more"),
        ([&good[..good.len() - 35], &[0x21, 0x58, 32], &[1; 32]].concat(), "x twice"),
        (b"\xa4\x01\x03\x03\x39\x01\x00\x20\x41\x01\x21\x43\x01\x00\x01".to_vec(), "RSA"),
        ([&b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x20"[..], &[0; 32]].concat(), "a weak key of Ed25519"),
        ([&b"\xa4\x01\x01\x03\x27\x20\x06\x21\x58\x1f"[..], &[1; 31]].concat(), "a short key of Ed25519"),
        (vec![0xa0], "an empty map"),
        (vec![0x00], "no map"),
        (vec![], "nothing"),
    ] {
        assert!(said(&cose).is_err(), "{what}");
    }
    let ed25519 = SoftPasskey::ed25519(8);
    let said_of = |cose: &[u8]| {
        let object = encode_attestation(b"\x64none", b"\xa0", &ed25519.new_key(&honest(), cose));
        enrolled(ed25519.enrolment(&honest(), &object)).map(|_| ())
    };
    let fine = ed25519.cose();
    assert_eq!(said_of(&fine), Ok(()));
    for (at, byte, what) in
        [(2, 2, "another kind of key"), (4, 0x26, "another algorithm"), (6, 1, "another curve")]
    {
        let mut cose = fine.clone();
        cose[at] = byte;
        assert_eq!(said_of(&cose), Err(PasskeyError::Key), "{what}");
    }
    let more = [&[0xa5], &fine[1..], &[0x23, 0]].concat();
    assert_eq!(said_of(&more), Err(PasskeyError::Key), "one member more");
    let mut nowhere = good.clone();
    nowhere[10..42].fill(0xff);
    assert_eq!(said(&nowhere), Err(PasskeyError::Key), "a point that is not on the curve");
}

#[test]
fn attestations_that_are_cut_foreign_or_too_long_are_refused() {
    let key = SoftPasskey::es256(7);
    let bytes = object_of(&key.enrol_passkey(&honest()));
    assert!(enrolled(key.enrolment(&honest(), &bytes)).is_ok());
    for length in 0..bytes.len() {
        assert!(enrolled(key.enrolment(&honest(), &bytes[..length])).is_err(), "cut at {length}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(enrolled(key.enrolment(&honest(), &longer)), Err(PasskeyError::Malformed("attestation")));
    let endless = vec![0; 9 * 1024];
    assert_eq!(enrolled(key.enrolment(&honest(), &endless)), Err(PasskeyError::TooLong("attestation")));
    let with_statement =
        encode_attestation(b"\x64none", b"\xa1\x61a\x01", &key.new_key(&honest(), &key.cose()));
    assert_eq!(enrolled(key.enrolment(&honest(), &with_statement)), Err(PasskeyError::Attestation));
    let foreign = [&bytes[..5], b"\x64fido", &bytes[10..]].concat();
    assert_eq!(enrolled(key.enrolment(&honest(), &foreign)), Err(PasskeyError::Attestation));
    // Every byte of an attestation that the key has signed counts.
    let signed = object_of(&key.enrol_signed(&honest(), 0x26));
    assert!(enrolled(key.enrolment(&honest(), &signed)).is_ok());
    for at in 0..signed.len() {
        let mut changed = signed.clone();
        changed[at] ^= 1;
        assert!(enrolled(key.enrolment(&honest(), &changed)).is_err(), "byte {at}");
    }
}

#[test]
fn every_byte_of_a_signature_and_of_what_is_signed_counts() {
    for key in keys() {
        let passkey = known(&key);
        let good = key.sign_challenge(&honest());
        for field in ["clientDataJSON", "authenticatorData", "signature"] {
            let bytes =
                URL_SAFE_NO_PAD.decode(good["response"][field].as_str().expect("text")).expect("bytes");
            for at in 0..bytes.len() {
                let mut changed = good.clone();
                let mut other = bytes.clone();
                other[at] ^= 1;
                changed["response"][field] = text_of(&other).into();
                assert!(asserted(changed, &passkey).is_err(), "{field}, byte {at}");
            }
            let with = |text: String| {
                let mut changed = good.clone();
                changed["response"][field] = text.into();
                asserted(changed, &passkey)
            };
            assert!(with(String::new()).is_err(), "{field} empty");
            assert!(with("!".into()).is_err(), "{field} no text of bytes");
            assert!(matches!(with("A".repeat(12 * 1024)), Err(PasskeyError::TooLong(_))), "{field} too long");
        }
    }
}

#[test]
fn what_a_page_sends_is_bounded_and_exact() {
    let key = SoftPasskey::es256(7);
    let passkey = known(&key);
    let good = key.sign_challenge(&honest());
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        asserted(changed, &passkey)
    };
    let malformed = |what| Err(PasskeyError::Malformed(what));
    assert_eq!(with("type", "password".into()), malformed("credential"));
    assert_eq!(with("rawId", "AAAA".into()), malformed("credential"));
    assert_eq!(with("id", 7.into()), malformed("page"));
    assert_eq!(with("more", 7.into()), malformed("page"));
    assert_eq!(asserted(json!({}), &passkey), malformed("page"));
    assert_eq!(challenge_of(good["response"]["clientDataJSON"].as_str().expect("text")), Some(challenge()));
    for bad in ["", "AAAA", "e30", "!"] {
        assert_eq!(challenge_of(bad), None, "{bad}");
    }
    let said =
        URL_SAFE_NO_PAD.decode(good["response"]["clientDataJSON"].as_str().expect("text")).expect("bytes");
    let padded =
        |length: usize| challenge_of(&text_of(&[said.clone(), vec![b' '; length - said.len()]].concat()));
    assert_eq!((padded(4_096), padded(4_097)), (Some(challenge()), None), "the longest that is read");
}

#[test]
fn kept_passkeys_that_were_damaged_are_none() {
    let bytes = known(&SoftPasskey::es256(7)).to_bytes();
    for length in 0..bytes.len() {
        assert_eq!(Passkey::from_bytes(&bytes[..length]), None);
    }
    let text = String::from_utf8(bytes).expect("text");
    assert_eq!(Passkey::from_bytes(text.replace("-7", "-8").as_bytes()), None, "another algorithm's key");
    assert_eq!(Passkey::from_bytes(text.replace("-7", "-257").as_bytes()), None);
    assert_eq!(Passkey::from_bytes(&[7; 32]), None, "a key of the command line");
}

#[test]
fn a_counter_grows_or_does_not_count() {
    for (before, now, good) in [
        (0, 0, true),
        (0, 1, true),
        (4, 5, true),
        (4, 400, true),
        (5, 5, false),
        (5, 4, false),
        (5, 0, false),
    ] {
        assert_eq!(counts_on(before, now), good, "{before} {now}");
    }
}

#[test]
fn passkeys_are_bound_to_names_that_browsers_trust() {
    assert_eq!(site_of(ORIGIN), Some("localhost"));
    assert_eq!(site_of("https://writ.example"), Some("writ.example"));
    assert_eq!(site_of("https://writ.example:8443"), Some("writ.example"));
    for none in [
        "http://writ.example",
        "http://127.0.0.1:8420",
        "https://127.0.0.1",
        "https://[::1]:8420",
        "https://",
        "https://a..b",
        "https://user@writ.example",
        "https://writ.example:port",
        "https://writ.example/path",
        "https://WRIT.example",
        "localhost:8420",
        "null",
        "",
    ] {
        assert_eq!(site_of(none), None, "{none}");
    }
}

// === As an approver ===

fn installation() -> InstallationId {
    InstallationId::from_parts(NOW, 1)
}

fn claims() -> ApprovalClaims {
    ApprovalClaims {
        installation: installation(),
        epoch: 3,
        ask: AskId::from_random(7),
        decision: Decision::Approve,
        prepared: Digest::of_bytes(b"prepared"),
        shown: Digest::of_bytes(b"shown"),
        nonce: "00112233445566778899aabbccddeeff".into(),
        issued_at: NOW,
        expires_at: Timestamp::from_millis(NOW.as_millis() + 1_000),
        approver: Approver::Passkey { origin: ORIGIN.into() },
        task: None,
        values: false,
        host: None,
    }
}

fn expected(risk: Risk) -> Expected {
    let ApprovalClaims { installation, epoch, ask, prepared, shown, expires_at, .. } = claims();
    Expected {
        installation,
        epoch,
        ask,
        prepared,
        shown,
        risk,
        expires_at,
        values: false,
        host: None,
        approvers: 1,
        task: None,
        standing: Vec::new(),
    }
}

fn approvers(keys: &[&SoftPasskey]) -> Approvers {
    let passkeys: BTreeMap<String, Passkey> = keys.iter().map(|key| (key.id(), known(key))).collect();
    let harness = SigningKey::from_bytes(&[4; 32]).verifying_key();
    Approvers { keys: BTreeMap::new(), passkeys, harness }
}

/// Claims that a passkey has signed; `flags` are the authenticator's.
fn signed(key: &SoftPasskey, claims: ApprovalClaims, flags: u8) -> ApprovalToken {
    let challenge = claims.challenge().expect("canonical");
    let asked = Ceremony::honest_ceremony(&text_of(challenge.as_bytes()), ORIGIN);
    let answer = key.sign_challenge(&Ceremony { flags, ..asked });
    ApprovalToken::by_passkey(claims, serde_json::from_value(answer).expect("an answer"))
}

#[test]
fn a_passkey_reaches_what_is_irreversible_only_if_it_verifies_its_person() {
    for key in keys() {
        let approvers = approvers(&[&key]);
        for risk in [Risk::Low, Risk::Medium, Risk::High, Risk::Irreversible] {
            let verified = verify_approval(&signed(&key, claims(), 0x05), &expected(risk), &approvers, NOW);
            let used = verified.expect("good").passkey_use().cloned().expect("by passkey");
            assert_eq!((used.credential, used.sign_count), (key.id(), 0));
            let present = verify_approval(&signed(&key, claims(), 0x01), &expected(risk), &approvers, NOW);
            if risk == Risk::Irreversible {
                assert_eq!(present, Err(ApprovalError::Passkey(PasskeyError::Unverified)));
            } else {
                assert!(present.is_ok());
            }
        }
    }
}

#[test]
fn a_passkey_signs_everything_that_the_claims_say() {
    let key = SoftPasskey::es256(7);
    let approvers = approvers(&[&key]);
    let token = signed(&key, claims(), 0x05);
    assert!(verify_approval(&token, &expected(Risk::High), &approvers, NOW).is_ok());
    let other = Digest::of_bytes(b"other");
    let later = Timestamp::from_millis(NOW.as_millis() + 900);
    // Moved to other claims, the signature is worth nothing, however good these are.
    let changed = [
        ApprovalClaims { prepared: other, ..claims() },
        ApprovalClaims { shown: other, ..claims() },
        ApprovalClaims { ask: AskId::from_random(8), ..claims() },
        ApprovalClaims { decision: Decision::Deny, ..claims() },
        ApprovalClaims { nonce: "f".repeat(32), ..claims() },
        ApprovalClaims { expires_at: later, ..claims() },
        ApprovalClaims { issued_at: later, ..claims() },
        ApprovalClaims { epoch: 4, ..claims() },
        ApprovalClaims { installation: InstallationId::from_parts(NOW, 2), ..claims() },
    ];
    for claims in changed {
        let said = verify_approval(
            &ApprovalToken { claims, ..token.clone() },
            &expected(Risk::High),
            &approvers,
            NOW,
        );
        assert_eq!(said, Err(ApprovalError::Passkey(PasskeyError::Challenge)));
    }
    // Signed for something else, it is good for that alone.
    let elsewhere = signed(&key, ApprovalClaims { prepared: other, ..claims() }, 0x05);
    let said = verify_approval(&elsewhere, &expected(Risk::High), &approvers, NOW);
    assert_eq!(said, Err(ApprovalError::Mismatch("the action has changed")));
    let before = signed(&key, ApprovalClaims { epoch: 2, ..claims() }, 0x05);
    assert_eq!(verify_approval(&before, &expected(Risk::High), &approvers, NOW), Err(ApprovalError::Foreign));
    let late = Timestamp::from_millis(NOW.as_millis() + 1_000);
    assert_eq!(verify_approval(&token, &expected(Risk::High), &approvers, late), Err(ApprovalError::Expired));
}

#[test]
fn who_signs_cannot_be_exchanged() {
    let (key, stranger) = (SoftPasskey::es256(7), SoftPasskey::es256(9));
    let known = approvers(&[&key]);
    let said = |token: &ApprovalToken| verify_approval(token, &expected(Risk::High), &known, NOW).map(|_| ());
    assert_eq!(said(&signed(&stranger, claims(), 0x05)), Err(ApprovalError::UnknownApprover));
    let removed = approvers(&[&stranger]);
    let token = signed(&key, claims(), 0x05);
    let by_removed = verify_approval(&token, &expected(Risk::High), &removed, NOW);
    assert_eq!(by_removed, Err(ApprovalError::UnknownApprover), "a removed passkey");
    let borrowed = signed(&stranger.with_credential_id(&[7; 20]), claims(), 0x05);
    assert_eq!(said(&borrowed), Err(ApprovalError::Passkey(PasskeyError::Signature)));
    // A passkey's claims without its signature, and its signature beside another's claims.
    let bare = ApprovalToken { passkey: None, ..token.clone() };
    assert_eq!(said(&bare), Err(ApprovalError::Signature));
    let session = ApprovalClaims { approver: Approver::Session { principal: "owner".into() }, ..claims() };
    let mixed = ApprovalToken { claims: session, ..token.clone() };
    assert_eq!(said(&mixed), Err(ApprovalError::TooRisky(Risk::High)));
    let low = verify_approval(&mixed, &expected(Risk::Low), &known, NOW);
    assert_eq!(low, Err(ApprovalError::Signature));
    // Another origin in the claims is another challenge; one that passkeys are not bound to is none.
    let elsewhere =
        ApprovalClaims { approver: Approver::Passkey { origin: "http://evil".into() }, ..claims() };
    let moved = ApprovalToken { claims: elsewhere, ..token };
    assert_eq!(said(&moved), Err(ApprovalError::Passkey(PasskeyError::Site)));
}

#[test]
fn a_signature_is_read_as_one_thing_or_the_other() {
    let key = SoftPasskey::es256(7);
    let answer = key.sign_challenge(&honest());
    assert!(matches!(SignedAnswer::read_signed(json!({ "passkey": answer })), Ok(SignedAnswer::Passkey(_))));
    let token = signed(&key, claims(), 0x05);
    let kept = serde_json::to_value(&token).expect("JSON");
    assert_eq!(SignedAnswer::read_signed(kept).ok(), Some(SignedAnswer::Token(Box::new(token))));
    for bad in [
        json!({}),
        json!(null),
        json!({ "passkey": {} }),
        json!({ "passkey": answer, "more": 1 }),
        json!([]),
        json!("passkey"),
    ] {
        assert!(SignedAnswer::read_signed(bad.clone()).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_attestation_breaks_it(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(enrolled(SoftPasskey::es256(7).enrolment(&honest(), &bytes)).is_err());
    }

    #[test]
    fn no_authenticator_data_breaks_it(
        trailing in prop::collection::vec(any::<u8>(), 1..100),
        flags in any::<u8>(),
    ) {
        let key = SoftPasskey::es256(7);
        let said = asserted(key.sign_challenge(&Ceremony { flags, trailing, ..honest() }), &known(&key));
        // What follows is a map of extensions, announced, or it is refused.
        prop_assert!(said.is_err() || flags & 0x80 != 0);
    }
}

/// The id of a credential has 1 to 1,023 bytes (WebAuthn, level 2, section 5.8.3).
#[test]
fn ids_of_credentials_are_bounded_to_the_byte() {
    let key = SoftPasskey::es256(7);
    for bytes in [1, 1_023] {
        let named = key.with_credential_id(&vec![7; bytes]);
        let passkey = known(&named);
        assert!(asserted(named.sign_challenge(&honest()), &passkey).is_ok(), "{bytes}");
        assert!(
            passkey.to_string().starts_with(&format!("passkey {}", passkey.credential_id())),
            "{passkey}"
        );
    }
    let refused = Err(PasskeyError::Malformed("new key"));
    assert_eq!(enrolled(key.with_credential_id(&[]).enrol_passkey(&honest())).map(|_| ()), refused);
    let long = key.with_credential_id(&[7; 1_024]);
    let object = encode_attestation(b"\x64none", b"\xa0", &long.new_key(&honest(), &long.cose()));
    assert_eq!(enrolled(key.enrolment(&honest(), &object)).map(|_| ()), refused);
    assert_eq!(enrolled(long.enrol_passkey(&honest())).map(|_| ()), Err(PasskeyError::TooLong("credential")));
}
