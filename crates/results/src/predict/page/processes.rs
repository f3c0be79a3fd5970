//! Processes and memory over the trace: a lane per program and a lane per cell.

use std::fmt::Write as _;

use std::cmp::Reverse;

use largefolio_sim::replay::Outcome;

use crate::figures::{bytes, grouped, ratio};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::{Markup, escaped};
use crate::predict::labels::Labels;

const NR_LANES: usize = 8;
const NR_LINES: usize = 20;
const MILLI: u64 = 1000;

pub(super) const LEAD: &str = "Which programs ran when, and how much page cache and private memory \
                               were in use. Left to right: the trace in parts with equal numbers of \
                               references.";

struct Lane {
    name: String,
    total: String,
    values: Vec<u64>,
}

pub(super) fn figures(rows: &[Outcome]) -> Option<Markup> {
    let programs = programs(rows)?;
    let memory = memory(rows);
    let mut body = Markup::new();
    let alive = |milli: u64| format!("{:.1}", ratio(milli, MILLI));
    body.append(&figure(
        "Processes alive",
        &picture(&programs, "faults", &|value| format!("{} processes", alive(value))),
        &table("Processes, on average", &programs, &alive),
    ));
    body.append(&figure(
        "Memory in use",
        &picture(&memory, "reads", &bytes),
        &table("At most", &memory, &bytes),
    ));
    Some(body)
}

/// Returns the programs of the first cell with detail. Processes begin and end at the same time in
/// all cells.
fn programs(rows: &[Outcome]) -> Option<Vec<Lane>> {
    let (processes, detail) =
        rows.iter().find_map(|row| Some((row.processes.as_ref()?, row.detail.as_ref()?)))?;
    let alive = &detail.timeline.alive_milli;
    let mut lanes: Vec<(u64, Lane)> = Vec::new();
    for (program, values) in processes.programs.iter().zip(alive) {
        let name = program.path.rsplit('/').next().unwrap_or_default().to_owned();
        let total = grouped(program.nr_processes);
        lanes.push((values.iter().sum(), Lane { name, total, values: values.clone() }));
    }
    lanes.sort_by_key(|(sum, _)| Reverse(*sum));
    let rest = lanes.split_off(lanes.len().min(NR_LANES));
    let mut lanes: Vec<Lane> = lanes.into_iter().map(|(_, lane)| lane).collect();
    if !rest.is_empty() {
        let nr = rest.len();
        let nr_parts = rest.iter().map(|(_, lane)| lane.values.len()).max().unwrap_or(0);
        let at = |part: usize| rest.iter().filter_map(|(_, lane)| lane.values.get(part)).sum();
        let values = (0..nr_parts).map(at).collect();
        let name = format!("{nr} other programs");
        lanes.push(Lane { name, total: String::new(), values });
    }
    Some(lanes)
}

fn memory(rows: &[Outcome]) -> Vec<Lane> {
    let names = Labels::names(rows);
    let lanes = rows.iter().zip(names).filter_map(|(row, name)| {
        let values = row.detail.as_ref()?.timeline.memory_bytes.clone();
        let peak = row.processes.as_ref().map_or(0, |processes| processes.memory.peak_bytes);
        Some(Lane { name, total: bytes(peak), values })
    });
    lanes.collect()
}

fn picture(lanes: &[Lane], class: &str, show: &dyn Fn(u64) -> String) -> Markup {
    let max = lanes.iter().flat_map(|lane| &lane.values).copied().max().unwrap_or(0);
    let mut picture = Markup::new();
    picture.raw("<div class=\"multiples\">");
    for lane in lanes {
        picture.raw("<div class=\"multiple\">").element("span class=\"name\"", &lane.name);
        picture.element("span class=\"total\"", &lane.total);
        picture.raw(&format!(
            "<svg class=\"time\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\">",
            lane.values.len().max(1)
        ));
        let most = lane.values.iter().copied().max().unwrap_or(0);
        picture.element("title", &format!("{}: at most {}", lane.name, show(most)));
        let mut path = String::new();
        for (x, &value) in lane.values.iter().enumerate().filter(|(_, value)| **value > 0) {
            let height = (100.0 * ratio(value, max)).max(1.0);
            let _ = write!(path, "M{x} 100v-{height:.1}h1v{height:.1}z");
        }
        picture.raw(&format!("<path class=\"{}\" d=\"{path}\"/></svg></div>", escaped(class)));
    }
    picture.raw("</div>\n");
    picture.element("p class=\"note\"", &format!("Full height: {}.", show(max)));
    picture
}

fn table(corner: &str, lanes: &[Lane], show: &dyn Fn(u64) -> String) -> Markup {
    let names: Vec<String> = lanes.iter().map(|lane| lane.name.clone()).collect();
    let nr_parts = lanes.iter().map(|lane| lane.values.len()).max().unwrap_or(0);
    let per_line = nr_parts.div_ceil(NR_LINES).max(1);
    let mut table = table_head(corner, &names);
    for first in (0..nr_parts).step_by(per_line) {
        let percent = |part: usize| 100 * part / nr_parts.max(1);
        let label = format!("{}% - {}%", percent(first), percent(first + per_line));
        table.raw("<tr>").element("th scope=\"row\"", &label);
        for lane in lanes {
            let most = lane.values.iter().skip(first).take(per_line).copied().max();
            table.element("td", &show(most.unwrap_or(0)));
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}
