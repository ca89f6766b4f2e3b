//! Servers: programs that stay and are talked to.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::*;
use crate::serve::{RunningServer, ServeOptions};

fn server(argv: &[&str]) -> Exec {
    Exec { profile: ExecProfile::Server, ..exec(argv) }
}

async fn folder_of(fixture: &Fixture) -> Workspace {
    open(&fixture.sandbox, &fixture.dir.join("server"), None).await.unwrap()
}

/// Says a line and hears one.
async fn asked(served: &mut RunningServer, line: &str) -> String {
    served.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    BufReader::new(&mut served.output).read_line(&mut answer).await.unwrap();
    answer.trim_end().to_owned()
}

#[tokio::test]
async fn a_server_answers_while_it_runs_and_ends_with_everything_it_started() {
    let fixture = Fixture::new().await;
    let (folder, marker) = (folder_of(&fixture).await, marker());
    let script =
        format!("sleep {marker} & while read line; do echo \"$line $(ls /work | wc -l) $(pwd)\"; done");
    let mut served =
        folder.run_server(server(&["sh", "-c", &script]), ServeOptions::default()).await.unwrap();
    assert_eq!(asked(&mut served, "one").await, "one 0 /work", "nothing of the project is there");
    assert_eq!(asked(&mut served, "two").await, "two 0 /work");
    assert!(!processes(&marker).is_empty());
    let second = folder.run_server(server(&["cat"]), ServeOptions::default()).await;
    assert!(matches!(second, Err(SandboxError::BadCommand { .. })), "one server has the folder: {second:?}");
    let ended = served.ended.kill().await.unwrap();
    assert_eq!(ended.ending, Ending::Killed { limit: Limit::Cancelled });
    assert_eq!(processes(&marker), NOBODY_LEFT);
    folder.run_server(server(&["cat"]), ServeOptions::default()).await.unwrap();
}

#[tokio::test]
async fn dropping_a_server_kills_it() {
    let fixture = Fixture::new().await;
    let (folder, marker) = (folder_of(&fixture).await, marker());
    let script = format!("echo here; sleep {marker}");
    let mut served =
        folder.run_server(server(&["sh", "-c", &script]), ServeOptions::default()).await.unwrap();
    assert_eq!(asked(&mut served, "").await, "here");
    drop(served);
    // The folder is free when everybody is gone.
    folder.read_changes().await.unwrap();
    assert_eq!(processes(&marker), NOBODY_LEFT);
}

#[tokio::test]
async fn how_a_server_ended_is_told_and_what_it_wrote_to_standard_error_is_kept_to_a_bound() {
    let fixture = Fixture::new().await;
    let folder = folder_of(&fixture).await;
    let script = "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3";
    let served = folder.run_server(server(&["sh", "-c", script]), ServeOptions::default()).await.unwrap();
    let RunningServer { mut ended, .. } = served;
    let result = ended.wait().await.unwrap();
    assert_eq!(result.ending, Ending::Exited { code: 3 });
    assert_eq!(
        (result.stderr.bytes, result.stderr.text.len(), result.stderr.truncated),
        (1_000_000, 65_536, true)
    );
    assert!(matches!(ended.wait().await, Err(SandboxError::Cancelled)), "it ends once");
    let served = folder.run_server(server(&["no-such-server"]), ServeOptions::default()).await.unwrap();
    let RunningServer { mut ended, .. } = served;
    assert_eq!(ended.wait().await.unwrap().ending, Ending::NotFound);
}

#[tokio::test]
async fn a_secret_is_in_the_servers_environment_and_in_no_other_process() {
    let fixture = Fixture::new().await;
    let folder = folder_of(&fixture).await;
    let secret = format!("s3cret-{}", std::process::id());
    let mut declared = server(&["sh", "-c", "echo $TOKEN; read one; read two"]);
    declared.env.insert("TOKEN".into(), "secret:crm".into());
    let secrets = [("TOKEN".to_owned(), secret.clone().into()), ("OTHER".to_owned(), "x".into())].into();
    let options = ServeOptions { secrets, ..ServeOptions::default() };
    assert!(!format!("{options:?}").contains(&secret));
    let mut served = folder.run_server(declared.clone(), options).await.unwrap();
    assert_eq!(asked(&mut served, "").await, secret);
    let holders = holders(&secret);
    assert!(holders.iter().all(|line| line.starts_with("sh\0-c\0echo $TOKEN")), "{holders:?}");
    assert!(!holders.is_empty(), "or this test sees nothing");
    assert!(!format!("{declared:?}").contains(&secret));
}

/// The command lines of processes with a text in their environment.
fn holders(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let read = |entry: &fs::DirEntry, name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
    entries
        .filter(|entry| String::from_utf8_lossy(&read(entry, "environ")).contains(text))
        .map(|entry| String::from_utf8_lossy(&read(&entry, "cmdline")).into_owned())
        .collect()
}

#[tokio::test]
async fn a_server_is_not_run_as_a_command_nor_a_command_as_a_server() {
    let fixture = Fixture::new().await;
    let refused = fixture.workspace.run_exec(server(&["true"]), ExecOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "{refused:?}");
    let mut online = server(&["true"]);
    online.hosts = vec!["docs.rs".into()];
    let refused = folder_of(&fixture).await.run_server(online, ServeOptions::default()).await;
    assert!(matches!(refused, Err(SandboxError::BadCommand { .. })), "nobody takes its way out: {refused:?}");
}

#[tokio::test]
async fn a_program_that_is_talked_to_works_on_the_project_and_ends_with_all_it_started() {
    let fixture = Fixture::new().await;
    let marker = marker();
    let script = format!("sleep {marker} & while read line; do echo \"$line\" > said; ls said; done");
    let mut talked = fixture.workspace.run_talk(exec(&["sh", "-c", &script]), None).await.unwrap();
    assert_eq!(asked(&mut talked, "one").await, "said");
    assert!(!processes(&marker).is_empty());
    // Its changes can be seen meanwhile.
    let shown = fixture.workspace.read_changes_within(Duration::from_millis(50)).await.unwrap();
    assert_eq!(shown.changes.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["said"]);
    let second = fixture.workspace.run_talk(exec(&["cat"]), None).await;
    assert!(matches!(second, Err(SandboxError::BadCommand { .. })), "it has the folder: {second:?}");
    let ended = talked.ended.kill().await.unwrap();
    assert_eq!(ended.ending, Ending::Killed { limit: Limit::Cancelled });
    assert_eq!(processes(&marker), NOBODY_LEFT);
    assert_eq!(fixture.sh("cat said").await, "one");
    assert!(!fixture.project.join("said").exists(), "its changes stay in the session's folder");
}

#[tokio::test]
async fn a_program_that_is_talked_to_reaches_its_listener_and_nothing_else() {
    let fixture = Fixture::new().await;
    let (sender, mut listeners) = tokio::sync::mpsc::channel(1);
    // What listens on the host is another thing.
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let script = r#"read line; for port in 3128 $line; do
        (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && said="$said yes" || said="$said no"
    done; echo $said"#;
    let mut talked = fixture.workspace.run_talk(exec(&["bash", "-c", script]), Some(sender)).await.unwrap();
    let listener = listeners.recv().await.unwrap();
    assert_eq!(asked(&mut talked, &port.to_string()).await, "yes no");
    drop(host);
    drop(listener);
    let plain = fixture.workspace.clone();
    talked.ended.wait().await.unwrap();
    // What names hosts has the proxy's rules before it, which are not asked here.
    let hosts = Exec { hosts: vec!["example.org".into()], ..exec(&["true"]) };
    assert!(matches!(plain.run_talk(hosts, None).await, Err(SandboxError::BadCommand { .. })));
    let server = Exec { profile: ExecProfile::Server, ..exec(&["true"]) };
    assert!(matches!(plain.run_talk(server, None).await, Err(SandboxError::BadCommand { .. })));
}

#[tokio::test]
async fn a_program_that_is_talked_to_has_the_time_of_its_command() {
    let fixture = Fixture::new().await;
    let late = Exec { timeout_ms: 300, ..exec(&["cat"]) };
    let talked = fixture.workspace.run_talk(late, None).await.unwrap();
    let RunningServer { mut ended, input, output } = talked;
    assert_eq!(ended.wait().await.unwrap().ending, Ending::Killed { limit: Limit::Time });
    drop((input, output));
}
