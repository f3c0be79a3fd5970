//! The orders by kernel version.

/// Unit of the posted series under cooperative preemption: 1 ms at 10 GB/s (D.4.2, J.2.1).
pub const POSTED_UNIT_BYTES: u64 = 8 << 20;
/// Unit of the merged form (D.4.3); large enough for Zen CPUs not to allocate cache lines (K.2.2).
pub const MERGED_UNIT_BYTES: u64 = 32 << 20;

/// An order of clearing. The field values are part of a kernel's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Up to 6.19: page by page, from both ends towards the fault page (docs/behaviour D.4.1).
    Converging {
        /// Larger folios are cleared in one ascending pass (`MAX_ORDER_NR_PAGES`).
        straight_over_pages: u64,
    },
    /// Series 001 as posted: three extents, reschedule points after the units (D.4.2).
    Posted {
        /// Larger folios are cleared in one ascending pass (`MAX_ORDER_NR_PAGES`).
        straight_over_pages: u64,
        /// Unit under cooperative preemption.
        unit_bytes: u64,
    },
    /// From 7.0: three extents at every size, reschedule points before the units (D.4.3).
    Merged {
        /// Unit under cooperative preemption, at least one page.
        unit_bytes: u64,
    },
    /// One ascending pass, reschedule points before the units: the baseline for comparisons.
    OnePass {
        /// Unit under cooperative preemption, at least one page.
        unit_bytes: u64,
    },
}

/// Architecture: decides the primitive, and with it the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// One call can clear several pages.
    X86_64,
    /// Clears page by page in every kernel up to 7.2.
    Other,
}

/// Whether the kernel was built with `CONFIG_PREEMPTION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PreemptBuild {
    /// Yes: the model is fixed to full, or chosen at boot.
    Preemption,
    /// No.
    NoPreemption,
}

impl Rule {
    /// The rule up to 6.19: `MAX_ORDER_NR_PAGES` is 1024, 2048 or 8192 (docs/behaviour 0.4, D.4.1).
    #[must_use]
    pub const fn converging(page_bytes: u64) -> Self {
        Self::Converging { straight_over_pages: max_order_nr_pages(page_bytes) }
    }

    /// The posted series, which changes the order only on x86-64 with `CONFIG_PREEMPTION` (D.4.2).
    #[must_use]
    pub const fn posted(page_bytes: u64, arch: Arch, build: PreemptBuild) -> Self {
        match (arch, build) {
            (Arch::X86_64, PreemptBuild::Preemption) => Self::Posted {
                straight_over_pages: max_order_nr_pages(page_bytes),
                unit_bytes: POSTED_UNIT_BYTES,
            },
            _ => Self::converging(page_bytes),
        }
    }

    /// The rule from 7.0: units of 32 MiB on x86-64, of one page elsewhere (docs/behaviour D.4.3).
    #[must_use]
    pub const fn merged(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 => Self::Merged { unit_bytes: MERGED_UNIT_BYTES },
            Arch::Other => Self::Merged { unit_bytes: 1 },
        }
    }
}

/// Pages of the largest buddy folio: order 10, 11 or 13 (docs/behaviour 0.4).
const fn max_order_nr_pages(page_bytes: u64) -> u64 {
    match page_bytes {
        0x4000 => 1 << 11,
        0x1_0000 => 1 << 13,
        _ => 1 << 10,
    }
}
