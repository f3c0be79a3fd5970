//! A cell written down, to be replayed elsewhere.
//!
//! Kernel and machine stand in it as texts of their own, not as names: a host that replays needs
//! none of the user's files, and a later edit of a file changes nothing here.

use serde::{Deserialize, Serialize};

use crate::cost::Walks;
use crate::kernel::{Kernel, KernelError};
use crate::machine::{Machine, MachineError};
use crate::replay::request::AGED_ROUNDS_MAX;
use crate::replay::{
    AnnotationError, Budget, CacheState, CellSpec, CgroupError, Fragmented, LinkedError,
};

/// Why a recipe cannot be written or followed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
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
}

/// A kernel or a machine as a text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// What a row calls it.
    pub name: String,
    /// Its file, based on no other.
    pub toml: String,
}

/// What decides the outcome of a cell beside trace, kernel and machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Page cache at the start.
    pub cache: CacheState,
    /// Seed of the initial state of memory.
    pub seed: u64,
    /// Physical memory in bytes.
    pub memory_bytes: u64,
    /// Swap space in bytes.
    pub swap_bytes: u64,
    /// Limits of control groups, as `LIMIT` or `PROGRAM=LIMIT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// Free memory in blocks that are too small at the start, in thousandths.
    pub unusable_permille: u32,
    /// Bytes of the folios that this holds for; 0 = a PMD folio.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unusable_bytes: u64,
    /// Rounds in which other programs wore memory down before.
    #[serde(default, skip_serializing_if = "is_none")]
    pub aged_rounds: u64,
    /// Filesystem of every file, instead of the recorded ones.
    pub filesystem: Option<String>,
    /// Folio sizes that the loader asks for, as `FILE=SIZE`.
    pub annotations: Vec<String>,
    /// Pages that programs and libraries are linked for, as `SIZE` or `FILE=SIZE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linked: Vec<String>,
    /// Nanoseconds of a reference on khugepaged's clock.
    pub reference_ns: u64,
    /// CPUs that threads run on; absent: the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nr_cpus: Option<u32>,
    /// Which walks the time estimate assumes.
    pub walks: Walks,
}

/// What is not asked for is not written: identities of cells without it stay as they are.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(number: &u64) -> bool {
    *number == 0
}

/// A cell without its trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Kernel, as a file of its own.
    pub kernel: Named,
    /// Machine, as a file of its own.
    pub machine: Named,
    /// State of memory, seed, and what else is asked for.
    pub setting: Setting,
    /// How much the replay may do: it decides whether there is a row, not what is in it.
    #[serde(default)]
    pub budget: Budget,
}

/// A [`Named`] in short: the text is its BLAKE3.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// What a row calls it.
    pub name: String,
    /// BLAKE3 of the text, in hex.
    pub text: String,
}

impl Named {
    /// What of it decides the identity of a cell.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let text = blake3::hash(self.toml.as_bytes()).to_hex().to_string();
        Stamp { name: self.name.clone(), text }
    }

    /// A kernel.
    ///
    /// # Errors
    /// As [`Kernel::to_toml`].
    pub fn kernel(kernel: &Kernel) -> Result<Self, KernelError> {
        Ok(Self { name: kernel.name.clone(), toml: kernel.to_toml()? })
    }

    /// A machine.
    ///
    /// # Errors
    /// As [`Machine::to_toml`].
    pub fn machine(machine: &Machine) -> Result<Self, MachineError> {
        Ok(Self { name: machine.name.clone(), toml: machine.to_toml("")? })
    }
}

impl Setting {
    /// That of a cell.
    #[must_use]
    pub fn of(cell: &CellSpec) -> Self {
        Self {
            cache: cell.cache,
            seed: cell.seed,
            memory_bytes: cell.ram_bytes,
            swap_bytes: cell.swap_bytes,
            cgroups: cell.cgroups.iter().map(ToString::to_string).collect(),
            unusable_permille: cell.fragmentation.permille,
            unusable_bytes: cell.fragmentation.bytes,
            aged_rounds: cell.aged_rounds.into(),
            filesystem: cell.filesystem.clone(),
            annotations: cell.annotations.iter().map(ToString::to_string).collect(),
            linked: cell.linked.iter().map(ToString::to_string).collect(),
            reference_ns: cell.ns_per_reference,
            nr_cpus: cell.nr_cpus,
            walks: cell.walks,
        }
    }
}

impl Recipe {
    /// That of a cell.
    ///
    /// # Errors
    /// A kernel or machine whose text does not give it back.
    pub fn of(cell: &CellSpec) -> Result<Self, RecipeError> {
        let kernel = Named::kernel(&cell.kernel)?;
        let (machine, setting) = (Named::machine(&cell.machine)?, Setting::of(cell));
        Ok(Self { kernel, machine, setting, budget: cell.budget })
    }

    /// The cell: no file is read.
    ///
    /// # Errors
    /// Text that is not a kernel, machine or annotation.
    pub fn cell(&self) -> Result<CellSpec, RecipeError> {
        let kernel = Kernel::from_toml(&self.kernel.name, &self.kernel.toml)?;
        let mut machine = Machine::from_toml(&self.machine.toml, &self.machine.name)?;
        machine.name.clone_from(&self.machine.name);
        let Setting { cache, seed, swap_bytes, walks, .. } = self.setting;
        let (bytes, permille) = (self.setting.unusable_bytes, self.setting.unusable_permille);
        let annotations = self.setting.annotations.iter().map(|text| text.parse());
        let linked = self.setting.linked.iter().map(|text| text.parse());
        let cgroups = self.setting.cgroups.iter().map(|text| text.parse());
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
            ns_per_reference: self.setting.reference_ns,
            nr_cpus: self.setting.nr_cpus,
            budget: self.budget,
            ..CellSpec::new(kernel, machine)
        })
    }
}
