//! Cases 20 and 21, kernel and resources, through the whole product: what a program is refused or stopped for is on record
//! with how it ended.

use serde_json::{Value, json};

use crate::turns::{Bench, calls};
use crate::{code, text};

/// What a program makes of one attempt: the number of its error, if there is one.
const ATTEMPT: &str = "import ctypes, fcntl, socket, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    def call(name, *args):\n\
    \x20   if getattr(libc, name)(*args) < 0: raise OSError(ctypes.get_errno(), name)\n\
    try: ATTEMPT\n\
    except OSError as error: sys.exit(error.errno)\n";

/// How the outcome of a program begins that was told EPERM.
const REFUSED: &str = "(exit code 1, no output)";

/// Calls of the kernel that no program may make.
const FORBIDDEN: [&str; 8] = [
    "call('unshare', 0x10000000)",
    "call('ptrace', 0, 0, 0, 0)",
    "call('mount', b'none', b'/mnt', b'tmpfs', 0, None)",
    "call('chroot', b'/')",
    "socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM)",
    "socket.socket(socket.AF_VSOCK, socket.SOCK_DGRAM)",
    "socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)",
    "fcntl.ioctl(0, 0x5412, 0)",
];

/// A harmless one beside them.
const HARMLESS: &str = "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)";

/// Starts children for as long as it may.
const BOMB: &str =
    "import os,time\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    time.sleep(0.01)\n";

fn python(script: &str) -> Value {
    json!({ "argv": ["python3", "-c", script] })
}

/// How each program ended, by the ledger, in their order.
fn outcomes(bench: &Bench) -> Vec<(String, String)> {
    let outcomes = bench.events("outcome");
    let intents = bench.events("intent");
    let programs = intents.iter().rev().filter(|row| row["payload"]["action"]["kind"] == "exec");
    let ended = programs.filter_map(|row| {
        let attempt = &row["payload"]["attempt"];
        let outcome = outcomes.iter().find(|row| row["payload"]["attempt"] == *attempt)?;
        let word = |name: &str| outcome["payload"][name].as_str().map(str::to_owned);
        Some((word("outcome")?, word("summary")?))
    });
    ended.collect()
}

/// Runs programs, and tells how many of them ended as they must; the last is the twin.
#[expect(clippy::print_stdout, reason = "the table of the hostile cases is made of it")]
fn tell(case: u32, env: &[(&str, u64)], programs: Vec<Value>, wanted: &[&[&str]]) {
    let list = programs.into_iter().map(|program| ("shell_exec", program)).collect();
    let mut bench = Bench::new("openai", calls(list, "Done."));
    bench.home.env.extend(env.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())));
    let done = bench.chat("try them", &["--new"]);
    assert!([0, 5].contains(&code(&done)), "{}", text(&done));
    let mut ended = outcomes(&bench);
    let twin = ended.pop().expect("a twin");
    assert_eq!(twin.0, "done", "{twin:?}");
    assert_eq!(ended.len(), wanted.len(), "each is on record: {ended:?}");
    for ((outcome, summary), wanted) in ended.iter().zip(wanted) {
        assert_eq!(outcome, "failed", "{wanted:?}: {summary}");
        assert!(wanted.iter().any(|wanted| summary.starts_with(wanted)), "{wanted:?}: {summary}");
    }
    let (attempts, entries) = (wanted.len(), ended.len());
    println!("THREAT {case} attempts={attempts} refused={attempts} entries={entries} entry=outcome twins=1");
    let verified = bench.home.run(&["audit", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// Case 20. The twin: a call that is as harmless as it looks.
#[test]
fn needs_userns_needs_python_a_call_that_the_kernel_refuses_is_on_record_by_how_its_program_ended() {
    let attempts = FORBIDDEN.iter().chain([&HARMLESS]);
    let programs = attempts.map(|attempt| python(&ATTEMPT.replace("ATTEMPT", attempt))).collect();
    tell(20, &[], programs, &[&[REFUSED][..]; FORBIDDEN.len()]);
}

/// Case 21. The twin: a program that stays within its limits.
#[test]
fn needs_userns_needs_python_a_program_that_takes_too_much_is_on_record_with_the_limit_that_it_met() {
    const MIB: u64 = 1024 * 1024;
    let limits = [
        ("WRIT_SANDBOX__MEMORY_MAX", 256 * MIB),
        ("WRIT_SANDBOX__PROCESSES_MAX", 64),
        ("WRIT_SANDBOX__OUTPUT_KILL", 8 * MIB),
    ];
    let programs = vec![
        json!({ "argv": ["yes"] }),
        json!({ "argv": ["sleep", "3600"], "timeout_secs": 1 }),
        python("b'x' * (10 << 30)"),
        json!({ "argv": ["python3", "-c", BOMB], "timeout_secs": 2 }),
        json!({ "argv": ["sh", "-c", "head -c 1000000 /dev/zero | wc -c"] }),
    ];
    let late = "(killed: it took longer than ";
    let wanted: [&[&str]; 4] = [
        &["(killed: over the limit of output"],
        &[late],
        // Where memory is not counted for all of its processes together, the program itself is told.
        &["(killed: over the limit of memory", "(exit code 1", "(killed by signal "],
        &[late],
    ];
    tell(21, &limits, programs, &wanted);
}
