//! One look at the running system: taken and judged, nothing shown yet.

use std::path::PathBuf;

use largefolio_linux::census::file::{self, CachedFiles, Empty, FileError};
use largefolio_linux::census::remedy::verbs::LiveVerbs;
use largefolio_linux::census::why::{self, Finding, Question};
use largefolio_linux::census::{self, Access, Census, cgroup};
use largefolio_linux::system::{Live, System as _};
use largefolio_mm::rules::Rules;
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;

use crate::{Error, Remark, running};

/// Filesystems that take the folios of another one, and those whose name is not known.
const OPEN: [&str; 2] = ["overlay", ""];

/// Whose memory is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Every process.
    All,
    /// The processes of a control group and of the groups below it.
    Cgroup(PathBuf),
    /// These; of one that is gone the result says so.
    Processes(Vec<u32>),
}

impl Whom {
    /// Whether no process is asked for.
    #[must_use]
    pub fn is_nobody(&self) -> bool {
        matches!(self, Self::Processes(pids) if pids.is_empty())
    }

    fn pids(&self) -> Result<Vec<u32>, Error> {
        Ok(match self {
            Self::All => census::all(&Live)?,
            Self::Cgroup(dir) => cgroup::pids(dir)?,
            Self::Processes(pids) => {
                let mut pids = pids.clone();
                pids.sort_unstable();
                pids.dedup();
                pids
            }
        })
    }
}

/// What is to be examined.
#[derive(Clone, Debug)]
pub struct MapsRequest {
    /// Whose mappings.
    pub whom: Whom,
    /// Files whose page cache is shown, mapped or not.
    pub files: Vec<PathBuf>,
    /// A directory: all files below it.
    pub page_cache: Option<PathBuf>,
    /// Mappings of which it is asked why they are not larger: those with most memory.
    pub nr_judged: usize,
    /// The command that asks for the same; it stands in the result and in remedies.
    pub command_line: Vec<String>,
}

/// One reading of the system.
#[derive(Default)]
pub struct Look {
    pub(super) release: String,
    /// What is to be said of the rules that limits come from.
    pub(super) rules_note: Option<String>,
    pub(super) census: Option<Census>,
    pub(super) findings: Vec<Finding>,
    pub(super) cached: Option<CachedFiles>,
}

impl MapsRequest {
    /// Refuses a request for nothing.
    ///
    /// # Errors
    /// That, with what can be asked for.
    pub fn check(&self) -> Result<(), Error> {
        if self.whom.is_nobody() && self.files.is_empty() && self.page_cache.is_none() {
            return Err(Error::asked(
                "name what to show: processes (folio maps 4242, or --all), the page cache of files \
                 (--file FILE.., --page-cache DIR), or programs and shared objects on disk (folio \
                 maps --elf /bin/true)",
            ));
        }
        Ok(())
    }

    /// Takes and judges.
    ///
    /// # Errors
    /// What of `/proc` cannot be read at all; a process that is gone is a remark.
    pub fn look(&self) -> Result<Look, Error> {
        let release = running::release();
        let mut look = Look { release, ..Look::default() };
        if !self.whom.is_nobody() {
            let census = census::take(&Live, &self.whom.pids()?)?;
            let kernel = Kernel::of_release(&look.release, Live.page_bytes());
            let kernel = kernel.and_then(Result::ok);
            look.rules_note = kernel.as_ref().and_then(|kernel| kernel.note.clone());
            let limit = |name: &str| limit(&kernel.as_ref()?.rules, name);
            let verbs = &LiveVerbs::default();
            let question = Question { system: &Live, limit: &limit, verbs, nr_max: self.nr_judged };
            look.findings = why::findings(&census, &question);
            look.census = Some(census);
        }
        look.cached = self.cached()?;
        Ok(look)
    }

    /// What is cached of the files; `None` where none is asked for.
    fn cached(&self) -> Result<Option<CachedFiles>, Error> {
        if self.files.is_empty() && self.page_cache.is_none() {
            return Ok(None);
        }
        let mut cached = match file::cached(&self.files, Empty::Keep) {
            Err(error @ FileError::NoPfns) => {
                let again = self.command_line.join(" ");
                return Err(Error::asked(format!("{error}; run: sudo {again}")));
            }
            other => other?,
        };
        if let Some(dir) = &self.page_cache {
            let below =
                file::below(dir).map_err(Error::system(format!("cannot read {}", shown(dir))))?;
            let more = file::cached(&below, Empty::Count)?;
            cached.files.extend(more.files);
            cached.nr_empty += more.nr_empty;
            // Files come and go in a directory; only the names that were given are errors.
        }
        Ok(Some(cached))
    }

    /// What is missing in `look`, and what is not as it may seem.
    #[must_use]
    pub fn remarks(&self, look: &Look) -> Vec<Remark> {
        let mut remarks: Vec<Remark> =
            Remark::of_rules(look.rules_note.as_deref()).into_iter().collect();
        if let Some(census) = &look.census {
            self.add_census(&mut remarks, census);
        }
        let failed = look.cached.iter().flat_map(|cached| &cached.failed);
        remarks.extend(failed.map(|error| Remark::Missing(error.to_string())));
        remarks
    }

    fn add_census(&self, remarks: &mut Vec<Remark>, census: &Census) {
        let skipped = &census.skipped;
        let is_named = matches!(self.whom, Whom::Processes(_));
        for pid in skipped.gone.iter().filter(|_| is_named) {
            remarks.push(Remark::Missing(format!(
                "no process {pid} (any more); pgrep NAME finds processes"
            )));
        }
        let remedy = if rustix::process::geteuid().is_root() {
            "root needs CAP_SYS_ADMIN and CAP_SYS_PTRACE for this; a container may lack them"
                .to_owned()
        } else {
            format!("run: sudo {}", self.command_line.join(" "))
        };
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

    /// Whether nothing is left to show.
    #[must_use]
    pub fn is_over(&self, look: &Look) -> bool {
        let is_empty = look.census.as_ref().is_some_and(|census| census.processes.is_empty());
        is_empty && matches!(self.whom, Whom::Processes(_))
    }
}

/// Largest folio of a filesystem in bytes under the rules of the running kernel; 0 for base pages.
fn limit(rules: &Rules, name: &str) -> Option<u64> {
    if OPEN.contains(&name) {
        return None;
    }
    let order = rules.order_range(name).max.get();
    Some(if order == 0 { 0 } else { rules.page.bytes() << order })
}
