//! The choices for a CPU that nobody calibrated, with their reasons.

use super::{Choices, Rung};
use crate::primitive::{Clearer, Copier, Primitive};

/// Smallest extent that is streamed: a base page. Cold 4 KiB, GB/s streaming against the best
/// cacheable stores: Zen 4 22 against 10, Cascade Lake 6.46 against 5.86. Smaller ones were not
/// measured and the fence at the end weighs more.
const STREAM_BYTES_MIN: usize = 4 << 10;
/// From here on [`CLEAR_AWAY`] is ahead of what clears a page best. Zen 4, cold, GB/s of `clzero` and
/// AVX-512: 4 KiB 22.8 and 21.2, 64 KiB 67.5 and 69.0.
const CLEAR_LARGE_BYTES_MIN: usize = 64 << 10;
/// Largest extent kept in the cache when it will be touched. Zen 4 with 32 MiB of last cache,
/// clearing what is cached: 8 MiB 100 GB/s through the cache against 90 past it; 32 MiB 79
/// against 90.
const KEEP_BYTES_MAX: usize = 8 << 20;
/// Largest extent kept in the cache when nobody knows: half of a private cache of 1 MiB, which is
/// what both measured machines have. A larger one evicts what the program works on, and there the
/// wrong guess costs 1.2 times (Zen 4, 1 MiB: 103 against 89 GB/s), the right one gains 2.6.
const UNKNOWN_BYTES_MAX: usize = 512 << 10;

/// Best first: what stores through the cache. Zen 4, hot 4 KiB, GB/s: AVX2 and AVX-512 115,
/// `rep stosb` 114, `memset` 111. Cascade Lake: `memset` (AVX2 in its C library) 126, `rep stosb`
/// 41; and AVX-512 behind AVX2 on cold memory, 4.66 against 5.86. arm64 unmeasured: `dc zva` is
/// what the kernel clears pages by; MOPS "at least no slower" than not (docs/behaviour K.2.5).
const CACHED: &[Primitive] = &[
    Primitive::Avx2,
    Primitive::Mops,
    Primitive::DcZva,
    Primitive::StorePair,
    Primitive::Portable,
];
/// Best first: what clears a few pages past the cache; only AMD has `clzero`.
const CLEAR_PAGE_AWAY: &[Primitive] =
    &[Primitive::ClZero, Primitive::Avx512Stream, Primitive::Avx2Stream];
/// Best first: what clears more past the cache. Zen 4, cold 2 MiB, GB/s: AVX-512 and AVX2 88, `clzero`
/// 78, `rep stosb` 33. Cascade Lake: AVX-512 17.6. On arm64 `stnp` is a hint most cores ignore and
/// `dc zva` writes without reading, so the cacheable ones stand.
const CLEAR_AWAY: &[Primitive] = &[Primitive::Avx512Stream, Primitive::Avx2Stream];
/// Best first: what copies past the cache. Zen 4, cold 2 MiB: AVX2 20.1, AVX-512 19.0, `rep movsb`
/// 17.1.
const COPY_AWAY: &[Primitive] = &[Primitive::Avx2Stream, Primitive::StorePairStream];

pub(super) fn clear_choices() -> Choices {
    let away = [(STREAM_BYTES_MIN, CLEAR_PAGE_AWAY), (CLEAR_LARGE_BYTES_MIN, CLEAR_AWAY)];
    choices(&away, |primitive| Clearer::new(primitive).is_some())
}

pub(super) fn copy_choices() -> Choices {
    choices(&[(STREAM_BYTES_MIN, COPY_AWAY)], |primitive| Copier::new(primitive).is_some())
}

/// The first present primitive of each list, from its size on.
fn choices(away: &[(usize, &[Primitive])], is_present: impl Fn(Primitive) -> bool) -> Choices {
    let first = |of: &[Primitive]| of.iter().copied().find(|&primitive| is_present(primitive));
    let near = first(CACHED).unwrap_or(Primitive::Portable);
    let cached = vec![Rung { from_bytes: 0, primitive: near }];
    let far = away
        .iter()
        .filter_map(|&(from_bytes, of)| first(of).map(|primitive| Rung { from_bytes, primitive }));
    Choices {
        away: cached.iter().copied().chain(far).collect(),
        cached,
        keep_bytes_max: KEEP_BYTES_MAX,
        unknown_bytes_max: UNKNOWN_BYTES_MAX,
    }
}
