//! The option `--report FILE.html`, and its file.
//!
//! Each page is defined next to its result in `largefolio_results`, and `largefolio_results::html`
//! draws it. A page contains its data as JSON: the output of `--json`, or only the part that the
//! page shows if the output has no size limit.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_results::ExportError;
use largefolio_results::html::frame::Page;
use largefolio_trace::{disk, shown};

use crate::console::Console;

/// The option that writes a page.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct PageArgs {
    /// Also write a self-contained HTML file with charts
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct PageFile(PathBuf);

impl PageArgs {
    pub(crate) fn is_requested(&self) -> bool {
        self.report.is_some()
    }

    /// Checks before the work begins that the page can be written and is not one of `inputs`.
    pub(crate) fn file<'a>(
        self,
        inputs: impl IntoIterator<Item = &'a Path>,
    ) -> Result<Option<PageFile>> {
        let Some(path) = self.report else { return Ok(None) };
        if let Some(input) = inputs.into_iter().find(|input| is_same(input, &path)) {
            bail!("{} is an input file; choose another file with --report", shown(input));
        }
        check_writable(&path, "--report")?;
        Ok(Some(PageFile(path)))
    }
}

impl PageFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

/// Writes the page, if requested, and the result. If the page cannot be written, the result is
/// still written.
pub(crate) fn deliver(
    console: &mut Console,
    result: &str,
    file: Option<&PageFile>,
    page: impl FnOnce() -> Result<Page, ExportError>,
) -> Result<()> {
    let page = file.map(|file| Ok::<_, ExportError>((file, page()?))).transpose()?;
    let written = page.map(|(file, page)| console.deliver(page.html().as_bytes(), Some(&file.0)));
    console.deliver(result.as_bytes(), None)?;
    written.unwrap_or(Ok(()))
}

pub(crate) fn check_writable(path: &Path, option: &str) -> Result<()> {
    disk::check(path).with_context(|| {
        format!("cannot write {}; choose another place with {option}", shown(path))
    })
}

/// Returns whether two paths refer to the same file, even if it does not exist yet.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let same = |a: &Path, b: &Path| Some(fs::canonicalize(a).ok()? == fs::canonicalize(b).ok()?);
    same(a, b).unwrap_or(a == b)
}
