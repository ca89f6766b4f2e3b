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

pub(super) fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns the words of a command and of each command that it runs through wrappers, from its program on. An option's value can look
/// like a command, so the result may have one that is not run. Each word is looked at once: texts of agents are read here, too.
pub(super) fn launched<'a, 'b>(words: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    if words.is_empty() {
        return Vec::new();
    }
    let mut starts: Vec<usize> = vec![0];
    let (mut next, mut searched) = (0_usize, 1_usize);
    while let Some(start) = starts.get(next).copied() {
        next += 1;
        // A wrapper among the words that were searched leads to the same commands as the one before it.
        if start + 1 < searched || !runs_another(&words[start..]) {
            continue;
        }
        while let Some(word) = words.get(searched).copied() {
            let at = searched;
            searched += 1;
            if is_setting(word) || is_amount(word) || WRAPPER_WORDS.contains(&word) || word.starts_with('-') {
                continue;
            }
            starts.push(at);
            // After an option, the word can be the option's value, so the words after it are tried as well.
            if !words[at - 1].starts_with('-') || words[at - 1] == "--" {
                break;
            }
        }
    }
    starts.into_iter().map(|start| &words[start..]).collect()
}

/// Returns true if the program of a command runs the command that follows it.
fn runs_another(words: &[&str]) -> bool {
    let Some(program) = words.first().map(|word| base_name(word)) else { return false };
    let is_executor = EXECUTORS.contains(&program)
        && words.get(1).is_some_and(|word| matches!(*word, "exec" | "x" | "dlx"));
    WRAPPERS.contains(&program) || is_executor
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
        assert_eq!(found(&deep).len(), 21, "every wrapper is followed");
        assert!(launched(&[]).is_empty());
    }

    /// Each wrapper could be the value of the option before it: all choices of them together would never end.
    #[test]
    fn wrappers_that_look_like_values_are_each_found_once() {
        const WRAPPED: usize = 10_000;
        let text = format!("{}npm test", "nice -n ".repeat(WRAPPED));
        let words: Vec<&str> = text.split(' ').collect();
        let found = launched(&words);
        assert_eq!(found.len(), WRAPPED + 2);
        assert!(found.contains(&["npm", "test"].as_slice()));
        let words: Vec<&str> = "nice -n nice -n env timeout 5 npm test".split(' ').collect();
        let programs: Vec<&str> = launched(&words).iter().map(|words| words[0]).collect();
        assert_eq!(programs, ["nice", "nice", "env", "timeout", "npm"]);
    }
}
