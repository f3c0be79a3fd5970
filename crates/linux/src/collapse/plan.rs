//! Chooses the blocks of an area that `folio collapse` would try. Changes nothing.
//!
//! It cannot predict which blocks the kernel will refuse.

use std::collections::BTreeMap;

use super::room::Block;
use crate::census::block::{self, AreaFacts, Backing, BlockPlace, Cost, Obstacle, Runs, When};
use crate::geometry::Geometry;
use crate::proc::maps::Vma;
use crate::proc::smaps::Smap;
use crate::setting::thp::size_name;
use crate::system::mounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// The kernel would refuse each, or there is nothing to do.
    Block(Obstacle),
    BelowMinimum,
    /// Too little memory is available to fill their holes.
    NoMemory,
}

impl Left {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block(obstacle) => obstacle.name(),
            Self::BelowMinimum => "below_min_size",
            Self::NoMemory => "no_memory",
        }
    }

    #[must_use]
    pub fn meaning(self, block_bytes: u64) -> String {
        let size = size_name(block_bytes);
        match self {
            Self::Block(Obstacle::Incongruent) => format!(
                "mapped at an address that does not fit a {size} entry: the address and the offset \
                 in the memory or file differ modulo {size}"
            ),
            Self::Block(Obstacle::Short) => format!("in areas that contain no whole {size} block"),
            Self::Block(obstacle) => obstacle.meaning().to_owned(),
            Self::BelowMinimum => "in areas below --min-size".to_owned(),
            Self::NoMemory => format!(
                "in {size} blocks for which too little memory is available: filling their holes \
                 takes memory"
            ),
        }
    }

    /// Returns whether skipping `bytes` means that the request was not met. Less than one block
    /// does not count: each thread stack has a few pages.
    pub(super) const fn is_missed(self, bytes: u64, block_bytes: u64) -> bool {
        match self {
            Self::Block(
                Obstacle::Short
                | Obstacle::Empty
                | Obstacle::Large
                | Obstacle::SwappedOut
                | Obstacle::Hugetlb
                | Obstacle::Device,
            )
            | Self::BelowMinimum => false,
            Self::Block(Obstacle::Incongruent) | Self::NoMemory => true,
            Self::Block(_) => bytes >= block_bytes,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaPlan {
    pub(super) tried: Vec<Block>,
    pub(super) nr_large: u64,
    pub(super) left: BTreeMap<Left, u64>,
}

/// Returns whether an area has contents. If its blocks are unknown, only resident memory counts: an
/// area that is all in swap would be swapped in.
pub(super) const fn is_used(smap: &Smap, has_blocks: bool) -> bool {
    smap.rss_bytes > 0 || (has_blocks && smap.swap_bytes > 0)
}

/// Plans an area. If its blocks are unknown, all may be tried, and each may take a whole folio.
pub(super) fn plan(
    smap: &Smap,
    backing: Backing,
    min_bytes: u64,
    geometry: Geometry,
    runs: Option<&Runs>,
) -> AreaPlan {
    let block_bytes = geometry.pmd_bytes();
    let mut plan = AreaPlan::default();
    let refusal = match block::refusal(smap, backing, block_bytes) {
        Some(Obstacle::Short) => Some(Left::Block(Obstacle::Short)),
        _ if smap.vma.len_bytes() < min_bytes => Some(Left::BelowMinimum),
        refusal => refusal.map(Left::Block),
    };
    if let Some(refusal) = refusal {
        plan.left.insert(refusal, smap.rss_bytes + smap.swap_bytes);
        return plan;
    }
    let order = (block_bytes / geometry.page_bytes).ilog2();
    let place = BlockPlace::of(&smap.vma);
    let file = |address| place.map(|place| place.block(order, address / block_bytes, block_bytes));
    let Some(runs) = runs else {
        let unseen = |address| Block {
            address,
            kind: backing,
            file: file(address),
            resident_bytes: 0,
            takes_bytes: block_bytes,
        };
        plan.tried = blocks(&smap.vma, block_bytes).map(unseen).collect();
        plan.nr_large = smap.pmd_bytes() / block_bytes;
        return plan;
    };
    let area = AreaFacts::of(smap, backing);
    for run in runs.iter() {
        let addresses = (run.first..run.first + run.nr).map(|block| block * block_bytes);
        match area.judge(&run.facts, runs.nr_pages(), When::Now) {
            Ok(Cost { nr_new, nr_swapped, nr_copied }) => {
                let bytes = |nr: u64| nr * geometry.page_bytes;
                let block = |address| Block {
                    address,
                    kind: backing,
                    file: file(address),
                    resident_bytes: bytes(run.facts.nr_present.into()),
                    takes_bytes: bytes(nr_new + nr_swapped + nr_copied),
                };
                plan.tried.extend(addresses.map(block));
            }
            Err(Obstacle::Large) => plan.nr_large += run.nr,
            Err(Obstacle::Empty) => {}
            Err(obstacle) => {
                let nr = u64::from(run.facts.nr_present) + u64::from(run.facts.nr_swapped);
                let bytes = nr * run.nr * geometry.page_bytes;
                *plan.left.entry(Left::Block(obstacle)).or_default() += bytes;
            }
        }
    }
    plan
}

/// Returns the kind of an area in a process with these mounts, `None` for areas of the kernel and
/// of devices. Opens nothing by a name that the process chose.
pub(super) fn kind_of(vma: &Vma, mountinfo: &[u8]) -> Option<Backing> {
    let name = vma.path.to_string_lossy();
    let name = &*name;
    if ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"].contains(&name)
        || name.starts_with("/anon_hugepage")
    {
        return None;
    }
    if vma.inode == 0 {
        return Some(Backing::Anon);
    }
    let filesystem = mounts::filesystem(mountinfo, vma.device, &vma.path);
    if vma.is_nameless_shared() || filesystem.as_deref() == Some("tmpfs") {
        return Some(Backing::Shmem);
    }
    // A deleted file without a mounted filesystem is the kernel's: memfd_secret, device buffers.
    let is_kernels = vma.is_deleted && filesystem.is_none();
    (name.starts_with('/') && !name.starts_with("/dev/") && !is_kernels).then_some(Backing::File)
}

fn blocks(vma: &Vma, block_bytes: u64) -> impl Iterator<Item = u64> {
    let first = vma.range.start.next_multiple_of(block_bytes);
    (0..vma.nr_whole_blocks(block_bytes)).map(move |nr| first + nr * block_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::block::{BlockFacts, BlockRun};

    const M2: u64 = 2 << 20;

    fn vma(start: u64, end: u64, pos: u64, name: &str) -> Vma {
        let inode = u64::from(name.starts_with('/'));
        Vma { range: start..end, pos, inode, path: name.into(), ..Vma::default() }
    }

    fn judged(vma: Vma, backing: Backing) -> Result<Vec<u64>, Left> {
        let smap = Smap { vma, ..Smap::default() };
        let plan = plan(&smap, backing, M2, Geometry::of(4096), None);
        let tried = plan.tried.iter().map(|block| block.address).collect();
        plan.left.into_keys().next().map_or(Ok(tried), Err)
    }

    #[test]
    fn blocks_lie_inside_the_area_and_agree_with_the_offset() {
        let anon = vma(M2 - 4096, 3 * M2 + 4096, 0, "");
        assert_eq!(judged(anon, Backing::Anon), Ok(vec![M2, 2 * M2]));
        let file = vma(M2 + 4096, 4 * M2, 4096, "/x");
        assert_eq!(judged(file, Backing::File), Ok(vec![2 * M2, 3 * M2]));
        let shifted = vma(M2 + 4096, 4 * M2, 0, "/x");
        assert_eq!(judged(shifted, Backing::File), Err(Left::Block(Obstacle::Incongruent)));
        let short = vma(M2 + 4096, 2 * M2, 0, "");
        assert_eq!(judged(short, Backing::Anon), Err(Left::Block(Obstacle::Short)));
        let last = vma(u64::MAX - 4095, u64::MAX, 0, "");
        assert_eq!(judged(last, Backing::Anon), Err(Left::Block(Obstacle::Short)));
    }

    #[test]
    fn what_is_swapped_out_is_left_with_its_reason_and_not_passed_over() {
        let of = |rss_bytes, swap_bytes| Smap { rss_bytes, swap_bytes, ..Smap::default() };
        assert_eq!(
            [of(0, 0), of(4096, 0), of(0, 4096)].map(|smap| is_used(&smap, true)),
            [false, true, true]
        );
        assert!(is_used(&of(4096, M2), false) && !is_used(&of(0, M2), false));
        let vma = vma(M2, 2 * M2, 0, "");
        let swapped = Smap { vma, ..of(0, M2) };
        let facts = BlockFacts { nr_swapped: 512, ..BlockFacts::default() };
        let runs = Runs::of(9, [BlockRun { first: 1, nr: 1, facts }].into_iter());
        let plan = plan(&swapped, Backing::Anon, 0, Geometry::of(4096), Some(&runs));
        assert_eq!(plan.left, BTreeMap::from([(Left::Block(Obstacle::SwappedOut), M2)]));
        assert!(plan.tried.is_empty());
    }

    #[test]
    fn what_is_left_has_its_reason() {
        let area = |min_bytes, is_no_huge| {
            let vma = vma(M2, 3 * M2, 0, "");
            let smap = Smap { vma, is_no_huge, rss_bytes: 8192, ..Smap::default() };
            plan(&smap, Backing::Anon, min_bytes, Geometry::of(4096), None).left
        };
        assert_eq!(area(3 * M2, false), BTreeMap::from([(Left::BelowMinimum, 8192)]));
        let forbidden = Left::Block(Obstacle::NoHugeAdvice);
        assert_eq!(area(M2, true), BTreeMap::from([(forbidden, 8192)]));
    }

    #[test]
    fn a_block_takes_its_holes_copies_and_what_comes_from_swap_space() {
        let run = |first, facts| BlockRun { first, nr: 1, facts };
        let runs = [
            run(1, BlockFacts { nr_present: 1, ..BlockFacts::default() }),
            run(2, BlockFacts { nr_present: 256, nr_swapped: 256, ..BlockFacts::default() }),
            run(3, BlockFacts { nr_present: 512, nr_shared: 100, ..BlockFacts::default() }),
            run(4, BlockFacts { nr_swapped: 512, ..BlockFacts::default() }),
            run(5, BlockFacts { nr_present: 512, nr_pmd: 512, ..BlockFacts::default() }),
        ];
        let runs = Runs::of(9, runs.into_iter());
        let smap = Smap { vma: vma(M2, 6 * M2, 0, ""), ..Smap::default() };
        let plan = plan(&smap, Backing::Anon, M2, Geometry::of(4096), Some(&runs));
        let pages = |block: &Block| {
            (block.address / M2, block.resident_bytes / 4096, block.takes_bytes / 4096)
        };
        let tried: Vec<_> = plan.tried.iter().map(pages).collect();
        assert_eq!(tried, [(1, 1, 511), (2, 256, 256), (3, 512, 100)]);
        assert_eq!(plan.nr_large, 1);
        assert_eq!(plan.left, BTreeMap::from([(Left::Block(Obstacle::SwappedOut), M2)]));
    }

    #[test]
    fn a_forbidden_area_is_missed_once_it_would_fill_a_block() {
        let is_missed = |obstacle, bytes| Left::Block(obstacle).is_missed(bytes, M2);
        assert!(!is_missed(Obstacle::NoHugeAdvice, 8 << 10));
        assert!(is_missed(Obstacle::NoHugeAdvice, M2) && is_missed(Obstacle::Guard, M2));
        assert!(is_missed(Obstacle::Incongruent, 4096) && !is_missed(Obstacle::Short, M2));
    }

    #[test]
    fn kinds_are_told_by_name() {
        let mounts =
            b"30 22 0:24 / /dev/shm rw - tmpfs tmpfs rw\n22 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let kind = |name: &str| kind_of(&vma(0, M2, 0, name), mounts);
        let nameless =
            |name: &str| kind_of(&Vma { is_deleted: true, ..vma(0, M2, 0, name) }, mounts);
        let of_device = |device| kind_of(&Vma { device, ..vma(0, M2, 0, "/dev/shm/x") }, mounts);
        assert_eq!(of_device((0, 24)), Some(Backing::Shmem));
        assert_eq!(of_device((254, 0)), None, "a device, whatever the name says");
        assert_eq!(kind(""), Some(Backing::Anon));
        assert_eq!(kind("[heap]"), Some(Backing::Anon));
        assert_eq!(kind("[vdso]"), None);
        assert_eq!(nameless("/memfd:x"), Some(Backing::Shmem));
        assert_eq!(nameless("/dev/zero"), Some(Backing::Shmem));
        assert_eq!(kind("/dev/dri/card0"), None);
        assert_eq!(kind("/proc/version"), Some(Backing::File));
    }
}
