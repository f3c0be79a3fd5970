//! The mappings that an execve made.
//!
//! Owns the selection of lines from `/proc/PID/maps`, which is read shortly after the execve, when
//! the loader has already mapped libraries; the trace has these as system calls. The kernel's
//! records of the execve show which mappings it made itself. If the process has exited, only the
//! records remain, and its stack is found by its faults.

use std::path::Path;

use largefolio_trace::event::abi;
use largefolio_trace::{Image, LayoutEntry, LayoutKind};

use super::files::Inodes;
use super::kernel_event::Mapped;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::record::book::Book;
use crate::record::layout::{self, PAGE_BYTES};
use crate::system::Live;

/// A stack can grow to this: the usual limit.
const STACK_BYTES: u64 = 8 << 20;
/// Bytes above the page of a first fault, for arguments and environment.
const STACK_ABOVE_BYTES: u64 = 128 << 10;
/// Address space ends: 47 bits, and 48 on arm64. The kernel puts stacks up to 16 GiB below.
const ADDRESSES_END: [u64; 2] = [1 << 47, 1 << 48];
const STACKS_BYTES: u64 = 64 << 30;
/// Kernel mappings of a program that have no file.
const SPECIAL: [&str; 4] = ["[stack]", "[vdso]", "[vvar]", "[vvar_vclock]"];

/// Returns the command and image of a process after execve; `None` if neither it nor records exist.
pub(super) fn of_execve(
    pid: u32,
    mapped: &[Mapped],
    book: &mut Book<'_>,
    inodes: &mut Inodes,
) -> Option<(Vec<String>, Image)> {
    let program = mapped.first()?;
    for one in mapped {
        inodes.of_mapping(&mut book.files, one);
    }
    let task = Task::of(&Live, pid);
    let maps = task.maps().map(|maps| maps.vmas).unwrap_or_default();
    let is_program = |vma: &Vma| vma.range.start == program.addr && vma.inode == program.inode;
    let (lines, command) = if maps.iter().any(is_program) {
        (maps.into_iter().filter(|vma| is_of_execve(vma, mapped)).collect(), task.command())
    } else {
        (mapped.iter().map(vma).collect(), vec![program.path.to_string_lossy().into_owned()])
    };
    let lines: Vec<Vma> = lines;
    Some((command, of_lines(&lines, &program.path, book)))
}

/// Adds the stack of a program that exited before its maps could be read, at its first fault.
/// Returns whether the layout has a stack now.
pub(super) fn add_stack(layout: &mut Vec<LayoutEntry>, address: u64) -> bool {
    if layout.iter().any(|entry| entry.kind == LayoutKind::Stack) {
        return true;
    }
    let end = layout.last().map_or(0, |entry| entry.addr + entry.len);
    let page = address & !(PAGE_BYTES - 1);
    let is_stack = |end: &u64| (end - STACKS_BYTES..*end).contains(&address);
    if !ADDRESSES_END.iter().any(is_stack) || page < end + STACK_BYTES {
        return false;
    }
    let (addr, len) = (page + STACK_ABOVE_BYTES - STACK_BYTES, STACK_BYTES);
    let prot = abi::PROT_READ | abi::PROT_WRITE;
    layout.push(LayoutEntry { addr, len, prot, file: None, pos: 0, kind: LayoutKind::Stack });
    true
}

fn grow_stack(layout: &mut [LayoutEntry]) {
    let mut below = 0;
    for entry in layout {
        let end = entry.addr + entry.len;
        if entry.kind == LayoutKind::Stack && entry.len < STACK_BYTES {
            entry.addr = end.saturating_sub(STACK_BYTES).max(below);
            entry.len = end - entry.addr;
        }
        below = end;
    }
}

pub(super) fn of_lines(lines: &[Vma], program: &Path, book: &mut Book<'_>) -> Image {
    let mut initial = layout::of_program_lines(lines, program, &mut book.files);
    grow_stack(&mut initial.layout);
    Image { layout: initial.layout, brk: 0 }
}

pub(super) fn is_of_execve(vma: &Vma, mapped: &[Mapped]) -> bool {
    let is_in = |one: &Mapped| {
        one.inode == vma.inode && vma.range.start.wrapping_sub(one.addr) < one.len.max(1)
    };
    SPECIAL.iter().any(|name| vma.path == Path::new(name)) || mapped.iter().any(is_in)
}

fn vma(mapped: &Mapped) -> Vma {
    let letter = |bit, letter| if mapped.prot & bit == 0 { b'-' } else { letter };
    Vma {
        range: mapped.addr..mapped.addr.saturating_add(mapped.len),
        permissions: [letter(1, b'r'), letter(2, b'w'), letter(4, b'x'), b'p'],
        pos: mapped.pos,
        device: (libc::major(mapped.device), libc::minor(mapped.device)),
        inode: mapped.inode,
        path: mapped.path.clone(),
        is_deleted: false,
    }
}
