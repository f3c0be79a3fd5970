//! A prediction's numbers.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::sizes::SizeTable;

use super::{MappedHow, MappedKind, Measure, Numbers};

impl Numbers {
    /// Takes the numbers from `outcome`. `file` gives the name of a file to compare by its path.
    #[must_use]
    pub fn predicted(outcome: &Outcome, file: impl Fn(&str) -> Option<String>) -> Self {
        let mut numbers = Self::default();
        let faults = &outcome.faults;
        // Without failed faults, which end in a signal.
        let completed = faults.around
            + faults.finish
            + faults.anon
            + faults.zero_page
            + faults.cow
            + faults.wp_reuse
            + faults.swap_in
            + faults.hugetlb;
        numbers.add(Measure::MajorFaults, faults.major);
        numbers.add(Measure::MinorFaults, completed.saturating_sub(faults.major));
        numbers.add(Measure::BytesRead, outcome.reads.bytes);
        let areas = outcome.detail.iter().flat_map(|detail| &detail.areas);
        for area in areas.filter(|area| area.kind == AreaKind::File) {
            let Some(file) = file(&area.path) else { continue };
            let nr_file_pages = area.len_bytes.div_ceil(outcome.page_bytes);
            for run in &area.runs {
                let folio_bytes = outcome.page_bytes << run.order.get();
                let measure = Measure::Cached { file: file.clone(), folio_bytes };
                // The kernel shows no page beyond the end of the file.
                let end = (run.page + run.nr_pages).min(nr_file_pages);
                numbers.add(measure, end.saturating_sub(run.page) * outcome.page_bytes);
            }
        }
        let folios = &outcome.folios;
        numbers.add_table(MappedKind::Anon, &folios.anon);
        numbers.add_table(MappedKind::File, &folios.data);
        numbers.add_table(MappedKind::File, &folios.shmem);
        numbers.add_table(MappedKind::Text, &folios.text);
        let statistics = &outcome.statistics;
        numbers.add(Measure::Rss, statistics.total.rss_bytes);
        // The kernel rounds down for each process.
        let pss_kib = statistics.processes.iter().map(|one| one.kernel.pss_bytes >> 10).sum();
        numbers.add(Measure::PssKib, pss_kib);
        numbers
    }

    fn add_table(&mut self, kind: MappedKind, table: &SizeTable) {
        let mut add = |folio_bytes, how, bytes| {
            self.add(Measure::Mapped { kind, folio_bytes, how }, bytes);
        };
        for (&size, row) in &table.by_size {
            add(size, MappedHow::Whole, row.aligned_bytes + row.unaligned_bytes);
        }
        for (&size, &bytes) in &table.partial_by_size {
            add(size, MappedHow::Partial, bytes);
        }
        self.add(Measure::MappedByPmd(kind), table.pmd_bytes);
    }
}
