//! Random operations of several processes on several files, in little and fragmented memory: every
//! invariant holds after every step, nothing panics, and a second run has the same events.

use largefolio_mm::buddy::Fragmentation;
use largefolio_mm::core::observed::Observed;
use largefolio_mm::counters::Counters;
use largefolio_mm::fault::Access;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{AddrRange, ByteRange};
use largefolio_mm::units::{MappingId, MmId, Order, Vaddr};
use largefolio_mm::vma::{OpenId, Prot, Sharing};
use largefolio_sim::kernel::Kernel;
use proptest::prelude::*;

/// Kernels that together have every variant of every rule.
const KERNELS: [&str; 23] = [
    "6.1",
    "6.1+page=16K",
    "6.12",
    "6.12+exec-block=64K",
    "6.12+page=64K+forced=posted+forced-gate=on+exec-miss=posted",
    "6.16+min-folio=16K",
    "6.17+fault-around=2M",
    "6.18",
    "6.18+page=16K",
    "6.18+page=64K+fault-around=1M",
    "6.18+min-folio=16K",
    "7.0+readahead=4M",
    "7.1+readahead=0",
    "7.2",
    "7.2+page=64K",
    "7.2+readahead=24K+fault-around=4K",
    "6.12+sizes=64K:exec/16K:always+start-order=64K",
    "6.16+sizes=64K:always+min-folio=16K",
    "7.2+sizes=2M:exec/others:always+sizes.ext4=32K:always+exec",
    "7.2+min-folio=16K+min-order=soft",
    "6.12+exec-min=64K+mmap-state=64K",
    "6.18+pressure-order=on+exec-min=32K",
    "7.2+page=64K+sizes=2M:always+exec+fault-around=contpte+around-credit=page",
];

/// Pages of the address range in use; 300 pages before a PMD boundary of any size.
const NR_PAGES: u64 = 1100;

#[derive(Clone, Copy, Debug)]
enum Step {
    MmapFile { file: usize, pgoff: u64, at: u64, nr: u64, prot: usize, sharing: Sharing },
    MmapAnon { at: u64, nr: u64 },
    Munmap { at: u64, nr: u64 },
    Mprotect { at: u64, nr: u64, prot: usize },
    Madvise { at: u64, nr: u64, advice: usize },
    Prefer { at: u64, nr: u64, shift: Option<u32> },
    Mremap { at: u64, nr: u64, to: u64, nr_new: u64 },
    Touch { at: u64, access: usize },
    Sweep { at: u64, access: usize },
    Read { file: usize, at: u64, nr: u64 },
    Write { file: usize, at: u64, nr: u64 },
    Truncate { file: usize, bytes: u64 },
    Fadvise { file: usize, at: u64, nr: u64, advice: usize },
    Slow { file: usize, at: u64 },
    DropCache { file: usize },
    Fork,
    Exit,
    Switch,
    Open { file: usize },
}

const PROTS: [Prot; 4] = [
    Prot::READ,
    Prot::READ_EXEC,
    Prot::READ_WRITE,
    Prot { can_read: true, can_write: true, can_exec: true },
];

const ADVICES: [Madvice; 7] = [
    Madvice::Normal,
    Madvice::Random,
    Madvice::Sequential,
    Madvice::Hugepage,
    Madvice::Nohugepage,
    Madvice::Dontneed,
    Madvice::PopulateRead,
];

const FADVICES: [Fadvice; 5] =
    [Fadvice::Normal, Fadvice::Random, Fadvice::Sequential, Fadvice::Willneed, Fadvice::Dontneed];

const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Exec];

/// Accepts an error of a call, but not a panic.
pub(crate) fn may_fail<T, E: std::error::Error>(result: Result<T, E>) {
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
}

struct Machine {
    memory: Memory,
    files: Vec<MappingId>,
    opens: Vec<OpenId>,
    mms: Vec<MmId>,
    current: usize,
}

impl Machine {
    fn new(kernel: &str, config: &Config) -> Self {
        let rules = Kernel::parse(kernel).unwrap().rules;
        let bytes = rules.page.bytes();
        let config = Config {
            ram_bytes: config.ram_bytes * bytes,
            swap_bytes: config.swap_bytes * bytes,
            ..config.clone()
        };
        let mut memory = Memory::new(rules, &config).unwrap();
        let sizes = [("xfs", 700 * bytes), ("ext4", 100 * bytes + 1), ("vfat", 40 * bytes)];
        let files: Vec<_> = sizes.map(|(fs, size)| memory.add_file(size, fs)).into();
        let opens = files.iter().map(|&file| memory.open(file)).collect();
        let mms = vec![memory.new_space()];
        memory.watch();
        Self { memory, files, opens, mms, current: 0 }
    }

    fn bytes(&self) -> u64 {
        self.memory.rules().page.bytes()
    }

    /// Returns a mapped page in three of four cases, if there is one.
    fn aim(&self, at: u64) -> u64 {
        let vmas: Vec<_> = self.memory.space(self.mms[self.current]).vmas.iter().collect();
        if at.is_multiple_of(4) || vmas.is_empty() {
            return at;
        }
        let nr = vmas.len() as u64;
        let Some(vma) = (0..).zip(&vmas).find(|(number, _)| *number == at % nr) else {
            unreachable!("a remainder is an area's number")
        };
        let first = self.addr(0).vpn(self.memory.rules().page);
        vma.1.start.0 + at * 7 % vma.1.nr_pages() - first.0
    }

    fn addr(&self, at: u64) -> Vaddr {
        Vaddr(0x4000_0000_0000 - 300 * self.bytes() + at * self.bytes())
    }

    fn run(&mut self, step: Step) {
        let bytes = self.bytes();
        let mm = self.mms[self.current];
        match step {
            Step::MmapFile { file, pgoff, at, nr, prot, sharing } => {
                let map =
                    Map::file(self.opens[file % self.opens.len()], pgoff, nr * bytes, PROTS[prot]);
                let map = Map { sharing, ..map.at(self.addr(at)) };
                may_fail(self.memory.mmap(mm, map));
            }
            Step::MmapAnon { at, nr } => {
                let map = Map::anon(nr * bytes, Prot::READ_WRITE).at(self.addr(at));
                may_fail(self.memory.mmap(mm, map));
            }
            Step::Munmap { at, nr } => {
                let at = self.aim(at);
                may_fail(self.memory.munmap(mm, self.addr(at), nr * bytes));
            }
            Step::Mprotect { at, nr, prot } => {
                let at = self.aim(at);
                let addr = self.addr(at);
                may_fail(self.memory.mprotect(mm, addr, nr * bytes, PROTS[prot]));
            }
            Step::Madvise { at, nr, advice } => {
                let at = self.aim(at);
                let addr = self.addr(at);
                may_fail(self.memory.madvise(mm, addr, nr * bytes, ADVICES[advice]));
            }
            Step::Prefer { at, nr, shift } => {
                let addr = self.addr(self.aim(at));
                let preferred = shift.map(|shift| 1 << shift);
                may_fail(self.memory.prefer_folios(mm, addr, nr * bytes, preferred));
            }
            Step::Mremap { at, nr, to, nr_new } => {
                let at = self.aim(at);
                let from = AddrRange { addr: self.addr(at), len_bytes: nr * bytes };
                let to = AddrRange { addr: self.addr(to), len_bytes: nr_new * bytes };
                may_fail(self.memory.mremap(mm, from, to));
            }
            Step::Touch { at, access } => self.touch(self.aim(at), access),
            Step::Sweep { at, access } => {
                let at = self.aim(at);
                (at..at + 40).for_each(|at| self.touch(at, access));
            }
            Step::Open { file } => {
                let open = self.memory.open(self.files[file]);
                self.opens.push(open);
            }
            Step::Fork if self.mms.len() < 3 => self.mms.extend(self.memory.fork(mm).ok()),
            Step::Exit if self.mms.len() > 1 => {
                self.memory.exit(mm);
                self.mms.remove(self.current);
                self.current = 0;
            }
            Step::Switch => self.current = (self.current + 1) % self.mms.len(),
            Step::Fork | Step::Exit => {}
            _ => self.run_on_file(step),
        }
    }

    fn touch(&mut self, at: u64, access: usize) {
        let (mm, addr) = (self.mms[self.current], self.addr(at));
        let Ok(touched) = self.memory.touch(mm, addr, ACCESSES[access]) else { return };
        let again = self.memory.touch(mm, addr, ACCESSES[access]).unwrap();
        assert_eq!(again.leaf, touched.leaf, "a touched page stays");
    }

    fn run_on_file(&mut self, step: Step) {
        let bytes = self.bytes();
        let open = |file: usize| self.opens[file % self.opens.len()];
        match step {
            Step::Read { file, at, nr } => {
                may_fail(self.memory.pread(open(file), at * bytes, nr * bytes));
            }
            Step::Write { file, at, nr } => {
                may_fail(self.memory.pwrite(open(file), at * bytes, nr * bytes));
            }
            Step::Truncate { file, bytes } => self.memory.truncate(self.files[file], bytes),
            Step::Fadvise { file, at, nr, advice } => {
                self.memory.fadvise(
                    open(file),
                    ByteRange { pos: at * bytes, len_bytes: nr * bytes },
                    FADVICES[advice],
                );
            }
            Step::Slow { file, at } => {
                self.memory.delay_read(self.files[file], largefolio_mm::units::PageIndex(at));
            }
            Step::DropCache { file } => self.memory.drop_cache(self.files[file]),
            _ => unreachable!("not a step on a file: {step:?}"),
        }
    }

    fn events(&mut self) -> (Vec<Observed>, Counters) {
        (self.memory.take_observed(), *self.memory.counters())
    }
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..NR_PAGES;
    let nr = || prop_oneof![1..24_u64, 1..700_u64];
    let sharing = prop_oneof![3 => Just(Sharing::Private), 1 => Just(Sharing::Shared)];
    let pgoff = prop_oneof![Just(0_u64), Just(512 - 300), 0..600_u64];
    prop_oneof![
        6 => (0..5_usize, pgoff, at(), nr(), 0..4_usize, sharing.clone()).prop_map(
            |(file, pgoff, at, nr, prot, sharing)| Step::MmapFile { file, pgoff, at, nr, prot, sharing }
        ),
        4 => (0..4_usize, sharing).prop_map(|(prot, sharing)| Step::MmapFile {
            file: 0, pgoff: 0, at: 300, nr: 700, prot, sharing
        }),
        2 => Just(Step::Madvise { at: 300, nr: 700, advice: 3 }),
        2 => (at(), nr()).prop_map(|(at, nr)| Step::MmapAnon { at, nr }),
        3 => (at(), nr()).prop_map(|(at, nr)| Step::Munmap { at, nr }),
        3 => (at(), nr(), 0..4_usize).prop_map(|(at, nr, prot)| Step::Mprotect { at, nr, prot }),
        4 => (at(), nr(), 0..7_usize).prop_map(|(at, nr, advice)| Step::Madvise { at, nr, advice }),
        1 => (at(), nr(), prop::option::weighted(0.8, 12..23_u32))
            .prop_map(|(at, nr, shift)| Step::Prefer { at, nr, shift }),
        2 => (at(), nr(), at(), nr()).prop_map(|(at, nr, to, nr_new)| Step::Mremap { at, nr, to, nr_new }),
        12 => (at(), 0..3_usize).prop_map(|(at, access)| Step::Touch { at, access }),
        6 => (at(), 0..3_usize).prop_map(|(at, access)| Step::Sweep { at, access }),
        4 => (0..5_usize, 0..700_u64, 0..40_u64).prop_map(|(file, at, nr)| Step::Read { file, at, nr }),
        3 => (0..5_usize, 0..700_u64, 0..600_u64).prop_map(|(file, at, nr)| Step::Write { file, at, nr }),
        2 => Just(Step::Write { file: 0, at: 0, nr: 600 }),
        1 => (0..3_usize, 0..2_900_000_u64).prop_map(|(file, bytes)| Step::Truncate { file, bytes }),
        2 => (0..5_usize, 0..700_u64, 0..40_u64, 0..5_usize)
            .prop_map(|(file, at, nr, advice)| Step::Fadvise { file, at, nr, advice }),
        1 => (0..3_usize, 0..700_u64).prop_map(|(file, at)| Step::Slow { file, at }),
        2 => (0..3_usize).prop_map(|file| Step::DropCache { file }),
        2 => Just(Step::Fork),
        1 => Just(Step::Exit),
        3 => Just(Step::Switch),
        1 => (0..3_usize).prop_map(|file| Step::Open { file }),
    ]
}

/// Memory in pages (not bytes here), whole or with every block of an order broken.
fn config() -> impl Strategy<Value = Config> {
    let broken = |order: u8| Fragmentation {
        seed: u64::from(order),
        used_permille: 1000 / (1 << order) + 10,
        order: Order::new(order),
        unusable_permille: 1000,
    };
    let fragmentation =
        prop_oneof![3 => Just(None), 1 => (1..5_u8).prop_map(move |order| Some(broken(order)))];
    let nr_pages = prop_oneof![Just(96_u64), Just(704), Just(3008), Just(6000), Just(6000)];
    let arch = prop_oneof![Just(Arch::X86_64), Just(Arch::Arm64)];
    let nr_slots = prop_oneof![Just(0_u64), Just(300), Just(4000)];
    (arch, nr_pages, fragmentation, nr_slots).prop_map(
        |(arch, ram_bytes, fragmentation, swap_bytes)| Config {
            arch,
            ram_bytes,
            fragmentation,
            ageing: None,
            swap_bytes,
            huge_pools: Vec::new(),
            nodes: Vec::new(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(3000)))]

    #[test]
    fn every_invariant_holds_after_every_step(
        kernel in 0..KERNELS.len(),
        config in config(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut machine = Machine::new(KERNELS[kernel], &config);
        let mut twin = Machine::new(KERNELS[kernel], &config);
        for step in steps {
            machine.run(step);
            let validated = machine.memory.validate();
            prop_assert!(validated.is_ok(), "{} {:?}: {}", KERNELS[kernel], step, validated.unwrap_err());
            twin.run(step);
            prop_assert_eq!(machine.events(), twin.events(), "the same steps give the same events");
        }
        for mm in machine.mms.clone() {
            machine.memory.exit(mm);
        }
        prop_assert!(machine.memory.validate().is_ok());
        for &file in &machine.files {
            machine.memory.truncate(file, 0);
        }
        prop_assert!(machine.memory.validate().is_ok());
        prop_assert_eq!(machine.memory.core().folios.iter().count(), 0, "nothing is left over");
    }
}
