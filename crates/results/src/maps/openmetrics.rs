//! `--openmetrics`: a reading as metrics for Prometheus.
//!
//! The text is valid both as `OpenMetrics` 1.0 and in Prometheus's own format, which the textfile
//! collector in `node_exporter` reads: every family is a gauge, and both formats accept the
//! comments.
//!
//! Invariants:
//! - O1: processes cannot increase the number of series without bound. Only the largest `nr_rows`
//!   processes, control groups and files have a series per folio size; the rest are summed as
//!   [`REST`].
//! - O2: no two samples have the same labels. Labels that become equal when unprintable characters
//!   are replaced are merged.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figures::printable;
use largefolio_linux::census::cgroup::Group;
use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
use largefolio_linux::census::{Access, Census};
use largefolio_linux::system::{Live, System as _};
use largefolio_mm::rules::sizes::size_name;

use super::plain::plain;
use super::reading::Reading;
use super::show::Show;

const REST: &str = "(other)";

type Labels = String;

struct Families {
    text: String,
    page_bytes: u64,
}

pub(super) fn of(reading: &Reading, show: Show) -> String {
    let mut families = Families { text: String::new(), page_bytes: Live.page_bytes() };
    if let Some(census) = &reading.census {
        families.census(census, show);
        families.groups(census, show);
    }
    if let Some(cached) = &reading.cached {
        let files =
            cached.files.iter().map(|file| (label("file", &plain(&file.path)), &file.tally));
        let name = "folio_file_cached_bytes";
        families.begin(name, "bytes", "A file's cached pages by folio size.");
        families.largest(name, &label("file", REST), files, show);
    }
    families.begin("folio_build_info", "", "The program that wrote this; always 1.");
    let version = label("version", env!("CARGO_PKG_VERSION"));
    families.sample("folio_build_info", &[version], 1);
    let name = "folio_look_cpu_seconds";
    families.begin(name, "seconds", "CPU time spent collecting these metrics.");
    let ns = reading.cpu_ns_since_begin();
    let _ = writeln!(families.text, "{name} {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    families.text + "# EOF\n"
}

impl Families {
    fn begin(&mut self, name: &str, unit: &str, help: &str) {
        let _ = writeln!(self.text, "# TYPE {name} gauge");
        if !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[Labels], value: u64) {
        let _ = writeln!(self.text, "{name}{{{}}} {value}", labels.join(","));
    }

    fn census(&mut self, census: &Census, show: Show) {
        type Pick = fn(&Cell) -> u64;
        let picks: [(&str, &str, Pick); 5] = [
            (
                "folio_mapped_bytes",
                "Mapped memory, each page once, by kind and folio size.",
                |cell| cell.mapped_bytes(),
            ),
            (
                "folio_unaligned_bytes",
                "Mapped memory in folios that are fully mapped but unaligned.",
                |cell| cell.unaligned_bytes,
            ),
            (
                "folio_partial_bytes",
                "Mapped memory in folios that are only partly mapped.",
                |cell| cell.partial_bytes,
            ),
            ("folio_contpte_bytes", "Mapped memory in contpte blocks from one folio.", |cell| {
                cell.contpte_bytes
            }),
            ("folio_pmd_mapped_bytes", "Memory mapped by PMD entries.", |cell| cell.pmd_bytes),
        ];
        for (name, help, pick) in picks {
            self.begin(name, "bytes", help);
            for (kind, size, cell) in census.totals.cells() {
                let labels = [label("kind", kind.name()), self.size(size)];
                if name == picks[0].0 || pick(cell) > 0 {
                    self.sample(name, &labels, pick(cell));
                }
            }
        }
        let skipped = &census.skipped;
        let name = "folio_processes";
        self.begin(name, "", "Processes by outcome of reading their mappings.");
        for (state, nr) in [
            ("counted", census.processes.len()),
            ("refused", skipped.refused.len()),
            ("gone", skipped.gone.len()),
            ("empty", skipped.empty.len()),
        ] {
            self.sample(name, &[label("state", state)], nr as u64);
        }
        let name = "folio_sizes_known";
        self.begin(name, "", "1 if folio sizes could be read, which needs root; else 0.");
        let _ = writeln!(self.text, "{name} {}", u64::from(census.access == Access::Full));
        let name = "folio_process_mapped_bytes";
        let help = "Mapped memory of all processes with the same name; shared pages count in each \
                    process.";
        self.begin(name, "bytes", help);
        let processes = census.processes.iter();
        let processes = processes.map(|one| (label("process", &one.name), &one.tally));
        self.largest(name, &label("process", REST), processes, show);
    }

    fn groups(&mut self, census: &Census, show: Show) {
        let name = "folio_cgroup_mapped_bytes";
        let help =
            "Mapped memory of all processes in the same control group; shared pages count in each.";
        self.begin(name, "bytes", help);
        let group = |pid: u32| {
            let group = Group::of(&Live, pid);
            let unit = label("unit", group.unit().unwrap_or_default());
            let container = label("container", group.container().unwrap_or_default());
            format!("{},{unit},{container}", label("cgroup", &group.0))
        };
        let groups = census.processes.iter().map(|one| (group(one.pid), &one.tally));
        let rest = [label("cgroup", REST), label("unit", ""), label("container", "")].join(",");
        self.largest(name, &rest, groups, show);
    }

    /// Adds samples of the largest label sets and of the rest (O1, O2).
    fn largest<'t>(
        &mut self,
        name: &str,
        rest: &str,
        all: impl Iterator<Item = (Labels, &'t Tally)>,
        show: Show,
    ) {
        let mut sums: BTreeMap<Labels, BTreeMap<Size, u64>> = BTreeMap::new();
        for (labels, tally) in all {
            let sum = sums.entry(labels).or_default();
            for (_, size, cell) in tally.cells().filter(|(kind, ..)| *kind != MemoryKind::Other) {
                *sum.entry(size).or_default() += cell.mapped_bytes();
            }
        }
        let mut sums: Vec<(Labels, BTreeMap<Size, u64>)> = sums.into_iter().collect();
        sums.sort_by_key(|(_, sizes)| Reverse(sizes.values().sum::<u64>()));
        let mut others: BTreeMap<Size, u64> = BTreeMap::new();
        for (_, sizes) in sums.split_off(show.nr_rows.min(sums.len())) {
            add(&mut others, sizes);
        }
        // One of the largest may be called like the rest.
        match sums.iter_mut().find(|(labels, _)| labels == rest) {
            Some((_, sum)) => add(sum, others),
            None => sums.push((rest.to_owned(), others)),
        }
        for (labels, sizes) in sums {
            for (size, bytes) in sizes {
                let labels = [labels.clone(), self.size(size)];
                self.sample(name, &labels, bytes);
            }
        }
    }

    fn size(&self, size: Size) -> Labels {
        label("size", &size.bytes(self.page_bytes).map_or_else(|| "unknown".to_owned(), size_name))
    }
}

fn add(sum: &mut BTreeMap<Size, u64>, more: BTreeMap<Size, u64>) {
    for (size, bytes) in more {
        *sum.entry(size).or_default() += bytes;
    }
}

/// `name="value"`, with unprintable characters replaced, and quotes and backslashes escaped.
fn label(name: &str, value: &str) -> Labels {
    let value = printable(value).replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use largefolio_linux::census::Held;
    use largefolio_linux::census::process::Process;
    use largefolio_linux::geometry::Geometry;

    use super::super::group::Sort;
    use super::*;

    fn tally(kib: u64) -> Tally {
        let mut tally = Tally::default();
        let cell = Cell { aligned_bytes: kib << 10, ..Cell::default() };
        tally.add(MemoryKind::Anon, Size::Order(0), &cell);
        tally
    }

    fn text(names: &[(&str, u64)], nr_rows: usize) -> String {
        let processes: Vec<Process> = (0..)
            .zip(names)
            .map(|(pid, (name, kib))| Process {
                // Impossible processes, which are in the root group.
                pid: pid + 0x8000_0000,
                name: (*name).to_owned(),
                mappings: Vec::new(),
                tally: tally(*kib),
                held: Held::default(),
                nr_bad_lines: 0,
            })
            .collect();
        let mut totals = tally(4);
        totals.add(
            MemoryKind::Text,
            Size::Order(9),
            &Cell { pmd_bytes: 7, aligned_bytes: 8, ..Cell::default() },
        );
        let geometry = Geometry::of(4096);
        let (access, skipped) = (Access::Full, largefolio_linux::census::Skipped::default());
        let census = Census { geometry, access, totals, processes, skipped, nr_beyond: 0 };
        let reading = Reading { census: Some(census), ..Reading::default() };
        of(&reading, Show { nr_rows, sort: Sort::Size, width: 0, prose: None, is_full: false })
    }

    /// Returns samples without their values, and checks that none is duplicated.
    fn series(text: &str) -> BTreeSet<&str> {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: BTreeSet<&str> =
            lines.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!(series.len(), lines.len(), "{text}");
        series
    }

    #[test]
    fn a_reading_is_exported_as_gauges() {
        let text = text(&[("db", 64), ("db", 32), ("web", 8)], 10);
        let time = text.lines().find(|line| line.starts_with("folio_look_cpu_seconds ")).unwrap();
        insta::assert_snapshot!(text.replace(time, "folio_look_cpu_seconds TIME"));
    }

    #[test]
    fn series_have_a_bound_and_the_rest_is_summed() {
        let names: Vec<String> = (0..500).map(|nr| format!("worker{nr}")).collect();
        let processes: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 4)).collect();
        let text = text(&processes, 3);
        let of_processes = series(&text);
        let of_processes =
            of_processes.iter().filter(|one| one.starts_with("folio_process_mapped"));
        assert_eq!(of_processes.count(), 4);
        let rest = "folio_process_mapped_bytes{process=\"(other)\",size=\"4K\"} ";
        assert!(text.contains(&format!("{rest}{}\n", 497 * 4096)), "{text}");
    }

    #[test]
    fn hostile_names_are_one_series_each() {
        let names = [("a\"b\\", 64), ("x\n", 32), ("x?", 32), ("(other)", 16), ("y", 4)];
        let text = text(&names, 3);
        let all = series(&text);
        assert!(
            all.contains(r#"folio_process_mapped_bytes{process="a\"b\\",size="4K"}"#),
            "{text}"
        );
        assert!(text.contains(r#"{process="x?",size="4K"} 65536"#), "{text}");
        assert!(text.contains(r#"{process="(other)",size="4K"} 20480"#), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
