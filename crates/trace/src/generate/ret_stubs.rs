//! Pages of text that are called once each, then at random: the benchmark in series 000 and 003.
//!
//! Owns one workload. One file of `nr_pages` stubs (a single `ret` every `stub_bytes`) is mapped
//! `r-x` and private at [`BASE`]. Phases: open, mmap, advice; the cold sweep, one call per stub in
//! the chosen order; `nr_calls` calls to random stubs; exit.

use super::rng::Rng;
use super::{
    BASE, FILESYSTEM, GenerateError, REGION_BYTES_MAX, Sink, Workload, command_of, file_of,
    meta_of, require,
};
use crate::event::abi::{MAP_PRIVATE, PROT_EXEC, PROT_READ};
use crate::event::{Event, ExitKind, Op, mmap_flags};
use crate::meta::Meta;

/// Maximum stubs. A random order takes 4 bytes per stub and must fit into memory.
const NR_PAGES_MAX: u64 = 1 << 26;

const DESCRIPTOR: u64 = 3;

/// Order of the cold sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepOrder {
    /// From the first stub to the last.
    Sequential,
    /// Every stub once, in a seeded random order.
    Random,
    /// From the last stub to the first.
    Backward,
}

impl SweepOrder {
    const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Random => "random",
            Self::Backward => "backward",
        }
    }
}

/// Advice for the mapping before the sweep, with madvise's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No madvise.
    None,
    /// `MADV_RANDOM`.
    Random,
    /// `MADV_SEQUENTIAL`.
    Sequential,
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
}

impl Advice {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Random => "random",
            Self::Sequential => "sequential",
            Self::HugePage => "hugepage",
            Self::NoHugePage => "nohugepage",
        }
    }

    /// Returns the number in the Linux ABI, `None` for no advice.
    #[must_use]
    pub const fn number(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Random => Some(1),
            Self::Sequential => Some(2),
            Self::HugePage => Some(14),
            Self::NoHugePage => Some(15),
        }
    }
}

/// Options of the workload.
///
/// ```
/// use largefolio_trace::generate::{RetStubs, Workload};
/// let stubs = RetStubs { nr_pages: 8, nr_calls: 100, ..RetStubs::default() };
/// // open, mmap, 8 cold calls, 100 warm ones, exit
/// assert_eq!(stubs.events()?.len(), 1 + 1 + 8 + 100 + 1);
/// # Ok::<(), largefolio_trace::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetStubs {
    /// Stubs, one per page of `stub_bytes`: 1 to 2^26.
    pub nr_pages: u64,
    /// Distance between stubs: a power of two from 4 KiB on.
    pub stub_bytes: u64,
    /// Order of the cold sweep.
    pub order: SweepOrder,
    /// Calls of random stubs after the sweep.
    pub nr_calls: u64,
    /// Advice before the sweep.
    pub advice: Advice,
    /// Seed of the random orders.
    pub seed: u64,
    /// Filesystem name of the file.
    pub filesystem: String,
}

impl Default for RetStubs {
    /// 8192 stubs of 4 KiB (32 MiB of text, like a large program), random order, a million calls.
    fn default() -> Self {
        Self {
            nr_pages: 8192,
            stub_bytes: 4096,
            order: SweepOrder::Random,
            nr_calls: 1_000_000,
            advice: Advice::None,
            seed: 1,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

impl RetStubs {
    fn file_bytes(&self) -> u64 {
        self.nr_pages * self.stub_bytes
    }

    fn call(&self, stub: u64) -> Event {
        Event::references(0, Op::Exec, BASE + stub * self.stub_bytes, 1)
    }

    fn emit_setup(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        sink(Event { pos: DESCRIPTOR, file: Some(0), ..Event::new(0, Op::Open) })?;
        let range = Event { addr: BASE, len: self.file_bytes(), ..Event::new(0, Op::Mmap) };
        let flags = mmap_flags(PROT_READ | PROT_EXEC, MAP_PRIVATE);
        sink(Event { flags, file: Some(0), ..range })?;
        match self.advice.number() {
            Some(aux) => sink(Event { op: Op::Madvise, aux, ..range }),
            None => Ok(()),
        }
    }

    fn emit_sweep(&self, rng: &mut Rng, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        let mut stubs = 0..self.nr_pages;
        match self.order {
            SweepOrder::Sequential => stubs.try_for_each(|stub| sink(self.call(stub))),
            SweepOrder::Backward => stubs.rev().try_for_each(|stub| sink(self.call(stub))),
            SweepOrder::Random => {
                let mut order: Vec<u32> =
                    stubs.map_while(|stub| u32::try_from(stub).ok()).collect();
                rng.shuffle(&mut order);
                order.into_iter().try_for_each(|stub| sink(self.call(stub.into())))
            }
        }
    }
}

impl Workload for RetStubs {
    fn validate(&self) -> Result<(), GenerateError> {
        let Self { nr_pages, stub_bytes, .. } = *self;
        let is_counted = (1..=NR_PAGES_MAX).contains(&nr_pages);
        require(is_counted, "nr_pages", nr_pages, "it must be from 1 to 67108864")?;
        let is_spaced = stub_bytes.is_power_of_two() && stub_bytes >= 4096;
        require(is_spaced, "stub_bytes", stub_bytes, "it must be a power of two of at least 4096")?;
        let fits = nr_pages.checked_mul(stub_bytes).is_some_and(|bytes| bytes <= REGION_BYTES_MAX);
        require(fits, "stub_bytes", stub_bytes, "nr_pages times stub_bytes must be at most 1 TiB")
    }

    fn meta(&self) -> Meta {
        let options = [
            ("pages", self.nr_pages.to_string()),
            ("stub-size", self.stub_bytes.to_string()),
            ("order", self.order.name().to_owned()),
            ("calls", self.nr_calls.to_string()),
            ("advice", self.advice.name().to_owned()),
            ("seed", self.seed.to_string()),
        ];
        let bytes = self.nr_pages.saturating_mul(self.stub_bytes);
        let file = file_of("ret-stubs", bytes, &self.filesystem);
        let command = command_of("ret-stubs", &options, &self.filesystem);
        meta_of("ret-stubs", command, self.seed, vec![file])
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let mut rng = Rng::new(self.seed);
        self.emit_setup(sink)?;
        self.emit_sweep(&mut rng, sink)?;
        for _ in 0..self.nr_calls {
            sink(self.call(rng.below(self.nr_pages)))?;
        }
        sink(Event { flags: ExitKind::Process as u32, ..Event::new(0, Op::Exit) })
    }
}
