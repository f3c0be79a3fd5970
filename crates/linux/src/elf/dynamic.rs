//! The dynamic section: the libraries a file needs, and its search paths for them.
//!
//! Reads within the limits of [`super`] (E1). Does not search for the libraries.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use object::elf::{
    DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, FileHeader32, FileHeader64,
    PT_DYNAMIC, PT_LOAD,
};
use object::read::StringTable;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use super::{ElfError, PART_BYTES_MAX};

const NR_NEEDED_MAX: usize = 4096;
/// Largest string table. A browser has 2 MiB.
const STRINGS_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Names of libraries, in order (`DT_NEEDED`).
    pub needed: Vec<OsString>,
    /// `DT_RPATH`: applies to the file and the libraries it loads, before `LD_LIBRARY_PATH`.
    pub rpath: Option<OsString>,
    /// `DT_RUNPATH`: applies only to this file, after `LD_LIBRARY_PATH`.
    pub runpath: Option<OsString>,
    /// Whether a sanitizer's runtime is linked in or needed. False with [`Symbols::Skip`].
    pub is_sanitized: bool,
}

/// Whether to scan the names of all symbols. A large program has megabytes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    Scan,
    Skip,
}

const SANITIZERS: [&[u8]; 5] =
    [b"__asan_init\0", b"__tsan_init\0", b"__msan_init\0", b"__hwasan_init\0", b"__lsan_init\0"];

impl Dynamic {
    /// Reads the dynamic section of `path`, empty if there is none.
    ///
    /// # Errors
    /// If it is not an ELF file or is damaged.
    pub fn read(path: &Path, symbols: Symbols) -> Result<Self, ElfError> {
        Self::parse(path, symbols, &ReadCache::new(ElfError::open(path)?))
    }

    /// Reads the dynamic section in `data`. Errors name it `path`.
    ///
    /// # Errors
    /// As [`Dynamic::read`].
    pub fn parse<'data, R: ReadRef<'data>>(
        path: &Path,
        symbols: Symbols,
        data: R,
    ) -> Result<Self, ElfError> {
        let damaged = |error: object::read::Error| ElfError::Damaged {
            path: path.to_owned(),
            what: error.to_string(),
        };
        match FileKind::parse(data) {
            Ok(FileKind::Elf32) => {
                parse::<FileHeader32<Endianness>, R>(data, symbols).map_err(damaged)
            }
            Ok(FileKind::Elf64) => {
                parse::<FileHeader64<Endianness>, R>(data, symbols).map_err(damaged)
            }
            _ => Err(ElfError::NotElf(path.to_owned())),
        }
    }
}

fn parse<'data, H, R>(data: R, symbols: Symbols) -> object::read::Result<Dynamic>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let mut dynamic = Dynamic::default();
    let is_dynamic = |segment: &&H::ProgramHeader| {
        segment.p_type(endian) == PT_DYNAMIC && segment.p_filesz(endian).into() <= PART_BYTES_MAX
    };
    let Some(segment) = segments.iter().find(is_dynamic) else { return Ok(dynamic) };
    let entries: Vec<_> = segment
        .dynamic(endian, data)?
        .unwrap_or_default()
        .iter()
        .map(|entry| (entry.tag(endian), entry.d_val(endian).into()))
        .take_while(|(tag, _)| *tag != DT_NULL)
        .collect();
    let value = |tag| entries.iter().find(|(key, _)| *key == tag).map(|(_, value)| *value);
    let table = value(DT_STRTAB)
        .and_then(|address| offset_of::<H>(segments, endian, address))
        .zip(value(DT_STRSZ).filter(|&bytes| bytes <= STRINGS_BYTES_MAX))
        .and_then(|(start, len): (u64, u64)| Some((start, start.checked_add(len)?)));
    let Some((start, end)) = table else { return Ok(dynamic) };
    let strings = StringTable::new(data, start, end);
    let text = |offset: u64| {
        let offset = u32::try_from(offset).ok()?;
        Some(OsString::from_vec(strings.get(offset).ok()?.to_vec()))
    };
    let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).take(NR_NEEDED_MAX);
    dynamic.needed = needed.filter_map(|(_, offset)| text(*offset)).collect();
    if symbols == Symbols::Scan {
        let names = data.read_bytes_at(start, end - start).unwrap_or_default();
        dynamic.is_sanitized = is_sanitized(names);
    }
    dynamic.rpath = value(DT_RPATH).and_then(text);
    dynamic.runpath = value(DT_RUNPATH).and_then(text);
    Ok(dynamic)
}

fn is_sanitized(names: &[u8]) -> bool {
    let starts = |at: &usize| names[*at..].starts_with(b"__");
    let places =
        (0..names.len()).filter(|&at| names[at] == b'_' && (at == 0 || names[at - 1] == 0));
    places.filter(starts).any(|at| SANITIZERS.iter().any(|name| names[at..].starts_with(name)))
}

fn offset_of<H: FileHeader>(
    segments: &[H::ProgramHeader],
    endian: H::Endian,
    address: u64,
) -> Option<u64> {
    let of = |segment: &H::ProgramHeader| {
        let into = address.checked_sub(segment.p_vaddr(endian).into())?;
        let is_inside = into < segment.p_filesz(endian).into();
        is_inside.then(|| segment.p_offset(endian).into().checked_add(into))?
    };
    let mut loads = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    loads.find_map(of)
}
