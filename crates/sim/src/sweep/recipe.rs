//! A serialized cell, for a replay elsewhere.
//!
//! It contains the kernel and machine as text, not as names. A host that replays it needs none of
//! the user's files, and later edits of a file do not change it.

use serde::{Deserialize, Serialize};

use crate::cost::Walks;
use crate::kernel::{Kernel, KernelError};
use crate::machine::{Machine, MachineError};
use crate::replay::request::AGED_ROUNDS_MAX;
use crate::replay::{
    AnnotationError, Budget, CacheState, CellSpec, CgroupError, Fragmented, LinkedError,
    SettingChangeError,
};

#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    #[error(transparent)]
    Linked(#[from] LinkedError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Change(#[from] SettingChangeError),
    #[error("{0}")]
    Numa(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    pub name: String,
    /// Its file, without a base file.
    pub toml: String,
}

/// The inputs of a cell other than trace, kernel and machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    pub cache: CacheState,
    pub seed: u64,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// Limits of cgroups, as `LIMIT` or `PROGRAM=LIMIT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// Settings that change during the replay, as `50%:thp=always`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// Share of free memory in blocks that are too small at the start, in thousandths.
    pub unusable_permille: u32,
    /// Folio size in bytes that `unusable_permille` refers to; 0 = a PMD folio.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unusable_bytes: u64,
    /// Rounds in which other programs fragmented memory before the start.
    #[serde(default, skip_serializing_if = "is_none")]
    pub aged_rounds: u64,
    /// Filesystem of every file, instead of the recorded ones.
    pub filesystem: Option<String>,
    /// Folio sizes that the loader requests, as `FILE=SIZE`.
    pub annotations: Vec<String>,
    /// Page sizes that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linked: Vec<String>,
    /// Time per reference on khugepaged's clock, in nanoseconds.
    pub reference_ns: u64,
    /// CPUs that run threads; absent: the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_cpus: Option<u32>,
    /// Kind of page-table walks in the time estimate.
    pub walks: Walks,
    /// Where the program runs on a machine with nodes, its policy, and NUMA balancing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<String>,
}

/// Omit zeros, so that the identities of older cells stay unchanged.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &u64) -> bool {
    *number == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    pub kernel: Named,
    pub machine: Named,
    pub setting: Setting,
    /// Work limit of the replay: it decides whether there is a row, not its contents.
    #[serde(default)]
    pub budget: Budget,
}

/// A short [`Named`], with the text's BLAKE3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    pub name: String,
    pub text: String,
}

impl Named {
    /// Returns the part that determines a cell's identity.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let text = blake3::hash(self.toml.as_bytes()).to_hex().to_string();
        Stamp { name: self.name.clone(), text }
    }

    /// Serializes a kernel.
    ///
    /// # Errors
    /// As [`Kernel::to_toml`].
    pub fn kernel(kernel: &Kernel) -> Result<Self, KernelError> {
        Ok(Self { name: kernel.name.clone(), toml: kernel.to_toml()? })
    }

    /// Serializes a machine.
    ///
    /// # Errors
    /// As [`Machine::to_toml`].
    pub fn machine(machine: &Machine) -> Result<Self, MachineError> {
        Ok(Self { name: machine.name.clone(), toml: machine.to_toml("")? })
    }
}

impl Setting {
    #[must_use]
    pub fn of(cell: &CellSpec) -> Self {
        Self {
            cache: cell.cache,
            seed: cell.seed,
            memory_bytes: cell.ram_bytes,
            swap_bytes: cell.swap_bytes,
            cgroups: cell.cgroups.iter().map(ToString::to_string).collect(),
            changes: cell.changes.iter().map(ToString::to_string).collect(),
            unusable_permille: cell.fragmentation.permille,
            unusable_bytes: cell.fragmentation.bytes,
            aged_rounds: cell.aged_rounds.into(),
            filesystem: cell.filesystem.clone(),
            annotations: cell.annotations.iter().map(ToString::to_string).collect(),
            linked: cell.linked.iter().map(ToString::to_string).collect(),
            reference_ns: cell.ns_per_reference,
            nr_cpus: cell.nr_cpus,
            walks: cell.walks,
            numa: cell.numa.map(|numa| numa.to_string()),
        }
    }
}

impl Recipe {
    /// Returns a cell's recipe.
    ///
    /// # Errors
    /// The text of the kernel or machine does not parse to an equal value.
    pub fn of(cell: &CellSpec) -> Result<Self, RecipeError> {
        let kernel = Named::kernel(&cell.kernel)?;
        let (machine, setting) = (Named::machine(&cell.machine)?, Setting::of(cell));
        Ok(Self { kernel, machine, setting, budget: cell.budget })
    }

    /// Returns the cell without reading files.
    ///
    /// # Errors
    /// An invalid kernel, machine or annotation.
    pub fn cell(&self) -> Result<CellSpec, RecipeError> {
        let kernel = Kernel::from_toml(&self.kernel.name, &self.kernel.toml)?;
        let mut machine = Machine::from_toml(&self.machine.toml, &self.machine.name)?;
        machine.name.clone_from(&self.machine.name);
        let Setting { cache, seed, swap_bytes, walks, .. } = self.setting;
        let (bytes, permille) = (self.setting.unusable_bytes, self.setting.unusable_permille);
        let annotations = self.setting.annotations.iter().map(|text| text.parse());
        let linked = self.setting.linked.iter().map(|text| text.parse());
        let cgroups = self.setting.cgroups.iter().map(|text| text.parse());
        let changes = self.setting.changes.iter().map(|text| text.parse());
        let numa = self.setting.numa.as_ref().map(|text| text.parse()).transpose();
        Ok(CellSpec {
            cache,
            seed,
            swap_bytes,
            fragmentation: Fragmented { bytes, permille },
            aged_rounds: u32::try_from(self.setting.aged_rounds).unwrap_or(AGED_ROUNDS_MAX),
            walks,
            ram_bytes: self.setting.memory_bytes,
            filesystem: self.setting.filesystem.clone(),
            annotations: annotations.collect::<Result<_, _>>()?,
            linked: linked.collect::<Result<_, _>>()?,
            cgroups: cgroups.collect::<Result<_, _>>()?,
            changes: changes.collect::<Result<_, _>>()?,
            ns_per_reference: self.setting.reference_ns,
            nr_cpus: self.setting.nr_cpus,
            numa: numa.map_err(RecipeError::Numa)?,
            budget: self.budget,
            ..CellSpec::new(kernel, machine)
        })
    }
}
