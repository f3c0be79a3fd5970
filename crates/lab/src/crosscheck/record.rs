//! `folio-lab crosscheck`: records small workloads and real programs on the running kernel as text.
//!
//! Owns the choice of workloads ([`WorkloadPlan`]), a private filesystem to run them on, a private
//! tracefs instance, and the probe's run. Does not know the model: a recording is text in the
//! format of `recordings/README.md`, which any reader can replay.
//!
//! ```text
//!   WorkloadPlan::new: facts of the host -- workloads -- the skipped ones, with reasons
//!      |
//!   Recorder::new      tracefs (detached mount) -> instances/folio-crosscheck-PID
//!      |
//!   Recorder::place    memfd -> loop device -> mkfs -> detached mount -> files, probe
//!      |
//!   Place::record      window -> cold file -> probe -> text
//! ```
//!
//! Files in reading order: [`workloads`], `mkfs`, `facts`, `plan`, `mount`, `tracefs`, `device`,
//! `place`, `probe`; [`ProgramRecorder`] (a real program with all its files) is in `program`.
//!
//! Invariants:
//! - C1: nothing remains, however the run ends. The image, the mount and the probe have no name:
//!   closing the last descriptor removes them, even after SIGKILL. Guards restore everything that
//!   has a name: the tracefs instance, a memory cgroup, and two settings of a loop device. After
//!   SIGKILL, keepers do this; the next run removes the cgroup of a killed process.
//! - C2: only settings of the loop device and of btrfs on it are changed, never the caches, THP or
//!   fault-around. [`cow`] alone sets folio sizes, and restores them. It disables khugepaged, as
//!   does [`Recorder::send_khugepaged_to_sleep`] and its equivalent for programs if khugepaged
//!   handles files.
//! - C3: a recording with a lost event, or of a file that was already cached, is an error.

pub mod workloads;

pub mod cow;

mod device;
mod error;
mod facts;
mod group;
mod mkfs;
mod place;
mod plan;
pub mod pool;
mod probe;
mod program;
mod settings;
mod shortage;
mod tracefs;
mod wanted;

pub use error::CrosscheckError;
pub use facts::{Facts, Thp};
pub use group::Limits;
pub use place::{Pause, Recorder, RecordingPlace};
pub use plan::{Custom, Group, Random, Selection, Skipped, WorkloadPlan, WorkloadSet};
pub use program::{
    Disk, Observed, OwnFile, Placement, PlainOptions, PlainRun, ProgramPlan, ProgramRecorder,
    ProgramRecording, Resident, RunPlace, RunPlan,
};
pub use settings::{SettingChange, Settings};
pub use shortage::FreeMemory;
pub use wanted::WantedSettings;
pub use workloads::{FileSpec, Filesystem, Workload};
