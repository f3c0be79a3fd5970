//! Values of a study file: sizes such as `64K`, and workloads to generate.

use std::ops::ControlFlow;
use std::path::Path;

use largefolio_trace::generate::{
    Advice, GenerateError, Library, LinkedFor, RetStubs, Server, Snapshots, SweepOrder, Workload,
    ZipfMix,
};
use largefolio_trace::validate::REFERENCE_PAGE_BYTES;
use serde::Deserialize;

/// Reads `64K` as bytes.
pub(super) mod bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer};

    use largefolio_sim::size::parse_bytes;

    pub(in crate::study) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        parse_bytes(&text).ok_or_else(|| {
            Error::custom(format!(
                "'{text}' is not a size; expected bytes, such as \"64K\" or \
                                   \"2M\""
            ))
        })
    }
}

/// Maximum number of rows of a generated trace, 60 times the largest built-in study. 8 million rows
/// of `zipf` took 0.4 s of CPU time and 21 MB, so the limit costs 7 s and 350 MB.
pub(super) const NR_ROWS_MAX: u64 = 1 << 27;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// `traces/NAME.folio`.
    Recorded(String),
    Generated(Generated),
}

impl Input {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Recorded(name) => name,
            Self::Generated(_) => "generated",
        }
    }
}

/// A trace to generate. Defaults are those of `folio trace gen`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Generated {
    /// One function per page.
    #[serde(rename_all = "kebab-case")]
    RetStubs {
        pages: u64,
        /// Distance between functions in bytes.
        #[serde(with = "bytes")]
        stub_size: u64,
        order: Sweep,
        calls: u64,
        advice: Advised,
        seed: u64,
    },
    /// A program that runs code in a library.
    #[serde(rename_all = "kebab-case")]
    Library {
        #[serde(with = "bytes")]
        text_size: u64,
        #[serde(with = "bytes")]
        program_size: u64,
        /// `-z max-page-size` of the library.
        #[serde(with = "bytes")]
        max_page_size: u64,
        /// Runs of fetches, each within one page.
        calls: u64,
        run_max: u64,
        /// Percentage of calls that stay in the program.
        program_percent: u64,
        seed: u64,
    },
    /// A process that forks to write snapshots of its memory.
    #[serde(rename_all = "kebab-case")]
    Fork {
        /// The parent's memory in bytes.
        #[serde(with = "bytes")]
        anon_size: u64,
        snapshots: u64,
        /// Writes during and after a snapshot, in percent of the pages.
        write_percent: u64,
        seed: u64,
    },
    /// A program that maps data files and has a heap; some pages are hot and most cold.
    Zipf(Mix),
    #[serde(rename_all = "kebab-case")]
    Server {
        workers: u64,
        /// Shared text in bytes.
        #[serde(with = "bytes")]
        text_size: u64,
        /// Inherited heap in bytes.
        #[serde(with = "bytes")]
        heap_size: u64,
        /// A worker's private memory in bytes.
        #[serde(with = "bytes")]
        own_size: u64,
        /// Memory that all processes share, in bytes; 0 = none.
        #[serde(with = "bytes", default)]
        shared_size: u64,
        requests: u64,
        /// A worker is replaced after this many requests; 0 = never.
        requests_per_worker: u64,
        seed: u64,
    },
}

/// Text, data files and a heap, referenced by Zipf's law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Mix {
    files: u64,
    /// Size of each file in bytes.
    #[serde(with = "bytes")]
    file_size: u64,
    #[serde(with = "bytes")]
    anon_size: u64,
    runs: u64,
    run_max: u64,
    /// Percentage of runs that execute text.
    exec_percent: u64,
    /// Percentage of the other runs that write.
    write_percent: u64,
    /// Percentage of the other runs that use the heap.
    anon_percent: u64,
    seed: u64,
}

impl Mix {
    fn workload(self) -> ZipfMix {
        ZipfMix {
            nr_files: self.files,
            file_bytes: self.file_size,
            anon_bytes: self.anon_size,
            nr_runs: self.runs,
            run_max: self.run_max,
            exec_percent: self.exec_percent,
            write_percent: self.write_percent,
            anon_percent: self.anon_percent,
            seed: self.seed,
            ..ZipfMix::default()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    Sequential,
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advised {
    None,
    Hugepage,
}

impl Generated {
    fn workload(&self) -> Box<dyn Workload> {
        match *self {
            Self::RetStubs { pages, stub_size, order, calls, advice, seed } => Box::new(RetStubs {
                nr_pages: pages,
                stub_bytes: stub_size,
                order: match order {
                    Sweep::Sequential => SweepOrder::Sequential,
                    Sweep::Random => SweepOrder::Random,
                },
                nr_calls: calls,
                advice: match advice {
                    Advised::None => Advice::None,
                    Advised::Hugepage => Advice::HugePage,
                },
                seed,
                ..RetStubs::default()
            }),
            Self::Library {
                text_size,
                program_size,
                max_page_size,
                calls,
                run_max,
                program_percent,
                seed,
            } => Box::new(Library {
                text_bytes: text_size,
                program_bytes: program_size,
                linked_for: if max_page_size < 2 << 20 { LinkedFor::Base } else { LinkedFor::Huge },
                nr_calls: calls,
                run_max,
                program_percent,
                seed,
                ..Library::default()
            }),
            Self::Fork { anon_size, snapshots, write_percent, seed } => Box::new(Snapshots {
                anon_bytes: anon_size,
                nr_snapshots: snapshots,
                write_percent,
                seed,
            }),
            Self::Zipf(mix) => Box::new(mix.workload()),
            Self::Server {
                workers,
                text_size,
                heap_size,
                own_size,
                shared_size,
                requests,
                requests_per_worker,
                seed,
            } => Box::new(Server {
                nr_workers: workers,
                text_bytes: text_size,
                heap_bytes: heap_size,
                own_bytes: own_size,
                shared_bytes: shared_size,
                nr_requests: requests,
                nr_requests_per_worker: requests_per_worker,
                seed,
                ..Server::default()
            }),
        }
    }

    pub(super) fn check(&self) -> Result<(), GenerateError> {
        self.workload().validate()
    }

    /// Returns the maximal number of rows, except a few calls at the start and end.
    pub(super) fn nr_rows_max(&self) -> u64 {
        let pages_of = |bytes: u64| bytes / REFERENCE_PAGE_BYTES;
        let nr_rows: u128 = match *self {
            Self::RetStubs { pages, calls, .. } => u128::from(pages) + u128::from(calls),
            Self::Library { calls, .. } => calls.into(),
            Self::Fork { anon_size, snapshots, write_percent, .. } => {
                // All pages are written once; each snapshot reads all and writes a share twice.
                let nr_pages = u128::from(pages_of(anon_size));
                let nr_written = nr_pages * u128::from(write_percent) / 100;
                nr_pages + u128::from(snapshots) * (nr_pages + 2 * nr_written)
            }
            Self::Zipf(mix) => mix.runs.into(),
            Self::Server { workers, heap_size, shared_size, requests, .. } => {
                let nr_own = u128::from(pages_of(heap_size)) + u128::from(workers);
                let nr_rows = Server::nr_rows_per_request_max(shared_size);
                nr_own + u128::from(requests) * u128::from(nr_rows)
            }
        };
        u64::try_from(nr_rows).unwrap_or(u64::MAX)
    }

    /// Writes the trace while `on_progress` continues; it gets the number of rows so far.
    pub(super) fn write(
        &self,
        path: &Path,
        on_progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), GenerateError> {
        self.workload().write_while(path, on_progress).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows at the start and end that no option counts.
    const NR_ROWS_AROUND: u64 = 16;

    #[test]
    fn a_trace_has_no_more_rows_than_its_study_is_checked_for() {
        let kinds = [
            "kind = 'ret-stubs'\npages = 70\nstub-size = '4K'\norder = 'random'\ncalls = 30\n\
             advice = 'none'",
            "kind = 'library'\ntext-size = '64K'\nprogram-size = '4K'\nmax-page-size = '4K'\n\
             calls = 100\nrun-max = 3\nprogram-percent = 5",
            "kind = 'fork'\nanon-size = '400K'\nsnapshots = 3\nwrite-percent = 50",
            "kind = 'zipf'\nfiles = 2\nfile-size = '64K'\nanon-size = '64K'\nruns = 100\n\
             run-max = 3\nexec-percent = 5\nwrite-percent = 5\nanon-percent = 5",
            "kind = 'server'\nworkers = 2\ntext-size = '64K'\nheap-size = '64K'\n\
             own-size = '4K'\nrequests = 9\nrequests-per-worker = 1",
            "kind = 'server'\nworkers = 2\ntext-size = '64K'\nheap-size = '64K'\n\
             own-size = '4K'\nshared-size = '64K'\nrequests = 9\nrequests-per-worker = 1",
        ];
        for text in kinds {
            let generated: Generated = toml::from_str(&format!("{text}\nseed = 1")).unwrap();
            let nr_rows = generated.workload().events().unwrap().len() as u64;
            let nr_rows_max = generated.nr_rows_max();
            let is_near = nr_rows_max <= nr_rows && nr_rows <= nr_rows_max + NR_ROWS_AROUND;
            assert!(is_near, "{text}: {nr_rows_max} instead of {nr_rows}");
        }
    }
}
