//! Facts about the machine before another program starts: variables, files and tools.
//!
//! [`Environment`] is the interface; [`Host`] implements it for this machine. Tests use a table
//! instead, so every refusal is tested without QEMU or root.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Executable,
    Plain,
    Directory,
    Missing,
}

pub trait Environment {
    fn variable(&self, name: &str) -> Option<OsString>;

    fn node(&self, path: &Path) -> Node;

    /// Returns whether a program runs with other privileges than this process: its owner's, its
    /// group's or file capabilities.
    fn gives_rights(&self, path: &Path) -> bool;

    /// Returns the first bytes (at most 4096) of a file.
    ///
    /// # Errors
    /// The failure to open or read it.
    fn head(&self, path: &Path) -> io::Result<Vec<u8>>;

    fn own_executable(&self) -> Option<PathBuf>;

    /// Returns the reason if a user other than root and this one could have placed the file there.
    /// Users who could also have placed this program are trusted.
    fn distrust(&self, path: &Path) -> Option<String>;

    /// Runs a tool briefly and returns its stderr, empty if it cannot run.
    fn complaint(&self, tool: &Path, arguments: &[&OsStr]) -> String;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl Environment for Host {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn node(&self, path: &Path) -> Node {
        match path.metadata() {
            Err(_) => Node::Missing,
            Ok(metadata) if metadata.is_dir() => Node::Directory,
            Ok(metadata) if metadata.permissions().mode() & 0o111 != 0 => Node::Executable,
            Ok(_) => Node::Plain,
        }
    }

    fn gives_rights(&self, path: &Path) -> bool {
        let Ok(metadata) = path.metadata() else { return false };
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let has = |bits| metadata.mode() & bits == bits;
        let of_user = has(SET_USER) && metadata.uid() != user.as_raw();
        let of_group = has(SET_GROUP | GROUP_EXECUTES) && metadata.gid() != group.as_raw();
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

/// Finds the program `name` as a shell does: a name without `/` is looked up in `PATH`.
///
/// Returns `None` if `PATH` has no such executable. A name with `/` is returned unchanged.
#[must_use]
pub fn find_in_path(environment: &dyn Environment, name: &OsStr) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = environment.variable("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    find_on(environment, &path, name)
}

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
