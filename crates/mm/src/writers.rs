//! Opening files for writing, and executing them (docs/behaviour H.2, H.3).
//!
//! Corresponds to: `do_dentry_open`, `exe_file_deny_write_access`.
//!
//! ```text
//!                      | writer opens              | process runs it        | collapse (up to 7.1)
//!   -------------------+---------------------------+------------------------+---------------------
//!   a writer has it    | yes                       | refused: OpenForWrite  | refused
//!   a process runs it  | refused: TextBusy         | yes                    | yes
//!   it has huge folios | its whole cache is dropped| yes                    | yes
//! ```
//!
//! [`rules.writers`](crate::rules::Writers) determines the effect on the page cache. Permissions
//! are not checked.
//!
//! An open file with write access remains a writer until its last descriptor is closed *and* its
//! last mapping is gone: a mapping holds the open file, whatever the mapping's protection.
//!
//! Invariants (checked by [`Memory::validate`], I14):
//! - I1: `i_writecount` is the number of open files that write, minus the number of living
//!   processes that run the file; never both (H.1.4).
//! - I2: `nr_thps` is the number of folios larger than one page, for files on filesystems without
//!   large folios; 0 for others (H.3.1).
//! - I3: if the rule is to drop, a file with writers has no such folio (L.16).

use crate::mapping::gate::{Gate, MustDrop, OpenForWrite, TextBusy};
use crate::memory::Memory;
use crate::rules::Writers;
use crate::units::{MappingId, MmId};
use crate::vma::{Backing, OpenId, Prot, Sharing, Vma};

impl Memory {
    /// Opens a file for writing. Drops its page cache if that has unwritable huge folios (H.3.3).
    ///
    /// # Errors
    /// Fails without changes if a process runs the file.
    ///
    /// # Panics
    /// Panics at the 2^32nd open.
    pub fn open_for_write(&mut self, file: MappingId) -> Result<OpenId, TextBusy> {
        self.add_writer(file)?;
        let open = self.open(file);
        self.open_file_mut(open).is_writer = true;
        Ok(open)
    }

    /// Marks `open` as opened for writing, because of a shared mapping (H.1.4) or a write call.
    ///
    /// # Errors
    /// Fails without changes if a process runs the file.
    pub fn write_through(&mut self, open: OpenId) -> Result<(), TextBusy> {
        if !self.open_file(open).is_writer {
            self.add_writer(self.open_file(open).mapping)?;
            self.open_file_mut(open).is_writer = true;
        }
        Ok(())
    }

    /// Adds a descriptor to an open file (`dup`, fork).
    pub fn share_open(&mut self, open: OpenId) {
        self.open_file_mut(open).nr_descriptors += 1;
    }

    /// Closes one descriptor of an open file.
    ///
    /// # Panics
    /// Panics if no descriptor is left.
    pub fn close(&mut self, open: OpenId) {
        let opened = self.open_file_mut(open);
        let Some(left) = opened.nr_descriptors.checked_sub(1) else {
            panic!("{open:?} was closed more often than it was opened")
        };
        opened.nr_descriptors = left;
        self.release_writer(open);
    }

    /// Makes `file` the program of a process and of its future children. It cannot be opened for
    /// writing while one of them lives (H.2.1).
    ///
    /// # Errors
    /// Fails without changes if the file is open for writing.
    pub fn run(&mut self, mm: MmId, file: MappingId) -> Result<(), OpenForWrite> {
        if let Err(refused) = self.gate(file).deny_write() {
            self.core.counters.writers.nr_open_for_write += 1;
            return Err(refused);
        }
        self.allow_write(mm);
        self.space_mut(mm).exe = Some(file);
        Ok(())
    }

    pub(crate) fn allow_write(&mut self, mm: MmId) {
        if let Some(file) = self.space_mut(mm).exe.take() {
            self.gate(file).allow_write();
        }
    }

    pub(crate) fn inherit_program(&mut self, parent: MmId, child: MmId) {
        let Some(file) = self.space(parent).exe else { return };
        let Ok(()) = self.gate(file).deny_write() else {
            unreachable!("I1: the parent denies writes")
        };
        self.space_mut(child).exe = Some(file);
    }

    pub(crate) fn write_through_mapping(
        &mut self,
        backing: Backing,
        sharing: Sharing,
        prot: Prot,
    ) -> Result<(), TextBusy> {
        let Backing::File { open, .. } = backing else { return Ok(()) };
        let is_anon_shared = self.core.mapping(self.open_file(open).mapping).is_anon_shared();
        if sharing == Sharing::Shared && prot.can_write && !is_anon_shared {
            self.write_through(open)?;
        }
        Ok(())
    }

    pub(crate) fn release_area(&mut self, vma: &Vma) {
        if let Backing::File { open, .. } = vma.backing {
            self.release_writer(open);
        }
    }

    fn gate(&mut self, file: MappingId) -> &mut Gate {
        &mut self.core.mapping_mut(file).gate
    }

    fn add_writer(&mut self, file: MappingId) -> Result<(), TextBusy> {
        match (self.gate(file).open_for_write(), self.rules.writers) {
            (Err(busy), _) => {
                self.core.counters.writers.nr_text_busy += 1;
                return Err(busy);
            }
            (Ok(MustDrop::Yes), Writers::DropCache) => self.drop_everything(file),
            (Ok(MustDrop::Yes), Writers::Keep) | (Ok(MustDrop::No), _) => {}
        }
        self.core.counters.writers.nr_opens += 1;
        Ok(())
    }

    fn drop_everything(&mut self, file: MappingId) {
        let entries: Vec<_> = self.core.mapping(file).tree.iter().collect();
        self.core.counters.writers.nr_drops += 1;
        for entry in entries {
            self.unmap_file_pages(entry);
            self.core.remove(file, entry);
            self.core.counters.writers.nr_dropped_pages += entry.order.nr_pages();
        }
    }

    fn release_writer(&mut self, open: OpenId) {
        let opened = self.open_file(open);
        if !opened.is_writer || opened.nr_descriptors > 0 || self.is_mapped(open) {
            return;
        }
        self.gate(opened.mapping).close_write();
        self.open_file_mut(open).is_writer = false;
    }

    fn is_mapped(&self, open: OpenId) -> bool {
        let is_behind =
            |vma: &Vma| matches!(vma.backing, Backing::File { open: behind, .. } if behind == open);
        self.count_areas(0, self.nr_spaces());
        self.spaces().any(|(_, space)| {
            self.count_areas(space.vmas.len(), 0);
            space.vmas.iter().any(is_behind)
        })
    }
}
