//! A recording of the demo in the form of asciinema, made by running it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use serde_json::json;

use crate::workspace;
use task_process::{Program, target_directory};

/// The screen that is recorded, in columns and rows.
const SCREEN: (u32, u32) = (110, 32);
/// The length of the recording when it is played, in seconds.
const SECONDS: f64 = 20.0;
/// The time that the last screen stays, in seconds.
const REST: f64 = 3.0;

#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The file
    #[arg(long, default_value = "docs/demo.cast")]
    to: PathBuf,
}

/// Runs the demo and writes what it showed; whether it went well.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let root = workspace::root()?;
    let built = Program::cargo(&["build", "--package", "writ-cli"]).directory(&root).status()?;
    ensure!(built, "the build failed");
    let home = tempfile::tempdir()?;
    let demo = Program::new(target_directory(&root).join("debug/writ"), &["demo", "--yes"])
        .clean()
        .env("HOME", home.path());
    let mut lines = Vec::new();
    ensure!(demo.lines(|line| lines.push(line.to_owned()))?, "the demo failed");
    let text = recording(&lines);
    let to = root.join(&options.to);
    fs::write(&to, &text)?;
    println!("{}: {} events in {SECONDS} s", to.display(), text.lines().count() - 1);
    Ok(true)
}

/// The recording: version 2 of asciinema's format, one line of JSON for the head and one for each line of the screen,
/// spread so that the whole lasts as long as it should.
fn recording(lines: &[String]) -> String {
    let head = json!({ "version": 2, "width": SCREEN.0, "height": SCREEN.1, "title": "writ demo --yes" });
    let step = (SECONDS - REST) / f64::from(u32::try_from(lines.len().max(1)).unwrap_or(u32::MAX));
    let mut text = format!("{head}\n");
    for (n, line) in lines.iter().enumerate() {
        let at = step * f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        // A terminal that is recorded raw wants both.
        let line = format!("{line}\r\n");
        text.push_str(&format!("{}\n", json!([(at * 1_000.0).round() / 1_000.0, "o", line])));
    }
    text.push_str(&format!("{}\n", json!([SECONDS, "o", ""])));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_every_line_in_order_within_its_time() {
        let text = recording(&["one".to_owned(), "two".to_owned(), "three".to_owned()]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((&lines[0]["version"], &lines[0]["width"]), (&json!(2), &json!(SCREEN.0)));
        let shown: String = lines[1..].iter().filter_map(|event| event[2].as_str()).collect();
        assert_eq!(shown, "one\r\ntwo\r\nthree\r\n");
        let times: Vec<f64> = lines[1..].iter().filter_map(|event| event[0].as_f64()).collect();
        assert!(times.is_sorted() && times.last() == Some(&SECONDS), "{times:?}");
    }
}
