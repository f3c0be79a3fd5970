//! Writes results to standard output, and everything else to standard error.

use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use largefolio_results::Remark;
use largefolio_trace::disk;
use largefolio_trace::shown::{is_printable, shown};

/// Characters per line without a terminal and without `COLUMNS`.
const WIDTH: usize = 120;

static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Sets the program's name for messages and command lines.
pub fn set_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

#[must_use]
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("folio")
}

pub(crate) const NOT_WRITTEN: &str = "cannot write to standard output";

pub struct Console {
    out: BufWriter<Stdout>,
    /// Whether the reader of standard output has gone away.
    is_closed: bool,
}

impl Default for Console {
    fn default() -> Self {
        Self { out: BufWriter::with_capacity(1 << 16, Stdout), is_closed: false }
    }
}

impl Console {
    /// Returns buffered standard output; [`Console::finish`] flushes it.
    pub(crate) fn out(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    pub(crate) fn finish(&mut self) -> Result<()> {
        self.out.flush().context(NOT_WRITTEN)
    }

    /// Writes a result atomically to `path`, or to standard output without one. If the reader has
    /// gone away, that is not an error, and the result still determines the exit status.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn deliver(&mut self, result: &[u8], path: Option<&Path>) -> Result<()> {
        if let Some(path) = path.filter(|path| !disk::is_stdout(path)) {
            return disk::write_whole(path, result)
                .with_context(|| format!("cannot write {}", shown(path)));
        }
        // Output that is not text is Parquet, which never goes to a terminal.
        let style = if Self::is_styled() { style_len } else { no_style };
        let safe = str::from_utf8(result).map(|text| escape_controls(text, style)).ok();
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

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the characters per line of standard output: the terminal's width, else `COLUMNS`,
    /// else 120.
    pub(crate) fn width() -> usize {
        let from_terminal = rustix::termios::tcgetwinsize(io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|&columns| columns > 0);
        let from_variable =
            || std::env::var("COLUMNS").ok()?.parse().ok().filter(|&columns| columns > 0);
        from_terminal.or_else(from_variable).unwrap_or(WIDTH)
    }

    /// Returns the characters per line of prose: [`Self::width`] on a terminal.
    pub(crate) fn prose_width() -> Option<usize> {
        let is_requested = std::env::var_os("COLUMNS").is_some();
        (is_requested || io::stdout().is_terminal()).then(Self::width)
    }

    pub(crate) fn is_styled() -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        io::stdout().is_terminal() && !is_set("NO_COLOR")
    }
}

/// Unbuffered standard output that notices when its reader goes away.
struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(mark_closed)
    }
}

/// Prints a line on standard error. A failure has nowhere to be reported.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", escape_controls(text, no_style));
}

/// Removes terminal control sequences from `text`, except those that `style` finds. Names should
/// already be printable ([`shown`]), which also keeps them on one line. This is the last line of
/// defence, also against messages of libraries.
fn escape_controls(text: &str, style: fn(&str) -> usize) -> Cow<'_, str> {
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

/// Returns the length of a style sequence (`ESC [ 1 m`) at the start of `text`, or 0.
fn style_len(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
    match end.filter(|&end| rest[end..].starts_with('m')) {
        Some(end) => "\x1b[".len() + end + "m".len(),
        None => 0,
    }
}

pub fn warn(text: &str) {
    say(&format!("{}: warning: {text}", program()));
}

pub(crate) fn remark_text(remark: &Remark) -> String {
    let (Remark::Warning(text) | Remark::Missing(text)) = remark;
    escape_controls(text, no_style).into_owned()
}

pub fn remark(remarks: &[Remark]) {
    for remark in remarks {
        match remark {
            Remark::Warning(text) => warn(text),
            Remark::Missing(text) => say(&format!("{}: error: {text}", program())),
        }
    }
}

/// Marks a standard output error caused by a reader that went away.
#[derive(Debug, thiserror::Error)]
#[error("the reader closed the output")]
struct OutputClosed;

/// Wraps a broken pipe of standard output, so that [`is_output_closed`] recognizes it.
fn mark_closed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}

pub(crate) fn is_output_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.and_then(|inner| inner.downcast_ref::<OutputClosed>()).is_some()
    })
}

pub(crate) fn bar(nr_rows: u64, what: &'static str) -> ProgressBar {
    let template = "{msg} [{bar:30}] {human_pos} of {human_len} rows, {eta} left";
    progress(Some(nr_rows), template).with_message(what)
}

#[must_use]
pub fn counter(nr: u64, what: &'static str) -> ProgressBar {
    progress(Some(nr), "{msg} [{bar:30}] {pos} of {len}, {eta} left").with_message(what)
}

#[must_use]
pub fn status() -> ProgressBar {
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

/// Like [`style_len`], for text without styles.
const fn no_style(_text: &str) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(escape_controls("two\n\tlines, ä", no_style), "two\n\tlines, ä");
        assert_eq!(
            escape_controls("\x1b]0;title\x07\u{9b}2J\r\u{202e}x", style_len),
            "?]0;title??2J??x"
        );
    }

    #[test]
    fn a_style_is_only_a_style() {
        assert_eq!(
            escape_controls("\x1b[1mbold\x1b[0m\x1b[2J", style_len),
            "\x1b[1mbold\x1b[0m?[2J"
        );
        assert_eq!(escape_controls("\x1b[1mbold", no_style), "?[1mbold");
        assert_eq!(["\x1b[1mx", "\x1b[0;31m", "\x1b[m"].map(style_len), [4, 7, 3]);
        assert_eq!(["\x1b[2J", "\x1b[1", "\x1b]0;m", "m", ""].map(style_len), [0; 5]);
    }

    #[test]
    fn only_a_broken_output_pipe_is_ignored() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let marked = |error| anyhow::Error::new(mark_closed(error));
        assert!(is_output_closed(&marked(broken()).context("writing")));
        assert!(!is_output_closed(&anyhow::Error::new(broken())));
        assert!(!is_output_closed(&marked(io::Error::other("full"))));
    }
}
