use proptest::prelude::*;
use writ_types::action::ActionKind;

use super::*;
use crate::fixture::{EPOCH, World, installation, key, later, permit_all, root, router, session, verifier};
use writ_inspect::scope::Dimension;

fn claims() -> (BaseClaims, TaskClaims) {
    let World { mut base, mut task, .. } = World::new(permit_all());
    base.grants = Grants::default()
        .allow_kind(ActionKind::ReadFile, [(Dimension::Path, "/work")])
        .allow_kind(ActionKind::Recall, []);
    task.grants = Grants::default()
        .allow_kind(ActionKind::ReadFile, [(Dimension::Path, "/work/src")])
        .preapprove_kind(ActionKind::ReadFile);
    (base, task)
}

/// A token of the right keys with whatever blocks.
fn craft(base: BlockBuilder, task: BlockBuilder) -> KeyToken {
    let base = Biscuit::builder().merge(base).build(&biscuit_key(&root()).expect("key")).expect("builds");
    let router = biscuit_key(&router()).expect("key");
    let request = base.third_party_request().expect("unsealed");
    let signed = request.create_block(&router.private(), task).expect("signs");
    KeyToken(base.append_third_party(router.public(), signed).expect("appends").to_vec().expect("writes"))
}

fn good() -> KeyToken {
    let (base, task) = claims();
    craft(base_block(&base), task_block(&task))
}

fn minted(base: &BaseClaims, task: &TaskClaims) -> KeyToken {
    let base = mint_base(base, &root()).expect("mints");
    mint_task(&base, task, &root().verifying_key(), &router()).expect("mints")
}

fn with(block: BlockBuilder, code: &str) -> BlockBuilder {
    block.code(code).expect("parses")
}

fn refusal(token: &KeyToken) -> KeyError {
    verifier().verify_task(token).expect_err("must be refused")
}

/// The fields of a protobuf message, whole: enough to take a token apart.
fn fields(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (start, tag) = (at, bytes[at]);
        assert_eq!(tag & 7, 2, "tokens hold messages only");
        at += 1;
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let byte = usize::from(bytes[at]);
            at += 1;
            length |= (byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        at += length;
        found.push((tag >> 3, bytes[start..at].to_vec()));
    }
    found
}

const AUTHORITY: u8 = 2;
const BLOCK: u8 = 3;

/// Whether a field with this number is taken.
type Take = fn(u8) -> bool;

fn spliced(parts: &[(&KeyToken, Take)]) -> KeyToken {
    let taken = parts.iter().flat_map(|(token, take)| {
        fields(token.as_bytes()).into_iter().filter(|(number, _)| take(*number)).map(|(_, bytes)| bytes)
    });
    KeyToken(taken.flatten().collect())
}

/// Rows: SLO-003
#[test]
fn both_keys_together_grant_what_they_say() {
    let (base, task) = claims();
    let authority = verifier().verify_task(&minted(&base, &task)).expect("verifies");
    assert_eq!((authority.base(), authority.task(), authority.agent()), (&base, &task, "assistant"));
    let ids = authority.revocation_ids();
    assert!(ids.contains(&base.key.to_string()) && ids.contains(&task.key.to_string()));
    assert_eq!(ids.len(), 4, "both blocks have an id of their own besides");
    assert_eq!(verifier().verify_task(&good()).expect("verifies").base(), &base);
    // The copy that leaves the launcher is sealed; it proves the same.
    let token = Biscuit::from(good().as_bytes(), biscuit_public(&root().verifying_key()).expect("key"));
    let sealed =
        KeyToken(token.and_then(|token| token.seal()).and_then(|sealed| sealed.to_vec()).expect("seals"));
    assert_eq!(verifier().verify_task(&sealed).expect("verifies").task(), &task);
}

/// Rows: SLO-020 (in part: the ledger is told by what makes something of keys) SLO-003
/// Rows: SLO-021 (in part: a task key alone is refused)
#[test]
fn one_key_alone_proves_nothing() {
    let (base, _) = claims();
    let base = mint_base(&base, &root()).expect("mints");
    assert_eq!(refusal(&base), KeyError::Blocks);
    let task_alone = spliced(&[(&good(), |number| number != AUTHORITY)]);
    assert_eq!(refusal(&task_alone), KeyError::Signature);
    let block_alone = spliced(&[(&good(), |number| number == BLOCK)]);
    assert_eq!(refusal(&block_alone), KeyError::Signature);
    assert_eq!(refusal(&KeyToken::from_bytes(Vec::new())), KeyError::Signature);
}

/// Threat 7: key mixing.
#[test]
fn a_task_key_cannot_be_moved_to_another_base_key() {
    let (base, task) = claims();
    let other = BaseClaims { key: KeyId::from_parts(later(0), 99), ..base.clone() };
    let (ours, theirs) =
        (minted(&base, &task), minted(&other, &TaskClaims { base: other.key, ..task.clone() }));
    let moved = spliced(&[(&theirs, |number| number == AUTHORITY), (&ours, |number| number != AUTHORITY)]);
    assert_eq!(refusal(&moved), KeyError::Signature);
    // Spliced back together as it was, it is good: the splicing itself is not what is refused.
    assert!(verifier().verify_task(&spliced(&[(&ours, |_| true)])).is_ok());
    // Nor does the router's own signature help, if the claims name another base key.
    assert_eq!(refusal(&minted(&other, &task)), KeyError::Mixed);
}

/// Threat 6: forged tokens.
///
/// Rows: SLO-043 SLO-044 (in part: who has signed them)
#[test]
fn other_keys_installations_and_epochs_are_refused() {
    let (base, task) = claims();
    let token = minted(&base, &task);
    for foreign in [
        BaseClaims { epoch: EPOCH - 1, ..base.clone() },
        BaseClaims { epoch: EPOCH + 1, ..base.clone() },
        BaseClaims { installation: InstallationId::from_parts(later(0), 2), ..base.clone() },
    ] {
        assert_eq!(refusal(&minted(&foreign, &task)), KeyError::Foreign);
    }
    let elsewhere = Verifier { root: key(9).verifying_key(), ..verifier() };
    assert_eq!(elsewhere.verify_task(&token), Err(KeyError::Signature));
    let elsewhere = Verifier { router: key(9).verifying_key(), ..verifier() };
    assert_eq!(elsewhere.verify_task(&token), Err(KeyError::Blocks));

    let signed_base = mint_base(&base, &root()).expect("mints");
    let by_agent = mint_task(&signed_base, &task, &root().verifying_key(), &key(9)).expect("mints");
    assert_eq!(refusal(&by_agent), KeyError::Blocks);
    // Even the root key does not sign task keys.
    let by_root = mint_task(&signed_base, &task, &root().verifying_key(), &root()).expect("mints");
    assert_eq!(refusal(&by_root), KeyError::Blocks);
    let not_ours = mint_base(&base, &key(9)).expect("mints");
    let refused = mint_task(&not_ours, &task, &root().verifying_key(), &router());
    assert_eq!(refused, Err(KeyError::Signature));
}

/// Threat 6: truncated at every length, one bit of every byte flipped.
#[test]
fn a_changed_token_is_refused() {
    let token = good();
    for length in 0..token.as_bytes().len() {
        let cut = KeyToken(token.as_bytes()[..length].to_vec());
        assert!(verifier().verify_task(&cut).is_err(), "cut to {length} bytes");
    }
    for at in 0..token.as_bytes().len() {
        let mut bytes = token.as_bytes().to_vec();
        bytes[at] ^= 1 << (at % 8);
        assert!(verifier().verify_task(&KeyToken(bytes)).is_err(), "byte {at}");
    }
}

/// Threat 6: extra blocks and Datalog beyond the fixed facts.
#[test]
fn whatever_keys_do_not_hold_is_refused() {
    let (base, task) = claims();
    let public = biscuit_public(&root().verifying_key()).expect("key");
    let token = Biscuit::from(good().as_bytes(), public).expect("verifies");
    for code in ["", "capability(\"exec\");", "check if true;"] {
        let attenuated = token.append(with(BlockBuilder::new(), code)).expect("appends");
        assert_eq!(refusal(&KeyToken(attenuated.to_vec().expect("writes"))), KeyError::Blocks);
    }
    let content = |what: &str| KeyError::Content(what.to_owned());
    let computed = content("a rule, check or comment");
    let in_either = [
        ("capability(\"exec\") <- capability($any);", &computed),
        ("check if capability(\"read_file\");", &computed),
        ("check all capability($c), $c.length() > 0;", &computed),
        ("reject if capability(\"exec\");", &computed),
        ("right(\"everything\");", &content("right")),
        ("capability(\"exec\", \"*\");", &content("capability")),
        ("scope(\"read_file\", \"path\");", &content("scope")),
    ];
    for (code, refused) in in_either {
        assert_eq!(
            &refusal(&craft(with(base_block(&base), code), task_block(&task))),
            refused,
            "base: {code}"
        );
        assert_eq!(
            &refusal(&craft(base_block(&base), with(task_block(&task), code))),
            refused,
            "task: {code}"
        );
    }
    let annotated = [
        (base_block(&base).context("hello".into()), task_block(&task)),
        (base_block(&base), task_block(&task).context("hello".into())),
    ];
    for (base, task) in annotated {
        assert_eq!(refusal(&craft(base, task)), computed);
    }
    // A block says nothing in the other's name.
    let misplaced = content("a fact in the wrong block");
    let router_as_root = with(task_block(&task), "agent(\"root\");");
    assert_eq!(refusal(&craft(base_block(&base), router_as_root)), misplaced);
    let root_as_router = with(base_block(&base), "session(\"any\");");
    assert_eq!(refusal(&craft(root_as_router, task_block(&task))), misplaced);
}

#[test]
fn facts_that_are_missing_doubled_or_malformed_are_refused() {
    let (base, task) = claims();
    let without = |block: BlockBuilder, name: &str| {
        let mut block = block;
        block.facts.retain(|fact| fact.predicate.name != name);
        block
    };
    for name in ["base", "installation", "epoch", "agent", "policy", "expires"] {
        let lacking = craft(without(base_block(&base), name), task_block(&task));
        assert_eq!(refusal(&lacking).to_string(), format!("the key lacks a valid '{name}'"));
    }
    for name in ["task", "task_base", "session", "not_before", "expires"] {
        let lacking = craft(base_block(&base), without(task_block(&task), name));
        assert_eq!(refusal(&lacking).to_string(), format!("the key lacks a valid '{name}'"));
    }
    let bad = [
        ("epoch", "epoch(4);"),
        ("epoch", "epoch(\"3\");"),
        ("agent", "agent(5);"),
        ("capability", "capability(\"everything\");"),
        ("capability", "capability(true);"),
        ("capability", "scope(\"exec\", \"profile\", \"task\");"),
        ("scope", "scope(\"read_file\", \"planet\", \"*\");"),
        ("scope", "scope(\"read_file\", \"path\", 7);"),
        ("preapproved", "preapproved(\"everything\");"),
    ];
    for (name, code) in bad {
        let token = craft(with(base_block(&base), code), task_block(&task));
        assert_eq!(refusal(&token).to_string(), format!("the key lacks a valid '{name}'"), "{code}");
    }
    let negative = craft(with(without(base_block(&base), "epoch"), "epoch(-3);"), task_block(&task));
    assert_eq!(refusal(&negative), KeyError::Missing("epoch"));
}

/// Threat 6: too much is refused before it is looked at; nothing is evaluated either way.
#[test]
fn large_tokens_are_refused() {
    let (base, task) = claims();
    let facts = |count: usize| -> String { (0..count).map(|n| format!("epoch({n});")).collect() };
    let huge = craft(with(base_block(&base), &facts(10_000)), task_block(&task));
    assert_eq!(refusal(&huge), KeyError::TooLarge(huge.as_bytes().len()));
    let many = craft(with(base_block(&base), &facts(MAX_FACTS)), task_block(&task));
    assert!(many.as_bytes().len() <= MAX_TOKEN_BYTES);
    assert!(matches!(refusal(&many), KeyError::Content(what) if what.ends_with(" facts")));
    let garbage = KeyToken::from_bytes(vec![0xff; MAX_TOKEN_BYTES + 1]);
    assert_eq!(refusal(&garbage), KeyError::TooLarge(MAX_TOKEN_BYTES + 1));
    // Nor are such keys made.
    let long = "x".repeat(MAX_TOKEN_BYTES);
    let base = BaseClaims { agent: long, ..base };
    assert!(matches!(mint_base(&base, &root()), Err(KeyError::TooLarge(_))));
}

/// What is as large as it may be is read; one more is not.
#[test]
fn tokens_are_bounded_to_the_byte_and_the_fact() {
    let (base, task) = claims();
    let sized = |chars: usize| {
        craft(base_block(&BaseClaims { agent: "x".repeat(chars), ..base.clone() }), task_block(&task))
    };
    let mut chars = MAX_TOKEN_BYTES - good().as_bytes().len();
    let largest = loop {
        let token = sized(chars);
        match token.as_bytes().len().cmp(&MAX_TOKEN_BYTES) {
            std::cmp::Ordering::Equal => break token,
            std::cmp::Ordering::Greater => chars -= token.as_bytes().len() - MAX_TOKEN_BYTES,
            std::cmp::Ordering::Less => chars += MAX_TOKEN_BYTES - token.as_bytes().len(),
        }
    };
    assert_eq!(verifier().verify_task(&largest).map(|authority| authority.base.agent.len()), Ok(chars));
    assert_eq!(refusal(&sized(chars + 1)), KeyError::TooLarge(MAX_TOKEN_BYTES + 1));
    // What is sealed is larger; what is too large already is not read for it.
    let root = root().verifying_key();
    assert!(matches!(seal_token(&largest, &root), Err(KeyError::TooLarge(bytes)) if bytes > MAX_TOKEN_BYTES));
    assert_eq!(seal_token(&sized(chars + 1), &root), Err(KeyError::TooLarge(MAX_TOKEN_BYTES + 1)));
    // One that is made may be as large, too.
    let made =
        |chars: usize| mint_base(&BaseClaims { agent: "x".repeat(chars), ..base.clone() }, &self::root());
    let rest = made(100).expect("small").as_bytes().len() - 100;
    let largest = (MAX_TOKEN_BYTES - rest - 8..).find(|chars| made(*chars + 1).is_err()).expect("a bound");
    assert_eq!(made(largest).map(|token| token.as_bytes().len()), Ok(MAX_TOKEN_BYTES));

    let signer = Some(biscuit_public(&router().verifying_key()).expect("a key"));
    let known = verifier().open(&good(), &[None, signer]).expect("opens").2.len();
    let facts: String = (known..MAX_FACTS).map(|n| format!("epoch({n});")).collect();
    assert_eq!(
        refusal(&craft(with(base_block(&base), &facts), task_block(&task))),
        KeyError::Missing("epoch")
    );
}

#[test]
fn tokens_are_texts_of_bounded_length_and_come_back() {
    let token = good();
    assert_eq!(KeyToken::try_from(String::from(token.clone())), Ok(token));
    let longest = MAX_TOKEN_BYTES.div_ceil(3) * 4;
    assert_eq!(
        KeyToken::try_from("A".repeat(longest)).map(|token| token.as_bytes().len()),
        Ok(longest / 4 * 3)
    );
    assert_eq!(KeyToken::try_from("A".repeat(longest + 1)), Err(KeyError::TooLarge(longest + 1)));
    assert_eq!(KeyToken::try_from("?".to_owned()), Err(KeyError::Signature));
}

#[test]
fn a_copy_for_a_sub_agent_is_narrower_ends_no_later_and_rests_on_it() {
    let (_, task) = claims();
    let id = |n: u64| writ_types::id::KeyId::from_parts(later(0), u128::from(n) + 100);
    let narrow =
        |task: &TaskClaims, n: u64, ends: Timestamp| task.narrow_to(id(n), task.grants.clone(), ends);
    let sooner = later(1);
    assert!(sooner < task.expires_at);
    let copy = narrow(&task, 0, sooner).expect("narrower");
    assert_eq!((copy.expires_at, &copy.under), (sooner, &[task.key].into()));
    assert_eq!(narrow(&task, 0, task.expires_at).map(|copy| copy.expires_at), Ok(task.expires_at));
    assert_eq!(narrow(&copy, 1, task.expires_at).err(), Some(KeyError::Wider("its time")));
    let wider = task.grants.clone().allow_kind(ActionKind::Exec, []);
    assert_eq!(task.narrow_to(id(1), wider, sooner).err(), Some(KeyError::Wider("what it grants")));
    let mut copy = task;
    for n in 0..MAX_UNDER as u64 {
        copy = narrow(&copy, n, sooner).expect("not too many");
    }
    assert_eq!(copy.under.len(), MAX_UNDER);
    assert_eq!(narrow(&copy, 50, sooner).err(), Some(KeyError::Wider("how many keys it rests on")));
}

/// The most processor time in which whatever claims to be a key is refused (threat 6).
const REFUSED_WITHIN: Duration = Duration::from_millis(60);

/// The processor time that this thread has used. What other programs and tests use of a busy machine is no part of it.
fn thread_time() -> Duration {
    // The kernel counts what runs when it chooses what to run next.
    std::thread::yield_now();
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    Duration::from_nanos(counts.split(' ').next().and_then(|used| used.parse().ok()).expect("nanoseconds"))
}

/// Threat 6: ten thousand facts, as many as fit, and Datalog that would take hours, in either key. Nothing of it
/// is evaluated, so that refusing takes no longer than reading. The fastest of a few tries counts: the caches may
/// be full of something else. The twin is the honest pair of keys, verified in the same time.
#[test]
fn keys_that_would_take_long_are_refused_at_once() {
    let (base, task) = claims();
    let facts = |count: usize| -> String { (0..count).map(|n| format!("f({n});")).collect() };
    let joined = "f($a, $b, $c, $d, $e, $f) <- f($a), f($b), f($c), f($d), f($e), f($f);";
    let explosion = format!("{} {joined} check if f($a, $b, $c, $d, $e, $f), $a > $f;", facts(500));
    let chain: String = (0..1_000).map(|n| format!("e({n}, {});", n + 1)).collect();
    let closure = format!("{chain} e($a, $c) <- e($a, $b), e($b, $c); check if e($a, $b), $a > $b;");
    let mut hostile = Vec::new();
    for code in [facts(10_000), facts(MAX_FACTS + 1), explosion, closure] {
        hostile.push(craft(with(base_block(&base), &code), task_block(&task)));
        hostile.push(craft(base_block(&base), with(task_block(&task), &code)));
    }
    let soonest = |token: &KeyToken| {
        let tries = (0..5).map(|_| {
            let start = thread_time();
            let refused = verifier().verify_task(token).is_err()
                && verifier().verify_base(token).is_err()
                && verifier().verify_pair(token, token).is_err();
            (thread_time().saturating_sub(start), refused)
        });
        tries.min().expect("some tries")
    };
    for token in &hostile {
        let (took, refused) = soonest(token);
        assert!(refused && took < REFUSED_WITHIN, "{} bytes: {took:?}", token.as_bytes().len());
    }
    let (took, refused) = soonest(&good());
    assert!(!refused && took < REFUSED_WITHIN, "{took:?}");
}

#[test]
fn tokens_do_not_show_themselves() {
    assert!(format!("{:?}", good()).starts_with("Token("));
    assert!(!format!("{:?}", good()).contains("work"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Values are data, whatever they hold: quotes, brackets, Datalog, other alphabets.
    #[test]
    fn values_come_back_as_they_were(
        agent in r#"("|\\|\)|;|\n| |[a-z]|\PC){1,12}"#,
        scope in r#"("\); capability\("exec"\); //|"|'|\n|\$x|\{p\}|\PC){0,12}"#,
        expires in any::<i64>(),
    ) {
        let (mut base, mut task) = claims();
        base.agent = agent;
        base.grants = base.grants.allow_kind(ActionKind::SendFile, [(Dimension::Recipient, scope.as_str())]);
        task.grants = task.grants.allow_kind(ActionKind::SendFile, [(Dimension::Recipient, scope.as_str())]);
        task.session = session(u128::from(expires.unsigned_abs()));
        task.expires_at = Timestamp::from_millis(expires);
        base.installation = installation();
        let authority = verifier().verify_task(&minted(&base, &task));
        prop_assert_eq!(authority.as_ref().map(Authority::base), Ok(&base));
        prop_assert_eq!(authority.as_ref().map(Authority::task), Ok(&task));
    }

    #[test]
    fn no_bytes_are_a_token_by_chance(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(verifier().verify_task(&KeyToken::from_bytes(bytes)).is_err());
    }
}
