//! SIGKILL for a process, at a moment.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};

use task_process::Program;

/// Kills a process of ours when its time has come, unless it is disarmed before.
#[derive(Debug)]
pub(super) struct Killer {
    disarm: SyncSender<()>,
    killed: JoinHandle<Result<bool>>,
}

impl Killer {
    /// Arms it. The process must be a child that was not waited for, so that its id is not another's.
    pub(super) fn after(pid: u32, delay: Duration) -> Self {
        let (disarm, disarmed) = sync_channel::<()>(1);
        let killed = std::thread::spawn(move || match disarmed.recv_timeout(delay) {
            Err(RecvTimeoutError::Timeout) => {
                Ok(Program::new("kill", &["-KILL", &pid.to_string()]).output()?.success)
            }
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(false),
        });
        Self { disarm, killed }
    }

    /// Waits for its moment; whether it killed.
    pub(super) fn wait(self) -> Result<bool> {
        let Self { disarm, killed } = self;
        let done = killed.join().map_err(|_| anyhow!("the killer failed"))?;
        drop(disarm);
        done
    }

    /// Lets the process live, if it still does; whether it was killed.
    pub(super) fn disarm(self) -> Result<bool> {
        let _received = self.disarm.try_send(());
        self.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_kills_at_its_moment_and_not_after_it_was_disarmed() {
        let mut endless = Program::new("sleep", &["1000"]).spawn().unwrap();
        assert!(!Killer::after(endless.pid(), Duration::from_secs(1000)).disarm().unwrap());
        assert!(Killer::after(endless.pid(), Duration::ZERO).wait().unwrap());
        assert_eq!(endless.ended_by().unwrap(), Some(9));
    }
}
