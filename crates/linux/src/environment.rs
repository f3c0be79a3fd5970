//! What is asked of the machine before another program is started: variables, files, tools.
//!
//! Owns the seam: [`Environment`] is asked, [`Host`] answers from the running machine; tests answer
//! from a table, so that every refusal is tested without QEMU, valgrind or root.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use largefolio_trace::disk::open_regular;

use crate::trust;

/// Bits of a file's mode (inode(7)), and the attribute with its capabilities.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o10;
const CAPABILITIES: &str = "security.capability";

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A file with some execute bit.
    Executable,
    /// A file without.
    Plain,
    /// A directory.
    Directory,
    /// Nothing.
    Missing,
}

/// What the checks ask.
pub trait Environment {
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<OsString>;

    /// What `path` names.
    fn node(&self, path: &Path) -> Node;

    /// Whether a program runs with other rights than this process: of its owner, of its group, or with
    /// capabilities of its own.
    fn gives_rights(&self, path: &Path) -> bool;

    /// The first bytes (at most 4096) of a file.
    ///
    /// # Errors
    /// The system's refusal to open or read it.
    fn head(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Path of the running executable.
    fn own_executable(&self) -> Option<PathBuf>;

    /// Why others could have put the file there than root, this user and those who could also have put
    /// this program where it is; `None` if nobody else could.
    fn distrust(&self, path: &Path) -> Option<String>;

    /// Runs a tool for a moment and returns what it wrote to stderr; empty when it cannot run.
    fn complaint(&self, tool: &Path, arguments: &[&OsStr]) -> String;
}

/// The running machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Environment for Host {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn node(&self, path: &Path) -> Node {
        match path.metadata() {
            Err(_) => Node::Missing,
            Ok(found) if found.is_dir() => Node::Directory,
            Ok(found) if found.permissions().mode() & 0o111 != 0 => Node::Executable,
            Ok(_) => Node::Plain,
        }
    }

    fn gives_rights(&self, path: &Path) -> bool {
        let Ok(found) = path.metadata() else { return false };
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let has = |bits| found.mode() & bits == bits;
        let of_user = has(SET_USER) && found.uid() != user.as_raw();
        let of_group = has(SET_GROUP | GROUP_EXECUTES) && found.gid() != group.as_raw();
        let has_capabilities = || rustix::fs::getxattr(path, CAPABILITIES, &mut [0_u8; 64]).is_ok();
        of_user || of_group || !user.is_root() && has_capabilities()
    }

    fn head(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        open_regular(path)?.take(4096).read_to_end(&mut head)?;
        Ok(head)
    }

    fn own_executable(&self) -> Option<PathBuf> {
        std::env::current_exe().ok()
    }

    fn distrust(&self, path: &Path) -> Option<String> {
        let mut owners = self.own_executable().map_or_else(Vec::new, |own| trust::owners(&own));
        owners.extend([0, rustix::process::geteuid().as_raw()]);
        trust::distrust(path, &owners)
    }

    fn complaint(&self, tool: &Path, arguments: &[&OsStr]) -> String {
        let output = Command::new(tool)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output();
        output.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    }
}

/// The program `name` as a shell finds it: a name without `/` is looked up in `PATH`.
///
/// `None` when there is no such executable in `PATH`; a name with `/` is returned as it is.
#[must_use]
pub fn find_in_path(environment: &dyn Environment, name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = environment.variable("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    find_on(environment, &path, name)
}

/// The executable `name` in one of the directories of `path`, which has `:` between them.
pub(crate) fn find_on(
    environment: &dyn Environment,
    path: &OsStr,
    name: &OsStr,
) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|directory| if directory.as_os_str().is_empty() { ".".into() } else { directory })
        .map(|directory: PathBuf| directory.join(name))
        .find(|candidate| environment.node(candidate) == Node::Executable)
}
