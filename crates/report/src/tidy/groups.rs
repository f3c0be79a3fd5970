//! Numbers that only some cells have: control groups, pools of huge pages, several processes.

use largefolio_sim::replay::Outcome;

use super::{Number, plain, sized};

pub(super) fn add(numbers: &mut Vec<Number>, outcome: &Outcome) {
    add_cgroups(numbers, outcome);
    add_hugetlb(numbers, outcome);
    add_processes(numbers, outcome);
}

fn add_cgroups(numbers: &mut Vec<Number>, outcome: &Outcome) {
    for group in &outcome.cgroups {
        for (what, value, unit) in [
            ("limit", group.limit_bytes, "bytes"),
            ("usage", group.usage_bytes, "bytes"),
            ("peak", group.peak_bytes, "bytes"),
            ("evicted", group.evicted_bytes, "bytes"),
            ("refaulted", group.refaulted_bytes, "bytes"),
            ("limit_hits", group.nr_limit_hits, "charges"),
        ] {
            numbers.push(plain(format!("cgroup_{what}:{}", group.name), value, unit));
        }
    }
}

fn add_hugetlb(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let Some(huge) = &outcome.hugetlb else { return };
    for (metric, value, unit) in [
        ("hugetlb_faults", huge.faults, "faults"),
        ("hugetlb_allocated", huge.allocated, "pages"),
        ("hugetlb_forked", huge.forked, "entries"),
        ("hugetlb_copied", huge.copied, "pages"),
        ("hugetlb_reused", huge.reused, "pages"),
        ("hugetlb_taken", huge.taken, "pages"),
        ("hugetlb_sigbus", huge.sigbus, "touches"),
        ("hugetlb_maps_refused", huge.maps_refused, "mappings"),
        ("hugetlb_maps_without_pool", huge.maps_without_pool, "mappings"),
    ] {
        numbers.push(plain(metric, value, unit));
    }
}

fn add_processes(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let Some(processes) = &outcome.processes else { return };
    numbers.push(plain("processes_started", processes.nr_started, "processes"));
    numbers.push(plain("processes_alive_max", processes.nr_alive_max, "processes"));
    let memory = &processes.memory;
    numbers.push(plain("memory_peak", memory.peak_bytes, "bytes"));
    numbers.push(plain("memory_peak_at", memory.peak_references, "references"));
    for (when, parts) in [("peak", &memory.peak), ("end", &memory.end)] {
        for (what, by_size) in [("cached", &parts.cached_bytes), ("anon", &parts.anon_bytes)] {
            for (&size, &value) in by_size {
                numbers.push(sized(format!("memory_{when}_{what}"), size, value));
            }
        }
    }
    for program in &processes.programs {
        for (what, value, unit) in [
            ("processes", program.nr_processes, "processes"),
            ("references", program.references, "references"),
            ("faults", program.faults, "faults"),
            ("major_faults", program.major_faults, "faults"),
            ("instruction_walks", program.instruction_walks, "walks"),
            ("data_walks", program.data_walks, "walks"),
            ("text_mapped", program.folios.text.mapped_bytes, "bytes"),
            ("data_mapped", program.folios.data.mapped_bytes, "bytes"),
            ("anon_mapped", program.folios.anon.mapped_bytes, "bytes"),
        ] {
            numbers.push(plain(format!("program_{what}:{}", program.path), value, unit));
        }
        let time = program.estimate_ns;
        let metric = || format!("program_time:{}", program.path);
        numbers.extend(time.map(|ns| plain(metric(), ns, "ns")));
    }
}
