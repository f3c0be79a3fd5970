//! The reads that `execve` makes in a program file before mapping it.

use std::os::unix::fs::FileExt;
use std::path::Path;

use largefolio_trace::disk::open_regular;

/// The first bytes of every program (`BINPRM_BUF_SIZE`).
const HEAD: u64 = 256;
/// The length of an ELF64 header; `execve` first reads only this of an interpreter.
const ELF_HEADER: usize = 64;
const PT_INTERP: u64 = 3;
const PROGRAM_HEADER: u64 = 56;
/// The kernel's limit for the program headers.
const TABLE_BYTES_MAX: u64 = 1 << 16;

/// Returns position and length of each read, in order. For a file that is not ELF: only the head.
#[must_use]
pub fn exec_reads(path: &Path, is_interpreter: bool) -> Vec<(u64, u64)> {
    let first = (0, if is_interpreter { ELF_HEADER as u64 } else { HEAD });
    let mut reads = vec![first];
    reads.extend(
        headers(path)
            .unwrap_or_default()
            .into_iter()
            .filter(|(kind, _)| {
                // An interpreter has no interpreter.
                *kind != PT_INTERP || !is_interpreter
            })
            .map(|(_, read)| read),
    );
    reads
}

fn headers(path: &Path) -> Option<Vec<(u64, (u64, u64))>> {
    let file = open_regular(path).ok()?;
    let mut head = [0; ELF_HEADER];
    file.read_exact_at(&mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let u16_at = |bytes: &[u8], at: usize| {
        Some(u64::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
    };
    let u64_at =
        |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (start, size, nr) = (u64_at(&head, 32)?, u16_at(&head, 54)?, u16_at(&head, 56)?);
    // The kernel runs no other file.
    if size != PROGRAM_HEADER || size * nr > TABLE_BYTES_MAX {
        return None;
    }
    let mut table = vec![0; usize::try_from(size * nr).ok()?];
    file.read_exact_at(&mut table, start).ok()?;
    let mut reads = vec![(0, (start, size * nr))];
    for entry in table.chunks_exact(usize::try_from(size).ok()?) {
        let kind = u64::from(u32::from_le_bytes(entry.get(..4)?.try_into().ok()?));
        if kind == PT_INTERP {
            reads.push((kind, (u64_at(entry, 8)?, u64_at(entry, 32)?)));
        }
    }
    Some(reads)
}
