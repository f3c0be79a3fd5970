//! The smallest memory limits of the program, per column.

use std::fmt::Write as _;

use largefolio_sim::fit::{Fit, Limit, SLOWER_PERCENT};

use super::layout;
use super::section::{Section, SectionLine};
use crate::figures::{bytes, points};
use crate::predict::PredictResult;
use crate::prose::wrapped;

/// Limits of the first column whose cost is shown.
const NR_LIMITS_SHOWN: usize = 8;

/// Writes the answer and the table. Returns the notes below.
pub(super) fn write(
    report: &PredictResult,
    fits: &[Fit],
    width: usize,
    out: &mut String,
) -> Vec<String> {
    for sentence in sentences(report, fits) {
        let _ = writeln!(out, "\n{}", wrapped(&sentence, width, 0));
    }
    let section = section(fits);
    for block in layout::blocks(&report.rows, &[section.show()], width, false) {
        let _ = writeln!(out, "\n{block}");
    }
    if let Some(first) = fits.first() {
        write_limits(first, out);
    }
    out.push('\n');
    vec![
        "limits are for memory.max of a cgroup without swap, for all processes together.".to_owned(),
        format!(
            "runs from: with less, the kernel kills the program, or it thrashes: it takes more than \
             twice as long, reading again what it had to give up. Calm from: it takes at most \
             {SLOWER_PERCENT}% longer."
        ),
        "page tables are counted; other memory of the kernel is taken as 256 KiB a process. Sockets, \
         pipes and tmpfs files of other programs are not known."
            .to_owned(),
    ]
}

fn sentences(report: &PredictResult, fits: &[Fit]) -> Vec<String> {
    let Some(first) = fits.first() else { return Vec::new() };
    let program = report.trace.program();
    let program = if program.is_empty() { "The program" } else { program };
    let needs = bytes(first.least_bytes);
    let mut all = vec![format!(
        "{program} needs {needs} under {}: with a smaller limit, the kernel kills it, or it thrashes.",
        first.kernel
    )];
    all.extend(fits.iter().skip(1).map(|fit| {
        #[expect(clippy::cast_precision_loss, reason = "percent")]
        let change = 100.0 * (fit.least_bytes as f64 / first.least_bytes as f64 - 1.0);
        format!("Under {}: {} ({change:+.1}%).", fit.kernel, bytes(fit.least_bytes))
    }));
    vec![all.join(" ")]
}

fn section(fits: &[Fit]) -> Section {
    let of = |value: fn(&Fit) -> u64| fits.iter().map(value).collect::<Vec<_>>();
    let mut lines = vec![SectionLine::bytes("runs from", of(|fit| fit.least_bytes))];
    if fits.iter().all(|fit| fit.calm_bytes.is_some()) {
        lines.push(SectionLine::bytes("calm from", of(|fit| fit.calm_bytes.unwrap_or(0))));
    }
    lines.push(SectionLine::bytes("most without a limit", of(|fit| fit.peak_bytes)));
    lines.push(SectionLine::bytes("of these, the kernel's", of(|fit| fit.kernel_bytes)));
    Section::new("Memory limit", lines)
}

fn write_limits(fit: &Fit, out: &mut String) {
    let fitting: Vec<&Limit> = fit.limits.iter().filter(|limit| limit.fits).collect();
    if fitting.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n {:>12} | run time, % | read again   ({})", "limit", fit.kernel);
    let step = fitting.len().div_ceil(NR_LIMITS_SHOWN).max(1);
    for limit in fitting.iter().step_by(step) {
        let change = limit.run_change.map_or_else(|| "-".to_owned(), points);
        let limits = (bytes(limit.limit_bytes), bytes(limit.refaulted_bytes));
        let _ = writeln!(out, " {:>12} | {change:>11} | {}", limits.0, limits.1);
    }
}
