//! Reads ELF files: real and damaged ones.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::path::Path;

use largefolio_linux::elf::dynamic::{Dynamic, Symbols};
use largefolio_linux::elf::{Class, ElfError, ElfFile, ElfKind};
use proptest::prelude::*;

fn own() -> Vec<u8> {
    fs::read("/proc/self/exe").unwrap()
}

/// Reads and checks like a verb does; the segments of an accepted file are inside it.
fn read(bytes: &[u8]) -> Result<ElfFile, ElfError> {
    let path = Path::new("file");
    let elf = ElfFile::parse(path, bytes)?;
    elf.check(path)?;
    for load in &elf.loads {
        assert!(load.offset + load.file_bytes <= bytes.len() as u64);
        assert!(load.vaddr.checked_add(load.mem_bytes).is_some());
        assert!(load.file_bytes <= load.mem_bytes);
    }
    Ok(elf)
}

#[test]
fn this_program_is_what_it_is() {
    let elf = ElfFile::read(Path::new("/proc/self/exe")).unwrap();
    assert_eq!((elf.class, elf.is_little_endian), (Class::Bits64, true));
    assert!(matches!(elf.kind, ElfKind::Program | ElfKind::Fixed));
    assert!(elf.interpreter.is_some());
    assert_eq!(elf.loads.iter().filter(|load| load.prot & 4 != 0).count(), 1);
    assert_eq!(read(&own()).unwrap(), elf);
}

#[test]
fn this_program_needs_the_c_library() {
    let dynamic = Dynamic::read(Path::new("/proc/self/exe"), Symbols::Scan).unwrap();
    assert!(dynamic.needed.iter().any(|name| name == "libc.so.6"), "{dynamic:?}");
    assert!(!dynamic.is_sanitized);
}

#[test]
fn what_is_no_file_is_not_opened() {
    let error = ElfFile::read(Path::new("/dev/null")).unwrap_err();
    assert!(matches!(error, ElfError::NotAFile(_)), "{error}");
    let error = ElfFile::read(Path::new("/proc/self/maps")).unwrap_err();
    assert!(matches!(error, ElfError::NotElf(_)), "{error}");
}

fn headers() -> Vec<u8> {
    let mut bytes = own();
    bytes.truncate(4096);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(4000)))]

    #[test]
    fn no_damage_is_more_than_an_error(
        changes in prop::collection::vec((0..1024_usize, any::<u8>()), 0..24),
        words in prop::collection::vec((0..200_usize, prop::sample::select(vec![
            0_u64, 1, 0x1000, u64::MAX, u64::MAX - 0xfff, 1 << 63, 0x7fff_ffff,
        ])), 0..6),
        len in prop_oneof![Just(4096_usize), 0..4096_usize],
    ) {
        let mut bytes = headers();
        for (at, word) in words {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        // Keep the magic, or no later check is reached.
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes.truncate(len);
        if let Ok(dynamic) = Dynamic::parse(Path::new("file"), Symbols::Scan, &*bytes) {
            prop_assert!(dynamic.needed.iter().all(|name| name.len() <= bytes.len()));
        }
        if let Err(error) = read(&bytes) {
            prop_assert!(error.to_string().starts_with("file "));
        }
    }
}
