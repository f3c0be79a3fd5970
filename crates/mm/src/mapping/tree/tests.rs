use largefolio_testkit::page_tree::NaivePageTree;
use proptest::prelude::*;

use super::*;
use crate::folio::{Folio, FolioTable, Owner};
use crate::units::Pfn;

pub(in crate::mapping) fn ids(nr: u32) -> Vec<FolioId> {
    let mut table = FolioTable::new();
    let folio = |pfn| Folio::new(Pfn(pfn), Order::ZERO, Owner::Detached);
    (0..u64::from(nr)).map(|pfn| table.insert(folio(pfn))).collect()
}

struct Pair {
    tree: Tree,
    naive: NaivePageTree,
    ids: Vec<FolioId>,
    nr_inserted: u32,
}

impl Pair {
    fn new() -> Self {
        let (tree, naive) = (Tree::new(), NaivePageTree::default());
        Self { tree, naive, ids: ids(200), nr_inserted: 0 }
    }

    fn entry(&self, (first, order, nr): (u64, u8, u32)) -> Entry {
        let folio = self.ids[nr as usize];
        Entry { folio, index: PageIndex(first), order: Order::new(order) }
    }

    fn insert(&mut self, index: u64, order: u8) {
        let order = Order::new(order);
        let first = order.round_down(index);
        let nr = self.nr_inserted;
        self.nr_inserted += 1;
        let is_stored = self.tree.insert(PageIndex(first), order, self.ids[nr as usize]).is_ok();
        assert_eq!(is_stored, self.naive.insert((first, order.get(), nr)));
        self.compare(first);
    }

    fn remove(&mut self, index: u64) {
        let removed = self.naive.remove(index).map(|entry| self.entry(entry));
        assert_eq!(self.tree.remove(PageIndex(index)), removed);
        self.compare(index);
    }

    fn check_nodes(&self) {
        let mut left: Vec<NodeId> = self.tree.root.into_iter().collect();
        while let Some(id) = left.pop() {
            let node = self.tree.node(id);
            let nr_used = node.slots.iter().filter(|&&slot| slot != TreeSlot::Empty).count();
            assert!(nr_used > 0 && nr_used == node.nr_used as usize, "node {id}: {nr_used} slots");
            left.extend(node.slots.iter().filter_map(|slot| match slot {
                TreeSlot::Node(child) => Some(*child),
                TreeSlot::Empty | TreeSlot::Folio(..) | TreeSlot::Sibling(_) => None,
            }));
        }
    }

    fn compare(&self, near: u64) {
        self.tree.validate().unwrap();
        self.check_nodes();
        assert_eq!(self.tree.nr_pages(), self.naive.nr_pages());
        let ours: Vec<_> = self.tree.iter().collect();
        let theirs: Vec<_> = self.naive.iter().map(|entry| self.entry(entry)).collect();
        assert_eq!(ours, theirs);
        for index in near.saturating_sub(70)..near.saturating_add(70) {
            let expected = self.naive.get(index).map(|entry| self.entry(entry));
            assert_eq!(self.tree.get(PageIndex(index)), expected, "get {index}");
            let last = index.saturating_add(90);
            let expected = self.naive.first_in(index, last).map(|entry| self.entry(entry));
            assert_eq!(self.tree.first_in(PageIndex(index), PageIndex(last)), expected, "{index}");
        }
    }
}

fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..300_u64,
        3 => 4000..4200_u64,
        2 => (1_u64 << 18) - 80..(1 << 18) + 80,
        1 => (1_u64 << 52) - 80..1 << 52,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(300)))]

    #[test]
    fn the_tree_equals_its_naive_twin(
        steps in prop::collection::vec((any::<bool>(), index(), 0..12_u8, 0..3_u8), 1..40),
    ) {
        let mut pair = Pair::new();
        for (is_removal, index, order, shrink) in steps {
            if is_removal {
                pair.remove(index);
            } else {
                pair.insert(index, order >> shrink);
            }
        }
        let left: Vec<_> = pair.naive.iter().map(|(first, ..)| first).collect();
        for first in left {
            pair.remove(first);
        }
        prop_assert!(pair.tree.root.is_none(), "an empty tree has no node");
    }
}

#[test]
fn folios_of_order_6_and_more_stand_one_level_up() {
    let ids = ids(3);
    let mut tree = Tree::new();
    tree.insert(PageIndex(64), Order::new(6), ids[0]).unwrap();
    tree.insert(PageIndex(0), Order::new(5), ids[1]).unwrap();
    tree.insert(PageIndex(128), Order::new(7), ids[2]).unwrap();
    let level = |index| tree.descend(index).map(|(node, _)| tree.node(node).level);
    assert_eq!([0, 31, 63, 64, 127, 200].map(level), [0, 0, 0, 1, 1, 1].map(Some));
    // A page inside a folio is found at the folio's head slot.
    assert_eq!(tree.descend(200).map(|(_, offset)| offset), Some(2));
}

#[test]
#[should_panic(expected = "aligned")]
fn an_unaligned_folio_is_a_programmer_error() {
    let _ = Tree::new().insert(PageIndex(2), Order::new(2), ids(1)[0]);
}
