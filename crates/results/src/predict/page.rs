//! A prediction's page. Its sections: `glance`, `folios`, `strips`, `tlb`, `curve` (TLBs of
//! every size), `walks` (where they are), `over_time`, `processes`, `waterfall` and `why` (both drawn by `steps`),
//! `refusals`, `numbers`, `sources`.

mod curve;
mod folios;
mod glance;
mod numbers;
mod over_time;
mod processes;
mod refusals;
mod run_time;
mod sources;
mod steps;
mod strips;
mod tlb;
mod walks;
mod waterfall;
mod why;

use crate::ExportError;
use crate::html::frame::{Basis, Page, Section};
use crate::page::{footer, section};
use crate::predict::PredictResult;

pub(super) fn of(report: &PredictResult) -> Result<Page, ExportError> {
    let json = serde_json::to_string(report)?;
    let trace = &report.trace;
    let name = if trace.command.is_empty() { &trace.path } else { &program(&trace.command) };
    Ok(Page {
        title: name.clone(),
        kind: "folio predict: which folios back this program, and what would change that",
        answer: glance::answer(report),
        sections: sections(report),
        json,
        footer: footer(&report.tool_version, &report.command_line),
    })
}

/// Returns the command with its program's file name only.
fn program(command: &[String]) -> String {
    let mut arguments = command.to_vec();
    if let Some(first) = arguments.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    arguments.join(" ")
}

fn sections(report: &PredictResult) -> Vec<Section> {
    let rows = &report.rows;
    let mut sections = vec![
        section(
            "overview",
            "Overview",
            Basis::Counted,
            "Changes are relative to the first line, the baseline.",
            glance::overview(rows, report.verdict.goal),
        ),
        section(
            "sizes",
            "Folio sizes",
            Basis::Counted,
            "Mapped memory by folio size, one bar per cell. Bars of the same kind share one scale.",
            folios::figures(rows),
        ),
    ];
    if let Some(answers) = &report.why {
        let body = why::figures(report, answers);
        sections.push(section("why", "Which rule causes it", Basis::Counted, why::LEAD, body));
    }
    if let Some(body) = strips::strips(rows) {
        let title = "Where the folios are";
        sections.push(section("places", title, Basis::Counted, strips::LEAD, body));
    }
    if rows.iter().any(|row| !row.tlb.is_empty()) {
        sections.push(section("tlb", "TLB misses", Basis::Counted, "", tlb::figures(rows)));
    }
    if let Some(body) = walks::figures(report) {
        let title = "Where faults and page walks are";
        sections.push(section("where", title, Basis::Counted, walks::LEAD, body));
    }
    if let Some(body) = over_time::figures(rows) {
        sections.push(section("time-line", "Over the trace", Basis::Counted, "", body));
    }
    if let Some(body) = processes::figures(rows) {
        sections.push(section("processes", "Processes", Basis::Counted, processes::LEAD, body));
    }
    if let Some(body) = run_time::figures(rows) {
        let lead = "Each cell is compared with the first cell for its machine, in percent of the \
                    program's run time. A bar that crosses 0, or ends within 0.05% of it, shows an \
                    uncertain difference.";
        sections.push(section("run-time", "Run time", Basis::Estimated, lead, body));
    }
    sections.extend([
        section("time", "Estimated time", Basis::Estimated, "", waterfall::figures(rows)),
        section(
            "refusals",
            "Why not larger",
            Basis::Counted,
            "Each refusal with its count and reason; bars of the same kind share one scale.",
            refusals::figures(rows),
        ),
        section("numbers", "All numbers", Basis::Counted, "", numbers::table(rows)),
        section(
            "sources",
            "Sources",
            Basis::None,
            "Where the numbers come from, and their limits.",
            sources::body(report),
        ),
    ]);
    sections
}
