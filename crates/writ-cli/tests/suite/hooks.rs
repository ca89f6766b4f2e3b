//! Hooks: programs of the owner that are called at events, and what counts of their words.

use serde_json::{Value, json};
use writ_testkit::model_server::{ParsedRequest, Reply};

use super::engine::stop_engine_of;
use super::turns::Bench;
use super::{code, text};

/// A hook of the home: its table, and its program.
pub(super) fn hook(bench: &Bench, name: &str, settings: &str, program: &str) {
    let (root, file) = (bench.home.root(), format!("{name}.hook"));
    std::fs::create_dir_all(root.join("hooks")).expect("made");
    std::fs::write(root.join("hooks").join(&file), program).expect("written");
    let config = std::fs::read_to_string(root.join("config.toml")).unwrap_or_default();
    let table = format!("{config}\n[[hooks]]\nname = \"{name}\"\nrun = \"{file}\"\n{settings}\n");
    std::fs::write(root.join("config.toml"), table).expect("written");
}

/// What hooks have said, oldest first: event, hook, verdict, reason.
fn said(bench: &Bench) -> Vec<[String; 4]> {
    let mut rows = bench.events("hooked");
    rows.reverse();
    let part = |row: &Value, name: &str| row["payload"][name].as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| ["on", "hook", "verdict", "reason"].map(|name| part(row, name))).collect()
}

fn by(bench: &Bench, hook: &str) -> Vec<String> {
    said(bench).into_iter().filter(|[_, name, ..]| name == hook).map(|[_, _, verdict, _]| verdict).collect()
}

/// Answers with one call of the shell for each word after `run`, then with text.
fn shell(request: &ParsedRequest) -> Reply {
    let asked = request.last_user_text();
    let words: Vec<&str> = asked.strip_prefix("run ").unwrap_or_default().split_whitespace().collect();
    // Results of earlier turns are in the conversation as well.
    let newest = request.messages.iter().rev().take_while(|message| message.text != asked);
    match words.get(newest.map(|message| message.results.len()).sum::<usize>()) {
        Some(&"nothing") => Reply::call("shell_exec", json!({ "argv": ["/no/such/program"] })),
        Some(word) => Reply::call("shell_exec", json!({ "argv": ["echo", word] })),
        None => Reply::text(&format!("Done with: {asked}")),
    }
}

fn commands(bench: &Bench) -> Vec<String> {
    let mut rows = bench.events("intent");
    rows.reverse();
    let tasks = rows.iter().filter(|row| row["payload"]["action"]["profile"] == "task");
    tasks.map(|row| row["payload"]["action"]["argv"][1].as_str().unwrap_or_default().to_owned()).collect()
}

/// What a hook has read is what it says: the keys of the object.
const KEYS: &str = "#!/usr/bin/env python3\nimport json, sys\nread = json.load(sys.stdin)\n\
    print(json.dumps({'verdict': 'abstain', 'reason': ' '.join(sorted(read)) + '; ' + read['event']}))\n";

/// Rows: SCL-049 (in part: what it sees) SCL-053 SCL-054
///
/// Rows: SCL-055 SCL-056 SF-193 SF-196 (in part)
/// Rows: SCL-165
#[test]
fn needs_userns_needs_python_every_event_calls_its_hooks_once_and_tells_what_it_is_about() {
    let bench = Bench::new("openai", shell);
    for (on, more) in [
        ("session_created", ""),
        ("message_received", ""),
        ("before_tool_call", "tools = [\"shell_exec\"]"),
        ("after_tool_call", "permissions = [\"read\", \"write\"]"),
        ("response_generated", ""),
        ("session_closed", ""),
    ] {
        hook(&bench, on, &format!("on = \"{on}\"\n{more}"), KEYS);
    }
    // One that reads nothing, and says nothing, is none that has failed.
    hook(&bench, "deaf", "on = \"message_received\"", "exit 0");
    let censor = "grep -q badanswer && echo '{\"verdict\": \"deny\", \"reason\": \"no\"}'; exit 0";
    hook(&bench, "censor", "on = \"response_generated\"", censor);
    let done = bench.chat("run one", &[]);
    assert_eq!((code(&done), text(&done).contains("Done with")), (0, true), "{}", text(&done));
    let again = bench.chat("hello", &[]);
    assert_eq!(code(&again), 0, "{}", text(&again));
    let (all, names) = (said(&bench), |row: &[String; 4]| row[0].clone());
    let events: Vec<String> = all.iter().filter(|row| row[0] == row[1]).map(names).collect();
    assert_eq!(
        events,
        [
            "session_created",
            "message_received",
            "before_tool_call",
            "after_tool_call",
            "response_generated",
            "message_received",
            "response_generated",
        ],
        "each once, in order; a session that is gone on with is not created again: {all:?}"
    );
    assert!(all.iter().all(|row| row[2] == "pass"), "{all:?}");
    let known = "at event hook session turn turn_number version";
    for (event, keys) in [
        ("session_created", "dry_run project write"),
        ("message_received", "text"),
        ("before_tool_call", "action arguments tool"),
        ("after_tool_call", "cut duration_ms outcome result state tool"),
        ("response_generated", "text"),
    ] {
        let mut wanted: Vec<&str> = known.split(' ').chain(keys.split(' ')).collect();
        wanted.sort_unstable();
        let wanted = format!("{}; {event}", wanted.join(" "));
        assert!(all.iter().any(|row| row[1] == event && row[3] == wanted), "{event}: {all:?}");
    }
    let digests: Vec<Value> =
        bench.events("hooked").iter().map(|row| row["payload"]["digest"].clone()).collect();
    let listed = bench.home.json(&["hooks", "list"]);
    let own = |digest: &Value| {
        listed["hooks"].as_array().is_some_and(|all| all.iter().any(|h| h["digest"] == *digest))
    };
    assert!(digests.iter().all(own), "{digests:?}");
    let file = bench.home.root().join("cases.toml");
    std::fs::write(
        &file,
        "[[case]]\nname = \"a\"\non = \"message_received\"\ntext = \"x\"\nexpect = \"allow\"\n",
    )
    .expect("written");
    let tested = bench.home.run(&["hooks", "test", file.to_str().expect("text")]);
    assert_eq!(code(&tested), 0, "{}", text(&tested));
    assert_eq!(by(&bench, "session_closed"), ["pass"], "the session of the cases was closed, once");
    let censored = bench.chat("a badanswer", &["--json"]);
    assert!(
        code(&censored) == 4 && !text(&censored).contains("Done with"),
        "nobody sees it: {}",
        text(&censored)
    );
    // One that is critical and fails blocks the tool that it is for.
    assert_eq!(commands(&bench), ["one"]);
    hook(&bench, "fatal", "on = \"before_tool_call\"", "kill -SEGV $$");
    stop_engine_of(&bench.home);
    let blocked = bench.chat("run two", &[]);
    assert_eq!(commands(&bench), ["one"], "{}", text(&blocked));
}

const JUDGE: &str = r#"
input=$(cat)
case "$input" in
  *forbidden*) echo '{"verdict": "deny", "reason": "not this one"}' ;;
  *stop-now*) echo '{"verdict": "halt", "reason": "enough"}' ;;
  *careful*) echo '{"verdict": "ask", "reason": "sure?"}' ;;
  *original*) echo '{"tool_args": {"argv": ["echo", "rewritten"]}}' ;;
  *) echo '{"verdict": "allow"}' ;;
esac
"#;

/// Rows: SCL-049
///
/// Rows: SF-017 SCL-062 (in part)
#[test]
fn needs_userns_a_hook_denies_asks_halts_and_words_a_call_anew_if_it_may() {
    let bench = Bench::new("openai", shell);
    hook(&bench, "judge", "on = \"before_tool_call\"\npermissions = [\"read\", \"write\"]", JUDGE);
    let done = bench.chat("run fine forbidden original last", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert_eq!(commands(&bench), ["fine", "rewritten", "last"]);
    assert!(bench.requests().iter().any(|body| body.contains("not this one")), "the model is told");
    let denied = bench.events("denied");
    assert_eq!(
        (&denied[0]["payload"]["reason"], &denied[0]["payload"]["rule"]),
        (&json!("gate"), &json!("hook judge"))
    );
    let asked = bench.chat("run careful", &["--new"]);
    assert_eq!(code(&asked), 5, "{}", text(&asked));
    let card = bench.ask();
    let answered = bench.home.run(&["approvals", "approve", &card, "--yes"]);
    assert_eq!(code(&answered), 0, "{}", text(&answered));
    assert_eq!(commands(&bench).last().map(String::as_str), Some("careful"));
    let models = bench.server.recorded_requests().len();
    let halted = bench.chat("run stop-now after", &["--new"]);
    assert_eq!((code(&halted), text(&halted).contains("enough")), (4, true), "{}", text(&halted));
    assert_eq!(bench.server.recorded_requests().len(), models + 1, "the turn is over, not the call alone");
    assert!(!commands(&bench).iter().any(|word| word == "after" || word == "stop-now"));
    assert_eq!(bench.events("denied")[0]["payload"]["reason"], json!("halt"));
}

/// A hook is a program with an event, a time of its own and a word of its owner on how much it matters (design 3.9), and
/// one that crashes has failed.
///
/// Rows: SCL-058 SCL-059
/// Rows: SCL-165 (in part: a critical one that fails blocks)
#[test]
fn needs_userns_each_hook_has_its_own_time_and_only_a_critical_one_stops() {
    let bench = Bench::new("openai", shell);
    hook(&bench, "slow", "on = \"message_received\"\ntimeout_ms = 20000", "sleep 1; echo '{}'");
    hook(&bench, "hangs", "on = \"message_received\"\ntimeout_ms = 100\ncritical = false", "sleep 60");
    hook(&bench, "crashes", "on = \"message_received\"\ncritical = false", "kill -SEGV $$");
    let began = std::time::Instant::now();
    let done = bench.chat("hello", &[]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(began.elapsed() < std::time::Duration::from_secs(50), "it was cut");
    assert_eq!(
        ["slow", "hangs", "crashes"].map(|name| by(&bench, name)),
        ["pass", "advise", "advise"].map(|verdict| vec![verdict.to_owned()])
    );
    hook(&bench, "fatal", "on = \"before_tool_call\"\ntimeout_ms = 100", "sleep 60");
    hook(&bench, "crash", "on = \"after_tool_call\"", "kill -SEGV $$");
    stop_engine_of(&bench.home);
    let stopped = bench.chat("run one", &["--new"]);
    let models = bench.requests();
    assert_eq!(commands(&bench), Vec::<String>::new(), "{}", text(&stopped));
    assert!(models.iter().any(|body| body.contains("has failed")), "the model is told: {}", text(&stopped));
    assert_eq!(by(&bench, "crash"), Vec::<String>::new(), "what was not done is not told");
}

/// A hook for each use: a record, a filter of messages, a limit of calls. The state is the hook's own, and a call that it
/// would make is none.
///
/// Rows: SCL-050 SCL-062
/// Rows: SCL-066 (in part)
#[test]
fn needs_userns_needs_python_a_filter_a_limit_and_a_record_are_hooks() {
    const LIMIT: &str = "#!/usr/bin/env python3\nimport json, sys\nn = (json.load(sys.stdin)['state'] or 0) + 1\n\
        call = {'tool': 'shell_exec', 'arguments': {'argv': ['echo', 'smuggled']}}\n\
        print(json.dumps({'state': n, 'verdict': 'deny' if n > 2 else 'allow', 'reason': f'call {n}', 'calls': [call]}))\n";
    const RECORD: &str = "#!/usr/bin/env python3\nimport json, sys\nread = json.load(sys.stdin)\n\
        timed = isinstance(read['duration_ms'], int) and read['duration_ms'] >= 0\n\
        heard = [word for word in ('a1', 'a2', 'b1') if word in read['result'].split()]\n\
        print(json.dumps({'reason': ' '.join([read['tool'], read['outcome'], str(timed)] + heard)}))\n";
    let bench = Bench::new("openai", shell);
    hook(&bench, "limit", "on = \"before_tool_call\"\npermissions = [\"read\", \"write\"]", LIMIT);
    hook(&bench, "record", "on = \"after_tool_call\"", RECORD);
    hook(
        &bench,
        "filter",
        "on = \"message_received\"",
        "grep -q badword && echo '{\"verdict\": \"deny\", \"reason\": \"no\"}'; exit 0",
    );
    let filtered = bench.chat("a badword", &["--new"]);
    assert_eq!((code(&filtered), bench.server.recorded_requests().len()), (4, 0), "{}", text(&filtered));
    let done = bench.chat("run a1 a2", &["--new"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let more = bench.chat("run a3", &[]);
    assert_eq!(commands(&bench), ["a1", "a2"], "the state outlives the turn: {}", text(&more));
    assert!(bench.requests().pop().is_some_and(|body| body.contains("call 3")), "it was its third call");
    let other = bench.chat("run b1 nothing", &["--new"]);
    assert_eq!(commands(&bench), ["a1", "a2", "b1", ""], "and is of one conversation: {}", text(&other));
    let record: Vec<String> =
        said(&bench).into_iter().filter(|row| row[1] == "record").map(|row| row[3].clone()).collect();
    assert_eq!(
        record,
        [
            "shell_exec done True a1",
            "shell_exec done True a2",
            "shell_exec done True b1",
            "shell_exec failed True"
        ]
    );
    let left_out: Vec<String> = said(&bench)
        .into_iter()
        .filter(|row| row[1] == "limit" && row[2] == "advise")
        .map(|row| row[3].clone())
        .collect();
    assert_eq!(
        left_out, ["it wanted to change 'calls', which it may not change here: left out"; 5],
        "a hook makes no calls"
    );
}

#[test]
fn needs_userns_a_projects_hook_is_called_only_as_it_was_approved() {
    let bench = Bench::new("openai", shell);
    let (folder, project) = (bench.project().join(".writ/hooks"), bench.project());
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("p.sh"), "echo '{\"reason\": \"as approved\"}'").expect("written");
    let table = |digest: &str| {
        format!(
            "[[hooks]]\nname = \"p\"\non = \"message_received\"\nrun = \"p.sh\"\nproject = \"{}\"\n{digest}\n",
            project.display()
        )
    };
    let config = bench.home.root().join("config.toml");
    std::fs::write(&config, table("")).expect("written");
    let without = bench.home.run(&["config", "check"]);
    assert_eq!((code(&without), text(&without).contains("digest")), (3, true), "{}", text(&without));
    let digest = writ_types::digest::Digest::of_bytes(b"echo '{\"reason\": \"as approved\"}'");
    std::fs::write(&config, table(&format!("digest = \"{digest}\""))).expect("written");
    let done = bench.chat("hello", &[]);
    assert_eq!((code(&done), by(&bench, "p")), (0, vec!["pass".to_owned()]), "{}", text(&done));
    // The folder is changed, by whomever; what was approved is not there any more.
    std::fs::write(folder.join("p.sh"), "echo '{\"reason\": \"as somebody wrote it\"}'").expect("written");
    stop_engine_of(&bench.home);
    let asked = bench.server.recorded_requests().len();
    let stopped = bench.chat("hello", &["--new"]);
    assert_eq!((code(&stopped), bench.server.recorded_requests().len()), (4, asked), "{}", text(&stopped));
    assert_eq!(by(&bench, "p"), ["pass", "block"]);
    let elsewhere = bench.home.run(&["chat", "-m", "hello", "--new"]);
    assert_eq!(code(&elsewhere), 0, "other projects are not its business: {}", text(&elsewhere));
    let listed = bench.home.run(&["hooks", "list"]);
    assert!(text(&listed).contains("NOT CALLED"), "{}", text(&listed));
    // A file of the home's own must be there at the start.
    let missing = "[[hooks]]\nname = \"m\"\non = \"message_received\"\nrun = \"missing.sh\"\n";
    std::fs::write(&config, missing).expect("written");
    stop_engine_of(&bench.home);
    let refused = bench.chat("hello", &["--new"]);
    assert_eq!((code(&refused), text(&refused).contains("missing.sh")), (3, true), "{}", text(&refused));
}
