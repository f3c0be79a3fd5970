//! Random operation sequences compared page by page with the naive twin of `testkit`, and validated
//! after each step.

use largefolio_testkit::pgtable::{self as naive, Folio, NaivePageTable, Piece};
use proptest::prelude::*;

use super::super::{
    AccessBits, Batch, Contpte, FolioSpan, LeafKind, PageTable, Protection, PteFlags,
};
use crate::units::{Order, PageSize, Pfn, Vpn};

const SLOT: u64 = 512;
const NR_PAGES: u64 = 4 * SLOT;
const ORDERS: [u8; 8] = [0, 2, 4, 5, 9, 4, 9, 6];
const FLAGS: [(u8, PteFlags); 4] = [
    (naive::WRITABLE, PteFlags::WRITABLE),
    (naive::DIRTY, PteFlags::DIRTY),
    (naive::YOUNG, PteFlags::YOUNG),
    (naive::SPECIAL, PteFlags::SPECIAL),
];

fn folio_of(pfn: u64) -> Folio {
    let order = ORDERS[(pfn / SLOT) as usize];
    (pfn >> order << order, order)
}

fn span(pfn: u64) -> FolioSpan {
    let (first, order) = folio_of(pfn);
    FolioSpan::new(Pfn(first), Order::new(order))
}

fn flags_of(bits: u8) -> PteFlags {
    let chosen = FLAGS.into_iter().filter(|(bit, _)| bits & bit != 0);
    chosen.fold(PteFlags::NONE, |all, (_, flag)| all | flag)
}

fn bits_of(flags: PteFlags) -> u8 {
    FLAGS.into_iter().filter(|&(_, flag)| flags.contains(flag)).fold(0, |all, (bit, _)| all | bit)
}

struct Pair {
    table: PageTable,
    naive: NaivePageTable,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Map(u64, u64, u64, u8),
    MapPmd(u64, u64, u8),
    Replace(u64, u64, u8),
    AddFlags(u64, u8),
    ClearYoung(u64),
    Clear(u64, u64),
    Wrprotect(u64, u64),
    Protect(u64, u64, u8, u8),
    SplitPmd(u64),
    ClearPmd(u64),
    Move(u64, u64, u64),
    FreeTables(u64, u64),
}

impl Pair {
    fn new(contpte: Contpte) -> Self {
        let block = if contpte == Contpte::Arm64 { 16 } else { 1 };
        Self {
            table: PageTable::new(PageSize::K4, contpte),
            naive: NaivePageTable::new(SLOT, block),
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Map(vpn, pfn, nr, flags) => self.map(vpn, pfn, nr, flags),
            Step::MapPmd(slot, pfn, flags) if self.naive.is_slot_empty(slot * SLOT) => {
                self.table.map_pmd(Vpn(slot * SLOT), Pfn(pfn), flags_of(flags));
                self.naive.map_pmd(slot * SLOT, pfn, flags);
            }
            Step::Replace(vpn, pfn, flags) if self.has_pte(vpn) => {
                self.table.replace_pte(Vpn(vpn), Pfn(pfn), flags_of(flags), span(pfn));
                self.naive.replace(vpn, pfn, flags, folio_of(pfn));
            }
            Step::AddFlags(vpn, flags) if self.naive.read(vpn).is_some() => {
                self.table.add_flags(Vpn(vpn), flags_of(flags));
                self.naive.add_flags(vpn, flags);
            }
            Step::ClearYoung(vpn) => {
                let was_young = self.table.test_and_clear_young(Vpn(vpn));
                assert_eq!(was_young, self.naive.clear_young(vpn));
            }
            Step::SplitPmd(vpn) => {
                assert_eq!(self.table.split_pmd(Vpn(vpn)), self.naive.split_pmd(vpn));
            }
            Step::ClearPmd(vpn) if self.naive.has_leaf(vpn) => {
                self.table.clear_pmd(Vpn(vpn)).unwrap();
                self.naive.clear(vpn / SLOT * SLOT, (vpn / SLOT + 1) * SLOT, folio_of);
            }
            Step::Move(from, to, nr) => self.move_range(from, to, nr),
            Step::FreeTables(vpn, nr) => {
                let nr_freed = self.table.free_empty_tables(Vpn(vpn), nr);
                assert_eq!(nr_freed, self.naive.free_empty_tables(vpn, vpn + nr));
            }
            Step::Clear(vpn, nr) => self.clear(vpn, nr),
            Step::Wrprotect(vpn, nr) => {
                self.split_cut_leaves(vpn, vpn + nr);
                self.table.wrprotect_range(Vpn(vpn), nr);
                self.naive.wrprotect(vpn, vpn + nr);
            }
            Step::Protect(vpn, nr, set, clear) => {
                self.split_cut_leaves(vpn, vpn + nr);
                let protection = Protection { set: flags_of(set), clear: flags_of(clear) };
                self.table.protect_range(Vpn(vpn), nr, protection, |pfn| span(pfn.0));
                self.naive.protect((vpn, vpn + nr), (set, clear), folio_of);
            }
            _ => {}
        }
        self.compare(step);
    }

    fn has_pte(&self, vpn: u64) -> bool {
        self.naive.read(vpn).is_some() && !self.naive.has_leaf(vpn)
    }

    fn map(&mut self, vpn: u64, pfn: u64, nr: u64, flags: u8) {
        let (first, order) = folio_of(pfn);
        let nr = nr.min(first + (1 << order) - pfn).min(SLOT - vpn % SLOT);
        let is_free = |by: &u64| self.naive.read(vpn + by).is_none();
        let nr = (0..nr).take_while(is_free).count() as u64;
        if nr > 0 {
            let batch = Batch { vpn: Vpn(vpn), pfn: Pfn(pfn), nr, flags: flags_of(flags) };
            self.table.map_ptes(batch, span(pfn));
            self.naive.map((vpn, pfn, nr, flags), (first, order));
        }
    }

    fn clear(&mut self, vpn: u64, nr: u64) {
        self.split_cut_leaves(vpn, vpn + nr);
        let mut pieces: Vec<Piece> = Vec::new();
        self.table.clear_range(
            Vpn(vpn),
            nr,
            |pfn| span(pfn.0),
            |piece| pieces.push((piece.vpn.0, piece.pfn.0, piece.nr, bits_of(piece.flags))),
        );
        assert_eq!(pieces, self.naive.clear(vpn, vpn + nr, folio_of));
    }

    fn move_range(&mut self, from: u64, to: u64, nr: u64) {
        let nr = nr.min(from.abs_diff(to)).min(NR_PAGES - to).min(NR_PAGES - from);
        if (to..to + nr).any(|vpn| self.naive.read(vpn).is_some()) {
            return;
        }
        self.split_cut_leaves(from, from + nr);
        for vpn in (from..from + nr).filter(|vpn| vpn % SLOT == 0) {
            let target = to + (vpn - from);
            if !target.is_multiple_of(SLOT) || !self.naive.is_slot_empty(target) {
                assert_eq!(self.table.split_pmd(Vpn(vpn)), self.naive.split_pmd(vpn));
            }
        }
        self.table.move_range(Vpn(from), Vpn(to), nr, |pfn| span(pfn.0));
        self.naive.move_range((from, from + nr), to, folio_of);
    }

    fn split_cut_leaves(&mut self, vpn: u64, end: u64) {
        for edge in [vpn, end] {
            if edge % SLOT != 0 {
                self.table.split_pmd(Vpn(edge));
                self.naive.split_pmd(edge);
            }
        }
    }

    fn compare(&self, step: Step) {
        let Self { table, naive } = self;
        table.validate().unwrap_or_else(|violation| panic!("{step:?}: {violation}"));
        for vpn in 0..NR_PAGES {
            let pte = table.pte(Vpn(vpn));
            let got = pte.is_present().then(|| naive::NaivePte {
                pfn: pte.pfn().0,
                flags: bits_of(pte.flags()),
                is_folded: pte.is_contpte(),
            });
            assert_eq!(got, naive.read(vpn), "page {vpn} after {step:?}");
        }
        let stats = table.stats();
        assert_eq!((stats.nr_folds, stats.nr_unfolds), (naive.nr_folds, naive.nr_unfolds));
        self.compare_lookups();
    }

    fn compare_lookups(&self) {
        let Self { table, naive } = self;
        let leaves = naive.leaves(100, NR_PAGES - 100);
        let got: Vec<Piece> = table
            .leaves(Vpn(100), NR_PAGES - 200)
            .map(|leaf| {
                let nr = leaf.order.nr_pages();
                assert_eq!(nr == SLOT, leaf.kind == LeafKind::Pmd);
                assert_eq!(table.leaf(Vpn(leaf.first_vpn.0 + nr / 2)), Some(leaf));
                (leaf.first_vpn.0, leaf.pfn.0, nr, bits_of(leaf.flags))
            })
            .collect();
        assert_eq!(got, leaves);
        let first = leaves.first().map(|&(vpn, ..)| vpn.max(100));
        assert_eq!(table.first_set_in(Vpn(100), NR_PAGES - 200).map(|vpn| vpn.0), first);
        for (bits, must_match) in [(AccessBits::Equal, true), (AccessBits::Any, false)] {
            for vpn in (0..NR_PAGES).step_by(13) {
                let run = table.contiguous_run(Vpn(vpn), Order::new(4), bits);
                assert_eq!(run.map_or(0, Order::nr_pages), naive.run(vpn, 16, must_match));
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let vpn = || 0..NR_PAGES;
    // The rules differ at the edges of blocks and slots.
    let edge = || prop_oneof![vpn(), (0..NR_PAGES / 16).prop_map(|nr| nr * 16), Just(SLOT)];
    let nr = || prop_oneof![1..4_u64, 1..40_u64, Just(16), 1..SLOT, Just(SLOT)];
    let range = move || (edge(), nr()).prop_map(|(vpn, nr)| (vpn, nr.min(NR_PAGES - vpn)));
    let flags = || prop_oneof![3 => Just(1), 2 => 0..8_u8, 1 => 0..16_u8];
    let pfn = || 0..8 * SLOT;
    let congruent =
        (edge(), 0..8_u64).prop_map(|(vpn, stretch)| (vpn, stretch * SLOT + vpn % SLOT));
    let map = |(vpn, pfn): (u64, u64), nr, flags| Step::Map(vpn, pfn, nr, flags);
    prop_oneof![
        8 => (congruent, nr(), flags()).prop_map(move |(at, nr, flags)| map(at, nr, flags)),
        2 => ((vpn(), pfn()), nr(), flags()).prop_map(move |(at, nr, flags)| map(at, nr, flags)),
        3 => (0..4_u64, 0..2_u64, 0..8_u8)
            .prop_map(|(slot, which, flags)| Step::MapPmd(slot, (4 + 2 * which) * SLOT, flags)),
        3 => (vpn(), pfn(), 0..8_u8).prop_map(|(vpn, pfn, flags)| Step::Replace(vpn, pfn, flags)),
        2 => (vpn(), 0..8_u64).prop_map(|(vpn, of)| Step::Replace(vpn, of * SLOT + vpn % SLOT, 1)),
        4 => (vpn(), 0..8_u8).prop_map(|(vpn, flags)| Step::AddFlags(vpn, flags)),
        2 => vpn().prop_map(Step::ClearYoung),
        2 => range().prop_map(|(vpn, nr)| Step::Clear(vpn, nr)),
        2 => range().prop_map(|(vpn, nr)| Step::Wrprotect(vpn, nr)),
        3 => (range(), 0..8_u8, 0..8_u8)
            .prop_map(|((vpn, nr), set, clear)| Step::Protect(vpn, nr, set, clear)),
        1 => vpn().prop_map(Step::SplitPmd),
        1 => vpn().prop_map(Step::ClearPmd),
        2 => (edge(), edge(), nr()).prop_map(|(from, to, nr)| Step::Move(from, to, nr)),
        1 => range().prop_map(|(vpn, nr)| Step::FreeTables(vpn, nr)),
    ]
}

fn run(contpte: Contpte, steps: Vec<Step>) {
    let mut pair = Pair::new(contpte);
    for step in steps {
        pair.apply(step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(400)))]

    #[test]
    fn the_table_equals_its_naive_twin(steps in prop::collection::vec(step(), 1..60)) {
        run(Contpte::Arm64, steps);
    }

    #[test]
    fn a_table_without_contpte_equals_its_naive_twin(
        steps in prop::collection::vec(step(), 1..30),
    ) {
        run(Contpte::None, steps);
    }
}
