//! Generates random programs; the same seed and options produce the same text.
//!
//! Ranges and pages are not uniform. Copy decisions depend on the edges of folio-sized ranges, so
//! the generator prefers whole ranges, ranges without one page, and first and last pages.

mod areas;
mod collapse;
mod disk;
mod hugetlb;
mod khugepaged;
mod locked;
mod nodes;
mod shmem;
mod swap;
mod zswap;

use largefolio_mm::map::Madvice;
use largefolio_mm::units::{Order, PageSize};
use largefolio_mm::vma::Prot;
use largefolio_trace::generate::Rng;

use super::program::{AreaSource, ProcessOp, ProcessProgram, ProcessStep};
use super::range::{NR_PAGES_MAX, NR_SLOTS, PageRange};
use areas::Areas;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// fork and copy-on-write.
    Cow,
    /// `MADV_COLLAPSE` of anonymous memory and of a memfd or tmpfs file.
    Collapse,
    /// khugepaged, for the same kinds of memory.
    Khugepaged,
    /// `MADV_COLLAPSE` of a file on disk, with writers.
    Disk,
    DiskKhugepaged,
    /// The same as `Disk`, with collapse to any size.
    DiskSizes,
    /// Shared memory in large folios.
    Shmem,
    Hugetlb,
    Swap,
    Zswap(ZswapTopic),
    /// mlock, with fork, copy-on-write, collapse and pins.
    Locked,
    /// Memory policies, and pages that move between nodes.
    Nodes,
}

/// Programs on kernels with zswap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZswapTopic {
    /// Pages of all kinds, in a cgroup without limits.
    Pages,
    /// Pages that compress alike, in a cgroup that limits zswap.
    Groups,
}

impl Topic {
    /// Returns whether a program's window is large enough for folios up to `highest`.
    #[must_use]
    pub fn fits(self, page: PageSize, highest: Order) -> bool {
        self.window_pages(page, highest) <= NR_PAGES_MAX
    }

    fn window_pages(self, page: PageSize, highest: Order) -> u64 {
        let pmd = page.pmd_order();
        if self == Self::Hugetlb {
            hugetlb::WINDOW_PAGES
        } else if matches!(self, Self::Swap | Self::Zswap(_)) && highest < pmd {
            swap::WINDOW_PAGES
        } else if self == Self::Collapse && pmd.nr_pages() == NR_PAGES_MAX {
            // 64K pages: one 512M PMD range fills the window.
            NR_PAGES_MAX
        } else if highest == pmd || self.has_own_file() {
            let halves = if self == Self::Khugepaged { 7 } else { 5 };
            pmd.nr_pages() * halves / 2
        } else {
            (highest.nr_pages() * 4).max(SMALL_WINDOW_PAGES)
        }
    }

    /// Whether programs have a file of their own, and work on PMD ranges.
    const fn has_own_file(self) -> bool {
        matches!(
            self,
            Self::Collapse
                | Self::Khugepaged
                | Self::Disk
                | Self::DiskKhugepaged
                | Self::DiskSizes
                | Self::Shmem
        )
    }

    const fn is_scanned(self) -> bool {
        matches!(self, Self::Khugepaged | Self::DiskKhugepaged)
    }

    const fn is_on_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskKhugepaged | Self::DiskSizes)
    }
}

#[derive(Clone, Debug)]
pub struct ProgramOptions {
    pub topic: Topic,
    pub page: PageSize,
    pub orders: Vec<Order>,
    pub nr_steps: usize,
}

const SMALL_WINDOW_PAGES: u64 = 128;

/// Number of neighbouring seeds that share one hugetlb pool size.
const NR_ALIKE: u64 = 25;

/// Generates the program for `seed`.
///
/// ```
/// use largefolio_mm::units::{Order, PageSize};
/// use largefolio_lab::crosscheck::processes::{ProgramOptions, Topic, generate};
/// let orders = vec![Order::new(4)];
/// let options = ProgramOptions { topic: Topic::Cow, page: PageSize::K4, orders, nr_steps: 40 };
/// let program = generate(7, &options);
/// assert_eq!(program, generate(7, &options));
/// assert_eq!(program.sizes_kib, [64]);
/// assert_eq!(program.to_string().lines().count(), 41);
/// ```
#[must_use]
pub fn generate(seed: u64, options: &ProgramOptions) -> ProcessProgram {
    let mut generator = Generator::new(seed, options);
    match options.topic {
        Topic::Khugepaged => generator.map_first_blocks(),
        topic @ (Topic::Disk | Topic::DiskKhugepaged | Topic::DiskSizes) => {
            generator.map_first_of_disk(topic);
        }
        Topic::Swap | Topic::Zswap(_) => generator.map_first_to_swap(),
        Topic::Shmem => generator.map_first_of_shmem(),
        Topic::Cow | Topic::Locked | Topic::Nodes | Topic::Collapse | Topic::Hugetlb => {
            generator.map_first_areas();
        }
    }
    while generator.program.steps.len() < options.nr_steps {
        match options.topic {
            Topic::Cow => generator.step(),
            Topic::Locked => generator.locked_step(),
            Topic::Nodes => generator.nodes_step(),
            Topic::Collapse => generator.collapse_step(),
            Topic::Hugetlb => generator.huge_step(),
            Topic::Swap => generator.swap_step(),
            Topic::Zswap(zswap) => generator.zswap_step(zswap),
            Topic::Shmem => generator.shmem_step(),
            Topic::Khugepaged => generator.khugepaged_step(),
            topic @ (Topic::Disk | Topic::DiskKhugepaged | Topic::DiskSizes) => {
                generator.disk_step(topic);
            }
        }
    }
    generator.program
}

struct Generator {
    topic: Topic,
    rng: Rng,
    pmd: Order,
    orders: Vec<Order>,
    nr_processes: usize,
    living: [Option<Areas>; NR_SLOTS],
    is_writer: [bool; NR_SLOTS],
    program: ProcessProgram,
}

impl Generator {
    fn new(seed: u64, options: &ProgramOptions) -> Self {
        let ProgramOptions { topic, page, orders, .. } = options;
        let highest = orders.iter().copied().max().unwrap_or(Order::ZERO);
        let pmd = page.pmd_order();
        let nr_pages = topic.window_pages(*page, highest);
        let kib = |order: Order| (page.bytes() << order.get()) >> 10;
        let huge = (*topic == Topic::Hugetlb).then(|| hugetlb::pool_of(seed, kib(highest)));
        // These programs work in units of hugetlb pages; only orders 0 to 2 matter.
        let orders = if huge.is_some() { Vec::new() } else { orders.clone() };
        let sizes_kib = orders.iter().copied().map(kib).collect();
        let mut rng = Rng::new(seed);
        let own_file = topic.has_own_file().then(|| {
            if topic.is_on_disk() {
                disk::own_file(&mut rng, pmd)
            } else {
                collapse::own_file(&mut rng, pmd)
            }
        });
        let khugepaged = topic.is_scanned().then(|| khugepaged::limits(&mut rng, pmd));
        let is_limited = *topic == Topic::Swap;
        let limit = is_limited.then(|| swap::limit(&mut rng, *page, nr_pages));
        let (limit, zswap) = match topic {
            Topic::Zswap(topic) => (Some(zswap::LIMIT), zswap::limits(&mut rng, *topic)),
            _ => (limit, None),
        };
        let shmem = (*topic == Topic::Shmem).then(|| shmem::settings(&mut rng, *page));
        let nodes = (*topic == Topic::Nodes).then_some(nodes::NR_NODES);
        let program = ProcessProgram {
            seed,
            nr_pages,
            sizes_kib,
            own_file,
            huge,
            khugepaged,
            limit,
            zswap,
            shmem,
            nodes,
            is_balanced: false,
            steps: Vec::new(),
        };
        let nr_processes = 2 + rng.below(NR_SLOTS as u64 - 1) as usize;
        let mut living = [const { None }; NR_SLOTS];
        living[0] = Some(Areas::new(nr_pages));
        // Add neighbours of two and four pages, even if no folio size is enabled for them.
        let mut orders = orders;
        orders.extend([Order::new(1), Order::new(2)]);
        if topic.has_own_file() {
            orders.extend([pmd; 3]);
        }
        let is_writer = [false; NR_SLOTS];
        let topic = *topic;
        Self { topic, rng, pmd, orders, nr_processes, living, is_writer, program }
    }

    fn chance(&mut self, per_cent: u64) -> bool {
        self.rng.below(100) < per_cent
    }

    fn emit(&mut self, slot: usize, op: ProcessOp) {
        self.program.steps.push(ProcessStep { slot, op });
        self.living = Areas::after(std::mem::take(&mut self.living), slot, op);
    }

    fn map_first_areas(&mut self) {
        for _ in 0..=self.rng.below(3) {
            match (self.program.own_file, self.program.huge) {
                (_, Some(_)) => self.map_huge(0),
                (None, None) => self.map(0),
                (Some(_), None) => self.map_or_share(0),
            }
        }
        if self.program.steps.is_empty() {
            let range = PageRange { first: 0, nr: self.program.nr_pages };
            self.emit(0, ProcessOp::Map(range, AreaSource::Anon, Some(Madvice::Hugepage)));
        }
    }

    fn step(&mut self) {
        let (slot, nr_alive) = self.some_process();
        match self.rng.below(100) {
            0..40 => self.touch(slot),
            40..51 => self.fork(slot, nr_alive),
            51..57 if nr_alive > 1 => self.emit(slot, ProcessOp::Exit),
            57..67 => self.on_range(slot, |_, range| ProcessOp::Unmap(range)),
            67..77 => self.on_range(slot, |_, range| ProcessOp::Drop(range)),
            77..82 => self.protect(slot),
            82..84 => self.on_range(slot, |rng, range| match rng.below(3) {
                0 => ProcessOp::Cold(range),
                _ => ProcessOp::Pageout(range),
            }),
            84..87 => self.on_range(slot, |rng, range| {
                ProcessOp::Advise(
                    range,
                    [Madvice::Hugepage, Madvice::Nohugepage][rng.below(2) as usize],
                )
            }),
            87..94 => self.remap(slot),
            _ => self.map(slot),
        }
    }

    /// Half of the areas that become inaccessible or read-only are writable again in the next step.
    fn protect(&mut self, slot: usize) {
        self.on_range(slot, |rng, range| {
            let prots = [Prot::READ, Prot::READ, Prot::READ_WRITE, Prot::NONE];
            ProcessOp::Protect(range, prots[rng.below(4) as usize])
        });
        let last = self.program.steps.last().map(|step| step.op);
        if let Some(ProcessOp::Protect(range, Prot { can_write: false, .. })) = last
            && self.chance(50)
        {
            self.emit(slot, ProcessOp::Protect(range, Prot::READ_WRITE));
        }
    }

    fn map(&mut self, slot: usize) {
        let Some(mut range) = self.some_free_range(slot, 50) else { return };
        let source = match self.rng.below(100) {
            _ if self.topic == Topic::Nodes => self.source_of_nodes(),
            0..12 => AreaSource::File,
            12..20 if matches!(self.topic, Topic::Cow | Topic::Locked) => AreaSource::Shared,
            20..26 if matches!(self.topic, Topic::Cow | Topic::Locked) => AreaSource::Segment,
            26..34 if matches!(self.topic, Topic::Cow | Topic::Locked) => AreaSource::Stack,
            _ => AreaSource::Anon,
        };
        if source == AreaSource::File {
            range.nr = range.nr.min(super::program::FILE_PAGES / 2);
        }
        let advice = match self.rng.below(10) {
            0 => None,
            1 => Some(Madvice::Nohugepage),
            _ => Some(Madvice::Hugepage),
        };
        self.emit(slot, ProcessOp::Map(range, source, advice));
    }

    fn touch(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let first = self.page_of(area);
        let longest = (area.end() - first).min(16);
        let nr = if self.chance(20) { 1 + self.rng.below(longest) } else { 1 };
        let range = PageRange { first, nr };
        let op = if self.chance(15) { ProcessOp::Read(range) } else { ProcessOp::Write(range) };
        self.emit(slot, op);
    }

    fn fork(&mut self, slot: usize, nr_alive: usize) {
        let free = self.living.iter().position(Option::is_none);
        if let Some(child) = free.filter(|_| nr_alive < self.nr_processes) {
            self.emit(slot, ProcessOp::Fork(child));
            self.is_writer[child] = self.is_writer[slot];
        }
    }

    fn on_range(&mut self, slot: usize, op: impl FnOnce(&mut Rng, PageRange) -> ProcessOp) {
        let Some(area) = self.some_area(slot) else { return };
        let range = self.part_of(area);
        let op = op(&mut self.rng, range);
        self.emit(slot, op);
    }

    fn remap(&mut self, slot: usize) {
        let Some(area) = self.some_area(slot) else { return };
        let range = self.part_of(area);
        let mut to = self.rng.below(self.program.nr_pages - range.nr + 1);
        if self.chance(60) {
            // Use the same offset in another PMD range, so that folios and PMD entries can move
            // whole.
            let nr = self.some_order().nr_pages();
            to = to / nr * nr + range.first % nr;
        }
        let overlaps = to < range.end() && range.first < to + range.nr;
        if !overlaps && to + range.nr <= self.program.nr_pages {
            self.emit(slot, ProcessOp::Remap(range, to));
        }
    }

    /// Returns a random living process, and how many there are.
    fn some_process(&mut self) -> (usize, usize) {
        let alive: Vec<usize> = (0..NR_SLOTS).filter(|slot| self.living[*slot].is_some()).collect();
        (alive[self.rng.below(alive.len() as u64) as usize], alive.len())
    }

    fn some_hole(&mut self, slot: usize) -> Option<PageRange> {
        let free = self.living[slot].as_ref()?.free_runs();
        (!free.is_empty()).then(|| free[self.rng.below(free.len() as u64) as usize])
    }

    /// Returns a free range of a process; it fills its hole in `per_cent` of the cases.
    fn some_free_range(&mut self, slot: usize, per_cent: u64) -> Option<PageRange> {
        let hole = self.some_hole(slot)?;
        Some(if self.chance(per_cent) { hole } else { self.part_of(hole) })
    }

    fn some_area(&mut self, slot: usize) -> Option<PageRange> {
        let areas = self.living[slot].as_ref()?.runs();
        let nr_pages = areas.iter().map(|area| area.nr).sum();
        let mut at = self.rng.below(nr_pages);
        areas.into_iter().find(|area| {
            let is_here = at < area.nr;
            at = at.saturating_sub(area.nr);
            is_here
        })
    }

    fn some_order(&mut self) -> Order {
        self.orders[self.rng.below(self.orders.len() as u64) as usize]
    }

    /// Returns an aligned range around a random page of `range`, clipped to it.
    fn block_of(&mut self, range: PageRange) -> PageRange {
        let order = self.some_order();
        let page = range.first + self.rng.below(range.nr);
        let first = order.round_down(page).max(range.first);
        let end = (order.round_down(page) + order.nr_pages()).min(range.end());
        PageRange { first, nr: end - first }
    }

    fn page_of(&mut self, range: PageRange) -> u64 {
        let block = self.block_of(range);
        match self.rng.below(4) {
            0 => block.first,
            1 => block.end() - 1,
            _ => block.first + self.rng.below(block.nr.min(12)),
        }
    }

    fn part_of(&mut self, range: PageRange) -> PageRange {
        let block = self.block_of(range);
        let whole = if self.chance(40) { range } else { block };
        let PageRange { first, nr } = whole;
        match self.rng.below(6) {
            0 if nr > 1 => PageRange { first, nr: nr - 1 },
            1 if nr > 1 => PageRange { first: first + 1, nr: nr - 1 },
            2 => PageRange { first: self.page_of(whole), nr: 1 },
            3 => {
                let from = self.rng.below(nr);
                PageRange { first: first + from, nr: 1 + self.rng.below(nr - from) }
            }
            _ => whole,
        }
    }
}
