//! `folio maps`: which folio sizes back processes and files, and why not larger ones.
//!
//! Three views: of the running system ([`live`]: census in `largefolio-linux`, limits of filesystems
//! from the model), of the page cache of files ([`cache`]), and of programs on disk (`--elf`,
//! [`elf`]), of which no process need run.

mod cache;
mod elf;
mod elf_page;
mod group;
mod live;
mod page;
mod plain;
mod summary;
mod table;
mod text;
mod view;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use largefolio_report::json;
use largefolio_sim::kernel::Kernel;

use super::page_file::{self, PageArgs, PageFile};
use super::running;
use super::values::{Form, FormArgs};
use crate::console::Console;
use crate::errors::Exit;

/// Show which folio sizes back processes, files and the page cache, and why not larger ones
///
/// Of running processes: folio bytes by size and kind, the largest mappings with their shares, and for
/// each that could be larger the reason and what removes it. A page that several processes share
/// counts once in the totals and in each process that maps it. All sizes need root; without it the
/// view shows what smaps tells.
///
/// Of programs on disk (--elf): for each LOAD segment how much of it folios of a size can map, and
/// what stands in the way of more, with the linker option that removes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio maps 4242                          one process
  sudo folio maps --all --sort small            the system, most base pages first
  sudo folio maps --cgroup /sys/fs/cgroup/web.slice
  sudo folio maps --file /usr/lib/libLLVM.so --page-cache /var/lib/db
  sudo folio maps --all --csv > folios.csv      a row a (pid, mapping, kind, size)
  folio maps 4242 --watch=5
  folio maps --elf build/server --kernel 6.12+page=16K
  sudo folio maps --all --report folios.html    pictures, too

Words: a folio is `aligned` where it is mapped whole at an address aligned as its place in the file
or in memory, `unaligned` where it is mapped whole elsewhere, `partial` where only a part of it is
mapped. `contpte`: naturally aligned blocks (64K with 4K pages) mapped whole from one folio, which
arm64 can hold in one TLB entry. `PMD`: mapped by one entry of 2M.

Words of --elf: a percentage is the part of the segment under naturally aligned folios of that
size, wherever it is loaded; `small` has fewer bytes; `ends` holds no whole block; `offset` address
and file offset disagree; `random` the load address is random in smaller steps; `no folio` no
filesystem has them under this kernel. Sizes: 16K for machines whose TLB merges pages, a contpte
block of arm64, a PMD entry. What a kernel then really reads and maps: folio predict.")]
pub(crate) struct MapsArgs {
    /// Processes
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
    /// All processes
    #[arg(long, short = 'a', conflicts_with_all = ["pids", "cgroup"])]
    all: bool,
    /// Processes of a control group and the groups below it
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Page cache of these files, mapped or not
    #[arg(long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
    /// Page cache of all files below a directory
    #[arg(long, value_name = "DIR")]
    page_cache: Option<PathBuf>,
    /// Rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Order of the rows
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Size)]
    sort: Sort,
    /// Show again every SECONDS (2) until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// Programs and shared objects on disk; of a directory all below it
    #[arg(long, value_name = "FILE", num_args = 1..,
        conflicts_with_all = ["pids", "all", "cgroup", "file", "page_cache", "watch"])]
    elf: Vec<PathBuf>,
    /// With --elf: kernel whose rules decide, with edits such as +page=16K
    #[arg(long, value_name = "KERNEL", default_value = "7.2")]
    kernel: String,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// What rows are ordered by, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Mapped bytes
    Size,
    /// Bytes in base pages
    Small,
    /// Executable mappings of files
    Text,
    /// Other mappings of files
    File,
    /// Private memory
    Anon,
    /// Shared memory
    Shmem,
    /// Bytes mapped by PMD entries
    Pmd,
}

/// A view that can be made.
pub(crate) enum MapsPlan {
    Elf(ElfPlan),
    Live(live::LivePlan),
}

/// A view of programs on disk.
pub(crate) struct ElfPlan {
    files: Vec<PathBuf>,
    kernel: Box<Kernel>,
    form: Form,
    page: Option<PageFile>,
    command_line: Vec<String>,
}

impl MapsArgs {
    /// Checks what is asked for.
    pub(crate) fn plan(self, command_line: Vec<String>) -> Result<MapsPlan> {
        let form = self.form.form();
        let kernel = running::named(&self.kernel)?;
        if self.watch.is_some() && self.page.is_asked() {
            bail!("--report writes one look, --watch looks again and again; leave one of them out");
        }
        let page = self.page.file(self.elf.iter().chain(&self.file).map(PathBuf::as_path))?;
        if !self.elf.is_empty() {
            let (files, kernel) = (self.elf, Box::new(kernel));
            return Ok(MapsPlan::Elf(ElfPlan { files, kernel, form, page, command_line }));
        }
        let whom = match (self.all, self.cgroup) {
            (true, _) => live::Whom::All,
            (false, Some(_)) if !self.pids.is_empty() => {
                bail!("name processes or a control group, not both")
            }
            (false, Some(dir)) => live::Whom::Cgroup(dir),
            (false, None) => live::Whom::Processes(self.pids),
        };
        let (files, page_cache) = (self.file, self.page_cache);
        if whom.is_nobody() && files.is_empty() && page_cache.is_none() {
            bail!(
                "say what to show: processes (folio maps 4242, or --all), the page cache of files \
                 (--file FILE.., --page-cache DIR); --elf FILE.. shows programs and shared objects, \
                 such as folio maps --elf /bin/true"
            );
        }
        if self.watch.is_some() && form == Form::Csv {
            bail!("--watch repeats a table or JSON, a line a round; CSV would repeat its header");
        }
        Ok(MapsPlan::Live(live::LivePlan {
            whom,
            files,
            page_cache,
            show: table::Show { nr_rows: self.top, sort: self.sort },
            watch: self.watch.map(Duration::from_secs),
            form,
            page,
            command_line,
        }))
    }
}

impl MapsPlan {
    /// Reads and writes the view.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        let plan = match self {
            Self::Live(plan) => return plan.run(console),
            Self::Elf(plan) => plan,
        };
        let view = elf::View::of(&plan.kernel, &plan.files, plan.command_line);
        let result = match plan.form {
            Form::Json => json::pretty(&view)?,
            Form::Csv => view.csv()?,
            Form::Text => text::of(&view),
        };
        let page = match &plan.page {
            Some(file) => Some((file, elf_page::of(&view)?)),
            None => None,
        };
        page_file::deliver(console, result.as_bytes(), page)?;
        Ok(if view.failed.is_empty() { Exit::Done } else { Exit::Error })
    }
}
