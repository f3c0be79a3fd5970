//! Reads the facts that identify a program's runtime and allocator.
//!
//! Reads a file by its path if the path still leads to it, else through `/proc/PID/map_files`. This
//! finds deleted programs and programs in other mount namespaces.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::runtime::{constants, is_known_allocator};
use super::traits::{LIBC, Traits};
use super::verbs::{LiveVerbs, Verbs};
use crate::census::process::Process;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::program::start::{Start, is_loader};
use crate::system::System;

impl Traits {
    #[must_use]
    pub fn recorded<'a>(program: &Path, files: impl Iterator<Item = &'a Path>) -> Self {
        let verbs = LiveVerbs::default();
        let files: Vec<&Path> = files.filter(|file| *file != program).collect();
        let own = File { name: name_of(program), path: program.to_owned() };
        let others = files.iter().map(|&path| File { name: name_of(path), path: path.to_owned() });
        Self::of_files(&verbs, own, others.collect())
    }

    pub(crate) fn of(system: &dyn System, verbs: &dyn Verbs, process: &Process) -> Self {
        let task = Task::of(system, process.pid);
        let start = Start::of(&task);
        let vmas = process.mappings.iter().map(|mapping| &mapping.vma);
        let files: Vec<&Vma> = vmas.filter(|vma| vma.has_file()).collect();
        let own = start.program(&files);
        let file = |vma: &Vma| {
            let Vma { path, inode, range, .. } = vma;
            let is_here = verbs.is_here(path, *inode);
            let reached = if is_here { path.clone() } else { task.mapped_file(range) };
            File { name: name_of(path), path: reached }
        };
        let is_other = |vma: &&&Vma| {
            let id = |vma: &Vma| (vma.device, vma.inode);
            vma.is_exec() && own.is_none_or(|own| id(own) != id(vma))
        };
        let mut others: Vec<&Vma> = files.iter().filter(is_other).copied().collect();
        others.dedup_by_key(|vma| (vma.device, vma.inode));
        let others = others.into_iter().map(file).collect();
        let mut traits = Self::of_files(verbs, own.map(file).unwrap_or_default(), others);
        let program = own.map(|own| own.path.clone()).unwrap_or_default();
        let inode = own.map_or(0, |own| own.inode);
        traits.typed = start.typed(&program, |name: &OsStr| verbs.finds(name, inode));
        traits.name = start.name(&program).to_string_lossy().into_owned();
        Self { program, start, ..traits }
    }

    fn of_files(verbs: &dyn Verbs, own: File, others: Vec<File>) -> Self {
        let allocator = allocator(verbs, &own, &others);
        let objects = [own.name.clone()].into_iter().chain(others.into_iter().map(|one| one.name));
        Self {
            allocator,
            objects: objects.filter(|name| !name.is_empty()).collect(),
            notes: verbs.notes(&own.path),
            constants: verbs.constants(&own.path, &constants()),
            typed: vec![own.name.clone().into()],
            name: own.name,
            program: own.path,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, Default)]
struct File {
    name: String,
    path: PathBuf,
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Finds the file that provides `malloc`. The program comes before its libraries, and glibc last.
fn allocator(verbs: &dyn Verbs, own: &File, others: &[File]) -> String {
    let is_base = |file: &&File| file.name != LIBC && !is_loader(Path::new(&file.name));
    let mut files = [own].into_iter().chain(others).filter(is_base);
    // An unreadable file is recognised by its name.
    let defines = |file: &&File| {
        is_known_allocator(&file.name) || !verbs.symbols(&file.path, &["malloc"]).is_empty()
    };
    let has_libc = own.name == LIBC || others.iter().any(|file| file.name == LIBC);
    let libc = if has_libc { LIBC.to_owned() } else { String::new() };
    files.find(defines).map_or(libc, |file| file.name.clone())
}
