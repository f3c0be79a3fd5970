//! The functions that a file defines, which show the `malloc` that a program uses.
//!
//! Reads the two symbol tables within limits. Y1: at most `SYMBOLS_BYTES_MAX` of a table and
//! `NAMES_BYTES_MAX` of its names are read.

use std::path::Path;

use object::elf::{FileHeader32, FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_LOCAL};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use super::ElfError;

/// Limit of a symbol table in bytes. A browser with full symbols has 100 MiB.
const SYMBOLS_BYTES_MAX: u64 = 256 << 20;
const NAMES_BYTES_MAX: u64 = 256 << 20;

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
        Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>, _>(data, wanted).map_err(damaged),
        Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>, _>(data, wanted).map_err(damaged),
        _ => Err(ElfError::NotElf(path.to_owned())),
    }
}

fn parse<'data, H, R>(data: R, wanted: &[&str]) -> object::read::Result<Vec<String>>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut found_names: Vec<String> = Vec::new();
    for (_, section) in sections.enumerate() {
        let kind = section.sh_type(endian);
        let is_small = section.sh_size(endian).into() <= SYMBOLS_BYTES_MAX;
        if !(kind == SHT_DYNSYM || kind == SHT_SYMTAB) || !is_small {
            continue;
        }
        let names = sections.section(section.link(endian));
        if names.is_ok_and(|names| names.sh_size(endian).into() > NAMES_BYTES_MAX) {
            continue;
        }
        let table = sections.symbols(endian, data, kind)?;
        for symbol in table.iter() {
            if symbol.st_shndx(endian) == SHN_UNDEF || symbol.st_bind() == STB_LOCAL {
                continue;
            }
            let name = table.symbol_name(endian, symbol).unwrap_or_default();
            let new = wanted.iter().find(|one| one.as_bytes() == name).map(|&one| one.to_owned());
            found_names.extend(new.filter(|new| !found_names.contains(new)));
        }
    }
    Ok(found_names)
}
