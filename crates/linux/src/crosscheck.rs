//! `folio crosscheck`: small workloads and real programs on the running kernel, recorded as text.
//!
//! Owns the choice of workloads ([`WorkloadPlan`]), a filesystem of its own to run them on, a
//! tracefs instance of its own, and the run of the probe. Does not know the model: a recording is
//! text in the format of `recordings/README.md`, which anybody can replay.
//!
//! ```text
//!   WorkloadPlan::new: facts of the host -- workloads -- what is skipped, and why
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
//! - C1: nothing is left behind, whatever ends the run. Image, mount and probe have no name
//!   anywhere: the last descriptor that closes removes them, SIGKILL included. What has a name -
//!   the tracefs instance, a memory cgroup, two settings of a loop device - is put back by guards,
//!   and after SIGKILL by keepers; the group of a process that was killed is removed by the next run.
//! - C2: no setting of the system is changed but those of the loop device and of btrfs on it: not
//!   the caches, not THP, not fault-around. [`cow`] alone sets folio sizes, and puts them back; it
//!   sends khugepaged to sleep, as [`Recorder::send_khugepaged_to_sleep`] and its like for programs do
//!   where files concern khugepaged.
//! - C3: a recording with a lost event, or of a file that was cached, is an error and not a
//!   recording.

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
mod tracefs;

pub use error::CrosscheckError;
pub use facts::{Facts, Thp};
pub use group::Limits;
pub use place::{Pause, Place, Recorder};
pub use plan::{Custom, Group, Random, Selection, Skipped, WorkloadPlan, WorkloadSet};
pub use program::{Disk, ProgramPlan, ProgramRecorder, ProgramRecording};
pub use settings::{Change, Settings};
pub use workloads::{FileSpec, Filesystem, Workload};
