use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Page {
    prot: Prot,
    sharing: Sharing,
    file: Option<(OpenId, u64)>,
    advice: Advice,
}

fn page_of(vma: &Vma, vpn: Vpn) -> Page {
    let file = match vma.backing {
        Backing::Anon | Backing::Hugetlb(_) => None,
        Backing::File { open, .. } => Some((open, vma.index_of(vpn))),
    };
    let Vma { prot, sharing, advice, .. } = *vma;
    Page { prot, sharing, file, advice }
}

#[derive(Default)]
struct Pair {
    tree: VmaTree,
    pages: BTreeMap<u64, Page>,
}

const END: u64 = 80;

impl Pair {
    fn insert(&mut self, vma: Vma) {
        self.remove(vma.start, vma.end);
        self.tree.insert(vma);
        for vpn in vma.start.0..vma.end.0 {
            self.pages.insert(vpn, page_of(&vma, Vpn(vpn)));
        }
    }

    fn remove(&mut self, start: Vpn, end: Vpn) {
        let removed = self.tree.remove(start, end);
        let nr: u64 = removed.iter().map(Vma::nr_pages).sum();
        let before = self.pages.len();
        self.pages.retain(|&vpn, _| !(start.0..end.0).contains(&vpn));
        assert_eq!(nr, (before - self.pages.len()) as u64);
    }

    fn advise(&mut self, start: Vpn, end: Vpn, huge: HugeAdvice) {
        self.tree.change(start, end, |vma| vma.advice.huge = huge);
        for (_, page) in self.pages.range_mut(start.0..end.0.max(start.0)) {
            page.advice.huge = huge;
        }
    }

    fn mark_anon(&mut self, vpn: Vpn) {
        self.tree.mark_anon(vpn);
        assert!(self.tree.find(vpn).is_none_or(Vma::has_anon));
    }

    fn compare(&self) {
        self.tree.validate().unwrap();
        for vpn in 0..END {
            let page = self.tree.find(Vpn(vpn)).map(|vma| page_of(vma, Vpn(vpn)));
            assert_eq!(page, self.pages.get(&vpn).copied(), "page {vpn}");
        }
        // I2: an area ends where the next page differs or has another `anon_vma`.
        let continues = |at: u64| {
            let (Some(a), Some(b)) = (self.pages.get(&at), self.pages.get(&(at + 1))) else {
                return false;
            };
            let next = |(open, index): (OpenId, u64)| (open, index + 1);
            Page { file: a.file.map(next), ..*a } == *b
        };
        let anon = |at: u64| self.tree.find(Vpn(at)).and_then(|vma| vma.anon);
        let is_border = |at: u64| !continues(at) || anon(at) != anon(at + 1);
        let nr_borders = self.pages.keys().filter(|&&vpn| is_border(vpn)).count();
        assert!(self.tree.len() >= nr_borders);
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64, u64, usize, u64),
    Remove(u64, u64),
    Advise(u64, u64, bool),
    Store(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..END - 20, 1..20_u64);
    prop_oneof![
        4 => (range(), 0..4_usize, 0..3_u64).prop_map(|((at, nr), kind, by)| Step::Insert(at, nr, kind, by)),
        2 => range().prop_map(|(at, nr)| Step::Remove(at, nr)),
        2 => (range(), any::<bool>()).prop_map(|((at, nr), huge)| Step::Advise(at, nr, huge)),
        2 => (0..END).prop_map(Step::Store),
    ]
}

fn vma(at: u64, nr: u64, kind: usize, by: u64) -> Vma {
    let file = |open| Backing::File { open: OpenId(open), pgoff: at + by / 2 };
    let (backing, sharing) = match kind {
        0 => (Backing::Anon, Sharing::Private),
        1 => (file(0), Sharing::Private),
        2 => (file(1), Sharing::Private),
        _ => (file(0), Sharing::Shared),
    };
    Vma {
        start: Vpn(at),
        end: Vpn(at + nr),
        prot: if by == 2 { Prot::READ_EXEC } else { Prot::READ },
        sharing,
        backing,
        advice: Advice::default(),
        anon: None,
        moved_by: 0,
        is_accounted: false,
        is_armed: false,
        ahead: None,
        grows_to: None,
        shmem: MappedShmem::Named,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(500)))]

    #[test]
    fn areas_equal_a_map_of_single_pages(steps in prop::collection::vec(step(), 1..40)) {
        let mut pair = Pair::default();
        for step in steps {
            match step {
                Step::Insert(at, nr, kind, by) => pair.insert(vma(at, nr, kind, by)),
                Step::Remove(at, nr) => pair.remove(Vpn(at), Vpn(at + nr)),
                Step::Advise(at, nr, true) => pair.advise(Vpn(at), Vpn(at + nr), HugeAdvice::Huge),
                Step::Advise(at, nr, false) => {
                    pair.advise(Vpn(at), Vpn(at + nr), HugeAdvice::Default);
                }
                Step::Store(at) => pair.mark_anon(Vpn(at)),
            }
            pair.compare();
        }
    }
}

#[test]
fn a_part_of_a_file_area_keeps_its_place_in_the_file() {
    let mut tree = VmaTree::new(AreaMerge::Any);
    tree.insert(vma(10, 20, 1, 0));
    tree.remove(Vpn(15), Vpn(18));
    let ranges: Vec<_> = tree.iter().map(Vma::file_range).collect();
    assert_eq!(ranges, [(10, 15), (18, 30)]);
}

#[test]
#[should_panic(expected = "I1: areas overlap")]
fn an_overlap_is_a_programmer_error() {
    let mut tree = VmaTree::new(AreaMerge::Any);
    tree.insert(vma(10, 20, 0, 0));
    tree.insert(vma(29, 2, 0, 0));
}

#[test]
fn an_area_without_anonymous_pages_joins_one_that_has() {
    let mut tree = VmaTree::new(AreaMerge::Any);
    tree.insert(vma(0, 10, 0, 0));
    tree.mark_anon(Vpn(3));
    tree.insert(vma(10, 10, 0, 0));
    assert_eq!(tree.len(), 1);
    assert!(tree.find(Vpn(15)).unwrap().has_anon());
}

#[test]
fn areas_of_a_child_stay_apart_i3() {
    let mut parent = VmaTree::new(AreaMerge::Any);
    parent.insert(vma(0, 10, 0, 0));
    parent.mark_anon(Vpn(3));
    let close = |vma: &mut Vma| vma.prot = Prot::NONE;
    let open = |vma: &mut Vma| vma.prot = Prot::READ;
    parent.change(Vpn(5), Vpn(10), close);
    let mut child = parent.forked();
    parent.change(Vpn(5), Vpn(10), open);
    child.change(Vpn(5), Vpn(10), open);
    child.insert(vma(10, 10, 0, 0));
    assert_eq!((parent.len(), child.len()), (1, 3));
}
