//! Prompts of the autopilot: one template a phase, strict, and bounded in what it can make.
//!
//! A project overrides one by `.writ/prompts/NAME.md`. Every template is checked when it is loaded: each variable that it names
//! must be one that its callers pass, and it is rendered once with each kind of value (`samples`), so that a mistake is found
//! before any unit is dispatched (SF 7.1).

use std::io::{self, Write};
use std::path::Path;

use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior};
use writ_autopilot::phase::PilotPhase;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::similar::nearest_name;

mod input;

mod samples;

mod tags;

use input::Variables;
pub use input::{
    ContinuePrompt, DocumentsPrompt, GoalPrompt, PromptFinding, ReassessPrompt, RetryNote, ReviewPass,
    ReviewPrompt, UnitPrompt, describe_issue,
};

/// The folder of a project's own templates.
pub const PROMPTS_FOLDER: &str = ".writ/prompts";
/// The largest template, in bytes.
pub const MAX_TEMPLATE_BYTES: usize = 32 * 1024;
/// The largest prompt, in bytes.
pub const MAX_PROMPT_BYTES: usize = 512 * 1024;
/// The most entries of the folder that are looked at.
const MAX_ENTRIES: usize = 64;
/// The most steps of one rendering: a list of 100 findings takes about 2,000.
const MAX_STEPS: u64 = 100_000;

/// A prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromptName {
    /// Gathers what the work rests on.
    Research,
    /// Writes the plan of a unit.
    Plan,
    /// Writes the code.
    Execute,
    /// Writes the tests.
    Tdd,
    /// Judges a change.
    Review,
    /// Decides anew.
    Reassess,
    /// Turns a goal into units.
    Goal,
    /// Steers a later turn.
    Continue,
    /// Asks which documents a change makes out of date.
    Documents,
}

impl PromptName {
    /// Every prompt.
    pub const ALL: [Self; 9] = [
        Self::Research,
        Self::Plan,
        Self::Execute,
        Self::Tdd,
        Self::Review,
        Self::Reassess,
        Self::Goal,
        Self::Continue,
        Self::Documents,
    ];

    /// Returns its name: that of its file, without the ending.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Research => "research",
            Self::Plan => "plan",
            Self::Execute => "execute",
            Self::Tdd => "tdd",
            Self::Review => "review",
            Self::Reassess => "reassess",
            Self::Goal => "goal",
            Self::Continue => "continue",
            Self::Documents => "documents",
        }
    }

    /// Returns the prompt of a phase; `None` where the harness or a person works alone.
    pub const fn of_phase(phase: PilotPhase) -> Option<Self> {
        match phase {
            PilotPhase::Research => Some(Self::Research),
            PilotPhase::Plan => Some(Self::Plan),
            PilotPhase::Execute => Some(Self::Execute),
            PilotPhase::Tdd => Some(Self::Tdd),
            PilotPhase::Review => Some(Self::Review),
            PilotPhase::Reassess => Some(Self::Reassess),
            PilotPhase::Verify | PilotPhase::Merge | PilotPhase::Complete | PilotPhase::Uat => None,
        }
    }

    /// Returns the built-in template.
    pub const fn built_in(self) -> &'static str {
        match self {
            Self::Research => include_str!("prompts/research.md"),
            Self::Plan => include_str!("prompts/plan.md"),
            Self::Execute => include_str!("prompts/execute.md"),
            Self::Tdd => include_str!("prompts/tdd.md"),
            Self::Review => include_str!("prompts/review.md"),
            Self::Reassess => include_str!("prompts/reassess.md"),
            Self::Goal => include_str!("prompts/goal.md"),
            Self::Continue => include_str!("prompts/continue.md"),
            Self::Documents => include_str!("prompts/documents.md"),
        }
    }
}

/// A template that cannot be used, or a prompt that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// A template with a mistake: nothing is dispatched with it.
    #[error("{file}, line {line}: {problem}")]
    Template {
        /// The file.
        file: String,
        /// The line, counted from one.
        line: usize,
        /// The mistake.
        problem: String,
        /// The next thing to do.
        hint: String,
    },
    /// A rendering that failed: the attempt fails by it.
    #[error("{file}, line {line}: {problem}")]
    Render {
        /// The file.
        file: String,
        /// The line, counted from one.
        line: usize,
        /// The mistake.
        problem: String,
    },
}

impl ToReport for PromptError {
    fn report(&self) -> Report {
        match self {
            Self::Template { hint, .. } => {
                Report::new(Exit::Config, "pilot.prompt", self.to_string()).with_hint(hint.clone())
            }
            Self::Render { .. } => Report::new(Exit::Config, "pilot.prompt_render_failed", self.to_string())
                .with_hint("correct the template, or remove it: the built-in one takes its place"),
        }
    }
}

/// The templates of a project, checked.
#[derive(Debug)]
pub struct PromptSet {
    environment: Environment<'static>,
}

impl PromptSet {
    /// Makes the built-in templates.
    ///
    /// # Errors
    ///
    /// If one of them has a mistake.
    pub fn built_in() -> Result<Self, PromptError> {
        Self::of_texts(&[])
    }

    /// Reads the templates of a project; the built-in ones stand in for those that it does not have.
    ///
    /// # Errors
    ///
    /// If a file names no prompt, cannot be read, or has a mistake.
    pub fn load_for(project: &Path) -> Result<Self, PromptError> {
        Self::of_texts(&read_folder(&project.join(PROMPTS_FOLDER))?)
    }

    /// Makes the templates from texts of a project's own.
    fn of_texts(own: &[(PromptName, String)]) -> Result<Self, PromptError> {
        // Empty: the library's own filters and functions could make a huge text out of a short one.
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(MAX_STEPS));
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.add_filter("quoted", quote_text);
        environment.add_filter("names", join_names);
        environment.add_filter("trim", |text: &str| text.trim().to_owned());
        environment.add_test("none", |value: &Value| value.is_none());
        let mut set = Self { environment };
        for prompt in PromptName::ALL {
            let text = own.iter().find(|(name, _)| *name == prompt).map(|(_, text)| text.as_str());
            set.add_template(prompt, text.unwrap_or(prompt.built_in()), text.is_some())?;
        }
        Ok(set)
    }

    fn add_template(&mut self, prompt: PromptName, text: &str, is_own: bool) -> Result<(), PromptError> {
        let file = if is_own { own_file(prompt) } else { format!("built-in {}.md", prompt.name()) };
        let fail = |line: usize, problem: String, hint: String| {
            Err(PromptError::Template { file: file.clone(), line, problem, hint })
        };
        let hint = "a prompt has values, `if`, `for`, and the filters `quoted`, `names` and `trim`";
        if text.len() > MAX_TEMPLATE_BYTES {
            return fail(1, format!("it has more than {MAX_TEMPLATE_BYTES} bytes"), "shorten it".to_owned());
        }
        let tags = match tags::read_tags(text) {
            Ok(tags) => tags,
            Err(refused) => return fail(refused.line, refused.problem, hint.to_owned()),
        };
        if let Err(error) = self.environment.add_template_owned(prompt.name(), text.to_owned()) {
            return fail(error.line().unwrap_or(1), describe_error(&error), hint.to_owned());
        }
        let declared = input::variables_of(prompt);
        let used = match self.environment.get_template(prompt.name()) {
            Ok(template) => template.undeclared_variables(false),
            Err(error) => return fail(1, describe_error(&error), hint.to_owned()),
        };
        let mut unknown: Vec<&String> =
            used.iter().filter(|name| !declared.contains(&name.as_str())).collect();
        // A set has no order; the first by name is the same one each time.
        unknown.sort();
        if let Some(name) = unknown.first() {
            let is_word = |tag: &&tags::Tag<'_>| has_word(&tag.content, name);
            let line = tags.iter().find(is_word).map_or(1, |tag| tag.line);
            let near = nearest_name(name, declared).map(|near| format!("'{near}' is probably meant; "));
            let hint = format!("{}its variables are {}", near.unwrap_or_default(), declared.join(", "));
            return fail(line, format!("unknown variable '{name}'"), hint);
        }
        // Fields of values, filters and tests are known only when they are used.
        for sample in samples::samples_of(prompt) {
            if let Err(PromptError::Render { line, problem, .. }) = self.render_template(prompt, &sample) {
                return fail(line, problem, hint.to_owned());
            }
        }
        Ok(())
    }

    /// Makes the first prompt of an attempt in the phases research, plan, execute and tdd.
    ///
    /// # Errors
    ///
    /// If the phase has another kind of prompt, or the prompt becomes too large.
    pub fn render_work(&self, input: &UnitPrompt<'_>) -> Result<String, PromptError> {
        use PromptName::{Execute, Plan, Research, Tdd};
        let prompt =
            PromptName::of_phase(input.phase).filter(|name| matches!(name, Research | Plan | Execute | Tdd));
        let Some(prompt) = prompt else {
            let problem = format!("the phase {} has no prompt of this kind", input.phase);
            return Err(PromptError::Render { file: format!("{}.md", input.phase), line: 1, problem });
        };
        self.render_template(prompt, &input.variables())
    }

    /// Makes the prompt of one pass of a review.
    ///
    /// # Errors
    ///
    /// If the prompt becomes too large.
    pub fn render_review(
        &self,
        unit: &UnitPrompt<'_>,
        review: &ReviewPrompt<'_>,
    ) -> Result<String, PromptError> {
        self.render_template(PromptName::Review, &review.variables(unit))
    }

    /// Makes the prompt of a decision.
    ///
    /// # Errors
    ///
    /// If the prompt becomes too large.
    pub fn render_reassess(
        &self,
        unit: &UnitPrompt<'_>,
        reassess: &ReassessPrompt<'_>,
    ) -> Result<String, PromptError> {
        self.render_template(PromptName::Reassess, &reassess.variables(unit))
    }

    /// Makes the prompt of planning.
    ///
    /// # Errors
    ///
    /// If the prompt becomes too large.
    pub fn render_goal(&self, goal: &GoalPrompt<'_>) -> Result<String, PromptError> {
        self.render_template(PromptName::Goal, &goal.variables())
    }

    /// Makes the prompt of a later turn. It has no part of the task (SF 7.2).
    ///
    /// # Errors
    ///
    /// If the prompt becomes too large.
    pub fn render_continuation(&self, turn: &ContinuePrompt<'_>) -> Result<String, PromptError> {
        self.render_template(PromptName::Continue, &turn.variables())
    }

    /// Makes the prompt that asks which documents a change makes out of date.
    ///
    /// # Errors
    ///
    /// If the prompt becomes too large.
    pub fn render_documents(&self, input: &DocumentsPrompt<'_>) -> Result<String, PromptError> {
        self.render_template(PromptName::Documents, &input.variables())
    }

    fn render_template(&self, prompt: PromptName, variables: &Variables) -> Result<String, PromptError> {
        let fail = |line: usize, problem: String| PromptError::Render {
            file: format!("{}.md", prompt.name()),
            line,
            problem,
        };
        let template =
            self.environment.get_template(prompt.name()).map_err(|error| fail(1, describe_error(&error)))?;
        let mut out = BoundedText::default();
        let rendered = template.render_captured_to(variables, &mut out).map(drop);
        // First, since it is the cause of the other one.
        if out.is_full {
            return Err(fail(1, format!("the prompt has more than {MAX_PROMPT_BYTES} bytes")));
        }
        rendered.map_err(|error| fail(error.line().unwrap_or(1), describe_error(&error)))?;
        String::from_utf8(out.bytes).map_err(|_| fail(1, "the prompt is no text".to_owned()))
    }
}

fn own_file(prompt: PromptName) -> String {
    format!("{PROMPTS_FOLDER}/{}.md", prompt.name())
}

/// Reads the templates of a folder; none if it is not there.
fn read_folder(folder: &Path) -> Result<Vec<(PromptName, String)>, PromptError> {
    let fail = |file: &str, problem: String, hint: String| {
        let file =
            if file.is_empty() { PROMPTS_FOLDER.to_owned() } else { format!("{PROMPTS_FOLDER}/{file}") };
        Err(PromptError::Template { file, line: 1, problem, hint })
    };
    let unreadable = |file: &str, error: &io::Error| {
        fail(file, format!("it cannot be read: {error}"), "correct its permissions".to_owned())
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return unreadable("", &error),
    };
    let mut found = Vec::new();
    for (count, entry) in entries.enumerate() {
        let entry = match entry {
            Ok(entry) if count < MAX_ENTRIES => entry,
            Ok(_) => {
                return fail(
                    "",
                    format!("more than {MAX_ENTRIES} entries"),
                    "remove what is no prompt".to_owned(),
                );
            }
            Err(error) => return unreadable("", &error),
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        let shown: String = name.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let stem = name.strip_suffix(".md").unwrap_or_default();
        let Some(prompt) = PromptName::ALL.into_iter().find(|prompt| prompt.name() == stem) else {
            let names = PromptName::ALL.map(PromptName::name);
            let near = nearest_name(name.trim_end_matches(".md"), &names)
                .map(|near| format!("'{near}.md' is probably meant; "));
            let hint = format!("{}a prompt is one of {}", near.unwrap_or_default(), names.join(", "));
            return fail(&shown, "no phase has a prompt of this name".to_owned(), hint);
        };
        // A link could show a file of elsewhere to a model; a pipe would never end.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return fail(&shown, "it is no file".to_owned(), "put the text itself in its place".to_owned());
        }
        match read_bounded(&entry.path()) {
            Ok(Some(text)) => found.push((prompt, text)),
            Ok(None) => {
                return fail(&shown, "it is not UTF-8 text".to_owned(), "save it as UTF-8".to_owned());
            }
            Err(error) => return unreadable(&shown, &error),
        }
    }
    Ok(found)
}

/// Reads one byte more than a template may have; `None`: no text.
fn read_bounded(path: &Path) -> io::Result<Option<String>> {
    use std::io::Read as _;
    let most = u64::try_from(MAX_TEMPLATE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_TEMPLATE_BYTES {
        // The cut may be inside a character; the size alone is the mistake that is shown.
        return Ok(Some("x".repeat(bytes.len())));
    }
    Ok(String::from_utf8(bytes).ok())
}

fn has_word(content: &str, word: &str) -> bool {
    content.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

fn describe_error(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    detail.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Puts `> ` before each line, so that no line of foreign text can look like one of the prompt.
fn quote_text(text: &str) -> Result<String, Error> {
    let mut quoted = String::with_capacity(text.len().min(MAX_PROMPT_BYTES));
    for line in text.lines() {
        quoted.push_str(if line.is_empty() { ">" } else { "> " });
        quoted.push_str(line);
        quoted.push('\n');
        if quoted.len() > MAX_PROMPT_BYTES {
            return Err(Error::new(ErrorKind::InvalidOperation, "a quoted text is too long"));
        }
    }
    quoted.truncate(quoted.trim_end().len());
    Ok(quoted)
}

/// Joins the entries of a list with commas.
fn join_names(list: Vec<String>) -> Result<String, Error> {
    let length: usize = list.iter().map(|name| name.len() + 2).sum();
    if length > MAX_PROMPT_BYTES {
        return Err(Error::new(ErrorKind::InvalidOperation, "a list of names is too long"));
    }
    Ok(list.join(", "))
}

/// Takes the text of a prompt, up to its largest size.
#[derive(Debug, Default)]
struct BoundedText {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for BoundedText {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + part.len() > MAX_PROMPT_BYTES {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
