//! The door: both pure stages with the shipped rules and more, warm with a verified authority, and cold from the texts of
//! the rules and the token of the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ed25519_dalek::{Signer as _, SigningKey};
use writ_inspect::egress::EgressScope;
use writ_inspect::origin::Origins;
use writ_inspect::prepared::Prepared;
use writ_inspect::scope::{ANY, Dimension, WORK};
use writ_policy::budget::BudgetFacts;
use writ_policy::door::{Decided, Facts, Verdicts, decide, precheck};
use writ_policy::keys::grants::Grants;
use writ_policy::keys::{
    Authority, BaseClaims, KeyToken, TASK_KEY_TTL, TaskClaims, Verifier, mint_base, mint_task,
};
use writ_policy::plan::Planned;
use writ_policy::rules::{Authorship, RuleSet, RuleSource};
use writ_types::action::{Action, ActionKind, ChangeKind, Exec, ExecProfile, FileChange, Place, WriteFile};
use writ_types::digest::Digest;
use writ_types::id::{InstallationId, KeyId, SessionId, TurnId};
use writ_types::taint::{Label, Taint};
use writ_types::unit::Timestamp;

use crate::measured::{Measured, since};

/// The time at which everything here happens.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
const AGENT: &str = "assistant";
/// How many rules there are on top of those that are shipped, with the names of what is measured.
const MORE_RULES: [(u32, &str, &str, &str); 3] = [
    (4, "exec-4", "write_file-4", "cold-4"),
    (50, "exec-50", "write_file-50", "cold-50"),
    (500, "exec-500", "write_file-500", "cold-500"),
];
/// Of so many warm decisions one cold one is measured: it takes a hundred times as long.
const COLD_EVERY: u32 = 50;
/// Keys that were revoked before: some, so that looking them up counts.
const REVOKED: u32 = 100;
/// The signed message of the peer, in bytes: about what an approval's claims take.
const MESSAGE_BYTES: usize = 512;
/// How many decisions come before those that count.
const WARM_UP: u32 = 200;

/// Measures decisions about a command and a file with more and more rules, and verifying one signature and one pair of
/// keys in turn with them.
pub(crate) fn run(rounds: u32) -> Result<()> {
    for case in MORE_RULES {
        with_rules(case, rounds)?;
    }
    let keys = Keys::mint(&RuleSet::load_rules(&[RuleSource::shipped_rules()])?)?;
    let key = SigningKey::from_bytes(&[7; 32]);
    let message = [9_u8; MESSAGE_BYTES];
    let (public, signature) = (key.verifying_key(), key.sign(&message));
    let (mut verifications, mut tokens) = (Vec::new(), Vec::new());
    for round in 0..rounds + WARM_UP {
        let start = Instant::now();
        public.verify_strict(black_box(&message), &signature)?;
        let verification = since(start);
        let start = Instant::now();
        drop(black_box(keys.verify()?));
        let token = since(start);
        if round >= WARM_UP {
            verifications.push(verification);
            tokens.push(token);
        }
    }
    printed("ed25519", verifications)?;
    printed("token", tokens)
}

/// Warm and cold decisions with so many rules more.
fn with_rules((more, exec_name, write_name, cold_name): (u32, &str, &str, &str), rounds: u32) -> Result<()> {
    let sources = [RuleSource::shipped_rules(), more_rules(more)?];
    let rules = RuleSet::load_rules(&sources)?;
    let keys = Keys::mint(&rules)?;
    let authority = keys.verify()?;
    let revoked: BTreeSet<String> = (0..REVOKED).map(|n| format!("{n:064x}")).collect();
    let budget = BudgetFacts::default();
    let (egress, origins) = (EgressScope::default(), Origins::default());
    let facts = Facts {
        authority: &authority,
        revoked: &revoked,
        rules: &rules,
        lost: false,
        budget: &budget,
        egress: &egress,
        origins: &origins,
        strict: false,
        plan: Planned::default(),
        approval: None,
        used: None,
    };
    let (mut execs, mut writes, mut colds) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds + WARM_UP {
        let exec_took = decision(&facts, exec())?;
        let write_took = decision(&facts, write())?;
        if round < WARM_UP {
            continue;
        }
        execs.push(exec_took);
        writes.push(write_took);
        if round % COLD_EVERY == 0 {
            let start = Instant::now();
            let rules = RuleSet::load_rules(black_box(&sources))?;
            let authority = keys.verify()?;
            decision(&Facts { rules: &rules, authority: &authority, ..facts }, exec())?;
            colds.push(since(start));
        }
    }
    printed(exec_name, execs)?;
    printed(write_name, writes)?;
    printed(cold_name, colds)
}

fn printed(what: &str, nanos: Vec<u64>) -> Result<()> {
    Measured { what, nanos, rows: 0, took_nanos: 0 }.print()
}

/// How long the door takes to grant an action, in nanoseconds.
fn decision(facts: &Facts<'_>, action: Action) -> Result<u64> {
    let prepared = prepared(action);
    let verdicts = Verdicts::default();
    let start = Instant::now();
    let decided = match precheck(black_box(prepared), facts, NOW) {
        Ok(checked) => decide(checked, &verdicts, facts, NOW),
        Err(denial) => Decided::Deny(denial),
    };
    let took = since(start);
    match decided {
        Decided::Grant(grant) => drop(black_box(grant)),
        other @ (Decided::Ask(_) | Decided::Deny(_)) => bail!("the door does not grant it: {other:?}"),
    }
    Ok(took)
}

/// Rules that concern what is measured but do not hold for it: every one has to be looked at.
fn more_rules(more: u32) -> Result<RuleSource> {
    let mut text = String::new();
    for n in 0..more {
        let rule = match n % 4 {
            0 => format!(
                r#"forbid (principal, action == Action::"exec", resource) when {{ context.tool == "t{n}" }};"#
            ),
            1 => format!(
                r#"forbid (principal, action == Action::"write_file", resource) when {{ context.tool like "t{n}-*" }};"#
            ),
            2 => format!(r#"permit (principal, action == Action::"exec", resource == Target::"p{n}");"#),
            _ => format!(
                r#"permit (principal, action in [Action::"exec", Action::"write_file"], resource)
when {{ context.taint == "owner" && context.trust == "t{n}" }} unless {{ context.network }};"#
            ),
        };
        writeln!(text, "@id(\"bench-{n}\")\n{rule}")?;
    }
    Ok(RuleSource { origin: "bench rules".to_owned(), authorship: Authorship::Home, text })
}

/// What an owner's session is granted: both keys as a token, and what verifies it.
struct Keys {
    verifier: Verifier,
    token: KeyToken,
}

impl Keys {
    fn mint(rules: &RuleSet) -> Result<Self> {
        let (root, router) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let installation = InstallationId::from_parts(NOW, 1);
        let grants = Grants::default()
            .allow_kind(ActionKind::Exec, [(Dimension::Profile, ANY)])
            .allow_kind(ActionKind::ReadFile, [(Dimension::Path, WORK)])
            .allow_kind(ActionKind::WriteFile, [(Dimension::Place, "overlay"), (Dimension::Path, WORK)])
            .allow_kind(ActionKind::Recall, [(Dimension::Memory, ANY)])
            .allow_kind(ActionKind::Remember, [(Dimension::Memory, ANY)])
            .allow_kind(ActionKind::Say, [(Dimension::Recipient, "owner")])
            .allow_kind(ActionKind::ModelCall, [(Dimension::Provider, ANY)]);
        let base = BaseClaims {
            key: KeyId::from_parts(NOW, 1),
            installation,
            epoch: 1,
            agent: AGENT.to_owned(),
            policy: rules.digest(),
            expires_at: NOW.plus_duration(Duration::from_secs(86_400)),
            grants: grants.clone(),
        };
        let task = TaskClaims {
            key: KeyId::from_parts(NOW, 2),
            base: base.key,
            session: session(),
            not_before: NOW,
            expires_at: NOW.plus_duration(TASK_KEY_TTL),
            grants,
            case: None,
            under: Default::default(),
            plan: None,
        };
        let base = mint_base(&base, &root)?;
        let token = mint_task(&base, &task, &root.verifying_key(), &router)?;
        let (root, router) = (root.verifying_key(), router.verifying_key());
        Ok(Self { verifier: Verifier { root, router, installation, epoch: 1 }, token })
    }

    fn verify(&self) -> Result<Authority> {
        self.verifier.verify_task(&self.token).context("the keys were just minted")
    }
}

fn session() -> SessionId {
    SessionId::from_parts(NOW, 1)
}

fn prepared(action: Action) -> Prepared {
    Prepared {
        action,
        agent: AGENT.to_owned(),
        session: Some(session()),
        turn: Some(TurnId::from_parts(NOW, 1)),
        turn_number: 1,
        call: Some("call-1".to_owned()),
        tool: "bench".to_owned(),
        sinks: Vec::new(),
        label: Label::new(Taint::Owner),
        bindings: BTreeMap::new(),
        idempotent: false,
        intent: "run the tests".to_owned(),
    }
}

fn exec() -> Action {
    let argv = ["cargo", "test", "--offline", "--quiet", "-p", "parser", "--", "--nocapture"];
    Action::Exec(Exec {
        argv: argv.map(str::to_owned).to_vec(),
        cwd: WORK.to_owned(),
        env: BTreeMap::from([("RUST_BACKTRACE".to_owned(), "1".to_owned())]),
        stdin: None,
        timeout_ms: 120_000,
        profile: ExecProfile::Task,
        hosts: Vec::new(),
    })
}

fn write() -> Action {
    let content = "pub fn add(a: u64, b: u64) -> u64 {\n    a + b\n}\n".repeat(20);
    let change = FileChange {
        path: "src/parser/add.rs".to_owned(),
        kind: ChangeKind::Modify,
        before: Some(Digest::of_bytes(b"before")),
        after: Some(Digest::of_bytes(content.as_bytes())),
        executable: false,
        bytes: u64::try_from(content.len()).unwrap_or(u64::MAX),
    };
    Action::WriteFile(WriteFile {
        place: Place::Overlay,
        root: WORK.to_owned(),
        changes: vec![change],
        content: Some(content),
        encoding: Default::default(),
    })
}
