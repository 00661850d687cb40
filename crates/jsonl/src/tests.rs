//! Tests of the queue and of the file. What traces and audits promise is tested where they are.

use std::{
    fs, io,
    sync::{Arc, mpsc},
    time::Duration,
};

use parking_lot::Mutex;

use super::*;

const LONG: Duration = Duration::from_secs(120);

/// A call of the writer.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    Write(Vec<u64>),
    Report(Gap),
    Flush,
}

/// A writer that waits for a permit before each batch, and fails if the permit says so.
struct Slow {
    go: mpsc::Receiver<bool>,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Writer<u64> for Slow {
    fn write(&mut self, batch: &[u64]) -> io::Result<()> {
        if !self.go.recv().unwrap_or(true) {
            return Err(io::Error::other("full"));
        }
        self.calls.lock().push(Call::Write(batch.to_vec()));
        Ok(())
    }

    fn report(&mut self, gap: Gap) -> io::Result<()> {
        self.calls.lock().push(Call::Report(gap));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.calls.lock().push(Call::Flush);
        Ok(())
    }
}

type Controls = (mpsc::Sender<bool>, Arc<Mutex<Vec<Call>>>, Queue<u64>);

fn slow(limits: Limits) -> Controls {
    let (permit, go) = mpsc::channel();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let queue = Queue::start("slow", Slow { go, calls: calls.clone() }, limits);
    (permit, calls, queue)
}

#[test]
fn dropped_records_are_reported_in_their_place() {
    let (permit, calls, queue) = slow(Limits { queue: 4, every: LONG, ..Limits::default() });
    (1..=2).for_each(|number| queue.offer(number, 1));
    // The writer waits for its permit, with the first records in its hand.
    assert!(!queue.flush(Duration::from_millis(50)));
    (3..=8).for_each(|number| queue.offer(number, 1));
    permit.send(true).unwrap();
    permit.send(true).unwrap();
    assert!(queue.flush(LONG));
    queue.offer(9, 1);
    drop(permit);
    assert!(queue.close(LONG));
    let gap = Gap { count: 2, first: 7, last: 8 };
    let written: Vec<u64> = calls
        .lock()
        .iter()
        .flat_map(|call| match call {
            Call::Write(batch) => batch.clone(),
            Call::Report(reported) if *reported == gap => vec![0],
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(written, [1, 2, 3, 4, 5, 6, 0, 9]);
    assert_eq!(queue.counts(), Counts { written: 7, dropped: 2, failed: 0 });
    assert_eq!(calls.lock().last(), Some(&Call::Flush));
}

#[test]
fn a_batch_that_fails_is_a_gap() {
    let (permit, calls, queue) = slow(Limits { every: LONG, ..Limits::default() });
    (1..=3).for_each(|number| queue.offer(number, 1));
    permit.send(false).unwrap();
    assert!(queue.flush(LONG), "lost records are not waited for");
    drop(permit);
    queue.offer(4, 1);
    assert!(queue.close(LONG));
    let gap = Gap { count: 3, first: 1, last: 3 };
    let calls = calls.lock();
    assert_eq!(calls[..2], [Call::Report(gap), Call::Flush]);
    assert!(calls.contains(&Call::Write(vec![4])));
    assert_eq!(queue.counts(), Counts { written: 1, dropped: 0, failed: 3 });
}

#[test]
fn a_waiting_future_completes_with_the_flush_or_the_end() {
    let (permit, calls, queue) = slow(Limits { every: LONG, ..Limits::default() });
    queue.offer(1, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let flushed = queue.flushed();
    assert!(
        runtime.block_on(async { tokio::time::timeout(Duration::from_millis(20), queue.flushed()).await }).is_err()
    );
    drop(permit);
    runtime.block_on(flushed);
    assert_eq!(*calls.lock(), [Call::Write(vec![1]), Call::Flush]);
    assert!(queue.close(LONG));
    runtime.block_on(queue.flushed());
}

#[test]
fn a_line_that_was_cut_off_is_ended_first() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("new/lines");
    LineFile::open_with_parents(&path).unwrap().append(&["a"]).unwrap();
    fs::write(&path, "a\nb").unwrap();
    let mut file = LineFile::open(&path).unwrap();
    file.append(&["c", "d"]).unwrap();
    file.append(&["e"]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a\nb\nc\nd\ne\n");
}

#[test]
fn a_flush_does_not_wait_for_later_records() {
    let (permit, _calls, queue) = slow(Limits { batch: 1, every: Duration::ZERO, ..Limits::default() });
    queue.offer(1, 1);
    // The writer waits for its permit, with the first record in its hand.
    assert!(!queue.flush(Duration::from_millis(50)));
    queue.offer(2, 1);
    assert!(!queue.flush(Duration::from_millis(50)));
    (3..=6).for_each(|number| queue.offer(number, 1));
    permit.send(true).unwrap();
    permit.send(true).unwrap();
    let deadline = std::time::Instant::now() + LONG;
    while queue.flushed_count() < 2 && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(queue.flushed_count() >= 2, "it waits for records that came later");
    drop(permit);
    assert!(queue.close(LONG));
}

#[test]
#[cfg(unix)]
fn opening_a_fifo_does_not_wait_for_its_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (opened, is_open) = mpsc::channel();
    std::thread::spawn(move || opened.send(LineFile::open(path).map(drop)));
    is_open.recv_timeout(LONG).expect("it is opened").unwrap();
}
