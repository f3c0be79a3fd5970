//! Timed loops of a few instructions: calls to stubs, and chains and lists of loads.
//!
//! The loops are assembly, so a build without optimization measures the same. A loop reads the
//! addresses it calls from a list, in order. Eight addresses share a cache line, which the CPU
//! prefetches. Nothing is subtracted for that. Times are the thread's CPU time.
//!
//! ```text
//!   list: [a3][a0][a7]..      x86-64  call [list]   arm64  ldr, blr       a stub: ret
//! ```

use std::time::Duration;

use largefolio_trace::generate::Rng;

use crate::measure::cpu_time;

#[cfg(target_arch = "x86_64")]
pub(crate) const RET: &[u8] = &[0xc3];
#[cfg(target_arch = "aarch64")]
pub(crate) const RET: &[u8] = &[0xc0, 0x03, 0x5f, 0xd6];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) const RET: &[u8] = &[];

pub(crate) const LINE_BYTES: usize = 64;

/// Returns the offset of stub `nr` in its page of `page_bytes`. Each page uses a different line, so
/// stubs are spread evenly over the sets of the caches.
#[must_use]
pub(crate) const fn line_of(nr: usize, page_bytes: usize) -> usize {
    (nr.wrapping_mul(37) % (page_bytes / LINE_BYTES)) * LINE_BYTES
}

pub(crate) fn draws(nr: usize, end: usize, seed: u64) -> impl Iterator<Item = usize> {
    let (mut rng, end) = (Rng::new(seed), end.max(1) as u64);
    (0..nr).map(move |_| usize::try_from(rng.below(end)).unwrap_or(0))
}

pub(crate) fn shuffled(end: usize, seed: u64) -> Vec<usize> {
    let numbers = u32::try_from(end).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = (0..numbers).collect();
    Rng::new(seed).shuffle(&mut order);
    order.into_iter().map(|nr| nr as usize).collect()
}

/// Calls every address of `list` in order, `nr_passes` times, and returns the time.
///
/// # Safety
/// Each address must point to a [`RET`] in executable memory.
pub(crate) unsafe fn call_all(list: &[usize], nr_passes: usize) -> Duration {
    let start = cpu_time();
    for _ in 0..nr_passes {
        if !list.is_empty() {
            // SAFETY: the caller guarantees the addresses, and the list is not empty.
            unsafe { pass(list) };
        }
    }
    cpu_time().saturating_sub(start)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn pass(list: &[usize]) {
    // SAFETY: reads the list from start to end. Each call returns immediately and changes no
    // register.
    unsafe {
        std::arch::asm!(
            "2:",
            "call qword ptr [{at}]",
            "add {at}, 8",
            "cmp {at}, {end}",
            "jne 2b",
            at = inout(reg) list.as_ptr() => _,
            end = in(reg) list.as_ptr().wrapping_add(list.len()),
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn pass(list: &[usize]) {
    // SAFETY: reads the list from start to end; a call changes no register but the link register.
    unsafe {
        std::arch::asm!(
            "2:",
            "ldr {to}, [{at}], #8",
            "blr {to}",
            "cmp {at}, {end}",
            "b.ne 2b",
            at = inout(reg) list.as_ptr() => _,
            end = in(reg) list.as_ptr().wrapping_add(list.len()),
            to = out(reg) _,
            out("x30") _,
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn pass(_list: &[usize]) {}

/// Follows `nr_steps` links from `first`: each load depends on the previous one.
///
/// # Safety
/// Every word on the way must hold the address of a word.
pub(crate) unsafe fn follow(first: *const usize, nr_steps: usize) -> Duration {
    let start = cpu_time();
    if nr_steps > 0 {
        // SAFETY: the caller guarantees the links.
        unsafe { steps(first, nr_steps) };
    }
    cpu_time().saturating_sub(start)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn steps(first: *const usize, nr_steps: usize) {
    // SAFETY: loads only, from words that the caller guarantees.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {at}, qword ptr [{at}]",
            "sub {nr}, 1",
            "jnz 2b",
            at = inout(reg) first => _,
            nr = inout(reg) nr_steps => _,
            options(nostack, readonly),
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn steps(first: *const usize, nr_steps: usize) {
    // SAFETY: loads only, from words that the caller guarantees.
    unsafe {
        std::arch::asm!(
            "2:",
            "ldr {at}, [{at}]",
            "subs {nr}, {nr}, #1",
            "b.ne 2b",
            at = inout(reg) first => _,
            nr = inout(reg) nr_steps => _,
            options(nostack, readonly),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn steps(first: *const usize, nr_steps: usize) {
    let mut at = first;
    for _ in 0..nr_steps {
        // SAFETY: the caller guarantees the links.
        at = unsafe { at.read_volatile() } as *const usize;
    }
}

/// Loads the word at every address of `list` in order, `nr_passes` times. The loads are
/// independent.
///
/// # Safety
/// Each address must point to a readable word.
pub(crate) unsafe fn load_list(list: &[usize], nr_passes: usize) -> Duration {
    // SAFETY: the caller guarantees the addresses.
    unsafe { timed_loads::<0>(list, nr_passes) }
}

/// As [`load_list`], with 256 independent instructions between two loads, which take at least 64
/// cycles.
///
/// # Safety
/// As for [`load_list`].
pub(crate) unsafe fn load_apart(list: &[usize], nr_passes: usize) -> Duration {
    // SAFETY: the caller guarantees the addresses.
    unsafe { timed_loads::<64>(list, nr_passes) }
}

unsafe fn timed_loads<const NR_BETWEEN: usize>(list: &[usize], nr_passes: usize) -> Duration {
    let start = cpu_time();
    for _ in 0..nr_passes {
        if !list.is_empty() {
            // SAFETY: the caller guarantees the addresses, and the list is not empty.
            unsafe { loads::<NR_BETWEEN>(list) };
        }
    }
    cpu_time().saturating_sub(start)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn loads<const NR_BETWEEN: usize>(list: &[usize]) {
    // SAFETY: reads the list from start to end, and the words it points to; the rest is arithmetic.
    unsafe {
        std::arch::asm!(
            "2:",
            "mov {to}, qword ptr [{at}]",
            "mov {to}, qword ptr [{to}]",
            ".rept {between}",
            "add {a}, 1",
            "add {b}, 1",
            "add {c}, 1",
            "add {d}, 1",
            ".endr",
            "add {at}, 8",
            "cmp {at}, {end}",
            "jne 2b",
            at = inout(reg) list.as_ptr() => _,
            end = in(reg) list.as_ptr().wrapping_add(list.len()),
            to = out(reg) _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            between = const NR_BETWEEN,
            options(nostack, readonly),
        );
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(never)]
unsafe fn loads<const NR_BETWEEN: usize>(list: &[usize]) {
    // SAFETY: reads the list from start to end, and the words it points to; the rest is arithmetic.
    unsafe {
        std::arch::asm!(
            "2:",
            "ldr {to}, [{at}], #8",
            "ldr {to}, [{to}]",
            ".rept {between}",
            "add {a}, {a}, #1",
            "add {b}, {b}, #1",
            "add {c}, {c}, #1",
            "add {d}, {d}, #1",
            ".endr",
            "cmp {at}, {end}",
            "b.ne 2b",
            at = inout(reg) list.as_ptr() => _,
            end = in(reg) list.as_ptr().wrapping_add(list.len()),
            to = out(reg) _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            between = const NR_BETWEEN,
            options(nostack, readonly),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn loads<const NR_BETWEEN: usize>(list: &[usize]) {
    for &at in list {
        // SAFETY: the caller guarantees the addresses.
        unsafe { (at as *const usize).read_volatile() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_of_neighbouring_pages_use_every_line() {
        for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
            let nr_lines = page_bytes / LINE_BYTES;
            let mut lines: Vec<usize> = (0..nr_lines).map(|nr| line_of(nr, page_bytes)).collect();
            lines.sort_unstable();
            assert!(lines.into_iter().eq((0..nr_lines).map(|nr| nr * LINE_BYTES)));
        }
    }

    #[test]
    fn orders_are_complete_and_the_same_for_a_seed() {
        let mut order = shuffled(1000, 7);
        assert_eq!(order, shuffled(1000, 7));
        assert_ne!(order, (0..1000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1000).collect::<Vec<_>>());
        assert!(draws(1000, 10, 7).all(|nr| nr < 10));
        assert_eq!(draws(9, 0, 7).max(), Some(0));
    }

    #[test]
    fn a_chain_is_followed() {
        let mut words = [0_usize; 3];
        for nr in 0..3 {
            words[nr] = words.as_ptr().wrapping_add((nr + 1) % 3) as usize;
        }
        // SAFETY: every word holds the next word's address, the last one the first word's.
        let taken = unsafe { follow(words.as_ptr(), 1000) };
        assert!(taken > Duration::ZERO);
        // SAFETY: the words are addresses of words.
        let dense = unsafe { load_list(&words, 1000) };
        // SAFETY: as above.
        let sparse = unsafe { load_apart(&words, 1000) };
        assert!(dense > Duration::ZERO && sparse > Duration::ZERO);
    }
}
