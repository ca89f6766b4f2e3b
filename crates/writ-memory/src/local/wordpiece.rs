//! WordPiece, the tokenizer of BERT models: splits a text at white space and punctuation, and each word into the longest pieces
//! that the vocabulary has.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::LocalModelError;
use super::tensors::read_bounded;

/// The largest file of a vocabulary, in bytes.
const MAX_VOCABULARY_BYTES: u64 = 64 * 1024 * 1024;

/// The longest word that is cut into pieces, in characters; a longer word becomes the token for unknown words.
const MAX_WORD_CHARS: usize = 100;

/// Cuts texts into numbered tokens.
pub(crate) struct Tokenizer {
    numbers: BTreeMap<String, usize>,
    size: usize,
    prefix: String,
    unknown: usize,
    begin: Option<usize>,
    end: Option<usize>,
    lowercase: bool,
}

#[derive(Deserialize)]
struct TokenizerFile {
    model: PieceModel,
    #[serde(default)]
    normalizer: Option<NormalizerSettings>,
}

#[derive(Deserialize)]
struct PieceModel {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    unk_token: Option<serde_json::Value>,
    #[serde(default = "default_prefix")]
    continuing_subword_prefix: String,
    #[serde(default)]
    vocab: serde_json::Value,
}

#[derive(Deserialize)]
struct NormalizerSettings {
    #[serde(default)]
    lowercase: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerSettings {
    do_lower_case: Option<bool>,
}

fn default_prefix() -> String {
    "##".to_owned()
}

impl Tokenizer {
    pub(crate) fn open(folder: &Path) -> Result<Self, LocalModelError> {
        let file = folder.join("tokenizer.json");
        if file.exists() {
            return Self::from_json(&read_bounded(&file, MAX_VOCABULARY_BYTES)?);
        }
        let settings: TokenizerSettings =
            super::read_settings(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        let bytes = read_bounded(&folder.join("vocab.txt"), MAX_VOCABULARY_BYTES)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| LocalModelError::Damaged("vocab.txt is not UTF-8".to_owned()))?;
        let numbers = text.lines().enumerate().map(|(number, token)| (token.trim_end().to_owned(), number));
        Self::new(numbers.collect(), "##", "[UNK]", settings.do_lower_case.unwrap_or(true))
    }

    fn from_json(bytes: &[u8]) -> Result<Self, LocalModelError> {
        let file: TokenizerFile = serde_json::from_slice(bytes)
            .map_err(|error| LocalModelError::Damaged(format!("tokenizer.json: {error}")))?;
        let serde_json::Value::Object(vocabulary) = file.model.vocab else {
            return Err(LocalModelError::Kind(format!("a tokenizer of the kind {}", file.model.kind)));
        };
        if file.model.kind != "WordPiece" {
            let kind = file.model.kind.chars().take(32).collect::<String>();
            return Err(LocalModelError::Kind(format!("a tokenizer of the kind {kind}")));
        }
        let mut numbers = BTreeMap::new();
        for (token, number) in vocabulary {
            let number = number.as_u64().and_then(|number| usize::try_from(number).ok());
            let number =
                number.ok_or_else(|| LocalModelError::Damaged("a token has no number".to_owned()))?;
            numbers.insert(token, number);
        }
        let unknown = file.model.unk_token.as_ref().and_then(|token| token.as_str()).unwrap_or("[UNK]");
        // The normalizer of BERT converts to lower case unless its settings say otherwise.
        let lowercase = file.normalizer.and_then(|settings| settings.lowercase).unwrap_or(true);
        Self::new(numbers, &file.model.continuing_subword_prefix, unknown, lowercase)
    }

    fn new(
        numbers: BTreeMap<String, usize>,
        prefix: &str,
        unknown: &str,
        lowercase: bool,
    ) -> Result<Self, LocalModelError> {
        let number = |token: &str| numbers.get(token).copied();
        let missing = || LocalModelError::Damaged(format!("the vocabulary has no token {unknown}"));
        let unknown = number(unknown).ok_or_else(missing)?;
        let (begin, end) = (number("[CLS]"), number("[SEP]"));
        let size = numbers.values().max().map_or(0, |largest| largest.saturating_add(1));
        Ok(Self { size, prefix: prefix.to_owned(), unknown, begin, end, lowercase, numbers })
    }

    /// Returns one more than the largest token number, which is the size of a table indexed by tokens.
    pub(crate) fn count_tokens(&self) -> usize {
        self.size
    }

    /// Returns the tokens of a text between `[CLS]` and `[SEP]`, which frame each input; at most `most` with both.
    pub(crate) fn encode_framed(&self, text: &str, most: usize) -> Vec<usize> {
        // Two places are for the frame.
        let pieces = self.cut_text(text, most.saturating_sub(2));
        self.begin.into_iter().chain(pieces).chain(self.end).collect()
    }

    /// Returns the first `most` tokens of a text, without those of unknown words.
    pub(crate) fn encode_known(&self, text: &str, most: usize) -> Vec<usize> {
        let mut tokens = self.cut_text(text, most);
        tokens.retain(|token| *token != self.unknown);
        tokens
    }

    /// Splits a text into at most `most` tokens. `[SEP]` and the like in a text are cut as ordinary punctuation and words, so that
    /// the text of a memory cannot produce a special token.
    fn cut_text(&self, text: &str, most: usize) -> Vec<usize> {
        let mut tokens = Vec::new();
        for word in split_words(&self.normalise_text(text)) {
            self.cut_word(&word, &mut tokens);
            if tokens.len() >= most {
                break;
            }
        }
        tokens.truncate(most);
        tokens
    }

    fn normalise_text(&self, text: &str) -> String {
        let mut spaced = String::with_capacity(text.len());
        for letter in text.chars() {
            if letter.is_whitespace() {
                spaced.push(' ');
            } else if is_ideograph(letter) {
                // BERT reads each ideograph as a word.
                spaced.extend([' ', letter, ' ']);
            } else if !letter.is_control() && !is_invisible(letter) {
                spaced.push(letter);
            }
        }
        if !self.lowercase {
            return spaced;
        }
        // Vocabularies in lower case have no accents either, so accents are removed.
        spaced.nfd().filter(|letter| !is_combining_mark(*letter)).flat_map(char::to_lowercase).collect()
    }

    /// Appends the pieces of a word, each the longest possible from the left. If no piece fits somewhere, the whole word is unknown.
    fn cut_word(&self, word: &str, tokens: &mut Vec<usize>) {
        let ends: Vec<usize> = word.char_indices().map(|(at, letter)| at + letter.len_utf8()).collect();
        if ends.len() > MAX_WORD_CHARS {
            tokens.push(self.unknown);
            return;
        }
        let (mut start, mut pieces) = (0, Vec::new());
        while start < word.len() {
            // Greedy from the left, as in training: the model knows a word only by the tokens of exactly this cut.
            let longest = ends.iter().rev().take_while(|end| **end > start).find_map(|end| {
                let piece = &word[start..*end];
                let known = if start == 0 {
                    self.numbers.get(piece)
                } else {
                    self.numbers.get(&format!("{}{piece}", self.prefix))
                };
                known.map(|number| (*number, *end))
            });
            let Some((number, end)) = longest else {
                tokens.push(self.unknown);
                return;
            };
            pieces.push(number);
            start = end;
        }
        tokens.extend(pieces);
    }
}

/// Splits at white space, and around each mark of punctuation.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(' ').filter(|run| !run.is_empty()) {
        let mut word = String::new();
        for letter in run.chars() {
            if is_punctuation(letter) {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                words.push(letter.to_string());
            } else {
                word.push(letter);
            }
        }
        words.extend(Some(word).filter(|word| !word.is_empty()));
    }
    words
}

/// Returns true for ASCII punctuation, and for the punctuation of the common Unicode blocks.
fn is_punctuation(letter: char) -> bool {
    letter.is_ascii_punctuation()
        || matches!(letter,
            '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}'
            | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}'
            | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}'
            | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}')
}

fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
        | '\u{feff}' | '\u{fffd}' | '\u{e0000}'..='\u{e007f}')
}

fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2ceaf}' | '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        let tokens =
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dent", "##ist", "said", ",", "##s", "cafe", "東"];
        let numbers =
            tokens.iter().enumerate().map(|(number, token)| ((*token).to_owned(), number)).collect();
        Tokenizer::new(numbers, "##", "[UNK]", true).expect("stands")
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        let encode = |text: &str| tokenizer().encode_framed(text, 32);
        assert_eq!(encode("The dentists, said"), [2, 4, 5, 6, 9, 8, 7, 3]);
        assert_eq!(encode("CAFÉ 東東"), [2, 10, 11, 11, 3]);
        assert_eq!(encode("zebra"), [2, 1, 3]);
        assert_eq!(encode("th\u{200b}e\u{202e}\0"), [2, 4, 3], "invisible characters are dropped");
        assert_eq!(encode(""), [2, 3]);
        assert_eq!(encode("[SEP]"), [2, 1, 1, 1, 3], "no special token comes from a text");
        assert_eq!(encode(&"the ".repeat(1000)).len(), 32);
        assert_eq!(encode(&"a".repeat(1000)), [2, 1, 3]);
        assert_eq!(tokenizer().encode_known("the zebra said", 32), [4, 7]);
    }
}
