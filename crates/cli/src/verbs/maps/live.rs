//! The running system: taken, judged, shown, once or again and again.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use largefolio_linux::census::file::CachedFiles;
use largefolio_linux::census::why::{self, Finding, Question};
use largefolio_linux::census::{self, Access, Census, cgroup};
use largefolio_linux::system::{Live, System as _};
use largefolio_linux::watch::Rounds;
use largefolio_mm::rules::Rules;
use largefolio_sim::kernel::Kernel;

use super::table::Show;
use super::view::View;
use super::{cache, page, table};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::page_file::{self, PageFile};
use crate::verbs::running;
use crate::verbs::values::Form;

/// Filesystems that take the folios of another one, and those whose name is not known.
const OPEN: [&str; 2] = ["overlay", ""];

/// Mappings that are judged for a page: those of a large system with most memory.
const JUDGED_OF_PAGE: usize = 2000;

/// Whose memory is shown.
#[derive(Clone, Debug)]
pub(super) enum Whom {
    All,
    Cgroup(PathBuf),
    Processes(Vec<u32>),
}

impl Whom {
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::Processes(pids) if pids.is_empty())
    }

    fn pids(&self) -> Result<Vec<u32>> {
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

/// A view of the running system.
pub(crate) struct LivePlan {
    pub(super) whom: Whom,
    pub(super) files: Vec<PathBuf>,
    pub(super) page_cache: Option<PathBuf>,
    pub(super) show: Show,
    pub(super) watch: Option<Duration>,
    pub(super) form: Form,
    pub(super) page: Option<PageFile>,
    pub(super) command_line: Vec<String>,
}

/// One look at the system.
#[derive(Default)]
pub(super) struct Look {
    pub(super) release: String,
    /// What is to be said of the rules that limits come from.
    pub(super) rules_note: Option<String>,
    pub(super) census: Option<Census>,
    pub(super) findings: Vec<Finding>,
    pub(super) cached: Option<CachedFiles>,
}

impl LivePlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let Some(every) = self.watch else {
            let look = self.look()?;
            let exit = self.tell(&look);
            self.deliver(&look, console)?;
            return Ok(exit);
        };
        let mut rounds = Rounds::new(every).context("cannot watch for Ctrl-C")?;
        let is_redrawn = std::io::stdout().is_terminal() && self.form == Form::Text;
        let mut exit = Exit::Done;
        for nr in 0_u64.. {
            let look = self.look()?;
            if nr == 0 {
                exit = self.tell(&look);
            }
            match (is_redrawn, self.form, nr) {
                (true, ..) => console.out().write_all(b"\x1b[H\x1b[2J")?,
                (false, Form::Text, 1..) => console.out().write_all(b"\n")?,
                _ => {}
            }
            self.deliver(&look, console)?;
            if self.is_over(&look) || !rounds.wait() {
                break;
            }
        }
        Ok(exit)
    }

    fn look(&self) -> Result<Look> {
        let release = running::release();
        let mut look = Look { release, ..Look::default() };
        if !self.whom.is_nobody() {
            let census = census::take(&Live, &self.whom.pids()?)?;
            let kernel = Kernel::of_release(&look.release, Live.page_bytes());
            let kernel = kernel.and_then(Result::ok);
            look.rules_note = kernel.as_ref().and_then(|kernel| kernel.note.clone());
            let of_page = if self.page.is_some() { JUDGED_OF_PAGE } else { 0 };
            let nr_max = match self.form {
                Form::Text => self.show.nr_judged().max(of_page),
                Form::Json => usize::MAX,
                Form::Csv => of_page,
            };
            let limit = |name: &str| limit(&kernel.as_ref()?.rules, name);
            let question = Question { system: &Live, limit: &limit, nr_max };
            look.findings = why::findings(&census, &question);
            look.census = Some(census);
        }
        look.cached = cache::look(&self.files, self.page_cache.as_deref(), &self.command_line)?;
        Ok(look)
    }

    fn deliver(&self, look: &Look, console: &mut Console) -> Result<()> {
        let result = match self.form {
            Form::Text => table::of(look, self.show),
            Form::Csv => View::of(look, &self.command_line).csv()?,
            Form::Json => {
                let view = View::of(look, &self.command_line);
                let is_stream = self.watch.is_some();
                let json = if is_stream {
                    serde_json::to_string(&view)
                } else {
                    serde_json::to_string_pretty(&view)
                };
                json? + "\n"
            }
        };
        let page = match &self.page {
            Some(file) => Some((file, page::of(look, &self.command_line)?)),
            None => None,
        };
        page_file::deliver(console, result.as_bytes(), page)
    }

    /// Says what is missing in the result; an error where it was asked for by name.
    fn tell(&self, look: &Look) -> Exit {
        let mut exit = Exit::Done;
        let again = self.command_line.join(" ");
        running::tell(look.rules_note.as_deref());
        if let Some(census) = &look.census {
            let skipped = &census.skipped;
            let is_named = matches!(self.whom, Whom::Processes(_));
            for pid in skipped.gone.iter().filter(|_| is_named) {
                console::say(&format!(
                    "folio: error: no process {pid} (any more); pgrep NAME finds processes"
                ));
                exit = Exit::Error;
            }
            let remedy = if rustix::process::geteuid().is_root() {
                "root needs CAP_SYS_ADMIN and CAP_SYS_PTRACE here, which a container may lack"
                    .to_owned()
            } else {
                format!("run: sudo {again}")
            };
            for pid in skipped.refused.iter().filter(|_| is_named) {
                console::say(&format!(
                    "folio: error: the kernel does not show process {pid} to this user; {remedy}"
                ));
                exit = Exit::Error;
            }
            if !is_named && !skipped.refused.is_empty() {
                let nr = skipped.refused.len();
                console::warn(&format!(
                    "the kernel does not show {nr} of the processes to this user; {remedy}"
                ));
            }
            if census.access == Access::Smaps && !census.processes.is_empty() {
                console::warn(&format!(
                    "without PFNs only PMD-mapped memory is known by size; {remedy}"
                ));
            }
        }
        for error in look.cached.iter().flat_map(|cached| &cached.failed) {
            console::say(&format!("folio: error: {error}"));
            exit = Exit::Error;
        }
        exit
    }

    /// Whether nothing is left to look at.
    fn is_over(&self, look: &Look) -> bool {
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
