//! What `cargo xtask bench` measures inside the product's crates: the door, approvals, what is done to values, contexts,
//! the ledger, the filtering proxy, the security proxy, the autopilot's choice, and a model that answers at once. Results are lines of JSON on standard output.

#![expect(clippy::print_stdout, reason = "the results are the output")]

mod measured;

mod approvals;

mod context;

mod door;

mod ledger;

mod model;

mod operations;

mod pilot;

mod presence;

mod proxy;

mod values;

use std::path::PathBuf;

use clap::Parser;

/// Measures one part of Writ, or serves it a model.
#[derive(Debug, Parser)]
enum Task {
    /// Decide about two actions again and again.
    Door {
        /// How many decisions about each are measured.
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: u32,
    },
    /// Let eight race for one approval after the other.
    Approvals {
        /// Where the database is made.
        folder: PathBuf,
        /// How many approvals.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
    },
    /// Mask secrets and follow values in a result of a million bytes.
    Values {
        /// How often.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
    },
    /// Assemble a context of 10,000 messages.
    Context {
        /// How often.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
    },
    /// Fill a ledger in a folder, and verify it.
    Ledger {
        /// Where the database is made.
        folder: PathBuf,
        /// How many entries are appended.
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        rows: u32,
    },
    /// Filter what comes over the listener that is standard input.
    Proxy {
        /// Where the ledger is made.
        folder: PathBuf,
        /// The one host that may be reached; it stands for this machine.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Ask the security proxy for operations over its socket.
    Operations {
        /// Where the databases are made.
        folder: PathBuf,
        /// How many requests of one client are measured; sixteen at once make eight times as many.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        rounds: u32,
    },
    /// Choose among many units, race for claims, and make work trees of a large repository.
    Pilot {
        /// Where databases are made.
        folder: PathBuf,
        /// A repository with a branch `main`, in which `last.txt` is the last file.
        repository: PathBuf,
        /// How many ticks are measured with each number of units.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rounds: u32,
    },
    /// Serve a scripted model over loopback until standard input ends.
    Model,
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Door { rounds } => door::run(rounds),
        Task::Approvals { folder, rounds } => approvals::run(&folder, rounds),
        Task::Values { rounds } => values::run(rounds),
        Task::Context { rounds } => context::run(rounds),
        Task::Ledger { folder, rows } => ledger::run(&folder, rows),
        Task::Proxy { folder, host, port } => proxy::run(&folder, &host, port),
        Task::Operations { folder, rounds } => operations::run(&folder, rounds),
        Task::Pilot { folder, repository, rounds } => pilot::run(&folder, &repository, rounds),
        Task::Model => model::run(),
    }
}
