//! Finds a program's shared libraries as its loader does, without running it.
//!
//! Searches `DT_RPATH`, `LD_LIBRARY_PATH`, `DT_RUNPATH`, `/etc/ld.so.cache` and the default
//! directories, in glibc's order. Does not find libraries loaded later by `dlopen`, through
//! `LD_PRELOAD` or by other loaders.

use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_whole;

use crate::elf::dynamic::{Dynamic, Symbols};
use crate::elf::{Class, ElfError, ElfFile};

const CACHE: &str = "/etc/ld.so.cache";
/// Magic of that file since glibc 2.32. Older ones have it after a part in the old format.
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const CACHE_HEADER_BYTES: usize = 48;
const CACHE_ENTRY_BYTES: usize = 24;
/// Largest cache that is read. A desktop's has 200 KiB.
const CACHE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of libraries. A large desktop program has 300.
const NR_LIBRARIES_MAX: usize = 4096;
const FOLDERS: [&str; 6] = if cfg!(target_arch = "aarch64") {
    [
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ]
} else {
    [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ]
};

/// Returns the interpreter and all libraries of `program`, each once, in search order.
///
/// # Errors
/// If the program itself cannot be read.
pub fn of(program: &Path) -> Result<Vec<PathBuf>, ElfError> {
    let elf = ElfFile::read(program)?;
    let mut search = Search {
        class: elf.class,
        machine: elf.machine,
        variable: std::env::var_os("LD_LIBRARY_PATH"),
        cache: Cache::read(Path::new(CACHE)),
        program_rpath: Vec::new(),
    };
    let (mut libraries, mut visited) = (Vec::new(), BTreeSet::new());
    if let Some(interpreter) = elf.interpreter.and_then(|path| fs::canonicalize(path).ok()) {
        visited.insert(interpreter.clone());
        libraries.push(interpreter);
    }
    let mut queue = VecDeque::from([program.to_owned()]);
    while let Some(file) = queue.pop_front() {
        // Skips an unreadable library: the loader will report it.
        let dynamic = Dynamic::read(&file, Symbols::Skip).unwrap_or_default();
        if file == program && dynamic.runpath.is_none() {
            search.program_rpath = folders(dynamic.rpath.as_deref(), program);
        }
        for name in &dynamic.needed {
            let Some(path) = search.find(name, &file, &dynamic) else { continue };
            if libraries.len() < NR_LIBRARIES_MAX && visited.insert(path.clone()) {
                queue.push_back(path.clone());
                libraries.push(path);
            }
        }
    }
    Ok(libraries)
}

struct Search {
    class: Class,
    machine: u16,
    variable: Option<OsString>,
    cache: Cache,
    program_rpath: Vec<PathBuf>,
}

impl Search {
    fn find(&self, name: &OsStr, by: &Path, dynamic: &Dynamic) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            return self.fits(Path::new(name));
        }
        let mut all = Vec::new();
        if dynamic.runpath.is_none() {
            all.extend(folders(dynamic.rpath.as_deref(), by));
            all.extend(self.program_rpath.iter().cloned());
        }
        all.extend(folders(self.variable.as_deref(), by));
        all.extend(folders(dynamic.runpath.as_deref(), by));
        let here = all.iter().find_map(|folder| self.fits(&folder.join(name)));
        here.or_else(|| self.cache.paths(name).find_map(|path| self.fits(&path)))
            .or_else(|| FOLDERS.iter().find_map(|folder| self.fits(&Path::new(folder).join(name))))
    }

    /// Resolves links, and returns the file if it is for this machine.
    fn fits(&self, path: &Path) -> Option<PathBuf> {
        let elf = ElfFile::read(path).ok()?;
        let is_alike = (elf.class, elf.machine) == (self.class, self.machine);
        is_alike.then(|| fs::canonicalize(path).ok())?
    }
}

fn folders(path: Option<&OsStr>, file: &Path) -> Vec<PathBuf> {
    let Some(path) = path else { return Vec::new() };
    let origin = fs::canonicalize(file).ok().and_then(|file| Some(file.parent()?.to_owned()));
    let origin = origin.unwrap_or_default();
    let folder = |bytes: &[u8]| {
        let mut text = OsString::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|&byte| byte == b'$') {
            text.push(OsStr::from_bytes(&rest[..at]));
            rest = &rest[at..];
            let word = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find(|w| rest.starts_with(w));
            let len = word.map_or(1, <[u8]>::len);
            let put = word.map_or(OsStr::from_bytes(&rest[..1]), |_| origin.as_os_str());
            text.push(put);
            rest = &rest[len..];
        }
        text.push(OsStr::from_bytes(rest));
        PathBuf::from(text)
    };
    let parts = path.as_bytes().split(|byte| matches!(byte, b':' | b';'));
    parts.filter(|part| !part.is_empty()).map(folder).collect()
}

/// `/etc/ld.so.cache`, empty if it is missing or has another format.
#[derive(Debug, Default)]
struct Cache {
    bytes: Vec<u8>,
    nr: usize,
}

impl Cache {
    fn read(path: &Path) -> Self {
        let bytes = read_whole(path, CACHE_BYTES_MAX).unwrap_or_default();
        Self::parse(&bytes).unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let at = bytes.windows(CACHE_MAGIC.len()).position(|window| window == CACHE_MAGIC)?;
        let bytes = bytes[at..].to_vec();
        let nr = usize::try_from(word(&bytes, CACHE_MAGIC.len())?).ok()?;
        let room = bytes.len().checked_sub(CACHE_HEADER_BYTES)? / CACHE_ENTRY_BYTES;
        Some(Self { bytes, nr: nr.min(room) })
    }

    fn paths<'a>(&'a self, name: &'a OsStr) -> impl Iterator<Item = PathBuf> + 'a {
        (0..self.nr).filter_map(move |nr| {
            let at = CACHE_HEADER_BYTES + nr * CACHE_ENTRY_BYTES;
            let is_named = self.text(at + 4)? == name.as_bytes();
            is_named.then(|| Some(PathBuf::from(OsStr::from_bytes(self.text(at + 8)?))))?
        })
    }

    fn text(&self, at: usize) -> Option<&[u8]> {
        let start = usize::try_from(word(&self.bytes, at)?).ok()?;
        let rest = self.bytes.get(start..)?;
        rest.split(|&byte| byte == 0).next()
    }
}

/// Reads a number in native byte order: this machine's ldconfig wrote the cache.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with one library, after four bytes in the old format.
    fn cache() -> Vec<u8> {
        let mut bytes = b"old ".to_vec();
        bytes.extend(CACHE_MAGIC);
        bytes.extend(1_u32.to_ne_bytes());
        bytes.resize(4 + CACHE_HEADER_BYTES, 0);
        for number in [0x303_u32, 72, 80, 0, 0, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(b"liba.so\0/opt/liba.so\0");
        bytes
    }

    #[test]
    fn the_cache_names_where_a_library_is() {
        let cache = Cache::parse(&cache()).unwrap();
        let paths = |name| cache.paths(OsStr::new(name)).collect::<Vec<_>>();
        assert_eq!(paths("liba.so"), [PathBuf::from("/opt/liba.so")]);
        assert!(paths("libb.so").is_empty());
    }

    #[test]
    fn a_damaged_cache_names_nothing_it_does_not_hold() {
        let whole = cache();
        for len in 0..whole.len() {
            let Some(cache) = Cache::parse(&whole[..len]) else { continue };
            assert!(cache.paths(OsStr::new("liba.so")).count() <= 1);
        }
        let mut wild = whole;
        wild[4 + 20..4 + 24].fill(0xff);
        wild[4 + 48..4 + 60].fill(0xff);
        assert_eq!(Cache::parse(&wild).unwrap().paths(OsStr::new("liba.so")).count(), 0);
    }

    #[test]
    fn the_origin_is_where_the_file_is() {
        let exe = fs::canonicalize("/proc/self/exe").unwrap();
        let here = exe.parent().unwrap();
        let folders_found = folders(Some(OsStr::new("$ORIGIN/x:/y::${ORIGIN}:$LIB")), &exe);
        assert_eq!(folders_found, [here.join("x"), "/y".into(), here.to_owned(), "$LIB".into()]);
    }

    #[test]
    fn this_program_has_a_c_library() {
        let folders_found = of(Path::new("/proc/self/exe")).unwrap();
        assert!(
            folders_found.iter().any(|path| path.to_string_lossy().contains("libc")),
            "{folders_found:?}"
        );
    }
}
