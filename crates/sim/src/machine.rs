//! Machines: the hardware on which a trace is replayed, as data.
//!
//! Owns the machine file (TOML), its checks, and the built-in machines. Does not own TLB behaviour
//! ([`crate::tlb`]) or cost estimates ([`crate::cost`]).
//!
//! In a machine file, every number has a source: `source` names the document, and `assumed = true`
//! marks a number without one. Invariants of a [`Machine`]:
//! - I1: `page_size` is one of `page_sizes`.
//! - I2: `tlb.check(&page_sizes)` holds, so that [`crate::tlb::Tlb::new`] cannot fail.
//! - I3: every number has a source, and every cost is a finite number above 0 in a unit of its
//!   kind.
//! - I4: the sizes for which rates are given are in ascending order.
//! - I5: a node states its distance to each node.
//!
//! A file can be based on a built-in machine and list only the differences (`based-on = "altra"`),
//! so the shared silicon is described in one file. `docs/design/machines.md` describes each key.
//!
//! ```text
//!   machines/altra.toml ──include_str!──┐
//!                                       ├─► Machine::from_toml ─► check ─► Machine
//!   mine.toml ─────────────read─────────┘          (file, line, expected form)
//! ```
//!
//! ```
//! use largefolio_mm::units::PageSize;
//! use largefolio_sim::machine::Machine;
//!
//! let altra = Machine::named("altra")?;
//! assert_eq!(altra.page_size, PageSize::K4);
//! assert_eq!(altra.tlb.l2[0].entries, 1280);
//! let with_16k = altra.with_page_size(PageSize::K16)?;
//! assert_eq!(with_16k.page_size, PageSize::K16);
//! # Ok::<(), largefolio_sim::machine::MachineError>(())
//! ```

mod builtin;
mod costs;
mod cpu;
mod error;
mod errors;
mod load;
mod node;
mod this;

#[cfg(test)]
mod tests;

use largefolio_mm::rules::Arch;
use largefolio_mm::units::PageSize;
use serde::{Deserialize, Serialize};

use crate::tlb::TlbConfig;

pub use builtin::names;
pub use costs::{
    ASSUMED_WITHIN, Costs, Elision, Quantity, SOURCED_WITHIN, Unit, UnitBytes, UnitRate,
};
pub use cpu::{CpuId, Nearest};
pub use error::{Contradiction, MachineError};
pub use errors::{BOUNDS_SHARE, COVERAGE, FLOOR_PERCENT, TimeErrors};
pub use node::MachineNode;
pub use this::{THIS, this_path};

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Short name: the file name without `.toml`.
    pub name: String,
    pub description: String,
    /// The CPU's name in `/proc/cpuinfo`, if the file describes one CPU. Times measured on that CPU
    /// are this machine's.
    pub cpu: Option<String>,
    /// Architecture; kernels choose defaults by it.
    pub arch: Arch,
    /// Base page sizes that the hardware supports, in file order.
    pub page_sizes: Vec<PageSize>,
    pub page_size: PageSize,
    /// CPUs that run threads; `None`: one per thread.
    pub nr_cpus: Option<CpuCount>,
    /// NUMA nodes; none: one.
    pub nodes: Vec<MachineNode>,
    pub tlb: TlbConfig,
    /// The calibrations that the costs are the mean of, if `folio calibrate` wrote the file.
    pub calibrated: Option<Calibrated>,
    pub costs: Costs,
    /// How far predicted times are from measured ones, if a bank of programs was measured.
    pub errors: Option<TimeErrors>,
}

/// Maximum number of CPUs: Linux's limit on arm64, and half of its limit on x86-64.
pub const NR_CPUS_MAX: u32 = 1 << 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCount {
    /// `1..=NR_CPUS_MAX`.
    pub value: u32,
    /// The document, or the reason for an assumption.
    pub source: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    pub kernel: String,
    /// Number of calibrations that the costs are the mean of; 0 for a first estimate.
    pub nr: u32,
}

impl Machine {
    /// Returns the machine under a kernel with `page` as the base page.
    ///
    /// # Errors
    /// [`MachineError::PageSize`] if the hardware has no such base page.
    pub fn with_page_size(mut self, page: PageSize) -> Result<Self, MachineError> {
        if !self.page_sizes.contains(&page) {
            return Err(MachineError::PageSize {
                machine: self.name,
                page,
                supported: self.page_sizes.into(),
            });
        }
        self.page_size = page;
        Ok(self)
    }
}
