//! Default choices for a CPU without calibration, with their reasons.

use super::{Choices, Rung};
use crate::primitive::{Clearer, Copier, Primitive};

/// Smallest streamed extent: a base page. Cold 4 KiB, GB/s streaming against the best cacheable
/// stores: Zen 4 22 against 10, Cascade Lake 6.46 against 5.86. Smaller ones were not measured, and
/// the final fence costs relatively more.
const STREAM_BYTES_MIN: usize = 4 << 10;
/// From this size on, [`CLEAR_AWAY`] is faster than the best primitive for a page. Zen 4, cold,
/// GB/s of `clzero` and AVX-512: 4 KiB 22.8 and 21.2, 64 KiB 67.5 and 69.0.
const CLEAR_LARGE_BYTES_MIN: usize = 64 << 10;
/// Largest extent kept in the cache when it will be touched. Zen 4 with 32 MiB of last-level cache,
/// clearing cached memory: 8 MiB 100 GB/s through the cache against 90 bypassing it; 32 MiB 79
/// against 90.
const KEEP_BYTES_MAX: usize = 8 << 20;
/// Largest extent kept in the cache without a hint: half of the 1 MiB private cache of both
/// measured machines. A larger extent evicts the program's working set, and a wrong guess costs 1.2
/// times (Zen 4, 1 MiB: 103 against 89 GB/s), while a right one gains 2.6.
const UNKNOWN_BYTES_MAX: usize = 512 << 10;

/// Best first: stores through the cache. Zen 4, hot 4 KiB, GB/s: AVX2 and AVX-512 115, `rep stosb`
/// 114, `memset` 111. Cascade Lake: `memset` (AVX2 in its C library) 126, `rep stosb` 41; on cold
/// memory AVX-512 4.66 against 5.86 for AVX2. arm64 is not measured: the kernel clears pages with
/// `dc zva`; MOPS is "at least no slower" (docs/behaviour K.2.5).
const CACHED: &[Primitive] = &[
    Primitive::Avx2,
    Primitive::Mops,
    Primitive::DcZva,
    Primitive::StorePair,
    Primitive::Portable,
];
/// Best first: clearing a few pages, bypassing the cache. Only AMD has `clzero`.
const CLEAR_PAGE_AWAY: &[Primitive] =
    &[Primitive::ClZero, Primitive::Avx512Stream, Primitive::Avx2Stream];
/// Best first: clearing larger extents, bypassing the cache. Zen 4, cold 2 MiB, GB/s: AVX-512 and
/// AVX2 88, `clzero` 78, `rep stosb` 33. Cascade Lake: AVX-512 17.6. On arm64 most cores ignore the
/// hint of `stnp`, and `dc zva` writes without reading, so the cacheable primitives are used.
const CLEAR_AWAY: &[Primitive] = &[Primitive::Avx512Stream, Primitive::Avx2Stream];
/// Best first: copying, bypassing the cache. Zen 4, cold 2 MiB, GB/s: AVX2 20.1, AVX-512 19.0, `rep
/// movsb` 17.1.
const COPY_AWAY: &[Primitive] = &[Primitive::Avx2Stream, Primitive::StorePairStream];

pub(super) fn clear_choices() -> Choices {
    let away = [(STREAM_BYTES_MIN, CLEAR_PAGE_AWAY), (CLEAR_LARGE_BYTES_MIN, CLEAR_AWAY)];
    choices(&away, |primitive| Clearer::new(primitive).is_some())
}

pub(super) fn copy_choices() -> Choices {
    choices(&[(STREAM_BYTES_MIN, COPY_AWAY)], |primitive| Copier::new(primitive).is_some())
}

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
