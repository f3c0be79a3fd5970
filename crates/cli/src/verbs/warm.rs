//! `folio warm`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use largefolio_linux::elf::ElfFile;
use largefolio_linux::warm::{Part, Warm, WarmError, Warmed, libraries};
use largefolio_results::warm::WarmResult;
use largefolio_results::{Form, Forms as _};

use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;

/// Refill the page cache of files with large folios
///
/// The page cache keeps the folio sizes with which a file was read: small ones after cp, git or a
/// cold start. This evicts what is small and reads it again in folios of 2M (one PMD entry), as far
/// as the filesystem has them: ext4, XFS, btrfs. Files shorter than 2M get the largest folios that
/// fit, which makes their faults cheaper. Programs started afterwards are mapped by large
/// entries where their addresses fit (folio maps --elf; folio align), and share the memory as
/// before. Nothing is written to the files; dirty pages are synced, never dropped. What running
/// processes have mapped stays as it is. The gain lasts until the pages are evicted.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio warm /usr/bin/node
  folio warm --libs /usr/bin/python3          with its shared libraries
  folio warm --recursive /opt/app             ELF files below a folder
  folio warm --check --json /opt/app/server   how much is large and what prevents more

Needs the right to read the file. Shows how much was large before only for files that you own or may
write to. For files shorter than 2M only root sees how large their folios are.

Exit status: 0 all or part is in large folios, or was read again and only root may see how, 1 nothing could be enlarged, 2 error.")]
pub(crate) struct WarmArgs {
    /// Files; folders with --recursive
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// With the shared libraries of each program (nothing is executed)
    #[arg(long)]
    libs: bool,
    /// For a folder: all ELF files below it
    #[arg(short, long)]
    recursive: bool,
    /// Change nothing: show how much is large and what prevents more
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    form: FormArgs,
}

/// Files to be warmed.
pub(crate) struct WarmPlan {
    files: Vec<PathBuf>,
    failed: Vec<(PathBuf, String)>,
    is_check: bool,
    form: Form,
    command_line: Vec<String>,
}

impl WarmArgs {
    /// Finds the files.
    pub(crate) fn plan(self, command_line: Vec<String>) -> WarmPlan {
        let (is_check, form) = (self.check, self.form.form());
        let mut plan =
            WarmPlan { files: Vec::new(), failed: Vec::new(), is_check, form, command_line };
        let mut seen = BTreeSet::new();
        for file in &self.files {
            if file.is_dir() && self.recursive {
                for found in programs_below(file) {
                    plan.add(found, &mut seen);
                }
                continue;
            }
            if file.is_dir() {
                let reason = "is a folder; --recursive takes the ELF files below it".to_owned();
                plan.failed.push((file.clone(), reason));
                continue;
            }
            plan.add(file.clone(), &mut seen);
            if self.libs {
                match libraries::of(file) {
                    Ok(found) => found.into_iter().for_each(|path| plan.add(path, &mut seen)),
                    Err(error) => plan.failed.push((file.clone(), error.to_string())),
                }
            }
        }
        plan
    }
}

impl WarmPlan {
    /// Adds a file once, whatever its names.
    fn add(&mut self, file: PathBuf, seen: &mut BTreeSet<(u64, u64)>) {
        let is_new = match fs::metadata(&file) {
            Ok(found) => seen.insert((found.dev(), found.ino())),
            // The error is told where it is opened.
            Err(_) => true,
        };
        if is_new {
            self.files.push(file);
        }
    }

    /// Warms file after file, and reports.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
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
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(match (remarks.is_empty(), result.is_yes()) {
            (false, _) => Exit::Error,
            (true, true) => Exit::Done,
            (true, false) => Exit::No,
        })
    }

    fn one(&self, file: &Path) -> Result<Warmed, WarmError> {
        let warm = Warm::new(file, Part::Whole)?;
        if self.is_check { warm.check() } else { warm.run() }
    }
}

/// ELF programs and shared objects below `folder`, in order of names. Links are not followed, other
/// filesystems not entered.
fn programs_below(folder: &Path) -> Vec<PathBuf> {
    let device = fs::metadata(folder).map(|found| found.dev()).ok();
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.is_dir() && Some(found.dev()) == device {
                folders.push(path);
            } else if found.is_file()
                && ElfFile::read(&path).is_ok_and(|elf| elf.check(&path).is_ok())
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
