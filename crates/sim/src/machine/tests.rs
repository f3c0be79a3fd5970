mod bad;

use std::path::Path;

use largefolio_mm::rules::Arch;
use largefolio_mm::units::PageSize;

use super::builtin::MACHINES;
use super::*;
use crate::tlb::{Aggregation, Tlb};

const GOOD: &str = r#"
name = "mine"
description = "a test"
arch = "arm64"
page_sizes = ["4K", "16K"]
default_page_size = "4K"

[[tlb.l1_instruction]]
name = "I"
entries = 48
ways = "full"
sizes = "any"
source = "test"

[[tlb.l1_data]]
name = "D"
entries = 48
ways = 4
sizes = ["4K", "16K", "2M"]
source = "test"

[tlb.coalescing]
modes = ["contpte", "hpa"]
source = "test"

[costs.walk_l2]
value = 30.5
unit = "ns"
source = "test"
"#;

fn message(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    Machine::from_toml(&GOOD.replacen(from, to, 1), "mine.toml").unwrap_err().to_string()
}

#[test]
fn every_built_in_machine_loads_and_builds_at_every_page_size() {
    for &(name, _) in MACHINES.built_in {
        let machine = Machine::named(name).unwrap();
        assert_eq!(machine.name, name);
        for &page in &machine.page_sizes {
            let machine = machine.clone().with_page_size(page).unwrap();
            let tlb = Tlb::new(&machine.tlb, machine.page_size);
            assert_eq!(tlb.coalescing().has_contpte, machine.arch == Arch::Arm64);
            let is_zen = matches!(name, "milan" | "zen4" | "zen5");
            assert_eq!(tlb.coalescing().aggregation == Aggregation::Zen, is_zen, "{name}");
            let is_hpa = name == "grace-hpa";
            assert_eq!(tlb.coalescing().aggregation == Aggregation::Hpa, is_hpa, "{name}");
        }
    }
    assert!(names().is_sorted());
}

#[test]
fn every_file_of_the_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|file| file.unwrap().file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, names().collect::<Vec<_>>());
}

#[test]
fn the_numbers_of_the_manuals_are_in_the_files() {
    let altra = Machine::named("altra").unwrap();
    let shape = |structure: &crate::tlb::StructureConfig| (structure.entries, structure.nr_ways());
    let shapes = |structures: &[crate::tlb::StructureConfig]| -> Vec<(u32, u32)> {
        structures.iter().map(shape).collect()
    };
    assert_eq!(shapes(&altra.tlb.l1_instruction), [(48, 48)]);
    assert_eq!(shapes(&altra.tlb.l1_data), [(48, 48)]);
    assert_eq!(shapes(&altra.tlb.l2), [(1280, 5)]);
    let grace = Machine::named("grace-64k").unwrap();
    assert_eq!(grace.page_size, PageSize::K64);
    assert_eq!(shapes(&grace.tlb.l1_instruction), [(48, 48)]);
    assert_eq!(shapes(&grace.tlb.l2), [(2048, 8)]);
    let graviton3 = Machine::named("graviton3").unwrap();
    assert_eq!(shapes(&graviton3.tlb.l1_data), [(40, 40)]);
    let sapphirerapids = Machine::named("sapphirerapids").unwrap();
    assert_eq!(shapes(&sapphirerapids.tlb.l1_instruction), [(256, 8), (32, 8)]);
    assert_eq!(shapes(&sapphirerapids.tlb.l1_data), [(96, 6), (32, 4), (8, 8)]);
    let zen5 = Machine::named("zen5").unwrap();
    assert_eq!(shapes(&zen5.tlb.l1_data), [(96, 96)]);
    assert_eq!(
        [shapes(&zen5.tlb.l2_instruction), shapes(&zen5.tlb.l2_data)].concat(),
        [(2048, 8), (4096, 16)]
    );
    let cascadelake = Machine::named("cascadelake").unwrap();
    assert_eq!(shapes(&cascadelake.tlb.l1_instruction), [(128, 8), (8, 8)]);
    assert_eq!(shapes(&cascadelake.tlb.l1_data), [(64, 4), (32, 4), (4, 4)]);
    assert_eq!(shapes(&cascadelake.tlb.l2), [(1536, 12), (16, 4)]);
}

#[test]
fn a_file_is_read_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, GOOD).unwrap();
    let machine = Machine::load(path.to_str().unwrap()).unwrap();
    assert_eq!(machine.page_sizes, [PageSize::K4, PageSize::K16]);
    let costs: Vec<_> = machine.costs.known().collect();
    assert_eq!((costs.len(), costs[0].0, costs[0].1.unit), (1, "walk_l2", Unit::Ns));
    assert_eq!(Unit::GbPerS.to_string(), "GB/s");
}

#[test]
fn an_unknown_name_is_answered_with_near_ones_and_all() {
    let unknown = |name| Machine::load(name).unwrap_err().to_string();
    let message = |name, hint| {
        format!("there is no machine '{name}' (name a file by its path, *.toml); {hint}")
    };
    assert_eq!(unknown("alta"), message("alta", "did you mean altra?"));
    assert_eq!(
        unknown("Grace"),
        message("Grace", "did you mean grace-4k or grace-64k or grace-hpa?")
    );
    assert_eq!(unknown("graviton5"), message("graviton5", "did you mean graviton4 or graviton3?"));
    // Several machines have the core, or its name differs from the machine's.
    assert_eq!(
        unknown("Neoverse-V2"),
        message("Neoverse-V2", "did you mean grace-4k or graviton4?")
    );
    assert_eq!(unknown("spr"), message("spr", "did you mean sapphirerapids?"));
    assert_eq!(
        unknown("zz"),
        message(
            "zz",
            "known: altra, ampereone, cascadelake, grace-4k, grace-64k, grace-hpa, graviton3, \
             graviton4, icelake, milan, phone, phone-little, sapphirerapids, xeon-4210r, zen4, zen5"
        )
    );
    assert_eq!(
        unknown("./missing.toml"),
        "cannot read the machine file ./missing.toml: No such file or directory (os error 2)"
    );
    assert_eq!(
        Machine::from_path(Path::new("/dev/zero")).unwrap_err().to_string(),
        "cannot read the machine file /dev/zero: it is a character device, not a regular file"
    );
}

#[test]
fn bad_toml_is_answered_with_file_line_and_expected_form() {
    assert_eq!(
        message("entries = 48", "entires = 48"),
        "mine.toml:10: unknown field `entires`, expected one of \
         `name`, `entries`, `ways`, `sizes`, `source`, `assumed`"
    );
    assert_eq!(message("entries = 48\n", ""), "mine.toml:8: missing field `entries`");
    assert_eq!(
        message("ways = \"full\"", "ways = \"fully\""),
        "mine.toml:11: invalid value: string \"fully\", expected a number of ways or \"full\""
    );
    assert_eq!(
        message("ways = 4", "ways = -4"),
        "mine.toml:18: invalid value: integer `-4`, expected a number of ways or \"full\""
    );
    assert_eq!(
        message("sizes = \"any\"", "sizes = \"4K\""),
        "mine.toml:12: invalid value: string \"4K\", \
         expected \"any\" or a list of sizes such as [\"4K\", \"2M\"]"
    );
    assert_eq!(
        message("\"2M\"", "\"3M\""),
        "mine.toml:19: `3M` is not a TLB entry size; \
         expected a power of two from \"4K\" to \"16G\""
    );
    assert_eq!(
        message("[\"4K\", \"16K\"]", "[\"4K\", \"8K\"]"),
        "mine.toml:5: unknown variant `8K`, expected one of `4K`, `16K`, `64K`"
    );
    assert_eq!(
        message("[\"contpte\", \"hpa\"]", "[\"none\"]"),
        "mine.toml:23: unknown variant `none`, \
         expected one of `contpte`, `hpa`, `zen`, `zen-32K`"
    );
    assert_eq!(
        message("unit = \"ns\"", "unit = \"years\""),
        "mine.toml:28: unknown variant `years`, expected one of `cycles`, `ns`, `us`, `GHz`, \
         `GB/s`, `cycles/instruction`, `share`"
    );
    assert_eq!(
        message("[costs.walk_l2]", "[costs.walks]"),
        "mine.toml:26: unknown field `walks`, expected one of `clock`, `cpi`, `reference`, `l2_hit`, \
         `walk`, `walk_pmd`, `walk_l2`, `walk_llc`, `walk_memory`, `walk_beside`, `walk_overlapped`, `walk_alone`, `walk_fetch`, `fetch_miss`, \
         `fault`, `fault_around`, `folio_alloc`, `host_backing`, `reclaim_folio`, `reclaim_page`, `reclaim_scan`, `compact_scan`, `compact_move`, `map_batch`, `map_entry`, `fork_entry`, `fork_batch`, `fork_large`, `fork_pmd`, \
         `unmap_batch`, `unmap_large`, `unmap_pte`, `unmap_pmd`, `folio_free`, `page_free`, `page_mapcount`, `owner_word`, `swap_in`, `swap_out`, `clear`, `copy`, `elision`, `storage_latency`, `storage_rate`, `storage_interval`"
    );
    assert_eq!(
        message("name = \"mine\"", "name = "),
        "mine.toml:2: string values must be quoted, expected literal string"
    );
}

#[test]
fn only_a_page_size_of_the_hardware_can_be_chosen() {
    let altra = Machine::named("altra").unwrap();
    assert_eq!(altra.with_page_size(PageSize::K16).unwrap().page_size, PageSize::K16);
    let cascadelake = Machine::named("cascadelake").unwrap();
    assert_eq!(
        cascadelake.with_page_size(PageSize::K64).unwrap_err().to_string(),
        "machine cascadelake has no 64K base pages; it has 4K"
    );
}

#[test]
fn every_machine_has_rates_of_clearing_and_copying_and_says_where_they_are_from() {
    for &(name, _) in MACHINES.built_in {
        let costs = Machine::named(name).unwrap().costs;
        for (cost, rates) in costs.rates() {
            assert!(!rates.is_empty(), "{name}: {cost}");
            // Measured if a machine was available, or if a series measured it.
            let is_measured = match name {
                "zen4" | "cascadelake" | "xeon-4210r" => true,
                "milan" => cost == "clear",
                _ => false,
            };
            assert!(rates.iter().all(|rate| rate.assumed != is_measured), "{name}: {cost}");
        }
        let elision = costs.elision.map(|elision| elision.from);
        assert_eq!(
            elision,
            matches!(name, "milan" | "zen4" | "zen5").then_some(UnitBytes(32 << 20)),
            "{name}"
        );
    }
}

#[test]
fn a_machine_based_on_another_differs_in_what_it_says() {
    let named = |name: &str| Machine::named(name).unwrap();
    let (small, large) = (named("grace-4k"), named("grace-64k"));
    assert_eq!((small.page_size, large.page_size), (PageSize::K4, PageSize::K64));
    assert_eq!((&small.tlb, &small.costs), (&large.tlb, &large.costs));
    let (cascadelake, xeon) = (named("cascadelake"), named("xeon-4210r"));
    assert_eq!(cascadelake.tlb, xeon.tlb);
    let differing: Vec<&str> = cascadelake
        .costs
        .known()
        .zip(xeon.costs.known())
        .filter_map(|(one, other)| (one != other).then_some(one.0))
        .collect();
    assert_eq!(differing, ["clock"]);
    // Based on a file that is itself based on another: a phone's little core, and Altra's core as
    // the big one.
    let little = named("phone-little");
    assert_eq!(little.page_sizes, [PageSize::K4, PageSize::K16]);
    assert_eq!((little.tlb.l1_data[0].entries, little.tlb.walk_cache[0].entries), (16, 64));
    assert_eq!(little.costs.walk_l2, named("altra").costs.walk_l2);
}

#[test]
fn every_assumption_gives_its_reason_and_every_cost_a_source() {
    for &(name, text) in MACHINES.built_in {
        for (nr, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("source")) {
            assert!(line.len() > "source = ''".len() + 20, "{name}.toml:{}: {line}", nr + 1);
        }
        let machine = Machine::named(name).unwrap();
        assert!(machine.costs.known().all(|(_, cost)| cost.source.len() > 20), "{name}");
        assert!(machine.costs.clock.is_some() && machine.costs.storage_rate.is_some(), "{name}");
    }
}

#[test]
fn every_arm64_machine_has_all_that_a_total_needs() {
    // A refinement may be absent: a coarser cost then includes it.
    let refined = ["cpi", "walk_pmd", "fault_around", "folio_alloc", "map_batch", "fork_batch"]
        .into_iter()
        .chain(["fork_large", "fork_pmd", "unmap_large", "unmap_pmd", "folio_free", "page_free"])
        .chain([
            "page_mapcount",
            "owner_word",
            "storage_interval",
            "host_backing",
            "reclaim_folio",
            "reclaim_page",
            "reclaim_scan",
            "compact_scan",
            "compact_move",
            "walk_overlapped",
            "fetch_miss",
        ]);
    let refined: Vec<&str> = refined.collect();
    for &(name, _) in MACHINES.built_in {
        let machine = Machine::named(name).unwrap();
        if machine.arch != Arch::Arm64 {
            continue;
        }
        for (cost, _, known) in machine.costs.quantities() {
            assert!(known.is_some() || refined.contains(&cost), "{name}: {cost}");
        }
        assert!(machine.costs.rates().iter().all(|(_, rates)| !rates.is_empty()), "{name}");
    }
}

#[test]
fn a_derived_cost_is_assumed_and_lies_within_its_range() {
    let mut machines = Vec::new();
    for &(name, _) in MACHINES.built_in {
        let machine = Machine::named(name).unwrap();
        let is_derived = |cost: &&Quantity| cost.source.starts_with("derived");
        let derived: Vec<&Quantity> =
            machine.costs.known().map(|(_, cost)| cost).filter(is_derived).collect();
        for cost in &derived {
            let [low, high] = cost.range.unwrap();
            assert!(cost.assumed && low < cost.value && cost.value < high, "{name}: {cost:?}");
        }
        machines.extend((!derived.is_empty()).then_some(name));
    }
    let expected = ["ampereone", "grace-4k", "grace-64k", "grace-hpa", "graviton3", "graviton4"];
    assert_eq!(machines, expected);
}

#[test]
fn every_machine_is_written_as_it_is_read() {
    for &(name, _) in MACHINES.built_in {
        let machine = Machine::named(name).unwrap();
        let text = machine.to_toml("line one\n\nline\u{7} two").unwrap();
        assert!(text.starts_with("# line one\n#\n# line  two\n\n"), "{text}");
        assert_eq!(Machine::from_toml(&text, "again").unwrap(), machine, "{name}");
    }
}

#[test]
fn a_machine_that_is_none_is_not_written() {
    type Spoil = fn(&mut Machine);
    let spoils: [(&str, Spoil); 5] = [
        ("costs.fault", |machine| set(&mut machine.costs.fault, f64::NAN)),
        ("costs.fault", |machine| set(&mut machine.costs.fault, 0.0)),
        ("costs.fork_pmd", |machine| set(&mut machine.costs.fork_pmd, -1.0)),
        ("costs.unmap_pmd", |machine| set(&mut machine.costs.unmap_pmd, f64::INFINITY)),
        ("tlb.l1_data", |machine| machine.tlb.l1_data[0].entries = 0),
    ];
    for (place, spoil) in spoils {
        let mut machine = Machine::named("cascadelake").unwrap();
        spoil(&mut machine);
        let error = machine.to_toml("").unwrap_err().to_string();
        assert!(error.contains(place), "{error}");
    }
}

fn set(cost: &mut Option<Quantity>, value: f64) {
    *cost = Some(Quantity {
        value,
        unit: Unit::Ns,
        source: "test".to_owned(),
        assumed: false,
        range: None,
    });
}

#[test]
fn a_name_under_also_is_that_of_no_machine() {
    for &(file, text) in MACHINES.built_in {
        let table: toml::Table = text.parse().unwrap();
        let also = table.get("also").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        for name in also.iter().map(|name| name.as_str().unwrap()) {
            assert_eq!(name, name.to_ascii_lowercase(), "{file}");
            let message = Machine::named(name).unwrap_err().to_string();
            let (_, hint) = message.rsplit_once("did you mean ").unwrap();
            assert!(hint.contains(file), "{file}: {message}");
        }
    }
}
