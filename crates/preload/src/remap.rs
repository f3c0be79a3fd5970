//! Moves the texts of this process.
//!
//! ```text
//!   maps line --> file opened by its path --> same device and inode?      FileChanged
//!      |                                        |
//!   pagemap: every page still the file's?     copy of that file, found or made (store)
//!      |                        Modified        |
//!      `------> map the copy elsewhere as text: allowed?                  NoExec, Denied
//!                  and equal to the mapped text, byte for byte? (proof)
//!                               | yes           | no: unlink a found copy and make a new one
//!                               |                     if that differs too      FileChanged
//!                     mmap(MAP_FIXED) over the blocks
//! ```
//!
//! Invariants:
//! - M1: a text is replaced by the same bytes (`proof`) with the same permissions, privately.
//!   Breakpoints, forks and `mprotect` work as before.
//! - M2: the old mapping stays until the last `mmap` succeeds. That call replaces it under the mmap
//!   lock: a thread that fetches an instruction meanwhile waits in its fault and continues in the
//!   new mapping. The replaced range can contain the code that makes the call.

use crate::copy::{self, Job};
use crate::elf;
use crate::maps::{Blocks, Text};
use crate::proof::{self, Proof, Proven};
use crate::report::{Cost, Report};
use crate::store::{self, Found, Lock, Store};
use crate::superblock::Superblock;
use crate::sys::{self, Area, Errno, Fd, Status, Window};
use crate::wire::{How, Refusal};

/// Buffer size for `/proc/self/maps`: about 5000 mappings. Texts after them are not moved. Only the
/// pages in use take memory.
const MAPS_BYTES: usize = 512 << 10;
const STEP_PAGES: usize = 1024;

pub(crate) fn texts(store: &Store, report: &Report) -> Result<(), Refusal> {
    let mut memory = Area::memory(MAPS_BYTES).map_err(|_| Refusal::LowMemory)?;
    let lines = read_maps(memory.bytes_mut())?;
    let pagemap = Fd::open(c"/proc/self/pagemap", libc::O_RDONLY).map_err(|_| Refusal::NoProc)?;
    let mut is_any = false;
    for line in lines.split_inclusive(|byte| *byte == 0) {
        let Some(text) = Text::parse(line) else { continue };
        let Some(blocks) = text.blocks(sys::block_bytes()) else { continue };
        is_any = true;
        let start = sys::monotonic_ns();
        let mover = Mover { store, text: &text, blocks, pagemap: &pagemap };
        let result = mover.run();
        let large = pagemap.large_bytes(blocks.start, blocks.len).unwrap_or(0);
        let taken_ns = sys::monotonic_ns().wrapping_sub(start);
        report.text(&text, &blocks, result, &Cost { large, taken_ns });
    }
    if is_any { Ok(()) } else { Err(Refusal::Tiny) }
}

fn read_maps(buffer: &mut [u8]) -> Result<&[u8], Refusal> {
    let maps = Fd::open(c"/proc/self/maps", libc::O_RDONLY).map_err(|_| Refusal::NoProc)?;
    let nr = maps.read(buffer).map_err(|_| Refusal::NoProc)?;
    let lines = buffer.get_mut(..nr).ok_or(Refusal::NoProc)?;
    for byte in &mut *lines {
        if *byte == b'\n' {
            *byte = 0;
        }
    }
    Ok(lines)
}

struct Mover<'a> {
    store: &'a Store,
    text: &'a Text<'a>,
    blocks: Blocks,
    pagemap: &'a Fd,
}

impl Mover<'_> {
    fn run(&self) -> Result<How, Refusal> {
        self.check_unmodified()?;
        let (source, status) = self.open_source()?;
        let (copy, how) = self.copy(&source, status)?;
        copy.replace_text()?;
        Ok(how)
    }

    /// Checks that every page of the blocks is the file's, or absent. A modified page is anonymous
    /// or swapped out. A modified text has no copy, and must not make other processes lose theirs.
    fn check_unmodified(&self) -> Result<(), Refusal> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const OF_FILE: u64 = 1 << 61;
        let mut states = [0; STEP_PAGES * 8];
        let mut page = self.blocks.start / sys::page_bytes();
        let end = (self.blocks.start + self.blocks.len) / sys::page_bytes();
        while page < end {
            let wanted = (end - page).min(STEP_PAGES);
            let states = states.get_mut(..wanted * 8).ok_or(Refusal::NoProc)?;
            let nr = self.pagemap.read_at(states, page as u64 * 8).map_err(|_| Refusal::NoProc)?;
            if nr != states.len() {
                return Err(Refusal::NoProc);
            }
            let (states, _) = states.as_chunks::<8>();
            let is_modified = |state: &[u8; 8]| {
                let state = u64::from_le_bytes(*state);
                state & SWAPPED != 0 || state & (PRESENT | OF_FILE) == PRESENT
            };
            if states.iter().any(is_modified) {
                return Err(Refusal::Modified);
            }
            page += wanted;
        }
        Ok(())
    }

    fn open_source(&self) -> Result<(Fd, Status), Refusal> {
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
        let source = Fd::open(self.text.path, flags).map_err(|error| match error {
            Errno(libc::ENOENT | libc::ENOTDIR | libc::ELOOP) => Refusal::FileChanged,
            _ => Refusal::Unreadable,
        })?;
        let status = source.status().map_err(|_| Refusal::Unreadable)?;
        if status.mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Refusal::FileChanged);
        }
        let device = (libc::major(status.device).into(), libc::minor(status.device).into());
        let is_same = (device, status.inode) == (self.text.device, self.text.inode);
        // On btrfs and overlayfs, stat and maps print devices differently. Maps the opened file and
        // compares that line with the text's.
        if is_same || self.is_mapped_alike(&source) {
            Ok((source, status))
        } else {
            Err(Refusal::FileChanged)
        }
    }

    fn is_mapped_alike(&self, source: &Fd) -> bool {
        let Ok(page) = Area::reserve(sys::page_bytes()) else { return false };
        let Ok(mut memory) = Area::memory(MAPS_BYTES) else { return false };
        let window = Window { offset: 0, len: sys::page_bytes() };
        // SAFETY: the reserved page is ours.
        let is_mapped = unsafe { source.map_over(page.address(), window, sys::Mapping::Look) };
        let Ok(lines) =
            is_mapped.map_err(|_| Refusal::Os).and_then(|()| read_maps(memory.bytes_mut()))
        else {
            return false;
        };
        let mut mappings = lines
            .split_inclusive(|byte| *byte == 0)
            .filter_map(|line| Text::parse_mapping(line, b"r--p"));
        // The kernel may have merged the page with an adjacent mapping of the same file.
        let found = mappings.find(|found| (found.start..found.end).contains(&page.address()));
        found
            .is_some_and(|found| (found.device, found.inode) == (self.text.device, self.text.inode))
    }

    fn copy(&self, source: &Fd, status: Status) -> Result<(Proven<'_>, How), Refusal> {
        let superblock = Superblock::of(source, &status);
        let name = store::name_of(self.text, &status, superblock, &self.blocks);
        let bytes = store::copy_bytes(&status, &self.blocks).ok_or(Refusal::Os)?;
        if name.is_cut() {
            return Err(Refusal::Os);
        }
        let job =
            Job { text: self.text, blocks: self.blocks, source, status, pagemap: self.pagemap };
        // The load address is random in every process, so no other process could map this copy. It
        // gets no name and is freed with the process.
        if self.blocks.shift() != 0 && !elf::is_fixed(source) {
            let copy = copy::make(self.store, &job, None)?;
            return Ok((self.proven(copy)?, How::Private));
        }
        if let Found::Copy(copy) = self.store.find(&name, bytes)? {
            match proof::prove(copy, &self.blocks)? {
                Proof::Holds(copy) => return Ok((copy, How::Shared)),
                // A copy of another file with the same times, size and numbers.
                Proof::Differs(copy) => self.store.discard(&name, &copy),
            }
        }
        let _lock = match self.store.lock(&name, bytes)? {
            Lock::Made(copy) => return Ok((self.proven(copy)?, How::Shared)),
            Lock::Taken(lock) => lock,
        };
        drop(copy::make(self.store, &job, Some(&name))?);
        // Reopens it for reading, with all checks.
        match self.store.find(&name, bytes)? {
            Found::Copy(copy) => Ok((self.proven(copy)?, How::Made)),
            Found::Nothing | Found::Link => Err(Refusal::BadCopy),
        }
    }

    /// Proves a copy that was just made. If it differs, the file is no longer the mapped one.
    fn proven(&self, copy: Fd) -> Result<Proven<'_>, Refusal> {
        match proof::prove(copy, &self.blocks)? {
            Proof::Holds(copy) => Ok(copy),
            Proof::Differs(_) => Err(Refusal::FileChanged),
        }
    }
}
