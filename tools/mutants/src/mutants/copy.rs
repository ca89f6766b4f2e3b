//! A copy of the workspace with changed sources, to compile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};
use ignore::WalkBuilder;

use super::listed::Mutant;
use super::report::Outcome;
use super::trial::Tests;
use super::weave::{self, Culprit, Lines, Names, Places};
use task_process::Program;

/// The most rounds without what the compiler refused: it does not report everything at once.
const MOST_ROUNDS: usize = 30;
/// Errors of what would have to be evaluated by the compiler: nothing can be asked there.
const CONSTANT: [&str; 2] = ["E0015", "E0658"];
/// The text after the woven crate's own. A traced test names each mutant that it reaches once.
const ASKED: &str = r#"
/// The mutant in force.
mod mutant_in_force {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static CURRENT: LazyLock<u32> = LazyLock::new(|| {
        std::env::var("WRIT_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    static TRACE: LazyLock<Option<std::fs::File>> = LazyLock::new(|| {
        let path = std::env::var_os("WRIT_MUTANT_TRACE")?;
        std::fs::File::options().append(true).create(true).open(path).ok()
    });
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    pub(crate) fn is(number: u32) -> bool {
        if let Some(trace) = &*TRACE
            && REACHED.get(number as usize).is_some_and(|reached| !reached.swap(true, Relaxed))
        {
            let _written = (&*trace).write_all(format!("{number}\n").as_bytes());
        }
        number == *CURRENT
    }

    /// The result of a function that returns `impl Iterator`.
    pub(crate) enum Either<One, Other> {
        One(One),
        Other(Other),
    }

    impl<Of, One: Iterator<Item = Of>, Other: Iterator<Item = Of>> Iterator for Either<One, Other> {
        type Item = Of;

        fn next(&mut self) -> Option<Of> {
            match self {
                Self::One(one) => one.next(),
                Self::Other(other) => other.next(),
            }
        }
    }
}
"#;

/// A copy of the workspace.
#[derive(Debug)]
pub(crate) struct Copy {
    tree: PathBuf,
    /// The sources of the crate as they were when they were copied.
    originals: BTreeMap<String, String>,
    target: PathBuf,
    scratch: PathBuf,
    package: String,
    /// The crate's folder, relative to the root.
    folder: String,
}

/// The binaries of the tests, and the folder that they run in.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) binaries: Vec<PathBuf>,
    pub(crate) folder: PathBuf,
}

/// The facts about all mutants while they are woven.
struct Asking<'a> {
    apart: BTreeSet<u32>,
    names: Names,
    outcomes: &'a mut BTreeMap<u32, Outcome>,
}

impl Asking<'_> {
    /// Returns true if a mutant is not to be woven.
    fn is_known(&self, id: u32) -> bool {
        self.apart.contains(&id) || self.outcomes.contains_key(&id)
    }
}

/// The compiler's answer.
enum Compiled {
    Good(Built),
    /// With the name of the file, the place in it, and the code of each error.
    Bad(Vec<Refused>),
}

struct Refused {
    file: String,
    /// First where it points, then what it shows beside: a type that does not fit may stand before the body.
    at: Vec<usize>,
    code: Option<String>,
    text: String,
}

impl Copy {
    /// Copies the workspace below a folder, over what an earlier run left there.
    pub(crate) fn of(root: &Path, package: &str, folder: &Path) -> Result<Self> {
        let tree = folder.join("tree");
        if tree.exists() {
            std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
        }
        for entry in
            WalkBuilder::new(root).hidden(false).filter_entry(|entry| entry.file_name() != ".git").build()
        {
            let entry = entry?;
            let to = tree.join(entry.path().strip_prefix(root)?);
            match entry.file_type() {
                Some(kind) if kind.is_dir() => std::fs::create_dir_all(&to)?,
                Some(kind) if kind.is_file() => {
                    std::fs::copy(entry.path(), &to).with_context(|| to.display().to_string())?;
                }
                Some(_) | None => {}
            }
        }
        let scratch = folder.join("scratch");
        std::fs::create_dir_all(&scratch)?;
        let originals = sources(&tree, &format!("crates/{package}/src"))?;
        Ok(Self {
            tree,
            originals,
            target: folder.join("target"),
            scratch,
            package: package.to_owned(),
            folder: format!("crates/{package}"),
        })
    }

    /// A folder for what is only of this run.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Weaves all that can be, and compiles it; with the ids of what cannot be woven. What does not compile has its outcome.
    pub(crate) fn weave(
        &self,
        mutants: &[Mutant],
        outcomes: &mut BTreeMap<u32, Outcome>,
    ) -> Result<(Built, Vec<u32>)> {
        let mut asking = Asking { apart: BTreeSet::new(), names: self.names(mutants)?, outcomes };
        for round in 1..=MOST_ROUNDS {
            let places = self.write(mutants, &mut asking)?;
            let refused = match self.compile()? {
                Compiled::Good(built) => return Ok((built, asking.apart.into_iter().collect())),
                Compiled::Bad(refused) => refused,
            };
            println!("round {round}: {} errors", refused.len());
            let mut known = false;
            for one in &refused {
                known |= self.blame(one, &places, &mut asking);
            }
            if !known {
                let texts: Vec<&str> = refused.iter().map(|one| one.text.as_str()).collect();
                bail!("the woven crate does not compile:\n{}", texts.join("\n"));
            }
        }
        bail!("the woven crate does not compile after {MOST_ROUNDS} rounds")
    }

    /// Finds the constants with mutants that no type and no pattern has to know.
    fn names(&self, mutants: &[Mutant]) -> Result<Names> {
        let mut asked = BTreeSet::new();
        let mut fixed = BTreeSet::new();
        for (file, text) in &self.originals {
            let places = Places::of(text).with_context(|| file.clone())?;
            let lines = Lines::of(text);
            let here = mutants.iter().filter(|mutant| mutant.file == *file);
            for span in here.filter_map(|mutant| lines.range(mutant)) {
                let item = places.items.iter().find(|item| item.value.contains(&span.start));
                asked.extend(item.map(|item| item.name.clone()));
            }
            fixed.extend(places.fixed);
        }
        asked.retain(|name| !fixed.contains(name));
        Ok(Names { asked, ..Names::default() })
    }

    /// Finds the mutants that an error belongs to; returns true if any is new.
    fn blame(&self, refused: &Refused, places: &BTreeMap<u32, Vec<u32>>, asking: &mut Asking<'_>) -> bool {
        let is_constant = refused.code.as_ref().is_some_and(|code| CONSTANT.contains(&code.as_str()));
        if is_constant && let Some(name) = ordinary(&refused.text) {
            return asking.names.kept.insert(name);
        }
        let text = std::fs::read_to_string(self.tree.join(&refused.file)).unwrap_or_default();
        match refused.at.iter().find_map(|at| weave::culprit(&text, *at)) {
            Some(Culprit::Mutant(id)) if !is_constant => {
                asking.outcomes.insert(id, Outcome::Unviable).is_none()
            }
            Some(Culprit::Mutant(id)) => asking.apart.insert(id),
            Some(Culprit::Place(id)) => {
                let before = asking.apart.len();
                asking.apart.extend(places.get(&id).into_iter().flatten());
                asking.apart.len() > before
            }
            Some(Culprit::Constant(name)) => {
                println!("{name} cannot be asked for: {}", refused.text);
                asking.names.asked.remove(&name)
            }
            None => false,
        }
    }

    /// Writes the woven files; which mutants share a place.
    fn write(&self, all: &[Mutant], asking: &mut Asking<'_>) -> Result<BTreeMap<u32, Vec<u32>>> {
        let lib = format!("{}/src/lib.rs", self.folder);
        let most = all.iter().map(|mutant| mutant.id).max().unwrap_or(0) + 1;
        loop {
            let (mut places, mut fixed) = (BTreeMap::new(), BTreeSet::new());
            // A file that has none is written, too: it may have had some, or use a constant that has.
            for (file, original) in &self.originals {
                let due = |mutant: &&Mutant| mutant.file == *file && !asking.is_known(mutant.id);
                let mutants: Vec<&Mutant> = all.iter().filter(due).collect();
                let mut woven =
                    weave::weave(original, &mutants, &asking.names).with_context(|| file.clone())?;
                asking.apart.extend(woven.apart);
                asking.outcomes.extend(woven.unviable.into_iter().map(|id| (id, Outcome::Unviable)));
                places.extend(woven.places);
                fixed.extend(woven.fixed);
                if *file == lib {
                    woven.text.push_str(&ASKED.replace("COUNT", &most.to_string()));
                }
                std::fs::write(self.tree.join(file), woven.text).with_context(|| file.clone())?;
            }
            if fixed.is_empty() {
                return Ok(places);
            }
            asking.names.asked.retain(|name| !fixed.contains(name));
        }
    }

    /// Writes the files as they were before anything was woven into them.
    pub(crate) fn unweave(&self) -> Result<()> {
        self.originals.iter().try_for_each(|(file, original)| {
            std::fs::write(self.tree.join(file), original).with_context(|| file.clone())
        })
    }

    fn original(&self, file: &str) -> Result<String> {
        self.originals.get(file).cloned().with_context(|| format!("{file} was not there"))
    }

    /// Compiles one mutant separately, as `cargo mutants` does, and runs every test. Nothing may be woven.
    pub(crate) fn alone(&self, mutant: &Mutant) -> Result<Outcome> {
        let original = self.original(&mutant.file)?;
        let range = Lines::of(&original).range(mutant).context("a mutant lies outside its file")?;
        let mut changed = original.clone();
        changed.replace_range(range, &mutant.replacement);
        let file = self.tree.join(&mutant.file);
        std::fs::write(&file, changed)?;
        let outcome = match self.compile()? {
            Compiled::Bad(_) => Outcome::Unviable,
            Compiled::Good(built) => Tests::all(&built)?,
        };
        std::fs::write(&file, original)?;
        Ok(outcome)
    }

    fn compile(&self) -> Result<Compiled> {
        let optimised = format!("profile.dev.package.{}.opt-level=1", self.package);
        let arguments = [
            "test",
            "--locked",
            "-p",
            &self.package,
            "--lib",
            "--tests",
            "--no-run",
            "--message-format=json",
            // The tests run thousands of times: what they take counts, more than what the compiler does.
            "--config",
            &optimised,
        ];
        let told = Program::cargo(&arguments)
            .directory(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .output()?;
        let (mut binaries, mut refused) = (Vec::new(), Vec::new());
        for line in told.stdout.lines() {
            match serde_json::from_str::<Message>(line) {
                Ok(Message::CompilerArtifact(built)) if built.profile.test => {
                    binaries
                        .extend(built.executable.map(cargo_metadata::camino::Utf8PathBuf::into_std_path_buf));
                }
                Ok(Message::CompilerMessage(told)) if told.message.level == DiagnosticLevel::Error => {
                    refused.extend(places(&told.message));
                }
                Ok(_) | Err(_) => {}
            }
        }
        if told.success {
            let folder = self.tree.join(&self.folder);
            return Ok(Compiled::Good(Built { binaries, folder }));
        }
        ensure!(!refused.is_empty(), "cargo fails without an error of the compiler: {}", told.stderr);
        Ok(Compiled::Bad(refused))
    }
}

/// The sources below a folder, by their paths.
fn sources(tree: &Path, folder: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in WalkBuilder::new(tree.join(folder)).build() {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "rs") {
            let name = entry.path().strip_prefix(tree)?.display().to_string();
            found.insert(name, std::fs::read_to_string(entry.path())?);
        }
    }
    Ok(found)
}

/// The function that was made an ordinary one and has to be evaluated by the compiler, as an error names it.
fn ordinary(text: &str) -> Option<String> {
    let named = text.lines().next()?.split('`').nth(1)?;
    let name = named.rsplit("::").next()?;
    (name != "is").then(|| name.to_owned())
}

/// Returns the places that an error points to.
fn places(error: &Diagnostic) -> Vec<Refused> {
    let primary = error.spans.iter().filter(|span| span.is_primary);
    primary
        .map(|span| {
            let beside = error.spans.iter().filter(|other| !other.is_primary);
            let beside = beside.filter(|other| other.file_name == span.file_name);
            Refused {
                file: span.file_name.clone(),
                at: [span].into_iter().chain(beside).map(|span| span.byte_start as usize).collect(),
                code: error.code.as_ref().map(|code| code.code.clone()),
                text: error.rendered.clone().unwrap_or_default(),
            }
        })
        .collect()
}
