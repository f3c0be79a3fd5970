//! Restores the original names of the program's environment variables.
//!
//! Undoes the renaming of [`crate::variables`]. QEMU has put the environment strings on the
//! program's stack, with a vector of pointers below them. Moving a pointer past the prefix restores
//! the variable. Runs before the program's first instruction.

use std::ptr;

use crate::sys;
use crate::variables::SHIELD;

const POINTER_BYTES: usize = 8;

/// Restores the variables that are renamed in QEMU's own environment. `maps` is the text of
/// `/proc/self/maps`, `base` the guest base.
pub(crate) fn variables(maps: &[u8], base: u64) {
    let is_shielded = |entry: &Vec<u8>| entry.starts_with(SHIELD);
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    let entries: Vec<Vec<u8>> =
        environment.split(|byte| *byte == 0).map(<[u8]>::to_vec).filter(is_shielded).collect();
    if entries.is_empty() {
        return;
    }
    for reach in REACHES {
        for (start, end) in anonymous(maps).filter(|&(start, _)| start >= base) {
            let start = start.max(end.saturating_sub(reach));
            let mut memory = vec![0; usize::try_from(end - start).unwrap_or(0)];
            let nr_read = sys::read_memory(start, &mut memory);
            memory.truncate(nr_read);
            if entries.iter().all(|entry| restore(&memory, start, base, entry)) {
                return;
            }
        }
    }
}

/// Bytes searched at the end of a mapping, in rounds. A stack can have gigabytes, but Linux allows
/// at most 6 MiB of strings, and each string may have a pointer.
const REACHES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];

fn anonymous(maps: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let lines = maps.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let is_writable = words.next()?.starts_with("rw-p");
        let is_unnamed = words.nth(3).is_none();
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        (is_writable && is_unnamed && start < end).then_some((start, end))
    })
}

/// Finds `entry` in `memory`, which starts at address `start`, and moves its pointer past the
/// prefix.
fn restore(memory: &[u8], start: u64, base: u64, entry: &[u8]) -> bool {
    let string = [entry, &[0]].concat();
    let places = memory.windows(string.len()).enumerate();
    let mut places = places.filter(|(_, window)| *window == string.as_slice());
    let pointer = places.find_map(|(at, _)| {
        let address = start.checked_add(at as u64)?.checked_sub(base)?;
        let is_it = |word: &[u8]| word == address.to_le_bytes();
        let index = memory.chunks_exact(POINTER_BYTES).position(is_it)?;
        Some((index * POINTER_BYTES, address))
    });
    let Some((at, address)) = pointer else { return false };
    let place = start + at as u64;
    let Ok(place) = usize::try_from(place) else { return false };
    let place = ptr::with_exposed_provenance_mut::<u64>(place);
    // SAFETY: the 8 aligned bytes (a mapping starts at a page) are in writable program memory that
    // was just read. No program thread runs yet, so nothing unmaps it.
    unsafe { place.write_volatile(address + SHIELD.len() as u64) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_moves_past_the_shield() {
        // A pointer, a gap, and the string at offset 24.
        let entry = [SHIELD, b"LD_X=1"].concat();
        let mut memory = vec![0_u64; 16];
        let start = memory.as_ptr().addr() as u64;
        let base = start - 0x1000;
        memory[1] = 0x1000 + 24;
        let mut bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes[24..24 + entry.len()].copy_from_slice(&entry);
        let _ = memory.as_mut_ptr().expose_provenance();
        assert!(restore(&bytes, start, base, &entry));
        assert_eq!(memory[1], 0x1000 + 24 + SHIELD.len() as u64);
        assert!(!restore(&bytes, start, base, b"FOLIO_FOR_THE_PROGRAM_LD_Y=1"));
    }

    #[test]
    fn only_unnamed_writable_private_memory_is_searched() {
        let maps = b"1000-3000 rw-p 00000000 00:00 0 \n3000-4000 r--p 00000000 00:00 0 \n\
            5000-6000 rw-p 00000000 fe:00 1 /x\n7000-7000 rw-p 0 00:00 0\nodd\n";
        assert_eq!(anonymous(maps).collect::<Vec<_>>(), [(0x1000, 0x3000)]);
    }
}
