//! Reads of a file that is not in the page cache.
//!
//! Owns an unnamed file. In a virtual machine, the host's page cache can serve these reads; the
//! figure is the time that this kernel sees.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::mm::ProtFlags;

use super::stubs::StubsError;
use super::stubs::call::draws;
use super::stubs::file::{drop_cache, failed, on_disk, write};
use super::stubs::mapping::{Mapping, Source};
use super::{Figure, count};
use crate::geometry::page_bytes;
use crate::measure::{Series, interleave};

const CHUNK_BYTES: usize = 1 << 20;
const NR_READS: usize = 64;
const NR_DEEP_READS: usize = 256;
/// Numbers of outstanding reads, one thread each.
const DEPTHS: [usize; 3] = [1, 4, 16];

type StorageRun<'a> = Box<dyn FnMut() -> Result<Duration, StubsError> + 'a>;

#[derive(Clone, Debug, Default)]
pub struct Storage {
    /// Nanoseconds of a random read of an uncached base page.
    pub random: Option<Figure>,
    pub at_depth: Vec<(usize, Figure)>,
    /// One at a time, without the page cache (`O_DIRECT`).
    pub random_direct: Option<Figure>,
    /// Nanoseconds of a sequential 1 MiB read, with readahead.
    pub sequential: Option<Figure>,
    /// Nanoseconds of a 1 MiB read from the page cache.
    pub cached: Option<Figure>,
}

/// Measures reads of a file of `len_bytes` in `dir`.
///
/// # Errors
/// A directory in which no file can be made.
pub(super) fn measure(
    dir: &Path,
    len_bytes: usize,
    nr_rounds: usize,
) -> Result<Storage, StubsError> {
    let mut file = on_disk(dir)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    write(&mut file, len_bytes, &mut |_, bytes| {
        for word in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_ne_bytes()[..word.len()]);
        }
    })?;
    let file = &file;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // Aligned for O_DIRECT.
    let buffer = &Mapping::new(Source::Anonymous, 2 * CHUNK_BYTES, prot)?;
    let mut seed = 0;
    let mut runs: Vec<StorageRun<'_>> = vec![
        Box::new(|| {
            seed += 1;
            advised(file, Advice::Random, || random(file, buffer, len_bytes, seed))
        }),
        Box::new(|| advised(file, Advice::Normal, || sequential(file, buffer, len_bytes))),
        Box::new(|| sequential(file, buffer, len_bytes)),
    ];
    for depth in DEPTHS {
        let mut seed = 10_000 * depth as u64;
        runs.push(Box::new(move || {
            seed += 1;
            advised(file, Advice::Random, || outstanding(file, len_bytes, depth, seed))
        }));
    }
    let series = interleave(nr_rounds, &mut runs, &mut |_| {})?;
    drop(runs);
    let direct = direct(file, buffer, len_bytes, nr_rounds);
    let chunks = len_bytes / CHUNK_BYTES;
    let each = |series: &Series, nr: usize, what: &str| Figure::of(&series.rounds_ns, nr, what);
    let at_depth = DEPTHS.iter().zip(&series[3..]).filter_map(|(&depth, series)| {
        let how = format!("the same with {depth} outstanding, wall time divided by reads");
        Some((depth, each(series, NR_DEEP_READS, &how)?))
    });
    let kib = page_bytes() >> 10;
    let how = format!("random reads of {kib} KiB after POSIX_FADV_DONTNEED");
    Ok(Storage {
        at_depth: at_depth.collect(),
        random: each(&series[0], NR_READS, &how),
        random_direct: each(&direct.unwrap_or_default(), NR_READS, "the same with O_DIRECT"),
        sequential: each(&series[1], chunks, "1 MiB in sequence after POSIX_FADV_DONTNEED"),
        cached: each(&series[2], chunks, "1 MiB from the page cache"),
    })
}

fn advised(
    file: &File,
    advice: Advice,
    work: impl FnOnce() -> Result<Duration, StubsError>,
) -> Result<Duration, StubsError> {
    drop_cache(file)?;
    fadvise(file, 0, None, advice).map_err(|error| failed("posix_fadvise", error))?;
    let taken = work();
    fadvise(file, 0, None, Advice::Normal).map_err(|error| failed("posix_fadvise", error))?;
    taken
}

fn read(file: &File, buffer: &Mapping, at: usize, len: usize) -> Result<(), StubsError> {
    debug_assert!(len <= buffer.len_bytes());
    // SAFETY: mapped, and nothing else reads or writes it before the next read.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.at(), len) };
    file.read_exact_at(bytes, at as u64).map_err(|error| failed("pread", error))
}

fn random(
    file: &File,
    buffer: &Mapping,
    len_bytes: usize,
    seed: u64,
) -> Result<Duration, StubsError> {
    let start = Instant::now();
    for page in draws(NR_READS, len_bytes / page_bytes(), seed) {
        read(file, buffer, page * page_bytes(), page_bytes())?;
    }
    Ok(start.elapsed())
}

/// Times `depth` parallel threads, from the first one's start to the last one's end. This thread's
/// clock cannot measure either, because the thread may not be running then.
fn outstanding(
    file: &File,
    len_bytes: usize,
    depth: usize,
    seed: u64,
) -> Result<Duration, StubsError> {
    let pages: Vec<usize> = draws(NR_DEEP_READS, len_bytes / page_bytes(), seed).collect();
    let ready = Barrier::new(depth);
    let read_all = |pages: &[usize]| {
        let mut bytes = vec![0; page_bytes()];
        ready.wait();
        let start = Instant::now();
        for page in pages {
            file.read_exact_at(&mut bytes, (page * page_bytes()) as u64)?;
        }
        Ok::<_, io::Error>((start, Instant::now()))
    };
    let times = thread::scope(|scope| {
        let parts = pages.chunks(NR_DEEP_READS / depth);
        let readers: Vec<_> = parts.map(|pages| scope.spawn(|| read_all(pages))).collect();
        let join = |reader: thread::ScopedJoinHandle<'_, _>| {
            reader.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        };
        readers.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    });
    let times = times.map_err(|error| failed("pread", error))?;
    let first = times.iter().map(|(start, _)| *start).min();
    let last = times.iter().map(|(_, end)| *end).max();
    Ok(last
        .zip(first)
        .map_or(Duration::ZERO, |(last, first)| last.saturating_duration_since(first)))
}

fn sequential(file: &File, buffer: &Mapping, len_bytes: usize) -> Result<Duration, StubsError> {
    let start = Instant::now();
    for at in (0..len_bytes).step_by(CHUNK_BYTES) {
        read(file, buffer, at, CHUNK_BYTES)?;
    }
    Ok(start.elapsed())
}

fn direct(file: &File, buffer: &Mapping, len_bytes: usize, nr_rounds: usize) -> Option<Series> {
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    let rounds = (0..nr_rounds).map(|round| random(file, buffer, len_bytes, 1000 + round as u64));
    let taken: Result<Vec<Duration>, _> = rounds.collect();
    let _ = rustix::fs::fcntl_setfl(file, flags);
    let ns = |taken: Duration| count(usize::try_from(taken.as_nanos()).unwrap_or(usize::MAX));
    Some(Series { rounds_ns: taken.ok()?.into_iter().map(ns).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_reads_all_of_its_pages() {
        let mut file = tempfile::tempfile().unwrap();
        write(&mut file, 2 << 20, &mut |_, bytes| bytes.fill(7)).unwrap();
        for depth in DEPTHS {
            assert_eq!(NR_DEEP_READS % depth, 0);
            assert!(outstanding(&file, 2 << 20, depth, 1).unwrap() > Duration::ZERO);
            // The thread that reaches the end of a shorter file reports it.
            assert!(outstanding(&file, 2 << 30, depth, 1).is_err());
        }
    }
}
