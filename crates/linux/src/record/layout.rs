//! The program's mappings before its first instruction.
//!
//! Owns which of the ranges in `/proc/PID/maps` are the program's. Under QEMU the
//! program's memory is below QEMU's own, and QEMU maps the program's text without `PROT_EXEC`, so
//! the segments come from the ELF files and only their load address from the maps:
//!
//! ```text
//!   0x400000 or 0x4000000000  program segments (ELF)      0x55..  qemu, its libraries, buffers
//!   above                     guard | stack 8 MiB         (not the program's)
//!                             interpreter segments (ELF)
//! ```
//!
//! Invariant I1: the result is sorted and free of overlaps.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use largefolio_trace::{LayoutEntry, LayoutKind};

use super::elf::Elf;
use super::files::Files;
use crate::proc::maps::Vma;

/// Base pages of the programs that are recorded.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The initial layout and the heap's first address (0 when the program was not found).
pub(crate) struct Initial {
    /// Sorted, without overlaps.
    pub(crate) layout: Vec<LayoutEntry>,
    /// Page after the program's memory.
    pub(crate) brk: u64,
}

/// The layout of a program under QEMU from the maps of QEMU's process.
///
/// `guest_base` is what QEMU adds to the program's addresses.
pub(crate) fn of_qemu(vmas: &[Vma], guest_base: u64, program: &Path, files: &mut Files) -> Initial {
    let qemu = vmas.iter().find(|line| is_named(line, "qemu-x86_64"));
    let limit = qemu.map_or(0x5500_0000_0000, |line| line.range.start);
    let of_program = |line: &&Vma| line.range.start >= guest_base && line.range.end <= limit;
    let lines: Vec<Vma> = vmas
        .iter()
        .filter(of_program)
        .map(|line| {
            let range = line.range.start - guest_base..line.range.end - guest_base;
            Vma { range, ..line.clone() }
        })
        .collect();
    of_program_lines(&lines, program, files)
}

fn is_named(line: &Vma, prefix: &str) -> bool {
    line.path.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// The layout from maps lines that are all the program's.
pub(crate) fn of_program_lines(lines: &[Vma], program: &Path, files: &mut Files) -> Initial {
    let mut builder = Builder { lines, files, layout: Vec::new() };
    let brk = builder.add_program(program);
    builder.add_others();
    let mut layout = builder.layout;
    layout.sort_by_key(|entry| entry.addr);
    layout.dedup_by(|next, previous| next.addr < previous.addr + previous.len);
    Initial { layout, brk }
}

/// A layout in the making.
struct Builder<'a> {
    lines: &'a [Vma],
    files: &'a mut Files,
    layout: Vec<LayoutEntry>,
}

impl Builder<'_> {
    /// Adds program and interpreter; the heap's first address.
    fn add_program(&mut self, program: &Path) -> u64 {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let program = real(program);
        let Some(elf) = Elf::read(&program) else { return 0 };
        let bias = self.add_segments(&program, &elf, LayoutKind::Program);
        if let Some(path) = elf.interpreter.as_deref().map(real)
            && let Some(elf) = Elf::read(&path)
        {
            self.add_segments(&path, &elf, LayoutKind::Interpreter);
        }
        let end = bias.map_or(0, |bias| elf.end().wrapping_add(bias));
        end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0)
    }

    /// Adds the segments of `elf`, which is mapped as `path`; its load bias, if it is mapped.
    fn add_segments(&mut self, path: &Path, elf: &Elf, kind: LayoutKind) -> Option<u64> {
        let first = self.lines.iter().find(|line| *line.name() == *path)?;
        let segment = elf.segments.iter().find(|segment| segment.pos == first.pos)?;
        let bias = first.range.start.wrapping_sub(segment.start);
        let file = self.files.add_path(path);
        for segment in &elf.segments {
            let entry = |from: u64, to: u64| LayoutEntry {
                addr: from.wrapping_add(bias),
                len: to - from,
                prot: segment.prot,
                file: None,
                pos: 0,
                kind,
            };
            if segment.file_end > segment.start {
                let backed = entry(segment.start, segment.file_end);
                self.layout.push(LayoutEntry { file, pos: segment.pos, ..backed });
            }
            if segment.end > segment.file_end {
                self.layout.push(entry(segment.file_end, segment.end));
            }
        }
        Some(bias)
    }

    /// Adds what no ELF file explains: the stack, above its guard, and anything else accessible.
    fn add_others(&mut self) {
        let mut previous: Option<&Vma> = None;
        for line in self.lines {
            let is_guarded = previous
                .is_some_and(|guard| guard.prot() == 0 && guard.range.end == line.range.start);
            previous = Some(line);
            if line.prot() == 0 || self.is_known(line) {
                continue;
            }
            let is_file = line.path.is_absolute();
            let is_stack = line.path == Path::new("[stack]") || is_guarded && !is_file;
            self.layout.push(LayoutEntry {
                addr: line.range.start,
                len: line.len_bytes(),
                prot: line.prot(),
                file: if is_file { self.files.add_path(&line.name()) } else { None },
                pos: if is_file { line.pos } else { 0 },
                kind: if is_stack { LayoutKind::Stack } else { LayoutKind::Other },
            });
        }
    }

    fn is_known(&self, line: &Vma) -> bool {
        self.layout
            .iter()
            .any(|entry| entry.addr < line.range.end && line.range.start < entry.addr + entry.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::maps;

    #[test]
    fn qemu_and_what_is_above_it_is_not_the_programs() {
        let text = b"4000000000-4000001000 ---p 00000000 00:00 0 \n\
            4000001000-4000801000 rw-p 00000000 00:00 0 \n\
            4000900000-4000901000 rw-p 00000000 00:00 0 \n\
            555500000000-555500001000 r-xp 00000000 fe:00 1 /usr/bin/qemu-x86_64\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n";
        let program = Path::new("/nonexistent/program");
        let initial =
            of_qemu(&maps::parse(text, PAGE_BYTES).vmas, 0, program, &mut Files::default());
        let seen: Vec<_> = initial.layout.iter().map(|entry| (entry.addr, entry.kind)).collect();
        let expected = [(0x40_0000_1000, LayoutKind::Stack), (0x40_0090_0000, LayoutKind::Other)];
        assert_eq!(seen, expected);
    }
}
