//! Runtimes and allocators: how to recognise them, and how to make them use large folios.
//!
//! Owns the table (`runtimes.toml`) and the choice of a row: the first match wins. The effect of
//! each option was verified in the runtime's source and by experiment; `scripts/remedies.py`
//! repeats the experiment.

use std::ops::Range;
use std::sync::LazyLock;

use serde::Deserialize;

pub use super::traits::Traits;
use crate::program::start::variable::{Merged, merged};
use crate::shell::quoted;

/// One row of the table. A program must match every column of the row.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "independent keys of the table")]
pub struct Runtime {
    pub name: String,
    /// Prefixes of mapped file names; at least one must be mapped.
    #[serde(default)]
    pub objects: Vec<String>,
    /// Prefixes of the program file's name.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Owners of the program's ELF notes.
    #[serde(default)]
    pub notes: Vec<String>,
    /// String constants that show which code is linked into the program; at least one must be
    /// there.
    #[serde(default)]
    pub constants: Vec<String>,
    /// File name prefixes: one of these files provides the program's `malloc`.
    #[serde(default)]
    pub allocators: Vec<String>,
    /// Matches only if the allocator is known and not glibc's.
    #[serde(default)]
    pub foreign: bool,
    pub memory: Memory,
    #[serde(default)]
    pub disabled: bool,
    /// Matches only mappings that start at a multiple of this and are not longer; 0 for all.
    #[serde(default)]
    pub arena_bytes: u64,
    /// Matches only malloc memory that glibc's tunable advises (`Wanted::is_advised_by_malloc`).
    #[serde(default)]
    pub malloc: bool,
    /// With the option, the allocator calls madvise only if `thp.enabled` is madvise when the
    /// program starts.
    #[serde(default)]
    pub only_if_madvise: bool,
    /// Matches only the runtime's own heap and the code it compiled.
    #[serde(default)]
    pub own_heap: bool,
    /// Matches only `CPython`'s object arenas; with `malloc`, these too.
    #[serde(default)]
    pub object_arena: bool,
    /// The memory is mapped in pieces below a block, so no setting makes its folios larger.
    #[serde(default)]
    pub in_pieces: bool,
    /// `NAME=VALUE`, put before the command.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Put after the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Whether the arguments follow all other arguments.
    #[serde(default)]
    pub last: bool,
    /// Variables with arguments that precede the program's own.
    #[serde(default)]
    pub variables_before: Vec<String>,
    /// Variables with arguments that override the program's own.
    #[serde(default)]
    pub variables_after: Vec<String>,
    /// The option's cost or limits; without an option, why it has none.
    pub cost: String,
    pub source: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    Anon,
    Shmem,
}

#[derive(Deserialize)]
struct Table {
    runtime: Vec<Runtime>,
}

static TABLE: LazyLock<Vec<Runtime>> = LazyLock::new(|| {
    let table = toml::from_str::<Table>(include_str!("runtimes.toml"));
    // A test parses the table.
    table.map(|table| table.runtime).unwrap_or_default()
});

pub(crate) fn constants() -> Vec<&'static str> {
    TABLE.iter().flat_map(|row| &row.constants).map(String::as_str).collect()
}

pub(crate) fn is_known_allocator(name: &str) -> bool {
    TABLE.iter().flat_map(|row| &row.allocators).any(|start| name.starts_with(start))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    As {
        /// In shell syntax, with `..` for the arguments the program has now.
        line: String,
        notes: Vec<String>,
    },
    /// As before: the option is already in effect.
    Already(String),
    /// Impossible: the loader drops the variables of set-uid programs.
    Ignored,
}

/// A mapping that needs an option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not exclude each other")]
pub struct Wanted {
    pub memory: Memory,
    pub range: Range<u64>,
    /// Whether it is the heap, which only `brk` moves.
    pub is_heap: bool,
    pub pmd_bytes: u64,
    pub is_disabled: bool,
    /// Its longest request to glibc's malloc in bytes, or 0; `None` if not read.
    pub longest_chunk: Option<u64>,
    /// Whether it starts with a glibc thread arena; `None` if not read.
    pub is_arena: Option<bool>,
    pub is_object_arena: bool,
    /// Whether it belongs to the process's largest reservation, or is code that the process wrote.
    pub is_own_heap: bool,
}

impl Wanted {
    /// Returns whether part of it is malloc's and long enough for the tunable to advise.
    ///
    /// - A mapping for a large malloc request starts with a header. If the header is not readable,
    ///   the address decides: a mapping of whole PMD entries is PMD-aligned (since Linux 6.7), but
    ///   malloc's is one page longer and is not.
    /// - glibc does not advise requests below a PMD entry. With 16K and 64K pages (32M, 512M), that
    ///   is most memory of most programs.
    /// - The heap then grows in steps of a PMD entry and is advised as a whole.
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
    /// Whether `folio run --heap`, which sets glibc's tunable, reaches most of its memory.
    #[must_use]
    pub fn is_glibc_alone(&self) -> bool {
        self.environment == ["GLIBC_TUNABLES=glibc.malloc.hugetlb=1"] && self.arguments.is_empty()
    }

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

    #[must_use]
    pub fn has_option(&self) -> bool {
        !(self.environment.is_empty() && self.arguments.is_empty())
    }

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
            // A variable that overrides the arguments negates the option.
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
        if start.variables.is_none() && !start.arguments.is_empty() {
            notes.extend(variables.iter().map(|(name, _)| {
                format!(
                    "its environment cannot be read: if {name} has a value, keep it and add this \
                     option"
                )
            }));
        }
        Started::As { line: self.line(traits, &variables, &arguments), notes }
    }

    fn line(&self, traits: &Traits, variables: &[(&str, Merged)], arguments: &[&String]) -> String {
        let assigned = variables.iter().map(|(name, new)| format!("{name}={}", quoted(&new.value)));
        let mut parts: Vec<String> = assigned.collect();
        parts.extend(traits.typed.iter().map(quoted));
        let arguments = arguments.iter().map(|&argument| argument.clone());
        let rest = || std::iter::once("..".to_owned());
        if self.last {
            parts.extend(rest().chain(arguments));
        } else {
            parts.extend(arguments.chain(rest()));
        }
        parts.join(" ")
    }
}

fn in_place_of(old: &str) -> String {
    format!("it replaces the current {old}")
}

#[cfg(test)]
mod tests;
