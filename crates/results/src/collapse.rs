//! The result of collapsing a process's memory.

use std::fmt::Write as _;
use std::io;

use crate::ExportError;
use crate::cells::Cells;
use crate::figures;
use largefolio_linux::collapse::{
    CollapseKind, CollapseOutcome, CollapseRequest, Collapsed, Forecast, Left,
};
use largefolio_linux::shell::compact_memory;
use largefolio_trace::shown;
use rustix::io::Errno;
use serde::Serialize;

use crate::{Forms, running};

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub struct CollapseResult {
    schema_version: u32,
    tool_version: &'static str,
    kernel: String,
    command_line: Vec<String>,
    pid: u32,
    block_bytes: u64,
    elapsed_ms: f64,
    resident_before_bytes: u64,
    resident_after_bytes: u64,
    /// The same, but a page with N mappings counts 1/N in each.
    proportional_before_bytes: u64,
    proportional_after_bytes: u64,
    /// In PMD folios. Each folio counts once, even if the process maps it several times.
    once_before_bytes: u64,
    once_after_bytes: u64,
    /// The process's pinned memory, which stays unchanged.
    pinned_bytes: u64,
    /// Private memory that was shared with other processes, and is a copy now.
    unshared_bytes: u64,
    forecast: ForecastRow,
    rows: Vec<KindRow>,
}

#[derive(Serialize)]
struct ForecastRow {
    wanted_bytes: u64,
    taken_bytes: u64,
    available_bytes: u64,
    /// The control group that limits memory; `None` if the machine does.
    available_in: Option<String>,
    nr_blocks: u64,
    nr_left: u64,
}

impl ForecastRow {
    fn new(forecast: &Forecast) -> Self {
        Self {
            wanted_bytes: forecast.wanted_bytes,
            taken_bytes: forecast.taken_bytes,
            available_bytes: forecast.available.bytes,
            available_in: forecast.available.group.clone(),
            nr_blocks: forecast.nr_blocks,
            nr_left: forecast.nr_left,
        }
    }
}

#[must_use]
pub fn forecast_sentence(forecast: &Forecast) -> Option<String> {
    if forecast.wanted_bytes == 0 {
        return None;
    }
    let place = match &forecast.available.group {
        Some(group) => format!("control group {}", shown(group)),
        None => "this machine".to_owned(),
    };
    let wanted = figures::bytes(forecast.wanted_bytes);
    let available = figures::bytes(forecast.available.bytes);
    let blocks = |nr| figures::counted(nr, "block");
    let nr_all = blocks(forecast.nr_blocks + forecast.nr_left);
    let mut text = format!(
        "collapsing {nr_all} takes up to {wanted} more memory, but {place} has {available} \
         available"
    );
    if forecast.nr_left > 0 {
        let (nr, taken) = (forecast.nr_left, figures::bytes(forecast.taken_bytes));
        let are = if nr == 1 { "is" } else { "are" };
        let _ = write!(text, ": {} {are} omitted, and the others take {taken}", blocks(nr));
    }
    Some(text)
}

#[derive(Serialize)]
struct KindRow {
    kind: &'static str,
    nr_areas: u64,
    nr_blocks: u64,
    before_bytes: u64,
    after_bytes: u64,
    refused: Vec<Refused>,
    /// Areas that were not tried.
    left: Vec<LeftRow>,
    #[serde(skip)]
    is_whole: bool,
}

#[derive(Serialize)]
struct LeftRow {
    reason: &'static str,
    resident_bytes: u64,
    #[serde(skip)]
    left: Left,
}

#[derive(Serialize)]
struct Refused {
    errno: i32,
    nr_blocks: u64,
    reason: String,
}

impl CollapseResult {
    #[must_use]
    pub fn new(
        request: &CollapseRequest,
        outcome: &CollapseOutcome,
        command_line: Vec<String>,
    ) -> Self {
        let row = |(&kind, collapsed): (&CollapseKind, &Collapsed)| KindRow {
            kind: kind.name(),
            nr_areas: collapsed.nr_areas,
            nr_blocks: collapsed.nr_blocks,
            before_bytes: collapsed.before_bytes,
            after_bytes: collapsed.after_bytes,
            refused: collapsed
                .refused
                .iter()
                .map(|(&errno, &nr_blocks)| Refused {
                    errno,
                    nr_blocks,
                    reason: reason(kind, errno, outcome.pinned_bytes),
                })
                .collect(),
            left: collapsed
                .left
                .iter()
                .map(|(&left, &resident_bytes)| LeftRow {
                    reason: left.name(),
                    resident_bytes,
                    left,
                })
                .collect(),
            is_whole: collapsed.is_whole(kind) || (kind == CollapseKind::File && !request.is_named),
        };
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command_line,
            pid: request.pid,
            block_bytes: outcome.block_bytes,
            elapsed_ms: outcome.elapsed.as_secs_f64() * 1e3,
            resident_before_bytes: outcome.resident_bytes.0,
            resident_after_bytes: outcome.resident_bytes.1,
            proportional_before_bytes: outcome.shared_out_bytes.0,
            proportional_after_bytes: outcome.shared_out_bytes.1,
            once_before_bytes: outcome.once_bytes.0,
            once_after_bytes: outcome.once_bytes.1,
            pinned_bytes: outcome.pinned_bytes,
            unshared_bytes: outcome.unshared_bytes,
            forecast: ForecastRow::new(&outcome.forecast),
            rows: outcome.kinds.iter().map(row).collect(),
        }
    }

    /// Returns whether PMD entries map more than before, and no requested area was left out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let is_more = self.rows.iter().any(|row| row.after_bytes > row.before_bytes);
        is_more && self.rows.iter().all(|row| row.is_whole)
    }

    fn headline(&self) -> String {
        if self.rows.iter().all(|row| row.nr_areas == 0 && row.left.is_empty()) {
            return "nothing to collapse: no memory of these kinds is resident".to_owned();
        }
        let (before, after) = (self.once_before_bytes, self.once_after_bytes);
        let size = figures::size(self.block_bytes);
        let (now, was) = (figures::bytes(after), figures::bytes(before));
        let rest = if self.rows.iter().all(|row| row.is_whole) {
            ""
        } else if after > before {
            "; not everything was collapsed"
        } else {
            "; nothing was collapsed"
        };
        if after == before {
            format!("{now} are in {size} folios, as before{rest}")
        } else {
            format!("{now} are in {size} folios now, {was} before{rest}")
        }
    }

    fn write_left(&self, text: &mut String) {
        for row in &self.rows {
            for one in &row.left {
                let (bytes, why) =
                    (figures::bytes(one.resident_bytes), one.left.meaning(self.block_bytes));
                let _ = writeln!(text, "not tried: {bytes} of {}: {why}", row.kind);
            }
            for refused in &row.refused {
                let (nr, why) = (refused.nr_blocks, &refused.reason);
                let blocks = if nr == 1 { "block" } else { "blocks" };
                let _ = writeln!(text, "refused: {nr} {blocks} of {}: {why}", row.kind);
            }
        }
    }
}

impl Forms for CollapseResult {
    fn text(&self) -> String {
        let mut text = self.headline();
        text.push('\n');
        let size = figures::size(self.block_bytes);
        self.write_left(&mut text);
        if self.rows.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "{:6} {:>6} {:>7}  mapped by {size} before -> after",
            "kind", "areas", "blocks"
        );
        for row in &self.rows {
            let (before, after) =
                (figures::bytes(row.before_bytes), figures::bytes(row.after_bytes));
            let KindRow { kind, nr_areas, nr_blocks, .. } = row;
            let _ = writeln!(text, "{kind:6} {nr_areas:>6} {nr_blocks:>7}  {before} -> {after}");
        }
        let (before, after) = (self.proportional_before_bytes, self.proportional_after_bytes);
        let (before, after) = (figures::bytes(before), figures::bytes(after));
        let _ = writeln!(
            text,
            "memory of the process {before} -> {after}, including its share of shared pages (Pss); \
             {:.1} ms",
            self.elapsed_ms
        );
        if self.unshared_bytes > 0 {
            let _ = writeln!(
                text,
                "{} of it was shared with other processes and has been copied, which takes \
                 additional memory",
                figures::bytes(self.unshared_bytes)
            );
        }
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "pid",
            "kind",
            "areas",
            "blocks",
            "before_bytes",
            "after_bytes",
            "refused",
            "not_tried_bytes",
        ])?;
        for row in &self.rows {
            let refused: u64 = row.refused.iter().map(|refused| refused.nr_blocks).sum();
            let left: u64 = row.left.iter().map(|left| left.resident_bytes).sum();
            let KindRow { nr_areas, nr_blocks, before_bytes, after_bytes, .. } = *row;
            let numbers = [nr_areas, nr_blocks, before_bytes, after_bytes, refused, left];
            let mut fields = vec![self.pid.to_string(), row.kind.to_owned()];
            fields.extend(numbers.map(|number| number.to_string()));
            writer.record(fields)?;
        }
        writer.into_text()
    }
}

fn reason(kind: CollapseKind, errno: i32, pinned_bytes: u64) -> String {
    let error = io::Error::from_raw_os_error(errno);
    let why = match (kind, Errno::from_raw_os_error(errno)) {
        (CollapseKind::File, Errno::INVAL) => {
            "this kernel does not collapse files on this filesystem; start the program with folio \
             run --text large"
        }
        (_, Errno::INVAL) => {
            "nothing to collapse: the pages have changed since the scan or are not eligible"
        }
        (_, Errno::AGAIN) if pinned_bytes > 0 => &format!(
            "the process has {} pinned (VmPin), for io_uring, RDMA or a device; a block with a \
             pinned page stays unchanged",
            figures::bytes(pinned_bytes)
        ),
        (_, Errno::AGAIN) => "the kernel was using some of the pages; try again",
        (_, Errno::BUSY) => {
            "the memory control group is at its limit, or userfaultfd waits for pages"
        }
        (_, Errno::NOMEM) => {
            &format!("no free folio: compact memory ({}) and try again", compact_memory())
        }
        _ => "refused",
    };
    format!("{error}: {why}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use largefolio_linux::census::block::Obstacle;
    use largefolio_linux::collapse::Available;

    use super::*;

    const M2: u64 = 2 << 20;
    const FORBIDDEN: Left = Left::Block(Obstacle::NoHugeAdvice);

    fn result(kinds: &[(CollapseKind, Collapsed)]) -> CollapseResult {
        let request = CollapseRequest { pid: 7, kinds: Vec::new(), is_named: false, min_bytes: M2 };
        let outcome = CollapseOutcome {
            kinds: kinds.iter().cloned().collect(),
            resident_bytes: (0, 0),
            shared_out_bytes: (0, 0),
            once_bytes: kinds.iter().fold((0, 0), |(before, after), (_, collapsed)| {
                (before + collapsed.before_bytes, after + collapsed.after_bytes)
            }),
            pinned_bytes: 0,
            unshared_bytes: 0,
            elapsed: Duration::ZERO,
            block_bytes: M2,
            forecast: Forecast::default(),
        };
        CollapseResult::new(&request, &outcome, Vec::new())
    }

    fn anon(before: u64, after: u64, left: &[(Left, u64)], is_some_missed: bool) -> CollapseResult {
        let collapsed = Collapsed {
            nr_areas: 1,
            nr_blocks: 16,
            before_bytes: before * M2,
            after_bytes: after * M2,
            left: left.iter().copied().collect(),
            is_some_missed,
            ..Collapsed::default()
        };
        result(&[(CollapseKind::Anon, collapsed)])
    }

    #[test]
    fn the_text_begins_with_its_headline() {
        let result = anon(0, 16, &[(FORBIDDEN, 8 << 10)], false);
        let text = result.text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("32 MiB are in 2M folios now, 0 B before"));
        let stack = "not tried: 8 KiB of anon: the program forbids it: MADV_NOHUGEPAGE or a \
                     thread's stack";
        assert_eq!(lines.next(), Some(stack));
        assert!(result.is_done());
    }

    #[test]
    fn a_refusal_names_its_known_cause() {
        let errno = Errno::AGAIN.raw_os_error();
        let again = |pinned| reason(CollapseKind::Anon, errno, pinned);
        assert!(again(M2).contains("the process has 2 MiB pinned (VmPin)"), "{}", again(M2));
        assert!(again(0).ends_with("try again") && !again(0).contains("pinned"), "{}", again(0));
    }

    #[test]
    fn the_forecast_is_printed_before_the_collapse() {
        let mut forecast = Forecast::default();
        assert_eq!(forecast_sentence(&forecast), None);
        forecast.wanted_bytes = 100 * M2;
        forecast.taken_bytes = 100 * M2;
        forecast.available.bytes = 200 * M2;
        forecast.nr_blocks = 101;
        let enough = "collapsing 101 blocks takes up to 200 MiB more memory, but this machine has \
                      400 MiB available";
        assert_eq!(forecast_sentence(&forecast).as_deref(), Some(enough));
        forecast.available = Available { bytes: 50 * M2, group: Some("/a".to_owned()) };
        (forecast.taken_bytes, forecast.nr_blocks, forecast.nr_left) = (49 * M2, 50, 51);
        let low = "collapsing 101 blocks takes up to 200 MiB more memory, but control group /a \
                   has 100 MiB available: 51 blocks are omitted, and the others take 98 MiB";
        assert_eq!(forecast_sentence(&forecast).as_deref(), Some(low));
    }

    #[test]
    fn the_headline_reports_partial_or_no_collapse() {
        let first =
            |result: &CollapseResult| result.text().lines().next().map(str::to_owned).unwrap();
        let part = anon(1, 16, &[(FORBIDDEN, M2)], true);
        assert_eq!(
            first(&part),
            "32 MiB are in 2M folios now, 2 MiB before; not everything was collapsed"
        );
        assert!(!part.is_done());
        let none = anon(0, 0, &[(FORBIDDEN, M2)], true);
        assert_eq!(first(&none), "0 B are in 2M folios, as before; nothing was collapsed");
        let again = anon(16, 16, &[], false);
        assert_eq!(first(&again), "32 MiB are in 2M folios, as before");
        assert!(!again.is_done());
        assert!(first(&result(&[])).starts_with("nothing to collapse: "));
    }
}
