//! Copy-on-write by several processes in parallel, as in vm-scalability's anon-cow-seq and
//! anon-cow-rand (series 004, docs/behaviour J.5): one process's children store to every page of
//! its memory.
//!
//! ```text
//!   parent   fills the region, forks n children, opens the gate ... reaps the last child
//!   child    waits at the gate; a store to every base page, in order or not; ends
//! ```

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use largefolio_linux::calibrate::anon::{BenchError, FolioSize, Region, failed};
use largefolio_linux::geometry::page_bytes;
use largefolio_linux::helpers;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Sequential,
    /// Every page once, never adjacent pages in a row, in a different order per child.
    Random,
}

/// Times from the opening of the gate until all `nr_children` have stored to every base page of a
/// region in folios of `size`. `len_bytes` must be a power of two.
///
/// # Errors
/// A failed system call.
pub fn cow_by_children(
    size: &FolioSize,
    order: Order,
    nr_children: usize,
    len_bytes: usize,
) -> Result<Duration, BenchError> {
    let region = Region::new(len_bytes, size.bytes())?;
    region.store_each(page_bytes());
    let (gate, opener) = pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe2"))?;
    let mut children = Vec::with_capacity(nr_children);
    for nr in 0..nr_children {
        children.push(Writer::fork(&region, order, nr, [&gate, &opener])?);
    }
    let start = Instant::now();
    drop(opener);
    for child in &mut children {
        child.wait()?;
    }
    Ok(start.elapsed())
}

struct Writer {
    pid: Pid,
    is_reaped: bool,
}

impl Writer {
    fn fork(
        region: &Region,
        order: Order,
        nr: usize,
        [gate, opener]: [&OwnedFd; 2],
    ) -> Result<Self, BenchError> {
        let parent = getpid();
        // SAFETY: the child calls only async-signal-safe functions and never returns.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            if !helpers::end_with(parent) {
                // SAFETY: ends the child without running any of the parent's code.
                unsafe { libc::_exit(0) };
            }
            // SAFETY: the child's copy of the opener would keep the gate shut.
            unsafe { libc::close(opener.as_raw_fd()) };
            let mut byte = 0_u8;
            // SAFETY: reads at most one byte into `byte`, and returns when the parent opens the
            // gate or dies.
            unsafe { libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) };
            store(region, order, nr);
            // SAFETY: ends the child without running any of the parent's code.
            unsafe { libc::_exit(0) };
        }
        let pid = Pid::from_raw(pid).filter(|_| pid > 0);
        let pid = pid.ok_or_else(|| failed("fork")(io::Error::last_os_error()))?;
        Ok(Self { pid, is_reaped: false })
    }

    fn wait(&mut self) -> Result<(), BenchError> {
        waitpid(Some(self.pid), WaitOptions::empty()).map_err(failed("waitpid"))?;
        self.is_reaped = true;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitpid(Some(self.pid), WaitOptions::empty());
        }
    }
}

fn store(region: &Region, order: Order, nr: usize) {
    match order {
        Order::Sequential => region.store_each(page_bytes()),
        Order::Random => {
            let nr_pages = region.len_bytes() / page_bytes();
            (0..nr_pages).for_each(|i| region.store_at(shuffled(i, nr, nr_pages) * page_bytes()));
        }
    }
}

/// Returns the `i`th page in the order of child `nr`. Each of `nr_pages`, a power of two, comes
/// once.
fn shuffled(i: usize, nr: usize, nr_pages: usize) -> usize {
    // A linear congruential generator of full period: odd increment, multiplier 1 modulo 4.
    let mask = nr_pages - 1;
    let start = nr.wrapping_mul(0x9e37);
    let mixed = i.wrapping_add(start).wrapping_mul(0x9e37_79b1) & mask;
    // A shift by 0 bits would cancel the number.
    mixed ^ (mixed >> (nr_pages.trailing_zeros() / 2).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_comes_once_and_children_differ() {
        for nr_pages in [1_usize, 2, 64, 1 << 12] {
            for nr in 0..3 {
                let mut pages: Vec<usize> =
                    (0..nr_pages).map(|i| shuffled(i, nr, nr_pages)).collect();
                pages.sort_unstable();
                assert!(pages.into_iter().eq(0..nr_pages), "{nr_pages} {nr}");
            }
        }
        let order = |nr| (0..64).map(|i| shuffled(i, nr, 64)).collect::<Vec<_>>();
        assert_ne!(order(0), order(1));
        let nr_neighbours = order(0).windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(nr_neighbours < 8, "{nr_neighbours}");
    }

    #[test]
    fn children_store_in_both_orders() {
        let size = FolioSize::enable(page_bytes()).unwrap();
        for order in [Order::Sequential, Order::Random] {
            assert!(
                cow_by_children(&size, order, 3, 1 << 20).unwrap() > Duration::ZERO,
                "{order:?}"
            );
        }
    }
}
