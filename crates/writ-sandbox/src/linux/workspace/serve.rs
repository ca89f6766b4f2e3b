//! Programs that stay: servers of tools, which somebody talks to over their standard input and output.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;
use tokio::sync::oneshot;
use writ_policy::permit::Permit;
use writ_types::action::{Action, Exec, ExecProfile};
use writ_types::unit::Timestamp;

use super::Workspace;
use crate::error::SandboxError;
use crate::exec::{ExecOptions, WayOut};
use crate::linux::command::{check, check_network, result};
use crate::linux::run::Launch;
use crate::serve::{Ended, ServeOptions, Served};

/// How long a server runs at most: whoever started it ends it long before (a hundred days).
const TIME_MAX: Duration = Duration::from_secs(100 * 24 * 60 * 60);
/// How long a server waits for its folder.
const FOLDER_WAIT: Duration = Duration::from_secs(2);
/// The bytes kept of what a server writes to standard error; more is read and lost.
const ERRORS_MAX: u64 = 64 * 1024;

impl Workspace {
    /// Starts a server: [`Action::Exec`] in the profile `Server`. It has this folder to itself until it has ended, and
    /// ends with everything that it has started when what is returned is dropped.
    ///
    /// A program that cannot be executed has started as far as this says: its streams end at once, and
    /// [`Ended::wait`] says why.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the command cannot be started as it is written, if another
    /// server has the folder, or if the sandbox cannot be made.
    pub async fn serve(
        &self,
        permit: Permit,
        now: Timestamp,
        options: ServeOptions,
    ) -> Result<Served, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::Exec(exec) = action else { return Err(SandboxError::WrongAction { found }) };
        if exec.profile != ExecProfile::Server || self.project.is_some() {
            return Err(SandboxError::BadCommand { why: "this is no server in a folder of its own".into() });
        }
        self.run_server(exec, options).await
    }

    pub(crate) async fn run_server(
        &self,
        mut exec: Exec,
        options: ServeOptions,
    ) -> Result<Served, SandboxError> {
        check(&exec)?;
        put_in(&mut exec.env, &options);
        let (walls, rung) = self.sandbox.walls().await?;
        let way_out = WayOut { certificate: options.certificate, ..WayOut::default() };
        let watched = ExecOptions { network: options.network, way_out, ..ExecOptions::default() };
        let cancel = watched.cancel.clone();
        check_network(&exec, &watched, walls)?;
        let busy = |_| SandboxError::BadCommand { why: "another server has its folder".into() };
        // One that was killed lets go of it when everybody in it is gone.
        let hold = tokio::time::timeout(FOLDER_WAIT, Arc::clone(&self.write).lock_owned());
        let hold = hold.await.map_err(busy)?;
        let (talk, talking) = oneshot::channel();
        let launch = Launch {
            time: TIME_MAX,
            keep: ERRORS_MAX,
            kill_above: u64::MAX,
            again: false,
            hold: Some(hold),
            talk: Some(talk),
            ..self.launch(walls, exec, watched, None)?
        };
        let sandbox = Arc::clone(&self.sandbox);
        let kill = cancel.clone().drop_guard();
        let task = tokio::spawn(async move { result(sandbox.run(launch).await?, rung) });
        let mut ended = Ended::new(task, kill);
        match talking.await {
            Ok(talk) => Ok(Served { input: talk.input, output: talk.output, ended }),
            // It could not be made; nobody has its streams.
            Err(_dropped) => Err(match ended.wait().await {
                Err(error) => error,
                Ok(_) => SandboxError::Cancelled,
            }),
        }
    }
}

/// Puts secrets in the place of the variables that name them.
fn put_in(env: &mut BTreeMap<String, String>, options: &ServeOptions) {
    for (name, secret) in &options.secrets {
        if let Some(value) = env.get_mut(name) {
            *value = secret.expose_secret().to_owned();
        }
    }
}
