//! Outputs of scripts and models, read as verdicts: anything else blocks.

use serde::Deserialize;
use serde_json::{Map, Value};
use writ_types::entry::{GatePoint, GateVerdict};

/// The most that a script may say, in bytes: a few times what it may be given.
pub const MAX_SAID_BYTES: usize = 256 * 1024;
/// The longest reason, in characters.
pub(super) const MAX_REASON_CHARS: usize = 500;
/// The most flags of a model.
const MAX_FLAGS: usize = 10;
/// The longest flag, in characters.
const MAX_FLAG_CHARS: usize = 60;
/// The most keys that are named where they are left out.
const MAX_STRIPPED: usize = 20;
/// The changes that gates may make (`ALLOWED_MUTATIONS`): each at one point.
const ALLOWED_MUTATIONS: [(&str, GatePoint); 3] =
    [("response", GatePoint::Output), ("message", GatePoint::Input), ("tool_args", GatePoint::Execution)];

/// The end of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptEnd {
    /// It exited with this code.
    Code(i32),
    /// In another way, in words.
    Broken(String),
}

/// The verdict of a model on a text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSaid {
    /// From 0.0 (bad) to 1.0 (good).
    pub score: f64,
    /// The text is acceptable.
    pub pass: bool,
    /// The defects, in a few words each.
    #[serde(default)]
    pub flags: Vec<String>,
}

impl ModelSaid {
    /// Reads an answer: JSON alone, or alone in a fenced block.
    ///
    /// # Errors
    ///
    /// If it has another form.
    pub fn read_answer(answer: &str) -> Result<Self, String> {
        let answer = answer.trim();
        // Many models put a fence around JSON although they are asked not to.
        let fenced = answer.strip_prefix("```json").or_else(|| answer.strip_prefix("```"));
        let inner = fenced.and_then(|rest| rest.strip_suffix("```")).unwrap_or(answer);
        match serde_json::from_str::<Self>(inner) {
            // A score outside the range shows that the model did not follow the form, so its verdict is not
            // used.
            Ok(said) if (0.0..=1.0).contains(&said.score) => Ok(said),
            Ok(_) | Err(_) => Err("its answer had another form".to_owned()),
        }
    }

    /// It, for the ledger.
    pub(super) fn in_words(&self) -> String {
        let flags = self.flags.iter().take(MAX_FLAGS).map(|flag| cut_text(flag, MAX_FLAG_CHARS));
        let flags = flags.collect::<Vec<_>>().join(", ");
        let verdict = if self.pass { "pass" } else { "fail" };
        format!("a model says: {verdict}, score {:.2}, flags: {flags}", self.score)
    }
}

/// The verdict of one gate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GateOpinion {
    pub(super) verdict: GateVerdict,
    /// The reason; empty: the gate's own reason stands there.
    pub(super) reason: String,
    /// The text instead.
    pub(super) text: Option<String>,
    /// The arguments instead.
    pub(super) arguments: Option<Value>,
    /// The state to store for the next call.
    pub(super) state: Option<Value>,
    /// Keys that it wanted to change and may not.
    pub(super) stripped: Vec<String>,
}

impl GateOpinion {
    pub(super) fn bare_opinion(verdict: GateVerdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            text: None,
            arguments: None,
            state: None,
            stripped: Vec::new(),
        }
    }

    /// Reads the output of a script: a code other than 0 blocks; otherwise it is empty or an object.
    pub(super) fn of_script(point: GatePoint, end: &ScriptEnd, said: &str) -> Self {
        let block = |why: &str| Self::bare_opinion(GateVerdict::Block, why);
        let code = match end {
            ScriptEnd::Code(code) => *code,
            ScriptEnd::Broken(why) => {
                return block(&format!("the script {}", cut_text(why, MAX_REASON_CHARS)));
            }
        };
        // The bound is checked before the text is parsed.
        if said.len() > MAX_SAID_BYTES {
            return block("the script's output is too long");
        }
        let fields = match (said.trim(), serde_json::from_str::<Map<String, Value>>(said)) {
            ("", _) => Map::new(),
            (_, Ok(fields)) => fields,
            // With another exit code it blocks anyway, and its text may be an error message.
            (_, Err(_)) if code != 0 => Map::new(),
            (_, Err(_)) => return block("the script's output is no verdict"),
        };
        let mut read = Self::read(point, fields);
        // The exit code counts even where the text says `pass`: the script may have failed after writing it.
        if code != 0 && read.verdict != GateVerdict::Block {
            read = block(&format!("the script ended with code {code}"));
        }
        read
    }

    /// Leaves a key out, and names it.
    pub(super) fn note_stripped(&mut self, key: &str) {
        if self.stripped.len() < MAX_STRIPPED {
            self.stripped.push(cut_text(key, MAX_FLAG_CHARS));
        }
    }

    fn read(point: GatePoint, mut fields: Map<String, Value>) -> Self {
        let reason = match fields.remove("reason") {
            Some(Value::String(reason)) => cut_text(&reason, MAX_REASON_CHARS),
            Some(_) | None => String::new(),
        };
        let verdict = match fields.remove("verdict") {
            None => GateVerdict::Pass,
            Some(Value::String(word)) if word == "pass" => GateVerdict::Pass,
            Some(Value::String(word)) if word == "require_approval" => GateVerdict::RequireApproval,
            Some(Value::String(word)) if word == "block" => GateVerdict::Block,
            // An unknown word is not taken for a pass: a misspelt `block` must not let anything through.
            Some(_) => {
                return Self::bare_opinion(GateVerdict::Block, "the script gave a verdict that there is not");
            }
        };
        let mut said = Self::bare_opinion(verdict, reason);
        for (key, value) in fields {
            match (ALLOWED_MUTATIONS.contains(&(key.as_str(), point)), value) {
                // A change that is not allowed at this point is left out, and named in the record.
                (false, _) => said.note_stripped(&key),
                (true, Value::String(text)) if point != GatePoint::Execution && !text.trim().is_empty() => {
                    said.text = Some(text);
                }
                (true, value @ Value::Object(_)) if point == GatePoint::Execution => {
                    said.arguments = Some(value);
                }
                // The key is right and the value is not, so it is open what should go on.
                (true, _) => {
                    return Self::bare_opinion(
                        GateVerdict::Block,
                        "the script made something else of what it judged",
                    );
                }
            }
        }
        said
    }
}

/// The beginning of a text.
pub(super) fn cut_text(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
