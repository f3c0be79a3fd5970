//! Detects processes that must stay unchanged.
//!
//! Checks the process as a whole before anything is touched, and reads `/proc/self/status` first.
//! The loader has just opened, read and mapped files, so a seccomp filter that allowed that allows
//! this read too.

use largefolio_ranges::number;

use crate::sys::{self, Fd};
use crate::wire::{FILTERS_VARIABLE, PAGES_BYTES, Refusal};

const STATUS_BYTES: usize = 4096;

pub(crate) fn check() -> Result<(), Refusal> {
    if sys::auxiliary(libc::AT_SECURE) != 0 {
        return Err(Refusal::Secure);
    }
    if !PAGES_BYTES.contains(&sys::page_bytes()) {
        return Err(Refusal::PageSize);
    }
    if sanitizer() != 0 {
        return Err(Refusal::Sanitizer);
    }
    let mut buffer = [0; STATUS_BYTES];
    let status = Fd::open(c"/proc/self/status", libc::O_RDONLY).map_err(|_| Refusal::NoProc)?;
    let nr = status.read(&mut buffer).map_err(|_| Refusal::NoProc)?;
    let status = buffer.get(..nr).unwrap_or(&[]);
    check_filters(status)?;
    if field(status, b"THP_enabled:") == Some(0) {
        return Err(Refusal::ThpDisabled);
    }
    Ok(())
}

/// The launcher ran all our calls under its own filters. A filter added since then is untested.
fn check_filters(status: &[u8]) -> Result<(), Refusal> {
    if field(status, b"Seccomp:").is_none_or(|mode| mode == 0) {
        return Ok(());
    }
    let known = sys::variable(FILTERS_VARIABLE).and_then(|text| number::<10>(text.to_bytes()));
    let own = field(status, b"Seccomp_filters:");
    if own.is_some() && own == known { Ok(()) } else { Err(Refusal::Seccomp) }
}

fn field(status: &[u8], name: &[u8]) -> Option<u64> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    number::<10>(value.trim_ascii())
}

/// Returns the address of a sanitizer's start function, 0 if there is none. Uses weak references: a
/// failing `dlsym` allocates from the program's heap.
#[cfg(target_arch = "x86_64")]
fn sanitizer() -> usize {
    let (address, thread, memory): (usize, usize, usize);
    // SAFETY: three loads from the library's own table of addresses.
    unsafe {
        core::arch::asm!(
            ".weak __asan_init",
            ".weak __tsan_init",
            ".weak __msan_init",
            "mov {}, qword ptr [rip + __asan_init@GOTPCREL]",
            "mov {}, qword ptr [rip + __tsan_init@GOTPCREL]",
            "mov {}, qword ptr [rip + __msan_init@GOTPCREL]",
            out(reg) address, out(reg) thread, out(reg) memory,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    address | thread | memory
}

#[cfg(target_arch = "aarch64")]
fn sanitizer() -> usize {
    let (address, thread, memory): (usize, usize, usize);
    // SAFETY: three loads from the library's own table of addresses.
    unsafe {
        core::arch::asm!(
            ".weak __asan_init",
            ".weak __tsan_init",
            ".weak __msan_init",
            "adrp {0}, :got:__asan_init",
            "ldr {0}, [{0}, :got_lo12:__asan_init]",
            "adrp {1}, :got:__tsan_init",
            "ldr {1}, [{1}, :got_lo12:__tsan_init]",
            "adrp {2}, :got:__msan_init",
            "ldr {2}, [{2}, :got_lo12:__msan_init]",
            out(reg) address, out(reg) thread, out(reg) memory,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    address | thread | memory
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nTHP_enabled:\t1\n";

    #[test]
    fn fields_are_found_at_the_start_of_their_line() {
        assert_eq!(field(STATUS, b"Seccomp:"), Some(2));
        assert_eq!(field(STATUS, b"Seccomp_filters:"), Some(3));
        assert_eq!(field(STATUS, b"filters:"), None);
        assert_eq!(field(STATUS, b"Name:"), None);
    }

    #[test]
    fn a_filter_that_the_launcher_did_not_have_is_minded() {
        assert_eq!(check_filters(STATUS), Err(Refusal::Seccomp));
        assert_eq!(check_filters(b"Seccomp:\t0\n"), Ok(()));
    }

    #[test]
    fn a_test_is_built_without_sanitizers() {
        assert_eq!(sanitizer(), 0);
    }
}
