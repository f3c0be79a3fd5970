//! `folio warm`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_linux::elf::ElfFile;
use largefolio_linux::persist::warm::{self, Libraries};
use largefolio_linux::persist::{FilePiece, Planned};
use largefolio_linux::shell::as_root;
use largefolio_linux::tune::files;
use largefolio_linux::tune::record::Store;
use largefolio_linux::warm::{Part, Warm, WarmError, Warmed, libraries};
use largefolio_results::warm::WarmResult;
use largefolio_results::{Form, Forms as _};
use largefolio_trace::shown;

use super::lasting;
use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Refill the page cache of files with large folios
///
/// The page cache keeps the folio sizes with which a file was read: small ones after cp, git or a
/// cold start. This command evicts the small folios and reads the file again into 2M folios (one
/// PMD entry; on arm64 with 16K or 64K pages, one contpte block), if the filesystem supports them
/// (ext4, XFS, btrfs). Files shorter than 2M get the largest folios that fit, which makes their
/// faults cheaper. Programs started afterwards are mapped by large entries if their addresses allow
/// it (see folio maps --elf and folio align), and share the memory as before. Nothing is written to
/// the files; dirty pages are synced, never dropped. Pages that running processes have mapped stay
/// unchanged. The gain lasts until the pages are evicted. With --persist, systemd warms the file
/// again at every boot and whenever an upgrade replaces it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio warm /usr/bin/node
  folio warm --libs /usr/bin/python3          with its shared libraries
  folio warm --recursive /opt/app             ELF files below a folder
  folio warm --check --json /opt/app/server   how much is in large folios, and why not more
  sudo folio warm --persist /usr/bin/node     again at every boot and after an upgrade
  sudo folio tune --undo                      removes the units of --persist

Needs read permission on the file. How much was in large folios before the command is shown only for
files that you own or can write to. For files shorter than 2M, and for all files with 16K or 64K
pages, only root can see folio sizes.

Exit status: 0 if all or part of the memory is in large folios, or if the files were read again but
only root can see the sizes; 1 if nothing could be enlarged; 2 on error.")]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct WarmArgs {
    /// Files to warm; with --recursive, also folders
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also warm the shared libraries of each program (nothing is executed)
    #[arg(long)]
    libs: bool,
    /// For a folder, warm all ELF files below it
    #[arg(short, long)]
    recursive: bool,
    /// Write a service and a path unit for each file, so that systemd warms it again at boot and
    /// when the file is replaced
    #[arg(long, conflicts_with_all = ["check", "recursive"])]
    persist: bool,
    /// With --persist, write below DIR/etc instead of /etc
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/",
        hide_default_value = true,
        requires = "persist"
    )]
    root: PathBuf,
    /// Only show how much is in large folios and what prevents more
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    form: FormArgs,
}

pub(crate) struct WarmPlan {
    files: Vec<PathBuf>,
    failed: Vec<(PathBuf, String)>,
    is_check: bool,
    units: Vec<FilePiece>,
    root: PathBuf,
    form: Form,
    command_line: Vec<String>,
}

impl VerbArgs for WarmArgs {
    type Plan = WarmPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let mut plan = WarmPlan {
            files: Vec::new(),
            failed: Vec::new(),
            is_check: self.check,
            units: if self.persist { self.units()? } else { Vec::new() },
            root: self.root,
            form: self.form.form(),
            command_line,
        };
        let mut known_files = BTreeSet::new();
        for file in &self.files {
            if file.is_dir() && self.recursive {
                let programs = programs_below(file);
                if programs.is_empty() {
                    console::say(&format!(
                        "folio: {} contains no ELF files: there is nothing to warm",
                        shown(file)
                    ));
                }
                for path in programs {
                    plan.add(path, &mut known_files);
                }
                continue;
            }
            if file.is_dir() {
                let reason = "is a folder; --recursive warms the ELF files below it".to_owned();
                plan.failed.push((file.clone(), reason));
                continue;
            }
            plan.add(file.clone(), &mut known_files);
            if self.libs {
                match libraries::of(file) {
                    Ok(libraries) => {
                        for path in libraries {
                            plan.add(path, &mut known_files);
                        }
                    }
                    Err(error) => plan.failed.push((file.clone(), error.to_string())),
                }
            }
        }
        Ok(plan)
    }
}

impl WarmArgs {
    fn units(&self) -> Result<Vec<FilePiece>> {
        let folio = std::env::current_exe().context("cannot find folio's own path")?;
        let libraries = if self.libs { Libraries::Linked } else { Libraries::No };
        let mut units: Vec<FilePiece> = Vec::new();
        for file in &self.files {
            let file = std::path::absolute(file)?;
            for unit in warm::of_file(&folio, &file, libraries)? {
                if units.iter().all(|known| known.place != unit.place) {
                    units.push(unit);
                }
            }
        }
        Ok(units)
    }
}

impl VerbPlan for WarmPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let store = if self.units.is_empty() { None } else { Some(self.store()?) };
        let bar = console::counter(self.files.len() as u64, "warming");
        let mut result = WarmResult::new(self.command_line.clone(), self.is_check);
        for (file, reason) in &self.failed {
            result.fail(file, reason.clone());
        }
        for file in &self.files {
            match self.one(file) {
                Ok(warmed) => result.add(&warmed),
                Err(error) => result.fail(file, error.to_string()),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let remarks = result.remarks();
        console::remark(&remarks);
        let written = match store {
            Some(store) if remarks.is_empty() => self.persist(&store)?,
            Some(_) => {
                console::say("folio: no unit was written because a file could not be examined");
                Vec::new()
            }
            None => Vec::new(),
        };
        result.wrote(&written);
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        if !written.is_empty() {
            lasting::activate(&self.root, &written);
            console::say(&format!(
                "folio: the units are recorded; to undo them: {}",
                as_root("folio tune --undo")
            ));
        }
        Ok(match (remarks.is_empty(), result.is_yes()) {
            (false, _) => Exit::Error,
            (true, true) => Exit::Done,
            (true, false) => Exit::No,
        })
    }
}

impl WarmPlan {
    /// Adds a file once, even if it has several names.
    fn add(&mut self, file: PathBuf, known_files: &mut BTreeSet<(u64, u64)>) {
        let is_new = match fs::metadata(&file) {
            Ok(metadata) => known_files.insert((metadata.dev(), metadata.ino())),
            // Opening it will report the error.
            Err(_) => true,
        };
        if is_new {
            self.files.push(file);
        }
    }

    fn store(&self) -> Result<Store> {
        let store = Store::open(&lasting::state_folder()?, &self.root)?;
        files::check(&files::planned(&self.root, &store.files()?, &self.units)?)?;
        Ok(store)
    }

    fn persist(&self, store: &Store) -> Result<Vec<Planned>> {
        let written = store.persist(&self.units, &[], &mut || Ok(()));
        written.context("the files were warmed, but will not be warmed again")
    }

    fn one(&self, file: &Path) -> Result<Warmed, WarmError> {
        let warm = Warm::new(file, Part::Whole)?;
        if self.is_check { warm.check() } else { warm.run() }
    }
}

/// Returns the ELF programs and shared objects below `folder`, sorted by name. It does not follow
/// links or enter other filesystems.
fn programs_below(folder: &Path) -> Vec<PathBuf> {
    let device = fs::metadata(folder).map(|metadata| metadata.dev()).ok();
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() && Some(metadata.dev()) == device {
                folders.push(path);
            } else if metadata.is_file()
                && ElfFile::read(&path).is_ok_and(|elf| elf.check(&path).is_ok())
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
