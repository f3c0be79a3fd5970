//! The file of each mapping, from the kernel's record of the mmap itself (`perf_event_open`).
//!
//! A system call has only a descriptor number, and a process may exit before its descriptors can be
//! read. The perf record has the mapping's device, inode and name.
//!
//! ```text
//!   head page (data_head, data_tail) | records: u32 type, u16 misc, u16 size, body, pid tid time
//! ```
//!
//! Owns one ring per processor, for all processes, because file mappings are rare. Invariant N1:
//! like P1 of `page`, an incomplete record is dropped.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::kernel_event::{KernelEvent, Mapped, Timed};
use crate::geometry::page_bytes;

/// Data bytes of a ring, a power of two: over ten thousand mappings, of every program.
const RING_BYTES: usize = 2 << 20;
/// Offset of `data_head` in the head page; `data_tail` follows.
const HEAD_OFFSET: usize = 1024;

const DUMMY: (u32, u64) = (1, 9);
/// `PERF_SAMPLE_TID | PERF_SAMPLE_TIME`.
const WITH_THREAD_AND_TIME: u64 = 1 << 1 | 1 << 2;
/// mmap, comm, `mmap_data`, `sample_id_all`, mmap2, `comm_exec`, `use_clockid`.
const FLAGS: u64 = 1 << 8 | 1 << 9 | 1 << 17 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 25;
const RECORD_LOST: u32 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_MMAP2: u32 = 10;
/// In a `RECORD_COMM`: the name changed by an execve.
const IS_EXEC: u16 = 1 << 13;
const NAME_OFFSET: usize = 64;

/// `perf_event_attr` up to `clockid`; the kernel treats the rest as zero.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    unused: [u64; 4],
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

#[derive(Debug)]
pub(super) struct Names {
    rings: Vec<Ring>,
    bytes: Vec<u8>,
    pub(super) nr_lost: u64,
}

impl Names {
    pub(super) fn open() -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in 0..possible_cpus() {
            match Ring::open(cpu) {
                Ok(ring) => rings.push(ring),
                // Offline.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { rings, bytes: Vec::new(), nr_lost: 0 })
    }

    pub(super) fn take(&mut self, events: &mut Vec<Timed>) {
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.take(&mut self.bytes);
            self.nr_lost += records(&self.bytes, events);
        }
    }
}

fn possible_cpus() -> usize {
    // SAFETY: takes a number and returns one.
    let nr = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(nr).unwrap_or(1)
}

#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    _event: File,
}

impl Ring {
    fn open(cpu: usize) -> io::Result<Self> {
        let (kind, config) = DUMMY;
        let attributes = Attributes {
            kind,
            size: u32::try_from(size_of::<Attributes>()).unwrap_or(0),
            config,
            sample_type: WITH_THREAD_AND_TIME,
            flags: FLAGS,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // PERF_FLAG_FD_CLOEXEC
        let close_on_exec = 8;
        // SAFETY: the kernel reads `size` bytes of the attributes, which outlive the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1,
                cpu,
                -1,
                close_on_exec,
            )
        };
        let descriptor = i32::try_from(descriptor).unwrap_or(-1);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let event = unsafe { File::from_raw_fd(descriptor) };
        // SAFETY: a new mapping at an address the kernel chooses touches no memory in use.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page_bytes() + RING_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast()) else { unreachable!("0 is not mapped") };
        Ok(Self { base, _event: event })
    }

    fn counter(&self, nr: usize) -> &AtomicU64 {
        // SAFETY: HEAD_OFFSET + 16 bytes are inside the head page.
        let at = unsafe { self.base.as_ptr().add(HEAD_OFFSET + 8 * nr) };
        // SAFETY: aligned, mapped as long as `self`, and shared with the kernel, which updates it
        // atomically.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    fn take(&mut self, bytes: &mut Vec<u8>) {
        let head = self.counter(0).load(Ordering::Acquire);
        let tail = self.counter(1).load(Ordering::Relaxed);
        // The kernel never overwrites unread data: at most RING_BYTES.
        let number = |value: u64| usize::try_from(value).unwrap_or(0);
        let nr_bytes = number(head.wrapping_sub(tail).min(RING_BYTES as u64));
        let first = number(tail % RING_BYTES as u64);
        let nr_first = nr_bytes.min(RING_BYTES - first);
        for (from, nr) in [(first, nr_first), (0, nr_bytes - nr_first)] {
            // SAFETY: `from + nr` bytes are inside the data, which starts after the head page.
            let data = unsafe { self.base.as_ptr().add(page_bytes() + from) };
            // SAFETY: mapped and readable; the kernel does not write there until the tail moves.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(data, nr) });
        }
        self.counter(1).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this length, without other references.
        unsafe { libc::munmap(self.base.as_ptr().cast(), page_bytes() + RING_BYTES) };
    }
}

fn records(mut bytes: &[u8], events: &mut Vec<Timed>) -> u64 {
    let mut nr_lost = 0_u64;
    while let (Some(kind), Some(more)) = (word::<4>(bytes, 0), word::<4>(bytes, 4)) {
        let half = |word: u64| u16::try_from(word & 0xffff).unwrap_or(0);
        let (misc, nr_bytes) = (half(more), usize::from(half(more >> 16)));
        // Also rejects a length below the header's.
        let Some(record) = bytes.get(8..nr_bytes) else { break };
        match u32::try_from(kind).unwrap_or(0) {
            RECORD_LOST => nr_lost = nr_lost.saturating_add(word::<8>(record, 8).unwrap_or(0)),
            RECORD_MMAP2 => events.extend(mapped(record)),
            RECORD_COMM if misc & IS_EXEC != 0 => {
                events.extend(timed(record, |_| Some(KernelEvent::Clears)));
            }
            _ => {}
        }
        bytes = &bytes[nr_bytes..];
    }
    nr_lost
}

fn mapped(record: &[u8]) -> Option<Timed> {
    timed(record, |body| {
        let half = |at| word::<4>(body, at).and_then(|number| u32::try_from(number).ok());
        let inode = word::<8>(body, 40)?;
        let path = body.get(NAME_OFFSET..)?.split(|byte| *byte == 0).next()?;
        let is_file = inode != 0 && path.first() == Some(&b'/') && !path.starts_with(b"//");
        is_file.then_some(())?;
        Some(KernelEvent::Mapped(Box::new(Mapped {
            pid: half(0)?,
            addr: word::<8>(body, 8)?,
            len: word::<8>(body, 16)?,
            pos: word::<8>(body, 24)?,
            device: libc::makedev(half(32)?, half(36)?),
            inode,
            prot: half(56)?,
            path: OsString::from_vec(path.to_vec()).into(),
        })))
    })
}

fn timed(record: &[u8], decode: impl FnOnce(&[u8]) -> Option<KernelEvent>) -> Option<Timed> {
    let (body, id) = record.split_at_checked(record.len().checked_sub(16)?)?;
    let tid = u32::try_from(word::<4>(id, 4)?).ok()?;
    Some(Timed { time_ns: word::<8>(id, 8)?, tid, event: decode(body)? })
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..N)?.copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let id = [&7_u32.to_le_bytes()[..], &8_u32.to_le_bytes(), &99_u64.to_le_bytes()].concat();
        let nr_bytes = u16::try_from(8 + body.len() + id.len()).unwrap();
        let head = [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &nr_bytes.to_le_bytes()].concat();
        [&head[..], body, &id].concat()
    }

    fn mapping(inode: u64, name: &[u8; 16]) -> Vec<u8> {
        let mut body = [7_u32, 8].map(u32::to_le_bytes).concat();
        body.extend([0x7000_u64, 0x2000, 0x1000].map(u64::to_le_bytes).concat());
        body.extend([254_u32, 1].map(u32::to_le_bytes).concat());
        body.extend([inode, 0].map(u64::to_le_bytes).concat());
        body.extend([5_u32, 2].map(u32::to_le_bytes).concat());
        body.extend(name);
        record(RECORD_MMAP2, 0, &body)
    }

    #[test]
    fn a_mapping_says_its_file_and_a_loss_its_number() {
        let lost = record(RECORD_LOST, 0, &[1_u64, 5].map(u64::to_le_bytes).concat());
        let comm = record(RECORD_COMM, IS_EXEC, b"pid:tid:name\0\0\0\0");
        let anon = mapping(0, b"//anon\0\0\0\0\0\0\0\0\0\0");
        let bytes = [mapping(42, b"/lib/x.so\0\0\0\0\0\0\0"), lost, anon, comm].concat();
        let mut events = Vec::new();
        assert_eq!(records(&bytes, &mut events), 5);
        let file = Mapped {
            pid: 7,
            addr: 0x7000,
            len: 0x2000,
            pos: 0x1000,
            device: libc::makedev(254, 1),
            inode: 42,
            prot: 5,
            path: "/lib/x.so".into(),
        };
        let expected = [KernelEvent::Mapped(Box::new(file)), KernelEvent::Clears];
        assert_eq!(events, expected.map(|event| Timed { time_ns: 99, tid: 8, event }));
    }

    proptest! {
        #[test]
        fn no_record_is_read_past_its_end(
            kind in prop_oneof![Just(RECORD_MMAP2), Just(RECORD_LOST), Just(RECORD_COMM)],
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            let mut events = Vec::new();
            records(&bytes, &mut events);
            prop_assert!(events.len() <= bytes.len() / 8);
        }
    }
}
