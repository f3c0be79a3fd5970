//! Resolves the paths of a recorded program.
//!
//! Owns the root: the directory that contains the libraries for another architecture. QEMU searches
//! absolute paths there first, and so does this module.

use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::error::RecordError;
use crate::environment::{Environment, Node};
use crate::proc::fd;
use crate::program::arch::Arch;

/// Distributions install the libraries for cross compilers here.
const OF_CROSS_COMPILERS: &str = "/usr";

impl Arch {
    pub(super) fn is_native(self) -> bool {
        self.name() == std::env::consts::ARCH
    }

    pub(super) fn in_trace(self) -> &'static str {
        if self == Self::X86_64 { "" } else { self.name() }
    }
}

/// A directory; `None` leaves all paths unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root(Option<PathBuf>);

impl Root {
    /// Returns the requested root, with links resolved.
    pub(crate) fn new(
        environment: &dyn Environment,
        requested: Option<&Path>,
    ) -> Result<Self, RecordError> {
        let Some(path) = requested else { return Ok(Self::default()) };
        if environment.node(path) != Node::Directory {
            return Err(RecordError::NoRoot(path.to_path_buf()));
        }
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        Ok(Self((real != Path::new("/")).then_some(real)))
    }

    /// Returns this root, or the cross compilers' root if it has the `loader`.
    pub(crate) fn with_loader(
        self,
        environment: &dyn Environment,
        arch: Arch,
        program: &Path,
        loader: Option<&Path>,
    ) -> Result<Self, RecordError> {
        let exists = |path: &Path| environment.node(path) != Node::Missing;
        let is_native = arch.is_native() && self.0.is_none();
        let missing = loader.filter(|loader| !is_native && !exists(&self.host(loader)));
        let Some(loader) = missing else { return Ok(self) };
        let of_cross = Path::new(OF_CROSS_COMPILERS).join(format!("{}-linux-gnu", arch.name()));
        let below = |root: &Path| root.join(loader.strip_prefix("/").unwrap_or(loader));
        if self.0.is_none() && exists(&below(&of_cross)) {
            return Ok(Self(Some(of_cross)));
        }
        let (program, loader) = (program.to_path_buf(), loader.to_path_buf());
        Err(RecordError::NoLoader { program, loader, arch: arch.name() })
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    pub(crate) fn host(&self, path: &Path) -> PathBuf {
        let root = self.directory().filter(|root| path.is_absolute() && !path.starts_with(root));
        root.and_then(|root| resolve(root, path)).unwrap_or_else(|| path.to_path_buf())
    }

    pub(crate) fn inside<'a>(&self, path: &'a Path) -> std::borrow::Cow<'a, Path> {
        match self.directory().and_then(|root| path.strip_prefix(root).ok()) {
            Some(rest) => Path::new("/").join(rest).into(),
            None => path.into(),
        }
    }
}

/// Follows links as if `root` were `/`.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(&root, path, flags, Mode::empty(), resolve).ok()?;
    std::fs::read_link(fd::own(&file)).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::environment::Host;

    #[test]
    fn paths_are_those_of_the_root_and_links_stay_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("usr/bin")).unwrap();
        std::fs::write(root.join("usr/bin/tool"), "").unwrap();
        symlink("/usr/bin/tool", root.join("usr/bin/link")).unwrap();
        symlink("/../../usr/bin/tool", root.join("usr/bin/out")).unwrap();
        let below = Root::new(&Host, Some(&root)).unwrap();
        for name in ["tool", "link", "out"] {
            let path = Path::new("/usr/bin").join(name);
            assert_eq!(below.host(&path), root.join("usr/bin/tool"), "{name}");
        }
        assert_eq!(below.inside(&root.join("usr/bin/tool")), Path::new("/usr/bin/tool"));
        for path in ["/usr/bin/nothing-of-this-name", "relative"].map(Path::new) {
            assert_eq!((below.host(path), &*below.inside(path)), (path.to_path_buf(), path));
        }
        assert_eq!(below.host(&root.join("usr/bin/link")), root.join("usr/bin/link"));
    }

    #[test]
    fn a_root_is_a_directory_and_that_of_this_system_is_none() {
        assert_eq!(Root::new(&Host, Some(Path::new("/"))).unwrap(), Root::default());
        let error = Root::new(&Host, Some(Path::new("/etc/passwd"))).unwrap_err().to_string();
        assert!(error.contains("no such directory"), "{error}");
    }

    #[test]
    fn a_missing_loader_is_named_with_the_remedy() {
        let program = Path::new("/p");
        let root = |loader: &str, arch| {
            Root::default().with_loader(&Host, arch, program, Some(Path::new(loader)))
        };
        let other = Arch::ALL.into_iter().find(|arch| !arch.is_native()).unwrap();
        let error = root("/lib/no-such-loader.so", other).unwrap_err().to_string();
        assert!(error.contains("/lib/no-such-loader.so") && error.contains("--root"), "{error}");
        // Native programs need no check.
        let native = Arch::ALL.into_iter().find(|arch| arch.is_native()).unwrap();
        assert!(root("/lib/no-such-loader.so", native).is_ok());
    }
}
