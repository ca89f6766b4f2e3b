//! Numbered migrations with checksums.

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OptionalExtension as _, params};
use writ_types::digest::Digest;

use crate::error::StoreError;
use crate::memory::extra_terms;

/// One step of the schema. Its text is part of the program and never changes once released.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    /// Counted from one, without gaps.
    pub(crate) number: u32,
    /// Its subject.
    pub(crate) name: &'static str,
    /// The statements.
    pub(crate) sql: &'static str,
}

/// Every migration, in order.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "initial", sql: include_str!("schema/0001_initial.sql") },
    Migration {
        number: 2,
        name: "approvals for tasks",
        sql: include_str!("schema/0002_approvals_for_tasks.sql"),
    },
    Migration {
        number: 3,
        name: "standing approvals",
        sql: include_str!("schema/0003_standing_approvals.sql"),
    },
    Migration { number: 4, name: "keys", sql: include_str!("schema/0004_keys.sql") },
    Migration { number: 5, name: "plans", sql: include_str!("schema/0005_plans.sql") },
    Migration { number: 6, name: "kept results", sql: include_str!("schema/0006_kept_results.sql") },
    Migration { number: 7, name: "trusted hosts", sql: include_str!("schema/0007_trusted_hosts.sql") },
    Migration { number: 8, name: "lost wishes", sql: include_str!("schema/0008_lost_wishes.sql") },
    Migration { number: 9, name: "secret memories", sql: include_str!("schema/0009_secret_memories.sql") },
    Migration { number: 10, name: "search terms", sql: include_str!("schema/0010_search_terms.sql") },
    Migration {
        number: 11,
        name: "consumers, jobs and outbox",
        sql: include_str!("schema/0011_consumers_jobs_outbox.sql"),
    },
    Migration { number: 12, name: "operations", sql: include_str!("schema/0012_operations.sql") },
    Migration { number: 13, name: "fleet", sql: include_str!("schema/0013_fleet.sql") },
    Migration { number: 14, name: "fleet proxy", sql: include_str!("schema/0014_fleet_proxy.sql") },
    Migration {
        number: 15,
        name: "ended revocations",
        sql: include_str!("schema/0015_ended_revocations.sql"),
    },
    Migration {
        number: 16,
        name: "context and money",
        sql: include_str!("schema/0016_context_and_money.sql"),
    },
    Migration { number: 17, name: "work items", sql: include_str!("schema/0017_work_items.sql") },
    Migration { number: 18, name: "message files", sql: include_str!("schema/0018_message_files.sql") },
    Migration { number: 19, name: "erased sessions", sql: include_str!("schema/0019_erased_sessions.sql") },
    Migration { number: 20, name: "memory", sql: include_str!("schema/0020_memory.sql") },
    Migration { number: 21, name: "held attempts", sql: include_str!("schema/0021_held_attempts.sql") },
    Migration { number: 22, name: "trust of plans", sql: include_str!("schema/0022_trust_of_plans.sql") },
    Migration { number: 23, name: "erasures", sql: include_str!("schema/0023_erasures.sql") },
    Migration { number: 24, name: "memory rows", sql: include_str!("schema/0024_memory_rows.sql") },
    Migration { number: 25, name: "units", sql: include_str!("schema/0025_units.sql") },
    Migration { number: 26, name: "model results", sql: include_str!("schema/0026_model_results.sql") },
    Migration {
        number: 27,
        name: "circuits and hooks",
        sql: include_str!("schema/0027_circuits_and_hooks.sql"),
    },
    Migration { number: 28, name: "tool runs", sql: include_str!("schema/0028_tool_runs.sql") },
    Migration { number: 29, name: "trace index", sql: include_str!("schema/0029_trace_index.sql") },
    Migration { number: 30, name: "interaction", sql: include_str!("schema/0030_interaction.sql") },
    Migration { number: 31, name: "work domains", sql: include_str!("schema/0031_work_domains.sql") },
];

const TABLE: &str = "CREATE TABLE IF NOT EXISTS migration (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT";

/// Brings the database to the newest schema; each migration is one transaction.
///
/// # Errors
///
/// If the database is newer, an applied migration was changed, or a statement fails.
pub(crate) fn migrate(conn: &mut Connection, migrations: &[Migration]) -> Result<(), StoreError> {
    conn.execute_batch(TABLE)?;
    check_not_newer(conn, migrations)?;
    // Migration 10 fills its column with it; no trigger and no statement of later calls it.
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    conn.create_scalar_function("search_terms", 1, flags, |args| Ok(extra_terms(&args.get::<String>(0)?)))?;
    for migration in migrations {
        let checksum = Digest::of_bytes(migration.sql.as_bytes()).to_string();
        // Taken before the check, so that two processes cannot both apply it.
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let applied: Option<String> = tx
            .query_row("SELECT checksum FROM migration WHERE number = ?1", [migration.number], |row| {
                row.get(0)
            })
            .optional()?;
        match applied {
            Some(found) if found == checksum => {}
            // An edited migration means that the two schemas differ in a way that no statement can see.
            Some(_) => {
                return Err(StoreError::ChangedMigration {
                    number: migration.number,
                    name: migration.name.to_owned(),
                });
            }
            None => {
                tx.execute_batch(migration.sql)?;
                tx.execute(
                    "INSERT INTO migration (number, name, checksum) VALUES (?1, ?2, ?3)",
                    params![migration.number, migration.name, checksum],
                )?;
            }
        }
        tx.commit()?;
    }
    Ok(())
}

pub(crate) fn check_not_newer(conn: &Connection, migrations: &[Migration]) -> Result<(), StoreError> {
    let found: u32 =
        conn.query_row("SELECT coalesce(max(number), 0) FROM migration", [], |row| row.get(0))?;
    let known = migrations.last().map_or(0, |migration| migration.number);
    if found > known { Err(StoreError::NewerSchema { found, known }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use writ_types::error::{Exit, ToReport as _};

    use super::*;

    /// Each file of the folder is one migration, in the order of the numbers of four digits.
    ///
    /// Rows: SIL-099
    #[test]
    fn files_are_numbered_from_one_without_a_gap_and_a_number_counts_once() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schema");
        let entries = std::fs::read_dir(&folder).expect("reads").map(|entry| entry.expect("reads").path());
        let mut files: Vec<std::path::PathBuf> = entries.collect();
        files.sort();
        assert_eq!(files.len(), MIGRATIONS.len());
        for (n, (file, migration)) in (1_u32..).zip(files.iter().zip(MIGRATIONS)) {
            let name = file.file_name().expect("a name").to_string_lossy();
            assert!(name.starts_with(&format!("{n:04}_")) && name.ends_with(".sql"), "{name}");
            assert_eq!(migration.number, n, "{name}");
            assert_eq!(std::fs::read_to_string(file).expect("reads"), migration.sql, "{name}");
        }
        let twice = ["CREATE TABLE a (x INTEGER) STRICT", "CREATE TABLE b (x INTEGER) STRICT"]
            .map(|sql| Migration { number: 1, name: "twice", sql });
        let mut conn = Connection::open_in_memory().expect("opens");
        let error = migrate(&mut conn, &twice).expect_err("refused");
        assert_eq!(error, StoreError::ChangedMigration { number: 1, name: "twice".into() });
    }

    /// Rows: SIL-100 SIL-102
    /// Rows: WIN-201 (in part: a second run changes nothing)
    #[test]
    fn migrations_run_once_and_a_changed_one_is_refused() {
        let mut conn = Connection::open_in_memory().expect("opens");
        migrate(&mut conn, MIGRATIONS).expect("first run");
        migrate(&mut conn, MIGRATIONS).expect("second run changes nothing");
        let mut changed = MIGRATIONS.to_vec();
        changed[0].sql = "CREATE TABLE other (x INTEGER) STRICT";
        let error = migrate(&mut conn, &changed).expect_err("changed file");
        assert_eq!(error, StoreError::ChangedMigration { number: 1, name: "initial".into() });
        let report = error.report();
        assert_eq!(report.exit, Exit::Config);
        assert!(report.outside.contains("migration 1 (initial)"), "{report}");
    }

    /// A database from before consumers opens, its messages are the executor's, and its schema is that of a new one.
    ///
    /// Rows: SF-031 (in part: number, name and order; no time)
    #[test]
    fn an_older_database_opens_and_its_messages_are_the_executors() {
        let mut conn = Connection::open_in_memory().expect("opens");
        migrate(&mut conn, &MIGRATIONS[..10]).expect("the older schema");
        conn.execute_batch(
            "INSERT INTO ledger VALUES (0, x'', 0, NULL, NULL, 0, 'received', x'', x'');
             INSERT INTO session (id, created_at, updated_at, metadata) VALUES ('s', 0, 0, '{}');
             INSERT INTO message (id, session, client_id, entry, record, text, state, not_before)
             VALUES ('m', 's', 'c', 0, '{}', 'hello', 'ready', 0);",
        )
        .expect("rows of then");
        migrate(&mut conn, MIGRATIONS).expect("to the newest");
        let schema = |conn: &Connection| -> Vec<(String, String)> {
            let sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
            let mut statement = conn.prepare(sql).expect("prepares");
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
            rows.map(|row| row.expect("a row")).collect()
        };
        let mut new = Connection::open_in_memory().expect("opens");
        migrate(&mut new, MIGRATIONS).expect("the whole schema");
        assert_eq!(schema(&conn), schema(&new));
        let sql = "SELECT consumer FROM message";
        let consumer: String = conn.query_row(sql, [], |row| row.get(0)).expect("one message");
        assert_eq!(consumer, crate::queue::EXECUTOR);
        for table in [
            "job",
            "outbox",
            "outbox_cursor",
            "used_limit",
            "once",
            "proxy_case",
            "sealed_value",
            "fleet_case",
            "fleet_holder",
            "fleet_message",
            "work_item",
            "work_step",
            "work_attempt",
            "memory_space",
            "memory_question",
            "memory_change",
        ] {
            let sql = format!("SELECT count(*) FROM {table}");
            assert_eq!(conn.query_row(&sql, [], |row| row.get(0)), Ok(0), "{table}");
        }
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let mut conn = Connection::open_in_memory().expect("opens");
        migrate(&mut conn, MIGRATIONS).expect("runs");
        conn.execute("INSERT INTO migration VALUES (99, 'later', '')", []).expect("inserts");
        let known = MIGRATIONS.last().map_or(0, |migration| migration.number);
        assert_eq!(migrate(&mut conn, MIGRATIONS), Err(StoreError::NewerSchema { found: 99, known }));
    }

    /// Rows: WIN-201
    /// Rows: SIL-101 (in part: a failing one is an error)
    #[test]
    fn a_failing_migration_leaves_nothing() {
        let broken: &[Migration] =
            &[Migration { number: 1, name: "broken", sql: "CREATE TABLE a (x INTEGER); CREATE NONSENSE;" }];
        let mut conn = Connection::open_in_memory().expect("opens");
        assert!(migrate(&mut conn, broken).is_err());
        assert!(conn.execute("INSERT INTO a VALUES (1)", []).is_err(), "rolled back");
        migrate(&mut conn, MIGRATIONS).expect("a good one runs afterwards");
        let tables = |conn: &Connection| -> Vec<(String, String)> {
            let sql = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name";
            let mut statement = conn.prepare(sql).expect("prepares");
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
            rows.map(|row| row.expect("a row")).collect()
        };
        let fresh = tables(&conn);
        for table in ["ledger", "memory", "session", "message", "turn", "work_item"] {
            assert!(fresh.iter().any(|(name, _)| name == table), "{table}");
        }
        migrate(&mut conn, MIGRATIONS).expect("once more");
        assert_eq!(tables(&conn), fresh, "a second run changes nothing");
        // One that fails upon a database in use leaves it as it was.
        conn.execute(
            "INSERT INTO session (id, created_at, updated_at, metadata) VALUES ('s', 0, 0, '{}')",
            [],
        )
        .expect("inserts");
        let mut longer = MIGRATIONS.to_vec();
        let number = longer.last().map_or(1, |last| last.number + 1);
        longer.push(Migration { number, name: "broken", sql: "DELETE FROM session; CREATE NONSENSE;" });
        assert!(migrate(&mut conn, &longer).is_err());
        assert_eq!(tables(&conn), fresh);
        assert_eq!(conn.query_row("SELECT count(*) FROM session", [], |row| row.get(0)), Ok(1_i64));
        migrate(&mut conn, MIGRATIONS).expect("the old database is usable");
    }

    /// Money is counted in whole micro-dollars.
    ///
    /// Rows: SF-053 (in part: no column holds a broken number)
    #[test]
    fn no_column_of_any_table_holds_a_broken_number() {
        let mut conn = Connection::open_in_memory().expect("opens");
        migrate(&mut conn, MIGRATIONS).expect("runs");
        let sql = "SELECT count(*), sum(upper(c.type) IN ('REAL', 'NUMERIC', 'FLOAT', 'DOUBLE'))
                   FROM sqlite_master AS t, pragma_table_info(t.name) AS c
                   WHERE t.type = 'table' AND t.sql LIKE '%STRICT%'";
        let (columns, broken): (i64, i64) =
            conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
        assert!(columns > 50 && broken == 0, "{broken} of {columns}");
    }
}
