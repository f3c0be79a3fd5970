//! `folio predict` for a trace with several processes: a whole build on one machine.

use serde_json::Value;

use crate::support::Place;

/// The shipped build of one C file: make, the driver, the compiler, the assembler, the linker.
fn build() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/make.folio").to_owned()
}

fn predicted(place: &Place, options: &str) -> Value {
    let args = format!("predict {} --kernel 6.18 --machine altra {options} --json", build());
    let json: Value = serde_json::from_str(&place.done(&args)).unwrap();
    json["rows"][0].clone()
}

fn sum(programs: &[Value], name: &str) -> u64 {
    programs.iter().map(|program| program[name].as_u64().unwrap()).sum()
}

#[test]
fn every_reference_and_fault_of_a_build_belongs_to_a_program() {
    let place = Place::new();
    let row = predicted(&place, "");
    let processes = &row["processes"];
    assert_eq!((&processes["nr_started"], &processes["nr_alive_max"]), (&5.into(), &5.into()));
    let programs = processes["programs"].as_array().unwrap();
    let names: Vec<_> = programs
        .iter()
        .filter_map(|program| program["path"].as_str()?.rsplit('/').next())
        .collect();
    for name in ["make", "x86_64-linux-gnu-gcc-12", "cc1", "x86_64-linux-gnu-as"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let tlb = |side: &str| row["tlb"][side]["references"].as_u64().unwrap();
    assert_eq!(sum(programs, "references"), tlb("instruction") + tlb("data"));
    assert_eq!(sum(programs, "faults"), row["faults"]["total"].as_u64().unwrap());
    assert_eq!(row["strays"]["unmapped"], 0);
    let memory = &processes["memory"];
    assert_eq!(memory["end"]["anon_bytes"], serde_json::json!({}), "ended processes free theirs");
    assert!(memory["peak_bytes"].as_u64() > Some(20 << 20), "{memory}");
}

#[test]
fn one_cpu_for_all_processes_walks_more() {
    let place = Place::new();
    let walks = |row: Value| row["tlb"]["walks_pte"].as_u64().unwrap();
    let (many, one) = (predicted(&place, ""), predicted(&place, "--cpus 1"));
    assert_eq!((&many["nr_cpus"], &one["nr_cpus"]), (&80.into(), &1.into()));
    assert_eq!(many["faults"], one["faults"]);
    assert!(walks(one) > walks(many));
}

#[test]
fn programs_are_shown_only_if_there_are_several() {
    let place = Place::new();
    let args = format!("predict {} --kernel 6.12,6.18 --machine altra --report b.html", build());
    let text = place.done(&args);
    assert!(text.contains("The trace contains 5 processes of 5 programs"), "{text}");
    assert!(text.contains("Faults and walks by program") && text.contains("cc1 (1 process)"));
    assert!(std::fs::read_to_string(place.path("b.html")).unwrap().contains("Processes"));
    place.done("trace gen zipf --files 2 --file-size 1M --anon-size 1M --runs 400 -o a.folio");
    let text = place.done("predict a.folio --kernel 6.12,6.18 --machine altra");
    assert!(!text.contains("by program"), "{text}");
}

#[test]
fn programs_for_arm64_keep_their_shape_with_every_base_page() {
    let place = Place::new();
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/make-arm64.folio");
    for (kernel, machine) in
        [("6.18", "altra"), ("6.18+page=16K", "altra"), ("7.2+page=64K", "grace-64k")]
    {
        let args = format!("predict {trace} --kernel {kernel} --machine {machine} --json");
        let json: Value = serde_json::from_str(&place.done(&args)).unwrap();
        let row = &json["rows"][0];
        let none = serde_json::json!({ "unmapped": 0, "protected": 0, "beyond_file": 0 });
        assert_eq!((&row["strays"], &row["is_replaced"]), (&none, &false.into()), "{kernel}");
    }
}
