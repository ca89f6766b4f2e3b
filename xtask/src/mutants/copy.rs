//! A copy of the workspace, whose sources are changed and compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};
use ignore::WalkBuilder;

use super::listed::Mutant;
use super::report::Outcome;
use super::trial::Tests;
use super::weave::{self, Culprit, Lines};
use crate::process::Program;

/// How often the compiler is asked again without what it refused: it does not tell everything at once.
const MOST_ROUNDS: usize = 30;
/// Errors of what would have to be evaluated by the compiler: nothing can be asked there.
const CONSTANT: [&str; 2] = ["E0015", "E0658"];
/// What the woven crate asks, after its own text. A test that is traced tells each mutant that it reaches once.
const ASKED: &str = r#"
/// Which mutant is in force.
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

/// What was compiled: the binaries of its tests, and where they run.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) binaries: Vec<PathBuf>,
    pub(crate) folder: PathBuf,
}

/// What the compiler says.
enum Compiled {
    Good(Built),
    /// With the name of the file, the place in it, and the code of each error.
    Bad(Vec<Refused>),
}

struct Refused {
    file: String,
    at: usize,
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
        let (mut apart, mut kept): (BTreeSet<u32>, BTreeSet<String>) = Default::default();
        for round in 1..=MOST_ROUNDS {
            let due: Vec<&Mutant> = mutants
                .iter()
                .filter(|mutant| !apart.contains(&mutant.id) && !outcomes.contains_key(&mutant.id))
                .collect();
            let places = self.write(mutants, &due, &kept, &mut apart, outcomes)?;
            let refused = match self.compile()? {
                Compiled::Good(built) => return Ok((built, apart.into_iter().collect())),
                Compiled::Bad(refused) => refused,
            };
            println!("round {round}: {} errors", refused.len());
            let mut known = false;
            for one in &refused {
                known |= self.blame(one, &places, (&mut apart, &mut kept), outcomes);
            }
            if !known {
                let texts: Vec<&str> = refused.iter().map(|one| one.text.as_str()).collect();
                bail!("the woven crate does not compile:\n{}", texts.join("\n"));
            }
        }
        bail!("the woven crate does not compile after {MOST_ROUNDS} rounds")
    }

    /// Finds whom an error belongs to; whether that is something new.
    fn blame(
        &self,
        refused: &Refused,
        places: &BTreeMap<u32, Vec<u32>>,
        (apart, kept): (&mut BTreeSet<u32>, &mut BTreeSet<String>),
        outcomes: &mut BTreeMap<u32, Outcome>,
    ) -> bool {
        let is_constant = refused.code.as_ref().is_some_and(|code| CONSTANT.contains(&code.as_str()));
        if is_constant && let Some(name) = ordinary(&refused.text) {
            return kept.insert(name);
        }
        let text = std::fs::read_to_string(self.tree.join(&refused.file)).unwrap_or_default();
        match weave::culprit(&text, refused.at) {
            Some(Culprit::Mutant(id)) if !is_constant => outcomes.insert(id, Outcome::Unviable).is_none(),
            Some(Culprit::Mutant(id)) => apart.insert(id),
            Some(Culprit::Place(id)) => {
                let before = apart.len();
                apart.extend(places.get(&id).into_iter().flatten());
                apart.len() > before
            }
            None => false,
        }
    }

    /// Writes the woven files; which mutants share a place.
    fn write(
        &self,
        all: &[Mutant],
        due: &[&Mutant],
        kept: &BTreeSet<String>,
        apart: &mut BTreeSet<u32>,
        outcomes: &mut BTreeMap<u32, Outcome>,
    ) -> Result<BTreeMap<u32, Vec<u32>>> {
        // A file that has none left is written, too: without them.
        let mut files: BTreeMap<&str, Vec<&Mutant>> =
            all.iter().map(|mutant| (mutant.file.as_str(), Vec::new())).collect();
        for mutant in due {
            files.entry(&mutant.file).or_default().push(mutant);
        }
        let lib = format!("{}/src/lib.rs", self.folder);
        files.entry(&lib).or_default();
        let most = all.iter().map(|mutant| mutant.id).max().unwrap_or(0) + 1;
        let mut places = BTreeMap::new();
        for (file, mutants) in files {
            let original = self.original(file)?;
            let mut woven = weave::weave(&original, &mutants, kept).with_context(|| file.to_owned())?;
            apart.extend(woven.apart);
            outcomes.extend(woven.unviable.into_iter().map(|id| (id, Outcome::Unviable)));
            places.extend(woven.places);
            if file == lib {
                woven.text.push_str(&ASKED.replace("COUNT", &most.to_string()));
            }
            std::fs::write(self.tree.join(file), woven.text).with_context(|| file.to_owned())?;
        }
        Ok(places)
    }

    fn original(&self, file: &str) -> Result<String> {
        self.originals.get(file).cloned().with_context(|| format!("{file} was not there"))
    }

    /// Compiles one mutant by itself, as `cargo mutants` does, and runs every test.
    pub(crate) fn alone(&self, mutant: &Mutant) -> Result<Outcome> {
        let woven = std::fs::read_to_string(self.tree.join(&mutant.file))?;
        let original = self.original(&mutant.file)?;
        let range = Lines::of(&original).range(mutant).context("a mutant lies outside its file")?;
        let mut changed = original;
        changed.replace_range(range, &mutant.replacement);
        if mutant.file.ends_with("src/lib.rs") {
            changed.push_str(&ASKED.replace("COUNT", "1"));
        }
        std::fs::write(self.tree.join(&mutant.file), changed)?;
        let outcome = match self.compile()? {
            Compiled::Bad(_) => Outcome::Unviable,
            Compiled::Good(built) => Tests::all(&built)?,
        };
        std::fs::write(self.tree.join(&mutant.file), woven)?;
        Ok(outcome)
    }

    fn compile(&self) -> Result<Compiled> {
        let arguments = [
            "test",
            "--locked",
            "-p",
            &self.package,
            "--lib",
            "--tests",
            "--no-run",
            "--message-format=json",
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

/// Where an error points.
fn places(error: &Diagnostic) -> Vec<Refused> {
    let primary = error.spans.iter().filter(|span| span.is_primary);
    primary
        .map(|span| Refused {
            file: span.file_name.clone(),
            at: span.byte_start as usize,
            code: error.code.as_ref().map(|code| code.code.clone()),
            text: error.rendered.clone().unwrap_or_default(),
        })
        .collect()
}
