//! Clearing and copying in extents: D.4.3, D.4.5, D.4.7 and K.2.5 of docs/behaviour.

use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::{Ram, StretchWork, Stretches};
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{MmId, Order, PageSize, Vaddr};
use largefolio_mm::vma::Prot;
use largefolio_sim::kernel::Kernel;

const PAGE: u64 = 4096;
const NR: u64 = 512;
const AT: Vaddr = Vaddr(0x4000_0000_0000);

fn addr(page: u64) -> Vaddr {
    Vaddr(AT.0 + page * PAGE)
}

/// A PMD range whose pages were stored to in this order, each with a distinct byte, and then
/// collapsed.
fn collapsed(edits: &str, pages: impl IntoIterator<Item = u64>) -> (Memory, MmId) {
    let rules = Kernel::parse(&format!("7.3+page=4K+thp=never{edits}")).unwrap().rules;
    let ram_bytes = 32 << 20;
    let ram = Ram::new(PageSize::K4, ram_bytes);
    let config = Config { ram_bytes, ..Config::new(Arch::X86_64) };
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let mm = memory.new_space();
    memory.mmap(mm, Map::anon(NR * PAGE, Prot::READ_WRITE).at(AT)).unwrap();
    for page in pages {
        memory.store(mm, addr(page), &[mark(page)]).unwrap();
    }
    memory.take_stretches();
    memory.madvise_collapse(mm, AT, NR * PAGE).unwrap();
    (memory, mm)
}

fn mark(page: u64) -> u8 {
    (page % 251) as u8 + 1
}

fn lengths(stretches: &Stretches) -> Vec<(u64, u64)> {
    let mut all: Vec<_> = stretches.iter().map(|(of, nr)| (of.nr_pages(), nr)).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_collapse_copies_every_page_whatever_the_order_of_the_frames_d_4_5() {
    let (evens, odds) = ((0..NR).step_by(2), (1..NR).step_by(2));
    for edits in ["", "+copy=extents"] {
        for (holes, pages) in [
            (0, (0..NR).collect::<Vec<_>>()),
            (0, evens.clone().chain(odds.clone()).collect()),
            (256, odds.clone().collect()),
        ] {
            let (mut memory, mm) = collapsed(edits, pages.clone());
            assert_eq!(lengths(&memory.take_stretches()), [(NR, 1)], "no point in a collapse");
            let counted = memory.core().ram.counted;
            assert_eq!(counted.copied_by_unit.iter().sum::<u64>(), NR - holes, "{edits}");
            for page in 0..NR {
                let mut byte = [0];
                memory.load(mm, addr(page), &mut byte).unwrap();
                let expected = if pages.contains(&page) { mark(page) } else { 0 };
                assert_eq!(byte[0], expected, "page {page}, {edits}");
            }
        }
    }
}

#[test]
fn frames_side_by_side_are_copied_in_one_go_where_the_rule_says_so_k_2_5() {
    let alone = |edits: &str| {
        let (memory, _) = collapsed(edits, 0..NR);
        memory.core().ram.counted.copied_by_unit[0]
    };
    assert_eq!(alone(""), NR);
    assert!(alone("+copy=extents") < NR / 2, "most frames lie side by side");
}

#[test]
fn a_huge_page_is_copied_towards_the_fault_or_in_extents_d_4_5() {
    let first = |edits: &str| {
        let rules = Kernel::parse(&format!("7.3{edits}")).unwrap().rules.clear;
        let plan = rules.copy_plan(Arch::X86_64, PageSize::K4, Order::new(9), 255);
        let units: Vec<_> = plan.units().map(|unit| (unit.first, unit.nr)).collect();
        (units.len(), units[0])
    };
    assert_eq!(first(""), (512, (511, 1)));
    assert_eq!(first("+copy=extents"), (3, (258, 254)));
}

#[test]
fn others_wait_for_a_stretch_under_none_and_voluntary_d_4_7() {
    let of = |edits: &str, arch, order| {
        let rules = Kernel::parse(&format!("7.3{edits}")).unwrap().rules.clear;
        let mut stretches = Stretches::default();
        let plan = rules.plan(arch, PageSize::K4, Order::new(order), 0);
        stretches.plan(StretchWork::Clear, &plan);
        lengths(&stretches)
    };
    let (amd64, arm64) = (Arch::X86_64, Arch::Arm64);
    for model in ["+preemption=none", "+preemption=voluntary"] {
        assert_eq!(of(model, amd64, 9), [(3, 1), (509, 1)]);
        assert_eq!(of(model, amd64, 18), [(3, 1), (8189, 1), (8192, 31)]);
        assert_eq!(of(model, arm64, 9), [(1, 512)]);
        let looped = format!("{model}+arm64-bulk=loop");
        assert_eq!(of(&looped, arm64, 9), [(3, 1), (125, 1), (128, 3)]);
        let mops = format!("{model}+arm64-bulk=mops");
        assert_eq!(of(&mops, arm64, 9), [(3, 1), (509, 1)]);
    }
    for model in ["+preemption=full", "+preemption=lazy"] {
        assert_eq!(of(model, amd64, 9), [(512, 1)]);
        assert_eq!(of(model, arm64, 9), [(512, 1)]);
    }
}
