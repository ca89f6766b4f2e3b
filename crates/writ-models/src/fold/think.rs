//! Thinking that a server leaves within the text of an answer, between tags.

/// The tags that models put around their thinking at the beginning of an answer.
const TAGS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>")];

/// The most blanks before a tag, in bytes: past them an answer is text.
const BLANKS_MAX: usize = 1024;

/// Separates thinking at the beginning of an answer from its text. Tags elsewhere are text: an answer may be about them.
#[derive(Debug, Default)]
pub(crate) struct Thinking {
    state: ThinkState,
    /// Text that is not yet decided: shorter than the longest tag, apart from blanks before it, which count
    /// as sent.
    held: String,
}

#[derive(Debug, Default)]
enum ThinkState {
    /// Nothing but blanks has come yet.
    #[default]
    Beginning,
    /// Within thinking, which this tag ends.
    Within(&'static str),
    /// Blanks after the thinking are left out.
    After,
    Text,
}

impl Thinking {
    /// Takes more of the answer and returns what of it is text.
    pub(crate) fn visible(&mut self, more: &str) -> String {
        // Tags after the beginning are text: an answer may be about them.
        if matches!(self.state, ThinkState::Text) {
            return more.to_owned();
        }
        self.held.push_str(more);
        // One piece of text may pass through several states.
        loop {
            match self.state {
                ThinkState::Beginning => {
                    let said = self.held.trim_start();
                    if let Some((open, close)) = TAGS.iter().find(|(open, _)| said.starts_with(open)) {
                        self.held = said.get(open.len()..).unwrap_or_default().to_owned();
                        self.state = ThinkState::Within(close);
                    } else if self.held.len() <= BLANKS_MAX
                        && TAGS.iter().any(|(open, _)| open.starts_with(said))
                    {
                        // A tag may have begun. Blanks may come before one.
                        return String::new();
                    } else {
                        self.state = ThinkState::Text;
                    }
                }
                ThinkState::Within(close) => {
                    let Some(end) = self.held.find(close) else {
                        // Only an end as long as the closing tag has to wait; the rest of the thinking is
                        // dropped.
                        self.forget(close.len());
                        return String::new();
                    };
                    self.held.drain(..end + close.len());
                    self.state = ThinkState::After;
                }
                ThinkState::After => {
                    let said = self.held.trim_start().to_owned();
                    self.held.clear();
                    if said.is_empty() {
                        return String::new();
                    }
                    self.state = ThinkState::Text;
                    return said;
                }
                ThinkState::Text => return std::mem::take(&mut self.held),
            }
        }
    }

    /// Returns what was held back and turned out to be text, once the answer is over.
    pub(crate) fn rest(&mut self) -> String {
        let is_text = matches!(self.state, ThinkState::Beginning | ThinkState::Text);
        let held = std::mem::take(&mut self.held);
        self.state = ThinkState::Text;
        // Thinking without an end is no answer.
        if is_text { held } else { String::new() }
    }

    /// Forgets thinking but for an end in which a closing tag may have begun.
    fn forget(&mut self, close: usize) {
        let mut from = self.held.len().saturating_sub(close);
        while !self.held.is_char_boundary(from) {
            from += 1;
        }
        self.held.drain(..from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&str]) -> String {
        let mut thinking = Thinking::default();
        let mut text: String = pieces.iter().map(|piece| thinking.visible(piece)).collect();
        text.push_str(&thinking.rest());
        text
    }

    /// Rows: SCL-011
    #[test]
    fn thinking_at_the_beginning_is_left_out_however_it_is_split() {
        let answer = "\n<think>a < b, so </thin or </think>\n\nIt is b. <think>No tag.</think>";
        let expected = "It is b. <think>No tag.</think>";
        for size in 1..answer.len() {
            let pieces: Vec<String> =
                answer.as_bytes().chunks(size).map(|piece| String::from_utf8_lossy(piece).into()).collect();
            assert_eq!(shown(&pieces.iter().map(String::as_str).collect::<Vec<_>>()), expected, "{size}");
        }
        assert_eq!(shown(&["<thought>é", "é", "</thought>yes"]), "yes");
    }

    #[test]
    fn what_only_looks_like_a_tag_is_text() {
        for text in ["<th", "<thing>", "  <thinks", "<", "", " ", "</think>", "a<think>b</think>"] {
            assert_eq!(shown(&[text]), text);
            let pieces: Vec<String> = text.chars().map(String::from).collect();
            assert_eq!(shown(&pieces.iter().map(String::as_str).collect::<Vec<_>>()), text);
        }
    }

    #[test]
    fn blanks_without_end_are_text() {
        let mut thinking = Thinking::default();
        let shown: String = (0..10_000).map(|_| thinking.visible(" ")).collect();
        assert!(shown.len() > 9_000 && thinking.held.is_empty(), "{}", shown.len());
    }

    #[test]
    fn thinking_without_end_shows_nothing_and_takes_no_room() {
        let mut thinking = Thinking::default();
        assert_eq!(thinking.visible("<think>"), "");
        for _ in 0..10_000 {
            assert_eq!(thinking.visible("hm, hm, hm "), "");
            assert!(thinking.held.len() < 32);
        }
        assert_eq!(thinking.rest(), "");
    }
}
