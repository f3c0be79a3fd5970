//! One reading of the running system: its data, judged but not yet formatted.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use largefolio_linux::census::cgroup::{self, MemoryLimit};
use largefolio_linux::census::file::{self, CachedFiles, Empty, FileError};
use largefolio_linux::census::selection::Missing;
pub use largefolio_linux::census::selection::Selection;
use largefolio_linux::census::{self, Access, Census, CensusError, Watch};
use largefolio_linux::reasons::{self, CensusQuestion, Finding};
use largefolio_linux::remedies::verbs::LiveVerbs;
use largefolio_linux::shell::again_as_root;
use largefolio_linux::system::{Live, System as _};
use largefolio_mm::rules::Rules;
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;
use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Remark, running};

/// Filesystems that use another filesystem's folios, and those with an unknown name.
const OPEN: [&str; 2] = ["overlay", ""];

#[derive(Clone, Debug)]
pub struct MapsRequest {
    pub selection: Selection,
    pub files: Vec<PathBuf>,
    pub page_cache: Vec<PathBuf>,
    /// Maximum number of mappings to judge: those with most memory.
    pub nr_judged: usize,
    pub command_line: Vec<String>,
}

#[derive(Default)]
pub struct Reading {
    pub(super) release: String,
    pub(super) boot_id: Option<String>,
    /// Since 1970.
    pub(super) taken: Duration,
    pub(super) began_cpu_ns: u64,
    pub(super) rules_note: Option<String>,
    pub(super) census: Option<Census>,
    pub(super) limits: Vec<MemoryLimit>,
    pub(super) missing: Vec<Missing>,
    pub(super) findings: Vec<Finding>,
    pub(super) cached: Option<CachedFiles>,
}

impl Reading {
    pub(super) fn cpu_ns_since_begin(&self) -> u64 {
        cpu_ns().saturating_sub(self.began_cpu_ns)
    }

    /// Gives the processes back to `watch`, which took this reading.
    pub fn give_back(self, watch: &mut Watch) {
        if let Some(census) = self.census {
            watch.give_back(census);
        }
    }

    fn has_no_process(&self) -> bool {
        self.census.as_ref().is_some_and(|census| census.processes.is_empty())
    }

    #[must_use]
    pub const fn census(&self) -> Option<&Census> {
        self.census.as_ref()
    }

    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl MapsRequest {
    /// Checks that something is requested.
    ///
    /// # Errors
    /// If nothing is; the message says what can be requested.
    pub fn check(&self) -> Result<(), Error> {
        if self.selection.is_empty() && self.files.is_empty() && self.page_cache.is_empty() {
            return Err(Error::request(
                "specify what to show: processes (folio maps 4242, --name postgres, or --all), the \
                 page cache of files (--file FILE.., --page-cache DIR), or programs and shared \
                 objects on disk (folio maps --elf /bin/true)",
            ));
        }
        Ok(())
    }

    /// Reads and judges the system.
    ///
    /// # Errors
    /// If `/proc` cannot be read at all. A process that has exited is a remark.
    pub fn take_reading(&self) -> Result<Reading, Error> {
        let mut limits = Vec::new();
        let reading = self.reading(&mut |pids| {
            limits = cgroup::limits(&Live, pids);
            census::take(&Live, pids)
        })?;
        Ok(Reading { limits, ..reading })
    }

    /// As [`MapsRequest::take_reading`], but reads only the processes that changed since `watch`'s
    /// last reading, and no memory limits.
    ///
    /// # Errors
    /// As [`MapsRequest::take_reading`].
    pub fn take_reading_again(&self, watch: &mut Watch) -> Result<Reading, Error> {
        self.reading(&mut |pids| watch.take(&Live, pids))
    }

    fn reading(
        &self,
        take: &mut dyn FnMut(&[u32]) -> Result<Census, CensusError>,
    ) -> Result<Reading, Error> {
        let (release, boot_id) = (running::release(), census::boot_id(&Live));
        let taken = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_cpu_ns = cpu_ns();
        let mut reading = Reading { release, boot_id, taken, began_cpu_ns, ..Reading::default() };
        if !self.selection.is_empty() {
            let chosen = self.selection.chosen(&Live)?;
            reading.missing = chosen.missing;
            let census = take(&chosen.pids)?;
            let kernel = Kernel::of_release(&reading.release, Live.page_bytes());
            let kernel = kernel.and_then(Result::ok);
            reading.rules_note = kernel.as_ref().and_then(|kernel| kernel.note.clone());
            let limit = |name: &str| limit(&kernel.as_ref()?.rules, name);
            let verbs = &LiveVerbs::default();
            let question =
                CensusQuestion { system: &Live, limit: &limit, verbs, nr_max: self.nr_judged };
            reading.findings = reasons::findings(&census, &question);
            reading.census = Some(census);
        }
        reading.cached = self.cached()?;
        Ok(reading)
    }

    fn cached(&self) -> Result<Option<CachedFiles>, Error> {
        if self.files.is_empty() && self.page_cache.is_empty() {
            return Ok(None);
        }
        let mut cached = match file::cached(&self.files, Empty::Keep) {
            Err(error @ FileError::NoPfns) => {
                return Err(Error::request(format!("{error}; {}", self.remedy())));
            }
            other => other?,
        };
        let mut paths = BTreeSet::new();
        for dir in &self.page_cache {
            if dir.is_file() {
                return Err(Error::request(format!(
                    "--page-cache takes a directory; for one file: folio maps --file {}",
                    shown(dir)
                )));
            }
            let below = file::below(dir);
            paths.extend(below.map_err(Error::system(format!("cannot read {}", shown(dir))))?);
        }
        // Files in a directory can come and go; only files given by name are errors.
        let more = file::cached(&Vec::from_iter(paths), Empty::Count)?;
        cached.files.extend(more.files);
        cached.nr_empty += more.nr_empty;
        Ok(Some(cached))
    }

    #[must_use]
    pub fn remarks(&self, reading: &Reading) -> Vec<Remark> {
        let mut remarks: Vec<Remark> =
            Remark::of_rules(reading.rules_note.as_deref()).into_iter().collect();
        remarks.extend(reading.missing.iter().map(|missing| Remark::Missing(missing.to_string())));
        if let Some(census) = &reading.census {
            self.add_census(&mut remarks, census);
        }
        let failed = reading.cached.iter().flat_map(|cached| &cached.failed);
        remarks.extend(failed.map(|error| Remark::Missing(error.to_string())));
        remarks
    }

    pub(super) fn remedy(&self) -> String {
        if rustix::process::geteuid().is_root() {
            "root needs CAP_SYS_ADMIN and CAP_SYS_PTRACE for this, which a container may lack"
                .to_owned()
        } else {
            format!("run: {}", again_as_root(&self.command_line))
        }
    }

    fn add_census(&self, remarks: &mut Vec<Remark>, census: &Census) {
        let skipped = &census.skipped;
        let is_named = matches!(self.selection, Selection::Processes(_));
        for pid in skipped.gone.iter().filter(|_| is_named) {
            remarks.push(Remark::Missing(format!(
                "no process {pid} exists, or it has ended; pgrep NAME finds processes"
            )));
        }
        for pid in skipped.empty.iter().filter(|_| is_named) {
            remarks.push(Remark::Warning(format!(
                "process {pid} has no memory (a kernel thread or a zombie)"
            )));
        }
        let remedy = self.remedy();
        for pid in skipped.refused.iter().filter(|_| is_named) {
            remarks.push(Remark::Missing(format!(
                "the kernel does not show process {pid} to this user; {remedy}"
            )));
        }
        if !is_named && !skipped.refused.is_empty() {
            let nr = skipped.refused.len();
            remarks.push(Remark::Warning(format!(
                "the kernel does not show {nr} of the processes to this user; {remedy}"
            )));
        }
        if census.access == Access::Smaps && !census.processes.is_empty() {
            remarks.push(Remark::Warning(format!(
                "without PFNs, only the size of PMD-mapped memory is known; {remedy}"
            )));
        }
    }

    /// Returns whether nothing is left to show. Processes selected by name may come back.
    #[must_use]
    pub fn is_over(&self, reading: &Reading) -> bool {
        reading.has_no_process() && matches!(self.selection, Selection::Processes(_))
    }

    #[must_use]
    pub fn finds_nothing(&self, reading: &Reading) -> bool {
        let is_named =
            !reading.missing.is_empty() || !self.files.is_empty() || self.is_over(reading);
        let has_process =
            reading.census.as_ref().is_some_and(|census| !census.processes.is_empty());
        // A directory without files is a valid answer; names that cannot be opened are not.
        let all_failed = |cached: &CachedFiles| {
            cached.files.is_empty() && cached.nr_empty == 0 && !cached.failed.is_empty()
        };
        let has_file = reading.cached.as_ref().is_some_and(|cached| !all_failed(cached));
        is_named && !has_process && !has_file && self.page_cache.is_empty()
    }
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let [seconds, ns] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Returns the filesystem's largest folio in bytes under the running kernel's rules; 0 for base
/// pages.
fn limit(rules: &Rules, name: &str) -> Option<u64> {
    if OPEN.contains(&name) {
        return None;
    }
    let order = rules.order_range(name).max.get();
    Some(if order == 0 { 0 } else { rules.page.bytes() << order })
}
