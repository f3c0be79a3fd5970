//! Machines: the hardware a trace is replayed on, as data.
//!
//! Owns the machine file (TOML), its checks, and the machines built in. Does not own the behaviour
//! of a TLB ([`crate::tlb`]) or what an estimate does with a cost
//! ([`crate::cost`]).
//!
//! A machine file says where each of its numbers comes from: `source` names the document, and
//! `assumed = true` marks a number for which none was found. Invariants of a [`Machine`]:
//! - I1: `page_size` is one of `page_sizes`.
//! - I2: `tlb.check(&page_sizes)` holds, so that [`crate::tlb::Tlb::new`] cannot fail.
//! - I3: every number has a source, and every cost is a finite number above 0 in a unit of its
//!   kind.
//! - I4: sizes of rates ascend.
//!
//! A file may be based on a built-in machine and say only what differs (`based-on = "altra"`):
//! parts of one silicon stand in one file. `docs/design/machines.md` describes every key.
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
mod load;
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
pub use this::{THIS, this_path};

/// A machine to replay a trace on.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Short name: that of the file without `.toml`.
    pub name: String,
    /// One line for a table's caption.
    pub description: String,
    /// The CPU as `/proc/cpuinfo` names it, where the file describes one: times measured on it are
    /// those of this machine.
    pub cpu: Option<String>,
    /// Architecture, as far as kernels choose by it.
    pub arch: Arch,
    /// Base page sizes the hardware translates, in the order of the file.
    pub page_sizes: Vec<PageSize>,
    /// Base page size of the kernel to replay: one of `page_sizes`.
    pub page_size: PageSize,
    /// CPUs that threads run on; `None`: one for every thread.
    pub nr_cpus: Option<CpuCount>,
    /// Structures of the TLB of one CPU.
    pub tlb: TlbConfig,
    /// Calibrations that the costs are the mean of, if `folio calibrate` wrote the file.
    pub calibrated: Option<Calibrated>,
    /// What a miss, a fault or a page costs, as far as it is known.
    pub costs: Costs,
}

/// Most CPUs of a machine: as many as Linux supports on arm64 and half of those of x86-64.
pub const NR_CPUS_MAX: u32 = 1 << 12;

/// How many CPUs a machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCount {
    /// `1..=NR_CPUS_MAX`.
    pub value: u32,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

/// How the costs of a machine were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibrated {
    /// Release of the kernel that ran.
    pub kernel: String,
    /// Number of calibrations that the costs are the mean of; 0 for a first estimate.
    pub nr: u32,
}

impl Machine {
    /// The same machine under a kernel with `page` as the base page.
    ///
    /// # Errors
    /// [`MachineError::PageSize`] when the hardware has no such base page.
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
