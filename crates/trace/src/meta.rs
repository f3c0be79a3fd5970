//! The footer of a trace: what was recorded, where and how.
//!
//! Owns the metadata types and their JSON form. Invariants:
//! - I1: file ids are row numbers of [`Meta::files`].
//! - I2: [`Meta::layout`], and that of each image, is sorted by address and its ranges do not overlap.
//! - I3: an execution names a row of [`Meta::images`].

use serde::{Deserialize, Serialize};

use crate::event::FileId;

/// Newest version of the schema; a reader refuses a newer one.
pub const SCHEMA_VERSION: u32 = 6;
/// First version with [`Meta::runs`].
const SCHEMA_VERSION_OF_RUNS: u32 = 2;
/// First version with [`Meta::links`].
const SCHEMA_VERSION_OF_LINKS: u32 = 3;
/// First version with [`Meta::execs`] and [`Meta::faults_only`].
const SCHEMA_VERSION_OF_EXECS: u32 = 4;
/// First version with [`Meta::arch`].
const SCHEMA_VERSION_OF_ARCH: u32 = 5;
/// First version with [`Meta::attached`].
const SCHEMA_VERSION_OF_ATTACHED: u32 = 6;

/// One file the program used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileInfo {
    /// Path as the program's kernel knew it, or a name in `[..]` for a file that has none.
    pub path: String,
    /// Size in bytes when it was first seen.
    pub size_bytes: u64,
    /// ELF build id in hexadecimal, empty when there is none.
    pub build_id: String,
    /// Filesystem by name (`ext4`, `xfs`, `tmpfs`, ..), empty when unknown.
    pub filesystem: String,
}

/// One mapping that existed before the first event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutEntry {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// `PROT_*` bits of the Linux x86-64 ABI.
    pub prot: u32,
    /// Mapped file, `None` for anonymous memory.
    pub file: Option<FileId>,
    /// Position in the file in bytes.
    pub pos: u64,
    /// Kind: what the loader made it for.
    pub kind: LayoutKind,
}

/// What an initial mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// Segment of the program's own ELF file (text, data or bss).
    Program,
    /// Segment of the ELF interpreter (the dynamic loader).
    Interpreter,
    /// Stack of the first thread.
    Stack,
    /// Heap (brk).
    Heap,
    /// Anything else.
    Other,
}

impl LayoutKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Program, Self::Interpreter, Self::Stack, Self::Heap, Self::Other];
}

/// A program as execve leaves it: what is mapped before its first instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its mappings, as in [`Meta::layout`].
    pub layout: Vec<LayoutEntry>,
    /// Heap's first address (brk), 0 when unknown.
    pub brk: u64,
}

/// What a process became by an execve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    /// Program and arguments; a long command is cut.
    pub command: Vec<String>,
    /// Row of [`Meta::images`].
    pub image: u32,
}

/// One run of the recorded program by itself, on the recording machine: from its start to its end,
/// with the children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainRun {
    /// Wall-clock time in nanoseconds.
    pub wall_ns: u64,
    /// CPU time in user mode in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub system_ns: u64,
    /// Page faults served without reading.
    pub minor_faults: u64,
    /// Page faults that waited for a read.
    pub major_faults: u64,
    /// What the CPU counted, where it has counters that the user may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<HardwareCounters>,
}

/// Hardware counters of one run; a counter that the CPU lacks is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HardwareCounters {
    /// Cycles of the core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Instructions retired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Misses of the instruction TLB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itlb_misses: Option<u64>,
    /// Misses of the data TLB by loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtlb_misses: Option<u64>,
}

/// The start of a recording of running processes, and their CPU time and faults since then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// The first rows, which describe the time before the recording: mappings, and a reference for
    /// each page that was resident. They build memory; they happened before, so nothing of them counts.
    pub nr_rows: u64,
    /// References in these rows.
    pub nr_pages: u64,
    /// CPU time and faults from the moment of attaching to the end of the recording.
    pub run: PlainRun,
}

/// Everything the footer says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Meta {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What made the trace: `qemu`, `valgrind`, `generator NAME`, ..
    pub recorder: String,
    /// Version of folio that wrote it.
    pub tool_version: String,
    /// Kernel release of the recording machine, empty for a generated trace.
    pub kernel: String,
    /// CPU model of the recording machine, empty for a generated trace.
    pub machine: String,
    /// Architecture of the program (`aarch64`); empty for x86-64 and for a generated trace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arch: String,
    /// Granularity of references and system calls in bytes: 4096.
    pub page_bytes: u64,
    /// Seed of a generated trace.
    pub seed: Option<u64>,
    /// Files, addressed by [`FileId`].
    pub files: Vec<FileInfo>,
    /// Mappings that existed before the first event.
    pub layout: Vec<LayoutEntry>,
    /// Heap's first address (brk), 0 when unknown.
    pub brk: u64,
    /// Total references in the rows.
    pub nr_references: u64,
    /// Total rows.
    pub nr_rows: u64,
    /// How the recording ended, in words: `exit 0`, `signal 2`, `execve /bin/true`, `stopped`.
    pub ended: String,
    /// What the recorder could not see or had to leave out, one sentence each.
    pub warnings: Vec<String>,
    /// Runs of the program without a recorder (`folio record --runs`); none where nobody asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<PlainRun>,
    /// Whether rows have links between loads ([`crate::event`]); if not, nothing is known of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub links: bool,
    /// What processes became by execve, named by the rows of those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<Execution>,
    /// Address spaces of [`Meta::execs`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the rows of references are page faults only, one reference each
    /// (`folio record --live`): faults, reads and folios follow from them, TLBs and totals of
    /// references do not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub faults_only: bool,
    /// Where the recording of running processes begins in the rows (`folio record --live -p`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

impl Meta {
    /// Rows that describe the time before the recording.
    #[must_use]
    pub fn nr_rows_before(&self) -> u64 {
        self.attached.map_or(0, |attached| attached.nr_rows)
    }

    /// References of the recorded time: without the pages that were there before.
    #[must_use]
    pub fn nr_references_recorded(&self) -> u64 {
        self.nr_references.saturating_sub(self.attached.map_or(0, |attached| attached.nr_pages))
    }

    /// The image that an execution, a row of [`Meta::execs`], has.
    #[must_use]
    pub fn image_of(&self, exec: u64) -> Option<&Image> {
        let exec = self.execs.get(usize::try_from(exec).ok()?)?;
        self.images.get(exec.image as usize)
    }

    /// Path of the program whose mappings are `layout`.
    #[must_use]
    pub fn program_of(&self, layout: &[LayoutEntry]) -> Option<&str> {
        let file = program_file_of(layout)?;
        self.files.get(file as usize).map(|file| file.path.as_str())
    }

    /// Oldest version of the schema that has all of it: a trace is written as that, so that earlier
    /// versions of folio read what they can.
    pub(crate) fn schema_version_needed(&self) -> u32 {
        let needed = [
            (self.attached.is_some(), SCHEMA_VERSION_OF_ATTACHED),
            (!self.arch.is_empty(), SCHEMA_VERSION_OF_ARCH),
            (!self.execs.is_empty() || self.faults_only, SCHEMA_VERSION_OF_EXECS),
            (self.links, SCHEMA_VERSION_OF_LINKS),
            (!self.runs.is_empty(), SCHEMA_VERSION_OF_RUNS),
        ];
        needed.into_iter().find(|&(is_needed, _)| is_needed).map_or(1, |(_, version)| version)
    }
}

/// File of the program whose mappings are `layout`.
pub(crate) fn program_file_of(layout: &[LayoutEntry]) -> Option<FileId> {
    let is_program = |entry: &&LayoutEntry| entry.kind == LayoutKind::Program;
    layout.iter().filter(is_program).find_map(|entry| entry.file)
}
