//! Standard output for results, standard error for everything else.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use largefolio_results::Remark;
use largefolio_trace::disk;
use largefolio_trace::shown::{is_printable, shown};

/// Characters of a line where there is no terminal to ask and `COLUMNS` does not say.
const WIDTH: usize = 120;

/// What an error of standard output is.
pub(crate) const NOT_WRITTEN: &str = "cannot write to standard output";

/// The streams of this process.
pub(crate) struct Console {
    out: BufWriter<Stdout>,
    /// Whether the reader of standard output has gone away.
    is_closed: bool,
}

impl Console {
    pub(crate) fn new() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, Stdout), is_closed: false }
    }

    /// Standard output, buffered: [`Console::finish`] ends it.
    pub(crate) fn out(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Writes what is buffered.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.out.flush().context(NOT_WRITTEN)
    }

    /// Writes a result to `path`, whole or not at all, or to standard output if there is none. A reader
    /// that has gone away has all it wants, and what the result means for the exit status still holds.
    pub(crate) fn deliver(&mut self, result: &[u8], path: Option<&Path>) -> Result<()> {
        if let Some(path) = path.filter(|path| !disk::is_stdout(path)) {
            return disk::write_whole(path, result)
                .with_context(|| format!("cannot write {}", shown(path)));
        }
        // Output that is not text is Parquet, which is never written to a terminal.
        let style = if Self::is_styled() { style_len } else { no_style };
        let safe = str::from_utf8(result).map(|text| harmless(text, style)).ok();
        let result = safe.as_deref().map_or(result, str::as_bytes);
        let written = self.out.write_all(result).context(NOT_WRITTEN);
        match written.and_then(|()| self.finish()) {
            Err(error) if is_output_closed(&error) => {
                self.is_closed = true;
                Ok(())
            }
            other => other,
        }
    }

    /// Whether nobody reads further results.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
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

    /// Characters of a line of prose: as [`Self::width`], on a terminal.
    pub(crate) fn prose_width() -> Option<usize> {
        let is_asked = std::env::var_os("COLUMNS").is_some();
        (is_asked || io::stdout().is_terminal()).then(Self::width)
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
    let _ = writeln!(io::stderr(), "{}", harmless(text, no_style));
}

/// The last line of defence: `text` without what drives a terminal, except for what `style` finds.
/// Names are made printable where they are put into a text ([`shown`]), which also keeps them on
/// their line; this catches what was forgotten and what a library says.
fn harmless(text: &str, style: fn(&str) -> usize) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, '\n' | '\t') || is_printable(c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style_bytes = style(rest);
        let len = style_bytes.max(c.len_utf8());
        if style_bytes > 0 || is_plain(c) {
            safe.push_str(&rest[..len]);
        } else {
            safe.push('?');
        }
        rest = &rest[len..];
    }
    Cow::Owned(safe)
}

/// Length of the sequence at the beginning of `text` that sets the style (`ESC [ 1 m`), or 0.
fn style_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
    match end.filter(|&end| rest[end..].starts_with('m')) {
        Some(end) => "\x1b[".len() + end + "m".len(),
        None => 0,
    }
}

/// A warning on standard error.
pub(crate) fn warn(text: &str) {
    say(&format!("folio: warning: {text}"));
}

/// A remark as a line of a screen.
pub(crate) fn words(remark: &Remark) -> String {
    let (Remark::Warning(text) | Remark::Missing(text)) = remark;
    harmless(text, no_style).into_owned()
}

/// Says what there is to say of a result.
pub(crate) fn remark(remarks: &[Remark]) {
    for remark in remarks {
        match remark {
            Remark::Warning(text) => warn(text),
            Remark::Missing(text) => say(&format!("folio: error: {text}")),
        }
    }
}

/// Marks an error of standard output whose reader went away.
#[derive(Debug, thiserror::Error)]
#[error("the reader closed the output")]
struct OutputClosed;

/// A broken pipe of standard output as an error that [`is_output_closed`] knows from others.
fn mark_closed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}

/// Whether an error comes of a reader of standard output that went away.
pub(crate) fn is_output_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.and_then(|inner| inner.downcast_ref::<OutputClosed>()).is_some()
    })
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

/// [`style_len`] where no style is ours.
const fn no_style(_text: &str) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drives_a_terminal_does_not_reach_it() {
        assert_eq!(harmless("two\n\tlines, ä", no_style), "two\n\tlines, ä");
        assert_eq!(harmless("\x1b]0;title\x07\u{9b}2J\r\u{202e}x", style_len), "?]0;title??2J??x");
    }

    #[test]
    fn a_style_is_only_a_style() {
        assert_eq!(harmless("\x1b[1mbold\x1b[0m\x1b[2J", style_len), "\x1b[1mbold\x1b[0m?[2J");
        assert_eq!(harmless("\x1b[1mbold", no_style), "?[1mbold");
        assert_eq!(["\x1b[1mx", "\x1b[0;31m", "\x1b[m"].map(style_len), [4, 7, 3]);
        assert_eq!(["\x1b[2J", "\x1b[1", "\x1b]0;m", "m", ""].map(style_len), [0; 5]);
    }

    #[test]
    fn only_a_broken_pipe_of_the_output_is_no_error() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let marked = |error| anyhow::Error::new(mark_closed(error));
        assert!(is_output_closed(&marked(broken()).context("writing")));
        assert!(!is_output_closed(&anyhow::Error::new(broken())));
        assert!(!is_output_closed(&marked(io::Error::other("full"))));
    }
}
