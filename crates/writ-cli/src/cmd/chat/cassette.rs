//! `writ chat --cassette`: a recorded model plays again. Everything else is real: engine, door, sandbox, tools and ledger.
//!
//! The model is served over loopback in a real wire format, and the engine runs in a home of its own, with copies of this
//! home's rules and gates. Each role has a model of its own, which answers in the order in which it did then, and not by what
//! it is asked: so questions of the harness take no answer of the conversation, and none of theirs is taken.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use writ_inspect::redact::Redactor;
use writ_models::ModelRole;
use writ_models::config::{ModelsTable, ProviderKind};
use writ_testkit::model_server::{ModelServer, ParsedRequest, Reply, Script, ScriptedCall, Stop};
use writ_types::api::cassette::{CASSETTE_VERSION, CassetteTrack, MAX_CASSETTE_BYTES};
use writ_types::chat::{ModelReply, StopReason};
use writ_types::credential::CredentialRef;
use writ_types::error::Exit;

use crate::args::{ChatArgs, InitArgs};
use crate::client::EngineClient;
use crate::clock;
use crate::cmd::{init, start};
use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::threaded_runtime;
use crate::keyring::open_secrets;
use crate::wiring;

use super::{converse, piped, project_folder};

/// The provider's name in the configuration of the home that the cassette is played in.
const PROVIDER: &str = "cassette";

/// The recorded answers of each role, in their order.
type RecordedAnswers = BTreeMap<ModelRole, VecDeque<ModelReply>>;

/// Plays a cassette.
///
/// # Errors
///
/// If it cannot be read, or as `writ chat`.
pub(super) fn play_cassette(context: &Context, args: &ChatArgs, file: &Path) -> Result<(), Failure> {
    let cassette = read_cassette(file)?;
    let (args, quoted) = &piped::take_piped(context, args)?;
    let project = project_folder(context, args)?;
    let home = make_home(context)?;
    context.out.print_remark(format!(
        "playing {} answers of a recorded model; this conversation is in {}",
        cassette.values().map(VecDeque::len).sum::<usize>(),
        home.display()
    ));
    let played = Context::with_home(&home, context)?;
    init::init_quietly(&played, &InitArgs { yes: true })?;
    copy_rules(context, &played)?;
    // The sandbox starts before any thread, since it forks.
    let sandbox = wiring::build_sandbox(&played.load_config(None)?)?;
    let runtime = threaded_runtime()?;
    runtime.block_on(async {
        let roles: Vec<ModelRole> = cassette.keys().copied().collect();
        let server = ModelServer::start(script(cassette))
            .await
            .map_err(|error| Failure::internal_error("serving the recorded model", error))?;
        let mut config = played.load_config(None)?;
        config.gates = context.load_config(None)?.gates;
        let config = with_models(&played, config, (server.base_url(), &roles))?;
        let wired = wiring::build_engine(&played, &config, sandbox, None, None, Redactor::default()).await?;
        let stop = tokio_util::sync::CancellationToken::new();
        let served = tokio::spawn(start::serve_until(wired, stop.clone()));
        let talked = async {
            let client = EngineClient::ensure(&played).await?;
            converse(&played, &config, client, (args, project, quoted)).await
        }
        .await;
        // The engine is stopped before errors of the conversation are reported.
        stop.cancel();
        served.await.map_err(|error| Failure::internal_error("ending the engine", error))?;
        talked
    })
}

/// Reads the answers of a cassette.
fn read_cassette(path: &Path) -> Result<RecordedAnswers, Failure> {
    let wrong = |text: String| {
        let hint = "`writ sessions export ID -o FILE` makes one";
        Failure::new(Exit::Usage, "chat.cassette", format!("{}: {text}", path.display()), hint)
    };
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if usize::try_from(size).map_or(true, |size| size > MAX_CASSETTE_BYTES) {
        return Err(wrong(format!("it has more than {MAX_CASSETTE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let (mut replies, mut has_head) = (RecordedAnswers::new(), false);
    for (n, line) in text.lines().enumerate() {
        let track: CassetteTrack =
            serde_json::from_str(line).map_err(|error| wrong(format!("line {}: {error}", n + 1)))?;
        match track {
            CassetteTrack::Head { version, .. } if version > CASSETTE_VERSION => {
                return Err(wrong(format!(
                    "it has version {version}, this program reads up to {CASSETTE_VERSION}"
                )));
            }
            CassetteTrack::Head { .. } => has_head = true,
            CassetteTrack::Model { role, reply, .. } | CassetteTrack::Harness { role, reply, .. } => {
                let known = ModelRole::ALL.into_iter().find(|known| known.as_str() == role);
                let unknown = || wrong(format!("line {}: there is no role '{role}'", n + 1));
                replies.entry(known.ok_or_else(unknown)?).or_default().push_back(*reply);
            }
            CassetteTrack::Message { .. }
            | CassetteTrack::Failure { .. }
            | CassetteTrack::Tool { .. }
            | CassetteTrack::Answer { .. }
            | CassetteTrack::End { .. } => {}
        }
        if !has_head {
            return Err(wrong("the first line is no head of a cassette".to_owned()));
        }
    }
    if replies.is_empty() {
        return Err(wrong("no model has answered in it".to_owned()));
    }
    Ok(replies)
}

/// The recorded models, one for each role. A question of the harness in a role of which nothing was recorded reaches the
/// executor's and offers no tools: it gets no answer that could count.
fn script(mut replies: RecordedAnswers) -> impl Script {
    move |request: &ParsedRequest| {
        let role = ModelRole::ALL.into_iter().find(|role| role.as_str() == request.model);
        let role = role.unwrap_or(ModelRole::Executor);
        if role == ModelRole::Executor && request.tools.is_empty() {
            return Reply::text("(the cassette has no answer to a question of the harness)");
        }
        match replies.get_mut(&role).and_then(VecDeque::pop_front) {
            Some(reply) => played(reply),
            None => Reply::text("(the cassette has ended)"),
        }
    }
}

/// An answer as it was recorded; its tokens are counted as then.
fn played(reply: ModelReply) -> Reply {
    let calls = reply.calls.into_iter().map(|call| ScriptedCall {
        id: Some(call.id),
        name: call.name,
        arguments: call.arguments.to_string(),
    });
    Reply {
        texts: reply.text.split_inclusive(' ').map(str::to_owned).collect(),
        calls: calls.collect(),
        stop: Some(match reply.stop {
            StopReason::EndTurn => Stop::EndTurn,
            StopReason::ToolUse => Stop::ToolUse,
            StopReason::MaxTokens => Stop::MaxTokens,
            StopReason::ContentFilter => Stop::ContentFilter,
            StopReason::Other(word) => Stop::Raw(word),
        }),
        ..Reply::default()
    }
    .with_usage(reply.usage.input.get(), reply.usage.output.get())
}

/// A folder for the home of the played conversation.
fn make_home(context: &Context) -> Result<PathBuf, Failure> {
    let parent = context.env.path_of("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    let home = parent.join(format!("writ-cassette-{}", hex::encode(clock::random_bytes())));
    std::fs::create_dir(&home).map_err(|error| {
        let text = format!("{} cannot be made: {error}", home.display());
        Failure::new(Exit::Config, "chat.cassette_home", &text, "set TMPDIR to a folder that you can write")
    })?;
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700))
        .map_err(|error| Failure::internal_error("closing a folder to others", error))?;
    Ok(home)
}

/// Copies what decides about actions: the rules of the home, its text of rules, and its named agents.
fn copy_rules(from: &Context, to: &Context) -> Result<(), Failure> {
    let copy = |from: PathBuf, to: PathBuf, ending: &str| -> std::io::Result<()> {
        let Ok(entries) = std::fs::read_dir(&from) else { return Ok(()) };
        std::fs::create_dir_all(&to)?;
        for entry in entries {
            let path = entry?.path();
            if let (Some(name), true) =
                (path.file_name(), path.extension().is_some_and(|found| found == ending))
            {
                std::fs::copy(&path, to.join(name))?;
            }
        }
        Ok(())
    };
    let copied = copy(from.home.policies(), to.home.policies(), "cedar")
        .and_then(|()| copy(from.home.agents(), to.home.agents(), "toml"))
        .and_then(|()| match std::fs::read(from.home.rules_file()) {
            Ok(rules) => std::fs::write(to.home.rules_file(), rules),
            Err(_) => Ok(()),
        });
    copied.map_err(|error| {
        let text = format!("the rules of this home cannot be copied: {error}");
        Failure::new(
            Exit::Config,
            "chat.cassette_home",
            &text,
            "check the owner and mode of policies/ and agents/",
        )
    })
}

/// The configuration, with the recorded models as the only ones: one for each role of which answers were recorded.
fn with_models(
    context: &Context,
    mut config: Config,
    (base_url, roles): (String, &[ModelRole]),
) -> Result<Config, Failure> {
    // The server insists on a key, as a provider does; any will do.
    let name = PROVIDER.parse().map_err(|error| Failure::internal_error("naming a secret", error))?;
    open_secrets(context, &config)?.set_secret(&name, SecretString::from("a-key-for-the-recorded-model"))?;
    let provider = config.models.providers.entry(PROVIDER.to_owned()).or_default();
    provider.kind = Some(ProviderKind::Anthropic);
    provider.base_url = Some(base_url);
    provider.api_key = Some(CredentialRef::Secret(name));
    let model = |role: ModelRole| format!("{PROVIDER}/{role}");
    let of_roles = roles.iter().filter(|role| **role != ModelRole::Executor);
    config.models.models = ModelsTable {
        default: Some(model(ModelRole::Executor)),
        roles: of_roles.map(|role| (*role, model(*role))).collect(),
        ..ModelsTable::default()
    };
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cassette_is_read_line_by_line_and_what_is_wrong_is_named() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("c.jsonl");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            read_cassette(&path).map(|replies| replies.values().map(VecDeque::len).collect::<Vec<_>>())
        };
        let head = r#"{"track":"head","version":1,"session":"01ARZ3NDEKTSV4RRFFQ69G5FAV","title":null,"agent":null,"has_project":false,"made_at":0}"#;
        let digest = "0".repeat(64);
        let model = format!(
            r#"{{"track":"model","turn":1,"request":"{digest}","messages":1,"tools":3,"length":5,"reply":{{"text":"hi","calls":[],"stop":"end_turn","usage":{{"input":1,"output":1,"cache_read":0,"cache_write":0}},"model":"m"}}}}"#
        );
        assert_eq!(
            read(&format!(
                "{head}
{model}
{model}
"
            ))
            .ok(),
            Some(vec![2])
        );
        let harness = model.replacen("model", "harness", 1).replacen("{", r#"{"role":"proxy","#, 1);
        assert_eq!(read(&format!("{head}\n{harness}\n{model}\n{model}\n")).ok(), Some(vec![1, 2]), "by role");
        let newer = head.replace(r#""version":1"#, r#""version":9"#);
        for (text, wanted) in [
            (format!("{head}\n{}", model.replacen("{", r#"{"role":"poet","#, 1)), "no role 'poet'"),
            (format!("{model}\n"), "no head"),
            (head.to_owned(), "no model has answered"),
            (format!("{newer}\n{model}"), "version 9"),
            (format!("{head}\n{{\"track\":\"nonsense\"}}"), "line 2"),
            (String::new(), "no model has answered"),
        ] {
            let Err(Failure::Report(report)) = read(&text) else { panic!("read: {text}") };
            assert!(report.outside.contains(wanted), "{}", report.outside);
        }
    }
}
