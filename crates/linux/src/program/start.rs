//! How a process was started: its command line, its environment, and its program file.
//!
//! ```text
//!   cmdline   words                 a title if the process overwrote them
//!   environ   variables             unknown if the title overwrote them too
//!   auxv      AT_ENTRY              the file the kernel started: the program or its loader
//!             AT_SECURE             the loader drops the variables of allocators
//! ```
//!
//! Owns reading and interpreting these files. An option that is already in effect is never
//! recommended again ([`crate::remedies::runtime`] checks it here).
//!
//! Invariant T1: whatever a process wrote over its command line and environment, the printed
//! command contains only words that the process was started with, or its program's path.

pub mod variable;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use crate::proc::Task;
use crate::proc::maps::Vma;

/// Entry types of the auxiliary vector (getauxval(3)).
const AT_PAGESZ: u64 = 6;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
/// glibc's variable. glibc parses its value in place.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Prefixes of loader names: glibc's and musl's.
const LOADERS: [&str; 4] = ["ld-linux", "ld64.so", "ld.so", "ld-musl"];
/// Loader options that take a value.
const LOADER_OPTIONS: [&str; 7] = [
    "--library-path",
    "--preload",
    "--audit",
    "--argv0",
    "--inhibit-rpath",
    "--glibc-hwcaps-prepend",
    "--glibc-hwcaps-mask",
];
/// How many parents are followed; real chains are shorter.
const NR_PARENTS_MAX: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The command line, with the program first; or the title, as one word.
    pub arguments: Vec<OsString>,
    /// The environment; `None` if it is not readable or the process overwrote it.
    pub variables: Option<Vec<(OsString, OsString)>>,
    pub is_secure: bool,
    /// The first instruction: in the program, or in its loader if the loader was run directly.
    pub entry: Option<u64>,
}

impl Start {
    pub(crate) fn of(task: &Task<'_>) -> Self {
        let auxv = Auxv::parse(&task.auxv().unwrap_or_default());
        Self {
            arguments: task.arguments(),
            variables: variables(&task.environ().unwrap_or_default()),
            is_secure: auxv.value(AT_SECURE).is_some_and(|value| value != 0),
            entry: auxv.value(AT_ENTRY),
        }
    }

    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let mut variables = self.variables.iter().flatten();
        variables.find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Returns whether an option is in effect. Options in the variables `before` precede the
    /// command line, those in `after` follow it, and the last one counts.
    #[must_use]
    pub fn has_argument(&self, argument: &str, before: &[String], after: &[String]) -> bool {
        let wanted = argument.as_bytes();
        let key = variable::switch(wanted);
        let words_of = |names: &[String]| -> Vec<Vec<u8>> {
            let values = names.iter().filter_map(|name| self.variable(name));
            let words = values.flat_map(|value| value.as_bytes().split(u8::is_ascii_whitespace));
            words.map(<[u8]>::to_vec).collect()
        };
        let own = self.arguments.iter().skip(1).map(|word| word.as_bytes().to_vec());
        let all = words_of(before).into_iter().chain(own).chain(words_of(after));
        let mut switches = all.filter(|word| variable::switch(word) == key);
        switches.next_back().is_some_and(|word| word == wanted)
    }

    #[must_use]
    pub fn contrary(&self, argument: &str) -> Option<String> {
        let key = variable::switch(argument.as_bytes());
        let is_contrary = |word: &&OsString| {
            word.as_bytes() != argument.as_bytes() && variable::switch(word.as_bytes()) == key
        };
        let word = self.arguments.iter().skip(1).rfind(is_contrary)?;
        Some(word.to_string_lossy().into_owned())
    }

    /// Finds the program among the mapped files. `files` has ascending mappings with a file.
    ///
    /// If the loader was run directly, it maps the program like a library, so its command line
    /// names it. If the entry is unknown, the lowest executable file is the program, as in most
    /// layouts.
    pub(crate) fn program<'v>(&self, files: &[&'v Vma]) -> Option<&'v Vma> {
        let lowest = || files.iter().find(|vma| vma.is_exec()).copied();
        let entered = self.entry.and_then(|entry| {
            files.iter().find(|vma| vma.range.contains(&entry) && vma.has_file()).copied()
        });
        let Some(entered) = entered else { return lowest() };
        if !is_loader(&entered.path) {
            return Some(entered);
        }
        let named =
            self.program_after_loader().map(|at| Path::new(&self.arguments[at]).file_name());
        let is_named = |vma: &&&Vma| vma.is_exec() && Some(vma.path.file_name()) == named;
        files.iter().find(is_named).copied().or(Some(entered))
    }

    fn program_after_loader(&self) -> Option<usize> {
        let mut at = 1;
        while let Some(word) = self.arguments.get(at) {
            if !word.as_bytes().starts_with(b"--") {
                return Some(at);
            }
            at += if LOADER_OPTIONS.iter().any(|option| word == option) { 2 } else { 1 };
        }
        None
    }

    /// Whether the only word is a title and not the program's path.
    fn is_title(&self, program: &Path) -> bool {
        let [word] = self.arguments.as_slice() else { return false };
        let is_odd =
            word.as_bytes().iter().any(u8::is_ascii_whitespace) || word.as_bytes().ends_with(b":");
        is_odd && Path::new(word).file_name() != program.file_name()
    }

    /// The name it was started by, without folders; empty if unknown.
    pub(crate) fn name(&self, program: &Path) -> OsString {
        let first = self.arguments.first().map(OsString::as_os_str).unwrap_or_default();
        if self.is_title(program) { self.title_name() } else { base_name(first) }
    }

    fn title_name(&self) -> OsString {
        let line = self.arguments.first().map_or(&b""[..], |word| word.as_bytes());
        let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let word = word.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let word = word.trim_ascii().strip_prefix(b"-").unwrap_or(word);
        OsString::from_vec(word.strip_suffix(b":").unwrap_or(word).to_vec())
    }

    /// Returns the words that start the program again, without its arguments. `finds` tells whether
    /// a shell finds the program by name.
    pub(crate) fn typed(&self, program: &Path, finds: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
        let first = self.arguments.first().map(OsString::as_os_str).unwrap_or_default();
        if is_loader(Path::new(first))
            && let Some(at) = self.program_after_loader()
        {
            let mut words = self.arguments[..at].to_vec();
            words.push(program.as_os_str().to_owned());
            return words;
        }
        let (is_title, name) = (self.is_title(program), self.name(program));
        let own = program.as_os_str().to_owned();
        let is_relative = first.as_bytes().contains(&b'/') && !first.as_bytes().starts_with(b"/");
        vec![match () {
            () if name.is_empty() => base_name(program.as_os_str()),
            () if finds(&name) => name,
            () if !is_title && first.as_bytes().starts_with(b"/") => first.to_owned(),
            // A link, relative to the directory it was started in.
            () if is_relative && Some(name.as_os_str()) != program.file_name() => first.to_owned(),
            () if own.is_empty() => name,
            () => own,
        }]
    }
}

/// Returns a path's file name; drops a login shell's dash.
fn base_name(word: &OsStr) -> OsString {
    let name = Path::new(word).file_name().unwrap_or_default();
    let name = name.as_bytes().strip_prefix(b"-").unwrap_or(name.as_bytes());
    OsStr::from_bytes(name).to_owned()
}

pub(crate) fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    LOADERS.iter().any(|loader| name.starts_with(loader.as_bytes()))
}

/// Parses an environ file; `None` if it has no variables, because a process may write its title
/// there.
///
/// Some glibc versions replace the colon after each tunable by a zero byte, so the rest of the
/// value looks like more variables.
fn variables(text: &[u8]) -> Option<Vec<(OsString, OsString)>> {
    let parsed = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&line[..at]), word(&line[at + 1..])))
    };
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in text.split(|&byte| byte == 0).filter_map(parsed) {
        match variables.last_mut().filter(|(last, _)| last == TUNABLES) {
            Some((_, whole)) if name.as_bytes().starts_with(b"glibc.") => {
                let parts = [whole.as_os_str(), OsStr::new(":"), &name, OsStr::new("="), &value];
                *whole = parts.into_iter().collect();
            }
            _ => variables.push((name, value)),
        }
    }
    (!variables.is_empty()).then_some(variables)
}

struct Auxv(Vec<(u64, u64)>);

impl Auxv {
    /// Parses pairs of words of 8 bytes, or of 4 in a 32-bit process.
    fn parse(bytes: &[u8]) -> Self {
        let word = |bytes: &[u8]| {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(whole)
        };
        let entries = |size: usize| {
            let pairs = bytes.chunks_exact(2 * size);
            let pair = |pair: &[u8]| (word(&pair[..size]), word(&pair[size..]));
            Self(pairs.map(pair).collect())
        };
        let long = entries(8);
        let is_long = long.value(AT_PAGESZ).is_some_and(u64::is_power_of_two);
        // 32-bit processes are little-endian on all supported machines.
        if is_long { long } else { entries(4) }
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        self.0.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value)
    }
}

/// The process has THP disabled by prctl(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// The highest ancestor that also has it disabled: it was inherited from there.
    pub ancestor: Option<Ancestor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    pub pid: u32,
    pub name: String,
}

impl Disabled {
    pub(crate) fn of(task: &Task<'_>) -> Option<Self> {
        if !task.is_thp_disabled() {
            return None;
        }
        let (mut ancestor, mut child) = (None, task.clone());
        for _ in 0..NR_PARENTS_MAX {
            let Some((pid, parent)) = child.parent().filter(|(_, task)| task.is_thp_disabled())
            else {
                break;
            };
            ancestor = Some(Ancestor { pid, name: parent.comm() });
            child = parent;
        }
        Some(Self { ancestor })
    }
}

#[cfg(test)]
mod tests;
