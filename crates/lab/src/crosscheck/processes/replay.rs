//! Runs a program in the memory manager.

mod huge;
mod state;

use std::collections::VecDeque;

use largefolio_mm::collapse::Errno;
use largefolio_mm::core::observed::Observed;
use largefolio_mm::fault;
use largefolio_mm::hugetlb::HugePool;
use largefolio_mm::io::{Fallocate, FileSize};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::numa::BoundPages;
use largefolio_mm::pgtable::{Leaf, PteFlags};
use largefolio_mm::pin::Pin;
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::Rules;
use largefolio_mm::rules::anon::SizeMode;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::rules::shmem::ShmemEnabled;
use largefolio_mm::units::{AddrRange, ByteRange, GroupId, MappingId, MmId, Order, Vaddr, Vpn};
use largefolio_mm::validate::Violation;
use largefolio_mm::vma::{Lock, OpenId, Prot, Purpose, Sharing};

use super::huge::HugePages;
use super::khugepaged::{Scan, add_keeper};
use super::limit::{SWAP_BYTES, SwapNumbers};
use super::nodes::{self, Binding, MoveTo};
use super::program::{
    AreaSource, FILE_PAGES, FileKind, FillStart, LockAll, OwnFile, OwnMapping, ProcessOp,
    ProcessProgram, ProcessStep,
};
use super::range::{NR_SLOTS, PageRange};
use super::run::Programs;
use super::zswap::{Stuffing, ZswapMachine, ZswapNumbers};
use crate::crosscheck::error::CheckError;
use crate::crosscheck::recording::{Recording, RecordingHeader};
use largefolio_sim::kernel::Kernel;

/// The window's first byte in every process (`probe/command.h`), aligned to every folio size.
const BASE: u64 = 0x4000_0000_0000;
/// Largest I/O of a recording machine's disk (the limit of its emulated controller).
const DISK_IO_BYTES: u64 = 512 << 10;
/// The model's memory; no program fills it.
const RAM_BYTES: u64 = 4 << 30;
/// Error of a forbidden access, or of a move across areas.
const EFAULT: u32 = 14;
/// Out of memory, or nothing mapped.
const ENOMEM: u32 = 12;
const EBUSY: u32 = 16;
/// May succeed later; also a read from the empty pipe.
const EAGAIN: u32 = 11;
const EEXIST: u32 = 17;
/// Number of distinct values that one step's stores can write (`probe/cow.c`).
const VALUES_PER_STEP: u32 = 8192;
const EINVAL: u32 = 22;

pub(super) struct ProgramReplay {
    memory: Memory,
    file: OpenId,
    own: Option<Own>,
    slots: [Option<MmId>; NR_SLOTS],
    pins: VecDeque<Pin>,
    nr_pages: u64,
    nr_steps: u32,
    faults_before: u64,
    /// Pages are not read after a step until the next scan.
    is_idle: bool,
    scan: Option<Scan>,
    group: Option<GroupId>,
    swapped: SwapNumbers,
    zswapped: ZswapNumbers,
    huge: Option<HugePages>,
    unit_bytes: u64,
    has_nodes: bool,
}

#[derive(Clone, Copy)]
struct Own {
    file: MappingId,
    open: OpenId,
    writers: [Option<OpenId>; NR_SLOTS],
    is_on_disk: bool,
}

impl Own {
    fn new(memory: &mut Memory, own: OwnFile, header: &RecordingHeader) -> Self {
        let bytes = own.nr_pages * memory.rules().page.bytes();
        let is_on_disk = own.kind == FileKind::Disk;
        let file = if is_on_disk {
            let file = memory.add_file(bytes, &header.filesystem);
            memory.zero_storage(file);
            file
        } else if own.kind == FileKind::Tmpfs {
            memory.add_tmpfs_file(bytes)
        } else {
            memory.add_memory_file(bytes)
        };
        Self { file, open: memory.open(file), writers: [None; NR_SLOTS], is_on_disk }
    }
}

/// The kernel's rules with the program's settings.
fn rules_of(program: &ProcessProgram, kernel: &Kernel, recorded: &Programs) -> Rules {
    let mut rules = kernel.rules.clone();
    // Older recordings were made without MGLRU.
    rules.reclaim.lru = recorded.lists.unwrap_or(LruRule::Lists);
    for kib in &program.sizes_kib {
        rules.anon.set_size(kib << 10, SizeMode::Madvise);
    }
    // The size with the global `inherit` setting is otherwise never enabled.
    let pmd_kib = (rules.page.bytes() << rules.page.pmd_order().get()) >> 10;
    if !program.sizes_kib.contains(&pmd_kib) {
        rules.anon.set_size(pmd_kib << 10, SizeMode::Never);
    }
    set_zswap(&mut rules, program, recorded.zswap);
    rules.io_bytes = DISK_IO_BYTES;
    if let Some(shmem) = &program.shmem {
        shmem.apply(&mut rules);
    }
    if let Some(limits) = program.khugepaged {
        limits.apply(&mut rules);
    }
    rules
}

impl ProgramReplay {
    pub(super) fn new(
        program: &ProcessProgram,
        kernel: &Kernel,
        recording: &Recording<Programs>,
    ) -> Result<Self, CheckError> {
        let header = &recording.header;
        let rules = rules_of(program, kernel, &recording.body);
        let file_bytes = FILE_PAGES * rules.page.bytes();
        let huge = program.huge;
        let unit_bytes = huge.map_or(rules.page.bytes(), |huge| huge.kib << 10);
        let own_bytes = recording.body.zswap.map(|machine| machine.ram_bytes(rules.page));
        let ram_bytes =
            own_bytes.unwrap_or(RAM_BYTES) + huge.map_or(0, |huge| huge.nr_pages() * unit_bytes);
        let ram = Ram::try_new(rules.page, ram_bytes);
        let ram = ram.ok_or(MemoryError::NoRoom { bytes: ram_bytes })?;
        let pool = |huge: HugePages| HugePool {
            order: rules.page.order_of_bytes(unit_bytes),
            nr_pages: huge.nr_pages(),
            nr_lost: huge.nr_lost,
        };
        let huge_pools = huge.map(pool).into_iter().collect();
        let swap_bytes = if program.limit.is_some() { SWAP_BYTES } else { 0 };
        let nodes = program.nodes.map_or_else(Vec::new, nodes::configs);
        let config =
            Config { ram_bytes, huge_pools, swap_bytes, nodes, ..Config::new(header.arch) };
        let mut memory = Memory::with_ram(rules, &config, ram)?;
        if let Some(policy) = &kernel.policy {
            memory.set_policy(policy.0.start().map_err(CheckError::Policy)?);
        }
        let file = memory.add_memory_file(file_bytes);
        let file = memory.open(file);
        let page = memory.rules().page.bytes();
        for index in 0..FILE_PAGES {
            // Write page by page to get base pages; each page stores its number.
            let written = memory.write_file(file, index * page, &(index as u32).to_le_bytes());
            debug_assert!(written.is_ok(), "the file is small");
        }
        let own = program.own_file.map(|own| Own::new(&mut memory, own, header));
        if program.khugepaged.is_some() {
            add_keeper(&mut memory);
        }
        let first = memory.new_space();
        let others = recording.body.others;
        let group = program.limit.map(|limit| limit.begin(&mut memory, first, others));
        let slots = [Some(first), None, None, None];
        let (pins, nr_pages) = (VecDeque::new(), program.nr_pages);
        let (nr_steps, is_idle, scan) = (0, false, None);
        Ok(Self {
            memory,
            file,
            own,
            slots,
            pins,
            nr_pages,
            nr_steps,
            faults_before: 0,
            is_idle,
            scan,
            group,
            swapped: SwapNumbers::default(),
            zswapped: ZswapNumbers::default(),
            huge,
            unit_bytes,
            has_nodes: program.nodes.is_some(),
        })
    }

    fn addr(&self, page: u64) -> Vaddr {
        Vaddr(BASE + page * self.unit_bytes)
    }

    fn bytes(&self, range: PageRange) -> (Vaddr, u64) {
        (self.addr(range.first), range.nr * self.unit_bytes)
    }

    /// Runs a step. An error is the kernel's error number.
    pub(super) fn step(&mut self, step: &ProcessStep) -> Result<(), u32> {
        self.nr_steps += 1;
        self.refresh();
        self.faults_before = self.memory.counters().pgfault;
        let mm = self.slots[step.slot].ok_or(EINVAL)?;
        if self.group.is_some() {
            self.memory.switch_to(mm);
        }
        if let Some(done) = self.huge_step(mm, step.op) {
            return done;
        }
        match step.op {
            ProcessOp::MapHuge(..) | ProcessOp::Trim(..) => Err(EINVAL),
            ProcessOp::Read(range) => self.read(mm, range),
            ProcessOp::Write(range) => self.write(mm, range),
            ProcessOp::Stuff(range, stuffing) => self.stuff(mm, range, stuffing),
            ProcessOp::Zswap(is_on) => {
                self.switch_zswap(is_on);
                Ok(())
            }
            ProcessOp::Share(range, from, how) => self.share(mm, range, from, how),
            ProcessOp::Load(_)
            | ProcessOp::Open
            | ProcessOp::Close
            | ProcessOp::Put(_)
            | ProcessOp::Sync => self.call(step),
            ProcessOp::Cold(range) => self.advise(mm, range, Madvice::Cold),
            ProcessOp::Pageout(range) => self.advise(mm, range, Madvice::Pageout),
            ProcessOp::Collapse(range) => self.collapse(mm, range, None),
            ProcessOp::CollapseTo(range, order) => self.collapse(mm, range, Some(order)),
            ProcessOp::Punch(_)
            | ProcessOp::Fill(..)
            | ProcessOp::Size(_)
            | ProcessOp::Reserve(_) => self.change_own(step.op),
            op if op.is_about_nodes() => self.place(mm, op),
            ProcessOp::Pin(page) => self.pin(mm, page),
            ProcessOp::Unpin => self.unpin(),
            ProcessOp::Lock(range, lock) => self.lock(mm, range, lock),
            ProcessOp::LockAll(all) => {
                self.lock_all(mm, all);
                Ok(())
            }
            ProcessOp::Fork(child) => self.fork(mm, step.slot, child),
            ProcessOp::Scan => {
                self.scan();
                Ok(())
            }
            ProcessOp::Idle => {
                self.idle(mm);
                Ok(())
            }
            ProcessOp::Exit => {
                self.exit(mm, step.slot);
                Ok(())
            }
            ProcessOp::Remap(range, to) => self.remap(mm, range, to),
            ProcessOp::Map(range, source, advice) => self.map(mm, range, source, advice),
            ProcessOp::Unmap(range) => {
                let (at, len) = self.bytes(range);
                self.memory.munmap(mm, at, len).map_err(|_| EINVAL)
            }
            ProcessOp::Protect(range, prot) => {
                let (at, len) = self.bytes(range);
                self.protect_part(mm, at, len, prot)
            }
            ProcessOp::Drop(range) => self.advise(mm, range, Madvice::Dontneed),
            ProcessOp::Free(range) => self.advise(mm, range, Madvice::Free),
            ProcessOp::Advise(range, advice) => self.advise(mm, range, advice),
            _ => unreachable!("about nodes"),
        }
    }

    fn fork(&mut self, mm: MmId, slot: usize, child: usize) -> Result<(), u32> {
        let new = self.memory.fork(mm).map_err(|_| EINVAL)?;
        self.slots[child] = Some(new);
        self.inherit_writer(slot, child);
        // The parent leaves its cgroup for the fork, and both join it afterwards.
        if let Some(group) = self.group {
            self.memory.join_group(new, group);
            self.memory.join_group(mm, group);
        }
        Ok(())
    }

    /// Policies and moves. With several CPUs, the recording program drains all batches before each
    /// step.
    fn place(&mut self, mm: MmId, op: ProcessOp) -> Result<(), u32> {
        let done = match op {
            ProcessOp::Node(node) => self.memory.run_on(mm, node),
            ProcessOp::Policy(policy) => self.memory.set_mempolicy(mm, policy),
            ProcessOp::Bind(range, Binding { policy, pages }) => {
                self.memory.mbind(mm, self.bytes(range), policy, pages)
            }
            ProcessOp::Move(range, MoveTo { node, pages }) => {
                let addrs: Vec<Vaddr> =
                    (range.first..range.end()).map(|page| self.addr(page)).collect();
                self.memory.move_pages(mm, addrs, node, pages)
            }
            ProcessOp::Hint => {
                self.memory.mark_for_balancing(mm);
                Ok(())
            }
            // The recording program has every privilege.
            ProcessOp::Migrate(ends) => self.memory.migrate_pages(mm, ends, BoundPages::MoveAll),
            _ => unreachable!("handled by step"),
        };
        done.map_err(|_| EINVAL)
    }

    /// Collapses to this order, or to the PMD order.
    fn collapse(&mut self, mm: MmId, range: PageRange, to: Option<Order>) -> Result<(), u32> {
        let (at, len) = self.bytes(range);
        let done = match to {
            None => self.memory.madvise_collapse(mm, at, len),
            Some(order) => self.memory.madvise_collapse_to(mm, at, len, order),
        };
        done.map_err(|error| errno(error.errno))
    }

    fn remap(&mut self, mm: MmId, range: PageRange, to: u64) -> Result<(), u32> {
        let of = |(addr, len_bytes): (Vaddr, u64)| AddrRange { addr, len_bytes };
        let to = self.bytes(PageRange { first: to, nr: range.nr });
        self.memory.mremap(mm, of(self.bytes(range)), of(to)).map_err(|_| EFAULT)
    }

    fn pin(&mut self, mm: MmId, page: u64) -> Result<(), u32> {
        let pin = self.memory.hold(mm, self.addr(page)).map_err(|_| EFAULT)?;
        self.pins.push_back(pin);
        Ok(())
    }

    fn unpin(&mut self) -> Result<(), u32> {
        let pin = self.pins.pop_front().ok_or(EAGAIN)?;
        self.memory.unpin(pin);
        Ok(())
    }

    fn lock_all(&mut self, mm: MmId, LockAll { kind, now, later }: LockAll) {
        let is_unlock = !now && !later;
        let later = if later { kind } else { Lock::None };
        self.memory.mlockall(mm, (is_unlock || now).then_some(kind), later);
    }

    /// mlock stops at the first hole, and then populates nothing.
    fn lock(&mut self, mm: MmId, range: PageRange, lock: Lock) -> Result<(), u32> {
        let (at, len) = self.bytes(range);
        let mapped = self.mapped_bytes(mm, at, len);
        if mapped > 0 {
            self.memory.set_lock(mm, at, mapped, lock).map_err(|_| EINVAL)?;
        }
        if mapped < len {
            return Err(ENOMEM);
        }
        self.memory.populate_locked(mm, at, len).map_err(|_| ENOMEM)
    }

    /// Maps a range that must be free (`MAP_FIXED_NOREPLACE`). A process that called mlockall for
    /// later mappings populates it.
    fn map_free(&mut self, mm: MmId, range: PageRange, map: Map) -> Result<(), u32> {
        let (at, len) = self.bytes(range);
        let page = self.memory.rules().page;
        let (start, end) = (at.vpn(page), Vaddr(at.0 + len).vpn(page));
        if self.memory.space(mm).vmas.nr_in(start, end) > 0 {
            return Err(EEXIST);
        }
        self.memory.mmap(mm, map.at(at)).map_err(|_| EINVAL)?;
        // Pages that cannot be populated fault later.
        let _ = self.memory.populate_locked(mm, at, len);
        Ok(())
    }

    fn idle(&mut self, mm: MmId) {
        self.read_mapped();
        self.memory.clear_refs(mm);
        self.is_idle = true;
    }

    /// Changes the program's own file by one call.
    fn change_own(&mut self, op: ProcessOp) -> Result<(), u32> {
        let own = self.own.ok_or(EINVAL)?;
        let page = self.memory.rules().page.bytes();
        let bytes =
            |range: PageRange| ByteRange { pos: range.first * page, len_bytes: range.nr * page };
        match op {
            ProcessOp::Punch(range) => {
                self.memory.punch_hole(own.file, range.first * page, range.nr * page);
            }
            ProcessOp::Size(nr_pages) => self.memory.truncate(own.file, nr_pages * page),
            ProcessOp::Reserve(range) => {
                let (what, size) = (Fallocate::Allocate, FileSize::Grows);
                self.memory.fallocate(own.file, bytes(range), what, size);
            }
            ProcessOp::Fill(range, start) => {
                let mut data = vec![0; (range.nr * page) as usize];
                for (value, piece) in self.values().zip(data.chunks_mut(page as usize)) {
                    piece[..size_of::<u32>()].copy_from_slice(&value.to_le_bytes());
                }
                let from = if start == FillStart::Middle { page / 2 } else { 0 };
                let pos = range.first * page + from;
                self.memory.write_file(own.open, pos, &data).map_err(|_| ENOMEM)?;
            }
            _ => unreachable!("handled by step"),
        }
        Ok(())
    }

    fn map(
        &mut self,
        mm: MmId,
        range: PageRange,
        source: AreaSource,
        advice: Option<Madvice>,
    ) -> Result<(), u32> {
        let (_, len) = self.bytes(range);
        let pgoff = AreaSource::file_page(range.first);
        let map = match source {
            AreaSource::Anon => Map::anon(len, Prot::READ_WRITE),
            AreaSource::Shared => Map::anon(len, Prot::READ_WRITE).shared(),
            AreaSource::Segment => {
                Map::anon(len, Prot::READ_WRITE).shared().used_as(Purpose::Segment)
            }
            AreaSource::Stack => Map::anon(len, Prot::READ_WRITE).used_as(Purpose::Stack),
            AreaSource::File => Map::file(self.file, pgoff, len, Prot::READ_WRITE),
        };
        self.map_free(mm, range, map)?;
        advice.map_or(Ok(()), |advice| self.advise(mm, range, advice))
    }

    fn advise(&mut self, mm: MmId, range: PageRange, advice: Madvice) -> Result<(), u32> {
        let (at, len) = self.bytes(range);
        self.memory.madvise(mm, at, len, advice).map_err(|_| EINVAL)?;
        // The kernel applies advice to the mapped parts even if the range has holes.
        if self.is_mapped(mm, range) { Ok(()) } else { Err(ENOMEM) }
    }

    fn is_mapped(&self, mm: MmId, range: PageRange) -> bool {
        let first = Vaddr(BASE).vpn(self.memory.rules().page);
        let end = first.plus(range.end());
        let mut at = first.plus(range.first);
        while let Some(vma) = self.memory.space(mm).vmas.find(at) {
            if vma.end >= end {
                return true;
            }
            at = vma.end;
        }
        false
    }

    fn read(&mut self, mm: MmId, range: PageRange) -> Result<(), u32> {
        for page in range.first..range.end() {
            let at = self.addr(page);
            self.memory.touch(mm, at, fault::Access::Read).map_err(|_| EFAULT)?;
        }
        Ok(())
    }

    /// Stores consecutive values, starting with a value unique to the step.
    fn write(&mut self, mm: MmId, range: PageRange) -> Result<(), u32> {
        for (value, page) in self.values().zip(range.first..range.end()) {
            let at = self.addr(page);
            self.memory.store(mm, at, &value.to_le_bytes()).map_err(|_| EFAULT)?;
        }
        Ok(())
    }

    fn exit(&mut self, mm: MmId, slot: usize) {
        self.memory.exit(mm);
        self.slots[slot] = None;
        self.close_writer(slot);
    }

    fn switch_zswap(&mut self, is_on: bool) {
        self.memory.change_rules(|rules| rules.zswap.enabled = is_on);
    }

    fn stuff(&mut self, mm: MmId, range: PageRange, stuffing: Stuffing) -> Result<(), u32> {
        for (value, page) in self.values().zip(range.first..range.end()) {
            let at = self.addr(page);
            let bytes = stuffing.page(value, self.memory.rules().page);
            self.memory.store(mm, at, &bytes).map_err(|_| EFAULT)?;
            self.memory.set_content(mm, at, stuffing.content());
        }
        Ok(())
    }

    fn share(&mut self, mm: MmId, range: PageRange, from: u64, how: OwnMapping) -> Result<(), u32> {
        let own = self.own.ok_or(EINVAL)?;
        let (_, len) = self.bytes(range);
        let map = Map::file(own.open, from, len, how.prot);
        self.map_free(mm, range, if how.sharing == Sharing::Shared { map.shared() } else { map })
    }

    fn inherit_writer(&mut self, parent: usize, child: usize) {
        let Some(own) = &mut self.own else { return };
        own.writers[child] = own.writers[parent];
        if let Some(writer) = own.writers[child] {
            self.memory.share_open(writer);
        }
    }

    fn close_writer(&mut self, slot: usize) {
        let writer = self.own.as_mut().and_then(|own| own.writers[slot].take());
        if let Some(writer) = writer {
            self.memory.close(writer);
        }
    }

    fn call(&mut self, &ProcessStep { slot, op }: &ProcessStep) -> Result<(), u32> {
        let mut own = self.own.ok_or(EINVAL)?;
        let page = self.memory.rules().page.bytes();
        match op {
            ProcessOp::Load(range) => {
                for index in range.first..range.end() {
                    self.memory.pread(own.open, index * page, page).map_err(|_| EINVAL)?;
                }
            }
            ProcessOp::Put(range) => {
                let writer = own.writers[slot].ok_or(EINVAL)?;
                let values = self.values();
                for (value, index) in values.zip(range.first..range.end()) {
                    let bytes = value.to_le_bytes();
                    self.memory.write_file(writer, index * page, &bytes).map_err(|_| EINVAL)?;
                }
            }
            ProcessOp::Open => {
                let writer = self.memory.open_for_write(own.file).map_err(|_| EINVAL)?;
                own.writers[slot] = Some(writer);
            }
            ProcessOp::Close => {
                let writer = own.writers[slot].take().ok_or(EINVAL)?;
                self.memory.close(writer);
            }
            ProcessOp::Sync => self.memory.sync_file(own.file),
            _ => unreachable!("handled by step"),
        }
        self.own = Some(own);
        Ok(())
    }

    /// Wakes khugepaged once. Only now can shared memory be collapsed; at all other times it gets
    /// base pages (`probe/khugepaged.h`).
    fn scan(&mut self) {
        self.read_mapped();
        let counted = |memory: &Memory| memory.counters().collapse;
        let before = counted(&self.memory);
        self.memory.change_rules(|rules| rules.shmem.enabled = ShmemEnabled::Advise);
        self.memory.watch();
        self.memory.run_khugepaged(self.memory.khugepaged_wakes_ns());
        let observed = self.memory.take_observed();
        self.memory.change_rules(|rules| rules.shmem.enabled = ShmemEnabled::Never);
        let mut scan = Scan::default();
        for event in observed {
            let Observed::Scanned { mm, is_anon, outcome, .. } = event else { continue };
            if let Some(slot) = self.slots.iter().position(|slot| *slot == Some(mm)) {
                scan.add_visit(slot, is_anon, outcome);
            }
        }
        let after = counted(&self.memory);
        scan.nr_passes = after.full_scans - before.full_scans;
        scan.nr_collapsed = Some(after.pages_collapsed - before.pages_collapsed);
        self.scan = Some(scan);
        self.is_idle = false;
    }

    /// Returns the faults of the last step.
    pub(super) fn nr_faults(&self) -> u64 {
        self.memory.counters().pgfault - self.faults_before
    }

    pub(super) fn take_scan(&mut self) -> Option<Scan> {
        self.scan.take()
    }

    /// Reads every readable page, as the probe does after each step unless pages must look unused.
    /// Only the accessed bits matter, and only to khugepaged.
    fn read_mapped(&mut self) {
        if self.is_idle {
            return;
        }
        let page = self.memory.rules().page;
        let first = Vaddr(BASE).vpn(page);
        for mm in self.slots.iter().flatten() {
            let leaves = self.memory.space(*mm).table.leaves(first, self.nr_pages);
            let is_unread = |leaf: &Leaf| {
                !leaf.flags.contains(PteFlags::YOUNG) && !leaf.flags.contains(PteFlags::NO_ACCESS)
            };
            let unread: Vec<Vpn> =
                leaves.filter(is_unread).map(|leaf| leaf.first_vpn.max(first)).collect();
            for vpn in unread {
                let _ = self.memory.touch(*mm, vpn.vaddr(page), fault::Access::Read);
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = u32> + use<> {
        (self.nr_steps - 1) * VALUES_PER_STEP + 1..
    }

    pub(super) fn validate(&self) -> Result<(), Violation> {
        self.memory.validate()
    }
}

fn set_zswap(rules: &mut Rules, program: &ProcessProgram, machine: Option<ZswapMachine>) {
    // Machines for programs with a limit, or with zswap, charge for kernel memory only if the
    // program limits zswap.
    let is_plain = program.limit.is_none() && machine.is_none();
    rules.zswap.charged = is_plain || program.zswap.is_some();
    let Some(machine) = machine else { return };
    machine.apply(rules);
    if let Some(limits) = program.zswap {
        limits.apply(rules);
    }
}

fn errno(error: Errno) -> u32 {
    match error {
        Errno::Einval => EINVAL,
        Errno::Eagain => EAGAIN,
        Errno::Enomem => ENOMEM,
        Errno::Ebusy => EBUSY,
    }
}
