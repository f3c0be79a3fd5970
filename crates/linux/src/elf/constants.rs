//! String constants in a program, which reveal statically linked libraries.
//!
//! Searches the read-only segments. C1: at most `BYTES_MAX` are read.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use largefolio_trace::disk::open_regular;

use super::ElfFile;

/// Bytes that are searched at most. A browser has 200 MiB of text, after its constants.
const BYTES_MAX: u64 = 64 << 20;
const CHUNK_BYTES: u64 = 1 << 20;

/// Returns those of `wanted` that the file contains as whole NUL-terminated strings.
///
/// # Errors
/// The file cannot be read.
pub fn constants(path: &Path, elf: &ElfFile, wanted: &[&str]) -> io::Result<Vec<String>> {
    let file = open_regular(path)?;
    let longest = wanted.iter().map(|word| word.len()).max().unwrap_or(0);
    let mut names: Vec<String> = Vec::new();
    let mut left = BYTES_MAX;
    // Linkers place constants apart from text, or at its start.
    let mut loads: Vec<_> = elf.loads.iter().filter(|load| load.prot & 2 == 0).collect();
    loads.sort_by_key(|load| load.prot & 4);
    for load in loads {
        let end = load.offset.saturating_add(load.file_bytes.min(left));
        let (mut at, mut bytes) = (load.offset, Vec::new());
        while at < end && names.len() < wanted.len() {
            let kept = bytes.len();
            bytes.resize(kept + usize::try_from(CHUNK_BYTES.min(end - at)).unwrap_or(0), 0);
            let nr = file.read_at(&mut bytes[kept..], at)?;
            bytes.truncate(kept + nr);
            let Some(whole) = bytes.iter().rposition(|&byte| byte == 0).filter(|_| nr > 0) else {
                break;
            };
            for word in bytes[..whole].split(|&byte| byte == 0).filter(|word| !word.is_empty()) {
                let is_wanted = |one: &&&str| one.as_bytes() == word;
                let new = wanted.iter().find(is_wanted).map(|&one| one.to_owned());
                names.extend(new.filter(|new| !names.contains(new)));
            }
            // Keeps the start of a string that continues in the next chunk.
            bytes.drain(..=whole);
            bytes.truncate(longest + 1);
            at += nr as u64;
            left = left.saturating_sub(nr as u64);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Load;

    fn names_in(content: &[u8]) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let load = Load { prot: 1, file_bytes: u64::MAX, ..Load::default() };
        let elf = ElfFile { loads: vec![load], ..ElfFile::default() };
        constants(file.path(), &elf, &["CONF", "JE_CONF"]).unwrap()
    }

    #[test]
    fn only_whole_strings_count_wherever_they_lie() {
        assert_eq!(names_in(b"\0JE_CONF\0"), ["JE_CONF"]);
        assert_eq!(names_in(b"CONF\0x_CONF\0CONFx\0"), ["CONF"]);
        assert!(names_in(b"\0JE_CONF").is_empty() && names_in(b"").is_empty());
        let mut far = vec![b'x'; (1 << 20) - 4];
        far.extend(b"\0JE_CONF\0CONF\0CONF\0");
        assert_eq!(names_in(&far), ["JE_CONF", "CONF"], "across two pieces");
    }

    #[test]
    fn a_string_longer_than_any_word_takes_no_memory_and_is_none() {
        let mut long = vec![b'x'; 3 << 20];
        long.extend(b"CONF\0");
        assert!(names_in(&long).is_empty());
    }
}
