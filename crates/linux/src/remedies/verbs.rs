//! Asks what a verb would do before it is recommended.
//!
//! Owns the questions; the verbs' own planning answers them. `folio collapse` needs no file: it
//! judges the same blocks as the census.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use crate::alignment::Placed;
use crate::elf::ElfFile;
use crate::elf::constants::constants;
use crate::elf::symbols::defined;
use crate::environment::{Host, find_in_path};
use crate::run;
use crate::system::Live;
use crate::warm::{Part, Users, Warm, Warmed};

/// The questions. Tests answer from a list.
pub trait Verbs {
    /// Whether the path leads to the file with this inode number from this process.
    fn is_here(&self, path: &Path, inode: u64) -> bool;

    /// Runs `folio warm --check` on a file; `None` if it cannot be examined.
    fn warm(&self, path: &Path) -> Option<Warmed>;

    /// Returns whether the file's text is loaded at blocks of `block_bytes`; `None` for
    /// non-programs.
    fn placed(&self, path: &Path, block_bytes: u64) -> Option<Placed>;

    /// Returns why `folio run --text remap` refuses a program, if it does.
    fn remap_refusal(&self, path: &Path) -> Option<String>;

    fn notes(&self, path: &Path) -> Vec<String>;

    /// Whether a shell finds the file with this inode number by name.
    fn finds(&self, name: &OsStr, inode: u64) -> bool;

    /// Returns the wanted functions that a file defines.
    fn symbols(&self, path: &Path, wanted: &[&str]) -> Vec<String>;

    /// Returns the wanted words that a program contains as constants.
    fn constants(&self, path: &Path, wanted: &[&str]) -> Vec<String>;
}

#[derive(Debug, Default)]
pub struct LiveVerbs {
    /// Which process maps each file, read on first use.
    users: OnceLock<Users>,
    /// Symbols by device, inode and query: programs share libraries.
    symbols: Mutex<BTreeMap<(u64, u64, String), Vec<String>>>,
}

impl Verbs for LiveVerbs {
    fn is_here(&self, path: &Path, inode: u64) -> bool {
        fs::metadata(path).is_ok_and(|metadata| metadata.ino() == inode)
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
        find_in_path(&Host, name).is_some_and(|metadata| self.is_here(&metadata, inode))
    }

    fn symbols(&self, path: &Path, wanted: &[&str]) -> Vec<String> {
        let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
        let key = (metadata.dev(), metadata.ino(), wanted.join(" "));
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
