//! Runs the steps of a random program on a machine.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::fault::Access;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::pin::Pin;
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::Rules;
use largefolio_mm::units::AddrRange;
use largefolio_mm::units::{GroupId, MappingId, MmId, Order, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};

use crate::anon::program::{BEFORE, FILES, Step, What};
use crate::anon::world::{BASE, PAGE};

pub(crate) const NR_GROUPS: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Regroup {
    pub(crate) group: usize,
    pub(crate) what: GroupChange,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupChange {
    Limits(GroupLimits),
    Join(usize),
    Enter,
    Reclaim(u64),
}

pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) mms: Vec<Option<MmId>>,
    pub(crate) files: Vec<MappingId>,
    pub(crate) opens: Vec<OpenId>,
    pub(crate) pins: Vec<Option<Pin>>,
    groups: Vec<GroupId>,
    writers: [Option<OpenId>; FILES.len()],
}

pub(crate) fn addr(at: u64) -> Vaddr {
    Vaddr(BASE + at * PAGE - BEFORE * PAGE)
}

pub(crate) fn prot(can_write: bool) -> Prot {
    if can_write { Prot::READ_WRITE } else { Prot::READ_EXEC }
}

impl Machine {
    pub(crate) fn new(rules: Rules, config: &Config, ram: Ram) -> Self {
        let mut memory = Memory::with_ram(rules, config, ram).unwrap();
        let files: Vec<_> = FILES.map(|(fs, size)| memory.add_file(size, fs)).into();
        let opens = files.iter().map(|&file| memory.open(file)).collect();
        let mms = vec![Some(memory.new_space())];
        let writers = [None; FILES.len()];
        Self { memory, mms, files, opens, pins: Vec::new(), groups: Vec::new(), writers }
    }

    pub(crate) fn regroup(&mut self, change: Regroup) {
        while self.groups.len() < NR_GROUPS {
            self.groups.push(self.memory.add_group(GroupLimits::default()));
        }
        let group = self.groups[change.group];
        match change.what {
            GroupChange::Limits(limits) => self.memory.set_group_limits(group, limits),
            GroupChange::Join(of) => {
                if let Some(mm) = self.mms.get(of).copied().flatten() {
                    self.memory.join_group(mm, group);
                }
            }
            GroupChange::Enter => self.memory.enter_group(group),
            GroupChange::Reclaim(nr_pages) => {
                self.memory.reclaim_group(group, nr_pages);
            }
        }
    }

    fn mm(&self, of: usize) -> MmId {
        self.mms[of].unwrap()
    }

    pub(crate) fn run(&mut self, step: Step) -> bool {
        match step {
            Step::Map { of, at, nr, what, can_write } => self.map(of, (at, nr), what, can_write),
            Step::Unmap { of, at, nr } => {
                self.memory.munmap(self.mm(of), addr(at), nr * PAGE).is_ok()
            }
            Step::Protect { of, at, nr, can_write } => {
                self.sync_for(can_write);
                self.memory.mprotect(self.mm(of), addr(at), nr * PAGE, prot(can_write)).is_ok()
            }
            Step::Advise { of, at, nr, advice } => {
                self.memory.madvise(self.mm(of), addr(at), nr * PAGE, advice).is_ok()
            }
            Step::Arm { of, at, nr } => {
                self.memory.arm_userfaultfd(self.mm(of), addr(at), nr * PAGE).is_ok()
            }
            Step::Remap { of, at, nr, to, nr_new } => {
                let from = AddrRange { addr: addr(at), len_bytes: nr * PAGE };
                let to = AddrRange { addr: addr(to), len_bytes: nr_new * PAGE };
                self.memory.mremap(self.mm(of), from, to).is_ok()
            }
            Step::Load { of, at } => self.touch(of, at, Access::Read),
            Step::Store { of, at, .. } => self.touch(of, at, Access::Write),
            Step::Pin { of, at, access } => {
                let Ok(pin) = self.memory.pin(self.mm(of), addr(at), access) else { return false };
                self.pins.push(Some(pin));
                true
            }
            Step::Unpin { pin } => {
                let pin = self.pins.get_mut(pin).and_then(Option::take);
                pin.map(|pin| self.memory.unpin(pin)).is_some()
            }
            Step::Device { pin, .. } => self.pins.get(pin).is_some_and(Option::is_some),
            Step::Fork { of } => {
                let Ok(child) = self.memory.fork(self.mm(of)) else { return false };
                self.mms.push(Some(child));
                true
            }
            Step::Exit { of } => {
                self.memory.exit(self.mm(of));
                self.mms[of] = None;
                true
            }
            Step::Collapse { of, at, nr, order } => self.collapse(of, (at, nr), order),
            Step::Run { of, file } => self.memory.run(self.mm(of), self.files[file]).is_ok(),
            _ => self.run_in_kernel(step),
        }
    }

    fn run_in_kernel(&mut self, step: Step) -> bool {
        match step {
            Step::Write { file, pos, len, .. } => {
                let Some(writer) = self.open_for_write(file) else { return false };
                let is_written = self.memory.pwrite(self.opens[file], pos, len).is_ok();
                self.memory.close(writer);
                is_written
            }
            Step::Truncate { file, size } => {
                self.memory.truncate(self.files[file], size);
                true
            }
            Step::Punch { file, pos, len } => {
                self.memory.punch_hole(self.files[file], pos, len);
                true
            }
            Step::DropCache { file } => {
                self.memory.drop_cache(self.files[file]);
                true
            }
            Step::Shrink { nr } => {
                self.memory.shrink_deferred(nr);
                true
            }
            Step::Reclaim { nr } => {
                self.memory.reclaim_pages(nr);
                true
            }
            Step::Compact { order } => {
                self.memory.compact_in_advance();
                self.memory.compact(Order::new(order))
            }
            Step::Khugepaged { nr } => {
                for _ in 0..nr {
                    let wake_ns = self.memory.khugepaged_wakes_ns();
                    self.memory.run_khugepaged(wake_ns);
                }
                true
            }
            Step::Sync { file } => {
                self.memory.sync_file(self.files[file]);
                true
            }
            Step::Writer { file, is_held } => {
                let writer = self.open_for_write(file);
                let before = std::mem::replace(&mut self.writers[file], writer);
                let done = if is_held { before } else { self.writers[file].take().or(before) };
                if let Some(done) = done {
                    self.memory.close(done);
                }
                writer.is_some()
            }
            _ => unreachable!("a step of a process"),
        }
    }

    fn open_for_write(&mut self, file: usize) -> Option<OpenId> {
        self.memory.sync_file(self.files[file]);
        self.memory.open_for_write(self.files[file]).ok()
    }

    fn sync_for(&mut self, can_write: bool) {
        for &file in self.files.iter().filter(|_| can_write) {
            self.memory.sync_file(file);
        }
    }

    fn collapse(&mut self, of: usize, (at, nr): (u64, u64), order: Option<u8>) -> bool {
        let (mm, at, len) = (self.mm(of), addr(at), nr * PAGE);
        match order {
            None => self.memory.madvise_collapse(mm, at, len).is_ok(),
            Some(order) => self.memory.madvise_collapse_to(mm, at, len, Order::new(order)).is_ok(),
        }
    }

    fn touch(&mut self, of: usize, at: u64, access: Access) -> bool {
        self.memory.touch(self.mm(of), addr(at), access).is_ok()
    }

    fn map(&mut self, of: usize, (at, nr): (u64, u64), what: What, can_write: bool) -> bool {
        let (len, prot) = (nr * PAGE, prot(can_write));
        self.sync_for(can_write && matches!(what, What::Shared { .. }));
        let map = match what {
            What::Anon => Map::anon(len, prot),
            What::SharedAnon => Map::anon(len, prot).shared(),
            What::Private { file, pgoff } => Map::file(self.opens[file], pgoff, len, prot),
            What::Shared { file, pgoff } => {
                let open = self.memory.open(self.files[file]);
                let map = Map::file(open, pgoff, len, prot).shared();
                let is_mapped = self.memory.mmap(self.mm(of), map.at(addr(at))).is_ok();
                self.memory.close(open);
                return is_mapped;
            }
        };
        self.memory.mmap(self.mm(of), map.at(addr(at))).is_ok()
    }
}
