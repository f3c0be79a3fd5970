use super::*;
use crate::kernel::Kernel;
use proptest::prelude::*;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

fn ground(kernel: &str, filesystem: &str) -> Ground {
    Ground::of(&Kernel::parse(kernel).unwrap().rules, filesystem)
}

fn segment(offset: u64, vaddr: u64, file_bytes: u64, align: u64) -> Segment {
    Segment { offset, vaddr, file_bytes, align }
}

/// 3 MiB of text after 4 KiB of headers, as linkers lay it out for 4K pages.
fn plain() -> [Segment; 2] {
    [segment(0, 0, 2 * K, 4 * K), segment(4 * K, 4 * K, 3 * M, 4 * K)]
}

#[test]
fn sizes_are_those_of_one_tlb_entry_on_some_machine() {
    let of = |kernel: &str| sizes(&Kernel::parse(kernel).unwrap().rules);
    assert_eq!(of("7.2"), [16 * K, 64 * K, 2 * M]);
    assert_eq!(of("7.2+page=16K"), [64 * K, 2 * M, 32 * M]);
    assert_eq!(of("7.2+page=64K"), [2 * M]);
}

#[test]
fn a_program_is_random_in_steps_of_its_alignment() {
    let xfs = ground("7.2", "xfs");
    let of = |segments: &[Segment], bytes| covered(Loading::Program, segments, 1, xfs, bytes);
    for bytes in [16 * K, 64 * K, 2 * M] {
        assert_eq!(of(&plain(), bytes), Err(Refusal::RandomAddress));
    }
    let wide = plain().map(|segment| Segment { align: 64 * K, ..segment });
    assert_eq!(of(&wide, 64 * K), Ok(3 * M - 64 * K));
    assert_eq!(of(&wide, 2 * M), Err(Refusal::RandomAddress));
    assert_eq!(step_bytes(Loading::Program, &wide, xfs), Some(64 * K));
}

#[test]
fn a_library_that_spans_a_pmd_is_placed_on_some_filesystems() {
    let of = |fs: &str, loading, bytes| covered(loading, &plain(), 1, ground("7.2", fs), bytes);
    assert_eq!(of("xfs", Loading::Library, 64 * K), Ok(3 * M - 64 * K));
    assert_eq!(of("nfs", Loading::Library, 64 * K), Err(Refusal::RandomAddress));
    assert_eq!(of("xfs", Loading::Library32, 64 * K), Err(Refusal::RandomAddress));
    // 4K of headers and 2M less 8K of text do not span a PMD range.
    let small = [plain()[0], segment(4 * K, 4 * K, 2 * M - 8 * K, 4 * K)];
    let refused = covered(Loading::Library, &small, 1, ground("7.2", "xfs"), 64 * K);
    assert_eq!(refused, Err(Refusal::RandomAddress));
    // With its own alignment, the loader chooses the address, in its own steps.
    let wide = plain().map(|segment| Segment { align: 16 * K, ..segment });
    let of = |bytes| covered(Loading::Library, &wide, 1, ground("7.2", "xfs"), bytes);
    assert_eq!([of(16 * K), of(64 * K)], [Ok(3 * M - 16 * K), Err(Refusal::RandomAddress)]);
}

#[test]
fn a_fixed_program_is_aligned_where_address_and_offset_agree() {
    let of =
        |text: Segment, bytes| covered(Loading::Fixed, &[text], 0, ground("7.2", "ext4"), bytes);
    let classic = segment(4 * K, 0x40_1000, 3 * M, 4 * K);
    assert_eq!(
        [of(classic, 64 * K), of(classic, 2 * M)],
        [Ok(3 * M - 64 * K), Err(Refusal::NoWholeBlock)]
    );
    let shifted = segment(4 * K, 0x40_2000, 3 * M, 4 * K);
    assert_eq!(of(shifted, 16 * K), Err(Refusal::Incongruent));
    assert_eq!(of(segment(2 * M, 4 * M, 60 * K, 2 * M), 64 * K), Err(Refusal::TooSmall));
}

#[test]
fn a_filesystem_must_have_the_folios() {
    let text = [segment(2 * M, 2 * M, 4 * M, 2 * M)];
    let of =
        |kernel: &str, fs: &str| covered(Loading::Program, &text, 0, ground(kernel, fs), 2 * M);
    assert_eq!(of("7.2", "xfs"), Ok(4 * M));
    assert_eq!(of("7.2", "btrfs"), Err(Refusal::Filesystem));
    assert_eq!(of("7.2", "vfat"), Err(Refusal::Filesystem));
    assert_eq!([of("6.12", "ext4"), of("6.16", "ext4")], [Err(Refusal::Filesystem), Ok(4 * M)]);
}

#[test]
fn pages_in_common_are_found() {
    let joined = [
        segment(0, 0, 5000, 4096),
        segment(5000, 9000, 3000, 4096),
        segment(8192, 12288, 10, 4096),
    ];
    assert_eq!(sharing(&joined, 0, PageSize::K4), [1]);
    assert_eq!(sharing(&joined, 1, PageSize::K4), [0]);
    assert_eq!(sharing(&joined, 2, PageSize::K4), Vec::<usize>::new());
    assert_eq!(sharing(&joined, 2, PageSize::K64), [0, 1]);
    let empty = [segment(0, 0, 0, 4096), segment(0, 0, 10, 4096)];
    assert_eq!(
        (sharing(&empty, 0, PageSize::K4), sharing(&empty, 1, PageSize::K4)),
        (vec![], vec![])
    );
}

proptest! {
    #[test]
    fn segments_without_sense_are_no_panic(
        segments in prop::collection::vec((any::<[u64; 3]>(), 0..65_u32), 1..5),
        loading in prop::sample::select(
            vec![Loading::Fixed, Loading::Program, Loading::Library, Loading::Library32],
        ),
    ) {
        let xfs = ground("7.2", "xfs");
        let segments: Vec<_> = segments
            .into_iter()
            .map(|([offset, vaddr, file_bytes], align)| {
                segment(offset, vaddr, file_bytes, 1_u64.checked_shl(align).unwrap_or(0))
            })
            .collect();
        for nr in 0..segments.len() {
            let covered = covered(loading, &segments, nr, xfs, 64 * K).unwrap_or(0);
            prop_assert!(covered <= segments[nr].file_bytes.saturating_add(8 * K));
            prop_assert!(!sharing(&segments, nr, PageSize::K4).contains(&nr));
        }
        prop_assert_eq!(step_bytes(loading, &segments, xfs).is_none(), loading == Loading::Fixed);
    }

    /// Compares with a simulated loader: for every possible load address, the blocks that lie
    /// inside the segment and are aligned in file and memory.
    #[test]
    fn what_is_covered_is_what_every_load_address_aligns(
        first in 0..64_u64,
        nr_pages in 1..200_u64,
        apart in prop_oneof![Just(0_u64), 0..32_u64],
        align_shift in 0..7_u32,
        loading in prop::sample::select(vec![Loading::Fixed, Loading::Program, Loading::Library32]),
        shift in 14..18_u32,
    ) {
        let page = 4 * K;
        let (bytes, align) = (1 << shift, page << align_shift);
        // A linker keeps address and offset congruent mod the alignment.
        let apart = if loading == Loading::Fixed { apart * page } else { apart * align };
        let text = segment(first * page, first * page + apart, nr_pages * page, align);
        let found = covered(loading, &[text], 0, ground("7.2", "xfs"), bytes);
        let steps = if loading == Loading::Fixed { 1..2 } else { 0..64_u64 };
        let biases = steps.map(|step| {
            if loading == Loading::Fixed {
                return 0;
            }
            let up = (first * page).next_multiple_of(align) - first * page;
            (1 << 30) + step * align + up - apart
        });
        let mut least = u64::MAX;
        for bias in biases {
            let ends = text.offset + text.file_bytes;
            let blocks = (0..ends / bytes).map(|block| block * bytes).filter(|&at| {
                let place = (bias + text.vaddr).wrapping_add(at).wrapping_sub(text.offset);
                at >= text.offset && at + bytes <= ends && place % bytes == 0
            });
            least = least.min(blocks.count() as u64 * bytes);
        }
        prop_assert_eq!(found.unwrap_or(0), least, "{:?}", found);
    }
}
