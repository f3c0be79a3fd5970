//! Writes every byte of the extent and no other: all primitives, lengths and alignments.

use largefolio_bulk::{Clearer, Copier, RangeError, Residency};
use largefolio_bulk::{clear_extent_raw, copy_extent_raw};
use proptest::prelude::*;

use super::guarded::{Guarded, PAGE};

const OLD: u8 = 0xa5;

fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes.iter().all(|&byte| byte == value)
}

fn check_clear(clearer: Clearer, memory: &mut Guarded, start: usize, len: usize) {
    memory.fill(OLD);
    clearer.clear(&mut memory[start..start + len]);
    let what = format!("{} {start}+{len}", clearer.primitive());
    assert!(is_all(&memory[..start], OLD), "{what}: before");
    assert!(is_all(&memory[start..start + len], 0), "{what}: in");
    assert!(is_all(&memory[start + len..], OLD), "{what}: after");
}

fn check_copy(copier: Copier, to: (&mut Guarded, usize), from: (&Guarded, usize), len: usize) {
    let ((to, start), (from, first)) = (to, from);
    to.fill(OLD);
    copier.copy(&mut to[start..start + len], &from[first..first + len]).unwrap();
    let what = format!("{} {first}->{start}+{len}", copier.primitive());
    assert!(is_all(&to[..start], OLD), "{what}: before");
    assert!(to[start..start + len] == from[first..first + len], "{what}: in");
    assert!(is_all(&to[start + len..], OLD), "{what}: after");
}

fn numbered(nr_pages: usize) -> Guarded {
    let mut memory = Guarded::new(nr_pages);
    for (at, byte) in memory.iter_mut().enumerate() {
        // A period that divides neither a page nor a line.
        *byte = u8::try_from(at % 251).unwrap();
    }
    memory
}

fn lengths() -> impl Iterator<Item = usize> {
    let steps = [0, 16, 32, 64, 128, 192, 256, 320, 512, 1024, 2048];
    let pages = (1..=4).map(|n| n * PAGE);
    let around = |len: usize| [len.saturating_sub(1), len, len + 1];
    steps.into_iter().chain(pages).flat_map(around).filter(|&len| len <= 4 * PAGE)
}

#[test]
fn every_length_to_four_pages_is_cleared_up_to_either_guard() {
    for clearer in Clearer::available() {
        let mut memory = Guarded::new(4);
        let all = memory.len();
        memory.fill(0);
        for len in 0..=all {
            for start in [0, all - len] {
                let window = &mut memory[start..start + len];
                window.fill(OLD);
                clearer.clear(window);
                assert!(is_all(window, 0), "{} {start}+{len}", clearer.primitive());
            }
        }
    }
}

#[test]
fn every_length_to_four_pages_is_copied_up_to_either_guard() {
    let from = numbered(4);
    for copier in Copier::available() {
        let mut to = Guarded::new(4);
        let all = to.len();
        for len in 0..=all {
            for (start, first) in [(0, all - len), (all - len, 0)] {
                let (window, part) = (&mut to[start..start + len], &from[first..first + len]);
                window.fill(OLD);
                copier.copy(window, part).unwrap();
                assert!(window == part, "{} {first}->{start}+{len}", copier.primitive());
            }
        }
    }
}

#[test]
fn every_alignment_is_cleared_and_nothing_beside_it() {
    let mut memory = Guarded::new(5);
    for clearer in Clearer::available() {
        for start in 0..=130 {
            for len in lengths() {
                check_clear(clearer, &mut memory, start, len);
            }
        }
    }
}

#[test]
fn every_alignment_of_both_sides_is_copied_and_nothing_beside_it() {
    let (mut to, from) = (Guarded::new(2), numbered(2));
    for copier in Copier::available() {
        for start in (0..=65).step_by(5) {
            for first in 0..=65 {
                for len in [0, 1, 63, 64, 65, 200, 256, 257, 4096, 4097] {
                    check_copy(copier, (&mut to, start), (&from, first), len);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn large_extents_are_cleared(start in 0..5000usize, len in 0..3_000_000usize) {
        let mut memory = Guarded::new(800);
        for clearer in Clearer::available() {
            check_clear(clearer, &mut memory, start, len);
        }
    }

    #[test]
    fn large_extents_are_copied(
        start in 0..5000usize, first in 0..5000usize, len in 0..3_000_000usize,
    ) {
        let (mut to, from) = (Guarded::new(800), numbered(800));
        for copier in Copier::available() {
            check_copy(copier, (&mut to, start), (&from, first), len);
        }
    }
}

#[test]
fn no_bytes_may_lie_anywhere() {
    for clearer in Clearer::available() {
        // SAFETY: no byte is touched.
        unsafe { clearer.clear_raw(std::ptr::null_mut(), 0) }.unwrap();
        clearer.clear(&mut []);
    }
    for copier in Copier::available() {
        // SAFETY: no byte is touched.
        unsafe { copier.copy_raw(std::ptr::null_mut(), std::ptr::null(), 0) }.unwrap();
        copier.copy(&mut [], &[]).unwrap();
    }
}

#[test]
fn raw_ranges_that_overlap_are_refused_unwritten_and_touching_ones_are_copied() {
    let mut memory = numbered(2);
    let before = memory.to_vec();
    let base = memory.as_mut_ptr();
    let copy = |to: usize, from: usize, len: usize| {
        let (to, from) = (base.wrapping_add(to), base.wrapping_add(from));
        // SAFETY: both ranges are inside the memory, which nothing else uses meanwhile.
        unsafe { copy_extent_raw(to, from, len, Residency::NotTouched) }
    };
    for (to, from) in [(0, 99), (99, 0), (50, 50)] {
        let error = copy(to, from, 100).unwrap_err();
        assert!(matches!(error, RangeError::Overlap { len_bytes: 100, .. }), "{error}");
    }
    assert_eq!(&memory[..], &before[..]);
    copy(100, 0, 100).unwrap();
    copy(4096, 0, 4096).unwrap();
    assert_eq!(&memory[4096..4196], &before[..100]);
    assert_eq!(&memory[4196..4296], &before[..100]);
}

#[test]
fn ranges_past_the_end_of_the_address_space_are_refused() {
    let mut byte = 7u8;
    for len in [usize::MAX, usize::MAX / 2 + 1] {
        // SAFETY: refused before a byte is touched.
        let cleared = unsafe { clear_extent_raw(&raw mut byte, len, Residency::Unknown) };
        assert!(matches!(cleared, Err(RangeError::Wraps { .. })));
        // SAFETY: as above.
        let copied =
            unsafe { copy_extent_raw(&raw mut byte, std::ptr::null(), len, Residency::Unknown) };
        assert!(matches!(copied, Err(RangeError::Wraps { .. })));
    }
    let last = std::ptr::without_provenance_mut::<u8>(usize::MAX);
    // SAFETY: as above.
    let cleared = unsafe { clear_extent_raw(last, 2, Residency::Unknown) };
    assert!(matches!(cleared, Err(RangeError::Wraps { .. })));
    assert_eq!(byte, 7);
}

#[test]
fn slices_that_differ_in_length_are_refused_unwritten() {
    for copier in Copier::available() {
        let mut to = [OLD; 64];
        let error = copier.copy(&mut to, &[1; 63]).unwrap_err();
        assert_eq!(error, RangeError::Lengths { to_bytes: 64, from_bytes: 63 });
        assert!(is_all(&to, OLD));
    }
}

#[test]
fn this_architecture_has_its_primitives() {
    let names: Vec<_> = Clearer::available().iter().map(|c| c.primitive().name()).collect();
    println!("clears: {names:?}");
    let copies: Vec<_> = Copier::available().iter().map(|c| c.primitive().name()).collect();
    println!("copies: {copies:?}");
    assert_eq!(names[0], "portable");
    #[cfg(target_arch = "x86_64")]
    assert!(names.contains(&"rep-string") && copies.contains(&"rep-string"));
    #[cfg(target_arch = "aarch64")]
    assert!(names.contains(&"stp") && names.contains(&"stnp") && copies.contains(&"stnp"));
    // CI lists the primitives that the emulated CPU must have, so none is skipped silently.
    for wanted in std::env::var("LARGEFOLIO_PRIMITIVES").iter().flat_map(|list| list.split(',')) {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
}
