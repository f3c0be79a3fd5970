//! Run times and allocators: how they are recognised, and what makes them use large folios.
//!
//! Owns the table (`runtimes.toml`) and the choice of its row; the first that fits counts. What an
//! option does is what was read in its source and tried: `scripts/remedies.py` tries it again.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;

/// One row of the table.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
    /// Whose memory it is about.
    pub memory: Memory,
    /// Whether the program has THP disabled for itself.
    #[serde(default)]
    pub disabled: bool,
    /// Mappings below so many bytes are not reached.
    #[serde(default)]
    pub from_bytes: u64,
    /// `NAME=VALUE`, put before the command.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Put behind the program.
    #[serde(default)]
    pub arguments: Vec<String>,
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

/// What is known of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Its own file; empty where that is not known.
    pub program: PathBuf,
    /// Names of mapped files, without folders.
    pub objects: Vec<String>,
    /// Owners of its notes.
    pub notes: Vec<String>,
}

/// A mapping for which an option is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its memory.
    pub memory: Memory,
    /// Bytes of the mapping.
    pub len_bytes: u64,
    /// Whether the process has THP disabled.
    pub is_disabled: bool,
}

impl Runtime {
    /// The row for a mapping of a program.
    #[must_use]
    pub fn of(traits: &Traits, wanted: Wanted) -> Option<&'static Self> {
        TABLE.iter().find(|row| row.is_of(traits, wanted))
    }

    fn is_of(&self, traits: &Traits, wanted: Wanted) -> bool {
        let program = traits.name();
        let starts = |all: &[String], name: &str| all.iter().any(|one| name.starts_with(one));
        let is_known = starts(&self.programs, &program)
            || traits.objects.iter().any(|name| starts(&self.objects, name))
            || traits.notes.iter().any(|name| self.notes.contains(name));
        is_known
            && self.memory == wanted.memory
            && self.disabled == wanted.is_disabled
            && wanted.len_bytes >= self.from_bytes
    }

    /// Whether there is an option at all.
    #[must_use]
    pub fn has_option(&self) -> bool {
        !(self.environment.is_empty() && self.arguments.is_empty())
    }

    /// How the program is started with it.
    #[must_use]
    pub fn start(&self, traits: &Traits) -> String {
        let program = traits.name();
        let program = if program.is_empty() { "PROGRAM".to_owned() } else { program };
        let words = self.environment.iter().chain([&program]).chain(&self.arguments);
        words.map(String::as_str).chain([".."]).collect::<Vec<_>>().join(" ")
    }
}

impl Traits {
    /// Name of its file.
    #[must_use]
    pub fn name(&self) -> String {
        let name = self.program.file_name().unwrap_or_default();
        super::quoted(Path::new(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(traits: &Traits, wanted: Wanted) -> &'static str {
        Runtime::of(traits, wanted).map_or("", |row| row.name.as_str())
    }

    const ANON: Wanted = Wanted { memory: Memory::Anon, len_bytes: 64 << 20, is_disabled: false };

    #[test]
    fn the_table_is_whole() {
        let table: Table = toml::from_str(include_str!("runtimes.toml")).unwrap();
        for row in &table.runtime {
            let nr = row.objects.len() + row.programs.len() + row.notes.len();
            assert!(nr > 0 && !row.cost.is_empty() && row.source.len() > 8, "{}", row.name);
        }
    }

    #[test]
    fn an_application_comes_before_its_allocator() {
        let mut traits = Traits {
            program: "/usr/bin/redis-check-rdb".into(),
            objects: vec!["libjemalloc.so.2".to_owned(), "libc.so.6".to_owned()],
            notes: Vec::new(),
        };
        assert_eq!(found(&traits, ANON), "Redis");
        assert_eq!(
            Runtime::of(&traits, ANON).unwrap().start(&traits),
            "MALLOC_CONF=thp:always redis-check-rdb .."
        );
        traits.program = "/opt/server".into();
        assert_eq!(found(&traits, ANON), "jemalloc");
        traits.objects.remove(0);
        assert_eq!(found(&traits, ANON), "glibc");
        traits.notes.push("Go".to_owned());
        assert_eq!(found(&traits, ANON), "Go");
        let shared = Wanted { memory: Memory::Shmem, ..ANON };
        assert_eq!(found(&traits, shared), "");
    }

    #[test]
    fn small_areas_of_a_jvm_are_not_its_heap() {
        let traits = Traits { objects: vec!["libjvm.so".to_owned()], ..Traits::default() };
        assert_eq!(found(&traits, ANON), "OpenJDK, its heap");
        assert_eq!(
            found(&traits, Wanted { len_bytes: 4 << 20, ..ANON }),
            "OpenJDK, its other memory"
        );
        assert_eq!(
            Runtime::of(&traits, ANON).unwrap().start(&traits),
            "PROGRAM -XX:+UseTransparentHugePages .."
        );
    }
}
