//! What the verbs would do, asked before one is recommended.
//!
//! Owns the questions; the verbs' own planning answers them. `folio collapse` needs no
//! file: it judges the blocks of the census as the census does.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use crate::elf::ElfFile;
use crate::elf::constants::constants;
use crate::elf::symbols::defined;
use crate::environment::{Host, find_in_path};
use crate::run::{self, Placed};
use crate::system::Live;
use crate::warm::{Part, Users, Warm, Warmed};

/// What is asked; a test answers from a list.
pub trait Verbs {
    /// Whether the path leads to the file with this inode number from here.
    fn is_here(&self, path: &Path, inode: u64) -> bool;

    /// `folio warm --check` of a file; `None` where it cannot be examined.
    fn warm(&self, path: &Path) -> Option<Warmed>;

    /// Whether the loader places the text of the file so that blocks of `block_bytes` fit; `None` for
    /// what is no program.
    fn placed(&self, path: &Path, block_bytes: u64) -> Option<Placed>;

    /// Why `folio run --text remap` refuses a program; `None` where it does not.
    fn remap_refusal(&self, path: &Path) -> Option<String>;

    /// Owners of the ELF notes of a file.
    fn notes(&self, path: &Path) -> Vec<String>;

    /// Whether a shell finds the file with this inode number by a name.
    fn finds(&self, name: &OsStr, inode: u64) -> bool;

    /// Those of the functions that a file defines.
    fn symbols(&self, path: &Path, wanted: &[&str]) -> Vec<String>;

    /// Those of the words that a program holds as constants.
    fn constants(&self, path: &Path, wanted: &[&str]) -> Vec<String>;
}

/// The verbs of this program on the running system.
#[derive(Debug, Default)]
pub struct LiveVerbs {
    /// Who maps what, read when the first file is asked for.
    users: OnceLock<Users>,
    /// Symbols found by device, inode and query: programs share libraries.
    symbols: Mutex<BTreeMap<(u64, u64, String), Vec<String>>>,
}

impl Verbs for LiveVerbs {
    fn is_here(&self, path: &Path, inode: u64) -> bool {
        fs::metadata(path).is_ok_and(|found| found.ino() == inode)
    }

    fn warm(&self, path: &Path) -> Option<Warmed> {
        let users = || self.users.get_or_init(|| Users::read(&Live));
        Warm::new(path, Part::Whole).and_then(|warm| warm.check_among(&users)).ok()
    }

    fn placed(&self, path: &Path, block_bytes: u64) -> Option<Placed> {
        let elf = ElfFile::read(path).ok()?;
        elf.check(path).ok()?;
        Some(run::placed(path, &elf, block_bytes))
    }

    fn remap_refusal(&self, path: &Path) -> Option<String> {
        run::remap_refusal(path)
    }

    fn notes(&self, path: &Path) -> Vec<String> {
        ElfFile::read(path).map(|elf| elf.notes).unwrap_or_default()
    }

    fn finds(&self, name: &OsStr, inode: u64) -> bool {
        find_in_path(&Host, name).is_some_and(|found| self.is_here(&found, inode))
    }

    fn symbols(&self, path: &Path, wanted: &[&str]) -> Vec<String> {
        let Ok(found) = fs::metadata(path) else { return Vec::new() };
        let key = (found.dev(), found.ino(), wanted.join(" "));
        let read = || defined(path, wanted).unwrap_or_default();
        match self.symbols.lock() {
            Ok(mut known) => known.entry(key).or_insert_with(read).clone(),
            Err(_) => read(),
        }
    }

    fn constants(&self, path: &Path, wanted: &[&str]) -> Vec<String> {
        let elf = ElfFile::read(path).ok();
        elf.and_then(|elf| constants(path, &elf, wanted).ok()).unwrap_or_default()
    }
}
