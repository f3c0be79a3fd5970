//! Calls that QEMU refuses although a kernel grants them.
//!
//! The program gets QEMU's error, and the trace a warning. A call that only changes how the kernel
//! treats memory is recorded all the same: few programs look at its result.

use super::sysno::Sysno;
use super::{Call, low, memory};
use crate::arch::Arch;
use crate::arguments::Arguments;
use crate::wire::Kind;
use crate::{layout, placed, send, sys};

/// Calls that programs cannot do without in the same way: name, numbers on x86-64 and
/// arm64. QEMU 7.2 does not know these. (It does not know clone3 and rseq either, but the C library
/// does without them.)
const UNKNOWN: [(&str, i64, i64); 14] = [
    ("cachestat", 451, 451),
    ("get_mempolicy", 239, 236),
    ("io_uring_setup", 425, 425),
    ("mbind", 237, 235),
    ("memfd_secret", 447, 447),
    ("migrate_pages", 256, 238),
    ("mlock2", 325, 284),
    ("move_pages", 279, 239),
    ("process_madvise", 440, 440),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("remap_file_pages", 216, 234),
    ("set_mempolicy", 238, 237),
    ("userfaultfd", 323, 282),
];

pub(super) fn note(call: &Call, error: i32) {
    let Some(name) = name_of(call, error) else { return };
    let is_recorded = match call.sysno {
        Sysno::Prctl => sys::switch_thp(call.args[1], call.args[2]),
        Sysno::Mlock2 => {
            let [start, len, flags, ..] = call.args;
            sys::lock(start.wrapping_add(layout::guest_base()), len, flags)
        }
        Sysno::Mbind | Sysno::SetMempolicy => true,
        _ => false,
    };
    if is_recorded {
        memory::after(call, 0);
    }
    if !is_recorded || call.sysno != Sysno::Prctl {
        send::send(call.tail, Kind::Refused, [name.as_bytes(), &[]]);
    }
}

/// Returns the call's name if QEMU refused it.
fn name_of(call: &Call, error: i32) -> Option<&'static str> {
    let [_, a2, _, a4, ..] = call.args;
    match (call.sysno, error) {
        (Sysno::Prctl, libc::EINVAL) if memory::switches_thp(call) => {
            Some("prctl(PR_SET_THP_DISABLE)")
        }
        (Sysno::Mmap, libc::EINVAL | libc::ENOMEM)
            if low(a4) & libc::MAP_HUGETLB.cast_unsigned() != 0 && !placed::is_active() =>
        {
            Some("mmap(MAP_HUGETLB)")
        }
        (Sysno::Mremap, libc::ENOMEM) if a2 == 0 => Some("mremap with an old size of 0"),
        (_, libc::ENOSYS) => {
            let arch = Arguments::kept()?.arch;
            let number = |&(_, x86_64, arm64): &(&str, i64, i64)| match arch {
                Arch::X86_64 => x86_64,
                Arch::Arm64 => arm64,
            };
            UNKNOWN.iter().find(|row| number(row) == call.number).map(|row| row.0)
        }
        _ => None,
    }
}
