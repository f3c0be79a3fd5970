//! The numbers of a plain run.

use largefolio_linux::census::folios::{MemoryKind, Size, Tally};

use super::{MappedHow, MappedKind, Measure, Numbers};
use crate::crosscheck::record::PlainRun;

impl Numbers {
    /// Takes the numbers of a plain run with pages of `page_bytes`. `file` gives the name of a file
    /// to compare by its path.
    #[must_use]
    pub fn real(run: &PlainRun, page_bytes: u64, file: impl Fn(&str) -> Option<String>) -> Self {
        let (mut numbers, observed) = (Self::default(), &run.observed);
        numbers.add(Measure::MajorFaults, observed.faults.nr_major);
        // Traces have no vDSO. Each of its pages took one fault.
        let nr_vdso = observed.vdso_bytes / page_bytes;
        numbers.add(Measure::MinorFaults, observed.faults.nr_minor.saturating_sub(nr_vdso));
        numbers.add(Measure::BytesRead, observed.read_bytes);
        for cached in &run.cached {
            let Some(file) = file(&cached.path.to_string_lossy()) else { continue };
            for (_, size, cell) in cached.tally.cells() {
                let Some(folio_bytes) = size.bytes(page_bytes) else { continue };
                let measure = Measure::Cached { file: file.clone(), folio_bytes };
                numbers.add(measure, cell.mapped_bytes());
            }
        }
        numbers.add_tally(&observed.mapped, page_bytes);
        numbers.add(Measure::Rss, observed.resident.rss_bytes);
        numbers.add(Measure::PssKib, observed.resident.pss_bytes >> 10);
        numbers
    }

    fn add_tally(&mut self, tally: &Tally, page_bytes: u64) {
        for (kind, size, cell) in tally.cells() {
            let kind = match kind {
                MemoryKind::Anon => MappedKind::Anon,
                MemoryKind::File | MemoryKind::Shmem => MappedKind::File,
                MemoryKind::Text => MappedKind::Text,
                MemoryKind::Hugetlb | MemoryKind::Other => continue,
            };
            let Some(folio_bytes) = Size::bytes(size, page_bytes) else { continue };
            for (how, bytes) in [
                (MappedHow::Whole, cell.aligned_bytes + cell.unaligned_bytes),
                (MappedHow::Partial, cell.partial_bytes),
            ] {
                self.add(Measure::Mapped { kind, folio_bytes, how }, bytes);
            }
            self.add(Measure::MappedByPmd(kind), cell.pmd_bytes);
        }
    }
}
