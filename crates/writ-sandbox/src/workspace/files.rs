//! Files of the work folder, through the worker inside the sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use writ_policy::permit::{Permit, Saving};
use writ_types::action::{Action, Place};
use writ_types::digest::Digest;
use writ_types::unit::Timestamp;

use super::Workspace;
use crate::error::SandboxError;
use crate::exec::{Ending, ExecOptions};
use crate::file::{FILE_TIME_MAX_MS, FileFault, FileSnapshot, LARGE_MAX, ReadResult, SAVE_MAX, WrittenFile};
use crate::file_request::{FileReply, FileRequest, REPLY_MAX, cut_text};
use crate::inside::WORK;
use crate::outbox::OutgoingFile;
use crate::runner::{FolderAccess, RunJob, RunLimits, RunRequest};

impl Workspace {
    /// Reads, lists or searches: [`Action::ReadFile`].
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if there is no such file, or if the sandbox cannot be made.
    pub async fn read_file(&self, permit: Permit, now: Timestamp) -> Result<ReadResult, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::ReadFile(read) = action else { return Err(SandboxError::WrongAction { found }) };
        let reply = self.ask_worker(FileRequest::Read(read)).await?;
        let FileReply::Read(result) = reply else { return Err(reply_error(&reply)) };
        Ok(result)
    }

    /// Writes or deletes one file of the overlay: [`Action::WriteFile`] with [`Place::Overlay`].
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the file is not what the change was made for, or if the
    /// sandbox cannot be made.
    pub async fn write_file(&self, permit: Permit, now: Timestamp) -> Result<WrittenFile, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::WriteFile(write) = action else { return Err(SandboxError::WrongAction { found }) };
        if write.place != Place::Overlay {
            return Err(SandboxError::WrongAction { found });
        }
        // One file at a time, since several could be half done.
        let [change] = <[_; 1]>::try_from(write.changes)
            .map_err(|_| FileFault::Unsupported { why: "it is not one change".into() })?;
        let reply = self
            .ask_worker(FileRequest::Write { change, content: write.content, encoding: write.encoding })
            .await?;
        let FileReply::Written(written) = reply else { return Err(reply_error(&reply)) };
        Ok(written)
    }

    /// Saves what a fetch brought to the file that its permit names, with the folders on the way. A file that is there
    /// is replaced as a whole.
    ///
    /// # Errors
    ///
    /// If it is larger than [`SAVE_MAX`], or [`LARGE_MAX`] where the permit says so, if something else than a file stands there, or if the
    /// sandbox cannot be made.
    pub async fn save_file(&self, saving: Saving, content: Vec<u8>) -> Result<WrittenFile, SandboxError> {
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let most = if saving.is_large() { LARGE_MAX } else { SAVE_MAX };
        let path = saving.open();
        if bytes > most {
            return Err(FileFault::TooLarge { path, bytes }.into());
        }
        self.save_at(path, bytes, content).await
    }

    pub(crate) async fn save_at(
        &self,
        path: String,
        bytes: u64,
        content: Vec<u8>,
    ) -> Result<WrittenFile, SandboxError> {
        let reply = self.run_request(FileRequest::Save { path, bytes }, Some(content), true).await?;
        let FileReply::Written(written) = reply else { return Err(reply_error(&reply)) };
        Ok(written)
    }

    /// Takes a file out, to be sent to a person: [`Action::SendFile`]. It must be the one that the permit was
    /// given for.
    ///
    /// # Errors
    ///
    /// If the permit is too old or for something else, if the file is missing, has changed or is larger than
    /// [`FILE_MAX`](crate::file::FILE_MAX), or if the sandbox cannot be made.
    pub async fn take_file(&self, permit: Permit, now: Timestamp) -> Result<OutgoingFile, SandboxError> {
        let action = permit.open(now)?.prepared.action;
        let found = action.kind();
        let Action::SendFile(send) = action else { return Err(SandboxError::WrongAction { found }) };
        let path = send.path;
        // Read anew: the file may have changed since the permit was given.
        let Some(file) = self.peek_file(&path).await? else {
            return Err(FileFault::NotFound { path }.into());
        };
        // The worker's own digest is its word only.
        if Digest::of_bytes(&file.bytes) != send.digest {
            return Err(FileFault::Content { path }.into());
        }
        Ok(OutgoingFile { path, content: file.bytes })
    }

    /// Looks at a file, so that a change to it can be prepared. Reads only, in the sandbox: no permit is needed.
    ///
    /// # Errors
    ///
    /// If it is not a file, too large, outside, or if the sandbox cannot be made.
    pub async fn peek_file(&self, path: &str) -> Result<Option<FileSnapshot>, SandboxError> {
        let reply = self.ask_worker(FileRequest::Peek(path.to_owned())).await?;
        let FileReply::Peek(found) = reply else { return Err(reply_error(&reply)) };
        let Some(found) = found else { return Ok(None) };
        let bytes = hex::decode(&found.content).map_err(|_| reply_error(&"digits"))?;
        Ok(Some(FileSnapshot { digest: found.digest, bytes, executable: found.executable }))
    }

    /// Asks the worker. Readers share the folder; a writer has it for itself.
    pub(crate) async fn ask_worker(&self, request: FileRequest) -> Result<FileReply, SandboxError> {
        let writes = matches!(request, FileRequest::Write { .. } | FileRequest::Save { .. });
        self.run_request(request, None, writes).await
    }

    /// Mounts the work folder for writing, and looks whether that can be done: what can be read need not be.
    pub(super) async fn probe_overlay(&self) -> Result<(), SandboxError> {
        self.run_request(FileRequest::Peek(".writ-probe".into()), None, true).await.map(drop)
    }

    /// Asks the worker, and hands it bytes over standard input; `writes`: with the folder mounted for writing.
    async fn run_request(
        &self,
        request: FileRequest,
        input: Option<Vec<u8>>,
        writes: bool,
    ) -> Result<FileReply, SandboxError> {
        let runner = &self.shared.runner;
        // Before the lock: a machine that runs nothing refuses at once.
        runner.rung().await?;
        let hold: Option<OwnedMutexGuard<()>> =
            if writes { Some(self.lock_folder().await.ok_or(SandboxError::Cancelled)?) } else { None };
        let run = RunRequest {
            job: RunJob::File(request),
            folders: self.run_folders(None),
            access: if writes { FolderAccess::Write } else { FolderAccess::Read },
            cwd: WORK.to_owned(),
            variables: BTreeMap::new(),
            network: false,
            stdin: input,
            limits: RunLimits {
                time: Duration::from_millis(FILE_TIME_MAX_MS),
                keep: REPLY_MAX,
                kill_above: REPLY_MAX,
                disk: writes,
            },
            options: ExecOptions::default(),
            expect_more: true,
            hold,
            talk: None,
        };
        let done = runner.run(run).await?;
        if let Ending::Killed { limit } = done.ending {
            return Err(SandboxError::Stopped { why: limit.as_str().to_owned() });
        }
        // The worker has read hostile files: what it says is data of a known shape or nothing.
        match serde_json::from_slice(&done.stdout.bytes) {
            Ok(FileReply::Fault(fault)) => Err(fault.into()),
            Ok(reply) => Ok(reply),
            Err(_) => Err(reply_error(&done.ending)),
        }
    }
}

/// Returns the error for a reply that the worker cannot have meant.
fn reply_error(found: &impl std::fmt::Debug) -> SandboxError {
    let why = cut_text(&format!("{found:?}"), 200).to_owned();
    SandboxError::Helper { doing: "reply", why }
}
