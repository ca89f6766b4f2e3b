//! Targets whose readers their crates show to others: tokens, documents of keys, verdicts, patches, answers of a vault.

use std::collections::{BTreeMap, BTreeSet};

use ed25519_dalek::SigningKey;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value};
use writ_inspect::gate::{
    Due, GateConfig, GateProvider, GateSet, Hook, HookConfig, Judgement, Judging, MAX_STATE_BYTES, ModelSaid,
    Permission, Point, Program, ScriptEnd, Subject,
};
use writ_inspect::prepared::Prepared;
use writ_inspect::show;
use writ_policy::approval::Approvers;
use writ_policy::inbound::{self, Came, MessageClaims, MessageToken};
use writ_policy::keys::{BaseClaims, document, mint_base};
use writ_policy::order::{self, OrderClaims, OrderFacts, OrderToken};
use writ_secrets::server::{self, Login, PendingAnswer, VaultAnswer, VaultQuestion, VaultWay};
use writ_secrets::store::MAX_VALUE_BYTES;
use writ_tools::def::{AgentRole, PathState, ToolContext};
use writ_tools::registry::{AllowList, Registry};
use writ_types::action::{Action, Say};
use writ_types::chat::ToolCall;
use writ_types::credential::CredentialRef;
use writ_types::digest::Digest;
use writ_types::encoding::MARK;
use writ_types::entry::{GatePoint, HookEvent};
use writ_types::id::KeyId;
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use super::{VERIFIER, json, text};

/// What stands between the parts of an input.
const BETWEEN: &str = "\n%%\n";
/// When everything happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// The longest reason that the ledger keeps of a verdict: what was said, and what stands before it.
const MAX_REASON_CHARS: usize = 1_000;

fn approver() -> SigningKey {
    SigningKey::from_bytes(&[3; 32])
}

fn public(key: &SigningKey) -> String {
    key.verifying_key().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn approvers() -> Approvers {
    let key = approver();
    Approvers {
        keys: BTreeMap::from([(public(&key), key.verifying_key())]),
        passkeys: BTreeMap::new(),
        harness: SigningKey::from_bytes(&[4; 32]).verifying_key(),
    }
}

/// A standing order: nobody forges one, and signed by its owner it says what can be shown.
pub(super) fn order_token(bytes: &[u8]) {
    let Some(token) = json::<OrderToken>(bytes) else { return };
    let claims = token.claims.clone();
    let facts =
        OrderFacts { installation: claims.installation, epoch: claims.epoch, seen_at: NOW, revoked: false };
    assert!(order::verify_order(&token, &facts, &approvers(), NOW).is_err(), "it is not signed by the owner");
    let claims = OrderClaims { approver: public(&approver()), ..claims };
    let Ok(token) = OrderToken::sign_claims(claims.clone(), &approver()) else { return };
    let again = serde_json::to_vec(&token).expect("a token is JSON");
    assert_eq!(json::<OrderToken>(&again).expect("its own JSON is a token"), token);
    let Ok(order) = order::verify_order(&token, &facts, &approvers(), NOW) else { return };
    assert_eq!(order.claims(), &claims);
    assert!(claims.expires_at > NOW && order.opens_turn(claims.max_turns).is_err());
    assert!(
        claims.describe_lines().iter().all(|line| !line.contains(['\n', '\u{1b}', '\u{202e}'])),
        "{claims:?}"
    );
    let elsewhere = OrderFacts { epoch: facts.epoch.wrapping_add(1), ..facts };
    assert!(order::verify_order(&token, &elsewhere, &approvers(), NOW).is_err());
}

/// A message's signature: nobody forges one, and signed by its owner it is good for that message alone.
pub(super) fn message_token(bytes: &[u8]) {
    let Some(token) = json::<MessageToken>(bytes) else { return };
    let claims = token.claims.clone();
    let came = Came {
        installation: claims.installation,
        epoch: claims.epoch,
        session: claims.session,
        client_id: &claims.client_id,
        text: claims.text,
    };
    assert!(
        inbound::verify_message(&token, &came, &approvers(), NOW).is_err(),
        "it is not signed by the owner"
    );
    let signed = MessageClaims { signer: public(&approver()), ..claims.clone() };
    let Ok(token) = MessageToken::sign_claims(signed, &approver()) else { return };
    let again = serde_json::to_vec(&token).expect("a token is JSON");
    assert_eq!(json::<MessageToken>(&again).expect("its own JSON is a token"), token);
    if let Ok(signed) = inbound::verify_message(&token, &came, &approvers(), NOW) {
        let (nonce, until) = signed.nonce();
        assert!(nonce.len() == 32 && until > NOW);
    }
    let other = Came { text: Digest::of_bytes(bytes), ..came };
    assert!(inbound::verify_message(&token, &other, &approvers(), NOW).is_err());
}

/// Documents of keys: what is read can be minted, and is what the key says then.
pub(super) fn key_document(bytes: &[u8]) {
    let Some(value) = json::<Value>(bytes) else { return };
    let plain =
        |name: &str| !name.is_empty() && name.len() <= document::MAX_NAME_BYTES && show::is_plain(name);
    if let Ok(task) = document::read_task(value.clone()) {
        assert!([&task.case.task, &task.case.customer, &task.case.case].into_iter().all(|name| plain(name)));
    }
    let _ = document::read_narrow(value.clone());
    let Ok(base) = document::read_base(value) else { return };
    assert!(plain(&base.agent));
    for amount in base.grants.limits.values().flat_map(|limits| limits.amounts.values()) {
        assert!(amount.min <= amount.max && amount.daily.is_none_or(|daily| amount.min <= daily));
    }
    let claims = BaseClaims {
        key: KeyId::from_parts(NOW, 1),
        installation: VERIFIER.installation,
        epoch: VERIFIER.epoch,
        agent: base.agent,
        policy: Digest::of_bytes(b"policy"),
        expires_at: base.expires,
        grants: base.grants,
    };
    // What has too many facts for a token is refused on one of the two sides.
    let root = SigningKey::from_bytes(&[1; 32]);
    if let Ok((read, _)) = mint_base(&claims, &root).and_then(|token| VERIFIER.verify_base(&token)) {
        assert_eq!(read, claims);
    }
}

/// What a script, a hook or a model says. The first byte tells which (its lowest three bits), whether it has failed (the
/// next), and whether it may change anything (the next).
pub(super) fn gate_said(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let said = String::from_utf8_lossy(rest);
    let (fails, writes) = (kind & 8 != 0, kind & 16 != 0);
    let end = ScriptEnd::Code(i32::from(fails));
    let which = kind % 8;
    let judged = match which {
        0 => judged(&script(Point::Input), GatePoint::Input, &end, &said),
        1 => judged(&script(Point::Output), GatePoint::Output, &end, &said),
        2 => judged(&script(Point::Execution), GatePoint::Execution, &end, &said),
        3 => judged(&hook(HookEvent::MessageReceived, writes), GatePoint::Input, &end, &said),
        4 => judged(&hook(HookEvent::ResponseGenerated, writes), GatePoint::Output, &end, &said),
        5 => judged(&hook(HookEvent::BeforeToolCall, writes), GatePoint::Execution, &end, &said),
        6 => {
            let gates = hook(HookEvent::AfterToolCall, writes);
            heard(gates.notify_hooks(HookEvent::AfterToolCall, Some("shell_exec"), Map::new()), &end, &said)
        }
        _ => judged(&model(), GatePoint::Input, &end, &said),
    };
    assert!(judged.verdicts.iter().all(|(_, _, reason)| reason.chars().count() <= MAX_REASON_CHARS));
    let stopped = judged.first_block().is_some();
    assert!(!(stopped && (judged.text.is_some() || judged.held.is_some())), "what is stopped does not go on");
    if fails && which < 6 {
        assert!(stopped, "what fails stops: {judged:?}");
    }
    assert!(judged.states.iter().all(|(_, state)| state.to_string().len() <= MAX_STATE_BYTES));
    if which == 7 {
        assert!(!stopped && judged.text.as_deref() == Some(SAID), "a model only advises: {judged:?}");
    }
    if which > 2 && !writes {
        assert!(judged.arguments.is_none() && judged.states.is_empty(), "it may change nothing: {judged:?}");
        let same = |text: &Option<String>| text.as_deref().is_none_or(|text| text == SAID);
        let on_text = which < 5;
        assert!(!on_text || (same(&judged.text) && same(&judged.held)), "it may change nothing: {judged:?}");
    }
}

/// What is judged.
const SAID: &str = "hello";

fn script(on: Point) -> GateSet {
    let script = Some("true".to_owned());
    gates(GateConfig {
        name: "g".into(),
        on,
        provider: GateProvider::Script,
        script,
        ..GateConfig::default()
    })
}

fn model() -> GateSet {
    let prompt = Some("is it polite?".to_owned());
    let on = Point::Input;
    gates(GateConfig { name: "g".into(), on, provider: GateProvider::Llm, prompt, ..GateConfig::default() })
}

fn gates(config: GateConfig) -> GateSet {
    GateSet::new(vec![config]).expect("a gate that can stand")
}

fn hook(on: HookEvent, writes: bool) -> GateSet {
    let write = writes.then_some(Permission::Write);
    let permissions = [Permission::Read].into_iter().chain(write).collect();
    let config =
        HookConfig { name: "h".into(), on, run: "h.sh".into(), permissions, ..HookConfig::default() };
    let hook = Hook { config, program: Ok(Program::new("true".into())) };
    GateSet::default().with_hooks(vec![hook]).expect("a hook that can stand")
}

fn judged(gates: &GateSet, point: GatePoint, end: &ScriptEnd, said: &str) -> Judgement {
    let subject = match point {
        GatePoint::Input | GatePoint::Output => Subject::text(SAID),
        GatePoint::Execution | GatePoint::Access => Subject::action(point, &action()),
    };
    heard(gates.begin_judging(point, subject, Some(Value::Null)), end, said)
}

fn heard(mut judging: Judging<'_>, end: &ScriptEnd, said: &str) -> Judgement {
    while let Some(due) = judging.next_due() {
        match due {
            Due::Script(_) => judging.script_said(end, said),
            Due::Model(_) => match ModelSaid::read_answer(said) {
                Ok(said) => judging.model_said(&said),
                Err(why) => judging.note_unavailable(&why),
            },
        }
    }
    judging.end_judging()
}

fn action() -> Prepared {
    Prepared {
        action: Action::Say(Say { to: writ_types::recipient::Recipient::Owner, text: SAID.into() }),
        agent: "main".into(),
        session: None,
        turn: None,
        turn_number: 1,
        call: None,
        tool: "tell".into(),
        sinks: Vec::new(),
        label: Label::new(Taint::External),
        bindings: BTreeMap::new(),
        idempotent: false,
        intent: "say something".into(),
    }
}

/// A file, a text in it, what stands there instead, and, if there is a fourth part, everywhere: what is written is the
/// file with exactly that replaced.
pub(super) fn file_patch(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut parts = text.split(BETWEEN);
    let (Some(file), Some(old), Some(new)) = (parts.next(), parts.next(), parts.next()) else { return };
    let all = parts.next().is_some();
    let arguments = serde_json::json!({ "path": "a.txt", "old": old, "new": new, "all": all });
    let call = ToolCall { id: "1".into(), name: "file_patch".into(), arguments };
    let registry = Registry::core_tools();
    let toolset = registry.toolset_of(&AgentRole::ALL, &AllowList::All);
    let (label, config) = (Label::new(Taint::Owner), writ_tools::config::ToolTimeouts::default());
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let peeked = PathState::File { bytes: file.into(), executable: false };
    let Ok(prepared) = toolset.prepare_call(&call, Some(&peeked), &context) else { return };
    let Action::WriteFile(write) = prepared.action else { panic!("a patch writes a file") };
    let [change] = write.changes.as_slice() else { panic!("a patch changes one file") };
    let content = write.content.unwrap_or_default();
    assert!(!old.is_empty() && content != file, "something is replaced");
    assert_eq!(change.before, Some(Digest::of_bytes(file.as_bytes())));
    assert_eq!(change.after, Some(Digest::of_bytes(content.as_bytes())));
    if [file, old, new].iter().any(|text| text.contains(['\r', MARK])) {
        // Line ends of the file replace those of the call: the lines themselves are the same.
        let lines = |text: &str| text.replace(['\r', MARK], "");
        let (file, old, new) = (lines(file), lines(old), lines(new));
        assert!(content.len() <= file.len() * 2 + new.len() * 2 * (file.matches(&*old).count() + 1) + 8);
        return;
    }
    let places = file.matches(old).count();
    if places == 0 {
        // The last line of the file has no end.
        let before = file.strip_suffix(old.strip_suffix('\n').expect("whole lines")).expect("the last line");
        assert_eq!(content, format!("{before}{}", new.strip_suffix('\n').unwrap_or(new)));
        return;
    }
    assert!(places == 1 || all, "{places} places");
    assert_eq!(content, file.replace(old, new));
}

/// What a vault answers: the first byte says with which status, and whether it was asked for a token first.
pub(super) fn vault_answer(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let status = [200, 403, 404, 503, 301][usize::from(*kind % 5)];
    let login = if kind & 64 == 0 {
        Login::Token { from: "VAULT_TOKEN", token: "t".into() }
    } else {
        Login::AppRole { role: "r".into(), secret: "s".into() }
    };
    let reference = |text: &str| text.parse::<CredentialRef>().expect("a reference");
    let wanted: BTreeSet<CredentialRef> =
        [reference("vault://kv/team/app#token"), reference("vault://kv/team/app#user")].into();
    let way = Vault { status, body };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    match runtime.block_on(server::fetch_secrets(&way, vec![login], &wanted)) {
        Ok(fetched) => {
            assert!(status == 200 && fetched.all_secrets().count() == wanted.len());
            for (_, value) in fetched.all_secrets() {
                assert!((1..=MAX_VALUE_BYTES).contains(&value.expose_secret().len()));
            }
        }
        Err(error) => assert!(!error.to_string().contains(['\n', '\u{1b}']), "{error}"),
    }
}

struct Vault<'v> {
    status: u16,
    body: &'v [u8],
}

impl VaultWay for Vault<'_> {
    fn ask<'a>(&'a self, path: &'a str, _: VaultQuestion) -> PendingAnswer<'a> {
        let status = if path.ends_with("lookup-self") { 200 } else { self.status };
        Box::pin(std::future::ready(Ok(VaultAnswer { status, body: self.body.to_vec().into() })))
    }
}
