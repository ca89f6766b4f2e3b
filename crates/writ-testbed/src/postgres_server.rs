//! A private cluster of PostgreSQL in a temporary folder, with its own Unix socket and no other address.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, User, chown};
use tempfile::TempDir;

/// The folder with one folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that the cluster is of where the test is root's: PostgreSQL refuses root.
const USER: &str = "postgres";

/// A running cluster. Dropping it stops it.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    folder: TempDir,
    user: Option<(Uid, Gid)>,
}

impl PostgresServer {
    /// Makes a cluster with the user and the database `writ`, without a password, and starts it with these settings
    /// (`name=value`) besides those of a test.
    ///
    /// # Errors
    ///
    /// If PostgreSQL is not installed, or does not start; the message has the end of its log.
    pub fn start(settings: &[&str]) -> io::Result<Self> {
        let programs = find_programs()?;
        let folder = tempfile::Builder::new().prefix("pg-").tempdir()?;
        let user = Uid::effective().is_root().then(find_user).transpose()?;
        if let Some((uid, gid)) = user {
            chown(folder.path(), Some(uid), Some(gid))?;
        }
        let server = Self { programs, folder, user };
        let data = server.data_folder();
        let init =
            ["--no-sync", "--auth=trust", "--username=writ", "--encoding=UTF8", "--locale=C", "--pgdata"];
        server.run("initdb", &init, &[&data])?;
        server.resume(settings)?;
        server.run("createdb", &["--username=writ", "--host"], &[server.folder.path(), Path::new("writ")])?;
        Ok(server)
    }

    /// Starts the cluster again.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub fn resume(&self, settings: &[&str]) -> io::Result<()> {
        let folder = self.folder.path().display();
        let mut options = format!("-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB");
        for setting in settings {
            options.push_str(&format!(" -c {setting}"));
        }
        let log = self.log_file();
        let log_option = format!("--log={}", log.display());
        let start = ["start", "--wait", "--silent", &log_option, &format!("--options={options}"), "--pgdata"];
        self.run("pg_ctl", &start, &[&self.data_folder()]).map_err(|why| {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            io::Error::other(format!("{why}: {}", log.lines().last().unwrap_or_default()))
        })
    }

    /// Stops the cluster at once, as a machine that fails.
    ///
    /// # Errors
    ///
    /// If it cannot be stopped.
    pub fn stop(&self) -> io::Result<()> {
        self.run(
            "pg_ctl",
            &["stop", "--wait", "--silent", "--mode=immediate", "--pgdata"],
            &[&self.data_folder()],
        )
    }

    /// Runs statements with `psql`, and returns what it prints: rows of unaligned columns.
    ///
    /// # Errors
    ///
    /// If a statement fails.
    pub fn query(&self, sql: &str) -> io::Result<String> {
        let mut command = self.command("psql");
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        command
            .args(["--username=writ", "--dbname=writ", "--command", sql, "--host"])
            .arg(self.folder.path());
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Returns what the server itself has written down, which `log_statement` and its like widen.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read_log(&self) -> io::Result<String> {
        std::fs::read_to_string(self.log_file())
    }

    /// The folder of the Unix socket.
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn run(&self, program: &str, arguments: &[&str], paths: &[&Path]) -> io::Result<()> {
        let mut command = self.command(program);
        // A server inherits its output: what waits for the end of a pipe would wait for the server.
        let output = self.folder.path().join(format!("{program}.out"));
        let file = std::fs::File::create(&output)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
        command.args(arguments).args(paths).stdout(file.try_clone()?).stderr(file);
        if command.status()?.success() {
            return Ok(());
        }
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        Err(io::Error::other(format!("{program} failed: {}", text.trim_end())))
    }

    #[expect(clippy::disallowed_types, reason = "tests need a real database, and nothing ships this crate")]
    fn command(&self, program: &str) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).stdin(std::process::Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // A cluster that the test has stopped already is no failure.
        let _stopped = self.stop();
    }
}

/// The programs of the newest version.
fn find_programs() -> io::Result<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(VERSIONS)?
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, programs)| programs.join("initdb").exists())
        .collect();
    versions.sort();
    versions
        .pop()
        .map(|(_, programs)| programs)
        .ok_or_else(|| io::Error::other("PostgreSQL is not installed"))
}

fn find_user() -> io::Result<(Uid, Gid)> {
    let user = User::from_name(USER)?.ok_or_else(|| io::Error::other("there is no user 'postgres'"))?;
    Ok((user.uid, user.gid))
}
