//! Absurd programs in a valid trace: libFuzzer's input becomes cell settings, files, mappings and
//! events. All of them are valid, so the replay is tested, not the parser.

use std::path::Path;
use std::sync::OnceLock;

use largefolio_results::Forms as _;
use largefolio_results::predict::{Options, PredictResult, Settings, TraceInfo, parquet};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{self, Budget, CacheState, CellSpec, Cgroup, Fragmented, ReplayError};
use largefolio_trace::event::LINK_MAX;
use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_HUGETLB, MAP_PRIVATE};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{
    Event, Execution, FileInfo, Image, LayoutEntry, LayoutKind, Meta, Op, Writer,
};

/// Where most of a program happens, so that its calls overlap; the last is near the end of 64 bits.
const BASES: [u64; 5] =
    [0x40_0000, 0x5555_0000_0000, 0x7000_0000_0000, 0x7fff_ff00_0000, 0xffff_ffff_f000_0000];
const NR_EVENTS_MAX: usize = 2_000;
/// Small, so that an input takes milliseconds.
const BUDGET: Budget =
    Budget { steps: 1 << 20, steps_per_row: 64, state_bytes: 128 << 20, factor: 1 };
/// Kernels that together have most variants of the rules, with a machine for each.
const CELLS: [(&str, &str); 12] = [
    ("6.1", "cascadelake"),
    ("6.1+lru=generations", "altra"),
    ("6.12+page=64K", "altra"),
    ("6.16+exec-block=64K", "altra"),
    ("6.18", "zen4"),
    ("6.18+page=16K", "phone"),
    ("6.18+lru=generations", "zen4"),
    ("7.2", "icelake"),
    ("7.2+page=64K", "grace-64k"),
    ("7.2+anon-64K=always+fault-around=2M", "ampereone"),
    ("7.2+anon-2M=always+policy=pressure", "zen5"),
    ("7.3", "graviton4"),
];

/// libFuzzer's input, followed by zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    fn short(&mut self) -> u64 {
        u64::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn page(&mut self) -> u64 {
        self.pick(&BASES) + (self.short() << 12)
    }

    /// Pages, small numbers, and numbers that could overflow.
    fn number(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => 0,
            1 => self.page(),
            2 => self.short() << 12,
            3 => u64::from(self.byte()) << 12,
            4 => u64::from(self.byte()),
            5 => 1 << (self.byte() % 64),
            6 => u64::MAX - (self.short() << 12) - 0xfff,
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn event(&mut self) -> Event {
        let mut event = Event::new(self.pick(&[0, 0, 0, 1, 2, 255]), self.pick(&Op::ALL));
        if event.op.is_reference() {
            event.addr = self.page();
            event.len = 1 + u64::from(self.byte());
            event.flags =
                if event.op == Op::Exec { 0 } else { u32::from(self.byte()) % (LINK_MAX + 1) };
            return event;
        }
        (event.addr, event.len) = (self.number(), self.number());
        (event.pos, event.aux) = (self.number(), self.number());
        event.flags = match event.op {
            Op::Mmap => self.flags_of_map(),
            _ => u32::from(self.byte()),
        };
        event.file = self.file();
        event
    }

    fn flags_of_map(&mut self) -> u32 {
        let map = self.pick(&[1, 2, MAP_PRIVATE | MAP_ANONYMOUS, 0x21, 0x32, MAP_HUGETLB | 0x22]);
        mmap_flags(u32::from(self.byte()) % 8, map)
    }

    fn file(&mut self) -> Option<u32> {
        self.pick(&[None, Some(0), Some(1), Some(2), Some(3)])
    }

    fn layout(&mut self) -> Vec<LayoutEntry> {
        let mut layout: Vec<LayoutEntry> = Vec::new();
        for &base in &BASES[..usize::from(self.byte()) % (BASES.len() + 1)] {
            let end = layout.last().map_or(0, |last| last.addr + last.len);
            let addr = base.max(end);
            let len = (1 + self.number() % (1 << 40)).min(u64::MAX - addr);
            let (prot, pos) = (u32::from(self.byte()) % 8, self.number());
            let (file, kind) = (self.file(), self.pick(&LayoutKind::ALL));
            layout.push(LayoutEntry { addr, len, prot, file, pos, kind });
        }
        layout
    }

    fn meta(&mut self) -> Meta {
        let filesystems = ["xfs", "ext4", "tmpfs", "vfat", ""];
        let files = (0..4).map(|nr| FileInfo {
            path: format!("/f{nr}"),
            size_bytes: self.number(),
            build_id: self.pick(&["", "ab"]).to_owned(),
            filesystem: self.pick(&filesystems).to_owned(),
            holes: vec![(self.number(), self.number())],
            exec_reads: vec![(self.number(), self.number())],
            ..FileInfo::default()
        });
        let files = files.collect();
        let images = (0..2).map(|_| Image { layout: self.layout(), brk: self.number() }).collect();
        let execs = (0..2).map(|image| Execution { command: Vec::new(), image }).collect();
        let (layout, brk) = (self.layout(), self.number());
        Meta { links: true, files, layout, brk, images, execs, ..Meta::default() }
    }

    /// Two kernels in one state of memory.
    fn specs(&mut self) -> [CellSpec; 2] {
        let spec = self.spec();
        let (kernel, machine) = self.kernel();
        [spec.clone(), CellSpec { kernel, machine, ..spec }]
    }

    fn kernel(&mut self) -> (Kernel, Machine) {
        static KNOWN: OnceLock<Vec<(Kernel, Machine)>> = OnceLock::new();
        let known =
            KNOWN.get_or_init(|| CELLS.map(|(kernel, machine)| parsed(kernel, machine)).into());
        known[usize::from(self.byte()) % known.len()].clone()
    }

    fn spec(&mut self) -> CellSpec {
        let (kernel, machine) = self.kernel();
        let mut spec = CellSpec::new(kernel, machine);
        spec.budget = BUDGET;
        spec.cache = self.pick(&[CacheState::Cold, CacheState::Warm]);
        // The program is the subject, not ageing, which visits every page.
        spec.ram_bytes = self.pick(&[8 << 20, 16 << 20, 64 << 20]);
        spec.swap_bytes = self.pick(&[0, 1 << 20, 64 << 20]);
        spec.ns_per_reference = self.pick(&[0, 1, 1_000_000]);
        spec.detail_runs_max = self.pick(&[0, 0, 40]);
        spec.nr_cpus = self.pick(&[None, Some(1), Some(3)]);
        spec.fragmentation = Fragmented { permille: self.pick(&[0, 500, 1000]), bytes: 2 << 20 };
        let limit = self.pick(&[None, Some("1M"), Some("4M")]);
        spec.cgroups =
            limit.iter().map(|limit| limit.parse::<Cgroup>().expect("a limit")).collect();
        spec
    }
}

fn parsed(kernel: &str, machine: &str) -> (Kernel, Machine) {
    (Kernel::parse(kernel).expect("a kernel"), Machine::named(machine).expect("a machine"))
}

/// A valid trace of an absurd program yields a result in every form, or an error, within its
/// budget.
pub fn predict(data: &[u8], path: &Path) {
    let Some(specs) = write(data, path) else { return };
    let (meta, rows) = match replay::replay(path, &specs, &mut |_| {}) {
        Ok(answered) => answered,
        Err(ReplayError::Trace(error)) => panic!("not a trace: {error}"),
        Err(_) => return,
    };
    let trace = TraceInfo::new("program.folio", &meta);
    let settings = Settings::default();
    let result = PredictResult::new(Vec::new(), trace, settings, rows, Options::default());
    let written = match data.last().unwrap_or(&0) % 32 {
        0 => result.json().map(drop),
        1 => result.csv().map(drop),
        2 => result.page().map(|page| drop(page.html())),
        3 => {
            parquet::file(&result).expect("every count fits");
            Ok(())
        }
        4 => {
            drop(result.text());
            Ok(())
        }
        _ => return,
    };
    written.expect("memory takes everything");
}

/// Writes the trace of `data` to `path`. Returns the cells to replay, or nothing if its layout is
/// invalid.
fn write(data: &[u8], path: &Path) -> Option<[CellSpec; 2]> {
    let mut bytes = Bytes(data);
    let specs = bytes.specs();
    let mut writer = Writer::create(path, bytes.meta()).ok()?;
    for _ in 0..NR_EVENTS_MAX {
        if bytes.0.is_empty() {
            break;
        }
        let _ = writer.push(bytes.event());
    }
    writer.finish().ok()?;
    Some(specs)
}
