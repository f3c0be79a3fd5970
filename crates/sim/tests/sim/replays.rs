//! Replays traces in cells; this file has the helpers that write traces of a one-page program.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

mod advice;
mod allocator;
mod attached;
mod budget;
mod cells;
mod cgroup;
mod detail;
mod fault_times;
mod faults;
mod files;
mod gaps;
mod hostile;
mod hugetlb;
mod linked;
mod lock;
mod policies;
mod processes;
mod remap;
mod settings;
mod statistics;
mod waits;
mod walks;
mod writers;

use std::path::PathBuf;

use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, LayoutEntry, LayoutKind, Meta, Op, Writer};
use tempfile::TempDir;

/// Address of [`two_huge_pages`].
pub(super) const ADDR: u64 = 0x7000_0000_0000;
pub(super) const HUGE: u64 = 2 << 20;

/// Writes a trace of a program whose single page is the first of `files`, with `events`. The
/// directory owns it.
pub(super) fn program(files: Vec<FileInfo>, events: &[Event]) -> (TempDir, PathBuf) {
    program_of(Meta { files, ..Meta::default() }, events)
}

pub(super) fn program_of(meta: Meta, events: &[Event]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program.folio");
    let (addr, len, kind) = (0x40_0000, 0x1000, LayoutKind::Program);
    let layout = vec![LayoutEntry { addr, len, prot: 5, file: Some(0), pos: 0, kind }];
    let mut writer = Writer::create(&path, Meta { layout, ..meta }).unwrap();
    writer.push_rows(events).unwrap();
    writer.finish().unwrap();
    (dir, path)
}

/// Writes a trace that maps two huge pages of private memory, stores to every page, and continues
/// with `events`.
pub(super) fn two_huge_pages(events: &[Event]) -> (TempDir, PathBuf) {
    let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let mut all = vec![Event { addr: ADDR, len: 2 * HUGE, flags, ..Event::new(0, Op::Mmap) }];
    all.extend((0..2 * HUGE / 4096).map(|page| store(0, page)));
    all.extend(events);
    let file = FileInfo { path: "/bin/p".into(), size_bytes: 0x1000, ..FileInfo::default() };
    program(vec![file], &all)
}

pub(super) fn store(thread: u32, page: u64) -> Event {
    Event::references(thread, Op::Write, ADDR + page * 4096, 1)
}
