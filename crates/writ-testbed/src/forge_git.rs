//! A repository of a scripted forge over HTTP, as git pushes to it: the smart protocol, played by the real `git receive-pack`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The service that a push talks to.
const SERVICE: &str = "git-receive-pack";

/// Answers a call of git: what is asked for below the repository's address, with its query. `user` and `token` are those that may push.
pub(crate) async fn answer_git(
    folder: &Path,
    (user, token): (&str, &str),
    (method, path, query): (Method, &str, &str),
    (headers, body): (&HeaderMap, Bytes),
) -> Response {
    let expected = format!("Basic {}", STANDARD.encode(format!("{user}:{token}")));
    if headers.get(header::AUTHORIZATION).is_none_or(|given| *given != *expected) {
        let asks = [(header::WWW_AUTHENTICATE, "Basic realm=\"forge\"")];
        return (StatusCode::UNAUTHORIZED, asks, "no such user").into_response();
    }
    if method == Method::GET && path == "info/refs" && query == format!("service={SERVICE}") {
        let begin = format!("# service={SERVICE}\n");
        let mut answer = format!("{:04x}{begin}0000", begin.len() + 4).into_bytes();
        answer.extend(run(folder.to_owned(), &["--advertise-refs"], Bytes::new()).await);
        let kind = format!("application/x-{SERVICE}-advertisement");
        return ([(header::CONTENT_TYPE, kind)], answer).into_response();
    }
    if method == Method::POST && path == SERVICE {
        let answer = run(folder.to_owned(), &[], body).await;
        return ([(header::CONTENT_TYPE, format!("application/x-{SERVICE}-result"))], answer).into_response();
    }
    (StatusCode::NOT_FOUND, "not found").into_response()
}

/// Runs the other side of a push on the repository, and returns what it writes.
async fn run(folder: PathBuf, options: &'static [&'static str], input: Bytes) -> Vec<u8> {
    let ran = tokio::task::spawn_blocking(move || {
        let mut child = command()
            .args(["-c", "core.hooksPath=/dev/null", "receive-pack", "--stateless-rpc"])
            .args(options)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&input)?;
        }
        child.wait_with_output()
    });
    // A test sees what is missing by the failure of its push.
    ran.await.ok().and_then(Result::ok).map(|output| output.stdout).unwrap_or_default()
}

#[expect(clippy::disallowed_types, reason = "a real repository is played by the real program")]
fn command() -> std::process::Command {
    std::process::Command::new("git")
}
