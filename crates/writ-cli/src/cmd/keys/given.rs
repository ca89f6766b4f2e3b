//! `writ keys base|task|seal|inspect|check`: keys that are given out to agents of the owner's own.
//!
//! The root key is opened here alone: an engine has it for the moment of its start only. Task keys are signed
//! by the router, which is the engine.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_policy::budget::BudgetFacts;
use writ_policy::door::{Facts, precheck};
use writ_policy::keys::document::{self, DocumentError};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::limits::{UsedLimits, UsedToday};
use writ_policy::keys::{self, Authority, BaseClaims, KeyError, KeyToken, MAX_TOKEN_BYTES, Verifier};
use writ_policy::plan::Planned;
use writ_runtime::methods::Method;
use writ_secrets::store::EngineKey;
use writ_store::store::Store;
use writ_types::action::{Action, Escalate, Operate};
use writ_types::error::Exit;
use writ_types::id::KeyId;
use writ_types::taint::{Label, Taint};

use crate::args::{CheckArgs, KeyOut, TaskCommand};
use crate::client::EngineClient;
use crate::clock;
use crate::config::policies;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::{KeyRole, open_secrets, public_keys};
use crate::ledger::open_to_read;

/// The largest file that is read here, in bytes: a token as text with some white space, or a document, which is far
/// smaller where it fits into a token.
const MAX_FILE_BYTES: u64 = 64 * 1024;
const _: () = assert!(MAX_FILE_BYTES >= MAX_TOKEN_BYTES as u64 * 2, "a token in two bytes for one");

/// Signs a base key, has the engine note it, and hands it out.
pub(super) fn issue_base_key(context: &Context, file: &Path, out: &KeyOut) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    // The document is checked before the root key is opened.
    let said = document::read_base(read_document(file)?).map_err(|error| document_failure(file, &error))?;
    let now = clock::now();
    if said.expires <= now {
        let text = format!("the key would end at {}, which is over", said.expires);
        return Err(Failure::new(Exit::Usage, "key.expired", text, "set `expires` to a time to come"));
    }
    let store = open_to_read(context, &config)?;
    let claims = BaseClaims {
        key: KeyId::from_parts(now, clock::random()),
        installation: store.installation(),
        epoch: store.blocking().epoch()?,
        agent: said.agent,
        policy: policies::load_rules(&context.home, None)?.digest(),
        expires_at: said.expires,
        grants: said.grants,
    };
    let root = open_secrets(context, &config)?.signing_key(EngineKey::Root)?;
    let token = keys::mint_base(&claims, &root)?;
    drop(root);
    let call = async {
        EngineClient::ensure(context).await?.call_method(Method::KeysIssued, json!({ "token": token })).await
    };
    let mut issued = block_on(call)?;
    issued["token"] = json!(token);
    hand_out(context, issued, out)
}

/// Mints, narrows or renews a task key: the engine signs.
pub(super) fn run_task_command(context: &Context, command: &TaskCommand) -> Result<(), Failure> {
    let (method, params, out) = match command {
        TaskCommand::Mint { file, base, out } => {
            // Errors of a document are reported before the person is asked.
            let document = read_document(file)?;
            document::read_task(document.clone()).map_err(|error| document_failure(file, &error))?;
            (Method::KeysMint, json!({ "base": read_token(base)?, "document": document }), out)
        }
        TaskCommand::Attenuate { key, file, base, out } => {
            let document = read_document(file)?;
            document::read_narrow(document.clone()).map_err(|error| document_failure(file, &error))?;
            let (base, token) = (read_token(base)?, read_token(key)?);
            (Method::KeysNarrow, json!({ "base": base, "token": token, "document": document }), out)
        }
        TaskCommand::Renew { key, base, out } => {
            (Method::KeysRenew, json!({ "base": read_token(base)?, "token": read_token(key)? }), out)
        }
    };
    let given = block_on(async { EngineClient::ensure(context).await?.call_method(method, params).await })?;
    hand_out(context, given, out)
}

/// Seals a copy.
pub(super) fn seal_key(context: &Context, file: &Path, out: &KeyOut) -> Result<(), Failure> {
    let roots = public_keys(&context.home, KeyRole::Root)?;
    let root = roots.first().ok_or(KeyError::Signature)?;
    let sealed = keys::seal_token(&read_token(file)?, root).map_err(|error| key_failure(&error))?;
    hand_out(context, json!({ "token": sealed }), out)
}

/// Shows what a key says, if it is one of this home.
pub(super) fn inspect_key(context: &Context, file: &Path, base: Option<&Path>) -> Result<(), Failure> {
    let (store, verifier) = open_verifier(context)?;
    let token = read_token(file)?;
    // A base key names itself; any other token must be a task key.
    let shown = match (verifier.verify_base(&token), base) {
        (Ok((claims, ids)), None) => {
            let revoked = is_revoked(&store, &ids)?;
            json!({ "role": "base", "key": claims.key, "agent": claims.agent,
                "expires_at": claims.expires_at.to_string(), "policy": claims.policy,
                "grants": grants_value(&claims.grants), "revoked": revoked })
        }
        (_, base) => {
            let authority = verify_both(&verifier, base.map(read_token).transpose()?.as_ref(), &token)?;
            let (base, task) = (authority.base(), authority.task());
            let case = task.case.as_ref().map(|case| {
                json!({ "task_id": case.task, "customer_token": case.customer, "case_token": case.case,
                    "granted_by": case.granted_by })
            });
            json!({ "role": "task", "key": task.key, "base": base.key, "agent": base.agent,
                "not_before": task.not_before.to_string(),
                // A task key ends with its base key at the latest.
                "expires_at": task.expires_at.min(base.expires_at).to_string(),
                "case": case, "under": task.under, "grants": grants_value(&task.grants),
                "revoked": is_revoked(&store, authority.revocation_ids())? })
        }
    };
    context.out.print_either(&shown, |shown| {
        let object = shown.as_object().into_iter().flatten();
        object.map(|(name, value)| format!("{name}: {}", plain_text(value))).collect()
    })
}

/// Says what the door would say of keys and operation. Rules, budget and approvals come on top of it.
pub(super) fn check_key(context: &Context, args: &CheckArgs) -> Result<(), Failure> {
    let (store, verifier) = open_verifier(context)?;
    let authority = verify_both(&verifier, Some(&read_token(&args.base)?), &read_token(&args.task)?)?;
    let mut parameters: std::collections::BTreeMap<String, String> = args.set.iter().cloned().collect();
    // Escalation is an action of its own, with a recipient.
    let action = if args.operation == "escalate_to" {
        let to = parameters.remove("to").unwrap_or_default();
        Action::Escalate(Escalate { to, question: String::new() })
    } else {
        Action::Operate(Operate { operation: args.operation.clone(), parameters })
    };
    let used: UsedLimits =
        args.used.iter().map(|(name, used)| ((args.operation.clone(), name.clone()), *used)).collect();
    let used =
        UsedToday { base: used.clone(), task: used.clone(), base_total: used.clone(), task_total: used };
    let mut revoked = std::collections::BTreeSet::new();
    for id in authority.revocation_ids() {
        if store.blocking().is_revoked(id)? {
            revoked.insert(id.clone());
        }
    }
    let rules = policies::load_rules(&context.home, None)?;
    let facts = Facts {
        authority: &authority,
        revoked: &revoked,
        rules: &rules,
        egress: &EgressScope::default(),
        origins: &Origins::default(),
        strict: false,
        plan: Planned::default(),
        lost: false,
        budget: &BudgetFacts::default(),
        approval: None,
        used: Some(&used),
    };
    // A clock that was set back lets nothing begin again, here as in the engine.
    let now = clock::now().max(store.blocking().not_before()?);
    if let Err(denial) = precheck(prepare_action(&authority, action), &facts, now) {
        let hint = format!("decided by the {}", denial.rule);
        return Err(Failure::new(Exit::Denied, "key.denied", denial.text, hint));
    }
    let granted = json!({ "granted": true, "agent": authority.agent(), "operation": args.operation,
        "task": authority.task().key, "base": authority.base().key });
    context.out.print_either(&granted, |_| vec![format!("the keys grant '{}'", args.operation)])
}

fn prepare_action(authority: &Authority, action: Action) -> Prepared {
    Prepared {
        action,
        // A check is no action of a turn, so it carries the owner's label.
        agent: authority.agent().to_owned(),
        session: Some(authority.task().session),
        turn: None,
        turn_number: 0,
        call: None,
        tool: "keys check".to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: Default::default(),
        idempotent: true,
        intent: "look whether keys grant it".to_owned(),
    }
}

fn open_verifier(context: &Context) -> Result<(Store, Verifier), Failure> {
    let config = context.load_ready_config()?;
    let store = open_to_read(context, &config)?;
    let newest = |role| -> Result<_, Failure> {
        public_keys(&context.home, role)?.first().copied().ok_or_else(|| key_failure(&KeyError::Signature))
    };
    let (root, router) = (newest(KeyRole::Root)?, newest(KeyRole::Harness)?);
    let verifier =
        Verifier { root, router, installation: store.installation(), epoch: store.blocking().epoch()? };
    Ok((store, verifier))
}

fn verify_both(verifier: &Verifier, base: Option<&KeyToken>, task: &KeyToken) -> Result<Authority, Failure> {
    let verified = base.map_or_else(|| verifier.verify_task(task), |base| verifier.verify_pair(base, task));
    // Alone, a task key is verified as far as its own signature goes.
    verified.map_err(|error| key_failure(&error))
}

fn is_revoked(store: &Store, ids: &std::collections::BTreeSet<String>) -> Result<bool, Failure> {
    for id in ids {
        if store.blocking().is_revoked(id)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The owner holds the file: its errors are reported here, and nowhere else.
fn key_failure(error: &KeyError) -> Failure {
    Failure::new(Exit::Denied, "key.refused", error.to_string(), "make it again with `writ keys base|task`")
}

pub(super) fn document_failure(file: &Path, error: &DocumentError) -> Failure {
    let text = format!("{}: {error}", file.display());
    Failure::new(Exit::Usage, "key.document", text, "see `docs/guides/keys.md` for what it may say")
}

fn grants_value(grants: &Grants) -> Value {
    let kinds = grants.kinds.iter().map(|(kind, scopes)| {
        let scopes = scopes.iter().map(|(dimension, value)| format!("{} {value}", dimension.as_str()));
        (kind.as_str().to_owned(), json!(scopes.collect::<Vec<_>>()))
    });
    let limits = grants.limits.iter().map(|(operation, limits)| {
        let amounts = limits.amounts.iter().map(|(name, amount)| {
            let value = json!({ "min": amount.min, "max": amount.max, "daily": amount.daily });
            (name.clone(), value)
        });
        let values = limits.values.iter().map(|(name, values)| (name.clone(), json!(values)));
        let totals = limits.totals.iter().map(|(name, most)| (format!("total_{name}"), json!(most)));
        (operation.clone(), Value::Object(amounts.chain(values).chain(totals).collect()))
    });
    json!({ "kinds": Value::Object(kinds.collect()), "limits": Value::Object(limits.collect()) })
}

fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Prints a key, or writes it to a file that only its owner can read.
fn hand_out(context: &Context, mut given: Value, KeyOut { out }: &KeyOut) -> Result<(), Failure> {
    let token = given.get("token").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(path) = out {
        let written =
            // Never over a file that exists: it may hold another key.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).and_then(|mut file| {
                file.write_all(format!("{token}\n").as_bytes()).and_then(|()| file.sync_all())
            });
        written.map_err(|error| file_failure(path, &error))?;
        if let Some(given) = given.as_object_mut() {
            given.remove("token");
            given.insert("file".to_owned(), json!(path.display().to_string()));
        }
    }
    context.out.print_either(&given, |_| match out {
        Some(path) => vec![format!("written to {}", path.display())],
        None => vec![token],
    })
}

fn file_failure(path: &Path, error: &std::io::Error) -> Failure {
    let text = format!("{} cannot be used: {error}", path.display());
    Failure::new(Exit::Usage, "key.file", text, "name a file that can be read, or one that is not there yet")
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let read = || {
        let mut text = String::new();
        // One byte more than the limit shows that the file is too large.
        File::open(path)?.take(MAX_FILE_BYTES.saturating_add(1)).read_to_string(&mut text).map(|_| text)
    };
    let text = read().map_err(|error| file_failure(path, &error))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(key_failure(&KeyError::TooLarge(text.len())));
    }
    Ok(text)
}

fn read_token(path: &Path) -> Result<KeyToken, Failure> {
    KeyToken::try_from(read_text(path)?.trim().to_owned()).map_err(|error| key_failure(&error))
}

/// A document as JSON; one in TOML becomes that.
pub(super) fn read_document(path: &Path) -> Result<Value, Failure> {
    let text = read_text(path)?;
    // The first character decides between JSON and TOML.
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text)
            .map_err(|error| document_failure(path, &DocumentError(error.to_string())));
    }
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| document_failure(path, &DocumentError(error.to_string())))?;
    Ok(as_json(toml::Value::Table(table)))
}

fn as_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Array(list) => Value::Array(list.into_iter().map(as_json).collect()),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(name, value)| (name, as_json(value))).collect())
        }
    }
}
