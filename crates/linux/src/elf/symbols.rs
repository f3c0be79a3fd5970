//! The functions that a file defines: the `malloc` that a program uses, and the names of code.
//!
//! Reads the two symbol tables within limits. Y1: at most `SYMBOLS_BYTES_MAX` of a table and
//! `NAMES_BYTES_MAX` of its names are read, and of each kind of table the first.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use object::elf::{
    FileHeader32, FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_LOCAL, STT_FUNC,
};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use super::{Class, ElfError, ElfFile};

/// Limit of a symbol table in bytes. A browser with full symbols has 100 MiB.
const SYMBOLS_BYTES_MAX: u64 = 256 << 20;
const NAMES_BYTES_MAX: u64 = 256 << 20;
/// The rest of a longer name is dropped.
const NAME_BYTES_MAX: usize = 4 << 10;
/// Functions that are kept per place. A page of 4 KiB seldom has a hundred.
const NR_FUNCTIONS_MAX: usize = 256;

/// Returns those of `wanted` that `path` defines, in its dynamic symbols or its full table.
///
/// # Errors
/// If it is not an ELF file or is damaged.
pub fn defined(path: &Path, wanted: &[&str]) -> Result<Vec<String>, ElfError> {
    let data = &ReadCache::new(ElfError::open(path)?);
    let damaged = |error: object::read::Error| ElfError::Damaged {
        path: path.to_owned(),
        what: error.to_string(),
    };
    match FileKind::parse(data) {
        Ok(FileKind::Elf32) => {
            defined_in::<FileHeader32<Endianness>, _>(data, wanted).map_err(damaged)
        }
        Ok(FileKind::Elf64) => {
            defined_in::<FileHeader64<Endianness>, _>(data, wanted).map_err(damaged)
        }
        _ => Err(ElfError::NotElf(path.to_owned())),
    }
}

/// Returns the names of the functions with code in each of `places`, ranges of the file in bytes, by
/// address.
///
/// Returns `None` if the file's build id is not `build_id`: then it is another version.
///
/// # Errors
/// If it is not an ELF file or is damaged.
pub fn functions(
    path: &Path,
    build_id: &str,
    places: &[Range<u64>],
) -> Result<Option<Vec<Vec<String>>>, ElfError> {
    let data = &ReadCache::new(ElfError::open(path)?);
    let file = ElfFile::parse(path, data)?;
    if file.build_id != build_id {
        return Ok(None);
    }
    let places: Vec<Range<u64>> = places.iter().map(|place| addresses(&file, place)).collect();
    let damaged = |error: object::read::Error| ElfError::Damaged {
        path: path.to_owned(),
        what: error.to_string(),
    };
    let found = match file.class {
        Class::Bits32 => overlapping::<FileHeader32<Endianness>, _>(data, &places),
        Class::Bits64 => overlapping::<FileHeader64<Endianness>, _>(data, &places),
    };
    found.map(Some).map_err(damaged)
}

/// Returns the addresses of a range of the file before the load bias; empty if none is loaded.
fn addresses(file: &ElfFile, place: &Range<u64>) -> Range<u64> {
    let load = file.loads.iter().find(|load| {
        load.offset < place.end && place.start < load.offset.saturating_add(load.file_bytes)
    });
    let Some(load) = load else { return 0..0 };
    let address = |pos: u64| {
        let pos = pos.clamp(load.offset, load.offset.saturating_add(load.file_bytes));
        load.vaddr.saturating_add(pos - load.offset)
    };
    address(place.start)..address(place.end)
}

fn overlapping<'data, H, R>(
    data: R,
    places: &[Range<u64>],
) -> object::read::Result<Vec<Vec<String>>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut found: Vec<BTreeMap<u64, String>> = vec![BTreeMap::new(); places.len()];
    each_symbol::<H, R>(data, |endian, symbol, name| {
        let start: u64 = symbol.st_value(endian).into();
        let end = start.saturating_add(symbol.st_size(endian).into());
        if symbol.st_type() != STT_FUNC {
            return;
        }
        for (place, found) in places.iter().zip(&mut found) {
            if start < place.end && place.start < end && found.len() < NR_FUNCTIONS_MAX {
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                found.entry(start).or_insert_with(|| String::from_utf8_lossy(name).into_owned());
            }
        }
    })?;
    Ok(found.into_iter().map(|found| found.into_values().collect()).collect())
}

fn defined_in<'data, H, R>(data: R, wanted: &[&str]) -> object::read::Result<Vec<String>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut found_names: Vec<String> = Vec::new();
    each_symbol::<H, R>(data, |_, symbol, name| {
        if symbol.st_bind() != STB_LOCAL {
            let new = wanted.iter().find(|one| one.as_bytes() == name).map(|&one| one.to_owned());
            found_names.extend(new.filter(|new| !found_names.contains(new)));
        }
    })?;
    Ok(found_names)
}

/// Calls `see` with each symbol that the file defines, and its name.
fn each_symbol<'data, H, R>(
    data: R,
    mut see: impl FnMut(Endianness, &H::Sym, &[u8]),
) -> object::read::Result<()>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        // The table that `symbols` returns: the first of its kind.
        let first = sections.iter().find(|section| section.sh_type(endian) == kind);
        let Some(section) = first else { continue };
        let names = sections.section(section.link(endian));
        let has_large_names =
            names.is_ok_and(|names| names.sh_size(endian).into() > NAMES_BYTES_MAX);
        if section.sh_size(endian).into() > SYMBOLS_BYTES_MAX || has_large_names {
            continue;
        }
        let table = sections.symbols(endian, data, kind)?;
        for symbol in table.iter().filter(|symbol| symbol.st_shndx(endian) != SHN_UNDEF) {
            see(endian, symbol, table.symbol_name(endian, symbol).unwrap_or_default());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A library with a function of its own page, `alone`, and two that share one.
    const SOURCE: &str = "
        __attribute__((aligned(4096))) int alone(int x) { return x + 1; }
        __attribute__((aligned(4096))) int first(int x) { return x + 2; }
        static int __attribute__((noipa)) second(int x) { return x * 3; }
        int third(int x) { return second(x) + first(x); }";

    #[test]
    fn a_page_of_code_has_the_functions_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("x.c"), dir.path().join("libx.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let args = ["-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o"];
        let cc = Command::new("cc").args(args).arg(&library).arg(&source).status().unwrap();
        assert!(cc.success());
        let file = ElfFile::read(&library).unwrap();
        let text = file.loads.iter().find(|load| load.prot & 4 != 0).unwrap();
        let pages: Vec<Range<u64>> = (0..text.file_bytes.div_ceil(4096))
            .map(|nr| text.offset + nr * 4096..text.offset + (nr + 1) * 4096)
            .chain(std::iter::once(1 << 40..2 << 40))
            .collect();
        let found = functions(&library, &file.build_id, &pages).unwrap().unwrap();
        assert_eq!(found.len(), pages.len());
        assert!(found.contains(&vec!["alone".to_owned()]), "{found:?}");
        let has = |names: &[&str]| {
            found.iter().any(|page| names.iter().all(|&name| page.iter().any(|it| it == name)))
        };
        assert!(has(&["first", "third"]) && has(&["second"]), "local ones count: {found:?}");
        assert_eq!(found.last(), Some(&Vec::new()), "not in the file");
        assert_eq!(functions(&library, "00", &pages).unwrap(), None);
        assert!(functions(&source, "", &pages).is_err());
    }
}
