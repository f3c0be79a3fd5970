//! Programs and libraries laid out as if they were linked for other pages.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use std::path::{Path, PathBuf};

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, ReplayRequest, replay};
use largefolio_trace::Reader;
use largefolio_trace::generate::{Library, LinkedFor, Workload};

const COLLAPSES: &str = "6.1+thp=always+khugepaged-scan-sleep=1ms+file-collapse=exec";

fn library(dir: &Path, linked_for: LinkedFor) -> PathBuf {
    let path = dir.join(format!("{linked_for:?}.folio"));
    let (text_bytes, program_bytes) = (3 << 20, 1 << 20);
    let library =
        Library { text_bytes, program_bytes, linked_for, nr_calls: 200_000, ..Library::default() };
    library.write(&path).unwrap();
    path
}

fn linked(path: &Path, kernel: &str, links: &[&str]) -> Outcome {
    let kernel = Kernel::parse(kernel).unwrap();
    let mut spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    spec.linked = links.iter().map(|text| text.parse().unwrap()).collect();
    let mut outcome = replay(path, &[spec], &mut |_| {}).unwrap().1.remove(0);
    outcome.linked.clear();
    outcome
}

#[test]
fn a_library_gets_pmd_entries_as_if_it_had_been_linked_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let (base, huge) = (library(dir.path(), LinkedFor::Base), library(dir.path(), LinkedFor::Huge));
    let recorded = linked(&huge, COLLAPSES, &[]);
    assert_eq!(recorded.folios.text.pmd_bytes, 2 << 20);
    for path in [&base, &huge] {
        for links in [&["2M"][..], &["4K", "[library]=2M"], &["[library]=4K", "*lib*=2M"]] {
            let outcome = linked(path, COLLAPSES, links);
            assert_eq!(outcome.folios.text, recorded.folios.text, "{path:?} {links:?}");
            assert_eq!(outcome.tlb.instruction, recorded.tlb.instruction);
        }
        let small = linked(path, COLLAPSES, &["2M", "[library]=4K"]);
        assert_eq!(small.folios.text.pmd_bytes, 0, "{path:?}");
        assert!(small.tlb.instruction.l1_misses > 2 * recorded.tlb.instruction.l1_misses);
    }
}

/// The recorded programs were linked for 4K pages, so laying them out for 4K changes nothing.
#[test]
fn what_was_linked_for_4k_stays_where_it_was() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let perf = traces.join("perf.folio");
    for kernel in ["6.12", "7.2+exec-block=64K"] {
        assert_eq!(linked(&perf, kernel, &["4K"]), linked(&perf, kernel, &[]), "{kernel}");
    }
    let huge = linked(&perf, "6.12", &["2M"]);
    assert!(huge.strays.unmapped == 0 && huge.strays.protected == 0, "{:?}", huge.strays);
    assert_eq!(huge.tlb.instruction.references, 10_941_801);
}

#[test]
fn images_that_a_trace_does_not_have_are_refused_with_those_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = library(dir.path(), LinkedFor::Base);
    let meta = Reader::open(&path).unwrap().meta().clone();
    let kernels = vec![Kernel::parse("7.2").unwrap()];
    let machine = |name: &str| vec![Machine::named(name).unwrap()];
    let mut request = ReplayRequest::new(kernels, machine("altra"));
    request.linked = vec!["4K,64K,2M".parse().unwrap(), "[librery]=2M".parse().unwrap()];
    let message = request.check_trace(&meta).unwrap_err().to_string();
    assert!(
        message.contains("no program or library of that name; did you mean [library]"),
        "{message}"
    );
    assert_eq!(request.specs().unwrap().len(), 3);
    request.machines = machine("grace-64k");
    let message = request.specs().unwrap_err().to_string();
    assert!(message.starts_with("--linked 4K: grace-64k has base pages of 64K"), "{message}");
    // A program's loader cannot be relinked.
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let meta = Reader::open(&traces.join("perf.folio")).unwrap().meta().clone();
    request.linked = vec!["ld-linux*=2M".parse().unwrap()];
    let message = request.check_trace(&meta).unwrap_err().to_string();
    assert!(message.contains("ld-linux*=2M: this trace maps no program or library"), "{message}");
    request.linked = vec!["libc.so*=2M".parse().unwrap()];
    assert!(request.check_trace(&meta).is_ok());
}
