//! The program's mappings before its first instruction.
//!
//! Owns which ranges in `/proc/PID/maps` belong to the program. QEMU 7.2 keeps the program's memory
//! below its own; QEMU 10.0 mixes the two. Both versions map the program after loading the plugin,
//! and never as executable. So the segments come from the ELF files, and only their load address
//! comes from the maps:
//!
//! ```text
//!   before the program   qemu, its libraries, heap, threads
//!   mapped since         program segments (ELF)      interpreter segments (ELF)
//!                        guard | stack               read-only without a file: the vdso
//!                        all else without a file: QEMU's tables and buffers
//! ```
//!
//! Invariant I1: the result is sorted and free of overlaps.

use std::path::Path;

use largefolio_trace::{LayoutEntry, LayoutKind};
use rustix::process::{Resource, getrlimit};

use super::elf::Elf;
use super::files::Files;
use crate::proc::maps::Vma;

pub(crate) const PAGE_BYTES: u64 = 4096;

/// The initial layout and the heap's first address (0 if the program was not found).
pub(crate) struct Initial {
    pub(crate) layout: Vec<LayoutEntry>,
    /// The page after the program's memory.
    pub(crate) brk: u64,
    /// Pages that execve stores to, in order.
    pub(crate) zeroed: Vec<u64>,
}

/// QEMU's smallest stack for a program. A larger `ulimit -s` makes it larger.
const QEMU_STACK_BYTES: u64 = 8 << 20;

/// Returns the parts of `now` that were not mapped the same way in `before`. Both ascend, as
/// [`maps::parse`] ensures.
///
/// [`maps::parse`]: crate::proc::maps::parse
pub(crate) fn since(before: &[Vma], now: &[Vma]) -> Vec<Vma> {
    let mut new = Vec::new();
    for line in now {
        let mut rest = line.clone();
        let is_same = |old: &&Vma| {
            (old.inode, old.permissions, &old.path) == (line.inode, line.permissions, &line.path)
        };
        for old in before.iter().filter(is_same) {
            if old.range.end <= rest.range.start || rest.range.end <= old.range.start {
                continue;
            }
            if rest.range.start < old.range.start {
                let first = Vma { range: rest.range.start..old.range.start, ..rest.clone() };
                new.push(first);
            }
            let start = old.range.end.min(rest.range.end);
            rest.pos = rest.pos.saturating_add(start - rest.range.start);
            rest.range.start = start;
        }
        if !rest.range.is_empty() {
            new.push(rest);
        }
    }
    new
}

/// Builds the layout of a program under QEMU from the mappings made [`since`] QEMU loaded the
/// plugin.
///
/// `guest_base` is QEMU's offset to the program's addresses.
pub(crate) fn of_qemu(new: &[Vma], guest_base: u64, program: &Path, files: &mut Files) -> Initial {
    let stack_bytes = getrlimit(Resource::Stack).current.unwrap_or(0).max(QEMU_STACK_BYTES);
    let mut lines: Vec<Vma> = Vec::new();
    for line in new {
        let (Some(start), Some(end)) =
            (line.range.start.checked_sub(guest_base), line.range.end.checked_sub(guest_base))
        else {
            continue;
        };
        let mut line = Vma { range: start..end, ..line.clone() };
        let is_anon = line.path.as_os_str().is_empty();
        match line.prot() {
            0 => {}
            1 if is_anon => {
                line.permissions = *b"r-xp";
                line.path = "[vdso]".into();
            }
            1 | 3 if line.has_file() => {}
            3 if is_anon && is_guarded(lines.last(), &line) && line.len_bytes() >= stack_bytes => {
                // QEMU's own memory may follow without a gap.
                line.range.end = line.range.start + stack_bytes;
            }
            _ => continue,
        }
        lines.push(line);
    }
    of_program_lines(&lines, program, files)
}

/// Whether `line` directly follows `previous`, and `previous` is inaccessible.
fn is_guarded(previous: Option<&Vma>, line: &Vma) -> bool {
    previous.is_some_and(|guard| guard.prot() == 0 && guard.range.end == line.range.start)
}

/// Builds the layout if all lines belong to the program.
pub(crate) fn of_program_lines(lines: &[Vma], program: &Path, files: &mut Files) -> Initial {
    let mut builder = Builder { lines, files, layout: Vec::new(), zeroed: Vec::new() };
    let brk = builder.add_program(program);
    builder.add_others();
    let Builder { mut layout, zeroed, .. } = builder;
    // Segments can contain anything; a segment past the end of the address space is not mapped.
    layout.retain(|entry| entry.addr.checked_add(entry.len).is_some());
    layout.sort_by_key(|entry| entry.addr);
    layout.dedup_by(|next, previous| next.addr < previous.addr + previous.len);
    Initial { layout, brk, zeroed }
}

struct Builder<'a> {
    lines: &'a [Vma],
    files: &'a mut Files,
    layout: Vec<LayoutEntry>,
    zeroed: Vec<u64>,
}

impl Builder<'_> {
    fn add_program(&mut self, program: &Path) -> u64 {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let program = real(program);
        let Some(elf) = Elf::read(&program) else { return 0 };
        let bias = self.add_segments(&program, &elf, LayoutKind::Program);
        let interpreter = elf.interpreter.as_deref().map(|path| real(&self.files.host(path)));
        if let Some(path) = interpreter
            && let Some(elf) = Elf::read(&path)
        {
            self.add_segments(&path, &elf, LayoutKind::Interpreter);
        }
        let end = bias.map_or(0, |bias| elf.end().wrapping_add(bias));
        end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0)
    }

    /// Adds the segments of `elf`, mapped as `path`; returns its load bias if it is mapped.
    fn add_segments(&mut self, path: &Path, elf: &Elf, kind: LayoutKind) -> Option<u64> {
        let first = self.lines.iter().find(|line| *line.name() == *path)?;
        let segment = elf.segments.iter().find(|segment| segment.pos == first.pos)?;
        let bias = first.range.start.wrapping_sub(segment.start);
        let file = self.files.add_path(path);
        let zeroed = elf.segments.iter().filter_map(|segment| segment.zeroed);
        self.zeroed.extend(zeroed.map(|page| page.wrapping_add(bias)));
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

    /// Adds mappings without an ELF file: the stack above its guard, and other accessible memory.
    fn add_others(&mut self) {
        let mut previous: Option<&Vma> = None;
        for line in self.lines {
            let is_guarded = is_guarded(previous, line);
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
        let is_over = |entry: &LayoutEntry| {
            entry.addr < line.range.end && line.range.start < entry.addr.saturating_add(entry.len)
        };
        self.layout.iter().any(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::maps;

    fn vmas(text: &str) -> Vec<Vma> {
        maps::parse(text.as_bytes(), PAGE_BYTES).vmas
    }

    /// QEMU 10.0: the stack is between QEMU's own mappings and merges with the one above it.
    #[test]
    fn what_qemu_mapped_for_itself_is_not_the_programs() {
        let before = vmas(
            "555500000000-555500001000 r-xp 00000000 fe:00 1 /usr/bin/qemu-x86_64\n\
             555500010000-555500020000 rw-p 00000000 00:00 0 [heap]\n\
             7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
             7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n\
             7f1000900000-7f1000901000 rw-p 00000000 00:00 0 \n",
        );
        let now = vmas(
            "555500000000-555500001000 r-xp 00000000 fe:00 1 /usr/bin/qemu-x86_64\n\
             555500010000-555500030000 rw-p 00000000 00:00 0 [heap]\n\
             7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
             7f0000001000-7f0000801000 rw-p 00000000 00:00 0 \n\
             7f0000900000-7f0000901000 ---p 00000000 00:00 0 \n\
             7f0000901000-7f0000922000 rw-p 00000000 00:00 0 \n\
             7f0000a00000-7f0000a10000 rwxp 00000000 00:00 0 \n\
             7f0001000000-7f0001001000 ---p 00000000 00:00 0 \n\
             7f0001001000-7f1000901000 rw-p 00000000 00:00 0 \n\
             7f1000a00000-7f1000a01000 r--p 00000000 00:00 0 \n",
        );
        let initial =
            of_qemu(&since(&before, &now), 0, Path::new("/nonexistent"), &mut Files::default());
        let stack_bytes = getrlimit(Resource::Stack).current.unwrap_or(0).max(QEMU_STACK_BYTES);
        let entries = initial.layout.iter();
        let entries: Vec<_> = entries.map(|e| (e.addr, e.len, e.prot, e.kind)).collect();
        let stack = (0x7f00_0100_1000, stack_bytes, 3, LayoutKind::Stack);
        assert_eq!(entries, [stack, (0x7f10_00a0_0000, 4096, 5, LayoutKind::Other)]);
    }

    #[test]
    fn what_is_new_is_cut_out_of_a_mapping_that_grew() {
        let before = vmas(
            "10000-20000 rw-p 00000000 00:00 0 \n\
             30000-40000 rw-p 00000000 00:00 0 \n\
             60000-61000 r--p 00005000 fe:00 7 /f\n",
        );
        let now = vmas(
            "8000-50000 rw-p 00000000 00:00 0 \n\
             60000-63000 r--p 00005000 fe:00 7 /f\n\
             70000-71000 r--p 00005000 fe:00 7 /f\n",
        );
        let new = since(&before, &now);
        let lines: Vec<_> = new.iter().map(|line| (line.range.clone(), line.pos)).collect();
        let expected = [
            (0x8000..0x1_0000, 0),
            (0x2_0000..0x3_0000, 0x1_8000),
            (0x4_0000..0x5_0000, 0x3_8000),
            (0x6_1000..0x6_3000, 0x6000),
            (0x7_0000..0x7_1000, 0x5000),
        ];
        assert_eq!(lines, expected);
        assert_eq!(since(&[], &now), now);
    }
}
