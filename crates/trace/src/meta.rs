//! The footer of a trace: how and where it was recorded, its files and mappings.
//!
//! Owns the metadata types and their JSON form. Invariants:
//! - I1: file ids are row numbers in [`Meta::files`].
//! - I2: [`Meta::layout`] and every image's layout are sorted by address, and their ranges do not
//!   overlap.
//! - I3: an execution names a row of [`Meta::images`].

use serde::{Deserialize, Serialize};

use crate::event::FileId;

/// Newest schema version. A reader rejects newer ones.
pub const SCHEMA_VERSION: u32 = 7;
const SCHEMA_VERSION_OF_RUNS: u32 = 2;
const SCHEMA_VERSION_OF_LINKS: u32 = 3;
const SCHEMA_VERSION_OF_EXECS: u32 = 4;
const SCHEMA_VERSION_OF_ARCH: u32 = 5;
const SCHEMA_VERSION_OF_ATTACHED: u32 = 6;
const SCHEMA_VERSION_OF_RECORDED: u32 = 7;

/// A file that the program used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileInfo {
    /// Path in the program's kernel, or a name in `[..]` for a file without a path.
    pub path: String,
    /// Size in bytes at its first use.
    pub size_bytes: u64,
    /// ELF build id in hexadecimal; empty if it has none.
    pub build_id: String,
    /// Filesystem that holds the file's pages (`ext4`, `xfs`, `tmpfs`, ..); empty if unknown.
    pub filesystem: String,
    /// Parts without data in storage at its first use: position and length in bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<(u64, u64)>,
    /// Headers beyond its first 4 KiB that an execve reads: position and length in bytes. Linkers put
    /// all of a program's headers into its first page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exec_reads: Vec<(u64, u64)>,
    /// Filesystem in front of it through which the program saw the file (`overlay`); empty if none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// The filesystem's block size in bytes; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub block_bytes: u64,
    /// The device whose readahead settings apply: a disk (`vda`), or a btrfs by one of its disks
    /// (`btrfs-vda`); empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disk: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A mapping that existed before the first event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutEntry {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// `PROT_*` bits of the Linux x86-64 ABI.
    pub prot: u32,
    /// Mapped file; `None` for anonymous memory.
    pub file: Option<FileId>,
    /// File position in bytes.
    pub pos: u64,
    /// The mapping's purpose.
    pub kind: LayoutKind,
}

/// The purpose of an initial mapping.
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
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Program, Self::Interpreter, Self::Stack, Self::Heap, Self::Other];
}

/// A program after its execve: the mappings before its first instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// Its mappings, as in [`Meta::layout`].
    pub layout: Vec<LayoutEntry>,
    /// First address of the heap (brk); 0 if unknown.
    pub brk: u64,
}

/// An execve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    /// Program and arguments. Long commands are cut.
    pub command: Vec<String>,
    /// Row of [`Meta::images`].
    pub image: u32,
}

/// One run of the program without a recorder, including children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlainRun {
    /// Wall-clock time in nanoseconds.
    pub wall_ns: u64,
    /// CPU time in user mode in nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel in nanoseconds.
    pub system_ns: u64,
    /// Page faults without a read.
    pub minor_faults: u64,
    /// Page faults that waited for a read.
    pub major_faults: u64,
    /// Hardware counters, if the CPU has them and the user may read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<HardwareCounters>,
}

/// Hardware counters of one run. A missing counter is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HardwareCounters {
    /// Core cycles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Instructions retired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Instruction TLB misses that need a walk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itlb_misses: Option<u64>,
    /// Data TLB misses that need a walk; by loads only, if the CPU's own events are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtlb_misses: Option<u64>,
    /// Cycles with a page walk in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk_cycles: Option<u64>,
}

/// The start of a recording of running processes, and their CPU time and faults since then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attached {
    /// Number of leading rows for the time before the recording: mappings, and one reference per
    /// resident page. They build memory but are not counted.
    pub nr_rows: u64,
    /// References in these rows.
    pub nr_pages: u64,
    /// CPU time and faults from attaching to the end of the recording.
    pub run: PlainRun,
}

/// The contents of the footer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Meta {
    /// The writer's [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The recorder: `qemu`, `valgrind`, `generator NAME`, ..
    pub recorder: String,
    /// Version of folio that wrote it.
    pub tool_version: String,
    /// Kernel release of the recording machine; empty for a generated trace.
    pub kernel: String,
    /// CPU model of the recording machine; empty for a generated trace.
    pub machine: String,
    /// Architecture of the program (`aarch64`); empty for x86-64 and for a generated trace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arch: String,
    /// Granularity of references and system calls in bytes: 4096.
    pub page_bytes: u64,
    /// Seed of a generated trace.
    pub seed: Option<u64>,
    /// Files, indexed by [`FileId`].
    pub files: Vec<FileInfo>,
    /// Mappings that existed before the first event.
    pub layout: Vec<LayoutEntry>,
    /// First address of the heap (brk); 0 if unknown.
    pub brk: u64,
    /// Total references in the rows.
    pub nr_references: u64,
    /// Total rows.
    pub nr_rows: u64,
    /// How the recording ended: `exit 0`, `signal 2`, `execve /bin/true`, `stopped`.
    pub ended: String,
    /// Gaps in the recording, one sentence each.
    pub warnings: Vec<String>,
    /// Runs of the program without a recorder (`folio record --runs`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<PlainRun>,
    /// Whether rows have links between loads ([`crate::event`]). If not, the links are unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub links: bool,
    /// Executions, referenced by execve rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<Execution>,
    /// Address spaces of [`Meta::execs`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the reference rows are page faults only, one reference each (`folio record --live`).
    /// Such a trace shows faults, reads and folios, but not TLB misses or total references.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub faults_only: bool,
    /// Start of the recording in the rows, for running processes (`folio record --live -p`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
    /// The recorder's abilities beyond schema version 6, by name ([`recorded`]). A name that is
    /// missing means that the trace shows nothing of it, whatever the program did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<String>,
}

/// Names in [`Meta::recorded`].
pub mod recorded {
    /// Sync rows: msync, fsync and the like.
    pub const SYNC: &str = "sync";
    /// Fallocate rows.
    pub const FALLOCATE: &str = "fallocate";
    /// Unlink rows.
    pub const UNLINK: &str = "unlink";
    /// Holes of files.
    pub const HOLES: &str = "holes";
    /// How read and write calls move data ([`crate::event::io`]).
    pub const IO: &str = "io";
    /// Block sizes and devices of files, and filesystems below others.
    pub const STORES: &str = "stores";
    /// References of the kernel to the buffers of every call, not only of read and write.
    pub const BUFFERS: &str = "buffers";
    /// Mlock rows.
    pub const MLOCK: &str = "mlock";
    /// `thp_disable` rows.
    pub const THP_DISABLE: &str = "thp_disable";
    /// Mempolicy rows. They matter only on machines with several nodes.
    pub const MEMPOLICY: &str = "mempolicy";

    /// All names, and the parts that a trace without them lacks.
    pub const ALL: [(&str, &str); 10] = [
        (SYNC, "msync and fsync"),
        (FALLOCATE, "fallocate"),
        (UNLINK, "unlink"),
        (HOLES, "holes of files"),
        (IO, "how calls move data"),
        (STORES, "disks, block sizes and overlays of files"),
        (BUFFERS, "the kernel's accesses to buffers"),
        (MLOCK, "mlock"),
        (THP_DISABLE, "PR_SET_THP_DISABLE"),
        (MEMPOLICY, "memory policies"),
    ];
}

impl Meta {
    /// Returns whether the recorder recorded `name`.
    #[must_use]
    pub fn has_recorded(&self, name: &str) -> bool {
        self.recorded.iter().any(|known| known == name)
    }

    /// Returns the number of rows before the recording.
    #[must_use]
    pub fn nr_rows_before(&self) -> u64 {
        self.attached.map_or(0, |attached| attached.nr_rows)
    }

    /// Returns the references during the recording, without the pages resident before it.
    #[must_use]
    pub fn nr_references_recorded(&self) -> u64 {
        self.nr_references.saturating_sub(self.attached.map_or(0, |attached| attached.nr_pages))
    }

    /// Returns the image of an execution, a row of [`Meta::execs`].
    #[must_use]
    pub fn image_of(&self, exec: u64) -> Option<&Image> {
        let exec = self.execs.get(usize::try_from(exec).ok()?)?;
        self.images.get(exec.image as usize)
    }

    /// Returns the files whose headers an execve reads to make `layout`, and position and length of
    /// each read, in order: the program, then its ELF interpreter.
    #[must_use]
    pub fn exec_reads(&self, layout: &[LayoutEntry]) -> Vec<(FileId, Vec<(u64, u64)>)> {
        let heads =
            [(LayoutKind::Program, HEAD_BYTES), (LayoutKind::Interpreter, ELF_HEADER_BYTES)];
        let of_kind = |(kind, head_bytes)| {
            let id = file_of_kind(layout, kind)?;
            let file = self.files.get(id as usize)?;
            let first = [(0, head_bytes), (ELF_HEADER_BYTES, PROGRAM_HEADER_BYTES)];
            let others = file.exec_reads.iter().take(NR_HEADERS_MAX);
            let others = others.map(|&(pos, len)| (pos, len.min(HEADERS_BYTES_MAX)));
            let reads = first.into_iter().chain(others);
            Some((id, reads.collect()))
        };
        heads.into_iter().filter_map(of_kind).collect()
    }

    /// Returns the path of the program whose mappings are `layout`.
    #[must_use]
    pub fn program_of(&self, layout: &[LayoutEntry]) -> Option<&str> {
        let file = program_file_of(layout)?;
        self.files.get(file as usize).map(|file| file.path.as_str())
    }

    /// Returns the oldest schema version that has all fields in use. The trace is written in that
    /// version, so older versions of folio can read it.
    pub(crate) fn schema_version_needed(&self) -> u32 {
        let needed = [
            (self.needs_newest(), SCHEMA_VERSION_OF_RECORDED),
            (self.attached.is_some(), SCHEMA_VERSION_OF_ATTACHED),
            (!self.arch.is_empty(), SCHEMA_VERSION_OF_ARCH),
            (!self.execs.is_empty() || self.faults_only, SCHEMA_VERSION_OF_EXECS),
            (self.links, SCHEMA_VERSION_OF_LINKS),
            (!self.runs.is_empty(), SCHEMA_VERSION_OF_RUNS),
        ];
        needed.into_iter().find(|&(is_needed, _)| is_needed).map_or(1, |(_, version)| version)
    }

    fn needs_newest(&self) -> bool {
        let has_store = |file: &FileInfo| {
            file.block_bytes > 0 || !file.disk.is_empty() || !file.through.is_empty()
        };
        let has_parts = |file: &FileInfo| !file.holes.is_empty() || !file.exec_reads.is_empty();
        let is_new = |file: &FileInfo| has_store(file) || has_parts(file);
        !self.recorded.is_empty() || self.files.iter().any(is_new)
    }
}

/// What every execve reads of its program first (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: u64 = 256;
/// An ELF64 header, which an execve reads first of an interpreter. Program headers follow it.
const ELF_HEADER_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
/// The most that an execve reads at once, and in how many calls; a damaged footer can name more.
const HEADERS_BYTES_MAX: u64 = 64 << 10;
const NR_HEADERS_MAX: usize = 64;

pub(crate) fn program_file_of(layout: &[LayoutEntry]) -> Option<FileId> {
    file_of_kind(layout, LayoutKind::Program)
}

fn file_of_kind(layout: &[LayoutEntry], kind: LayoutKind) -> Option<FileId> {
    layout.iter().filter(|entry| entry.kind == kind).find_map(|entry| entry.file)
}
