//! The pool of reading threads: it blocks no runtime, keeps its bounds, and outlives panics.

use std::future::{Future, ready};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::*;
use crate::batch::{Batch, Op};
use crate::reads::{SessionReads as _, UsageReads as _};
use crate::store::Store;
use crate::testing::*;

/// Holds reads until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (is_open, opened) = &*self.0;
        let mut guard = is_open.lock().expect("no panic");
        while !*guard {
            guard = opened.wait(guard).expect("no panic");
        }
    }

    fn open(&self) {
        *self.0.0.lock().expect("no panic") = true;
        self.0.1.notify_all();
    }
}

/// Polls a future once; it must not be ready.
async fn begin(future: &mut (impl Future + Unpin)) {
    tokio::select! {
        biased;
        _ = future => panic!("it is done already"),
        () = ready(()) => {}
    }
}

/// Makes every thread of the pool wait at a gate, and returns the reads once they all do.
async fn occupy(store: &Store, gate: &Gate) -> Vec<tokio::task::JoinHandle<Result<(), StoreError>>> {
    let (started, mut starts) = mpsc::channel(READERS);
    let read = |_| {
        let (store, gate, started) = (store.clone(), gate.clone(), started.clone());
        tokio::spawn(async move {
            let read = move |_: &Reader| {
                started.blocking_send(()).expect("the test waits");
                gate.pass();
                Ok(())
            };
            store.run(read).await
        })
    };
    let reads: Vec<_> = (0..READERS).map(read).collect();
    for _ in 0..READERS {
        starts.recv().await.expect("each thread starts");
    }
    reads
}

/// A slow read on a runtime with one thread: other reads and tasks go on, and it is they that end it.
#[tokio::test(flavor = "current_thread")]
async fn a_slow_read_does_not_block_the_runtime() {
    let home = TestHome::new().with_session(1);
    let gate = Gate::default();
    let held = gate.clone();
    let slow = home.store.run(move |_| {
        held.pass();
        Ok(1)
    });
    let meanwhile = async {
        for _ in 0..10 {
            assert_eq!(home.store.sessions(10).await.expect("reads").len(), 1);
        }
        gate.open();
    };
    let (slow, ()) = tokio::join!(slow, meanwhile);
    assert_eq!(slow, Ok(1));
}

#[tokio::test(flavor = "current_thread")]
async fn no_more_reads_run_at_once_than_there_are_threads() {
    let home = TestHome::new();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Gate::default();
    let occupied = occupy(&home.store, &gate).await;
    let reads = (0..3 * READERS).map(|_| {
        let (store, running, most) = (home.store.clone(), Arc::clone(&running), Arc::clone(&most));
        tokio::spawn(async move {
            let read = move |_: &Reader| {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            store.run(read).await
        })
    });
    let reads: Vec<_> = reads.collect();
    tokio::task::yield_now().await;
    let meanwhile = most.load(Ordering::SeqCst);
    gate.open();
    assert_eq!(meanwhile, 0, "all threads are taken");
    for read in occupied.into_iter().chain(reads) {
        assert_eq!(read.await.expect("no panic"), Ok(()));
    }
    assert!((1..=READERS).contains(&most.load(Ordering::SeqCst)));
    assert_eq!(home.store.pool().shared.lock().threads.len(), READERS);
}

#[tokio::test(flavor = "current_thread")]
async fn the_queue_of_reads_is_bounded_and_callers_beyond_it_wait() {
    let home = TestHome::new();
    let gate = Gate::default();
    let occupied = occupy(&home.store, &gate).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let reads: Vec<_> = (0..READ_QUEUE + 10)
        .map(|_| {
            let (store, begun) = (home.store.clone(), Arc::clone(&begun));
            tokio::spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                store.run(|_| Ok(0)).await
            })
        })
        .collect();
    // Each task has been polled: its read stands in the queue, or waits for room in it.
    while begun.load(Ordering::SeqCst) < READ_QUEUE + 10 {
        tokio::task::yield_now().await;
    }
    let waiting = home.store.pool().shared.lock().jobs.len();
    gate.open();
    assert_eq!(waiting, READ_QUEUE);
    for read in reads {
        assert_eq!(read.await.expect("no panic"), Ok(0));
    }
    for read in occupied {
        assert_eq!(read.await.expect("no panic"), Ok(()));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_read_sees_every_commit_whose_receipt_has_come() {
    let home = TestHome::new();
    for n in 1..=50 {
        let add = vec![Op::AddCounter { name: "n".to_owned(), by: 1 }];
        let batch = if n % 2 == 0 { Batch::relaxed(add) } else { Batch::synced(add) };
        home.store.commit(batch).await.expect("commits");
        assert_eq!(home.store.counter("n").await, Ok(n));
        assert_eq!(home.store.blocking().counter("n"), Ok(n));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_read_that_panics_is_an_error_and_its_thread_lives_on() {
    let home = TestHome::new().with_session(1);
    for _ in 0..2 * READERS {
        let read = |db: &Reader| {
            db.conn.execute_batch("BEGIN")?;
            panic!("a bug in a read")
        };
        assert_eq!(home.store.run::<(), _>(read).await, Err(StoreError::ReadPanicked));
        assert_eq!(home.store.sessions(10).await.expect("reads").len(), 1, "not in that transaction");
    }
    assert!(home.store.pool().shared.lock().threads.iter().all(|thread| !thread.is_finished()));
}

#[tokio::test(flavor = "current_thread")]
async fn a_read_whose_caller_is_not_there_any_more_is_left_out() {
    let home = TestHome::new();
    let gate = Gate::default();
    let occupied = occupy(&home.store, &gate).await;
    let was_run = Arc::new(AtomicBool::new(false));
    {
        let was_run = Arc::clone(&was_run);
        let mut read = pin!(home.store.run(move |_| {
            was_run.store(true, Ordering::SeqCst);
            Ok(())
        }));
        begin(&mut read).await;
    }
    gate.open();
    for read in occupied {
        assert_eq!(read.await.expect("no panic"), Ok(()));
    }
    assert_eq!(home.store.run(|_| Ok(0)).await, Ok(0), "it stood behind the one that was left out");
    assert!(!was_run.load(Ordering::SeqCst));
}

/// The threads hold their shared part; when the pool is dropped it is no longer held.
#[tokio::test(flavor = "current_thread")]
async fn closing_the_store_ends_the_threads() {
    let TestHome { dir: _dir, store } = TestHome::new();
    let gate = Gate::default();
    let occupied = occupy(&store, &gate).await;
    let shared = Arc::downgrade(&store.pool().shared);
    gate.open();
    for read in occupied {
        assert_eq!(read.await.expect("no panic"), Ok(()));
    }
    drop(store);
    assert!(shared.upgrade().is_none(), "a thread is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_brief_read_runs_on_its_callers_thread_unless_it_had_to_wait_there() {
    let home = TestHome::new().with_session(1);
    let store = &home.store;
    let here = |_: &Reader| Ok(std::thread::current().id());
    let own = std::thread::current().id();
    assert_eq!(store.pool().run_brief(here).await.expect("reads"), own);
    assert_eq!(store.pool().shared.lock().threads.len(), 0, "no thread was needed");
    let held: Vec<_> = store.pool().brief.iter().map(|place| place.try_lock().expect("is free")).collect();
    let other = std::thread::scope(|scope| {
        let handle = tokio::runtime::Handle::current();
        let read = move || {
            let thread = handle.block_on(store.pool().run_brief(here)).expect("reads");
            (std::thread::current().id(), thread)
        };
        scope.spawn(read).join().expect("no panic")
    });
    assert_ne!(other.0, other.1, "all connections for brief reads are in use");
    drop(held);
}

#[tokio::test]
async fn a_brief_read_that_panics_is_an_error_and_the_next_one_reads() {
    let home = TestHome::new().with_session(1);
    let store = &home.store;
    let failed = store.pool().run_brief(|_: &Reader| -> Result<(), StoreError> { panic!("in a read") }).await;
    assert!(matches!(failed, Err(StoreError::ReadPanicked)), "{failed:?}");
    for _ in 0..=BRIEF_READERS {
        assert!(store.session(session(1)).await.expect("reads").is_some());
    }
}
