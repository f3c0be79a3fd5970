//! Interfaces for policies that were posted upstream: their hooks, and the kernel functions that
//! their programs call.
//!
//! | structure | posted as |
//! |---|---|
//! | `bpf_thp_ops` | "mm, bpf: BPF-MM, BPF-THP", v12 |
//! | `bpf_mthp_ops` | "mm: introduce `mthp_ext` via cgroup-bpf", v2 |
//! | `cache_ext_ops` | SOSP 2025, and its repository |
//!
//! Owns the names and the types of arguments. `adapter` calls the hooks, `policies/posted` has the
//! headers.

use largefolio_mm::policy::Point;

use super::insn::helper;
use super::things::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hook {
    ThpOrder,
    MthpChoose,
    MthpScan,
    CacheInit,
    CacheEvict,
    CacheAdded,
    CacheAccessed,
    CacheRemoved,
    CacheAdmit,
}

/// Where a program starts: at a point of `folio_policy.h`, or as a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    Point(Point),
    Hook(Hook),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    Number,
    Thing(Kind),
}

use Argument::{Number, Thing};

impl Hook {
    pub(super) const fn arguments(self) -> &'static [Argument] {
        match self {
            Self::ThpOrder => &[Thing(Kind::Area), Number, Number],
            Self::MthpChoose => &[Thing(Kind::Cgroup), Number],
            // Members of `bpf_iter__cgroup`: `meta` is 0.
            Self::MthpScan => &[Number, Thing(Kind::Cgroup)],
            Self::CacheInit => &[Thing(Kind::MemCgroup)],
            Self::CacheEvict => &[Thing(Kind::Eviction), Thing(Kind::MemCgroup)],
            Self::CacheAdded | Self::CacheAccessed | Self::CacheRemoved => &[Thing(Kind::Folio)],
            Self::CacheAdmit => &[Thing(Kind::Admission)],
        }
    }

    /// Whether the function returns something.
    pub(super) const fn has_answer(self) -> bool {
        !matches!(
            self,
            Self::CacheEvict | Self::CacheAdded | Self::CacheAccessed | Self::CacheRemoved
        )
    }

    /// The points at which the hook is called.
    pub(super) const fn points(self) -> &'static [Point] {
        match self {
            Self::ThpOrder | Self::MthpChoose => {
                &[Point::AnonOrder, Point::Collapse, Point::SwapinOrder, Point::ShmemOrder]
            }
            Self::MthpScan => &[Point::Interval],
            // A folio must be known before it is evicted.
            Self::CacheEvict => &[Point::Added, Point::Accessed, Point::Removed, Point::Evict],
            // `init` also runs before another hook of its cgroup.
            Self::CacheInit | Self::CacheAdded => &[Point::Added],
            Self::CacheAccessed => &[Point::Added, Point::Accessed, Point::Removed],
            Self::CacheRemoved => &[Point::Added, Point::Removed],
            Self::CacheAdmit => &[Point::Admit],
        }
    }
}

/// A structure of hooks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface {
    pub(super) name: &'static str,
    pub(super) hooks: &'static [(&'static str, Hook)],
    /// Members without which it does nothing.
    pub(super) required: &'static [&'static str],
}

const INTERFACES: [Interface; 3] = [
    Interface {
        name: "bpf_thp_ops",
        hooks: &[("thp_get_order", Hook::ThpOrder)],
        required: &["thp_get_order"],
    },
    Interface {
        name: "bpf_mthp_ops",
        hooks: &[("mthp_choose", Hook::MthpChoose)],
        required: &["mthp_choose"],
    },
    Interface {
        name: "cache_ext_ops",
        hooks: &[
            ("init", Hook::CacheInit),
            ("evict_folios", Hook::CacheEvict),
            ("folio_added", Hook::CacheAdded),
            ("folio_accessed", Hook::CacheAccessed),
            ("folio_evicted", Hook::CacheRemoved),
            ("folio_removed", Hook::CacheRemoved),
            ("admit_folio", Hook::CacheAdmit),
        ],
        required: &[],
    },
];

impl Interface {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        INTERFACES.iter().find(|interface| interface.name == name)
    }

    pub(super) fn names() -> String {
        INTERFACES.map(|interface| interface.name).join(", ")
    }

    pub(super) fn members(&self) -> String {
        let names: Vec<&str> = self.hooks.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }

    pub(super) fn hook(&self, member: &str) -> Option<Hook> {
        self.hooks.iter().find(|(name, _)| *name == member).map(|&(_, hook)| hook)
    }
}

/// Arguments of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callback {
    /// `bpf_loop`: an index, and the caller's third argument.
    Loop,
    /// An iteration: an index and a node.
    Node,
    /// A score: a node.
    Score,
}

/// The value that a helper expects in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Number,
    Thing(Kind),
    Callback(Callback),
    /// Whatever the callback can use.
    Passed,
    /// So many bytes that the helper reads.
    Bytes(usize),
    /// So many bytes that the helper reads and changes.
    Changed(usize),
    /// A map that holds an entry per cgroup.
    OfCgroups,
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    Number,
    Zero,
    Thing(Kind),
    /// An entry of the first argument's map, or 0.
    MaybeEntry,
}

/// A helper or kernel function. `verify` knows those for maps and windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Helper {
    pub(super) name: &'static str,
    pub(super) number: i64,
    pub(super) arguments: &'static [Expected],
    pub(super) returned: Returned,
}

/// Words of `cache_ext_iterate_opts`, and bytes of `sampling_options`.
pub(super) const ITERATE_OPTS_WORDS: usize = 6;
pub(super) const SAMPLING_OPTS_BYTES: usize = 8;

macro_rules! helpers {
    ($($name:literal $number:path => ($($expected:expr),*) -> $returned:expr;)*) => {
        &[$(Helper {
            name: $name,
            number: $number,
            arguments: &[$($expected),*],
            returned: $returned,
        },)*]
    };
}

const HELPERS: &[Helper] = {
    use Expected::{Bytes, Changed, OfCgroups, Passed, Ring};
    const GROUP: Expected = Expected::Thing(Kind::MemCgroup);
    const CGROUP: Expected = Expected::Thing(Kind::Cgroup);
    const FOLIO: Expected = Expected::Thing(Kind::Folio);
    const REQUEST: Expected = Expected::Thing(Kind::Eviction);
    const ANY: Expected = Expected::Number;
    const LOOP: Expected = Expected::Callback(Callback::Loop);
    const NODE: Expected = Expected::Callback(Callback::Node);
    const SCORE: Expected = Expected::Callback(Callback::Score);
    const NR: Returned = Returned::Number;
    helpers! {
        "bpf_loop" helper::LOOP => (ANY, LOOP, Passed, ANY) -> NR;
        "bpf_cgrp_storage_get" helper::CGROUP_STORAGE => (OfCgroups, CGROUP, ANY, ANY)
            -> Returned::MaybeEntry;
        "bpf_ringbuf_reserve" helper::RING_RESERVE => (Ring, ANY, ANY) -> Returned::Zero;
        "bpf_cache_ext_ds_registry_new_list" helper::LIST_NEW => (GROUP) -> NR;
        "bpf_cache_ext_list_add" helper::LIST_ADD => (ANY, FOLIO) -> NR;
        "bpf_cache_ext_list_add_tail" helper::LIST_ADD_TAIL => (ANY, FOLIO) -> NR;
        "bpf_cache_ext_list_move" helper::LIST_MOVE => (ANY, FOLIO, ANY) -> NR;
        "bpf_cache_ext_list_del" helper::LIST_DEL => (FOLIO) -> NR;
        "bpf_cache_ext_list_iterate" helper::LIST_ITERATE => (GROUP, ANY, NODE, REQUEST) -> NR;
        "bpf_cache_ext_list_iterate_extended" helper::LIST_ITERATE_EXTENDED
            => (GROUP, ANY, NODE, Changed(8 * ITERATE_OPTS_WORDS), REQUEST) -> NR;
        "bpf_cache_ext_list_sample" helper::LIST_SAMPLE
            => (GROUP, ANY, SCORE, Bytes(SAMPLING_OPTS_BYTES), REQUEST) -> NR;
        "bpf_get_mem_cgroup" helper::GET_MEM_CGROUP => (CGROUP)
            -> Returned::Thing(Kind::MemCgroup);
        "bpf_put_mem_cgroup" helper::PUT_MEM_CGROUP => (GROUP) -> NR;
        "bpf_cgroup_flush_stats" helper::FLUSH_CGROUP => (CGROUP) -> NR;
        "bpf_mem_cgroup_flush_stats" helper::FLUSH_MEM_CGROUP => (GROUP) -> NR;
        "bpf_cgroup_stall" helper::CGROUP_STALL => (CGROUP, ANY) -> NR;
        "bpf_mem_cgroup_page_state" helper::PAGE_STATE => (GROUP, ANY) -> NR;
    }
};

impl Helper {
    pub(super) fn numbered(number: i64) -> Option<&'static Self> {
        HELPERS.iter().find(|helper| helper.number == number)
    }

    /// The kernel function of this name.
    pub(super) fn of_kernel(name: &str) -> Option<&'static Self> {
        HELPERS.iter().find(|helper| helper.name == name && helper.number > helper::WINDOW)
    }
}
