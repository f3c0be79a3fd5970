//! Reads the memory that a call's arguments point to.
//!
//! Owns reading words, strings and vectors of strings. The kernel copies them, so a bad address is
//! an error.

use std::ffi::CString;

use crate::{layout, sys};

const PAGE_BYTES: usize = 4096;

const PATH_MAX: usize = 4096;

/// Limit for the strings of a vector: three quarters of `_STK_LIM`. Above it, the kernel fails an
/// execve.
const VECTOR_BYTES_MAX: usize = 6 << 20;

pub(super) fn word_at(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    (read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
}

/// Reads `count` words. The result is empty if they are not all readable.
pub(super) fn words_at(address: u64, count: u64) -> Vec<u64> {
    let mut bytes = vec![0; usize::try_from(count * 8).unwrap_or(0)];
    if read(address, &mut bytes) < bytes.len() {
        return Vec::new();
    }
    let word = |word: &[u8]| word.try_into().map_or(0, u64::from_le_bytes);
    bytes.chunks_exact(8).map(word).collect()
}

pub(super) fn string_at(address: u64) -> Vec<u8> {
    let mut string = Vec::new();
    read_string(address, PATH_MAX - 1, &mut string);
    string
}

/// Reads the strings of the null-terminated vector at `address`. A null pointer is an empty vector.
/// Returns `None` if the vector is unreadable or too large for the kernel.
pub(super) fn vector_at(address: u64) -> Option<Vec<CString>> {
    let (mut strings, mut nr_bytes) = (Vec::new(), 0);
    if address == 0 {
        return Some(strings);
    }
    for index in 0_u64.. {
        let pointer = word_at(address.checked_add(index.checked_mul(8)?)?)?;
        if pointer == 0 {
            return Some(strings);
        }
        let mut string = Vec::new();
        if !read_string(pointer, VECTOR_BYTES_MAX - nr_bytes, &mut string) {
            return None;
        }
        nr_bytes += string.len() + 9;
        if nr_bytes >= VECTOR_BYTES_MAX {
            return None;
        }
        strings.push(CString::new(string).ok()?);
    }
    None
}

/// Appends the C string at `address` to `string`, up to `max` bytes. Returns whether it found the
/// string's end.
fn read_string(mut address: u64, max: usize, string: &mut Vec<u8>) -> bool {
    let mut page = [0; PAGE_BYTES];
    while string.len() < max {
        // The page after the string's end may be unmapped.
        let into_page = usize::try_from(address % PAGE_BYTES as u64).unwrap_or(0);
        let nr_page = PAGE_BYTES - into_page;
        let nr_read = read(address, &mut page[..nr_page]);
        let found = page[..nr_read].iter().position(|byte| *byte == 0);
        let nr_taken = found.unwrap_or(nr_read).min(max - string.len());
        string.extend_from_slice(&page[..nr_taken]);
        if found == Some(nr_taken) {
            return true;
        }
        if nr_read < nr_page {
            return false;
        }
        address = address.wrapping_add(nr_page as u64);
    }
    false
}

fn read(address: u64, bytes: &mut [u8]) -> usize {
    sys::read_memory(address.wrapping_add(layout::guest_base()), bytes)
}
