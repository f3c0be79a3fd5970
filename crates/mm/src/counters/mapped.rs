//! Pages mapped now, as in `/proc/meminfo` and `/proc/vmstat` (docs/behaviour F.5.2, F.5.7).
//!
//! With a mapcount per page, every mapped page counts once; without it, a mapped folio counts as a
//! whole.

/// Kind of mapped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedKind {
    /// Private memory.
    Anon,
    /// Shared memory (tmpfs).
    Shmem,
    /// Files on a disk.
    File,
}

/// Mapped pages of the machine, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedCounters {
    /// `AnonPages`, `nr_anon_pages`.
    pub nr_anon: u64,
    /// `Mapped`, `nr_mapped`: file-backed pages, including shared memory.
    pub nr_file: u64,
    /// `AnonHugePages`: pages of anonymous folios mapped by a PMD entry.
    pub nr_anon_by_pmd: u64,
    /// `ShmemPmdMapped`.
    pub nr_shmem_by_pmd: u64,
    /// `FilePmdMapped`.
    pub nr_file_by_pmd: u64,
}

impl MappedCounters {
    fn of(&mut self, kind: MappedKind) -> [&mut u64; 2] {
        let Self { nr_anon, nr_file, nr_anon_by_pmd, nr_shmem_by_pmd, nr_file_by_pmd } = self;
        match kind {
            MappedKind::Anon => [nr_anon, nr_anon_by_pmd],
            MappedKind::Shmem => [nr_file, nr_shmem_by_pmd],
            MappedKind::File => [nr_file, nr_file_by_pmd],
        }
    }

    pub(crate) fn add(&mut self, kind: MappedKind, nr_mapped: i64, nr_by_pmd: i64) {
        let [mapped, by_pmd] = self.of(kind);
        *mapped = mapped.wrapping_add_signed(nr_mapped);
        *by_pmd = by_pmd.wrapping_add_signed(nr_by_pmd);
    }
}
