//! The hot callbacks, which record the references of each block and access.
//!
//! Also owns where the callbacks are placed. Invariants:
//! - B1: when a block runs, each instruction counts once on each page that holds its bytes. A block
//!   that a fault interrupts counts in full.
//! - B2: an access counts once on each page it touches. QEMU 7.2 reports a 16-byte access as two
//!   8-byte ones, 10.0 as one.
//! - B3: the value of an aligned load of 8 or 4 bytes is noted after the load touched its page.
//! - B4: an instruction that modifies memory counts as two writes on `x86_64` ([`modify`]). On arm64
//!   an atomic one is a read and a write in a single-threaded program. With more threads QEMU
//!   reports it once, and it is a write.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::access::Access;
use crate::qemu::{self, Block, Insn, PluginId};
use crate::tail::{Room, Tail};
use crate::wire::PAGE_BITS;
use crate::{epoch, layout, modify, send, thread, unseen, version};

const EXEC: u32 = 0;
const READ: u32 = 1;
const WRITE: u32 = 2;

const PAGE_MASK: u64 = (1 << PAGE_BITS) - 1;

/// Largest access that QEMU reports as one, in bytes (`cmpxchg16b`).
const ACCESS_MAX: u64 = 16;

const POINTER_BYTES: u64 = 8;
const NUMBER_BYTES: u64 = 4;

/// The low bits of a segment word count its instructions (at most 512 per block). The bits above
/// hold the page number.
const SEGMENT_COUNT_BITS: u32 = 12;

static IS_LAYOUT_SENT: AtomicBool = AtomicBool::new(false);

pub(crate) extern "C" fn translated(_id: PluginId, block: *mut Block) {
    // SAFETY: QEMU passes a block that is valid during this callback.
    let nr_insns = unsafe { qemu::qemu_plugin_tb_n_insns(block) };
    let mut segment = Segment { page: u64::MAX, nr_insns: 0, first: ptr::null_mut() };
    let mut is_first = true;
    for index in 0..nr_insns {
        // SAFETY: as above, and `index` is below the number of instructions.
        let insn = unsafe { qemu::qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: `insn` is valid during this callback.
        let start = unsafe { qemu::qemu_plugin_insn_vaddr(insn) };
        // SAFETY: as above.
        let size = unsafe { qemu::qemu_plugin_insn_size(insn) } as u64;
        if !IS_LAYOUT_SENT.swap(true, Relaxed) {
            layout::send(insn, start);
        }
        let is_modifying = modify::is_modifying(insn, usize::try_from(size).unwrap_or(0));
        watch_accesses(insn, start, is_modifying);
        unseen::watch(insn);
        for page in start >> PAGE_BITS..=(start + size.max(1) - 1) >> PAGE_BITS {
            if page != segment.page {
                segment.place(block, is_first);
                is_first &= segment.nr_insns == 0;
                segment = Segment { page, nr_insns: 0, first: insn };
            }
            segment.nr_insns += 1;
        }
    }
    segment.place(block, is_first);
}

struct Segment {
    page: u64,
    nr_insns: u64,
    first: *mut Insn,
}

impl Segment {
    /// Makes QEMU call [`executed`] for this segment. The first segment's callback runs at the
    /// start of the block.
    fn place(&self, block: *mut Block, is_first: bool) {
        if self.nr_insns == 0 {
            return;
        }
        let word = self.page << SEGMENT_COUNT_BITS | self.nr_insns;
        let data = data_of(word);
        if is_first {
            // SAFETY: `block` is valid during the translation callback we are in.
            unsafe {
                qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, qemu::NO_REGS, data);
            }
        } else {
            // SAFETY: `first` is an instruction of the block, valid like it.
            unsafe {
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                    self.first,
                    executed,
                    qemu::NO_REGS,
                    data,
                );
            }
        }
    }
}

fn data_of(word: u64) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(word).unwrap_or(0))
}

/// Uses one callback for both directions: QEMU 7.2 confuses loads and stores if a callback asks for
/// one direction.
fn watch_accesses(insn: *mut Insn, start: u64, is_modifying: bool) {
    // SAFETY: `insn` is valid during the translation callback we are in.
    unsafe {
        qemu::qemu_plugin_register_vcpu_mem_cb(
            insn,
            if is_modifying { modified } else { accessed },
            qemu::NO_REGS,
            qemu::MEM_BOTH,
            data_of(start),
        );
    }
}

extern "C" fn executed(vcpu: c_uint, data: *mut c_void) {
    let Some(tail) = thread::tail_of(vcpu) else { return };
    if epoch::is_behind(tail) {
        epoch::catch_up(tail);
    }
    let word = data.addr() as u64;
    let count = word & ((1 << SEGMENT_COUNT_BITS) - 1);
    touch(tail, EXEC, word >> SEGMENT_COUNT_BITS << PAGE_BITS, count, 0);
}

/// `data` is the instruction's address.
extern "C" fn accessed(vcpu: c_uint, info: u32, addr: u64, data: *mut c_void) {
    let Some(tail) = thread::tail_of(vcpu) else { return };
    // SAFETY: `info` is the handle QEMU passed to this callback.
    let access = unsafe { Access::of(info) };
    let op = if access.is_store() { WRITE } else { READ };
    let pc = data.addr() as u64;
    touch(tail, op, addr, 1, pc);
    // SAFETY: as above, and the callback runs.
    let reported = || unsafe { version::value_of(info) };
    if access.is_load_of_pointer_size() {
        if let Some(value) = reported().or_else(|| pointer_in_memory(addr))
            && addr.is_multiple_of(POINTER_BYTES)
        {
            tail.loaded(addr, value);
        }
    } else if access.is_load_of_number_size()
        && let Some(value) = reported().or_else(|| number_in_memory(addr))
    {
        tail.loaded_number(value & u64::from(u32::MAX));
    }
    if addr & PAGE_MASK > PAGE_MASK + 1 - ACCESS_MAX {
        access_at_page_end(tail, access, addr, (op, pc));
    }
}

/// Records the load and the store of an instruction that modifies memory as writes.
extern "C" fn modified(vcpu: c_uint, info: u32, addr: u64, data: *mut c_void) {
    let Some(tail) = thread::tail_of(vcpu) else { return };
    // SAFETY: `info` is the handle QEMU passed to this callback.
    let access = unsafe { Access::of(info) };
    let pc = data.addr() as u64;
    touch(tail, WRITE, addr, 1, pc);
    if addr & PAGE_MASK > PAGE_MASK + 1 - ACCESS_MAX {
        access_at_page_end(tail, access, addr, (WRITE, pc));
    }
}

/// Reads the value of the last load from memory, for a QEMU that does not report it.
#[inline]
fn pointer_in_memory(addr: u64) -> Option<u64> {
    let host = in_memory(addr, POINTER_BYTES)?;
    // SAFETY: the calling thread has just loaded these 8 aligned bytes of the program, which QEMU
    // maps there. Only another program thread could have unmapped or protected them since. It would
    // race with the load itself: the program could fault without us too, and QEMU (7.2) passes this
    // fault on as the program's. Other threads may write there, hence volatile. The value is only
    // compared.
    Some(unsafe { ptr::with_exposed_provenance::<u64>(host).read_volatile() })
}

/// The same for 4 bytes.
#[inline]
fn number_in_memory(addr: u64) -> Option<u64> {
    let host = in_memory(addr, NUMBER_BYTES)?;
    // SAFETY: as for 8 bytes.
    Some(u64::from(unsafe { ptr::with_exposed_provenance::<u32>(host).read_volatile() }))
}

/// Returns where QEMU maps an aligned address of the program.
#[inline]
fn in_memory(addr: u64, bytes: u64) -> Option<usize> {
    let base = layout::load_base()?;
    let host = || usize::try_from(addr.wrapping_add(base)).ok();
    if addr.is_multiple_of(bytes) { host() } else { None }
}

#[cold]
fn access_at_page_end(tail: &Tail, access: Access, addr: u64, (op, pc): (u32, u64)) {
    let last = addr + (access.size_bytes() - 1);
    if last >> PAGE_BITS != addr >> PAGE_BITS {
        touch(tail, op, last, 1, pc);
    }
}

#[inline]
fn touch(tail: &Tail, op: u32, addr: u64, count: u64, pc: u64) {
    if tail.touch(op, addr, count, pc) == Room::Full {
        send::flush(tail);
    }
}

/// Records the kernel's accesses to the program's memory `addr..addr + len` during a system call,
/// one reference per page.
pub(crate) fn touch_buffer(tail: &Tail, direction: Direction, addr: u64, len: u64) {
    if len == 0 {
        return;
    }
    let op = match direction {
        Direction::KernelReads => READ,
        Direction::KernelWrites => WRITE,
    };
    for page in addr >> PAGE_BITS..=addr.saturating_add(len - 1) >> PAGE_BITS {
        touch(tail, op, page << PAGE_BITS, 1, 0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    KernelReads,
    KernelWrites,
}
