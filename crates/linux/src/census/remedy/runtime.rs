//! Run times and allocators: how they are recognised, and what makes them use large folios.
//!
//! Owns the table (`runtimes.toml`) and the choice of its row; the first that fits counts. What an
//! option does is what was read in its source and tried: `scripts/remedies.py` tries it again.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;

use super::verbs::{LiveVerbs, Verbs as _};
use crate::shell::quoted;

/// One row of the table. A program is recognised by all that a row says of it.
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
    /// Constants of the program, one of which is there: what is linked into it.
    #[serde(default)]
    pub constants: Vec<String>,
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
    /// The memory is mapped in pieces below a block, so that no setting gives it larger folios when
    /// it is touched first.
    #[serde(default)]
    pub in_pieces: bool,
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

/// The constants that rows ask for.
pub(crate) fn constants() -> Vec<&'static str> {
    TABLE.iter().flat_map(|row| &row.constants).map(String::as_str).collect()
}

/// What is known of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Its own file; empty where that is not known.
    pub program: PathBuf,
    /// The name it was started by, which a link may have; empty where that is not known.
    pub name: String,
    /// Names of mapped files, without folders.
    pub objects: Vec<String>,
    /// Owners of its notes.
    pub notes: Vec<String>,
    /// The known constants that it holds.
    pub constants: Vec<String>,
}

/// A mapping for which an option is sought.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Wanted {
    /// Whether it is malloc's, as far as its address tells, and so long that the tunable advises it.
    ///
    /// - A mapping of whole PMD entries begins at a multiple of one (from Linux 6.7 on); one that malloc
    ///   makes for a large request has a page more, and does not.
    /// - glibc advises no request below a PMD entry. With 4K pages that is what no setting reaches; with
    ///   16K and 64K pages (32M, 512M) it is most memory of most programs.
    /// - The heap then grows in steps of a PMD entry, and is advised as a whole.
    fn is_advised_by_malloc(&self) -> bool {
        let bytes = self.range.end.saturating_sub(self.range.start);
        let is_own = self.range.start.is_multiple_of(self.pmd_bytes);
        self.is_heap || (!is_own && bytes >= self.pmd_bytes)
    }
}

impl Traits {
    /// Of a program on disk, and the files that a recording of it has.
    #[must_use]
    pub fn recorded<'a>(program: &Path, files: impl Iterator<Item = &'a Path>) -> Self {
        let verbs = LiveVerbs::default();
        let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
        Self {
            program: program.to_owned(),
            name: name(program).unwrap_or_default(),
            objects: files.filter_map(name).collect(),
            notes: verbs.notes(program),
            constants: verbs.constants(program, &constants()),
        }
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
            && self.memory == wanted.memory
            && self.disabled == wanted.is_disabled
            && (self.arena_bytes == 0 || self.is_arena(&wanted.range))
            && (!self.malloc || wanted.is_advised_by_malloc())
    }

    fn is_arena(&self, range: &Range<u64>) -> bool {
        let bytes = range.end.saturating_sub(range.start);
        range.start.is_multiple_of(self.arena_bytes) && bytes <= self.arena_bytes
    }

    /// Whether there is an option at all.
    #[must_use]
    pub fn has_option(&self) -> bool {
        !(self.environment.is_empty() && self.arguments.is_empty())
    }

    /// How the program is started with it.
    #[must_use]
    pub fn start(&self, traits: &Traits) -> String {
        let program = traits.command();
        let words = self.environment.iter().chain([&program]).chain(&self.arguments);
        words.map(String::as_str).chain([".."]).collect::<Vec<_>>().join(" ")
    }
}

impl Traits {
    /// What to type for it.
    fn command(&self) -> String {
        let own = self.program.file_name().map_or(Path::new("PROGRAM"), Path::new);
        let name = if self.name.is_empty() { own } else { Path::new(&self.name) };
        quoted(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(traits: &Traits, wanted: &Wanted) -> &'static str {
        Runtime::of(traits, wanted).map_or("", |row| row.name.as_str())
    }

    const START: u64 = 0x7f00_0000_1000;

    fn anon(start: u64) -> Wanted {
        of_length(start, 4 << 20, 2 << 20)
    }

    /// Private memory on a machine with PMD entries of `pmd_bytes`.
    fn of_length(start: u64, bytes: u64, pmd_bytes: u64) -> Wanted {
        let range = start..start + bytes;
        Wanted { memory: Memory::Anon, range, is_heap: false, pmd_bytes, is_disabled: false }
    }

    #[test]
    fn the_table_is_whole() {
        let table: Table = toml::from_str(include_str!("runtimes.toml")).unwrap();
        for row in &table.runtime {
            let nr = [&row.objects, &row.programs, &row.notes, &row.constants].map(Vec::len);
            let nr: usize = nr.iter().sum();
            assert!(nr > 0 && !row.cost.is_empty() && row.source.len() > 8, "{}", row.name);
        }
    }

    #[test]
    fn an_application_comes_before_its_allocator() {
        let mut traits = Traits {
            program: "/usr/bin/redis-check-rdb".into(),
            name: "redis-server".to_owned(),
            objects: vec!["libjemalloc.so.2".to_owned(), "libc.so.6".to_owned()],
            ..Traits::default()
        };
        let wanted = anon(START);
        assert_eq!(found(&traits, &wanted), "Redis");
        let start = Runtime::of(&traits, &wanted).unwrap().start(&traits);
        assert_eq!(start, "MALLOC_CONF=thp:always redis-server ..");
        (traits.program, traits.name) = ("/opt/server".into(), String::new());
        assert_eq!(found(&traits, &wanted), "jemalloc");
        traits.objects.remove(0);
        assert_eq!(found(&traits, &wanted), "glibc");
        traits.notes.push("Go".to_owned());
        assert_eq!(found(&traits, &wanted), "Go");
        let shared = Wanted { memory: Memory::Shmem, ..wanted };
        assert_eq!(found(&traits, &shared), "");
    }

    #[test]
    fn an_allocator_that_is_linked_in_is_told_by_its_constants() {
        let mut traits = Traits {
            program: "/opt/redis-server".into(),
            objects: vec!["libc.so.6".to_owned()],
            ..Traits::default()
        };
        let start = |traits: &Traits| Runtime::of(traits, &anon(START)).unwrap().start(traits);
        assert!(start(&traits).starts_with("GLIBC_TUNABLES="), "Redis with malloc of glibc");
        traits.constants.push("JE_MALLOC_CONF".to_owned());
        assert_eq!(start(&traits), "JE_MALLOC_CONF=thp:always redis-server ..");
        let cost = &Runtime::of(&traits, &anon(START)).unwrap().cost;
        assert!(cost.contains("fork"), "{cost}");
        traits = Traits { program: "/opt/x".into(), ..traits };
        assert_eq!(start(&traits), "JE_MALLOC_CONF=thp:always x ..");
        traits.constants = vec!["_RJEM_MALLOC_CONF".to_owned()];
        assert_eq!(start(&traits), "_RJEM_MALLOC_CONF=thp:always x ..");
        traits.constants = vec!["MALLOC_CONF".to_owned()];
        assert_eq!(start(&traits), "MALLOC_CONF=thp:always x ..");
    }

    #[test]
    fn memory_that_malloc_did_not_map_is_told_by_its_address() {
        let traits = Traits { objects: vec!["libc.so.6".to_owned()], ..Traits::default() };
        let of = |start| found(&traits, &anon(start));
        assert_eq!(of(0x7f00_0000_1000), "glibc");
        assert_eq!(of(0x7f00_0000_0000), "glibc, memory of threads");
        assert_eq!(of(0x7f00_0020_0000), "", "a mapping of whole blocks is the program's own");
        let longer = of_length(0x7f00_0000_0000, 65 << 20, 2 << 20);
        assert_eq!(found(&traits, &longer), "", "no arena is longer than 64 MiB");
    }

    #[test]
    fn malloc_advises_no_mapping_below_a_pmd_entry() {
        let traits = Traits { objects: vec!["libc.so.6".to_owned()], ..Traits::default() };
        let of = |bytes, pmd_bytes| found(&traits, &of_length(0x7f00_0001_0000, bytes, pmd_bytes));
        for pmd_bytes in [2 << 20, 32 << 20, 512 << 20] {
            assert_eq!(of(pmd_bytes - 1, pmd_bytes), "", "{pmd_bytes}");
            assert_eq!(of(pmd_bytes, pmd_bytes), "glibc", "{pmd_bytes}");
        }
        let heap = Wanted { is_heap: true, ..of_length(0xaaaa_0001_0000, 1 << 20, 512 << 20) };
        assert_eq!(found(&traits, &heap), "glibc", "the heap grows in steps of 512 MiB then");
    }

    #[test]
    fn an_option_stands_behind_the_program_and_a_variable_before_it() {
        let traits = Traits { objects: vec!["libjvm.so".to_owned()], ..Traits::default() };
        let start = Runtime::of(&traits, &anon(START)).unwrap().start(&traits);
        assert_eq!(start, "PROGRAM -XX:+UseTransparentHugePages ..");
    }
}
