//! `--openmetrics`: metrics for Prometheus.
//!
//! The text is valid both as `OpenMetrics` 1.0 and in Prometheus's own format, which the textfile
//! collector in `node_exporter` reads: every family is a gauge, and both formats accept the
//! comments.

use std::fmt::Write as _;

use super::metrics::{Family, Labels, Unit, Value};

pub(super) fn of(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        write(family, &mut text);
    }
    text + "# EOF\n"
}

fn write(family: &Family, text: &mut String) {
    let Family { name, unit, help, samples, .. } = family;
    let _ = writeln!(text, "# TYPE {name} gauge");
    // The name must end with the unit.
    let unit = match unit {
        Unit::Bytes => "bytes",
        Unit::Seconds => "seconds",
        Unit::Processes | Unit::None => "",
    };
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for sample in samples {
        let _ = match sample.value {
            Value::Count(count) => writeln!(text, "{name}{} {count}", labels(&sample.labels)),
            Value::Ns(ns) => {
                let (seconds, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
                writeln!(text, "{name}{} {seconds}.{ns:09}", labels(&sample.labels))
            }
        };
    }
}

/// `{name="value",..}`, with quotes and backslashes escaped.
fn labels(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let pairs = labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        format!("{name}=\"{value}\"")
    });
    format!("{{{}}}", pairs.collect::<Vec<String>>().join(","))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
    use largefolio_linux::census::process::Process;
    use largefolio_linux::census::{Access, Census, Held};
    use largefolio_linux::geometry::Geometry;

    use super::super::group::Sort;
    use super::super::reading::Reading;
    use super::super::show::Show;
    use super::super::{MetricsFormat, WasteResult};
    use largefolio_linux::census::waste::{MappingWaste, ProcessWaste, SizeWaste};

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
        let show = Show { nr_rows, sort: Sort::Size, width: 0, prose: None, is_full: false };
        reading.metrics(Some(&waste()), show, MetricsFormat::OpenMetrics)
    }

    /// A process called `db`. A quarter of its 2M folios was read, and half of that is zeroes.
    fn waste() -> WasteResult {
        let size = SizeWaste { bytes: 8 << 20, read_bytes: 2 << 20, zero_bytes: 1 << 20 };
        let mapping = MappingWaste { sizes: [(2 << 20, size)].into(), ..MappingWaste::default() };
        let process = ProcessWaste {
            pid: 0x8000_0000,
            name: "db".to_owned(),
            mappings: vec![mapping],
            left_out: Vec::new(),
            refused: false,
        };
        WasteResult::new(Vec::new(), vec![process], Duration::ZERO)
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
