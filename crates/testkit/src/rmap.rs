//! A naive model of a folio's counters: every mapping of every page; every query is a scan.

#[derive(Clone, Debug, Default)]
pub struct NaiveMm {
    pub ptes: Vec<u32>,
    pub nr_pmds: u32,
}

#[derive(Clone, Debug)]
pub struct NaiveRmap {
    pub mms: Vec<NaiveMm>,
    nr_pages: usize,
}

impl NaiveRmap {
    #[must_use]
    pub fn new(nr_pages: usize, nr_mms: usize) -> Self {
        let mm = NaiveMm { ptes: vec![0; nr_pages], nr_pmds: 0 };
        Self { mms: vec![mm; nr_mms], nr_pages }
    }

    pub fn add_ptes(&mut self, mm: usize, pages: std::ops::Range<usize>) {
        for nr in &mut self.mms[mm].ptes[pages] {
            *nr += 1;
        }
    }

    /// Removes one mapping of each page; `false` without changes if `mm` does not map one of them.
    pub fn remove_ptes(&mut self, mm: usize, pages: std::ops::Range<usize>) -> bool {
        let ptes = &mut self.mms[mm].ptes[pages];
        let are_mapped = ptes.iter().all(|&nr| nr > 0);
        if are_mapped {
            for nr in ptes {
                *nr -= 1;
            }
        }
        are_mapped
    }

    #[must_use]
    pub fn nr_ptes(&self, page: usize) -> u32 {
        self.mms.iter().map(|mm| mm.ptes[page]).sum()
    }

    #[must_use]
    pub fn nr_pmds(&self) -> u32 {
        self.mms.iter().map(|mm| mm.nr_pmds).sum()
    }

    /// Mappings of all pages; a PMD mapping counts as `pmd`.
    #[must_use]
    pub fn mapcount(&self, pmd: u32) -> u32 {
        (0..self.mms.len()).map(|mm| self.mapcount_of(mm, pmd)).sum()
    }

    #[must_use]
    pub fn mapcount_of(&self, mm: usize, pmd: u32) -> u32 {
        self.mms[mm].ptes.iter().sum::<u32>() + self.mms[mm].nr_pmds * pmd
    }

    #[must_use]
    pub fn nr_mms(&self) -> usize {
        (0..self.mms.len()).filter(|&mm| self.mapcount_of(mm, 1) > 0).count()
    }

    #[must_use]
    pub fn nr_mapped_pages(&self) -> usize {
        let is_entire = self.nr_pmds() > 0;
        (0..self.nr_pages).filter(|&page| is_entire || self.nr_ptes(page) > 0).count()
    }
}
