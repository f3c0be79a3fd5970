use super::*;
use crate::geometry::Geometry;
use proptest::prelude::*;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// A kernel of 4K pages and the filesystem's largest folio.
fn ground(filesystem: &str) -> Ground {
    let folio_bytes_max = match filesystem {
        "xfs" | "ext4" => 2 * M,
        "btrfs" => 512 * K,
        _ => 4 * K,
    };
    let places_aligned = matches!(filesystem, "xfs" | "ext4" | "btrfs");
    Ground { page_bytes: 4 * K, pmd_bytes: 2 * M, folio_bytes_max, places_aligned }
}

fn segment(offset: u64, vaddr: u64, file_bytes: u64, align: u64) -> Load {
    Load { offset, vaddr, file_bytes, mem_bytes: file_bytes, align, prot: 5 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loading {
    Fixed,
    Program,
    Library,
    Library32,
}

fn of_loading(loading: Loading, loads: &[Load]) -> ElfFile {
    let (kind, class) = match loading {
        Loading::Fixed => (ElfKind::Fixed, Class::Bits64),
        Loading::Program => (ElfKind::Program, Class::Bits64),
        Loading::Library => (ElfKind::Shared, Class::Bits64),
        Loading::Library32 => (ElfKind::Shared, Class::Bits32),
    };
    ElfFile { kind, class, loads: loads.to_vec(), ..ElfFile::default() }
}

fn covered(
    loading: Loading,
    loads: &[Load],
    nr: usize,
    ground: Ground,
    bytes: u64,
) -> Result<u64, AlignRefusal> {
    super::covered(&of_loading(loading, loads), nr, ground, bytes)
}

/// 3 MiB of text after 4 KiB of headers, as linkers lay it out for 4K pages.
fn plain() -> [Load; 2] {
    [segment(0, 0, 2 * K, 4 * K), segment(4 * K, 4 * K, 3 * M, 4 * K)]
}

#[test]
fn a_program_is_random_in_steps_of_its_alignment() {
    let xfs = ground("xfs");
    let of = |segments: &[Load], bytes| covered(Loading::Program, segments, 1, xfs, bytes);
    for bytes in [16 * K, 64 * K, 2 * M] {
        assert_eq!(of(&plain(), bytes), Err(AlignRefusal::RandomAddress));
    }
    let wide = plain().map(|segment| Load { align: 64 * K, ..segment });
    assert_eq!(of(&wide, 64 * K), Ok(3 * M - 64 * K));
    assert_eq!(of(&wide, 2 * M), Err(AlignRefusal::RandomAddress));
    assert_eq!(step_bytes(&of_loading(Loading::Program, &wide), xfs), Some(64 * K));
}

#[test]
fn a_library_that_spans_a_pmd_is_placed_on_some_filesystems() {
    let of = |fs: &str, loading, bytes| covered(loading, &plain(), 1, ground(fs), bytes);
    assert_eq!(of("xfs", Loading::Library, 64 * K), Ok(3 * M - 64 * K));
    assert_eq!(of("nfs", Loading::Library, 64 * K), Err(AlignRefusal::RandomAddress));
    assert_eq!(of("xfs", Loading::Library32, 64 * K), Err(AlignRefusal::RandomAddress));
    // 4K of headers and 2M less 8K of text do not span a PMD range.
    let small = [plain()[0], segment(4 * K, 4 * K, 2 * M - 8 * K, 4 * K)];
    let refused = covered(Loading::Library, &small, 1, ground("xfs"), 64 * K);
    assert_eq!(refused, Err(AlignRefusal::RandomAddress));
    // With its own alignment, the loader chooses the address, in its own steps.
    let wide = plain().map(|segment| Load { align: 16 * K, ..segment });
    let of = |bytes| covered(Loading::Library, &wide, 1, ground("xfs"), bytes);
    assert_eq!([of(16 * K), of(64 * K)], [Ok(3 * M - 16 * K), Err(AlignRefusal::RandomAddress)]);
}

#[test]
fn a_fixed_program_is_aligned_where_address_and_offset_agree() {
    let of = |text: Load, bytes| covered(Loading::Fixed, &[text], 0, ground("ext4"), bytes);
    let classic = segment(4 * K, 0x40_1000, 3 * M, 4 * K);
    assert_eq!(
        [of(classic, 64 * K), of(classic, 2 * M)],
        [Ok(3 * M - 64 * K), Err(AlignRefusal::NoWholeBlock)]
    );
    let shifted = segment(4 * K, 0x40_2000, 3 * M, 4 * K);
    assert_eq!(of(shifted, 16 * K), Err(AlignRefusal::Incongruent));
    assert_eq!(of(segment(2 * M, 4 * M, 60 * K, 2 * M), 64 * K), Err(AlignRefusal::TooSmall));
}

#[test]
fn a_filesystem_must_have_the_folios() {
    let text = [segment(2 * M, 2 * M, 4 * M, 2 * M)];
    let of = |fs: &str| covered(Loading::Program, &text, 0, ground(fs), 2 * M);
    assert_eq!(of("xfs"), Ok(4 * M));
    assert_eq!(of("btrfs"), Err(AlignRefusal::Filesystem));
    assert_eq!(of("vfat"), Err(AlignRefusal::Filesystem));
}

#[test]
fn pages_in_common_are_found() {
    let joined = [
        segment(0, 0, 5000, 4096),
        segment(5000, 9000, 3000, 4096),
        segment(8192, 12288, 10, 4096),
    ];
    assert_eq!(sharing(&joined, 0, 4 * K), [1]);
    assert_eq!(sharing(&joined, 1, 4 * K), [0]);
    assert_eq!(sharing(&joined, 2, 4 * K), Vec::<usize>::new());
    assert_eq!(sharing(&joined, 2, 64 * K), [0, 1]);
    let empty = [segment(0, 0, 0, 4096), segment(0, 0, 10, 4096)];
    assert_eq!((sharing(&empty, 0, 4 * K), sharing(&empty, 1, 4 * K)), (vec![], vec![]));
}

proptest! {
    #[test]
    fn segments_without_sense_are_no_panic(
        segments in prop::collection::vec((any::<[u64; 3]>(), 0..65_u32), 1..5),
        loading in prop::sample::select(
            vec![Loading::Fixed, Loading::Program, Loading::Library, Loading::Library32],
        ),
    ) {
        let xfs = ground("xfs");
        let segments: Vec<_> = segments
            .into_iter()
            .map(|([offset, vaddr, file_bytes], align)| {
                segment(offset, vaddr, file_bytes, 1_u64.checked_shl(align).unwrap_or(0))
            })
            .collect();
        for nr in 0..segments.len() {
            let covered = covered(loading, &segments, nr, xfs, 64 * K).unwrap_or(0);
            prop_assert!(covered <= segments[nr].file_bytes.saturating_add(8 * K));
            prop_assert!(!sharing(&segments, nr, 4 * K).contains(&nr));
        }
        prop_assert_eq!(step_bytes(&of_loading(loading, &segments), xfs).is_none(), loading == Loading::Fixed);
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
        let alignment = covered(loading, &[text], 0, ground("xfs"), bytes);
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
        prop_assert_eq!(alignment.unwrap_or(0), least, "{:?}", alignment);
    }
}

const M2: u64 = 2 * M;

/// A filesystem with every folio, on pages of `page_bytes`.
fn on(page_bytes: u64, places_aligned: bool) -> Ground {
    let pmd_bytes = Geometry::arm64(page_bytes).pmd_bytes();
    Ground { page_bytes, pmd_bytes, folio_bytes_max: u64::MAX, places_aligned }
}

fn elf(kind: ElfKind, align: u64, vaddr: u64, offset: u64, file_bytes: u64) -> ElfFile {
    let head = Load { prot: 1, align, file_bytes: 0x1000, mem_bytes: 0x1000, ..Load::default() };
    let text = Load { prot: 5, offset, vaddr, file_bytes, mem_bytes: file_bytes, align };
    ElfFile { kind, loads: vec![head, text], ..ElfFile::default() }
}

#[test]
fn a_fixed_program_is_judged_by_its_addresses() {
    let text = |vaddr, offset| {
        judge(&elf(ElfKind::Fixed, 4096, vaddr, offset, 5 * M2), M2, on(4 * K, true))
    };
    let well = Placed::Mappable { text_bytes: 4 * M2, file: 0..0x1000 + 5 * M2 };
    assert_eq!(text(0x40_1000, 0x1000), well);
    assert_eq!(text(0x40_2000, 0x1000), Placed::Unmappable(Obstacle::Incongruent(M2)));
}

#[test]
fn a_pie_needs_the_alignment_and_a_library_the_filesystem() {
    let of = |kind, align, places| judge(&elf(kind, align, 0x1000, 0x1000, 5 * M2), M2, places);
    assert_eq!(
        of(ElfKind::Program, 4096, on(4 * K, true)),
        Placed::Unmappable(Obstacle::Random(4096))
    );
    assert!(matches!(of(ElfKind::Program, M2, on(4 * K, false)), Placed::Mappable { .. }));
    assert!(matches!(of(ElfKind::Shared, 4096, on(4 * K, true)), Placed::Mappable { .. }));
    assert_eq!(
        of(ElfKind::Shared, 4096, on(4 * K, false)),
        Placed::Unmappable(Obstacle::Random(4096))
    );
    assert_eq!(
        of(ElfKind::Shared, 0x1_0000, on(4 * K, true)),
        Placed::Unmappable(Obstacle::Random(0x1_0000))
    );
}

#[test]
fn a_smaller_block_fits_a_library_that_is_aligned_to_it_or_placed_as_a_large_one() {
    let of = |align, len| {
        judge(&elf(ElfKind::Shared, align, 0x1000, 0x1000, len), 1 << 16, on(4 * K, true))
    };
    assert!(matches!(of(1 << 16, M2 / 2), Placed::Mappable { text_bytes, .. } if text_bytes > 0));
    assert_eq!(of(4096, M2 / 2), Placed::Unmappable(Obstacle::Random(4096)));
    assert!(matches!(of(4096, 2 * M2), Placed::Mappable { .. }), "the kernel places its mapping");
}

#[test]
fn each_base_page_has_the_size_from_which_a_filesystem_places_a_library() {
    let of = |page: u64, align, len| {
        let placing = on(page, true);
        judge(&elf(ElfKind::Shared, align, 0x1_0000, 0x1_0000, len), M2, placing)
    };
    // As arm64 linkers align it: 64K, larger than pages of 4K and 16K.
    assert_eq!(of(16 << 10, 1 << 16, 40 << 20), Placed::Unmappable(Obstacle::Random(1 << 16)));
    assert!(matches!(of(64 << 10, 1 << 16, 513 << 20), Placed::Mappable { .. }));
    assert_eq!(of(64 << 10, 1 << 16, 40 << 20), Placed::Unmappable(Obstacle::Random(1 << 16)));
    assert!(
        matches!(of(16 << 10, M2, 5 << 20), Placed::Mappable { text_bytes, .. } if text_bytes > 0)
    );
}

#[test]
fn text_without_a_whole_block_is_too_small() {
    let small = elf(ElfKind::Fixed, 4096, 0x40_1000, 0x1000, M2 + 0x1000);
    assert_eq!(judge(&small, M2, on(4 * K, true)), Placed::Unmappable(Obstacle::TooSmall(M2)));
    let none = ElfFile { kind: ElfKind::Fixed, ..ElfFile::default() };
    assert_eq!(judge(&none, M2, on(4 * K, true)), Placed::Unmappable(Obstacle::TooSmall(M2)));
}

#[test]
fn bss_counts_when_the_kernel_places_a_library() {
    let (head, text) = (plain()[0], segment(4 * K, 4 * K, 300 * K, 4 * K));
    let data = |mem_bytes| Load { mem_bytes, prot: 6, ..segment(304 * K, 304 * K, K, 4 * K) };
    let of = |mem_bytes| {
        let loads = [head, text, data(mem_bytes)];
        covered(Loading::Library, &loads, 1, ground("xfs"), 64 * K)
    };
    assert_eq!(of(3 * M), Ok(192 * K), "on ext4, 40 of 40 loads were aligned to 2M");
    assert_eq!(of(K), Err(AlignRefusal::RandomAddress), "0 of 40 loads were");
}

#[test]
fn a_mapping_has_whole_pages() {
    let text = segment(2 * M + 16, 2 * M + 16, 4 * M - 32, 2 * M);
    assert_eq!(covered(Loading::Program, &[text], 0, ground("xfs"), 2 * M), Ok(4 * M));
}
