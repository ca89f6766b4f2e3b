//! The engine of the soak: started, killed, stopped, and started again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::sync::watch;

use super::super::killer::Killer;
use super::super::random::Random;
use super::super::{AGAIN, IDLE_EXIT, LATEST, SIGKILL};
use crate::home::{Home, until_ready};
use crate::socket::Server;
use task_process::{Program, Running};

/// The time that an engine may take to stop in good order: longer than turns and requests get.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// The starts and stops of engines.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    pub(super) kills: u32,
    /// Of those, kills while something was to be answered.
    pub(super) in_turn: u32,
    /// Of those, kills of an engine that started or recovered.
    pub(super) recovering: u32,
    pub(super) restarts: u32,
    /// The time of each from its start until it was ready.
    pub(super) ready: Vec<Duration>,
    /// The time of each to stop in good order.
    pub(super) stopped: Vec<Duration>,
    /// The number of verifications of the ledger.
    pub(super) verified: u32,
}

/// The engine that runs, and where its clients find it.
#[derive(Debug)]
pub(super) struct Keeper {
    // In this order: the engine ends before its model.
    engine: Running,
    home: Home,
    server: watch::Sender<Option<Server>>,
    lives: Lives,
}

impl Keeper {
    /// Starts the first engine.
    pub(super) fn start(home: Home) -> Result<Self> {
        let engine = home.launch(IDLE_EXIT)?;
        let mut keeper = Self { engine, home, server: watch::Sender::new(None), lives: Lives::default() };
        keeper.open(Instant::now())?;
        Ok(keeper)
    }

    /// Returns the address for clients; `None` while no engine runs.
    pub(super) fn watch(&self) -> watch::Receiver<Option<Server>> {
        self.server.subscribe()
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.engine.pid()
    }

    /// Its home.
    pub(super) const fn home(&self) -> &Home {
        &self.home
    }

    pub(super) const fn lives(&self) -> &Lives {
        &self.lives
    }

    /// Kills it, sometimes the next one too, and starts another.
    pub(super) fn kill(&mut self, random: &mut Random, most: u32, busy: bool) -> Result<()> {
        let killer = Killer::after(self.engine.pid(), Duration::ZERO);
        self.fall(killer)?;
        self.lives.in_turn += u32::from(busy);
        while self.lives.kills < most && random.one_in(AGAIN) {
            self.engine = self.home.launch(IDLE_EXIT)?;
            let killer = Killer::after(self.engine.pid(), random.below(LATEST));
            self.fall(killer)?;
            self.lives.recovering += 1;
        }
        self.restart()
    }

    fn fall(&mut self, killer: Killer) -> Result<()> {
        ensure!(killer.wait()?, "the engine ended before it was killed");
        self.server.send_replace(None);
        let signal = self.engine.ended_by()?;
        ensure!(signal == Some(SIGKILL), "the engine was to be killed, but ended with {signal:?}");
        self.lives.kills += 1;
        Ok(())
    }

    /// Stops it in good order and starts another.
    pub(super) fn stop_and_start(&mut self) -> Result<()> {
        self.stop()?;
        self.lives.restarts += 1;
        self.restart()
    }

    /// Stops it in good order.
    pub(super) fn stop(&mut self) -> Result<()> {
        let (pid, start) = (self.engine.pid(), Instant::now());
        let watch = Killer::after(pid, STOPS_WITHIN);
        ensure!(Program::new("kill", &["-TERM", &pid.to_string()]).output()?.success, "nobody to stop");
        let good = self.engine.wait()?;
        self.server.send_replace(None);
        ensure!(!watch.disarm()?, "the engine did not stop within {} s", STOPS_WITHIN.as_secs());
        ensure!(good, "an engine that was told to stop failed");
        self.lives.stopped.push(start.elapsed());
        self.verify()
    }

    fn restart(&mut self) -> Result<()> {
        let start = Instant::now();
        self.engine = self.home.launch(IDLE_EXIT)?;
        self.open(start)?;
        self.verify()
    }

    /// Waits until it is ready, and tells the clients.
    fn open(&mut self, start: Instant) -> Result<()> {
        until_ready(&mut self.engine)?;
        self.lives.ready.push(start.elapsed());
        self.server.send_replace(Some(self.home.server()?));
        Ok(())
    }

    /// Verifies the ledger as it is.
    pub(super) fn verify(&mut self) -> Result<()> {
        let verified = self.home.writ(&["audit", "verify"]).output()?;
        ensure!(verified.success, "audit verify: {} {}", verified.stdout.trim(), verified.stderr.trim());
        self.lives.verified += 1;
        Ok(())
    }
}
