//! What to do about small folios: the command, its gain, its cost, and how to undo it.
//!
//! ```text
//!   now          works on the running program              folio collapse 4242
//!   after        run it, then restart the program          folio tune --set .. --yes
//!   around       stop the program, run it, start again     folio warm FILE
//! ```
//!
//! Owns the texts. [`crate::reasons`] chooses a mapping's remedy and checks with the verbs first
//! ([`verbs`]); the options of runtimes are data ([`runtime`]).
//!
//! Invariants:
//! - M1: a remedy with a command was checked against the code that would execute it.
//! - M2: a remedy without a command says why nothing works.

mod program;
pub mod runtime;
mod traits;
pub mod verbs;

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::census::settings::TurnedOn;
use crate::proc::host::HugetlbPool;
use crate::shell::{as_root, as_typed, quoted};
use crate::warm::refusal::replaced_by_copy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Collapse,
    Tune,
    /// A restart is enough.
    Restart,
    /// An option or variable of the program or its allocator.
    Option,
    Warm,
    Run,
    Remount,
    Nothing,
}

/// Whose memory a remedy can change, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One program, or the files that it maps.
    Program,
    /// All programs.
    System,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    None,
    After,
    /// It must be stopped before the commands and started after them.
    Around,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Remedy {
    pub action: Action,
    pub scope: Scope,
    /// In shell syntax; empty if only the start changes, or if nothing works.
    pub command: String,
    /// How to start the program, with `..` for its other arguments; empty if unchanged.
    pub start: String,
    pub restart: Restart,
    /// Additional bytes in folios of `folio_bytes`, if the program touches the same memory again.
    pub gain_bytes: u64,
    /// The folio size it makes: the target, or a PMD entry; 0 if nothing works.
    pub folio_bytes: u64,
    /// Additional memory: partly touched blocks become whole, and forked pages are copied.
    pub extra_bytes: u64,
    /// Memory that it reads from swap; memory use grows by the same amount.
    pub swapped_in_bytes: u64,
    pub undo: String,
    /// Other costs, or the reason that nothing works.
    pub cost: String,
}

impl Remedy {
    pub(crate) fn nothing(why: impl Into<String>) -> Self {
        Self {
            action: Action::Nothing,
            scope: Scope::Program,
            command: String::new(),
            start: String::new(),
            restart: Restart::None,
            gain_bytes: 0,
            folio_bytes: 0,
            extra_bytes: 0,
            swapped_in_bytes: 0,
            undo: String::new(),
            cost: why.into(),
        }
    }

    pub(crate) fn tune(name: &str, value: &str) -> Self {
        Self {
            action: Action::Tune,
            scope: Scope::System,
            command: as_root(&format!("folio tune --set {name}={value} --yes")),
            restart: Restart::After,
            undo: as_root("folio tune --undo"),
            ..Self::nothing("")
        }
    }

    pub(crate) fn gaining(self, gain_bytes: u64, extra_bytes: u64) -> Self {
        Self { gain_bytes, extra_bytes, ..self }
    }

    pub(crate) fn reading(self, swapped_in_bytes: u64) -> Self {
        Self { swapped_in_bytes, ..self }
    }

    /// Returns the resident part of its gain. A remedy of mostly new memory must not rank first.
    #[must_use]
    pub const fn present_bytes(&self) -> u64 {
        self.gain_bytes.saturating_sub(self.extra_bytes).saturating_sub(self.swapped_in_bytes)
    }

    pub(crate) fn in_folios_of(self, folio_bytes: u64) -> Self {
        Self { folio_bytes, ..self }
    }

    pub(crate) fn costing(self, cost: impl Into<String>) -> Self {
        Self { cost: cost.into(), ..self }
    }

    pub fn add(&mut self, other: &Self) {
        self.gain_bytes = self.gain_bytes.saturating_add(other.gain_bytes);
        self.extra_bytes = self.extra_bytes.saturating_add(other.extra_bytes);
        self.swapped_in_bytes = self.swapped_in_bytes.saturating_add(other.swapped_in_bytes);
    }

    #[must_use]
    pub fn is_some(&self) -> bool {
        self.action != Action::Nothing
    }

    /// Compares all but the numbers, so that mappings with the same remedy share a line.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let plain = |one: &Self| one.clone().gaining(0, 0).reading(0);
        plain(self) == plain(other)
    }
}

/// Writes the remedy as a sentence without a final period.
impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = match self.start.as_str() {
            "" => String::new(),
            start => format!(" as: {start}"),
        };
        match (self.restart, self.command.is_empty()) {
            _ if !self.is_some() => write!(f, "no remedy: {}", self.cost),
            (Restart::None, _) => f.write_str(&self.command),
            (_, true) => write!(f, "restart the program{start}"),
            (Restart::After, false) => {
                write!(f, "{}, then restart the program{start}", self.command)
            }
            (Restart::Around, false) => {
                write!(f, "stop the program, {}, start it again{start}", self.command)
            }
        }
    }
}

/// Lets the kernel read text in larger folios, and drops a file's small ones from the page cache.
pub(crate) fn read_text(set: &TurnedOn, path: &Path) -> Remedy {
    let tune = Remedy::tune(&set.name, set.value);
    let command =
        format!("{} && dd if={} iflag=nocache count=0 status=none", tune.command, quoted(path));
    Remedy {
        command,
        restart: Restart::Around,
        ..tune.costing(
            "it applies to the text of all programs; a file in the page cache keeps its folios \
             until it is read again",
        )
    }
}

pub(crate) fn collapse(pid: u32) -> Remedy {
    Remedy {
        action: Action::Collapse,
        command: as_root(&format!("folio collapse {pid}")),
        undo: "none while the program runs; memory mapped later gets small folios again".to_owned(),
        cost: "copies each block once; if the program forks, the next write to a block splits its \
               entry again"
            .to_owned(),
        ..Remedy::nothing("")
    }
}

pub(crate) fn hugetlb(pool: &HugetlbPool, bytes: u64, start: String) -> Remedy {
    let nr = pool.nr_with(bytes);
    Remedy {
        action: Action::Option,
        scope: Scope::System,
        command: as_root(&format!("sysctl -w vm.nr_hugepages={nr}")),
        start,
        restart: Restart::After,
        undo: as_root(&format!("sysctl -w vm.nr_hugepages={}", pool.nr)),
        ..Remedy::nothing("")
    }
}

/// Builds `folio warm FILE`. `is_shared` tells whether other programs also map the file.
pub(crate) fn warm(path: &Path, is_shared: bool) -> Remedy {
    let warm = as_typed(&format!("folio warm {}", quoted(path)));
    if is_shared && is_systems(path) {
        return Remedy::nothing(format!(
            "it is a system file that other programs map; stop all of them, then {warm} puts it \
             in large folios"
        ));
    }
    let (command, restart, cost) = if is_shared {
        (
            format!("{} && {warm}", replaced_by_copy(path, as_root)),
            Restart::After,
            "other programs map the file, so a copy replaces it: both use memory until those \
             programs restart",
        )
    } else {
        let cost = "the gain lasts until the file is evicted from the cache";
        (warm, Restart::Around, cost)
    };
    Remedy {
        action: Action::Warm,
        command,
        restart,
        undo: "nothing to undo".to_owned(),
        ..Remedy::nothing(cost)
    }
}

/// Whether the file belongs to the system. A copy must not replace it.
fn is_systems(path: &Path) -> bool {
    let roots = ["/usr", "/lib", "/lib64", "/bin", "/sbin"];
    !path.starts_with("/usr/local") && roots.iter().any(|root| path.starts_with(root))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_remedy_is_a_sentence_with_its_commands() {
        assert_eq!(collapse(7).to_string(), as_root("folio collapse 7"));
        let tune = Remedy::tune("thp.enabled", "madvise");
        let plain = as_root("folio tune --set thp.enabled=madvise --yes, then restart the program");
        assert_eq!(tune.to_string(), plain);
        let tune = Remedy { start: "X=1 java ..".to_owned(), ..tune };
        assert_eq!(tune.to_string(), format!("{plain} as: X=1 java .."));
        let sentence = warm(Path::new("/a b"), false).to_string();
        assert_eq!(sentence, "stop the program, folio warm '/a b', start it again");
        let nothing = Remedy::nothing("it is too short");
        assert_eq!(nothing.to_string(), "no remedy: it is too short");
    }

    #[test]
    fn a_copy_takes_the_place_of_a_file_and_of_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a b's");
        let others = ["a b's.new", "a b's.XXXXXX", "a b's.new2"].map(|name| dir.path().join(name));
        for path in others.iter().chain([&file]) {
            fs::write(path, path.as_os_str().as_bytes()).unwrap();
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
        let before = fs::metadata(&file).unwrap();
        let command = warm(&file, true).command;
        let (commands, last) = command.rsplit_once(" && ").unwrap();
        assert_eq!(last, format!("folio warm {}", quoted(&file)));
        let commands = commands.replace("sudo ", "");
        assert!(Command::new("sh").args(["-ec", &commands]).status().unwrap().success());
        let after = fs::metadata(&file).unwrap();
        assert_ne!(after.ino(), before.ino());
        assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
        for path in others.iter().chain([&file]) {
            assert_eq!(fs::read(path).unwrap(), path.as_os_str().as_bytes());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "nothing is left");
    }

    #[test]
    fn remedies_are_alike_whatever_they_gain() {
        let one = collapse(7);
        assert!(one.is_like(&one.clone().gaining(5, 6)) && !one.is_like(&collapse(8)));
    }
}
