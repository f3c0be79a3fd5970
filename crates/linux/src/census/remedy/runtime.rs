//! Run times and allocators: how they are recognised, and what makes them use large folios.
//!
//! Owns the table (`runtimes.toml`) and the choice of its row; the first that fits counts. What an
//! option does is what was read in its source and tried: `scripts/remedies.py` tries it again.

use std::ops::Range;
use std::sync::LazyLock;

use serde::Deserialize;

pub use super::traits::Traits;
use crate::census::start::variable::{Merged, merged};
use crate::shell::quoted;

/// One row of the table. A program is recognised by all that a row says of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "independent keys of the table")]
pub struct Runtime {
    /// What people call it.
    pub name: String,
    /// Starts of the names of mapped files, one of which is there.
    #[serde(default)]
    pub objects: Vec<String>,
    /// Starts of the name of the program's file.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Owners of ELF notes of the program.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Constants of the program, one of which is there: what is linked into it.
    #[serde(default)]
    pub constants: Vec<String>,
    /// File name prefixes: one of these files provides the program's `malloc`.
    #[serde(default)]
    pub allocators: Vec<String>,
    /// Only if that is known, and not glibc's.
    #[serde(default)]
    pub foreign: bool,
    /// Whose memory it is about.
    pub memory: Memory,
    /// Whether the program has THP disabled for itself.
    #[serde(default)]
    pub disabled: bool,
    /// Only mappings that begin at a multiple of this and are no longer; 0 for all.
    #[serde(default)]
    pub arena_bytes: u64,
    /// Only memory of malloc of glibc that its tunable advises (`Wanted::is_advised_by_malloc`).
    #[serde(default)]
    pub malloc: bool,
    /// The option advises memory only if `thp.enabled` is madvise when the program starts.
    #[serde(default)]
    pub only_if_madvise: bool,
    /// Only the runtime's own heap, and the code it compiled.
    #[serde(default)]
    pub own_heap: bool,
    /// Only arenas of `CPython`'s allocator for objects; with `malloc`, these too.
    #[serde(default)]
    pub object_arena: bool,
    /// The memory is mapped in pieces below a block, so that no setting gives it larger folios when
    /// it is touched first.
    #[serde(default)]
    pub in_pieces: bool,
    /// `NAME=VALUE`, put before the command.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Put after the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Whether they come after all other arguments.
    #[serde(default)]
    pub last: bool,
    /// Variables with arguments that come before the program's own.
    #[serde(default)]
    pub variables_before: Vec<String>,
    /// Variables with arguments that overrule its own.
    #[serde(default)]
    pub variables_after: Vec<String>,
    /// What it costs or does not reach; without an option, why there is none.
    pub cost: String,
    /// Where that is written.
    pub source: String,
}

/// Kind of memory that an option is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// Private memory without a file.
    Anon,
    /// Shared memory without a file.
    Shmem,
}

#[derive(Deserialize)]
struct Table {
    runtime: Vec<Runtime>,
}

static TABLE: LazyLock<Vec<Runtime>> = LazyLock::new(|| {
    let table = toml::from_str::<Table>(include_str!("runtimes.toml"));
    // A test reads the table.
    table.map(|table| table.runtime).unwrap_or_default()
});

/// The constants that rows ask for.
pub(crate) fn constants() -> Vec<&'static str> {
    TABLE.iter().flat_map(|row| &row.constants).map(String::as_str).collect()
}

/// Whether a file is called like an allocator's library.
pub(crate) fn is_known_allocator(name: &str) -> bool {
    TABLE.iter().flat_map(|row| &row.allocators).any(|start| name.starts_with(start))
}

/// How a program is started with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// So.
    As {
        /// As a shell takes it, with `..` for the arguments that it has.
        line: String,
        /// Remarks about the variables and arguments that it has now.
        notes: Vec<String>,
    },
    /// As it was: the option is in effect.
    Already(String),
    /// It cannot be: the loader drops the variables of programs with other rights.
    Ignored,
}

/// A mapping for which an option is sought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not exclude each other")]
pub struct Wanted {
    /// Its memory.
    pub memory: Memory,
    /// Its addresses.
    pub range: Range<u64>,
    /// Whether it is the heap, which only `brk` moves.
    pub is_heap: bool,
    /// What a PMD entry maps.
    pub pmd_bytes: u64,
    /// Whether the process has THP disabled.
    pub is_disabled: bool,
    /// Bytes of its longest request to glibc's malloc, 0 without any; `None` if that was not read.
    pub longest_chunk: Option<u64>,
    /// Whether it begins as an arena of glibc for threads; `None` if that was not read.
    pub is_arena: Option<bool>,
    /// Whether it begins with an arena of `CPython`'s allocator for objects.
    pub is_object_arena: bool,
    /// Whether it belongs to the largest reservation of the process, or is code that the process wrote.
    pub is_own_heap: bool,
}

impl Wanted {
    /// Whether some of it is malloc's, and so long that the tunable advises it.
    ///
    /// - A mapping that malloc makes for a large request begins with a header. If that cannot be read,
    ///   the address has to tell: a mapping of whole PMD entries begins at a multiple of one (from Linux
    ///   6.7 on), and malloc's have a page more.
    /// - glibc advises no request below a PMD entry. With 4K pages that is what no setting reaches; with
    ///   16K and 64K pages (32M, 512M) it is most memory of most programs.
    /// - The heap then grows in steps of a PMD entry, and is advised as a whole.
    fn is_advised_by_malloc(&self) -> bool {
        let bytes = self.range.end.saturating_sub(self.range.start);
        let is_odd = !self.range.start.is_multiple_of(self.pmd_bytes);
        let longest = self.longest_chunk.unwrap_or(if is_odd { bytes } else { 0 });
        self.is_heap || longest >= self.pmd_bytes
    }

    fn is_arena_of(&self, arena_bytes: u64) -> bool {
        let bytes = self.range.end.saturating_sub(self.range.start);
        let is_there = self.range.start.is_multiple_of(arena_bytes) && bytes <= arena_bytes;
        is_there && self.is_arena.unwrap_or(true)
    }
}

impl Runtime {
    /// Whether `folio run --heap`, which is glibc's tunable, reaches most of its memory.
    #[must_use]
    pub fn is_glibc_alone(&self) -> bool {
        self.environment == ["GLIBC_TUNABLES=glibc.malloc.hugetlb=1"] && self.arguments.is_empty()
    }

    /// The row for a mapping of a program.
    #[must_use]
    pub fn of(traits: &Traits, wanted: &Wanted) -> Option<&'static Self> {
        TABLE.iter().find(|row| row.is_of(traits, wanted))
    }

    fn is_of(&self, traits: &Traits, wanted: &Wanted) -> bool {
        let own = traits.program.file_name().unwrap_or_default().to_string_lossy();
        let starts = |all: &[String], name: &str| all.iter().any(|one| name.starts_with(one));
        let has = |all: &[String], known: &[String]| all.iter().any(|one| known.contains(one));
        let is_program = starts(&self.programs, &own) || starts(&self.programs, &traits.name);
        let has_object = traits.objects.iter().any(|name| starts(&self.objects, name));
        (self.programs.is_empty() || is_program)
            && (self.objects.is_empty() || has_object)
            && (self.notes.is_empty() || has(&self.notes, &traits.notes))
            && (self.constants.is_empty() || has(&self.constants, &traits.constants))
            && (self.allocators.is_empty() || starts(&self.allocators, &traits.allocator))
            && (!self.foreign || traits.has_foreign_allocator())
            && self.memory == wanted.memory
            && self.disabled == wanted.is_disabled
            && (self.arena_bytes == 0 || wanted.is_arena_of(self.arena_bytes))
            && self.is_of_allocator(wanted)
            && (!self.own_heap || wanted.is_own_heap)
    }

    fn is_of_allocator(&self, wanted: &Wanted) -> bool {
        let is_any = !(self.malloc || self.object_arena);
        let is_of_malloc = self.malloc && wanted.is_advised_by_malloc();
        is_any || is_of_malloc || self.object_arena && wanted.is_object_arena
    }

    /// Whether there is an option at all.
    #[must_use]
    pub fn has_option(&self) -> bool {
        !(self.environment.is_empty() && self.arguments.is_empty())
    }

    /// How the program is started with it.
    #[must_use]
    pub fn start(&self, traits: &Traits) -> Started {
        let start = &traits.start;
        let mut variables = Vec::new();
        for assignment in &self.environment {
            let Some((name, wanted)) = assignment.split_once('=') else { continue };
            let merged = merged(name, start.variable(name), wanted);
            if !merged.is_in_effect {
                variables.push((name, merged));
            }
        }
        if start.is_secure && !variables.is_empty() {
            return Started::Ignored;
        }
        let is_new = |argument: &&String| {
            !start.has_argument(argument, &self.variables_before, &self.variables_after)
        };
        let mut arguments: Vec<&String> = self.arguments.iter().filter(is_new).collect();
        if variables.is_empty() && arguments.is_empty() {
            let all = self.environment.iter().chain(&self.arguments);
            return Started::Already(all.map(String::as_str).collect::<Vec<_>>().join(" "));
        }
        let mut notes = Vec::new();
        for argument in std::mem::take(&mut arguments) {
            // A variable that overrules the arguments says the contrary.
            let contrary = |name: &&String| {
                let value = start.variable(name);
                value.is_some_and(|_| !merged(name, value, argument).replaced.is_empty())
            };
            if let Some(name) = self.variables_after.iter().find(contrary) {
                variables.push((name, merged(name, start.variable(name), argument)));
            } else {
                notes.extend(start.contrary(argument).map(|old| in_place_of(&old)));
                arguments.push(argument);
            }
        }
        let replaced = variables.iter().flat_map(|(_, merged)| merged.replaced.clone());
        notes.extend(replaced.map(|old| in_place_of(&old)));
        if start.variables.is_none() && !start.words.is_empty() {
            notes.extend(variables.iter().map(|(name, _)| {
                format!(
                    "its variables cannot be read: if {name} has a value, keep that and add this option"
                )
            }));
        }
        Started::As { line: self.line(traits, &variables, &arguments), notes }
    }

    fn line(&self, traits: &Traits, variables: &[(&str, Merged)], arguments: &[&String]) -> String {
        let assigned = variables.iter().map(|(name, new)| format!("{name}={}", quoted(&new.value)));
        let mut words: Vec<String> = assigned.collect();
        words.extend(traits.typed.iter().map(quoted));
        let arguments = arguments.iter().map(|&argument| argument.clone());
        let rest = || std::iter::once("..".to_owned());
        if self.last {
            words.extend(rest().chain(arguments));
        } else {
            words.extend(arguments.chain(rest()));
        }
        words.join(" ")
    }
}

fn in_place_of(old: &str) -> String {
    format!("it replaces {old}, which the program has now")
}

#[cfg(test)]
mod tests;
