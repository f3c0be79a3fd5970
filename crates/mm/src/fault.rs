//! Faults: a process touches a page that its page table does not map.
//!
//! Corresponds to: `handle_mm_fault`, `handle_pte_fault`, `do_fault`, `do_read_fault`,
//! `do_cow_fault`, `do_shared_fault`.
//!
//! ```text
//!   touch -> PTE allows it? -- yes --> done
//!              | no
//!              v
//!            VMA --- anonymous ----------------------------> anon, huge
//!              |--- mapped read-only, store ---------------> cow
//!              |
//!              | file, read: fault-around (around) --mapped--> done
//!              |                 | not mapped
//!              |                 v
//!              +--> file: in cache? -- no --> sync: read ahead --+
//!                     | yes: async step                          |
//!                     v                    <---- retry ----------+
//!                   finish: PMD, whole folio, or one PTE           (docs/behaviour B.1, B.2)
//! ```
//!
//! A fault that starts I/O drops its lock and is retried; fault-around may find the page on the
//! retry. The miss counter depends on the steps that a retry repeats, so the model runs each pass
//! separately (`Pass`).

mod anon;
mod around;
mod cow;
mod decide;
mod file;
mod finish;
mod huge;
mod readahead;
mod stack;
mod swap;
mod swap_ahead;

use crate::memory::Memory;
use crate::pgtable::{Leaf, PteFlags};
use crate::rules::MinorRetry;
use crate::units::{MmId, Vaddr, Vpn};
use crate::vma::{AccessAdvice, Backing, OpenId, Sharing, Vma};

/// Kind of memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// Why a touch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// No mapping at the address (SIGSEGV).
    #[error("address {0:#x} is not mapped")]
    NotMapped(u64),
    /// The mapping does not allow the access (SIGSEGV).
    #[error("address {0:#x} may not be accessed this way")]
    Protected(u64),
    /// The page is beyond the end of the file (SIGBUS).
    #[error("address {0:#x} is past the end of its file")]
    BeyondFile(u64),
    /// The hugetlb pool has no page for this process (SIGBUS, O.3.2).
    #[error("the pool has no free huge page for address {0:#x}")]
    NoHugePage(u64),
    /// No page is free.
    #[error("out of memory at address {0:#x}: give the model more memory")]
    OutOfMemory(u64),
    /// The process's cgroup is at its limit, and nothing in it can be reclaimed.
    #[error(
        "out of memory at address {0:#x}: the control group is at its limit and nothing in it can \
         be reclaimed; raise the limit, or give the model swap space"
    )]
    GroupOutOfMemory(u64),
}

/// Result of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// Entry that maps the page now.
    pub leaf: Leaf,
    /// Whether it faulted, and how.
    pub outcome: FaultOutcome,
}

/// Whether a touch faulted, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// Already mapped: no fault.
    Hit,
    /// A fault that did not wait for I/O.
    Minor,
    /// A fault the task counts as major: it was retried for I/O (B.2.5).
    Major,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) mm: MmId,
    pub(crate) vpn: Vpn,
    pub(crate) access: Access,
    pub(crate) vma: Vma,
    pub(crate) pass: Pass,
    pub(crate) cause: FaultCause,
}

/// What takes a fault. It decides how a retry continues (B.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FaultCause {
    /// A program's access.
    #[default]
    Access,
    /// `MADV_POPULATE_READ` or `MADV_POPULATE_WRITE`.
    Advice,
    /// `MAP_POPULATE` or mlock.
    Populate,
}

impl FaultCause {
    /// Whether the page gets other contents: what is populated stays zeroes.
    fn stores(self, access: Access) -> bool {
        access == Access::Write && self == Self::Access
    }
}

impl Fault {
    fn error(&self, error: fn(u64) -> FaultError, page_shift: u32) -> FaultError {
        error(self.vpn.0 << page_shift)
    }

    fn is_private_write(&self) -> bool {
        self.access == Access::Write && self.vma.sharing == Sharing::Private
    }

    pub(crate) fn open(&self) -> OpenId {
        let Backing::File { open, .. } = self.vma.backing else {
            unreachable!("file faults happen in file areas")
        };
        open
    }

    fn index(&self) -> u64 {
        self.vma.index_of(self.vpn)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    First,
    Again,
    /// Retried with `FAULT_FLAG_TRIED`: no async step, no further retry.
    Tried,
}

impl Pass {
    fn is_tried(self) -> bool {
        self == Self::Tried
    }

    fn next(self, retry: Retry, rule: MinorRetry, cause: FaultCause) -> Self {
        // I/O on a cached page: the fault does not count as tried (B.3.1.1).
        let is_untried = (self, retry, rule) == (Self::First, Retry::Minor, MinorRetry::Untried);
        match cause {
            FaultCause::Populate => Self::Again,
            FaultCause::Access if is_untried => Self::Again,
            FaultCause::Access | FaultCause::Advice => Self::Tried,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    Minor,
    Major,
}

pub(crate) enum PassEnd {
    Mapped,
    Retry(Retry),
}

/// Page tables larger than 1/8 of memory count as out of memory: the allocator does not track them.
const TABLES_PART: u64 = 8;
const STEPS_OF_FAULT: u64 = 4;
const NR_TRIES_MAX: u32 = 16;
/// More passes than cold, again and tried mean that the model itself loops.
const NR_PASSES_MAX: u32 = 4;

impl Memory {
    /// Touches one address, faulting as the kernel would.
    ///
    /// # Errors
    /// Fails if the access gets SIGSEGV or SIGBUS, or memory is exhausted.
    pub fn touch(&mut self, mm: MmId, addr: Vaddr, access: Access) -> Result<Touched, FaultError> {
        self.touch_for(mm, addr, access, FaultCause::Access)
    }

    pub(crate) fn touch_for(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        access: Access,
        cause: FaultCause,
    ) -> Result<Touched, FaultError> {
        let vpn = addr.vpn(self.rules.page);
        if let Some(leaf) = self.space(mm).table.leaf(vpn)
            && (access != Access::Write || leaf.flags.contains(PteFlags::WRITABLE))
            && !leaf.flags.contains(PteFlags::NO_ACCESS)
        {
            self.core.folios.note_access(leaf.pfn_of(vpn));
            let leaf = match access {
                Access::Write => self.stored(mm, vpn, leaf, cause),
                Access::Read | Access::Exec => self.loaded(mm, vpn, leaf),
            };
            return Ok(Touched { leaf, outcome: FaultOutcome::Hit });
        }
        if let Some(touched) = self.touch_huge(mm, vpn, access) {
            return touched;
        }
        self.enter(mm);
        self.begin_call();
        let mut nr_tries = 0;
        let touched = loop {
            nr_tries += 1;
            self.core.begin_fault();
            let touched = self.fault(mm, vpn, access, cause);
            self.core.end_fault();
            self.core.folios.set_fault(false);
            match touched {
                Err(FaultError::OutOfMemory(addr)) if self.take_group_oom() => {
                    return Err(FaultError::GroupOutOfMemory(addr));
                }
                Err(FaultError::OutOfMemory(_))
                    if nr_tries < NR_TRIES_MAX && self.reclaim_at_last() > 0 => {}
                Err(error) => {
                    // The kernel allocates page tables down to the entry before it checks the file.
                    if let FaultError::BeyondFile(_) = error {
                        self.space_mut(mm).table.add_pmd_table(vpn);
                    }
                    return Err(error);
                }
                Ok(touched) => break touched,
            }
        };
        self.core.folios.note_access(touched.leaf.pfn_of(vpn));
        if cause.stores(access) {
            self.core.folios.note_write(touched.leaf.pfn_of(vpn));
        }
        Ok(touched)
    }

    /// Notes a store that needed no walk of the page table, because a TLB had the entry.
    pub fn note_store(&mut self, mm: MmId, vpn: Vpn) {
        let pte = self.space(mm).table.pte(vpn);
        if pte.is_present() {
            self.core.folios.note_write(pte.pfn());
        }
    }

    fn loaded(&mut self, mm: MmId, vpn: Vpn, leaf: Leaf) -> Leaf {
        if leaf.flags.contains(PteFlags::YOUNG) {
            return leaf;
        }
        let table = &mut self.space_mut(mm).table;
        table.add_flags(vpn, PteFlags::YOUNG);
        table.leaf(vpn).unwrap_or(leaf)
    }

    fn stored(&mut self, mm: MmId, vpn: Vpn, leaf: Leaf, cause: FaultCause) -> Leaf {
        if cause.stores(Access::Write) {
            self.core.folios.note_write(leaf.pfn_of(vpn));
        }
        let marks = PteFlags::YOUNG | PteFlags::DIRTY;
        if leaf.flags.contains(marks) {
            return leaf;
        }
        let table = &mut self.space_mut(mm).table;
        table.add_flags(vpn, marks);
        table.leaf(vpn).unwrap_or(leaf)
    }

    fn fault(
        &mut self,
        mm: MmId,
        vpn: Vpn,
        access: Access,
        cause: FaultCause,
    ) -> Result<Touched, FaultError> {
        let addr = vpn.0 << self.rules.page.shift();
        let found = self.space(mm).vmas.find(vpn).copied();
        let found = found.or_else(|| self.grow_stack(mm, vpn));
        let vma = found.ok_or(FaultError::NotMapped(addr))?;
        let is_allowed = match access {
            Access::Read => vma.prot.can_read,
            Access::Write => vma.prot.can_write,
            Access::Exec => vma.prot.can_exec,
        };
        if !is_allowed {
            return Err(FaultError::Protected(addr));
        }
        if self.space(mm).table.stats().nr_tables > self.core.buddy.nr_pages() / TABLES_PART {
            return Err(FaultError::OutOfMemory(addr));
        }
        self.balance_dirty();
        self.keep_balance();
        self.core.counters.pgfault += 1;
        self.core.work.add(STEPS_OF_FAULT);
        self.core.folios.set_fault(vma.advice.access == AccessAdvice::Normal);
        let fault = Fault { mm, vpn, access, vma, pass: Pass::First, cause };
        if self.has_marks && self.hint(&fault) {
            return Ok(self.touched(mm, vpn, FaultOutcome::Minor));
        }
        let is_present = self.space(mm).table.leaf(vpn).is_some();
        let swapped = self.space(mm).swapped.get(vpn);
        let outcome = match vma.backing {
            _ if is_present => self.write_protect_fault(&fault)?,
            _ if let Some(slot) = swapped => self.swap_fault(&fault, slot)?,
            Backing::Anon => self.anon_fault(&fault)?,
            Backing::File { .. } => self.file_fault(fault)?,
            Backing::Hugetlb(_) => unreachable!("touched as a huge page"),
        };
        Ok(self.touched(mm, vpn, outcome))
    }

    fn touched(&self, mm: MmId, vpn: Vpn, outcome: FaultOutcome) -> Touched {
        let Some(leaf) = self.space(mm).table.leaf(vpn) else {
            unreachable!("a fault that succeeds maps its page")
        };
        Touched { leaf, outcome }
    }

    /// Handles a hinting fault, if it is one. Returns whether the access succeeds now; a store may
    /// fault again.
    fn hint(&mut self, fault: &Fault) -> bool {
        let leaf = self.space(fault.mm).table.leaf(fault.vpn);
        let Some(leaf) = leaf.filter(|leaf| leaf.flags.contains(PteFlags::NO_ACCESS)) else {
            return false;
        };
        self.hinting_fault(fault, &leaf);
        let leaf = self.space(fault.mm).table.leaf(fault.vpn);
        let is_writable = leaf.is_some_and(|leaf| leaf.flags.contains(PteFlags::WRITABLE));
        if fault.access == Access::Write && !is_writable {
            self.core.counters.pgfault += 1;
            return false;
        }
        true
    }

    pub(super) fn file_fault(&mut self, mut fault: Fault) -> Result<FaultOutcome, FaultError> {
        for _ in 0..NR_PASSES_MAX {
            match self.file_pass(&fault)? {
                PassEnd::Mapped if fault.pass.is_tried() => {
                    self.core.counters.pgmajfault += 1;
                    return Ok(FaultOutcome::Major);
                }
                PassEnd::Mapped => return Ok(FaultOutcome::Minor),
                PassEnd::Retry(retry) => {
                    self.core.counters.nr_retry += 1;
                    let rule = self.rules.fault.minor_retry;
                    fault.pass = fault.pass.next(retry, rule, fault.cause);
                }
            }
        }
        unreachable!("a tried fault does not retry")
    }

    /// One pass: fault-around for reads, then the handler and the finishing step (B.1.2).
    fn file_pass(&mut self, fault: &Fault) -> Result<PassEnd, FaultError> {
        // A load can use any page cached around it; a store changes only its own page (B.1.2).
        if fault.access != Access::Write && self.fault_around(fault) {
            self.core.counters.nr_around += 1;
            return Ok(PassEnd::Mapped);
        }
        if fault.is_private_write() {
            // The kernel does this first, even if the store is beyond the end of the file.
            self.mark_anon(fault.mm, fault.vpn);
        }
        let entry = match self.find_or_read(fault)? {
            file::Lookup::Cached(entry) => entry,
            file::Lookup::Retry(cause) => return Ok(PassEnd::Retry(cause)),
        };
        if fault.is_private_write() {
            self.copy_file_page(fault, entry)?;
        } else {
            self.finish(fault, entry);
            self.core.counters.nr_finish += 1;
        }
        Ok(PassEnd::Mapped)
    }
}
