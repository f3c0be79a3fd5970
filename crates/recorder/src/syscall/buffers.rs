//! The kernel's accesses to the program's memory during a system call.
//!
//! The kernel faults in a buffer like the program itself. Owns the meaning of the [`table`]'s
//! lengths. Loads are recorded before the call, since most calls need them at once; a write's data
//! after the call's row; stores after the call, if it succeeded.

mod table;

use super::sysno::Sysno;
use super::{Call, guest, low};
use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::block::{Direction, touch_buffer};
use crate::sys;

/// Memory that an argument points to. A null pointer points to none.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    arg: usize,
    len: Len,
    is_stored: bool,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    x86_64: u64,
    arm64: u64,
}

/// A buffer's length. Numbers in parentheses are arguments, except as noted.
#[derive(Clone, Copy, Debug)]
enum Len {
    /// This many bytes.
    Bytes(u64),
    Sized(Size),
    /// Data of this many bytes.
    Data(usize),
    /// This many bytes, few.
    Arg(usize),
    /// This many items of this size.
    Args(usize, u64),
    /// As many bytes as the call returns.
    Result,
    /// As many items as the call returns.
    Results(Size),
    /// This many bytes if the call does not return 0.
    IfAny(u64),
    /// A set of this many bits, in words.
    Bits(usize),
    /// A byte for each page of this length.
    Pages(usize),
    /// As many bytes as the `int` there says.
    Pointed(usize),
    /// A C string.
    String,
    /// This many `iovec`s, and their buffers.
    Vector(usize),
    /// A `msghdr`, and its buffers.
    Message,
    /// This many `mmsghdr`s.
    Messages(usize),
    /// As the request's number says.
    Ioctl,
    Prctl,
    Fcntl,
    Futex,
}

/// Limit for a length that is not of data: the kernel refuses longer ones.
const BYTES_MAX: u64 = 1 << 16;

/// The kernel's maximum of data per call (`MAX_RW_COUNT`).
const DATA_MAX: u64 = 0x7fff_f000;

/// The kernel's maximum of vectors per call (`UIO_MAXIOV`).
const VECTORS_MAX: u64 = 1024;

const IOVEC_BYTES: u64 = 16;
const MSGHDR_BYTES: u64 = 56;
const MMSGHDR_BYTES: u64 = 64;

impl Size {
    const fn of(bytes: u64) -> Self {
        Self { x86_64: bytes, arm64: bytes }
    }

    const fn on(self, arch: Arch) -> u64 {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Arm64 => self.arm64,
        }
    }
}

/// Records loads before the call. The data of a write into a file faults during the call, after its
/// row.
pub(super) fn before(call: &Call) {
    if data_at(call).is_none() {
        touch_all(call, Direction::KernelReads, DATA_MAX);
    } else if is_vectored(call.sysno) {
        touch_buffer(call.tail, Direction::KernelReads, call.args[1], call.args[2] * IOVEC_BYTES);
    }
}

/// Records the loads of a write, which moved `result` bytes.
pub(super) fn written(call: &Call, result: u64) {
    if let Some(addr) = data_at(call) {
        touch_buffer(call.tail, Direction::KernelReads, addr, result.min(DATA_MAX));
    }
}

/// Returns the address of the data that a call writes into a file, if it is one piece of memory.
pub(super) fn data_at(call: &Call) -> Option<u64> {
    let [_, addr, count, ..] = call.args;
    match call.sysno {
        Sysno::Write | Sysno::Pwrite64 => Some(addr),
        of if is_vectored(of) && (1..=VECTORS_MAX).contains(&count) => {
            whole(&guest::words_at(addr, 2 * count))
        }
        _ => None,
    }
}

const fn is_vectored(sysno: Sysno) -> bool {
    matches!(sysno, Sysno::Writev | Sysno::Pwritev | Sysno::Pwritev2)
}

/// Returns where vectors begin that follow each other without a gap.
fn whole(words: &[u64]) -> Option<u64> {
    let mut pairs = words.chunks_exact(2).filter(|pair| pair[1] > 0);
    let first = pairs.next()?;
    let mut end = first[0].checked_add(first[1])?;
    let is_next = |pair: &[u64]| {
        let is_next = pair[0] == end;
        end = end.saturating_add(pair[1]);
        is_next
    };
    pairs.all(is_next).then_some(first[0])
}

pub(super) fn after(call: &Call, result: u64) {
    touch_all(call, Direction::KernelWrites, stored(call, result));
}

/// Returns the bytes that a call stores. A direct read that reaches the end of the file also zeroes
/// the rest of its buffer.
fn stored(call: &Call, result: u64) -> u64 {
    let asked = match call.sysno {
        Sysno::Read | Sysno::Pread64 => call.args[2],
        Sysno::Readv | Sysno::Preadv | Sysno::Preadv2 => DATA_MAX,
        _ => return result,
    };
    let is_direct = || sys::status_flags(call.descriptor(0)) & libc::O_DIRECT != 0;
    if (1..asked).contains(&result) && is_direct() { asked } else { result }
}

fn touch_all(call: &Call, direction: Direction, result: u64) {
    let Some(kept) = Arguments::kept() else { return };
    let is_stored = direction == Direction::KernelWrites;
    for buffer in table::buffers_of(kept.arch, call.number) {
        let addr = call.args[buffer.arg];
        if buffer.is_stored == is_stored && addr != 0 {
            Touch { call, direction, result, arch: kept.arch }.buffer(buffer, addr);
        }
    }
}

struct Touch<'a> {
    call: &'a Call,
    direction: Direction,
    result: u64,
    arch: Arch,
}

impl Touch<'_> {
    fn buffer(&self, buffer: &Buffer, addr: u64) {
        let arg = |index: usize| self.call.args[index];
        let len = match buffer.len {
            Len::Data(of) => return self.range(addr, arg(of).min(self.result).min(DATA_MAX)),
            Len::Result => return self.range(addr, self.result.min(DATA_MAX)),
            Len::Vector(count) => {
                let data_max = self.data_max();
                return self.vector(addr, arg(count), data_max);
            }
            Len::Message => return self.message(addr, self.data_max()),
            Len::Messages(count) => return self.messages(addr, u64::from(low(arg(count)))),
            Len::Bytes(bytes) => bytes,
            Len::Sized(size) => size.on(self.arch),
            Len::Arg(of) => arg(of),
            Len::Args(count, size) => arg(count).saturating_mul(size),
            Len::Results(size) => self.result.saturating_mul(size.on(self.arch)),
            Len::IfAny(bytes) => bytes.min(self.result.saturating_mul(bytes)),
            Len::Bits(of) => u64::from(low(arg(of))).div_ceil(64) * 8,
            Len::Pages(of) => arg(of).div_ceil(4096),
            Len::Pointed(at) => guest::word_at(arg(at)).map_or(0, |word| u64::from(low(word))),
            Len::String => string(addr),
            Len::Ioctl => ioctl(low(arg(1)), self.direction),
            Len::Prctl => prctl(low(arg(0)), buffer.arg, self.direction),
            Len::Fcntl => fcntl(low(arg(1)), self.direction),
            Len::Futex => futex(low(arg(1)), buffer.arg),
        };
        self.range(addr, len.min(BYTES_MAX));
    }

    fn range(&self, addr: u64, len: u64) {
        touch_buffer(self.call.tail, self.direction, addr, len);
    }

    /// Touches memory that the kernel loads in both directions.
    fn header(&self, addr: u64, len: u64) {
        touch_buffer(self.call.tail, Direction::KernelReads, addr, len);
    }

    /// Returns the largest amount of data that can be touched.
    fn data_max(&self) -> u64 {
        match self.direction {
            Direction::KernelReads => DATA_MAX,
            Direction::KernelWrites => self.result.min(DATA_MAX),
        }
    }

    fn vector(&self, addr: u64, count: u64, data_max: u64) {
        if count > VECTORS_MAX {
            return;
        }
        self.header(addr, count * IOVEC_BYTES);
        let mut left = data_max;
        for pair in guest::words_at(addr, 2 * count).chunks_exact(2) {
            let len = pair[1].min(left);
            self.range(pair[0], len);
            left -= len;
        }
    }

    fn message(&self, addr: u64, data_max: u64) {
        self.header(addr, MSGHDR_BYTES);
        let header = guest::words_at(addr, MSGHDR_BYTES / 8);
        let &[name, name_len, vector, count, control, control_len, _] = header.as_slice() else {
            return;
        };
        self.vector(vector, count, data_max);
        for (addr, len) in [(name, u64::from(low(name_len))), (control, control_len)] {
            if addr != 0 {
                self.range(addr, len.min(BYTES_MAX));
            }
        }
        if self.direction == Direction::KernelWrites {
            self.range(addr, MSGHDR_BYTES);
        }
    }

    fn messages(&self, addr: u64, count: u64) {
        let is_stored = self.direction == Direction::KernelWrites;
        let count = if is_stored { self.result } else { count };
        for nr in 0..count.min(VECTORS_MAX) {
            let at = addr.wrapping_add(nr * MMSGHDR_BYTES);
            let received =
                || guest::word_at(at.wrapping_add(MSGHDR_BYTES)).map_or(0, |word| low(word).into());
            self.message(at, if is_stored { received() } else { DATA_MAX });
        }
    }
}

/// Returns a string's length with its end. Looks for the end only if it can be on another page: that
/// takes a system call, and paths are shorter.
fn string(addr: u64) -> u64 {
    const LONG: u64 = 256;
    if addr % 4096 <= 4096 - LONG { 1 } else { guest::string_at(addr).len() as u64 + 1 }
}

/// A request's number holds the buffer's size and direction. Those of terminals are older.
fn ioctl(request: u32, direction: Direction) -> u64 {
    const STORED: u32 = 2;
    const LOADED: u32 = 1;
    let (directions, bytes) = match request {
        0x5401 => (STORED, 36),
        0x5402..=0x5404 => (LOADED, 36),
        0x5413 => (STORED, 8),
        0x5414 => (LOADED, 8),
        0x540f | 0x5411 | 0x541b | 0x5429 => (STORED, 4),
        0x5410 | 0x5421 => (LOADED, 4),
        _ => (request >> 30, request >> 16 & 0x3fff),
    };
    let own = if direction == Direction::KernelWrites { STORED } else { LOADED };
    if directions & own == 0 { 0 } else { bytes.into() }
}

fn prctl(option: u32, arg: usize, direction: Direction) -> u64 {
    const SET_VMA: u32 = 0x5356_4d41;
    let option = option.cast_signed();
    match (direction, arg) {
        (Direction::KernelReads, 1) if option == libc::PR_SET_NAME => 16,
        (Direction::KernelReads, 4) if option == SET_VMA.cast_signed() => 1,
        (Direction::KernelWrites, 1) if option == libc::PR_GET_NAME => 16,
        (Direction::KernelWrites, 1)
            if [libc::PR_GET_PDEATHSIG, libc::PR_GET_CHILD_SUBREAPER].contains(&option) =>
        {
            4
        }
        _ => 0,
    }
}

fn fcntl(command: u32, direction: Direction) -> u64 {
    const FLOCK_BYTES: u64 = 32;
    let command = command.cast_signed();
    let is_get = [libc::F_GETLK, libc::F_OFD_GETLK].contains(&command);
    let is_set =
        [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW].contains(&command);
    let has = is_get || is_set && direction == Direction::KernelReads;
    if has { FLOCK_BYTES } else { 0 }
}

/// A waiter's word, and its time limit.
fn futex(op: u32, arg: usize) -> u64 {
    const FLAGS: u32 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME).cast_unsigned();
    let op = (op & !FLAGS).cast_signed();
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET, libc::FUTEX_LOCK_PI].contains(&op);
    match arg {
        _ if !waits => 0,
        0 => 4,
        _ => 16,
    }
}

#[cfg(test)]
mod tests;
