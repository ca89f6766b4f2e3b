//! Threats 13, 19, 20, 21: what a hostile program tries, from inside, one attempt after the other.

use super::*;

/// The attempts, each with the errors that may come of it; run inside.
const PROBES: &str = include_str!("probes.py");
/// The fewest attempts, twins left out.
const FEWEST: u32 = 250;
/// What is attempted against.
const GROUPS: [&str; 8] =
    ["files", "writes", "proc", "devices", "calls", "capabilities", "network", "processes"];

/// No attempt leads out or is answered otherwise than it must be; in each group something harmless beside them works.
#[tokio::test]
async fn needs_python_no_probe_leads_out_of_the_sandbox() {
    let fixture = Fixture::new().await;
    fs::write(fixture.project.join("probes.py"), PROBES).unwrap();
    let workspace =
        open(&fixture.sandbox, &fixture.dir.join("probed"), Some(&fixture.project)).await.unwrap();
    let (home, own) = (fixture.dir.join("home").display().to_string(), std::process::id().to_string());
    let command = Exec { timeout_ms: 60_000, ..exec(&["python3", "probes.py", &home, &own]) };
    let result = workspace.run_exec(command, ExecOptions::default()).await.unwrap();
    assert_eq!(result.ending, Ending::Exited { code: 0 }, "{result:?}");
    let wrong: Vec<&str> = result.stdout.text.lines().filter(|line| line.starts_with("WRONG")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let counts = result.stdout.text.lines().last().unwrap();
    let groups: Vec<(&str, u32, u32)> = counts
        .split(' ')
        .map(|group| {
            let (name, numbers) = group.split_once('=').unwrap();
            let (attempts, twins) = numbers.split_once('+').unwrap();
            (name, attempts.parse().unwrap(), twins.parse().unwrap())
        })
        .collect();
    assert_eq!(groups.iter().map(|group| group.0).collect::<Vec<_>>(), GROUPS, "{counts}");
    assert!(groups.iter().all(|(_, attempts, twins)| *attempts >= 5 && *twins > 0), "{counts}");
    assert!(groups.iter().map(|group| group.1).sum::<u32>() >= FEWEST, "{counts}");
    for (name, attempts, twins) in &groups {
        let case = match *name {
            "files" | "writes" => 19,
            "network" => 13,
            "processes" => 21,
            _ => 20,
        };
        println!("THREAT {case} attempts={attempts} refused={attempts} entries=0 entry=- twins={twins}");
    }
    // The host is as it was.
    assert_eq!(fs::read_to_string(fixture.dir.join("home/marker")).unwrap(), "MARKER-HOME");
    assert!(!Path::new("/usr/bin/writ-probe").exists() && !Path::new("/writ-probe").exists());
}
