//! The rules of a session: the home's, narrowed by those of its project.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use writ_policy::rules::{RuleError, RuleSet, RuleSource};
use writ_store::batch::{Batch, Op};
use writ_types::digest::Digest;
use writ_types::entry::{Entry, Fact};
use writ_types::error::{Exit, Report, ToReport as _};

use crate::error::EngineError;
use crate::journal::Journal;
use crate::profile::NamedAgent;
use crate::session::Session;

/// The time limit for reading rule files: files on a mount that has disappeared never arrive.
const READ_TIME: Duration = Duration::from_secs(5);
/// The most readings of rules at once, including those that never end.
pub(crate) const MAX_RULE_READS: usize = 8;

/// Access to the rule files of projects, which other crates provide.
pub trait RuleFiles: fmt::Debug + Send + Sync {
    /// The home's rules and the project's; `None`: the project has none of its own.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or there are too many.
    fn of_project(&self, project: &Path) -> Result<Option<Vec<RuleSource>>, Box<Report>>;

    /// The home's rules.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or there are too many.
    fn of_home(&self) -> Result<Vec<RuleSource>, Box<Report>>;
}

type Reading = Box<dyn FnOnce() -> Result<Option<Vec<RuleSource>>, Box<Report>> + Send>;

fn late() -> Box<Report> {
    let text = "the project's rules could not be read in time";
    let hint = "see whether its folder can be read: a network mount may be broken";
    Box::new(Report::new(Exit::Config, "rules.late", text).with_hint(hint))
}

/// The rules in force.
#[derive(Debug)]
pub(crate) struct Rules {
    journal: Arc<Journal>,
    /// The rules of the home.
    pub(crate) in_force: Arc<RuleSet>,
    files: Arc<dyn RuleFiles>,
    reads: Arc<Semaphore>,
    /// The named agents, some of which narrow the rules.
    agents: Vec<NamedAgent>,
}

impl Rules {
    pub(crate) fn new(
        journal: Arc<Journal>,
        in_force: RuleSet,
        files: Arc<dyn RuleFiles>,
        agents: Vec<NamedAgent>,
    ) -> Self {
        let reads = Arc::new(Semaphore::new(MAX_RULE_READS));
        Self { journal, in_force: Arc::new(in_force), files, reads, agents }
    }

    /// Finds a named agent.
    pub(crate) fn find_agent(&self, name: &str) -> Option<&NamedAgent> {
        self.agents.iter().find(|agent| agent.name == name)
    }

    /// The rules in force in a session.
    pub(crate) fn rules_of(&self, session: Option<&Session>) -> Arc<RuleSet> {
        let own = session.and_then(|session| session.state().rules.clone());
        own.unwrap_or_else(|| Arc::clone(&self.in_force))
    }

    /// Reads the rules of a project, narrowed by those of a named agent; `None`: those of the home are in force.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or cannot stand.
    pub(crate) async fn session_rules(
        &self,
        project: Option<&Path>,
        agent: Option<&NamedAgent>,
    ) -> Result<Option<Arc<RuleSet>>, EngineError> {
        let own = agent.and_then(|agent| agent.rules.as_ref());
        if project.is_none() && own.is_none() {
            return Ok(None);
        }
        let read = async { self.changed(self.read_sources(project, own).await?, self.in_force.digest()) };
        read.await.map_err(EngineError::ProjectRules)
    }

    /// Reads the rule files of a project on a thread of its own: no thread of the runtime waits for a mount. Those of an agent
    /// come last; they can only narrow.
    async fn read_sources(
        &self,
        project: Option<&Path>,
        own: Option<&RuleSource>,
    ) -> Result<Option<Vec<RuleSource>>, Box<Report>> {
        let read = match project {
            Some(project) => self.read_project(project).await?,
            None => None,
        };
        let Some(own) = own else { return Ok(read) };
        let mut sources = match read {
            Some(sources) => sources,
            None => self.files.of_home()?,
        };
        sources.push(own.clone());
        Ok(Some(sources))
    }

    async fn read_project(&self, project: &Path) -> Result<Option<Vec<RuleSource>>, Box<Report>> {
        let reading = self.reading(project)?;
        let (done, sources) = oneshot::channel();
        let begun = std::thread::Builder::new().name("writ-rules".into()).spawn(move || {
            // The receiver may have stopped waiting.
            let _heard = done.send(reading());
        });
        begun.map_err(|_| late())?;
        let sources = tokio::time::timeout(READ_TIME, sources).await.map_err(|_| late())?;
        sources.map_err(|_| late())?
    }

    /// Looks whether the rules of a session's project have changed. Rules that cannot stand change nothing: the last good ones
    /// stay in force.
    ///
    /// # Errors
    ///
    /// If the ledger cannot be written.
    pub(crate) async fn refresh_rules(&self, session: &Session) -> Result<(), EngineError> {
        let named = session.state().answering.agent.clone();
        let own = named.and_then(|name| self.find_agent(&name)).and_then(|agent| agent.rules.as_ref());
        let project = session.terms.project.as_deref();
        if project.is_none() && own.is_none() {
            return Ok(());
        }
        let held = self.rules_of(Some(session)).digest();
        let read = async { self.changed(self.read_sources(project, own).await?, held) };
        let rules = match read.await {
            Ok(Some(rules)) => rules,
            Ok(None) => return Ok(()),
            Err(report) => {
                let error = report.outside;
                tracing::warn!(session = %session.id, error, "the project's rules cannot stand: the last good ones do");
                return Ok(());
            }
        };
        let op = self.rules_entry(session, &rules, "the project's rules have changed");
        self.journal.store.commit(Batch::relaxed(vec![op])).await?;
        session.state().rules = Some(rules);
        Ok(())
    }

    /// The rules in force in a project, if they are other ones than those with the digest `held`.
    fn changed(
        &self,
        sources: Option<Vec<RuleSource>>,
        held: Digest,
    ) -> Result<Option<Arc<RuleSet>>, Box<Report>> {
        let told = |error: RuleError| Box::new(error.report());
        let Some(sources) = sources else {
            return Ok((self.in_force.digest() != held).then(|| Arc::clone(&self.in_force)));
        };
        if RuleSet::digest_of(&sources).map_err(told)? == held {
            return Ok(None);
        }
        RuleSet::load_rules(&sources).map(|rules| Some(Arc::new(rules))).map_err(told)
    }

    /// Returns the function that reads a project's rules; it runs on another thread, since it may never end.
    fn reading(&self, project: &Path) -> Result<Reading, Box<Report>> {
        let place = Arc::clone(&self.reads).try_acquire_owned().map_err(|_| late())?;
        let (files, project) = (Arc::clone(&self.files), project.to_owned());
        Ok(Box::new(move || {
            let _place = place;
            files.of_project(&project)
        }))
    }

    /// The entry that says which rules are in force in a session from here on.
    pub(crate) fn rules_entry(&self, session: &Session, rules: &RuleSet, summary: &str) -> Op {
        let policy = rules.digest();
        let (at, fact) =
            (self.journal.clock.now(), Fact::PolicyChanged { policy, summary: summary.to_owned() });
        Op::Append(Box::new(Entry { at, session: Some(session.id), turn: None, turn_number: 0, fact }))
    }
}
