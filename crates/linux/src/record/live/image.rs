//! What an execve mapped.
//!
//! Owns the choice of lines. `/proc/PID/maps` is read a moment after the execve: the loader has mapped
//! libraries by then, which the trace tells as system calls. What the execve itself mapped is known from
//! the kernel's records of that moment; of a process that is gone these alone are left, without its
//! stack.

use std::path::Path;

use largefolio_trace::Image;

use super::files::Inodes;
use super::seen::Mapped;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::record::book::Book;
use crate::record::layout;
use crate::system::Live;

/// Longest command that is kept, in bytes (`NR_EXECS_MAX` counts on it).
const COMMAND_BYTES_MAX: usize = 160;
/// Memory that the kernel gives a program besides its files.
const SPECIAL: [&str; 4] = ["[stack]", "[vdso]", "[vvar]", "[vvar_vclock]"];

/// Command and image of a process that was just executed; `None` if neither it nor records are there.
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
        book.warn("A program ended before its stack could be seen; what it did there is missing.");
        (mapped.iter().map(vma).collect(), vec![program.path.to_string_lossy().into_owned()])
    };
    let lines: Vec<Vma> = lines;
    Some((cut(command), of_lines(&lines, &program.path, book)))
}

/// The image in lines of maps.
pub(super) fn of_lines(lines: &[Vma], program: &Path, book: &mut Book<'_>) -> Image {
    let initial = layout::of_program_lines(lines, program, &mut book.files);
    Image { layout: initial.layout, brk: 0 }
}

/// A command of bounded length.
pub(super) fn cut(command: Vec<String>) -> Vec<String> {
    let mut nr_left = COMMAND_BYTES_MAX;
    let mut words = Vec::new();
    for mut word in command {
        if word.len() > nr_left {
            word.truncate(word.floor_char_boundary(nr_left));
            word.push('…');
            words.push(word);
            break;
        }
        nr_left -= word.len();
        words.push(word);
    }
    words
}

/// Whether a line of maps is there since the execve.
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
