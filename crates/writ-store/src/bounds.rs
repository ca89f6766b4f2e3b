//! The bounds of the store: each thing that can grow has one.

/// The largest text of one row (payload, event, frame, message, token), in bytes: a megabyte of tool
/// arguments and its JSON escapes fit, a runaway does not.
pub const MAX_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// The most operations of one batch: a step of a turn has fewer than fifty.
pub const MAX_BATCH_OPS: usize = 4_096;

/// The most batches that share one transaction: bounds how long the first of them waits.
pub const MAX_GROUP_BATCHES: usize = 256;

/// The most batches that wait for the writer; callers beyond it wait for room.
pub const WRITER_QUEUE: usize = 1_024;

/// The most rows that one read returns.
pub const MAX_READ_ROWS: usize = 10_000;

/// The most threads that read at once: more than the cores of a small machine gain nothing.
pub const READERS: usize = 4;

/// The most brief reads that run at once on their callers' threads; the next ones go to the threads that read. One for each
/// core of a small machine.
pub(crate) const BRIEF_READERS: usize = 2;

/// The most reads that wait for a thread; callers beyond it wait for room.
pub const READ_QUEUE: usize = 1_024;

/// The page cache of the writer's connection, in KiB: a commit touches some twenty pages of 4 KiB, the three commits
/// of a turn sixty.
pub const WRITER_CACHE_KIB: i64 = 384;

/// The page cache of each connection that reads, in KiB. It is dropped at the next commit anyway, and the system
/// caches the file too.
pub const READER_CACHE_KIB: i64 = 96;

/// The longest wait of a statement for another process's lock, in milliseconds.
pub const BUSY_TIMEOUT_MS: u64 = 5_000;
