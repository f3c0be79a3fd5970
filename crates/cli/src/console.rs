//! Standard output for results, standard error for everything else.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::errors::mark_closed;

/// Characters of a line where there is no terminal to ask and `COLUMNS` does not say.
const WIDTH: usize = 120;

/// What an error of standard output is.
pub(crate) const NOT_WRITTEN: &str = "cannot write to standard output";

/// The streams of this process.
pub(crate) struct Console {
    out: BufWriter<Stdout>,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, Stdout) }
    }

    /// Standard output, buffered: [`Console::finish`] ends it.
    pub(crate) fn out(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Writes what is buffered.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.out.flush().context(NOT_WRITTEN)
    }

    /// Writes a result to `path`, or to standard output where there is none.
    pub(crate) fn deliver(&mut self, result: &[u8], path: Option<&Path>) -> Result<()> {
        if let Some(path) = path {
            return fs::write(path, result)
                .with_context(|| format!("cannot write {}", path.display()));
        }
        self.out.write_all(result).context(NOT_WRITTEN)?;
        self.finish()
    }

    /// Characters of a line of standard output: the terminal's, else `COLUMNS`, else 120.
    pub(crate) fn width() -> usize {
        let of_terminal = rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|&columns| columns > 0);
        let of_variable =
            || std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns > 0);
        of_terminal.or_else(of_variable).unwrap_or(WIDTH)
    }

    /// Whether standard output may have bold text.
    pub(crate) fn is_styled() -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        io::stdout().is_terminal() && !is_set("NO_COLOR")
    }
}

/// Standard output, unbuffered; knows a reader that went away.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(mark_closed)
    }
}

/// A line on standard error. One that cannot be written has nowhere to be reported.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    say(&format!("folio: warning: {text}"));
}

/// A bar on standard error, hidden where that is no terminal.
pub(crate) fn bar(nr_rows: u64, what: &'static str) -> ProgressBar {
    let template = "{msg} [{bar:30}] {human_pos} of {human_len} rows, {eta} left";
    progress(Some(nr_rows), template).with_message(what)
}

/// A bar for things that are counted one by one.
pub(crate) fn counter(nr: u64, what: &'static str) -> ProgressBar {
    progress(Some(nr), "{msg} [{bar:30}] {pos} of {len}, {eta} left").with_message(what)
}

/// A line on standard error for work without a known end, hidden where that is no terminal.
pub(crate) fn status() -> ProgressBar {
    progress(None, "{msg}")
}

fn progress(len: Option<u64>, template: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(len, target).with_style(style)
}
