//! Replaces a function that QEMU imports from a library.
//!
//! Owns the walk through QEMU's dynamic section to the function's entry in its GOT. Only QEMU's
//! executable is changed: other libraries, and this one, still call the original.
//!
//! ```text
//!   dl_iterate_phdr -> executable -> PT_DYNAMIC -> JMPREL, RELA -> symbol's name -> GOT entry
//! ```

use std::ffi::{CStr, c_int, c_void};
use std::mem::size_of;
use std::ops::Range;
use std::ptr;

use crate::sys;

/// Relocations that hold a function's address: `JUMP_SLOT` and `GLOB_DAT`.
#[cfg(target_arch = "x86_64")]
const OF_FUNCTIONS: [u32; 2] = [7, 6];
#[cfg(target_arch = "aarch64")]
const OF_FUNCTIONS: [u32; 2] = [1026, 1025];

const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;

#[repr(C)]
struct Dynamic {
    tag: u64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// The parts of an executable's dynamic section, as addresses in memory.
#[derive(Clone, Default)]
struct Tables {
    base: u64,
    symbols: u64,
    strings: u64,
    relocations: [(u64, u64); 2],
    /// The addresses that the loader makes read-only after it filled the GOT, relative to `base`.
    read_only: Range<u64>,
}

struct Search<'a> {
    name: &'a CStr,
    new: *const c_void,
    is_replaced: bool,
}

/// Makes QEMU call `new` instead of the function `name`. Returns whether it imports such a function.
///
/// # Safety
/// `new` is a function of the same type as `name`, in a library that is never unloaded, and no
/// other thread of QEMU runs yet.
pub(crate) unsafe fn replace(name: &CStr, new: *const c_void) -> bool {
    let mut search = Search { name, new, is_replaced: false };
    // SAFETY: `of_executable` only uses the value while the call lasts.
    unsafe { libc::dl_iterate_phdr(Some(of_executable), (&raw mut search).cast()) };
    search.is_replaced
}

/// Called for the executable first. Ends the iteration.
unsafe extern "C" fn of_executable(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the C library passes a valid `info`, and what `replace` passed to it.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: the object's headers are `dlpi_phnum` entries.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
    if let Some(dynamic) = dynamic {
        let mut tables = tables(info.dlpi_addr, info.dlpi_addr.wrapping_add(dynamic.p_vaddr));
        let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
        tables.read_only =
            relro.map_or(0..0, |part| part.p_vaddr..part.p_vaddr.wrapping_add(part.p_memsz));
        for (start, bytes) in tables.relocations {
            search.is_replaced |= replace_among(&tables, (start, bytes), search);
        }
    }
    1
}

fn at<T>(address: u64) -> *const T {
    ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0))
}

fn tables(base: u64, dynamic: u64) -> Tables {
    let mut tables = Tables { base, ..Tables::default() };
    // glibc has replaced the offsets in the section by addresses; other loaders have not.
    let address = |value: u64| if value < base { base.wrapping_add(value) } else { value };
    let mut entry = at::<Dynamic>(dynamic);
    loop {
        // SAFETY: the section of a loaded executable is mapped and ends with DT_NULL.
        let Dynamic { tag, value } = unsafe { entry.read() };
        match tag {
            DT_NULL => return tables,
            DT_STRTAB => tables.strings = address(value),
            DT_SYMTAB => tables.symbols = address(value),
            DT_JMPREL => tables.relocations[0].0 = address(value),
            DT_PLTRELSZ => tables.relocations[0].1 = value,
            DT_RELA => tables.relocations[1].0 = address(value),
            DT_RELASZ => tables.relocations[1].1 = value,
            _ => {}
        }
        // SAFETY: not the last entry, so another follows.
        entry = unsafe { entry.add(1) };
    }
}

fn replace_among(tables: &Tables, (start, bytes): (u64, u64), search: &Search<'_>) -> bool {
    let mut is_replaced = false;
    for offset in (0..bytes).step_by(size_of::<Relocation>()) {
        // SAFETY: the dynamic section says that the relocations take `bytes` at `start`.
        let Relocation { offset: place, info, .. } =
            unsafe { at::<Relocation>(start.wrapping_add(offset)).read() };
        let [kind, symbol] = [info & u64::from(u32::MAX), info >> 32];
        let is_function = OF_FUNCTIONS.iter().any(|&of| u64::from(of) == kind);
        if is_function && is_named(tables, symbol, search.name) {
            is_replaced |= write(tables, place, search.new);
        }
    }
    is_replaced
}

fn is_named(tables: &Tables, symbol: u64, name: &CStr) -> bool {
    const SYMBOL_BYTES: u64 = size_of::<libc::Elf64_Sym>() as u64;
    let address = tables.symbols.wrapping_add(symbol.wrapping_mul(SYMBOL_BYTES));
    // SAFETY: a relocation names a symbol of the table.
    let symbol = unsafe { at::<libc::Elf64_Sym>(address).read() };
    let address = tables.strings.wrapping_add(u64::from(symbol.st_name));
    // SAFETY: a symbol's name is a C string in the table.
    let own = unsafe { CStr::from_ptr(at(address)) };
    own == name
}

/// Writes a GOT entry. Returns whether it could.
fn write(tables: &Tables, place: u64, new: *const c_void) -> bool {
    let is_read_only = tables.read_only.contains(&place);
    let (place, page_bytes) = (tables.base.wrapping_add(place), sys::page_bytes());
    let page = at::<c_void>(place & !(page_bytes as u64 - 1)).cast_mut();
    let (both, read) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ);
    // SAFETY: the page holds the GOT of QEMU, which is data.
    if unsafe { libc::mprotect(page, page_bytes, both) } != 0 {
        return false;
    }
    // SAFETY: the entry is an aligned pointer in the page, which can be written now.
    unsafe { at::<*const c_void>(place).cast_mut().write_volatile(new) };
    if is_read_only {
        // SAFETY: as above; this is how the loader left the page.
        unsafe { libc::mprotect(page, page_bytes, read) };
    }
    true
}
