//! The mappings described by an ELF file of either class and either byte order.
//!
//! Invariant E1: on any input, reading neither panics nor uses more memory than the headers' size
//! plus 1 MiB per part.

pub mod constants;
pub mod dynamic;
pub mod exec_reads;
pub mod symbols;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use largefolio_trace::disk;
use largefolio_trace::shown;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, DT_SONAME, ELF_NOTE_GNU, ET_DYN, ET_EXEC, FileHeader32, FileHeader64,
    NT_GNU_BUILD_ID, PF_R, PF_W, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, ProgramFlags,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endian, Endianness, FileKind, ReadCache, ReadRef};

/// Longest build id in bytes. SHA-256 has 32.
const BUILD_ID_BYTES_MAX: usize = 64;
/// Longest note, dynamic section or interpreter name. Programs have a few kilobytes.
const PART_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of note owners. Programs have two or three.
const NR_OWNERS_MAX: usize = 32;

/// Maximum number of LOAD segments: the kernel reads 64 KiB of program headers.
const NR_LOADS_MAX: usize = (64 << 10) / 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    Bits32,
    #[default]
    Bits64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElfKind {
    /// A program at fixed addresses (`ET_EXEC`).
    Fixed,
    /// A position-independent program, static or with a loader.
    Program,
    #[default]
    Shared,
    /// An object file or a core dump, which cannot be loaded.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// `PROT_*` bits: 1 read, 2 write, 4 execute.
    pub prot: u32,
    pub offset: u64,
    /// Address before the load bias.
    pub vaddr: u64,
    pub file_bytes: u64,
    /// Bytes in memory. Those beyond `file_bytes` are zero.
    pub mem_bytes: u64,
    pub align: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfFile {
    pub file_bytes: u64,
    pub class: Class,
    pub is_little_endian: bool,
    pub machine: u16,
    pub kind: ElfKind,
    pub loads: Vec<Load>,
    /// The dynamic loader, `None` for a static program.
    pub interpreter: Option<PathBuf>,
    /// In hexadecimal, empty if there is none.
    pub build_id: String,
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    #[error("cannot read {}: {source}", shown(path))]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file", shown(.0))]
    NotAFile(PathBuf),
    #[error("{} is not an ELF file", shown(.0))]
    NotElf(PathBuf),
    /// A file with the ELF magic and broken contents.
    #[error("{} is a damaged ELF file: {what}", shown(path))]
    Damaged { path: PathBuf, what: String },
    #[error("{} is an object file or a core dump, which no program maps; if it is an object file, \
        link it first", shown(.0))]
    NotLoadable(PathBuf),
}

impl ElfError {
    pub(crate) fn open(path: &Path) -> Result<File, Self> {
        disk::open_regular(path).map_err(|source| {
            let is_other = disk::other_kind(&source).is_some();
            let path = path.to_owned();
            if is_other { Self::NotAFile(path) } else { Self::Io { path, source } }
        })
    }
}

impl ElfFile {
    /// Reads the headers of `path`.
    ///
    /// # Errors
    /// If it is not an ELF file or its headers cannot be read.
    pub fn read(path: &Path) -> Result<Self, ElfError> {
        Self::parse(path, &ReadCache::new(ElfError::open(path)?))
    }

    /// Reads the headers in `data`. Errors name it `path`.
    ///
    /// # Errors
    /// As [`ElfFile::read`].
    pub fn parse<'data, R: ReadRef<'data>>(path: &Path, data: R) -> Result<Self, ElfError> {
        let damaged = |error: object::read::Error| ElfError::Damaged {
            path: path.to_owned(),
            what: error.to_string(),
        };
        let is_elf = data.read_bytes_at(0, 4).is_ok_and(|magic| magic == b"\x7fELF");
        if !is_elf {
            return Err(ElfError::NotElf(path.to_owned()));
        }
        match FileKind::parse(data).map_err(damaged)? {
            FileKind::Elf32 => {
                parse::<FileHeader32<Endianness>, R>(data, Class::Bits32).map_err(damaged)
            }
            _ => parse::<FileHeader64<Endianness>, R>(data, Class::Bits64).map_err(damaged),
        }
    }

    /// Checks that a kernel could map the segments.
    ///
    /// # Errors
    /// Names the first segment outside of the file or the address space, or reports that there is
    /// no segment.
    pub fn check(&self, path: &Path) -> Result<(), ElfError> {
        if self.kind == ElfKind::Other {
            return Err(ElfError::NotLoadable(path.to_owned()));
        }
        let damaged = |what: String| ElfError::Damaged { path: path.to_owned(), what };
        if self.loads.is_empty() {
            return Err(damaged("it has no LOAD segment".to_owned()));
        }
        if self.loads.len() > NR_LOADS_MAX {
            let nr = self.loads.len();
            return Err(damaged(format!(
                "it has {nr} LOAD segments, but a kernel accepts at most {NR_LOADS_MAX}"
            )));
        }
        for (nr, load) in self.loads.iter().enumerate() {
            let Some(end) = load.offset.checked_add(load.file_bytes) else {
                return Err(damaged(format!("LOAD segment {nr} ends past the largest offset")));
            };
            if end > self.file_bytes {
                let have = self.file_bytes;
                let what = format!(
                    "LOAD segment {nr} ends at byte {end}, but the file has only {have} bytes"
                );
                return Err(damaged(format!("{what}: is it truncated?")));
            } else if load.vaddr.checked_add(load.mem_bytes.max(load.file_bytes)).is_none() {
                return Err(damaged(format!(
                    "LOAD segment {nr} extends past the end of the address space"
                )));
            } else if load.mem_bytes < load.file_bytes {
                return Err(damaged(format!(
                    "LOAD segment {nr} is larger in the file than in \
                                            memory"
                )));
            } else if load.align > 1 && !load.align.is_power_of_two() {
                let align = load.align;
                return Err(damaged(format!(
                    "LOAD segment {nr} has alignment {align}; expected a power of two"
                )));
            }
        }
        Ok(())
    }
}

fn parse<'data, H, R>(data: R, class: Class) -> object::read::Result<ElfFile>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let mut elf = ElfFile {
        file_bytes: data.len().unwrap_or(0),
        class,
        is_little_endian: endian.is_little_endian(),
        machine: header.e_machine(endian).0,
        ..ElfFile::default()
    };
    let (mut is_pie, mut has_name) = (false, false);
    for segment in header.program_headers(endian, data)? {
        let is_small = segment.p_filesz(endian).into() <= PART_BYTES_MAX;
        match segment.p_type(endian) {
            PT_LOAD => elf.loads.push(load::<H>(segment, endian)),
            PT_INTERP if is_small => {
                elf.interpreter = segment.interpreter(endian, data).ok().flatten().map(path_of);
            }
            PT_NOTE if is_small => {
                let _ = add_notes::<H, R>(&mut elf, segment, endian, data);
            }
            PT_DYNAMIC if is_small => {
                for entry in segment.dynamic(endian, data).ok().flatten().unwrap_or_default() {
                    let value: u64 = entry.d_val(endian).into();
                    is_pie |= entry.tag(endian) == DT_FLAGS_1 && value & DF_1_PIE.0 != 0;
                    has_name |= entry.tag(endian) == DT_SONAME;
                }
            }
            _ => {}
        }
    }
    elf.kind = match header.e_type(endian) {
        ET_EXEC => ElfKind::Fixed,
        // Programs linked before the flag existed have a loader and no name.
        ET_DYN if is_pie || (elf.interpreter.is_some() && !has_name) => ElfKind::Program,
        ET_DYN => ElfKind::Shared,
        _ => ElfKind::Other,
    };
    Ok(elf)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn load<H: FileHeader>(segment: &H::ProgramHeader, endian: H::Endian) -> Load {
    let flags = segment.p_flags(endian);
    let bit = |flag: ProgramFlags, prot: u32| if flags.0 & flag.0 == 0 { 0 } else { prot };
    Load {
        prot: bit(PF_R, 1) | bit(PF_W, 2) | bit(PF_X, 4),
        offset: segment.p_offset(endian).into(),
        vaddr: segment.p_vaddr(endian).into(),
        file_bytes: segment.p_filesz(endian).into(),
        mem_bytes: segment.p_memsz(endian).into(),
        align: segment.p_align(endian).into(),
    }
}

/// Adds the build id and the note owners of a segment. Returns `None` at a damaged note.
fn add_notes<'data, H: FileHeader, R: ReadRef<'data>>(
    elf: &mut ElfFile,
    segment: &H::ProgramHeader,
    endian: H::Endian,
    data: R,
) -> Option<()> {
    let mut notes = segment.notes(endian, data).ok()??;
    while let Some(note) = notes.next().ok()? {
        let owner = String::from_utf8_lossy(note.name()).into_owned();
        if elf.notes.len() < NR_OWNERS_MAX && !elf.notes.contains(&owner) {
            elf.notes.push(owner);
        }
        let is_id = note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
        if is_id && elf.build_id.is_empty() {
            let bytes = note.desc().get(..note.desc().len().min(BUILD_ID_BYTES_MAX))?;
            elf.build_id = bytes.iter().fold(String::new(), |mut text, byte| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            });
        }
    }
    Some(())
}
