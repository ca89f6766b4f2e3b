//! What an attempt says that later work should know: facts about the project, and ways that do not work.
//!
//! They are words of an agent that has read the project, and stay data wherever they are shown.

use serde::Serialize;

/// The most learnings of one reply.
pub const MAX_LEARNINGS: usize = 5;
/// The longest learning, in characters: two sentences.
pub const MAX_LEARNING_CHARS: usize = 300;

/// The use of a learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningKind {
    /// Something that is so in the project.
    Fact,
    /// A way that does not work, with the better one.
    AntiPattern,
}

impl LearningKind {
    const fn tags(self) -> (&'static str, &'static str) {
        match self {
            Self::Fact => ("<learning>", "</learning>"),
            Self::AntiPattern => ("<avoid>", "</avoid>"),
        }
    }

    /// Returns the word before its text in memories and prompts.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Fact => "Learned",
            Self::AntiPattern => "To avoid",
        }
    }
}

/// A learning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Learning {
    /// Its use.
    pub kind: LearningKind,
    /// Its text: one line.
    pub text: String,
}

/// Returns the learnings of a reply, each a line of its own. One that is too long, not whole or there already is left out, and so are
/// all but the first [`MAX_LEARNINGS`]: a reply is never refused for them.
pub fn find_learnings(reply: &str) -> Vec<Learning> {
    let mut found: Vec<Learning> = Vec::new();
    for line in reply.lines().map(str::trim) {
        // The same words twice are one learning.
        let Some(learning) = read_line(line).filter(|one| !found.contains(one)) else { continue };
        found.push(learning);
        if found.len() == MAX_LEARNINGS {
            break;
        }
    }
    found
}

fn read_line(line: &str) -> Option<Learning> {
    [LearningKind::Fact, LearningKind::AntiPattern].into_iter().find_map(|kind| {
        let (begin, end) = kind.tags();
        let text = line.strip_prefix(begin)?.strip_suffix(end)?.trim();
        // A tag within it could be a marker of the turn, and a control character would leave the line.
        let is_plain = !text.is_empty() && !text.contains('<') && !text.chars().any(char::is_control);
        (is_plain && text.chars().count() <= MAX_LEARNING_CHARS)
            .then(|| Learning { kind, text: text.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: SF-203 (in part: what counts as a learning)
    #[test]
    fn learnings_are_whole_lines_of_a_bounded_number_and_length() {
        let long = "x".repeat(MAX_LEARNING_CHARS + 1);
        let reply = format!(
            "Done.\n  <learning> Tests need node 20. </learning>\n<avoid>Do not mock the clock: inject it.</avoid>\n\
             <learning>Tests need node 20.</learning>\nsay <learning>inside</learning>\n<learning>open\n</learning>\n\
             <learning></learning>\n<avoid>a</learning>\n<learning>a<b</learning>\n<learning>{long}</learning>\n\
             <turn_status>complete</turn_status>"
        );
        let fact = Learning { kind: LearningKind::Fact, text: "Tests need node 20.".to_owned() };
        let text = "Do not mock the clock: inject it.".to_owned();
        assert_eq!(find_learnings(&reply), [fact, Learning { kind: LearningKind::AntiPattern, text }]);
        let many: String = (0..20).map(|n| format!("<learning>{n}</learning>\n")).collect();
        let texts: Vec<String> = find_learnings(&many).into_iter().map(|one| one.text).collect();
        assert_eq!(texts, ["0", "1", "2", "3", "4"]);
        assert_eq!(find_learnings(""), []);
    }
}
