//! Reuses the ids of ended processes and closed files.
//!
//! Without reuse, the tables would grow with the length of a run. An id is reused only after its
//! holder has dropped it.
//!
//! Invariants:
//! - I1: a free process is dead, and a free open file has no descriptor and no mapping.
//! - I2: no id is free twice.

use std::collections::BTreeSet;

use super::Memory;
use crate::core::open_file::OpenFile;
use crate::core::space::Space;
use crate::units::MmId;
use crate::vma::{Backing, OpenId};

#[derive(Clone, Debug, Default)]
pub(super) struct Free {
    spaces: Vec<MmId>,
    opens: Vec<OpenId>,
}

impl Free {
    pub(super) fn len(&self) -> usize {
        self.spaces.len() + self.opens.len()
    }
}

impl Memory {
    /// Frees the id of an ended process for reuse. The caller never uses the id again.
    ///
    /// # Panics
    /// Panics if the process is alive.
    pub fn forget(&mut self, mm: MmId) {
        assert!(self.space(mm).is_dead, "I1: {mm:?} lives");
        debug_assert!(!self.free.spaces.contains(&mm), "I2: {mm:?} is free");
        self.measure(mm);
        self.free.spaces.push(mm);
    }

    /// Opens that are not free.
    #[must_use]
    pub fn nr_opens(&self) -> usize {
        self.opens.len() - self.free.opens.len()
    }

    /// Frees the ids of opens without a descriptor or mapping, unless they are in `held`.
    pub fn forget_opens(&mut self, held: impl IntoIterator<Item = OpenId>) {
        let mut kept: BTreeSet<OpenId> = held.into_iter().collect();
        kept.extend(self.free.opens.iter().copied());
        for (_, space) in self.spaces() {
            self.count_areas(space.vmas.len(), 1);
            kept.extend(space.vmas.iter().filter_map(|vma| match vma.backing {
                Backing::File { open, .. } => Some(open),
                _ => None,
            }));
        }
        self.count_areas(self.opens.len(), 0);
        let is_unused =
            |(id, file): &(OpenId, &OpenFile)| file.nr_descriptors == 0 && !kept.contains(id);
        let unused: Vec<OpenId> = self.opens().filter(is_unused).map(|(id, _)| id).collect();
        self.free.opens.extend(unused.into_iter().rev());
    }

    pub(super) fn add_open(&mut self, file: OpenFile) -> OpenId {
        if let Some(id) = self.free.opens.pop() {
            *self.open_file_mut(id) = file;
            return id;
        }
        let Ok(id) = u32::try_from(self.opens.len()) else { panic!("open ids exhausted") };
        self.opens.push(file);
        OpenId(id)
    }

    pub(super) fn add_space(&mut self, space: Space) -> MmId {
        if let Some(mm) = self.free.spaces.pop() {
            *self.space_mut(mm) = space;
            return mm;
        }
        let Ok(id) = u32::try_from(self.spaces.len()) else { panic!("mm ids exhausted") };
        self.spaces.push(space);
        MmId(id)
    }
}
