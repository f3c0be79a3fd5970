//! Tests every function that opens a name while another thread swaps the names: no outside file is
//! written, and no device is opened.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use largefolio_testkit::swap::Swap;
use largefolio_trace::OpenTrace;
use largefolio_trace::disk::{self, PathHandle, Place, Whole};

/// A function that takes a name. Its result does not matter here.
type Try = (&'static str, fn(&Path) -> io::Result<()>);

const READS: [Try; 9] = [
    ("open_regular", |path| disk::open_regular(path).map(drop)),
    ("open_quietly", |path| disk::open_quietly(path).map(drop)),
    ("open_own", |path| disk::open_own(path).map(drop)),
    ("read_whole", |path| disk::read_whole(path, 1 << 20).map(drop)),
    ("read_text", |path| disk::read_text(path, 1 << 20).map(drop)),
    ("open_lock", |path| disk::open_lock(path, 0o600).and_then(|mut file| file.write_all(b"lock"))),
    ("PathHandle::of", |path| PathHandle::of(path)?.open_regular().map(drop)),
    ("OpenTrace::looks_like", |path| {
        let _ = OpenTrace::looks_like(path);
        Ok(())
    }),
    ("OpenTrace", |path| OpenTrace::open(path).map(drop).map_err(io::Error::other)),
];

const WRITES: [Try; 6] = [
    ("write_whole", |path| disk::write_whole(path, b"result")),
    ("create", |path| Whole::create(path)?.write_all(b"half")),
    ("create_regular", |path| {
        let mut whole = Whole::create_regular(path)?;
        whole.write_all(b"result")?;
        whole.commit()
    }),
    ("check", disk::check),
    ("remove_stale", |path| disk::remove_stale(path.parent().unwrap())),
    ("Place::of", |path| Place::of(path).map(drop)),
];

fn patience() -> Duration {
    Duration::from_millis(if largefolio_testkit::is_whole() { 5000 } else { 200 })
}

fn attacked(tries: &[Try]) {
    for (name, function) in tries {
        let swap = Swap::begin(b"sample");
        let (begin, target) = (Instant::now(), swap.target());
        let (mut nr_done, mut nr_refused) = (0, 0);
        while begin.elapsed() < patience() || nr_done + nr_refused < 100 || swap.nr_swaps() < 100 {
            match function(&target) {
                Ok(()) => nr_done += 1,
                Err(_) => nr_refused += 1,
            }
            if let Some(harm) = swap.harm() {
                panic!("{name}: {harm} (try {})", nr_done + nr_refused);
            }
        }
        if !swap.has_device() {
            largefolio_testkit::skipped!("{name}: a device needs root");
        }
    }
}

#[test]
fn what_is_read_is_what_was_judged() {
    attacked(&READS);
}

#[test]
fn what_is_written_to_is_what_was_judged() {
    attacked(&WRITES);
}
