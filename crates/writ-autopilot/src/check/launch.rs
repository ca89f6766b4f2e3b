//! Finds the commands that wrapper programs run: `timeout 60 nice npm test` runs `npm test`.

/// Programs that run the command that follows their own options.
const WRAPPERS: [&str; 50] = [
    "env",
    "timeout",
    "gtimeout",
    "nice",
    "ionice",
    "chrt",
    "taskset",
    "nohup",
    "time",
    "setsid",
    "stdbuf",
    "unbuffer",
    "script",
    "sudo",
    "doas",
    "flock",
    "xargs",
    "parallel",
    "watch",
    "strace",
    "command",
    "exec",
    "cross-env",
    "dotenv",
    "dotenvx",
    "direnv",
    "mise",
    "asdf",
    "rtx",
    "nix",
    "nix-shell",
    "devbox",
    "xvfb-run",
    "wine",
    "npx",
    "bunx",
    "pnpx",
    "corepack",
    "uv",
    "uvx",
    "poetry",
    "pdm",
    "pipenv",
    "hatch",
    "rye",
    "pixi",
    "conda",
    "bundle",
    "coverage",
    "retry",
];
/// Subcommands and signs of wrappers before the command that they run.
const WRAPPER_WORDS: [&str; 9] = ["run", "exec", "x", "dlx", "develop", "shell", "tool", "-", "."];
/// Package managers that run another command with `exec`, `x` or `dlx`.
const EXECUTORS: [&str; 5] = ["npm", "pnpm", "yarn", "bun", "deno"];
/// The deepest nesting of wrappers that is followed.
const MAX_DEPTH: usize = 8;

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns the words of a command and of each command that it runs through wrappers, from its program on. An option's value can look
/// like a command, so the result may have one that is not run.
pub(super) fn launched<'a, 'b>(words: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let mut found = Vec::new();
    add_launched(words, MAX_DEPTH, &mut found);
    found
}

fn add_launched<'a, 'b>(words: &'b [&'a str], depth: usize, found: &mut Vec<&'b [&'a str]>) {
    let Some(program) = words.first().map(|word| base_name(word)) else { return };
    if !found.contains(&words) {
        found.push(words);
    }
    let is_executor = EXECUTORS.contains(&program)
        && words.get(1).is_some_and(|word| matches!(*word, "exec" | "x" | "dlx"));
    if depth == 0 || !(WRAPPERS.contains(&program) || is_executor) {
        return;
    }
    for at in 1..words.len() {
        let word = words[at];
        if is_setting(word) || is_amount(word) || WRAPPER_WORDS.contains(&word) || word.starts_with('-') {
            continue;
        }
        add_launched(&words[at..], depth - 1, found);
        // After an option, the word can be the option's value, so the words after it are tried as well.
        if !words[at - 1].starts_with('-') || words[at - 1] == "--" {
            break;
        }
    }
}

/// Returns true for an assignment to an environment variable: `CI=1`.
pub(super) fn is_setting(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Returns true for a number, a time or a mask: `60`, `1.5m`, `0x3`.
fn is_amount(word: &str) -> bool {
    let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_number(digits) || word.starts_with("0x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_behind_wrappers_is_found() {
        let found = |text: &str| -> Vec<String> {
            let words: Vec<&str> = text.split(' ').collect();
            launched(&words).iter().map(|words| words.join(" ")).collect()
        };
        for command in [
            "env CI=1 npm test",
            "env -i PATH=/bin npm test",
            "timeout 60 npm test",
            "timeout -k 5 1.5m npm test",
            "timeout --signal=KILL 60 nice npm test",
            "nice -n 10 npm test",
            "/usr/bin/time -v npm test",
            "xvfb-run -a npm test",
            "uv run npm test",
            "npm exec -- npm test",
            "nix develop -c npm test",
        ] {
            assert!(found(command).iter().any(|one| one == "npm test"), "{command}");
        }
        assert_eq!(found("grep -r timeout npm test").len(), 1, "it runs nothing");
        let deep = format!("{}npm test", "nice ".repeat(20));
        assert_eq!(found(&deep).len(), MAX_DEPTH + 1, "no deeper than it may");
    }
}
