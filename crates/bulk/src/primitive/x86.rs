//! x86-64: string instructions, AVX2 and AVX-512 through the cache or bypassing it, `clzero`.
//!
//! The vector loops get their zero from an instruction that is opaque to the compiler. The compiler
//! would turn a loop that visibly stores zeros into a call to `memset`, which is a different
//! primitive.

#![expect(clippy::cast_ptr_alignment, reason = "vectors lie on whole aligned lines")]

use core::arch::asm;
use core::arch::x86_64::{
    __cpuid, __m256i, __m512i, _mm_sfence, _mm256_loadu_si256, _mm256_store_si256,
    _mm256_stream_si256, _mm512_loadu_si512, _mm512_store_si512, _mm512_stream_si512,
};

use super::lines::Lines;
use super::{ClearFn, CopyFn, Primitive};

const LINE_BYTES: usize = 64;
/// Lines per loop iteration: enough to make the loop overhead negligible.
const UNROLL: usize = 4;

pub(super) fn clear_fn(primitive: Primitive) -> Option<ClearFn> {
    let has_avx2 = is_x86_feature_detected!("avx2");
    let has_avx512 = is_x86_feature_detected!("avx512f");
    let (is_present, run): (bool, ClearFn) = match primitive {
        Primitive::RepString => (true, clear_rep),
        Primitive::Avx2 => (has_avx2, clear_avx2),
        Primitive::Avx2Stream => (has_avx2, clear_avx2_stream),
        Primitive::Avx512 => (has_avx512, clear_avx512),
        Primitive::Avx512Stream => (has_avx512, clear_avx512_stream),
        Primitive::ClZero => (has_clzero(), clear_clzero),
        _ => return None,
    };
    is_present.then_some(run)
}

pub(super) fn copy_fn(primitive: Primitive) -> Option<CopyFn> {
    let has_avx2 = is_x86_feature_detected!("avx2");
    let has_avx512 = is_x86_feature_detected!("avx512f");
    let (is_present, run): (bool, CopyFn) = match primitive {
        Primitive::RepString => (true, copy_rep),
        Primitive::Avx2 => (has_avx2, copy_avx2),
        Primitive::Avx2Stream => (has_avx2, copy_avx2_stream),
        Primitive::Avx512 => (has_avx512, copy_avx512),
        Primitive::Avx512Stream => (has_avx512, copy_avx512_stream),
        _ => return None,
    };
    is_present.then_some(run)
}

/// Bit 0 of EBX in extended leaf 8 (AMD64 manual, volume 3, appendix E).
fn has_clzero() -> bool {
    const LEAF: u32 = 0x8000_0008;
    __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).ebx & 1 == 1
}

unsafe fn clear_rep(start: *mut u8, len: usize) {
    // SAFETY: writes `len` bytes at `start`, which the caller vouches for; the direction flag is
    // clear at the entry of every asm block.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") start => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
}

unsafe fn copy_rep(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: writes `len` bytes at `to` and reads as many at `from`, which the caller vouches
    // for; the direction flag is clear at the entry of every asm block.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
}

fn order_stores() {
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() };
}

#[target_feature(enable = "avx2")]
fn zero_256() -> __m256i {
    let zero;
    // SAFETY: writes one register; AVX2 is enabled here.
    unsafe {
        asm!("vpxor {0}, {0}, {0}", out(ymm_reg) zero,
            options(pure, nomem, nostack, preserves_flags));
    }
    zero
}

#[target_feature(enable = "avx512f")]
fn zero_512() -> __m512i {
    let zero;
    // SAFETY: writes one register; AVX-512F is enabled here.
    unsafe {
        asm!("vpxord {0}, {0}, {0}", out(zmm_reg) zero,
            options(pure, nomem, nostack, preserves_flags));
    }
    zero
}

macro_rules! clear_by_lines {
    ($name:ident, $feature:literal, $zero:ident, $store:ident, $vector:ty, $done:expr) => {
        #[target_feature(enable = $feature)]
        unsafe fn $name(start: *mut u8, len: usize) {
            const PER_LINE: usize = LINE_BYTES / size_of::<$vector>();
            const PER_TURN: usize = UNROLL * PER_LINE;
            let lines = Lines::of(start.addr(), len, LINE_BYTES);
            // SAFETY: the lines come from the caller's range.
            unsafe { lines.clear_ends(start, len) };
            let zero = $zero();
            let mut at = start.wrapping_add(lines.head).cast::<$vector>();
            for _ in 0..lines.nr / UNROLL {
                for n in 0..PER_TURN {
                    // SAFETY: inside a whole line of the range, so aligned.
                    unsafe { $store(at.wrapping_add(n), zero) };
                }
                at = at.wrapping_add(PER_TURN);
            }
            for n in 0..lines.nr % UNROLL * PER_LINE {
                // SAFETY: inside a whole line of the range, so aligned.
                unsafe { $store(at.wrapping_add(n), zero) };
            }
            $done();
        }
    };
}

macro_rules! copy_by_lines {
    ($name:ident, $feature:literal, $load:ident, $store:ident, $vector:ty, $done:expr) => {
        #[target_feature(enable = $feature)]
        unsafe fn $name(to: *mut u8, from: *const u8, len: usize) {
            const PER_LINE: usize = LINE_BYTES / size_of::<$vector>();
            const PER_TURN: usize = UNROLL * PER_LINE;
            let lines = Lines::of(to.addr(), len, LINE_BYTES);
            // SAFETY: the lines come from the caller's destination.
            unsafe { lines.copy_ends(to, from, len) };
            let mut to = to.wrapping_add(lines.head).cast::<$vector>();
            let mut from = from.wrapping_add(lines.head).cast::<$vector>();
            for _ in 0..lines.nr / UNROLL {
                for n in 0..PER_TURN {
                    // SAFETY: inside the source; the load takes any alignment.
                    let part = unsafe { $load(from.wrapping_add(n)) };
                    // SAFETY: inside a whole line of the destination, so aligned.
                    unsafe { $store(to.wrapping_add(n), part) };
                }
                (to, from) = (to.wrapping_add(PER_TURN), from.wrapping_add(PER_TURN));
            }
            for n in 0..lines.nr % UNROLL * PER_LINE {
                // SAFETY: inside the source; the load takes any alignment.
                let part = unsafe { $load(from.wrapping_add(n)) };
                // SAFETY: inside a whole line of the destination, so aligned.
                unsafe { $store(to.wrapping_add(n), part) };
            }
            $done();
        }
    };
}

/// Stores through the cache are already ordered.
fn in_order() {}

type V256 = __m256i;
type V512 = __m512i;
clear_by_lines!(clear_avx2, "avx2", zero_256, _mm256_store_si256, V256, in_order);
clear_by_lines!(clear_avx2_stream, "avx2", zero_256, _mm256_stream_si256, V256, order_stores);
clear_by_lines!(clear_avx512, "avx512f", zero_512, _mm512_store_si512, V512, in_order);
clear_by_lines!(clear_avx512_stream, "avx512f", zero_512, _mm512_stream_si512, V512, order_stores);
copy_by_lines!(copy_avx2, "avx2", _mm256_loadu_si256, _mm256_store_si256, V256, in_order);
copy_by_lines!(
    copy_avx2_stream,
    "avx2",
    _mm256_loadu_si256,
    _mm256_stream_si256,
    V256,
    order_stores
);
copy_by_lines!(copy_avx512, "avx512f", _mm512_loadu_si512, _mm512_store_si512, V512, in_order);
copy_by_lines!(
    copy_avx512_stream,
    "avx512f",
    _mm512_loadu_si512,
    _mm512_stream_si512,
    V512,
    order_stores
);

unsafe fn clear_clzero(start: *mut u8, len: usize) {
    let lines = Lines::of(start.addr(), len, LINE_BYTES);
    // SAFETY: the lines come from the caller's range.
    unsafe { lines.clear_ends(start, len) };
    let first = start.wrapping_add(lines.head);
    for line in 0..lines.nr {
        let at = first.wrapping_add(line * LINE_BYTES);
        // SAFETY: zeroes the line at `at`, which is inside the range; `has_clzero` held.
        unsafe { asm!("clzero", in("rax") at, options(nostack, preserves_flags)) };
    }
    order_stores();
}
