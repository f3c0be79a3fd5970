//! Kernel structures that a hook of a posted interface reads, as the model fills them in.
//!
//! ```text
//!   address:  1 | kind | number | offset in bytes          struct vm_area_struct -> mm -> owner
//!             1     7      48          8      bits
//! ```
//!
//! An address names a thing and not memory of this process. So it is the same in every run, and a
//! policy may compare it, store it, or use it as a key, like a number.
//!
//! Owns the layouts, which `policies/posted/vmlinux.h` repeats. Does not own the folios' state
//! ([`super::cached`]).

use largefolio_mm::policy::{Context, area};

use super::cached::Cached;

/// Words of the largest structure.
pub(super) const NR_WORDS: usize = 4;
const IS_THING: u64 = 1 << 63;
const KIND_SHIFT: u32 = 56;
const NUMBER_SHIFT: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Area,
    Space,
    Task,
    Cgroup,
    CgroupNode,
    MemCgroup,
    Folio,
    Mapping,
    Inode,
    ListNode,
    Eviction,
    Admission,
}

use Kind::{
    Admission, Area, Cgroup, CgroupNode, Eviction, Folio, Inode, ListNode, Mapping, MemCgroup,
    Space, Task,
};

const ALL: [Kind; 12] = [
    Area, Space, Task, Cgroup, CgroupNode, MemCgroup, Folio, Mapping, Inode, ListNode, Eviction,
    Admission,
];

impl Kind {
    /// The structure's name in C.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Area => "vm_area_struct",
            Space => "mm_struct",
            Task => "task_struct",
            Cgroup => "cgroup",
            CgroupNode => "kernfs_node",
            MemCgroup => "mem_cgroup",
            Folio => "folio",
            Mapping => "address_space",
            Inode => "inode",
            ListNode => "cache_ext_list_node",
            Eviction => "cache_ext_eviction_ctx",
            Admission => "cache_ext_admission_ctx",
        }
    }

    /// Bytes of the structure.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Area | Task | Cgroup | Folio | Admission => 32,
            CgroupNode | Eviction => 16,
            Space | MemCgroup | Mapping | Inode | ListNode => 8,
        }
    }

    /// The pointer at this offset leads to such a thing; `None`: no pointer is there.
    pub(super) const fn pointer(self, offset: usize) -> Option<Self> {
        match (self, offset) {
            (Area, 24) => Some(Space),
            (Space, 0) => Some(Task),
            // `self.cgroup` of a cgroup, `css.cgroup` of a memory cgroup.
            (Cgroup | MemCgroup, 0) => Some(Cgroup),
            (Cgroup, 8) => Some(CgroupNode),
            (Folio, 8) => Some(Mapping),
            (Mapping, 0) => Some(Inode),
            (ListNode, 0) => Some(Folio),
            _ => None,
        }
    }

    pub(super) const fn address(self, number: u64) -> u64 {
        let number = number << NUMBER_SHIFT & ((1 << KIND_SHIFT) - 1);
        IS_THING | (self as u64) << KIND_SHIFT | number
    }
}

/// A place in a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) offset: usize,
}

impl Place {
    /// Reads an address; `None` if it names no thing.
    pub(super) fn of(address: u64) -> Option<Self> {
        if address & IS_THING == 0 {
            return None;
        }
        let kind = *ALL.get((address >> KIND_SHIFT & 0x7f) as usize)?;
        let number = address << 8 >> (8 + NUMBER_SHIFT);
        Some(Self { kind, number, offset: (address & 0xff) as usize })
    }
}

/// Input of a hook, in addition to its maps and variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'a> {
    pub(super) context: &'a Context,
    pub(super) cached: &'a Cached,
}

/// Flags of the areas: of [`area`], and of Linux.
const AREA_FLAGS: [(u64, u64); 8] = [
    (area::READ, 0x1),
    (area::WRITE, 0x2),
    (area::EXEC, 0x4),
    (area::SHARED, 0x8),
    (area::SEQUENTIAL, 0x8000),
    (area::RANDOM, 0x1_0000),
    (area::HUGEPAGE, 0x2000_0000),
    (area::NOHUGEPAGE, 0x4000_0000),
];

/// `enum pageflags` of the header.
mod page {
    pub(super) const UPTODATE: u64 = 1 << 3;
    pub(super) const DIRTY: u64 = 1 << 4;
    pub(super) const LRU: u64 = 1 << 5;
    pub(super) const HEAD: u64 = 1 << 6;
}

impl Scene<'_> {
    /// The words of a structure.
    pub(super) fn words(&self, kind: Kind, number: u64) -> [u64; NR_WORDS] {
        let Context { comm, process, page_shift, .. } = *self.context;
        match kind {
            Area => self.area(number),
            Space => [Task.address(number), 0, 0, 0],
            Task => {
                let [first, second] = [0, 8].map(|at| {
                    let bytes = comm.get(at..).and_then(<[u8]>::first_chunk).copied();
                    u64::from_le_bytes(bytes.unwrap_or_default())
                });
                let pid = process.wrapping_add(1) & 0x7fff_ffff;
                [first, second, pid, pid]
            }
            Cgroup => {
                let level = u64::from(number > 0);
                [Cgroup.address(number), CgroupNode.address(number), level, 1]
            }
            CgroupNode => [number.wrapping_add(1), 0, 0, 0],
            MemCgroup => [Cgroup.address(number), 0, 0, 0],
            Folio => self.folio(number),
            Mapping => [Inode.address(number), 0, 0, 0],
            Inode => [number, 0, 0, 0],
            ListNode => [Folio.address(number), 0, 0, 0],
            Eviction => [self.cached.nr_requested(), self.cached.nr_proposed(), 0, 0],
            Admission => {
                let Context { file, index, wanted, file_pages, .. } = *self.context;
                let bytes = |pages: u64| pages << (page_shift & 63);
                [file, bytes(index), bytes(wanted), bytes(file_pages)]
            }
        }
    }

    fn area(&self, number: u64) -> [u64; NR_WORDS] {
        let Context { area_start, area_end, area_flags, page_shift, .. } = *self.context;
        let shift = page_shift & 63;
        let flags = AREA_FLAGS.into_iter().filter(|(own, _)| area_flags & own != 0);
        let flags = flags.map(|(_, of_linux)| of_linux).sum();
        [area_start << shift, area_end << shift, flags, Space.address(number)]
    }

    fn folio(&self, number: u64) -> [u64; NR_WORDS] {
        let Some(folio) = self.cached.folio(number) else { return [0; NR_WORDS] };
        let mut flags = page::UPTODATE | page::LRU;
        flags |= if folio.is_dirty { page::DIRTY } else { 0 };
        flags |= if folio.order > 0 { page::HEAD } else { 0 };
        [flags, Mapping.address(folio.file), folio.index, folio.order]
    }
}
