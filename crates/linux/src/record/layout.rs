//! The program's mappings before its first instruction.
//!
//! Owns the reading of `/proc/PID/maps` and which of its ranges are the program's. Under QEMU the
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

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use largefolio_trace::{LayoutEntry, LayoutKind};

use super::elf::Elf;
use super::files::Files;

const PAGE_BYTES: u64 = 4096;

/// One line of a maps file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MapsLine {
    /// First address.
    pub(crate) start: u64,
    /// End.
    pub(crate) end: u64,
    /// `PROT_*` bits.
    pub(crate) prot: u32,
    /// Position in the file.
    pub(crate) pos: u64,
    /// File or `[name]`, empty for anonymous memory.
    pub(crate) path: PathBuf,
}

/// The lines of a maps file; a line that is none is skipped.
pub(crate) fn parse_maps(text: &[u8]) -> Vec<MapsLine> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MapsLine> {
    // Address range, permissions, position, device, inode; the path may hold spaces.
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let (range, permissions, pos) = (field()?, field()?, field()?);
    field()?;
    field()?;
    let (start, end) = range.split_once('-')?;
    let bit = |letter: char, bit: u32| if permissions.contains(letter) { bit } else { 0 };
    Some(MapsLine {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        prot: bit('r', 1) | bit('w', 2) | bit('x', 4),
        pos: u64::from_str_radix(pos, 16).ok()?,
        path: PathBuf::from(OsStr::from_bytes(rest)),
    })
}

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
pub(crate) fn of_qemu(
    maps: &[MapsLine],
    guest_base: u64,
    program: &Path,
    files: &mut Files,
) -> Initial {
    let qemu = maps.iter().find(|line| is_named(line, "qemu-x86_64"));
    let limit = qemu.map_or(0x5500_0000_0000, |line| line.start);
    let of_program = |line: &&MapsLine| line.start >= guest_base && line.end <= limit;
    let lines: Vec<MapsLine> = maps
        .iter()
        .filter(of_program)
        .map(|line| MapsLine {
            start: line.start - guest_base,
            end: line.end - guest_base,
            ..line.clone()
        })
        .collect();
    of_program_lines(&lines, program, files)
}

fn is_named(line: &MapsLine, prefix: &str) -> bool {
    line.path.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// The layout from maps lines that are all the program's.
pub(crate) fn of_program_lines(lines: &[MapsLine], program: &Path, files: &mut Files) -> Initial {
    let mut layout = Vec::new();
    let mut brk = 0;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let program = real(program);
    if let Some(elf) = Elf::read(&program) {
        let interpreter = elf.interpreter.clone().map(|path| real(&path));
        if let Some(bias) = add_segments(&mut layout, lines, &program, &elf, LayoutKind::Program, files) {
            brk = (elf.end() + bias).next_multiple_of(PAGE_BYTES);
        }
        if let Some(path) = interpreter
            && let Some(elf) = Elf::read(&path)
        {
            add_segments(&mut layout, lines, &path, &elf, LayoutKind::Interpreter, files);
        }
    }
    add_others(&mut layout, lines, files);
    layout.sort_by_key(|entry| entry.addr);
    layout.dedup_by(|next, previous| next.addr < previous.addr + previous.len);
    Initial { layout, brk }
}

/// Adds the segments of `elf`, which is mapped as `path`; its load bias, if it is mapped.
#[expect(clippy::too_many_arguments, reason = "one call's worth of context, used twice")]
fn add_segments(
    layout: &mut Vec<LayoutEntry>,
    lines: &[MapsLine],
    path: &Path,
    elf: &Elf,
    kind: LayoutKind,
    files: &mut Files,
) -> Option<u64> {
    let first = lines.iter().find(|line| line.path == path)?;
    let segment = elf.segments.iter().find(|segment| segment.pos == first.pos)?;
    let bias = first.start.wrapping_sub(segment.start);
    let file = files.add_path(path);
    for segment in &elf.segments {
        let start = segment.start.wrapping_add(bias);
        let entry = |from: u64, to: u64| LayoutEntry {
            addr: from.wrapping_add(bias),
            len: to - from,
            prot: segment.prot,
            file: None,
            pos: 0,
            kind,
        };
        if segment.file_end > segment.start {
            layout.push(LayoutEntry {
                addr: start,
                file,
                pos: segment.pos,
                ..entry(segment.start, segment.file_end)
            });
        }
        if segment.end > segment.file_end {
            layout.push(entry(segment.file_end, segment.end));
        }
    }
    Some(bias)
}

/// Adds what no ELF file explains: the stack, above its guard, and anything else accessible.
fn add_others(layout: &mut Vec<LayoutEntry>, lines: &[MapsLine], files: &mut Files) {
    let is_known = |layout: &[LayoutEntry], line: &MapsLine| {
        layout.iter().any(|entry| entry.addr < line.end && line.start < entry.addr + entry.len)
    };
    let mut previous: Option<&MapsLine> = None;
    for line in lines {
        let is_guarded =
            previous.is_some_and(|guard| guard.prot == 0 && guard.end == line.start);
        previous = Some(line);
        if line.prot == 0 || is_known(layout, line) {
            continue;
        }
        let is_file = line.path.is_absolute();
        let is_stack = line.path == Path::new("[stack]") || is_guarded && !is_file;
        layout.push(LayoutEntry {
            addr: line.start,
            len: line.end - line.start,
            prot: line.prot,
            file: if is_file { files.add_path(&line.path) } else { None },
            pos: if is_file { line.pos } else { 0 },
            kind: if is_stack { LayoutKind::Stack } else { LayoutKind::Other },
        });
    }
}
