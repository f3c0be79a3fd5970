//! Finds the ELF program that a command really runs.
//!
//! Owns the lookup through `PATH` and `#!` lines (the kernel's rules: one optional argument, then
//! the script's path), and the checks: only ELF programs for x86-64 or arm64 pass.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use largefolio_trace::disk;

use super::error::RecordError;
use super::root::Root;
use crate::environment::{Environment, Node, find_in_path};
use crate::program::arch::Arch;
use crate::program::head::{self, Head, INTERPRETERS_MAX};
use crate::program::{env_name, shebang};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The ELF file that runs: the program, or a script's interpreter.
    pub elf: PathBuf,
    pub arguments: Vec<OsString>,
    /// The trace file's name: the command's last path component.
    pub name: OsString,
    pub(crate) arch: Arch,
    /// Its absolute paths are searched here first.
    pub(crate) root: Root,
    /// The scripts that led to it.
    pub(crate) scripts: Vec<PathBuf>,
}

/// Finds and checks the program of `command`.
///
/// # Errors
/// A [`RecordError`] for each reason that the program cannot be recorded.
pub fn resolve(
    environment: &dyn Environment,
    command: &[OsString],
    root: Option<&Path>,
) -> Result<Program, RecordError> {
    let Some((first, rest)) = command.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Err(RecordError::NoProgram);
    };
    let root = Root::new(environment, root)?;
    let path = look_up(environment, &root, first)?;
    let mut arguments = vec![first.clone()];
    arguments.extend_from_slice(rest);
    let name = path.file_name().unwrap_or(first).to_owned();
    let mut search = Search { environment, root: &root, scripts: Vec::new() };
    let (elf, arguments, arch) = search.follow(path, arguments, INTERPRETERS_MAX)?;
    let scripts = search.scripts;
    let head = environment.head(&elf).unwrap_or_default();
    let loader = head::loader(&head).map(|path| Path::new(OsStr::from_bytes(path)));
    if let Some(directory) =
        root.directory().filter(|root| arch.is_native() && !elf.starts_with(root))
    {
        return Err(RecordError::NotInRoot { path: elf, root: directory.to_path_buf() });
    }
    let root = root.clone().with_loader(environment, arch, &elf, loader)?;
    Ok(Program { elf, arguments, name, arch, root, scripts })
}

impl Program {
    pub(super) fn is_native(&self) -> bool {
        self.arch.is_native() && self.root.directory().is_none()
    }
}

fn look_up(
    environment: &dyn Environment,
    root: &Root,
    name: &OsStr,
) -> Result<PathBuf, RecordError> {
    let missing = || RecordError::NotInPath(name.to_string_lossy().into_owned());
    if root.directory().is_none() || name.as_bytes().contains(&b'/') {
        let path = find_in_path(environment, name).ok_or_else(missing)?;
        return Ok(root.host(&path));
    }
    let path = environment.variable("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&path).map(|directory| root.host(&directory.join(name)));
    paths.find(|path| environment.node(path) == Node::Executable).ok_or_else(missing)
}

struct Search<'a> {
    environment: &'a dyn Environment,
    root: &'a Root,
    scripts: Vec<PathBuf>,
}

impl Search<'_> {
    fn follow(
        &mut self,
        path: PathBuf,
        arguments: Vec<OsString>,
        nr_left: usize,
    ) -> Result<(PathBuf, Vec<OsString>, Arch), RecordError> {
        match self.environment.node(&path) {
            Node::Missing => return Err(RecordError::Missing(path)),
            Node::Directory => return Err(RecordError::Directory(path)),
            Node::Plain => return Err(RecordError::NotExecutable(path)),
            Node::Executable => {}
        }
        let head = self
            .environment
            .head(&path)
            .map_err(|source| RecordError::Unreadable { path: path.clone(), source })?;
        match head::head(&head) {
            Head::Program(arch) => return Ok((path, arguments, arch)),
            Head::ThirtyTwoBit => return Err(RecordError::ThirtyTwoBit(path)),
            Head::Foreign(machine) => {
                let machine = machine_name(machine);
                return Err(RecordError::ForeignMachine { path, machine });
            }
            Head::NoProgram => return Err(RecordError::NotExecutableElf(path)),
            Head::Script { .. } | Head::Unknown => {}
        }
        let (interpreter, argument) =
            shebang(&head).ok_or_else(|| RecordError::NotAProgram(path.clone()))?;
        if nr_left == 0 {
            return Err(RecordError::InterpreterLoop(path));
        }
        let (interpreter, argument) = self.through_env(interpreter, argument)?;
        let mut next = vec![interpreter.clone()];
        next.extend(argument);
        next.push(self.root.inside(&path).into_owned().into_os_string());
        next.extend(arguments.into_iter().skip(1));
        let interpreter = self.root.host(Path::new(&interpreter));
        self.scripts.push(path.clone());
        self.follow(interpreter, next, nr_left - 1).map_err(|error| match error {
            same @ (RecordError::Interpreter { .. } | RecordError::InterpreterLoop(_)) => same,
            source => RecordError::Interpreter { script: path, source: Box::new(source) },
        })
    }

    /// `#!/usr/bin/env NAME` executes NAME from `PATH`.
    fn through_env(
        &self,
        interpreter: OsString,
        argument: Option<OsString>,
    ) -> Result<(OsString, Option<OsString>), RecordError> {
        let Some(name) = env_name(&interpreter, argument.as_ref()) else {
            return Ok((interpreter, argument));
        };
        let path = look_up(self.environment, self.root, name)?;
        Ok((self.root.inside(&path).into_owned().into_os_string(), None))
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        243 => "riscv".to_owned(),
        21 => "ppc64".to_owned(),
        22 => "s390x".to_owned(),
        258 => "loongarch".to_owned(),
        other => format!("ELF machine {other}"),
    }
}

/// Returns the trace's path (`<program>.folio` by default) if a file can be made there.
pub(super) fn checked_output(
    requested: Option<&Path>,
    name: &OsStr,
) -> Result<PathBuf, RecordError> {
    let default = || PathBuf::from(OsString::from_vec([name.as_bytes(), b".folio"].concat()));
    let path = requested.map_or_else(default, Path::to_path_buf);
    if disk::is_stdout(&path) {
        return Err(RecordError::ToStdout(default()));
    }
    match disk::check(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(RecordError::Output { path, source }),
    }
}
