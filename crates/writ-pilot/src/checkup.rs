//! A look for what is wrong with the autopilot of a project: git, settings, gates, work trees, locks and branches, each with its remedy.
//!
//! What is mended on request loses nothing: commits stay below `refs/writ/archive/`, and with them what was never committed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use writ_autopilot::check::ScriptVerdict;
use writ_autopilot::unit_id::UnitId;
use writ_runtime::pilot::{PilotHands, TriedProgram};
use writ_sandbox::git::refs::{list_refs, read_ref};
use writ_sandbox::git::worktrees::{PilotTree, TreeHead, find_tree, forget_tree, list_trees};
use writ_sandbox::git::{BranchName, GitFault, GitProject};
use writ_store::reads::UnitReads as _;
use writ_store::units::MAX_UNITS;
use writ_types::api::pilot::{FindingVerdict, PilotFinding, PilotFindings};
use writ_types::error::ToReport as _;
use writ_types::work::CheckEnd;

use crate::config::{CONFIG_FILE, GateMoment, PilotConfig, load_config};
use crate::drive::{argv_of, judge_gate, mark_of};
use crate::project::{OpenProject, OwnerFiles};
use crate::prompts::PromptSet;
use crate::service::UnitWork;
use crate::skills::read_skills;
use crate::workspace::base_ref;

/// The prefix of the branches of slices.
const BRANCHES: &str = "refs/heads/writ/";
/// The longest text of a finding, in characters.
const MAX_TEXT_CHARS: usize = 300;

/// Findings while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<PilotFinding>);

impl Findings {
    fn add(&mut self, name: &str, verdict: FindingVerdict, text: impl Into<String>, hint: impl Into<String>) {
        let text: String = text.into().replace(['\n', '\r'], " ").chars().take(MAX_TEXT_CHARS).collect();
        let (name, hint) = (name.to_owned(), hint.into());
        self.0.push(PilotFinding { name, verdict, text, hint, can_fix: false, fixed: false });
    }

    fn good(&mut self, name: &str, text: impl Into<String>) {
        self.add(name, FindingVerdict::Good, text, "");
    }

    fn warn(&mut self, name: &str, text: impl Into<String>, hint: impl Into<String>) {
        self.add(name, FindingVerdict::Warn, text, hint);
    }

    fn bad(&mut self, name: &str, text: impl Into<String>, hint: impl Into<String>) {
        self.add(name, FindingVerdict::Bad, text, hint);
    }

    /// Notes something that can be mended; `mended`: that was tried, with this result.
    fn fixable(
        &mut self,
        name: &str,
        text: impl Into<String>,
        hint: &str,
        mended: Option<Result<(), String>>,
    ) {
        match mended {
            None => self.warn(name, text, format!("{hint}; `--fix` does it, and loses nothing")),
            Some(Ok(())) => self.add(name, FindingVerdict::Good, text, ""),
            Some(Err(why)) => self.bad(name, format!("{}: {why}", text.into()), hint),
        }
        if let Some(last) = self.0.last_mut() {
            last.can_fix = true;
            last.fixed = last.verdict == FindingVerdict::Good;
        }
    }
}

/// Looks at the repository and settings of a project that is open in this process, or of one that is not. Nothing that works is touched.
pub(crate) async fn check_project(
    hands: &PilotHands,
    (folder, name): (&Path, &str),
    open: Option<Arc<OpenProject>>,
    fix: bool,
) -> (Findings, Option<PilotConfig>) {
    let mut found = Findings::default();
    let config = check_settings(&mut found, folder);
    match &open {
        Some(project) => {
            let git = project.git.project();
            found.good("git", format!("git {}.{}", git.version().0, git.version().1));
            check_skills(&mut found, git, &project.target).await;
            check_branches(&mut found, project, fix).await;
            check_trees(&mut found, (git, Some(project)), fix).await;
        }
        None => match GitProject::open_project(folder).await {
            Ok(git) => {
                found.good("git", format!("git {}.{}", git.version().0, git.version().1));
                if let Some(target) = check_target(&mut found, &git, config.as_ref()).await {
                    check_skills(&mut found, &git, &target).await;
                }
                check_trees(&mut found, (&git, None), fix).await;
                check_idle_branches(&mut found, hands, (&git, name)).await;
            }
            Err(fault) => {
                let report = fault.report();
                found.bad("git", report.inside, report.hint);
            }
        },
    }
    (found, config)
}

/// Tries the gates, which may take minutes, and says whether anything is wrong.
pub(crate) async fn check_programs(
    hands: &PilotHands,
    (folder, owner): (&Path, &OwnerFiles),
    (mut found, config): (Findings, Option<PilotConfig>),
) -> PilotFindings {
    if let Some(config) = &config {
        check_gates(&mut found, hands, (folder, config, owner.hidden_tests.as_deref())).await;
    }
    // A warning is a reason to look, too: a script that goes on over it would never be read (SF 25).
    let healthy = found.0.iter().all(|one| one.verdict == FindingVerdict::Good);
    PilotFindings { healthy, checks: found.0 }
}

fn check_settings(found: &mut Findings, folder: &Path) -> Option<PilotConfig> {
    if !folder.join(CONFIG_FILE).is_file() {
        found.bad("settings", format!("there is no {CONFIG_FILE}"), "`writ pilot init` writes one");
    }
    // The project's alone: a mistake in the owner's file is one of all projects, and `status` shows it.
    let config = match load_config(None, folder) {
        Ok(config) => config,
        Err(error) => {
            let report = error.report();
            found.bad("settings", report.inside, report.hint);
            return None;
        }
    };
    match PromptSet::load_for(folder) {
        Ok(_) => found.good("settings", "settings and prompts can be read"),
        Err(error) => {
            let report = error.report();
            found.bad("prompts", report.inside, report.hint);
        }
    }
    Some(config)
}

/// Looks for the branch that work is merged into, and returns it if it has commits.
async fn check_target(
    found: &mut Findings,
    git: &GitProject,
    config: Option<&PilotConfig>,
) -> Option<BranchName> {
    let named = config.and_then(|config| config.target_branch.as_deref());
    let branch = match named {
        Some(name) => BranchName::parse_name(name).map(Some),
        None => git.current_branch().await,
    };
    let hint = "check a branch out, or name one as `target_branch`";
    match branch {
        Ok(Some(branch)) => match read_ref(git, &branch.to_ref()).await {
            Ok(Some(_)) => {
                found.good("target", format!("work is merged into {branch}"));
                return Some(branch);
            }
            Ok(None) => {
                found.bad("target", format!("the branch {branch} has no commit"), "make a first commit")
            }
            Err(fault) => found.bad("target", fault.report().inside, hint),
        },
        Ok(None) => found.bad("target", "no branch is checked out", hint),
        Err(fault) => found.bad("target", fault.report().inside, hint),
    }
    None
}

/// Reads the skills of the target branch. A project without any has none to look at.
async fn check_skills(found: &mut Findings, git: &GitProject, target: &BranchName) {
    let read = match read_ref(git, &target.to_ref()).await {
        Ok(Some(commit)) => read_skills(git, &commit).await,
        Ok(None) => return,
        Err(fault) => Err(fault),
    };
    match read {
        Ok(read) => {
            if !read.skills.is_empty() {
                let names: Vec<&str> = read.skills.iter().map(|(_, skill)| skill.name.as_str()).collect();
                found.good("skills", format!("can be read on {target}: {}", names.join(", ")));
            }
            for remark in read.remarks {
                found.good("skills", remark);
            }
            for fault in read.faults {
                found.warn("skills", fault, "mend it on the target branch: until then no agent is shown it");
            }
        }
        Err(fault) => found.bad("skills", fault.report().inside, fault.report().hint),
    }
}

/// Looks at the work trees of the harness.
async fn check_trees(found: &mut Findings, (git, open): (&GitProject, Option<&Arc<OpenProject>>), fix: bool) {
    let trees = match list_trees(git).await {
        Ok(trees) => trees,
        Err(fault) => return found.bad("worktrees", fault.report().inside, fault.report().hint),
    };
    // A person's own work trees are none of the autopilot's business.
    let own = git.top_dir().join(".writ");
    let is_own = |path: &Path| match open {
        Some(project) => path.parent() == Some(project.git.workspaces_dir()),
        None => path.starts_with(&own),
    };
    let mut faults = 0_usize;
    let mut count = 0_usize;
    for tree in trees.iter().filter(|tree| is_own(&tree.path)) {
        count += 1;
        let shown = tree.path.display().to_string();
        if !tree.is_there {
            faults += 1;
            let branch = match &tree.head {
                TreeHead::Branch(branch) => format!(" of {branch}"),
                TreeHead::Detached(_) | TreeHead::Other(_) => String::new(),
            };
            // Git's record alone: the commits are on the branch, and the folder is made again when it is needed.
            let mended = if fix && is_idle(open) { Some(forget_tree(git, &tree.path).await) } else { None };
            let mended = mended.map(|done| done.map_err(|fault| fault.report().inside));
            found.fixable(
                "worktrees",
                format!("the folder {shown}{branch} is gone, and git knows it still"),
                "remove the record with `git worktree remove`",
                mended,
            );
            continue;
        }
        let Ok(pilot_tree) = find_tree(git, &tree.path) else { continue };
        if pilot_tree.admin_dir().join("index.lock").exists() {
            faults += 1;
            let mended = if fix && is_idle(open) { Some(remove_lock(&pilot_tree)) } else { None };
            found.fixable(
                "locks",
                format!("the index of {shown} is locked: a git that was killed has left it, or one runs"),
                "remove `index.lock` once no git runs there",
                mended,
            );
        }
    }
    if faults == 0 {
        found.good("worktrees", format!("{count} work trees of the autopilot, each in order"));
    }
}

/// Returns true if no attempt of the project runs in this process.
fn is_idle(open: Option<&Arc<OpenProject>>) -> bool {
    open.is_none_or(|project| project.live().is_empty() && project.ends().list().is_empty())
}

fn remove_lock(tree: &PilotTree) -> Result<(), String> {
    match tree.remove_old_lock() {
        Ok(true) => Ok(()),
        Ok(false) => Err("it is too young to be that of a killed git".to_owned()),
        Err(fault) => Err(fault.report().inside),
    }
}

/// Returns the branches of the harness, with the slices that they belong to by their names.
async fn list_branches(git: &GitProject) -> Result<Vec<BranchName>, GitFault> {
    let all = list_refs(git, BRANCHES).await?;
    let names = all.keys().filter_map(|name| name.as_str().strip_prefix("refs/heads/"));
    Ok(names.filter_map(|name| BranchName::parse_name(name).ok()).collect())
}

/// Looks for branches of an open project that no open unit has.
async fn check_branches(found: &mut Findings, project: &Arc<OpenProject>, fix: bool) {
    let git = project.git.project();
    let (branches, lines) = match list_branches(git).await {
        Ok(branches) => (branches, project.hands.store().unit_lines(&project.name, MAX_UNITS).await),
        Err(fault) => return found.bad("branches", fault.report().inside, fault.report().hint),
    };
    let lines = match lines {
        Ok(lines) => lines,
        Err(error) => return found.bad("branches", error.to_string(), error.report().hint),
    };
    let mut used: BTreeSet<String> = BTreeSet::new();
    let mut ended: BTreeMap<String, UnitId> = BTreeMap::new();
    for line in &lines {
        let Ok(id) = line.id.parse::<UnitId>() else { continue };
        let Ok(work) = project.work_of(id).await else { continue };
        // A task has no branch of its own: its slice has one.
        if work.unit != line.id {
            continue;
        }
        if line.is_over {
            ended.insert(work.branch.to_string(), id);
        } else {
            used.insert(work.branch.to_string());
        }
    }
    // Those of ended units are left where a crash has come between the end and the removal.
    let mut orphans = 0_usize;
    for branch in branches.iter().filter(|branch| !used.contains(branch.as_str())) {
        orphans += 1;
        // Made with the branch: one without it is a person's.
        let is_own = match base_ref(branch) {
            Ok(base) => matches!(read_ref(git, &base).await, Ok(Some(_))),
            Err(_) => false,
        };
        if !is_own {
            found.warn(
                "branches",
                format!("{branch} has a name of the autopilot, and is not its own"),
                "rename it if a slice of this name is to be worked on: the autopilot overwrites none",
            );
            continue;
        }
        let unit = ended.get(branch.as_str()).map(ToString::to_string).unwrap_or_else(|| branch.to_string());
        // As with work trees: what is being handed out or ended now may be the branch of a moment ago.
        let mended = if fix && is_idle(Some(project)) {
            let work = UnitWork { unit, branch: branch.clone() };
            let done = project.git.remove_workspace(&work, &project.target).await;
            Some(done.map(drop).map_err(|error| error.report().inside))
        } else {
            None
        };
        found.fixable(
            "branches",
            format!("no open unit has the branch {branch}"),
            "archive it: its commits stay below `refs/writ/archive/`",
            mended,
        );
    }
    if orphans == 0 {
        found.good("branches", format!("{} branches of slices, each of an open unit", branches.len()));
    }
}

/// Looks at the branches of a project that is not open: nothing is judged there without its units.
async fn check_idle_branches(found: &mut Findings, hands: &PilotHands, (git, name): (&GitProject, &str)) {
    let is_known = matches!(hands.store().pilot_session(name).await, Ok(Some(_)));
    match list_branches(git).await {
        Ok(branches) if branches.is_empty() => found.good("branches", "no branch of a slice is there"),
        Ok(branches) if is_known => found.warn(
            "branches",
            format!("{} branches of slices; the project is not open", branches.len()),
            "`writ pilot status` opens it; look again then",
        ),
        Ok(branches) => found.warn(
            "branches",
            format!("{} branches with names of the autopilot, and nothing was planned here", branches.len()),
            "look at them with `git branch --list 'writ/*'`",
        ),
        Err(fault) => found.bad("branches", fault.report().inside, fault.report().hint),
    }
}

/// Tries every gate on the project as it lies in its folder.
async fn check_gates(
    found: &mut Findings,
    hands: &PilotHands,
    (folder, config, hidden_tests): (&Path, &PilotConfig, Option<&Path>),
) {
    for (name, moment) in [("slice", GateMoment::Slice), ("merge", GateMoment::Merge)] {
        let is_there = config
            .gates
            .iter()
            .any(|gate| gate.at == moment || (moment == GateMoment::Merge && gate.at == GateMoment::Slice));
        if !is_there {
            found.bad(
                "gates",
                format!("no gate proves anything for {name}: every unit would pause there"),
                format!("add a `[[gate]]` with `at = \"{name}\"` that runs tests"),
            );
        }
    }
    for gate in &config.gates {
        let name = format!("gate {}", gate.name);
        // Its tests are laid over a merged tree, and over nothing that a person or an agent could read.
        if let Some(tests) = &gate.hidden {
            let is_there = hidden_tests.is_some_and(|root| root.join(tests).is_dir());
            if is_there {
                found.good(&name, format!("is tried at merges alone, with the hidden tests '{tests}'"));
            } else {
                let hint = "put them below `hidden-tests` in Writ's own folder";
                found.bad(&name, format!("there are no hidden tests '{tests}'"), hint);
            }
            continue;
        }
        let mark = mark_of(hands);
        let argv = argv_of(gate, &mark);
        let tried = TriedProgram {
            folder: folder.to_owned(),
            name: gate.name.clone(),
            argv,
            env: BTreeMap::from([("WRIT_GATE".to_owned(), gate.name.clone())]),
            stdin: None,
            secs: u32::try_from(gate.timeout.as_secs()).unwrap_or(u32::MAX),
        };
        // In the sandbox, as at work: a tool that is there on the host alone would be found too late.
        match hands.try_program(tried).await {
            Ok(Ok(ended)) => {
                let judged = judge_gate(gate, &ended, &mark);
                let words = &judged.summary;
                if judged.verdict == ScriptVerdict::Pass {
                    found.good(&name, format!("passes today, in {} ms", ended.took_ms));
                } else if matches!(ended.end, CheckEnd::NotRun { .. }) {
                    let hint = "install the tool where the sandbox sees it, or correct the command";
                    found.bad(&name, format!("does not start: {words}"), hint);
                } else {
                    let hint = "a gate that does not pass on the project as it is holds every unit up";
                    found.warn(&name, format!("does not pass today: {words}"), hint);
                }
            }
            Ok(Err(why)) => {
                found.bad(&name, format!("does not run: {why}"), "`writ doctor` looks at the sandbox")
            }
            Err(report) => found.bad(&name, report.inside, report.hint),
        }
    }
}
