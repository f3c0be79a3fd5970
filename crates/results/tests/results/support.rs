//! Results with detail: a small generated trace, replayed.

use std::path::Path;

use largefolio_results::predict::{Options, PredictResult, Settings, TraceInfo};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, replay};
use largefolio_trace::generate::{Workload, ZipfMix};

/// A name that would do harm as HTML, script or attribute.
pub(crate) const HOSTILE: &str = "/lib/</script><script>window.harmed=1</script><img src=x \
                                  onerror=\"window.harmed=1\" data-x='\u{1b}[31m\u{202e}&amp;\u{0}";

/// Replays the trace at `path` under each kernel on each machine.
pub(crate) fn predicted(path: &Path, cells: &[(&str, &str)]) -> PredictResult {
    let spec = |&(kernel, machine): &(&str, &str)| CellSpec {
        detail_runs_max: 4096,
        ..CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
    };
    let specs: Vec<CellSpec> = cells.iter().map(spec).collect();
    let (meta, rows) = replay(path, &specs, &mut |_| {}).unwrap();
    let settings = Settings {
        rules_notes: Vec::new(),
        memory_bytes: 16 << 30,
        swap_bytes: 0,
        unusable_permille: 0,
        unusable_bytes: 0,
        aged_rounds: 0,
        filesystem: None,
        annotations: Vec::new(),
        changes: Vec::new(),
        allocator: None,
        numa: None,
        reference_ns: 0,
    };
    let command = vec!["folio".to_owned(), "predict".to_owned(), "zipf.folio".to_owned()];
    let trace = TraceInfo::new("zipf.folio", &meta);
    let mut report = PredictResult::new(command, trace, settings, rows, Options::default());
    report.tool_version = String::from("1.2.3");
    report
}

pub(crate) fn generated(cells: &[(&str, &str)]) -> PredictResult {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("zipf.folio");
    let mix = ZipfMix { nr_runs: 20_000, filesystem: "xfs".into(), ..ZipfMix::default() };
    mix.write(&path).unwrap();
    predicted(&path, cells)
}

pub(crate) fn hostile() -> PredictResult {
    let mut report = generated(&[("6.12", "altra"), ("7.2", "altra")]);
    report.trace.path = String::from(HOSTILE);
    report.trace.command = vec![HOSTILE.to_owned(), HOSTILE.to_owned()];
    report.trace.warnings = vec![HOSTILE.to_owned()];
    report.command_line.push(HOSTILE.to_owned());
    for row in &mut report.rows {
        row.kernel = String::from(HOSTILE);
        for area in row.detail.iter_mut().flat_map(|detail| &mut detail.areas) {
            area.path = String::from(HOSTILE);
        }
    }
    report
}

pub(crate) fn html(report: &PredictResult) -> String {
    report.page().unwrap().html()
}
