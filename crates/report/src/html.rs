//! The result as one self-contained HTML file.
//!
//! Reading order: [`markup`] (safe HTML from text), [`frame`] (the frame of every page), [`sizes`]
//! (colours); pictures for any page: [`bars`], [`lanes`], [`lines`] (on `decades`), [`runs`]; then
//! the sections of a prediction: `glance`, `folios`, `strips`, `tlb`, `curve` (TLBs of every size),
//! `over_time`, `processes`, `waterfall` and `why` (both drawn by `steps`), `refusals`, `numbers`,
//! `sources`. Pages of other results are defined next to their types.
//!
//! This code writes the pictures as SVG. The page therefore works on paper and without scripts,
//! consists of the same bytes every time, and needs no charting library. The script adds tooltips,
//! zoom and the choice of light or dark mode; it reads the result from JSON in the page.
//!
//! A number that can be compared with that JSON is marked `<data value="1981"
//! data-at="/rows/0/faults/total">`.

pub mod bars;
mod curve;
mod decades;
mod folios;
pub mod frame;
mod glance;
pub mod lanes;
pub mod lines;
pub mod markup;
mod numbers;
mod over_time;
mod processes;
mod refusals;
mod run_time;
pub mod runs;
pub mod sizes;
mod sources;
mod steps;
mod strips;
mod tlb;
mod waterfall;
mod why;

use std::io::Write;

use frame::{Basis, Page, Section};
use markup::Markup;

use crate::{ExportError, Exporter, PredictResult};

#[derive(Clone, Copy, Debug, Default)]
pub struct Html;

impl Exporter for Html {
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError> {
        let json = serde_json::to_string(report)?;
        Ok(out.write_all(page(report, json).html().as_bytes())?)
    }
}

fn page(report: &PredictResult, json: String) -> Page {
    let trace = &report.trace;
    let name = if trace.command.is_empty() { &trace.path } else { &program(&trace.command) };
    Page {
        title: name.clone(),
        kind: "folio predict: which folios back this program, and what would change that",
        answer: glance::answer(report),
        sections: sections(report),
        json,
        footer: format!("folio {}: {}", report.tool_version, report.command_line.join(" ")),
    }
}

/// Returns the command with its program's file name only.
fn program(command: &[String]) -> String {
    let mut arguments = command.to_vec();
    if let Some(first) = arguments.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    arguments.join(" ")
}

fn section(id: &'static str, title: &'static str, basis: Basis, body: Markup) -> Section {
    Section { id: id.into(), title: title.into(), lead: String::new(), basis, body }
}

fn sections(report: &PredictResult) -> Vec<Section> {
    let rows = &report.rows;
    let mut sections = vec![
        Section {
            lead: "Changes are relative to the first line, the baseline.".to_owned(),
            ..section(
                "overview",
                "Overview",
                Basis::Counted,
                glance::overview(rows, report.verdict.goal),
            )
        },
        Section {
            lead: "Mapped memory by folio size, one bar per cell. Bars of the same kind share one \
                scale."
                .to_owned(),
            ..section("sizes", "Folio sizes", Basis::Counted, folios::figures(rows))
        },
    ];
    if let Some(answers) = &report.why {
        let body = why::figures(report, answers);
        let why = section("why", "Which rule causes it", Basis::Counted, body);
        sections.push(Section { lead: why::LEAD.to_owned(), ..why });
    }
    if let Some(body) = strips::strips(rows) {
        let lead = strips::LEAD.to_owned();
        let place = section("places", "Where the folios are", Basis::Counted, body);
        sections.push(Section { lead, ..place });
    }
    if rows.iter().any(|row| !row.tlb.is_empty()) {
        sections.push(section("tlb", "TLB misses", Basis::Counted, tlb::figures(rows)));
    }
    if let Some(body) = over_time::figures(rows) {
        sections.push(section("time-line", "Over the trace", Basis::Counted, body));
    }
    if let Some(body) = processes::figures(rows) {
        let section = section("processes", "Processes", Basis::Counted, body);
        sections.push(Section { lead: processes::LEAD.to_owned(), ..section });
    }
    if let Some(body) = run_time::figures(rows) {
        let lead = "Each cell is compared with the first cell for its machine, in percent of the \
                    program's run time. A bar that crosses 0, or ends within 0.05% of it, shows an \
                    uncertain difference."
            .to_owned();
        let run = section("run-time", "Run time", Basis::Estimated, body);
        sections.push(Section { lead, ..run });
    }
    sections.extend([
        section("time", "Estimated time", Basis::Estimated, waterfall::figures(rows)),
        Section {
            lead: "Each refusal with its count and reason; bars of the same kind share one scale."
                .to_owned(),
            ..section("refusals", "Why not larger", Basis::Counted, refusals::figures(rows))
        },
        section("numbers", "All numbers", Basis::Counted, numbers::table(rows)),
        Section {
            lead: "Where the numbers come from, and their limits.".to_owned(),
            ..section("sources", "Sources", Basis::None, sources::body(report))
        },
    ]);
    sections
}
