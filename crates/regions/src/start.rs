//! Before `main`: reads the rules, and advises memory that is already there.

use core::ffi::CStr;
use core::ptr;

use largefolio_ranges::rules::{REPORT_VARIABLE, RULES_BYTES_MAX, RULES_VARIABLE};
use largefolio_ranges::sys::{self, auxiliary};
use largefolio_ranges::{Fd, Range, Reserved, field, number};

use crate::advice::{self, Region, When};
use crate::{functions, next, report};

/// About 5000 mappings. Later ones get no advice. Only the pages in use take memory.
const MAPS_BYTES: usize = 512 << 10;
/// Runtimes reserve address space in such sizes, and use little of it.
const RESERVED_BYTES_MIN: usize = 1 << 40;

pub(crate) extern "C" fn start() {
    let errno = sys::errno();
    functions::find_all();
    if auxiliary(libc::AT_SECURE) == 0
        && !is_sanitized()
        && let Some(text) = variable(RULES_VARIABLE).and_then(kept)
    {
        if let Some(path) = variable(REPORT_VARIABLE) {
            report::open(path);
        }
        advice::set(text);
        if advice::wants_large_heap() && !is_malloc_tuned() {
            advice::grow_in_large_steps();
        }
        advise_all();
    }
    sys::set_errno(errno);
}

/// Whether a sanitizer controls the address space: it reserves terabytes, with its own advice.
fn is_sanitized() -> bool {
    [c"__asan_init", c"__hwasan_init", c"__msan_init", c"__tsan_init"]
        .iter()
        .any(|name| next::anywhere(name).is_some())
}

/// Whether the user chose how glibc's heap grows.
fn is_malloc_tuned() -> bool {
    const OPTIONS: [&[u8]; 4] = [
        b"glibc.malloc.top_pad=",
        b"glibc.malloc.trim_threshold=",
        b"glibc.malloc.mmap_threshold=",
        b"glibc.malloc.mmap_max=",
    ];
    let mut variables = [
        c"MALLOC_TOP_PAD_",
        c"MALLOC_TRIM_THRESHOLD_",
        c"MALLOC_MMAP_THRESHOLD_",
        c"MALLOC_MMAP_MAX_",
    ]
    .iter();
    let is_option = |text: &[u8]| OPTIONS.iter().any(|option| text.starts_with(option));
    let tunables = variable(c"GLIBC_TUNABLES").map_or(&[][..], CStr::to_bytes);
    variables.any(|name| variable(name).is_some())
        || tunables.split(|byte| *byte == b':').any(is_option)
}

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: `name` is a C string; before `main` nothing changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value that is not null is a C string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Copies the text to memory that stays.
fn kept(text: &CStr) -> Option<&'static [u8]> {
    let text = text.to_bytes();
    if text.is_empty() || text.len() > RULES_BYTES_MAX {
        return None;
    }
    let place = Reserved::new(text.len(), None, None).ok()?.into_raw();
    // SAFETY: the new mapping has at least as many bytes, and nothing else refers to it.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), place, text.len()) };
    // SAFETY: as above; the mapping stays.
    Some(unsafe { core::slice::from_raw_parts(place, text.len()) })
}

fn advise_all() {
    // SAFETY: 0 only asks for the program break.
    let top = unsafe { libc::sbrk(0) }.addr();
    if let Ok(nothing) = Range::new(top, 0) {
        advice::set_heap(nothing);
    }
    let Ok(memory) = Reserved::new(MAPS_BYTES, None, None) else { return };
    let Ok(maps) = Fd::open(c"/proc/self/maps", libc::O_RDONLY) else { return };
    // SAFETY: the mapping is zeroed memory that only this value refers to.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), memory.len()) };
    let Ok(nr) = maps.read(buffer) else { return };
    let own = memory.as_ptr().addr();
    for line in buffer.get(..nr).unwrap_or(&[]).split(|byte| *byte == b'\n') {
        if let Some((range, region)) = parse(line).filter(|(range, _)| range.start() != own) {
            if matches!(region, Region::Heap) {
                advice::set_heap(range);
            }
            advice::apply(range, region, When::Start);
        }
    }
}

/// Parses `START-END PERMISSIONS OFFSET DEVICE INODE PATH`. Shared memory is a file's. Reservations
/// have no region: very large mappings, and private memory that cannot be written.
fn parse(line: &[u8]) -> Option<(Range, Region<'_>)> {
    let mut rest = line;
    let start = usize::try_from(number::<16>(field(&mut rest, b'-')?)?).ok()?;
    let end = usize::try_from(number::<16>(field(&mut rest, b' ')?)?).ok()?;
    let is_writable = field(&mut rest, b' ')?.contains(&b'w');
    for _ in 0..2 {
        field(&mut rest, b' ')?;
    }
    let inode = number::<10>(field(&mut rest, b' ')?)?;
    let bytes = end.checked_sub(start).filter(|bytes| *bytes < RESERVED_BYTES_MIN)?;
    let region = match rest.trim_ascii() {
        b"[heap]" => Region::Heap,
        b"[stack]" => Region::Stack,
        b"" if inode == 0 && is_writable => Region::Memory(bytes),
        name if inode == 0 && is_writable && name.starts_with(b"[anon:") => Region::Memory(bytes),
        path if inode != 0 => Region::File(path),
        _ => return None,
    };
    let range = Range::new(start, bytes).ok()?;
    Some((range, region))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_told_apart() {
        let region = |line: &'static [u8]| parse(line).map(|(range, region)| (range.len(), region));
        let is = |line| matches!(region(line), Some((0x1000, Region::Memory(0x1000))));
        assert!(is(b"1000-2000 rw-p 00000000 00:00 0 "));
        assert!(is(b"1000-2000 rw-p 00000000 00:00 0      [anon:x y]"));
        assert!(matches!(
            region(b"1000-3000 rw-p 0 00:00 0  [heap]"),
            Some((0x2000, Region::Heap))
        ));
        assert!(matches!(region(b"1000-3000 rw-p 0 00:00 0  [stack]"), Some((_, Region::Stack))));
        let file = region(b"1000-2000 r-xp 0000 fe:01 77      /usr/lib/a b.so");
        assert!(matches!(file, Some((_, Region::File(b"/usr/lib/a b.so")))));
        for line in [&b"1000-2000 r-xp 0 0:0 0 [vdso]"[..], b"", b"x", b"2000-1000 rw-p 0 0:0 0 "] {
            assert!(parse(line).is_none(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn reservations_have_no_region() {
        for line in [&b"1000-2000 ---p 0 00:00 0 "[..], b"0-10000000000 rw-p 0 00:00 0 "] {
            assert!(parse(line).is_none(), "{}", line.escape_ascii());
        }
        assert!(parse(b"0-ffffff00000 rw-p 0 00:00 0 ").is_none());
        assert!(parse(b"0-fffffff000 rw-p 0 00:00 0 ").is_some());
    }
}
