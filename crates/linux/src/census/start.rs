//! How a process was started: its words, its variables, and which of its files is the program.
//!
//! ```text
//!   cmdline   words                 a title, if the process wrote one over them
//!   environ   variables             unknown, if a title lies there too
//!   auxv      AT_ENTRY              the file that the kernel started: the program, or its loader
//!             AT_SECURE             the loader drops variables of allocators
//! ```
//!
//! Owns the reading and what follows from it without any other file. An option that the process has
//! in effect is never recommended again ([`super::remedy::runtime`] asks here).
//!
//! Invariant T1: whatever a process wrote over its words and variables, the command that is printed
//! has only words that it was started with, or the path of its program.

pub mod variable;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use crate::proc::Task;
use crate::proc::maps::Vma;

/// Numbers of entries of the auxiliary vector (getauxval(3)).
const AT_PAGESZ: u64 = 6;
const AT_ENTRY: u64 = 9;
const AT_SECURE: u64 = 23;
/// The variable of glibc, which takes its value apart in place.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Starts of the names of loaders: glibc's and musl's.
const LOADERS: [&str; 4] = ["ld-linux", "ld64.so", "ld.so", "ld-musl"];
/// Options of a loader with a word after them.
const LOADER_OPTIONS: [&str; 7] = [
    "--library-path",
    "--preload",
    "--audit",
    "--argv0",
    "--inhibit-rpath",
    "--glibc-hwcaps-prepend",
    "--glibc-hwcaps-mask",
];
/// Parents that are followed; real chains are shorter.
const NR_PARENTS_MAX: usize = 64;

/// How a process was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Its words, the program first; or its title, as one word.
    pub words: Vec<OsString>,
    /// Its variables; `None` if they cannot be read, or the process wrote over them.
    pub variables: Option<Vec<(OsString, OsString)>>,
    /// Whether it was started with other rights than its starter's.
    pub is_secure: bool,
    /// Where the kernel began to execute the program, or its loader if that was started as a program.
    pub entry: Option<u64>,
}

impl Start {
    pub(crate) fn of(task: &Task<'_>) -> Self {
        let auxv = Auxv::parse(&task.auxv().unwrap_or_default());
        Self {
            words: task.words(),
            variables: variables(&task.environ().unwrap_or_default()),
            is_secure: auxv.value(AT_SECURE).is_some_and(|value| value != 0),
            entry: auxv.value(AT_ENTRY),
        }
    }

    /// The value of a variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        let mut variables = self.variables.iter().flatten();
        variables.find(|(found, _)| found == name).map(|(_, value)| value.as_os_str())
    }

    /// Whether an option is in effect: words of the variables `before` come before the command line's
    /// own, and words of `after` after them. The last one counts.
    #[must_use]
    pub fn has_argument(&self, argument: &str, before: &[String], after: &[String]) -> bool {
        let wanted = argument.as_bytes();
        let key = variable::switch(wanted);
        let words_of = |names: &[String]| -> Vec<Vec<u8>> {
            let values = names.iter().filter_map(|name| self.variable(name));
            let words = values.flat_map(|value| value.as_bytes().split(u8::is_ascii_whitespace));
            words.map(<[u8]>::to_vec).collect()
        };
        let own = self.words.iter().skip(1).map(|word| word.as_bytes().to_vec());
        let all = words_of(before).into_iter().chain(own).chain(words_of(after));
        let mut said = all.filter(|word| variable::switch(word) == key);
        said.next_back().is_some_and(|word| word == wanted)
    }

    /// The argument of the command line that says the contrary of an option.
    #[must_use]
    pub fn contrary(&self, argument: &str) -> Option<String> {
        let key = variable::switch(argument.as_bytes());
        let is_contrary = |word: &&OsString| {
            word.as_bytes() != argument.as_bytes() && variable::switch(word.as_bytes()) == key
        };
        let word = self.words.iter().skip(1).rfind(is_contrary)?;
        Some(word.to_string_lossy().into_owned())
    }

    /// Which of the mapped files is the program. Ascending mappings with a file are given.
    ///
    /// A loader that was started as a program maps it as it maps libraries: its words say which. If the
    /// entry is not known, the lowest executable file is the program, as in most layouts.
    pub(crate) fn program<'v>(&self, files: &[&'v Vma]) -> Option<&'v Vma> {
        let lowest = || files.iter().find(|vma| vma.is_exec()).copied();
        let entered = self.entry.and_then(|entry| {
            files.iter().find(|vma| vma.range.contains(&entry) && vma.has_file()).copied()
        });
        let Some(entered) = entered else { return lowest() };
        if !is_loader(&entered.path) {
            return Some(entered);
        }
        let named = self.behind_loader().map(|at| Path::new(&self.words[at]).file_name());
        let is_named = |vma: &&&Vma| vma.is_exec() && Some(vma.path.file_name()) == named;
        files.iter().find(is_named).copied().or(Some(entered))
    }

    /// The place of the program among the words of a loader.
    fn behind_loader(&self) -> Option<usize> {
        let mut at = 1;
        while let Some(word) = self.words.get(at) {
            if !word.as_bytes().starts_with(b"--") {
                return Some(at);
            }
            at += if LOADER_OPTIONS.iter().any(|option| word == option) { 2 } else { 1 };
        }
        None
    }

    /// Whether the only word is a title, and not the path of the program.
    fn is_title(&self, program: &Path) -> bool {
        let [word] = self.words.as_slice() else { return false };
        let is_odd =
            word.as_bytes().iter().any(u8::is_ascii_whitespace) || word.as_bytes().ends_with(b":");
        is_odd && Path::new(word).file_name() != program.file_name()
    }

    /// The name it was started by, without folders; empty if that is not known.
    pub(crate) fn name(&self, program: &Path) -> OsString {
        let first = self.words.first().map(OsString::as_os_str).unwrap_or_default();
        if self.is_title(program) { self.title_name() } else { base_name(first) }
    }

    /// Of a title the part before the first blank.
    fn title_name(&self) -> OsString {
        let line = self.words.first().map_or(&b""[..], |word| word.as_bytes());
        let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let word = word.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let word = word.trim_ascii().strip_prefix(b"-").unwrap_or(word);
        OsString::from_vec(word.strip_suffix(b":").unwrap_or(word).to_vec())
    }

    /// The words that start the program again, without its arguments. `finds` says whether a shell
    /// finds the program by a name.
    pub(crate) fn typed(&self, program: &Path, finds: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
        let first = self.words.first().map(OsString::as_os_str).unwrap_or_default();
        if is_loader(Path::new(first))
            && let Some(at) = self.behind_loader()
        {
            let mut words = self.words[..at].to_vec();
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
            // A link from the directory that it was started in.
            () if is_relative && Some(name.as_os_str()) != program.file_name() => first.to_owned(),
            () if own.is_empty() => name,
            () => own,
        }]
    }
}

/// A path's file name; a login shell's without its dash.
fn base_name(word: &OsStr) -> OsString {
    let name = Path::new(word).file_name().unwrap_or_default();
    let name = name.as_bytes().strip_prefix(b"-").unwrap_or(name.as_bytes());
    OsStr::from_bytes(name).to_owned()
}

/// Whether a file is the loader of programs.
pub(crate) fn is_loader(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    LOADERS.iter().any(|loader| name.starts_with(loader.as_bytes()))
}

/// The variables of an environ file; `None` if it holds none: a process may write its title there.
///
/// Some versions of glibc write a zero byte over the colon after each tunable, so the rest of the value
/// looks like further variables.
fn variables(text: &[u8]) -> Option<Vec<(OsString, OsString)>> {
    let parsed = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&line[..at]), word(&line[at + 1..])))
    };
    let mut found: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in text.split(|&byte| byte == 0).filter_map(parsed) {
        match found.last_mut().filter(|(last, _)| last == TUNABLES) {
            Some((_, whole)) if name.as_bytes().starts_with(b"glibc.") => {
                let parts = [whole.as_os_str(), OsStr::new(":"), &name, OsStr::new("="), &value];
                *whole = parts.into_iter().collect();
            }
            _ => found.push((name, value)),
        }
    }
    (!found.is_empty()).then_some(found)
}

/// The auxiliary vector of a process.
struct Auxv(Vec<(u64, u64)>);

impl Auxv {
    /// Entries are pairs of words, of 8 bytes or, in a 32-bit process, of 4.
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
        // The words of a 32-bit process are little-endian on all machines that folio knows.
        if is_long { long } else { entries(4) }
    }

    fn value(&self, wanted: u64) -> Option<u64> {
        self.0.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value)
    }
}

/// That a process has THP disabled with prctl(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// The highest parent that has it disabled too: from there it was inherited.
    pub ancestor: Option<Ancestor>,
}

/// A parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl Disabled {
    /// Of a process; `None` if it may have large folios.
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
