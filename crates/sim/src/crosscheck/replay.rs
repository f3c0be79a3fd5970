//! A recorded workload running in the memory manager.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::fault::{Access, Outcome};
use largefolio_mm::folio::{FolioId, MappingId};
use largefolio_mm::in_flight::Completion;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::mapping::reserve::Reservations;
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::observed::{EntryKind, Observed};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::readahead::RaState;
use largefolio_mm::rules::Arch;
use largefolio_mm::space::MmId;
use largefolio_mm::units::{Order, PageIndex, Pfn, Vaddr, Vpn};
use largefolio_mm::vma::{Backing, OpenId, Prot};

use super::recording::{
    Action, AreaSpec, EntryLine, FileIo, FolioRun, Hit, Recording, Run, State, Step, Touch,
    WindowLine,
};
use super::timing::{LeftOut, Reads, Timing, Waited};
use crate::kernel::{Kernel, KernelError};

mod advice;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No rules for a kernel so old, or a release that is no version.
    #[error(
        "no rules for kernel {0:?}: the oldest known is 6.1; name the rules to use with --kernel"
    )]
    UnknownKernel(String),
    /// The rules could not be loaded.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The model could not be set up.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The recording has steps that must read and nothing that was read.
    #[error(
        "{0}: nothing was traced, so there is nothing to compare; record it again with the probe of \
         this version"
    )]
    NothingTraced(String),
    /// The recording was made with another base page than the rules have.
    #[error("recorded with base pages of {recorded} bytes, the rules have {rules}")]
    Page {
        /// In the recording.
        recorded: u64,
        /// In the rules.
        rules: u64,
    },
}

/// The rules for the kernel that made `recording`: those of a self-built kernel by its variant,
/// else those of the newest known version that is not newer.
///
/// # Errors
/// When there are none.
pub fn kernel_of(recording: &Recording) -> Result<Kernel, ReplayError> {
    let own = format!("recorded/{}", recording.header.variant);
    if Kernel::names().any(|name| name == own) {
        return Ok(Kernel::parse(&own)?);
    }
    let header = &recording.header;
    match Kernel::of_release(&header.release, header.page_bytes) {
        Some(kernel) => Ok(kernel?),
        None => Err(ReplayError::UnknownKernel(header.release.clone())),
    }
}

/// The model in the middle of a recording.
pub(super) struct Replay {
    memory: Memory,
    /// Address space that acts, and all by their numbers.
    mm: MmId,
    spaces: BTreeMap<u32, MmId>,
    files: BTreeMap<u32, MappingId>,
    opens: BTreeMap<u32, OpenId>,
    areas: BTreeMap<u32, AreaSpec>,
    takes_io_in_flight: bool,
    /// Reads are complete when the call that asks for them returns.
    reads_within_call: bool,
    /// Whether pages that were reclaimed come back as part of the working set.
    restores: bool,
    /// Folios that were reclaimed: file, first index.
    reclaimed: BTreeSet<(u32, u64)>,
    /// What the recording says about reads in flight.
    timing: Timing,
    /// What faults did with folios that they were reading.
    reads: Reads,
}

impl Replay {
    pub(super) fn new(
        recording: &Recording,
        kernel: &Kernel,
        timing: Timing,
    ) -> Result<Self, ReplayError> {
        let header = &recording.header;
        let mut rules = kernel.rules.clone();
        let page = rules.page.bytes();
        if page != header.page_bytes {
            return Err(ReplayError::Page { recorded: header.page_bytes, rules: page });
        }
        rules.readahead_bytes = header.ra_pages * page;
        rules.io_bytes = header.io_bytes;
        if let Some(bytes) = header.fault_around_bytes {
            rules.fault_around_bytes = bytes.clamp(page, 1 << 30).next_power_of_two();
        }
        let arch = if header.arch == "x86-64" { Arch::X86_64 } else { Arch::Arm64 };
        let mut memory = Memory::new(rules, &Config::new(arch))?;
        let mut files = BTreeMap::new();
        let mut opens = BTreeMap::new();
        if recording.files.is_empty() {
            let file = memory.add_file(header.file_bytes, &header.filesystem);
            files.insert(0, file);
            let nr = u32::try_from(header.nr_opens).unwrap_or(1);
            opens.extend((0..nr).map(|nr| (nr, memory.open(file))));
        }
        for (id, (bytes, _)) in &recording.files {
            files.insert(*id, memory.add_file(*bytes, &header.filesystem));
        }
        // Recorded before the probe told what the file has: its files that are written were holes.
        let is_untold =
            |step: &Step| matches!(step.action, Action::Write(_)) && step.extents.is_none();
        if header.program.is_none() && recording.steps.iter().any(is_untold) {
            for &file in files.values() {
                let space = &mut memory.cache_mut().mapping_mut(file).reservations;
                *space = space.take().map(|_| Reservations::default());
            }
        }
        let mm = memory.new_space();
        memory.cache_mut().watch();
        let mut replay = Self {
            memory,
            mm,
            spaces: BTreeMap::from([(0, mm)]),
            files,
            opens,
            areas: BTreeMap::new(),
            takes_io_in_flight: recording.header.program.is_some()
                && recording.takes_io_in_flight(),
            reads_within_call: header.reads_within_call,
            restores: recording.restores_working_set(),
            reclaimed: BTreeSet::new(),
            timing,
            reads: Reads::default(),
        };
        replay.delay_reads(recording);
        Ok(replay)
    }

    /// Self-built kernels print which folios were still locked when a fault found them. On a slow
    /// disk a touch that passes the handler twice had to wait; where the handler is not traced,
    /// every hit is taken for one, which gives back no miss.
    fn delay_reads(&mut self, recording: &Recording) {
        let Some(&file) = self.files.get(&0) else { return };
        let is_slow = recording.is_slow();
        let shows_handler = recording.shows_handler();
        let locked = recording.steps.iter().filter_map(|step| {
            if let Some(hit) = step.hits.first() {
                return hit.is_locked.then_some(hit.index);
            }
            let Action::Touch { index, .. } = step.action else { return None };
            let has_waited = step.handler.len() == 2 || !shows_handler;
            (is_slow && step.insertions.is_empty() && has_waited).then_some(index)
        });
        for index in locked {
            self.memory.cache_mut().delay_read(file, PageIndex(index));
        }
    }

    /// Major faults so far.
    pub(super) fn nr_major(&self) -> u64 {
        self.memory.counters().pgmajfault
    }

    /// Follows the kernel's choice of what to reclaim, and marks what came back as part of the
    /// working set: reclaim itself is not compared.
    pub(super) fn follow_reclaim(&mut self, kernel: &Step) -> Result<(), String> {
        for &(number, index, _) in &kernel.removals {
            let file = *self.files.get(&number).ok_or_else(|| format!("no file {number}"))?;
            let removed = self.memory.cache_mut().remove_unmapped(file, PageIndex(index));
            removed.ok_or_else(|| format!("no unmapped folio at {index} of file {number}"))?;
            self.reclaimed.insert((number, index));
        }
        for &(number, index, _) in &kernel.insertions {
            if self.restores && self.reclaimed.contains(&(number, index)) {
                let Some(&file) = self.files.get(&number) else { continue };
                let found = self.memory.cache().find(file, PageIndex(index));
                let entry = found.ok_or_else(|| format!("no folio at {index} came back"))?;
                self.memory.cache_mut().folios.get_mut(entry.folio).is_workingset = true;
            }
        }
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        self.memory.rules.page.bytes()
    }

    /// The readahead state that `action` meets, for a report of what differs.
    pub(super) fn state_before(&self, action: &Action) -> Option<RaState> {
        let open = match action {
            Action::Touch { area, .. } | Action::Advise(_, area) => self.areas.get(area)?.open,
            Action::Read(io) | Action::Write(io) | Action::Send(io) => io.open,
            _ => return None,
        };
        Some(self.memory.open_file(*self.opens.get(&open)?).state)
    }

    /// The file that an action is on.
    pub(super) fn file_of(&self, action: &Action) -> Option<u32> {
        let open = match action {
            Action::Touch { area, .. } | Action::Advise(_, area) => self.areas.get(area)?.open,
            Action::Read(io) | Action::Write(io) | Action::Send(io) | Action::AdviseFile(_, io) => {
                io.open
            }
            Action::Map(area) => area.open,
            _ => return None,
        };
        self.file_of_open(open)
    }

    fn file_of_area(&self, area: u32) -> Option<u32> {
        self.file_of_open(self.areas.get(&area)?.open)
    }

    fn file_of_open(&self, open: u32) -> Option<u32> {
        let mapping = self.memory.open_file(*self.opens.get(&open)?).mapping;
        Some(self.number_of(mapping))
    }

    /// Does the action of `step` and says what the model did.
    pub(super) fn run(&mut self, nr: usize, step: &Step) -> Result<Step, String> {
        let mut was_mapped = false;
        let mut removals = Vec::new();
        match &step.action {
            Action::Start
            | Action::Aside(..)
            | Action::Met(_)
            | Action::Point(_)
            | Action::Reclaim(_)
            | Action::Restored(_) => {}
            Action::Open(open, file) => {
                let file = *self.files.get(file).ok_or_else(|| format!("no file {file}"))?;
                let id = self.memory.open(file);
                self.opens.insert(*open, id);
            }
            Action::Map(area) => self.map(area)?,
            Action::Unmap(addr, len) => {
                self.memory.munmap(self.mm, Vaddr(*addr), *len).map_err(|e| e.to_string())?;
            }
            Action::Protect(addr, len, prot) => {
                let change = self.memory.mprotect(self.mm, Vaddr(*addr), *len, prot_of(prot));
                change.map_err(|e| e.to_string())?;
            }
            Action::Touch { index, area, access } => {
                let is_program = self.takes_io_in_flight && !step.handler.is_empty();
                if is_program || self.timing.waits.contains(&nr) {
                    self.lock_cached(*area, PageIndex(*index));
                }
                let completion = self.completion(nr);
                self.memory.cache_mut().set_completion(completion);
                was_mapped = self.touch((*index, *area), *access)?;
            }
            Action::Read(io) => {
                let open = self.open_of(*io)?;
                self.memory.pread(open, io.pos, io.len_bytes).map_err(|e| e.to_string())?;
            }
            Action::Write(io) => {
                let open = self.open_of(*io)?;
                self.tell_extents(open, step);
                self.memory.pwrite(open, io.pos, io.len_bytes).map_err(|e| e.to_string())?;
            }
            Action::Send(io) => {
                let open = self.open_of(*io)?;
                self.memory.sendfile(open, io.pos, io.len_bytes).map_err(|e| e.to_string())?;
            }
            Action::Truncate(size_bytes) => {
                let file = *self.files.get(&0).ok_or("no file 0")?;
                self.memory.truncate(file, *size_bytes);
            }
            Action::Advise(advice, area) => self.advise(*area, advice)?,
            Action::AdviseBytes(advice, addr, len) => {
                self.advise_bytes(advice, Vaddr(*addr), *len)?;
            }
            Action::AdviseFile(advice, io) => {
                removals = self.advise_file(advice, *io, &step.removals)?;
            }
            Action::Remap { area, from, to } => self.remap(*area, *from, *to)?,
            Action::Table(addr) => self.table(Vaddr(*addr))?,
            Action::Switch(space) => self.mm = self.space(*space),
            Action::Fork(from, to) => {
                let parent = self.space(*from);
                let child = self.memory.fork(parent).map_err(|e| e.to_string())?;
                self.spaces.insert(*to, child);
            }
        }
        let action = step.action.clone();
        Ok(Step { action, removals, was_mapped, ..self.observed(nr) })
    }

    fn open_of(&self, io: FileIo) -> Result<OpenId, String> {
        self.opens.get(&io.open).copied().ok_or_else(|| format!("no descriptor {}", io.open))
    }

    /// The filesystem may have written back at any time, so what a file has is told before each
    /// write.
    fn tell_extents(&mut self, open: OpenId, step: &Step) {
        let file = self.memory.open_file(open).mapping;
        let space = self.memory.cache_mut().mapping_mut(file).reservations.as_mut();
        if let (Some(space), Some(extents)) = (space, &step.extents) {
            space.tell(extents.iter().copied());
        }
    }

    /// What is reserved for the first file in the model, unless that cannot be known.
    pub(super) fn reserved(&self) -> Option<Vec<(u64, u64)>> {
        let file = *self.files.get(&0)?;
        self.memory.cache().mapping(file).reservations.as_ref()?.reserved()
    }

    fn map(&mut self, area: &AreaSpec) -> Result<(), String> {
        let open = *self.opens.get(&area.open).ok_or_else(|| format!("no open {}", area.open))?;
        let len = area.nr_pages * self.page_bytes();
        let map = Map::file(open, area.first, len, prot_of(&area.prot)).at(Vaddr(area.addr));
        let map = if area.is_shared { map.shared() } else { map };
        self.memory.mmap(self.mm, map).map_err(|e| e.to_string())?;
        self.areas.insert(area.id, area.clone());
        self.advise(area.id, &area.advice)
    }

    fn area(&self, id: u32) -> Result<&AreaSpec, String> {
        self.areas.get(&id).ok_or_else(|| format!("no mapping {id}"))
    }

    /// Whether the page was mapped already.
    fn touch(&mut self, (index, area): (u64, u32), how: Touch) -> Result<bool, String> {
        let area = self.area(area)?;
        let (first, end) = (area.first, area.first + area.nr_pages);
        if !(first..end).contains(&index) {
            return Err(format!("page {index} is outside its mapping ({first}..{end})"));
        }
        let access = match how {
            Touch::Write => Access::Write,
            Touch::Exec => Access::Exec,
            Touch::AsMapped if area.prot == "rxc" => Access::Exec,
            Touch::AsMapped => Access::Read,
        };
        let addr = Vaddr(area.addr + (index - first) * self.page_bytes());
        let touched = self.memory.touch(self.mm, addr, access).map_err(|e| e.to_string())?;
        Ok(touched.outcome == Outcome::Hit)
    }

    /// When the reads of step `nr` complete.
    fn completion(&self, nr: usize) -> Completion {
        if self.reads_within_call {
            return Completion { nr_early: u32::MAX, late_from: None };
        }
        self.timing.completion(nr)
    }

    /// Whether step `nr` was told that its page is still being read.
    pub(super) fn is_wait(&self, nr: usize) -> bool {
        self.timing.waits.contains(&nr)
    }

    /// Which step's reads were complete earlier if the kernel has a page of a mapping present that
    /// the model has not: the step, and the requests.
    pub(super) fn early(&self, area: u32, index: u64) -> Option<(usize, u32)> {
        let out = self.reads.left_out(self.file_of_area(area)?, index)?;
        Some((out.step, self.completion(out.step).nr_early.saturating_add(out.nr_requests)))
    }

    /// Which step's reads were complete later if the model has a page of a mapping present that
    /// the kernel has not.
    pub(super) fn late(&self, area: u32, index: u64) -> Option<usize> {
        self.reads.waited(self.file_of_area(area)?, index)
    }

    /// The folio of a mapping's page, where it is cached.
    fn cached(&self, area: u32, index: PageIndex) -> Option<FolioId> {
        let open = *self.opens.get(&self.areas.get(&area)?.open)?;
        let file = self.memory.open_file(open).mapping;
        Some(self.memory.cache().find(file, index)?.folio)
    }

    /// Whether `action` touches a page that is cached and bears no marker: fault-around serves it,
    /// unless its read is still in flight.
    pub(super) fn may_be_in_flight(&self, action: &Action) -> bool {
        let Action::Touch { index, area, .. } = action else { return false };
        self.cached(*area, PageIndex(*index))
            .is_some_and(|id| !self.memory.cache().folios.get(id).is_marked)
    }

    /// Puts the read of a cached page back in flight.
    fn lock_cached(&mut self, area: u32, index: PageIndex) {
        if let Some(id) = self.cached(area, index) {
            let folio = self.memory.cache_mut().folios.get_mut(id);
            folio.is_locked |= !folio.is_marked;
        }
    }

    fn advise(&mut self, area: u32, advice: &str) -> Result<(), String> {
        let area = self.area(area)?;
        let (addr, len) = (Vaddr(area.addr), area.nr_pages * self.page_bytes());
        let range = (area.first * self.page_bytes(), len);
        if advice == "willneed" {
            let open = *self.opens.get(&area.open).ok_or("no descriptor")?;
            self.memory.fadvise(open, range, Fadvice::Willneed);
            return Ok(());
        }
        self.advise_bytes(advice, addr, len)
    }

    fn advise_bytes(&mut self, advice: &str, addr: Vaddr, len: u64) -> Result<(), String> {
        let advices: &[Madvice] = match advice {
            "plain" | "-" => &[],
            "normal" => &[Madvice::Normal],
            "huge" => &[Madvice::Hugepage],
            "nohuge" => &[Madvice::Nohugepage],
            "random" => &[Madvice::Random],
            "seq" => &[Madvice::Sequential],
            "hugerandom" => &[Madvice::Hugepage, Madvice::Random],
            "hugeseq" => &[Madvice::Hugepage, Madvice::Sequential],
            "dontneed" => &[Madvice::Dontneed],
            "populate" => &[Madvice::PopulateRead],
            "willneed" => {
                self.will_need(addr, len);
                return Ok(());
            }
            other => return Err(format!("unknown advice {other:?}")),
        };
        for &advice in advices {
            self.memory.madvise(self.mm, addr, len, advice).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// `MADV_WILLNEED`: the file pages behind the range, area by area.
    fn will_need(&mut self, addr: Vaddr, len: u64) {
        let page = self.memory.rules.page;
        let start = addr.vpn(page);
        let end = start.plus(page.pages_in(len));
        for part in self.memory.space(self.mm).vmas.overlapping(start, end) {
            let Backing::File { open, pgoff } = part.backing else { continue };
            let range = (pgoff * page.bytes(), part.nr_pages() * page.bytes());
            self.memory.fadvise(open, range, Fadvice::Willneed);
        }
    }

    /// The mapping at `from` becomes mapping `id` at `to`.
    fn remap(&mut self, id: u32, from: (u64, u64), to: (u64, u64)) -> Result<(), String> {
        let of = |(addr, len): (u64, u64)| (Vaddr(addr), len);
        self.memory.mremap(self.mm, of(from), of(to)).map_err(|e| e.to_string())?;
        let page = self.memory.rules.page;
        let vpn = Vaddr(to.0).vpn(page);
        let vma = self.memory.space(self.mm).vmas.find(vpn).copied();
        let Some(Backing::File { open, .. }) = vma.map(|vma| vma.backing) else {
            return Err(format!("no file is mapped at {:#x}", to.0));
        };
        let number = self.opens.iter().find(|(_, known)| **known == open);
        let (Some(vma), Some((&open, _))) = (vma, number) else {
            return Err(format!("no descriptor of the mapping at {:#x}", to.0));
        };
        let prot = match (vma.prot.can_exec, vma.prot.can_write) {
            (true, _) => "rx",
            (false, true) => "rw",
            (false, false) => "r",
        };
        let area = AreaSpec {
            id,
            open,
            first: vma.index_of(vpn),
            nr_pages: page.pages_in(to.1),
            prot: prot.to_owned(),
            is_shared: false,
            advice: "plain".to_owned(),
            addr: to.0,
        };
        self.areas.insert(id, area);
        Ok(())
    }

    /// One page of no file, touched. Fault-around asks whether a page table is there (B.5.6).
    fn table(&mut self, addr: Vaddr) -> Result<(), String> {
        let page = self.memory.rules.page;
        let is_free = self.memory.space(self.mm).vmas.find(addr.vpn(page)).is_none();
        if is_free {
            let map = Map::anon(page.bytes(), Prot::READ_WRITE).at(addr);
            self.memory.mmap(self.mm, map).map_err(|e| e.to_string())?;
            self.memory.touch(self.mm, addr, Access::Write).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// The address space with this number; a new one is empty.
    fn space(&mut self, number: u32) -> MmId {
        *self.spaces.entry(number).or_insert_with(|| self.memory.new_space())
    }

    fn number_of(&self, mapping: MappingId) -> u32 {
        let found = self.files.iter().find(|(_, id)| **id == mapping);
        found.map_or(u32::MAX, |(number, _)| *number)
    }

    /// What the model did since the last call, in the words of a recording.
    fn observed(&mut self, nr: usize) -> Step {
        let mut step = Step::default();
        for event in self.memory.cache_mut().take_observed() {
            match event {
                Observed::Insertion { mapping, index, order } => {
                    step.insertions.push((self.number_of(mapping), index.0, order.get()));
                }
                Observed::Handler { mapping, index } => {
                    step.handler.push((self.number_of(mapping), index.0));
                }
                Observed::Around { mapping, first, last } => {
                    step.around.push((self.number_of(mapping), first.0, last.0));
                }
                Observed::InFlight { mapping, index, order, nr_requests } => {
                    let pages = index.0..index.0 + order.nr_pages();
                    let file = self.number_of(mapping);
                    self.reads.leave_out(LeftOut { step: nr, file, pages, nr_requests });
                }
                Observed::Waited { mapping, index, end } => {
                    let file = self.number_of(mapping);
                    self.reads.wait(Waited { step: nr, file, behind: index.0 + 1..end.0 });
                }
                Observed::ColdFault { state, .. } => step.cold.push(printed(&state)),
                Observed::HandlerHit { index, is_marked, state } => {
                    let state = printed(&state);
                    step.hits.push(Hit { index: index.0, is_marked, is_locked: false, state });
                }
                Observed::Entry { kind, mapping, index, nr_pages, state } => {
                    let file = self.number_of(mapping);
                    step.entries.push(entry_line(kind, file, (index, nr_pages), &state));
                }
                Observed::Window { mapping, start, state } => step.windows.push(WindowLine {
                    file: self.number_of(mapping),
                    is_base: false,
                    start,
                    order: Some(state.order.get()),
                    size: state.size,
                    async_size: state.async_size,
                }),
                Observed::Base { mapping, start, nr_pages, lookahead } => {
                    step.windows.push(WindowLine {
                        file: self.number_of(mapping),
                        is_base: true,
                        start,
                        order: None,
                        size: nr_pages,
                        async_size: lookahead,
                    });
                }
            }
        }
        step
    }

    /// Pages of the first file that are cached.
    pub(super) fn cached_pages(&self) -> BTreeSet<u64> {
        let Some(&file) = self.files.get(&0) else { return BTreeSet::new() };
        let entries = self.memory.cache().mapping(file).tree.iter();
        entries.flat_map(|entry| entry.index.0..entry.end()).collect()
    }

    /// Runs of file pages that a mapping has present.
    pub(super) fn present(&self, area: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for part in self.parts(area) {
            match runs.last_mut() {
                Some(run) if run.1 + 1 == part.first => run.1 = part.last,
                _ => runs.push((part.first, part.last)),
            }
        }
        runs
    }

    /// KiB of a mapping under PMD entries.
    pub(super) fn pmd_kib(&self, area: u32) -> u64 {
        let nr_pages: u64 = self
            .parts(area)
            .filter(|part| part.is_pmd)
            .map(|part| part.last - part.first + 1)
            .sum();
        (nr_pages * self.page_bytes()) >> 10
    }

    /// Runs of mapped pages that belong to one large folio.
    pub(super) fn folio_runs(&self, area: u32) -> Vec<FolioRun> {
        let folios = &self.memory.cache().folios;
        let mut runs: Vec<FolioRun> = Vec::new();
        // Page and frame that would continue the last run.
        let mut next = None;
        for part in self.parts(area) {
            for index in part.first..=part.last {
                let pfn = Pfn(part.pfn.0 + (index - part.first));
                let Some(folio) = folios.of_pfn(pfn).map(|id| folios.get(id)) else { continue };
                if folio.order == Order::ZERO {
                    continue;
                }
                let is_head = folio.pfn == pfn;
                match runs.last_mut() {
                    Some(run) if !is_head && next == Some((index, pfn)) => run.nr_pages += 1,
                    _ => runs.push(FolioRun { first: index, nr_pages: 1, is_head }),
                }
                next = Some((index + 1, Pfn(pfn.0 + 1)));
            }
        }
        runs
    }

    /// What page-table leaves map of a mapping, in file pages.
    fn parts(&self, area: u32) -> impl Iterator<Item = Part> {
        let page = self.memory.rules.page;
        let area = self.areas.get(&area);
        let of = area.map(|area| (Vaddr(area.addr).vpn(page), area.nr_pages, area.first));
        let (start, nr_pages, base) = of.unwrap_or((Vpn(0), 0, 0));
        let end = start.plus(nr_pages);
        let leaves = self.memory.space(self.mm).table.leaves(start, nr_pages);
        leaves.map(move |leaf| {
            let (from, to) = (leaf.first_vpn.max(start), leaf.end_vpn().min(end));
            let first = from.0 - start.0 + base;
            let is_pmd = leaf.kind == LeafKind::Pmd;
            Part { first, last: first + (to.0 - from.0) - 1, pfn: leaf.pfn_of(from), is_pmd }
        })
    }
}

/// File pages `first ..= last` of a mapping, mapped by one leaf to frames from `pfn`.
struct Part {
    first: u64,
    last: u64,
    pfn: Pfn,
    is_pmd: bool,
}

fn prot_of(prot: &str) -> Prot {
    match prot {
        "r" => Prot::READ,
        "rw" => Prot::READ_WRITE,
        "rwx" => Prot { can_exec: true, ..Prot::READ_WRITE },
        "-" => Prot { can_read: false, can_write: false, can_exec: false },
        _ => Prot::READ_EXEC,
    }
}

fn printed(state: &RaState) -> State {
    let mmap_miss = state.mmap_miss();
    State { start: state.start, size: state.size, async_size: state.async_size, mmap_miss }
}

fn entry_line(
    kind: EntryKind,
    file: u32,
    (index, nr_pages): (u64, u64),
    state: &RaState,
) -> EntryLine {
    EntryLine {
        kind,
        file,
        index,
        nr_pages,
        order: state.order.get(),
        size: state.size,
        async_size: state.async_size,
        ra_pages: state.ra_pages,
        mmap_miss: state.mmap_miss(),
        prev_pos: state.prev_pos.map_or(-1, |pos| i64::try_from(pos).unwrap_or(i64::MAX)),
    }
}
