//! Identifies a program by its first bytes, as the kernel does.
//!
//! The bytes are untrusted. `largefolio-linux` compiles this file too, through a symbolic link: a
//! cdylib cannot be a dependency.

use super::arch::Arch;

pub(crate) const HEAD_BYTES: usize = 4096;

pub(crate) const INTERPRETERS_MAX: usize = 5;

/// Bytes that the kernel reads of a script (`BINPRM_BUF_SIZE`).
const SCRIPT_BYTES_MAX: usize = 256;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const PT_INTERP: u32 = 3;
const HEADER_BYTES: usize = 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head<'a> {
    Program(Arch),
    Script { interpreter: &'a [u8], argument: Option<&'a [u8]> },
    ThirtyTwoBit,
    Foreign(u16),
    NoProgram,
    Unknown,
}

pub(crate) fn head(bytes: &[u8]) -> Head<'_> {
    if bytes.starts_with(b"\x7fELF") {
        return elf(bytes);
    }
    shebang(bytes).unwrap_or(Head::Unknown)
}

fn elf(bytes: &[u8]) -> Head<'_> {
    let (Some(&class), Some(kind), Some(machine)) =
        (bytes.get(4), half(bytes, 16), half(bytes, 18))
    else {
        return Head::NoProgram;
    };
    match (class, machine) {
        (1, _) => Head::ThirtyTwoBit,
        (2, machine) => match Arch::of_machine(machine) {
            Some(arch) if matches!(kind, ET_EXEC | ET_DYN) => Head::Program(arch),
            Some(_) => Head::NoProgram,
            None => Head::Foreign(machine),
        },
        _ => Head::NoProgram,
    }
}

/// Parses a `#!` line: the interpreter and at most one argument.
fn shebang(bytes: &[u8]) -> Option<Head<'_>> {
    let line = bytes.get(..SCRIPT_BYTES_MAX).unwrap_or(bytes).strip_prefix(b"#!")?;
    let line = trimmed(line.split(|byte| *byte == b'\n').next()?);
    let split = line.iter().position(|byte| is_blank(*byte));
    let (interpreter, argument) = line.split_at(split.unwrap_or(line.len()));
    let argument = trimmed(argument);
    let argument = (!argument.is_empty()).then_some(argument);
    (!interpreter.is_empty()).then_some(Head::Script { interpreter, argument })
}

/// Returns whether the kernel treats `byte` as a space. A `\r` from a DOS file is part of the name.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trimmed(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_blank(*byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    line.get(start..end).unwrap_or_default()
}

/// Returns the path of the program's loader, `None` if the program is static or its headers are
/// beyond `bytes`.
pub(crate) fn loader(bytes: &[u8]) -> Option<&[u8]> {
    let first = usize::try_from(word(bytes, 32)?).ok()?;
    let nr = usize::from(half(bytes, 56)?);
    let headers = bytes.get(first..)?.chunks_exact(HEADER_BYTES).take(nr);
    let is_loader = |header: &&[u8]| header.get(..4) == Some(&PT_INTERP.to_le_bytes());
    let header = headers.into_iter().find(is_loader)?;
    let (pos, len) = (word(header, 8)?, word(header, 32)?);
    let pos = usize::try_from(pos).ok()?;
    let path = bytes.get(pos..pos.checked_add(usize::try_from(len).ok()?)?)?;
    path.split(|byte| *byte == 0).next()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter() {
        let script = |interpreter, argument| Head::Script { interpreter, argument };
        assert_eq!(head(b"#!/bin/sh\nexit"), script(b"/bin/sh", None));
        assert_eq!(head(b"#! /bin/sh -e x \n"), script(b"/bin/sh", Some(b"-e x")));
        assert_eq!(head(b"#!\t/bin/sh"), script(b"/bin/sh", None));
        assert_eq!(head(b"#! \n/bin/sh"), Head::Unknown);
        // The kernel looks for a file whose name ends in `\r`.
        assert_eq!(head(b"#!/bin/sh\r\n"), script(b"/bin/sh\r", None));
        assert_eq!(head(b"echo"), Head::Unknown);
        assert_eq!(head(b""), Head::Unknown);
    }

    #[test]
    fn this_program_has_a_loader() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("bytes");
        let own = &own[..HEAD_BYTES];
        let (arch, expected) = if cfg!(target_arch = "x86_64") {
            (Arch::X86_64, &b"/lib64/ld-linux-x86-64.so.2"[..])
        } else {
            (Arch::Arm64, &b"/lib/ld-linux-aarch64.so.1"[..])
        };
        assert_eq!(head(own), Head::Program(arch));
        assert_eq!(loader(own), Some(expected));
        for end in 0..own.len() {
            let _ = (head(&own[..end]), loader(&own[..end]));
        }
        let mut hostile = own.to_vec();
        hostile[32..40].fill(0xff);
        assert_eq!(loader(&hostile), None);
    }
}
