//! Runs a recorded workload in the memory manager.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::fault::{Access, FaultOutcome};
use largefolio_mm::folio::FolioId;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::readahead::RaState;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::units::AddrRange;
use largefolio_mm::units::{GroupId, MappingId, MmId, PageIndex, Vaddr};
use largefolio_mm::vma::{Backing, OpenId, Prot};

use super::body::FileSteps;
use super::step::{Action, AreaSpec, ByteSpan, CachedFolio, FileIo, FileStep, Touch};
use super::timing::{FaultReads, IoTiming};
use crate::crosscheck::decision::DecisionLog;
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::Recording;
use largefolio_sim::kernel::Kernel;

mod advice;
mod group;
mod in_flight;
mod observed;

pub(super) struct FileReplay {
    memory: Memory,
    /// The current address space; `spaces` has all by number.
    mm: MmId,
    spaces: BTreeMap<u32, MmId>,
    files: BTreeMap<u32, MappingId>,
    opens: BTreeMap<u32, OpenId>,
    areas: BTreeMap<u32, AreaSpec>,
    takes_io_in_flight: bool,
    reads_within_call: bool,
    /// Reclaimed pages come back as part of the working set.
    restores: bool,
    /// The cgroup that everything is charged to, and its limit in pages.
    group: Option<(GroupId, u64)>,
    /// Reclaimed folios: file, first index.
    reclaimed: BTreeSet<(u32, u64)>,
    timing: IoTiming,
    reads: FaultReads,
    decisions: DecisionLog,
}

impl FileReplay {
    pub(super) fn new(
        recording: &Recording<FileSteps>,
        kernel: &Kernel,
        timing: IoTiming,
    ) -> Result<Self, CheckError> {
        let (header, workload) = (&recording.header, &recording.body);
        let setup = &workload.setup;
        let mut rules = kernel.rules.clone();
        let page = rules.page.bytes();
        rules.readahead_bytes = setup.ra_pages * page;
        rules.io_bytes = setup.io_bytes;
        // Older recordings have no `lru` field and were made without MGLRU.
        let has_generations = setup.lru == "generations";
        rules.reclaim.lru = if has_generations { LruRule::Generations } else { LruRule::Lists };
        if let Some(bytes) = setup.fault_around_bytes {
            rules.fault_around_bytes = bytes.clamp(page, 1 << 30).next_power_of_two();
        }
        let mut memory = Memory::new(rules, &Config::new(header.arch))?;
        let mut files = BTreeMap::new();
        let mut opens = BTreeMap::new();
        if workload.files.is_empty() {
            let file = memory.add_file(setup.file_bytes, &header.filesystem);
            files.insert(0, file);
            let nr = u32::try_from(setup.nr_opens).unwrap_or(1);
            opens.extend((0..nr).map(|nr| (nr, memory.open(file))));
        }
        for (id, bytes) in &workload.files {
            files.insert(*id, memory.add_file(*bytes, &header.filesystem));
        }
        // Older probes did not record extents; their written files were holes.
        let is_untold =
            |step: &FileStep| matches!(step.action, Action::Write(_)) && step.extents.is_none();
        if setup.program.is_none() && workload.steps.iter().any(is_untold) {
            for &file in files.values() {
                memory.set_hole(file);
            }
        }
        let mm = memory.new_space();
        let group = setup.limit_bytes.map(|bytes| group::with_limit(&mut memory, mm, bytes / page));
        memory.watch();
        let decisions = DecisionLog::default();
        if let Some(policy) = &kernel.policy {
            let policy = policy.0.start().map_err(CheckError::Policy)?;
            memory.set_policy(decisions.of(policy));
        }
        let mut replay = Self {
            memory,
            mm,
            spaces: BTreeMap::from([(0, mm)]),
            files,
            opens,
            areas: BTreeMap::new(),
            takes_io_in_flight: setup.program.is_some() && workload.takes_io_in_flight(),
            reads_within_call: setup.reads_within_call,
            restores: workload.restores_working_set(),
            group,
            reclaimed: BTreeSet::new(),
            timing,
            reads: FaultReads::default(),
            decisions,
        };
        replay.delay_reads(workload);
        Ok(replay)
    }

    pub(super) fn nr_major(&self) -> u64 {
        self.memory.counters().pgmajfault
    }

    pub(super) fn nr_dirtied(&self) -> u64 {
        self.memory.counters().reclaim.nr_dirtied
    }

    /// Drops the folios that the kernel reclaimed, and marks those that came back as part of the
    /// working set. The choice itself is not compared.
    pub(super) fn follow_reclaim(&mut self, kernel: &FileStep) -> Result<(), String> {
        for &CachedFolio { file: number, index, .. } in &kernel.removals {
            let file = *self.files.get(&number).ok_or_else(|| format!("no file {number}"))?;
            let removed = self.memory.drop_folio(file, PageIndex(index));
            removed.ok_or_else(|| {
                format!(
                    "there is no unmapped folio at index {index} in file \
                                           {number}"
                )
            })?;
            self.reclaimed.insert((number, index));
        }
        for &CachedFolio { file: number, index, .. } in &kernel.insertions {
            if self.restores && self.reclaimed.contains(&(number, index)) {
                let Some(&file) = self.files.get(&number) else { continue };
                let was_marked = self.memory.mark_workingset(file, PageIndex(index));
                was_marked.ok_or_else(|| format!("no folio at index {index} came back"))?;
            }
        }
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        self.memory.rules().page.bytes()
    }

    pub(super) fn state_before(&self, action: &Action) -> Option<RaState> {
        if matches!(action, Action::AdviseFile(..) | Action::Map(_)) {
            return None;
        }
        let open = self.opens.get(&self.descriptor(action)?)?;
        Some(self.memory.open_file(*open).state)
    }

    pub(super) fn file_of(&self, action: &Action) -> Option<u32> {
        self.file_of_open(self.descriptor(action)?)
    }

    fn descriptor(&self, action: &Action) -> Option<u32> {
        match action {
            Action::Touch { area, .. } | Action::Advise(_, area) => {
                self.areas.get(area).map(|area| area.open)
            }
            Action::Read(io) | Action::Write(io) | Action::Send(io) | Action::AdviseFile(_, io) => {
                Some(io.open)
            }
            Action::Map(area) => Some(area.open),
            _ => None,
        }
    }

    fn file_of_area(&self, area: u32) -> Option<u32> {
        self.file_of_open(self.areas.get(&area)?.open)
    }

    fn file_of_open(&self, open: u32) -> Option<u32> {
        let mapping = self.memory.open_file(*self.opens.get(&open)?).mapping;
        Some(self.number_of(mapping))
    }

    pub(super) fn run(&mut self, nr: usize, step: &FileStep) -> Result<FileStep, String> {
        self.refresh();
        let mut was_mapped = false;
        let mut removals = Vec::new();
        match &step.action {
            Action::Start
            | Action::Aside(..)
            | Action::Met(_)
            | Action::Point(_)
            | Action::Reclaim(_)
            | Action::Restored(_) => {}
            Action::Charged(nr_pages) => self.charge_kernel(*nr_pages),
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
                self.memory.set_completion(completion);
                was_mapped = self.touch(*index, *area, *access)?;
            }
            Action::Read(io) => self.read(*io)?,
            Action::Write(io) => {
                let open = self.open_of(*io)?;
                self.set_extents(open, step);
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
                self.advise_bytes(advice, ByteSpan { addr: *addr, len_bytes: *len })?;
            }
            Action::AdviseFile(advice, io) => {
                removals = self.advise_file(advice, *io, &step.removals)?;
            }
            Action::Remap { area, from, to } => self.remap(*area, *from, *to)?,
            Action::Table(addr) => self.table(Vaddr(*addr))?,
            Action::Switch(space) => self.mm = self.space(*space),
            Action::Fork(from, to) => {
                let parent = self.space(*from);
                self.spaces.insert(*to, self.memory.fork(parent).map_err(|e| e.to_string())?);
            }
        }
        let action = step.action.clone();
        let decisions = self.decisions.take();
        let mut model = FileStep { action, decisions, was_mapped, ..self.observed(nr) };
        if self.group.is_none() {
            model.removals = removals;
        }
        Ok(model)
    }

    fn read(&mut self, io: FileIo) -> Result<(), String> {
        let open = self.open_of(io)?;
        self.memory.pread(open, io.pos, io.len_bytes).map_err(|e| e.to_string()).map(drop)
    }

    fn open_of(&self, io: FileIo) -> Result<OpenId, String> {
        self.opens.get(&io.open).copied().ok_or_else(|| format!("no descriptor {}", io.open))
    }

    /// Sets the file's extents before each write, because the filesystem may have written back at
    /// any time.
    fn set_extents(&mut self, open: OpenId, step: &FileStep) {
        let file = self.memory.open_file(open).mapping;
        if let Some(extents) = &step.extents {
            self.memory.set_extents(file, extents.iter().copied());
        }
    }

    /// Returns the model's reservations for the first file, unless they are unknown.
    pub(super) fn reserved(&self) -> Option<Vec<(u64, u64)>> {
        let file = *self.files.get(&0)?;
        self.memory.core().mapping(file).reservations.as_ref()?.reserved()
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

    fn touch(&mut self, index: u64, area: u32, how: Touch) -> Result<bool, String> {
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
        Ok(touched.outcome == FaultOutcome::Hit)
    }

    fn cached(&self, area: u32, index: PageIndex) -> Option<FolioId> {
        let open = *self.opens.get(&self.areas.get(&area)?.open)?;
        let file = self.memory.open_file(open).mapping;
        Some(self.memory.core().find(file, index)?.folio)
    }

    /// Moves the mapping at `from` to `to` and renames it to `id`.
    fn remap(&mut self, id: u32, from: ByteSpan, to: ByteSpan) -> Result<(), String> {
        let of = |span: ByteSpan| AddrRange { addr: Vaddr(span.addr), len_bytes: span.len_bytes };
        self.memory.mremap(self.mm, of(from), of(to)).map_err(|e| e.to_string())?;
        let page = self.memory.rules().page;
        let vpn = Vaddr(to.addr).vpn(page);
        let vma = self.memory.space(self.mm).vmas.find(vpn).copied();
        let Some(Backing::File { open, .. }) = vma.map(|vma| vma.backing) else {
            return Err(format!("no file is mapped at {:#x}", to.addr));
        };
        let number = self.opens.iter().find(|(_, known)| **known == open);
        let (Some(vma), Some((&open, _))) = (vma, number) else {
            return Err(format!("the mapping at {:#x} has no descriptor", to.addr));
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
            nr_pages: page.pages_in(to.len_bytes),
            prot: prot.to_owned(),
            is_shared: false,
            advice: "plain".to_owned(),
            addr: to.addr,
        };
        self.areas.insert(id, area);
        Ok(())
    }

    /// Touches an anonymous page. Fault-around checks whether a page table exists (B.5.6).
    fn table(&mut self, addr: Vaddr) -> Result<(), String> {
        let page = self.memory.rules().page;
        let is_free = self.memory.space(self.mm).vmas.find(addr.vpn(page)).is_none();
        if is_free {
            let map = Map::anon(page.bytes(), Prot::READ_WRITE).at(addr);
            self.memory.mmap(self.mm, map).map_err(|e| e.to_string())?;
            self.memory.touch(self.mm, addr, Access::Write).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn space(&mut self, number: u32) -> MmId {
        *self.spaces.entry(number).or_insert_with(|| self.memory.new_space())
    }

    fn number_of(&self, mapping: MappingId) -> u32 {
        let entry = self.files.iter().find(|(_, id)| **id == mapping);
        entry.map_or(u32::MAX, |(number, _)| *number)
    }
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
