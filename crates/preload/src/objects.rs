//! Checks the loader's list of objects for text to move.
//!
//! Most processes of a build or a shell script have no 2 MiB of text. This check rules them out
//! without a system call.

use core::ffi::{c_int, c_void};

use largefolio_ranges::block_bytes;

use crate::sys;

const EXECUTABLE: u32 = 1;

pub(crate) fn have_blocks() -> bool {
    // SAFETY: `look` only reads what the loader passes; it takes no data.
    unsafe { libc::dl_iterate_phdr(Some(look), core::ptr::null_mut()) != 0 }
}

unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description, which does not change during the call.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the description has `dlpi_phnum` program headers of the mapped object.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let has_block = |header: &libc::Elf64_Phdr| {
        let is_text = header.p_type == libc::PT_LOAD && header.p_flags & EXECUTABLE != 0;
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        is_text && holds_block(start, header.p_memsz, sys::page_bytes())
    };
    headers.iter().any(has_block).into()
}

fn holds_block(start: u64, len: u64, page_bytes: usize) -> bool {
    let block = block_bytes(page_bytes) as u64;
    // The loader maps whole pages, the last one past the end.
    let end = start.checked_add(len).and_then(|end| end.checked_add(page_bytes as u64 - 1));
    let first = start.checked_next_multiple_of(block).and_then(|first| first.checked_add(block));
    first.zip(end).is_some_and(|(first_end, end)| first_end <= end)
}

#[cfg(test)]
mod tests {
    fn holds_block(start: u64, len: u64) -> bool {
        super::holds_block(start, len, 4 << 10)
    }

    #[test]
    fn a_block_must_be_whole_and_aligned() {
        assert!(holds_block(0x20_0000, 0x20_0000));
        assert!(!holds_block(0x20_1000, 0x3f_0000 - 0x20_1000));
        assert!(holds_block(0x20_1000, 0x3f_f000));
        // The last page is whole in memory.
        assert!(holds_block(0x20_0000, 0x1f_f001));
        assert!(!holds_block(u64::MAX - 5, 100));
    }

    #[test]
    fn a_block_is_what_a_pmd_entry_maps() {
        assert!(super::holds_block(0x200_0000, 0x200_0000, 16 << 10));
        assert!(super::holds_block(0x200_0000, 0x1ff_c001, 16 << 10));
        assert!(!super::holds_block(0x200_0000, 0x1ff_c000, 16 << 10));
        assert!(!super::holds_block(0x200_0000, 0x200_0000, 64 << 10));
        assert!(super::holds_block(0x2000_0000, 0x2000_0000, 64 << 10));
    }
}
