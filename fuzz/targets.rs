//! What is fuzzed: readers of bytes that somebody else has written. Nothing may panic, hang, or break what is asserted here.
//!
//! The fuzzer and an ordinary test use the same table; the test replays what lies in `corpus`. Readers that are private to
//! their crate are functions of its module `fuzzing`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;

use ed25519_dalek::SigningKey;
use serde_json::Value;
use writ_inspect::egress::host::{Host, HostPattern, Scheme, Target};
use writ_inspect::gate::{GateConfig, GateSet};
use writ_inspect::origin::{Origins, Takes};
use writ_inspect::prepared::{Prepared, Sink};
use writ_inspect::redact::{KnownSecret, Redactor};
use writ_inspect::show::{self, ShownText};
use writ_inspect::{scope, webauthn};
use writ_mcp::elicitation::Elicitation;
use writ_policy::approval::{ApprovalClaims, SignedAnswer};
use writ_policy::keys::{KeyToken, Verifier};
use writ_policy::rules::{Authorship, RuleSet, RuleSource};
use writ_types::chat::{ChatMessage, Field, MAX_FIELDS, ModelReply, ToolCall};
use writ_types::credential::Reference;
use writ_types::digest::Digest;
use writ_types::entry::Entry;
use writ_types::form::{MAX_FORM_FIELDS, filled_in};
use writ_types::frame::{ClientFrame, Numbered};
use writ_types::id::InstallationId;
use writ_types::taint::{Label, Taint};

#[path = "targets/public.rs"]
mod public;

/// What is done with some bytes.
pub(crate) type Reader = fn(&[u8]);

/// All targets by name.
pub(crate) const TARGETS: &[(&str, Reader)] = &[
    ("client_frame", client_frame),
    ("server_frame", server_frame),
    ("entry", entry),
    ("token", token),
    ("approval", approval),
    ("webauthn", passkeys),
    ("policy", policy),
    ("gates", gates),
    ("mcp_stream", mcp_stream),
    ("mcp_file", mcp_file),
    ("mcp_pins", mcp_pins),
    ("mcp_question", mcp_question),
    ("ledger_export", ledger_export),
    ("host", host),
    ("url", url),
    ("redactor", redactor),
    ("shown", shown),
    ("fields", fields),
    ("origins", origins),
    ("tool_call", tool_call),
    ("foreign_tool", foreign_tool),
    ("stored_event", stored_event),
    ("prices", prices),
    ("order_token", public::order_token),
    ("message_token", public::message_token),
    ("key_document", public::key_document),
    ("gate_said", public::gate_said),
    ("file_patch", public::file_patch),
    ("vault_answer", public::vault_answer),
    ("page", writ_tools::fuzzing::read_page),
    ("model_anthropic", writ_models::fuzzing::fuzz_anthropic),
    ("model_openai", writ_models::fuzzing::fuzz_openai),
    ("model_responses", writ_models::fuzzing::fuzz_responses),
    ("model_gemini", writ_models::fuzzing::fuzz_gemini),
    ("model_ollama", writ_models::fuzzing::fuzz_ollama),
    ("model_answer", writ_models::fuzzing::fuzz_answer),
    ("search_answer", writ_search::fuzzing::read_answer),
    ("mcp_http", writ_mcp::fuzzing::fuzz_http),
    ("proxy_head", writ_egress::fuzzing::proxy_head),
    ("client_hello", writ_egress::fuzzing::client_hello),
    ("fetched_body", writ_egress::fuzzing::fetched_body),
    ("sandbox_frame", writ_sandbox::fuzzing::frame),
    ("changed_file", writ_sandbox::fuzzing::changed),
];

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// A line of `control.sock`, or a message of a WebSocket: what is read is what is written again.
fn client_frame(bytes: &[u8]) {
    let Some(frame) = json::<ClientFrame>(bytes) else { return };
    let again = serde_json::to_vec(&frame).expect("a frame is JSON");
    assert_eq!(json::<ClientFrame>(&again).expect("its own JSON is a frame"), frame);
}

fn server_frame(bytes: &[u8]) {
    let Some(frame) = json::<Numbered>(bytes) else { return };
    let again = serde_json::to_vec(&frame).expect("a frame is JSON");
    assert_eq!(json::<Numbered>(&again).expect("its own JSON is a frame"), frame);
}

fn entry(bytes: &[u8]) {
    if let Some(entry) = json::<Entry>(bytes) {
        serde_json::to_vec(&entry).expect("an entry is JSON");
    }
}

static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| Verifier {
    root: SigningKey::from_bytes(&[1; 32]).verifying_key(),
    router: SigningKey::from_bytes(&[2; 32]).verifying_key(),
    installation: "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse::<InstallationId>().expect("an id"),
    epoch: 1,
});

/// No bytes that were not signed by the two keys are a key.
fn token(bytes: &[u8]) {
    assert!(VERIFIER.verify_task(&KeyToken::from_bytes(bytes.to_vec())).is_err());
}

fn approval(bytes: &[u8]) {
    let Some(value) = json::<Value>(bytes) else { return };
    if let Ok(claims) = serde_json::from_value::<ApprovalClaims>(value.clone()) {
        let _ = claims.challenge();
    }
    if let Ok(SignedAnswer::Token(token)) = SignedAnswer::read_signed(value) {
        let _ = token.claims.challenge();
    }
}

/// What a browser sends of a passkey: the first byte says which part the rest is.
fn passkeys(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let (challenge, origin) = (Digest::of_bytes(b"x"), "https://localhost:8443");
    let encoded = webauthn::text_of(rest);
    match kind % 4 {
        0 => {
            if let Some(made) = json::<webauthn::Registration>(rest) {
                let _ = webauthn::verify_registration(&made, &challenge, origin);
            }
        }
        1 => {
            // The attestation alone, behind client data that is good.
            let data = serde_json::json!({ "type": "webauthn.create", "challenge": webauthn::text_of(challenge.as_bytes()), "origin": origin, "crossOrigin": false });
            let data = webauthn::text_of(data.to_string().as_bytes());
            let made = serde_json::json!({ "id": "AQ", "rawId": "AQ", "type": "public-key", "response": { "clientDataJSON": data, "attestationObject": encoded } });
            let made = serde_json::from_value::<webauthn::Registration>(made).expect("a registration");
            let _ = webauthn::verify_registration(&made, &challenge, origin);
        }
        2 => {
            if let Some(passkey) = webauthn::Passkey::from_bytes(rest) {
                let again = webauthn::Passkey::from_bytes(&passkey.to_bytes()).expect("its own bytes");
                assert_eq!(again.credential_id(), passkey.credential_id());
            }
        }
        _ => {
            let _ = webauthn::challenge_of(&encoded);
            let _ = text(rest).and_then(webauthn::site_of);
        }
    }
}

/// Rules of a project, the least trusted ones.
fn policy(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let own = RuleSource { origin: "x".into(), authorship: Authorship::Project, text: text.to_owned() };
    if let Ok(rules) = RuleSet::load_rules(&[RuleSource::shipped_rules(), own]) {
        assert!(!rules.rule_ids().is_empty());
    }
}

fn gates(bytes: &[u8]) {
    #[derive(serde::Deserialize)]
    struct File {
        gates: Vec<GateConfig>,
    }
    let Some(Ok(file)) = text(bytes).map(toml::from_str::<File>) else { return };
    let _ = GateSet::new(file.gates);
}

/// Everything that a server of tools writes, from its first answer on: it ends, and nothing of it is believed beyond its bounds.
fn mcp_stream(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let read = std::io::Cursor::new(bytes.to_vec());
    runtime.block_on(async {
        if let Ok(client) =
            writ_mcp::client::Client::connect(read, tokio::io::sink(), writ_mcp::client::LIST_TIME).await
        {
            for tool in client.list_tools().await.unwrap_or_default().tools {
                let _ = (tool.digest(), tool.hidden_characters());
            }
        }
    });
}

fn mcp_file(bytes: &[u8]) {
    let Some(Ok(spec)) = text(bytes).map(toml::from_str::<writ_mcp::config::ServerSpec>) else { return };
    if spec.check_settings().is_ok() {
        let again = toml::to_string(&spec).expect("TOML");
        assert_eq!(toml::from_str::<writ_mcp::config::ServerSpec>(&again).expect("its own TOML"), spec);
    }
}

/// What a server asks a person: what is shown is bounded and hides nothing, and what does not fit is not sent.
fn mcp_question(bytes: &[u8]) {
    let Ok(params) = serde_json::from_slice::<Value>(bytes) else { return };
    let Ok(question) = Elicitation::read(Value::from(1), &params) else { return };
    assert!(show::is_plain(&question.message) && question.fields.len() <= MAX_FORM_FIELDS);
    assert!(
        question
            .fields
            .iter()
            .all(|field| show::is_plain(&field.title) && show::is_plain(&field.description))
    );
    let answers: BTreeMap<String, String> =
        question.fields.iter().map(|field| (field.name.clone(), field.title.clone())).collect();
    if let Ok(content) = filled_in(&question.fields, &answers) {
        assert_eq!(content.len(), answers.len());
    }
    let _ = filled_in(&question.fields, &BTreeMap::new());
}

fn mcp_pins(bytes: &[u8]) {
    if let Some(Ok(pins)) = text(bytes).map(writ_mcp::definition::Pins::parse_pins) {
        let _ = pins.to_text();
    }
}

/// What another program is given, or gives back, of the ledger: unsigned, none of it counts.
fn ledger_export(bytes: &[u8]) {
    use writ_store::ledger::{export, head, proof};
    let keys = [[7; 32]];
    if let Some(text) = text(bytes) {
        let _ = head::Checkpoint::parse(text);
        assert!(head::Checkpoint::verify(text, &keys).is_err());
        let _ = (export::read_heads(text, &keys), export::size_of_line(text));
    }
    if let Some(proof) = json::<writ_types::api::ledger::EntryProof>(bytes) {
        assert!(proof::check_proof(&proof, &keys).is_err());
    }
}

/// A host has one form: what is read and written is read as the same.
fn host(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(host) = text.parse::<Host>() {
        assert_eq!(host.to_string().parse::<Host>().expect("its own form"), host);
    }
    for scheme in [Scheme::Http, Scheme::Https] {
        if let Ok(target) = Target::from_authority(scheme, text, Some(443)) {
            assert!(!text.contains('@'));
            let _ = target;
        }
    }
    if let Ok(pattern) = text.parse::<HostPattern>() {
        let _ = pattern.to_string();
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        let plain = writ_inspect::egress::address::canonical_address(address);
        assert_eq!(
            writ_inspect::egress::address::classify_address(address),
            writ_inspect::egress::address::classify_address(plain),
            "an address that stands for another is judged as that"
        );
    }
}

fn url(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let _ = (Target::from_url(text), scope::host_of(text), text.parse::<Reference>());
    let resolved = scope::resolve_path("/work", text);
    assert!(resolved.starts_with('/') && !resolved.split('/').any(|part| part == ".."), "{resolved}");
}

static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| {
    let redactor = Redactor::default();
    redactor.learn_secrets(&[KnownSecret { name: "secret:x".into(), value: SECRET.to_owned().into() }]);
    redactor
});
const SECRET: &str = "hunter2hunter2";

/// No known secret is in what comes out, whole or in pieces.
fn redactor(bytes: &[u8]) {
    let Some((cut, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    assert!(!REDACTOR.mask_text(&text).contains(SECRET));
    let at = text.floor_char_boundary(usize::from(*cut).min(text.len()));
    let mut stream = REDACTOR.mask_stream();
    let out =
        format!("{}{}{}", stream.push_text(&text[..at]), stream.push_text(&text[at..]), stream.end_text());
    assert!(!out.contains(SECRET), "{out}");
    if let Some(mut value) = json::<Value>(rest) {
        REDACTOR.mask_json(&mut value);
        assert!(!value.to_string().contains(SECRET));
    }
    let _ = REDACTOR.judge_message(&text);
}

fn shown(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert!(show::is_plain(&show::escape_text(&text)));
    let line = show::escape_line(&text);
    assert!(show::is_plain(&line) && !line.contains(['\n', '\t']));
    if let Some(prepared) = json::<Prepared>(bytes)
        && let Ok(shown) = ShownText::new(&prepared, &text)
    {
        assert!(show::is_plain(shown.text()) && shown.hash() == Digest::of_bytes(shown.text().as_bytes()));
    }
}

fn fields(bytes: &[u8]) {
    let Some(value) = json::<Value>(bytes) else { return };
    let fields = Field::fields_of(&value);
    assert!(fields.len() <= MAX_FIELDS);
    for field in &fields {
        assert!(value.pointer(&field.path).is_some(), "a path leads to its leaf: {}", field.path);
    }
    let _ = (json::<Label>(bytes), json::<ModelReply>(bytes));
}

/// A conversation, and what of it may be used: nothing that is neither the owner's nor a whole leaf.
fn origins(bytes: &[u8]) {
    let Some(messages) = json::<Vec<ChatMessage>>(bytes) else { return };
    let mut origins = Origins::new(["write to ann@example.org".to_owned()]);
    origins.read_messages(&messages);
    let sink = [Sink { argument: "to.0".into(), value: "never-said-anywhere@evil.test".into() }];
    if !String::from_utf8_lossy(bytes).contains("never") {
        let takes = Takes::from([("to".to_owned(), vec!["from".to_owned()])]);
        assert!(origins.composed_sink("mail__send", &sink, &takes).is_some());
    }
    let ann = [Sink { argument: "to".into(), value: "ann@example.org".into() }];
    assert!(origins.composed_sink("mail__send", &ann, &Takes::new()).is_none());
    // Whatever was read: the owner's own value was chosen by nobody else.
    assert!(origins.sink_beside(&ann, &Takes::new(), &["to".to_owned()]).is_none());
    assert!(origins.sink_pointed_at(&ann, &Takes::new()).is_none());
    let listed = [Sink { argument: "id".into(), value: "m-2".into() }];
    if let Some((_, word)) = origins.sink_beside(&listed, &Takes::new(), &["id".to_owned()]) {
        assert!("write to ann@example.org".contains(&word), "a word of the request");
    }
}

/// A model's call of a tool of our own.
fn tool_call(bytes: &[u8]) {
    use writ_tools::def::{AgentRole, ToolContext};
    use writ_tools::registry::{AllowList, Registry};
    let Some(call) = json::<ToolCall>(bytes) else { return };
    let registry = Registry::core_tools();
    let toolset = registry.toolset_of(&AgentRole::ALL, &AllowList::All);
    let (label, config) = (Label::new(Taint::External), writ_tools::config::ToolTimeouts::default());
    let context = ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let _ = toolset.needed_file(&call);
    if let Ok(prepared) = toolset.prepare_call(&call, None, &context) {
        let _ = ShownText::new(&prepared, "");
        let _ = scope::attributes_of(&prepared.action);
    }
}

/// A server's schema, and arguments for it: `{"schema":…,"arguments":…}`.
fn foreign_tool(bytes: &[u8]) {
    use writ_tools::foreign::{ForeignRow, ForeignTool, ServerTools};
    let Some(value) = json::<Value>(bytes) else { return };
    let made = ForeignRow::from_tool(ForeignTool {
        server: "s".into(),
        tool: "t".into(),
        host: None,
        description: String::new(),
        schema: value["schema"].clone(),
        pin: Digest::of_bytes(b"pin"),
        effect: true,
        sinks: None,
        content: Vec::new(),
        free: Vec::new(),
        whom: Vec::new(),
        named: Vec::new(),
        takes: BTreeMap::new(),
        public: false,
        idempotent: false,
        risk: writ_types::entry::Risk::Medium,
        taint: Taint::External,
        quarantine: Default::default(),
    });
    let Ok(row) = made else { return };
    let mut server = ServerTools::new("s");
    server.add_row(row);
    let sources = [&server as &dyn writ_tools::source::ToolSource];
    let registry = writ_tools::registry::Registry::core_tools().with_sources(sources);
    let call = ToolCall { id: "1".into(), name: "s__t".into(), arguments: value["arguments"].clone() };
    let toolset =
        registry.toolset_of(&writ_tools::def::AgentRole::ALL, &writ_tools::registry::AllowList::All);
    let (label, config) = (Label::new(Taint::External), writ_tools::config::ToolTimeouts::default());
    let context = writ_tools::def::ToolContext {
        agent: "main",
        session: None,
        turn: None,
        turn_number: 1,
        label: &label,
        config: &config,
        search: None,
    };
    let _ = toolset.prepare_call(&call, None, &context);
}

fn stored_event(bytes: &[u8]) {
    if let Some(text) = text(bytes) {
        let _ = writ_agent::event::StoredEvent::decode_json(text);
    }
}

fn prices(bytes: &[u8]) {
    if let Some(text) = text(bytes) {
        let _ = writ_models::catalogue::Catalogue::parse_catalogue(text);
        let _ = writ_models::retry::retry_after(text, std::time::SystemTime::UNIX_EPOCH);
    }
}
