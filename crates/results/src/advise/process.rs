//! Advice for running processes: the remedies from `folio maps` for each area of memory, temporary
//! and permanent.
//!
//! ```text
//!   mapping -- its remedies: one now, one for good --.
//!   mappings that share a remedy                     +--> area: each remedy once, with its whole gain
//! ```
//!
//! Owns the areas. Each gain was checked with the verb that executes the remedy
//! (`largefolio_linux::remedies`). Its share of a run's time is unknown without a recording.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::ExportError;
use crate::cells::Cells;
use crate::figures::{self, printable};
use largefolio_linux::census::Census;
use largefolio_linux::census::cgroup::Group;
use largefolio_linux::persist::place::ServiceName;
use largefolio_linux::reasons::Finding;
use largefolio_linux::remedies::{Remedy, Restart, Scope};
use largefolio_linux::shell::{as_root, quoted};
use largefolio_linux::system::Live;
use largefolio_trace::shown;
use serde::Serialize;

use crate::maps::{MapsRequest, Reading, Selection, what_in};
use crate::remedy::takes;
use crate::{Error, Forms, Remark, running};

const SCHEMA_VERSION: u32 = 2;
/// Maximum number of mappings to judge: those with most memory.
const NR_JUDGED: usize = 2_000;
const NR_NAMED: usize = 3;
const GAIN_BYTES_MIN: u64 = 1 << 20;

#[derive(Clone, Debug, Serialize)]
pub struct SharedRemedy {
    #[serde(flatten)]
    pub remedy: Remedy,
    pub mappings: Vec<String>,
}

/// An area of memory: mappings that share a remedy. Remedies for one program come before those
/// for all. A permanent remedy works at each start, an
/// immediate one until the program ends. Both affect the same memory, so their gains do not add up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Area {
    pub for_good: Vec<SharedRemedy>,
    pub now: Vec<SharedRemedy>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProcessAdvice {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    pub processes: Vec<(String, u32)>,
    pub areas: Vec<Area>,
    #[serde(skip)]
    remarks: Vec<Remark>,
    /// The services that started them.
    #[serde(skip)]
    services: Vec<String>,
}

impl ProcessAdvice {
    /// Examines the processes that `selection` selects.
    ///
    /// # Errors
    /// If `/proc` cannot be read at all. A process that has exited is a remark.
    pub fn of(selection: Selection, command_line: Vec<String>) -> Result<Self, Error> {
        let request = MapsRequest {
            selection,
            files: Vec::new(),
            page_cache: Vec::new(),
            nr_judged: NR_JUDGED,
            command_line: command_line.clone(),
        };
        let reading = request.take_reading()?;
        let census = reading.census();
        let names = census.iter().flat_map(|census| &census.processes);
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: running::release(),
            processes: names.map(|one| (one.name.clone(), one.pid)).collect(),
            services: services(census),
            areas: areas(known(&reading)),
            remarks: request.remarks(&reading),
        })
    }

    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.areas.is_empty()
    }
}

#[must_use]
pub fn is_running(name: &str) -> bool {
    let chosen = Selection::Names(vec![name.to_owned()]).chosen(&Live);
    chosen.is_ok_and(|chosen| !chosen.pids.is_empty())
}

fn variable_command(service: &str) -> String {
    as_root(&format!("folio tune --unit {} --env NAME=VALUE --yes", quoted(service)))
}

/// Leaves out names that no service can have: a container chooses the names of its groups.
fn known_services(units: impl Iterator<Item = String>) -> Vec<String> {
    let is_service = |unit: &String| ServiceName::try_from(unit.clone()).is_ok();
    let services: BTreeSet<String> = units.filter(is_service).collect();
    services.into_iter().collect()
}

fn services(census: Option<&Census>) -> Vec<String> {
    let processes = census.into_iter().flat_map(|census| &census.processes);
    let groups = processes.map(|process| Group::of(&Live, process.pid));
    // Services of a user's own manager are not below /etc.
    let groups = groups.filter(|group| !group.0.contains("/user.slice/"));
    known_services(groups.filter_map(|group| group.unit().map(str::to_owned)))
}

fn known(reading: &Reading) -> Vec<(String, Vec<Remedy>)> {
    let Some(census) = reading.census() else { return Vec::new() };
    let of = |finding: &Finding| {
        let process = &census.processes[finding.process];
        let name = what_in(&process.name, &process.mappings[finding.mapping].vma);
        let remedies = finding.remedies.iter().filter(|remedy| remedy.is_some());
        (name, remedies.cloned().collect())
    };
    reading.findings().iter().map(of).collect()
}

fn areas(known: Vec<(String, Vec<Remedy>)>) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for (name, remedies) in known.into_iter().filter(|(_, remedies)| !remedies.is_empty()) {
        let is_here = |area: &Area| remedies.iter().any(|remedy| area.line(remedy).is_some());
        let (here, others): (Vec<_>, Vec<_>) = areas.into_iter().partition(is_here);
        areas = others;
        let mut area = Area::default();
        for other in here {
            area.for_good.extend(other.for_good);
            area.now.extend(other.now);
        }
        for remedy in remedies {
            area.add(remedy, &name);
        }
        areas.push(area);
    }
    for area in &mut areas {
        area.settle();
    }
    areas.retain(|area| area.gain_bytes() >= GAIN_BYTES_MIN);
    areas.sort_by_key(|area| std::cmp::Reverse(area.present_bytes()));
    areas
}

impl Area {
    fn lines(&self) -> impl Iterator<Item = &SharedRemedy> {
        self.for_good.iter().chain(&self.now)
    }

    fn line(&self, remedy: &Remedy) -> Option<&SharedRemedy> {
        self.lines().find(|line| line.remedy.is_like(remedy))
    }

    fn add(&mut self, remedy: Remedy, name: &str) {
        let lines = match remedy.restart {
            Restart::None => &mut self.now,
            Restart::After | Restart::Around => &mut self.for_good,
        };
        let Some(line) = lines.iter_mut().find(|line| line.remedy.is_like(&remedy)) else {
            lines.push(SharedRemedy { remedy, mappings: vec![name.to_owned()] });
            return;
        };
        line.remedy.add(&remedy);
        if !line.mappings.iter().any(|one| one == name) {
            line.mappings.push(name.to_owned());
        }
    }

    fn settle(&mut self) {
        for lines in [&mut self.for_good, &mut self.now] {
            lines.retain(|line| line.remedy.gain_bytes >= GAIN_BYTES_MIN);
            lines.sort_by_key(|line| {
                (line.remedy.scope, std::cmp::Reverse(line.remedy.present_bytes()))
            });
        }
    }

    fn gain_bytes(&self) -> u64 {
        self.lines().map(|line| line.remedy.gain_bytes).max().unwrap_or(0)
    }

    fn present_bytes(&self) -> u64 {
        self.lines().map(|line| line.remedy.present_bytes()).max().unwrap_or(0)
    }
}

impl SharedRemedy {
    fn gain(&self) -> String {
        let first: Vec<String> =
            self.mappings.iter().take(NR_NAMED).map(|name| shown(name).to_string()).collect();
        let more = match self.mappings.len().saturating_sub(NR_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let gain = figures::bytes(self.remedy.gain_bytes);
        let mut parts = vec![format!("gains {gain} in {}{more}", first.join(", "))];
        parts.extend(takes(&self.remedy));
        parts.join(", ")
    }
}

impl Forms for ProcessAdvice {
    fn text(&self) -> String {
        let mut out = String::new();
        let names: Vec<String> =
            self.processes.iter().map(|(name, pid)| format!("{} ({pid})", shown(name))).collect();
        let _ = writeln!(out, "{}: how to get larger folios", names.join(", "));
        if self.areas.is_empty() {
            let _ = writeln!(
                out,
                "\nNo change gains 1 MiB or more; folio maps shows the reason for each mapping."
            );
        }
        for (nr, area) in self.areas.iter().enumerate() {
            let mut number = format!("{}.", nr + 1);
            for (when, lines) in [("for good", &area.for_good), ("now", &area.now)] {
                for line in lines {
                    let first = if number.is_empty() { "" } else { "\n" };
                    let remedy = line.remedy.to_string();
                    let _ = writeln!(out, "{first}  {number:<2} {when:<8}  {}", printable(&remedy));
                    number.clear();
                    let _ = writeln!(out, "               {}", line.gain());
                    let of = &line.remedy;
                    for (what, text) in [("costs", &of.cost), ("to undo it", &of.undo)] {
                        if !text.is_empty() {
                            let _ = writeln!(out, "               {what}: {}", printable(text));
                        }
                    }
                }
            }
        }
        if self.areas.iter().any(|area| !area.for_good.is_empty() && !area.now.is_empty()) {
            let _ = writeln!(
                out,
                "\n- `now` lasts until the program ends; `for good` takes effect the next time it \
                 starts. Remedies with the same number help the same memory: use one of them."
            );
        }
        for service in &self.services {
            let set = variable_command(service);
            let _ = writeln!(
                out,
                "\n- {} starts with a variable after: {}",
                printable(service),
                printable(&set)
            );
        }
        let _ = writeln!(
            out,
            "\n- Only a recording can show how much of a run this saves: folio advise -- CMD. To \
             prove the gain for a service, use folio verify --server."
        );
        out
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record([
            "command",
            "start",
            "restart",
            "gain_bytes",
            "extra_bytes",
            "undo",
            "cost",
            "mappings",
            "area",
            "when",
            "scope",
        ])?;
        let lines = self.areas.iter().enumerate().flat_map(|(nr, area)| {
            let for_good = area.for_good.iter().map(move |line| (nr + 1, "for_good", line));
            for_good.chain(area.now.iter().map(move |line| (nr + 1, "now", line)))
        });
        for (nr, when, line) in lines {
            let remedy = &line.remedy;
            let restart = match remedy.restart {
                Restart::None => "none",
                Restart::After => "after",
                Restart::Around => "around",
            };
            cells.record([
                remedy.command.as_str(),
                &remedy.start,
                restart,
                &remedy.gain_bytes.to_string(),
                &remedy.extra_bytes.to_string(),
                &remedy.undo,
                &remedy.cost,
                &line.mappings.join(" "),
                &nr.to_string(),
                when,
                match remedy.scope {
                    Scope::Program => "program",
                    Scope::System => "system",
                },
            ])?;
        }
        cells.into_text()
    }
}

#[cfg(test)]
mod tests;
