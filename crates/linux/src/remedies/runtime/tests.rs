//! Table rows with synthetic programs.

use proptest::prelude::*;

use super::*;
use crate::program::start::Start;

fn matching_row(traits: &Traits, wanted: &Wanted) -> &'static str {
    Runtime::of(traits, wanted).map_or("", |row| row.name.as_str())
}

const START: u64 = 0x7f00_0000_1000;

fn anon(start: u64) -> Wanted {
    of_length(start, 4 << 20, 2 << 20)
}

fn of_length(start: u64, bytes: u64, pmd_bytes: u64) -> Wanted {
    let range = start..start + bytes;
    Wanted {
        memory: Memory::Anon,
        range,
        is_heap: false,
        pmd_bytes,
        is_disabled: false,
        longest_chunk: None,
        is_arena: None,
        is_object_arena: false,
        is_own_heap: true,
    }
}

#[test]
fn the_table_is_whole() {
    let table: Table = toml::from_str(include_str!("../runtimes.toml")).unwrap();
    for row in &table.runtime {
        let names = [&row.objects, &row.programs, &row.notes, &row.constants, &row.allocators];
        let is_reported = row.foreign || names.iter().any(|names| !names.is_empty());
        assert!(is_reported && !row.cost.is_empty() && row.source.len() > 8, "{}", row.name);
    }
}

fn line(traits: &Traits, wanted: &Wanted) -> String {
    match Runtime::of(traits, wanted).unwrap().start(traits) {
        Started::As { line, .. } => line,
        other => panic!("{other:?}"),
    }
}

fn named(program: &str, name: &str, allocator: &str) -> Traits {
    Traits {
        program: program.into(),
        name: name.to_owned(),
        allocator: allocator.to_owned(),
        objects: vec!["libc.so.6".to_owned()],
        typed: vec![name.into()],
        ..Traits::default()
    }
}

#[test]
fn an_application_comes_before_its_allocator() {
    let mut traits = named("/usr/bin/redis-check-rdb", "redis-server", "libjemalloc.so.2");
    let wanted = anon(START);
    assert_eq!(matching_row(&traits, &wanted), "Redis");
    assert_eq!(line(&traits, &wanted), "MALLOC_CONF=thp:always redis-server ..");
    traits = named("/opt/server", "server", "libjemalloc.so.2");
    assert_eq!(matching_row(&traits, &wanted), "jemalloc");
    traits.allocator = "libc.so.6".to_owned();
    assert_eq!(matching_row(&traits, &wanted), "glibc");
    traits.notes.push("Go".to_owned());
    assert_eq!(matching_row(&traits, &wanted), "Go");
    let shared = Wanted { memory: Memory::Shmem, ..wanted };
    assert_eq!(matching_row(&traits, &shared), "");
}

#[test]
fn an_allocator_that_is_linked_in_is_told_by_its_constants() {
    let mut traits = named("/opt/redis-server", "redis-server", "libc.so.6");
    let start = |traits: &Traits| line(traits, &anon(START));
    assert!(start(&traits).starts_with("GLIBC_TUNABLES="), "Redis with malloc of glibc");
    traits.constants.push("JE_MALLOC_CONF".to_owned());
    assert_eq!(start(&traits), "JE_MALLOC_CONF=thp:always redis-server ..");
    let cost = &Runtime::of(&traits, &anon(START)).unwrap().cost;
    assert!(cost.contains("fork"), "{cost}");
    traits = Traits { constants: traits.constants, ..named("/opt/x", "x", "libc.so.6") };
    assert_eq!(start(&traits), "JE_MALLOC_CONF=thp:always x ..");
    traits.constants = vec!["_RJEM_MALLOC_CONF".to_owned()];
    assert_eq!(start(&traits), "_RJEM_MALLOC_CONF=thp:always x ..");
    traits.constants = vec!["MALLOC_CONF".to_owned()];
    assert_eq!(start(&traits), "MALLOC_CONF=thp:always x ..");
}

#[test]
fn the_tunables_of_glibc_are_for_its_own_malloc_alone() {
    for (allocator, row) in [
        ("x", "an allocator of its own"),
        ("libhoard.so", "an allocator of its own"),
        ("libmimalloc.so.2.0", "mimalloc"),
        ("libtcmalloc_minimal.so.4", "tcmalloc"),
        ("libc.so.6", "glibc"),
        ("", ""),
    ] {
        assert_eq!(
            matching_row(&named("/opt/x", "x", allocator), &anon(START)),
            row,
            "{allocator}"
        );
    }
    let python = named("/usr/bin/python3", "python3", "libjemalloc.so.2");
    assert!(matching_row(&python, &anon(START)).starts_with("CPython, memory of mmap"));
    let linked = Traits { constants: vec!["mimalloc: ".to_owned()], ..named("/x", "x", "x") };
    assert_eq!(matching_row(&linked, &anon(START)), "mimalloc, linked in");
}

#[test]
fn memory_that_malloc_did_not_map_is_told_by_its_address() {
    let traits = named("/opt/x", "x", "libc.so.6");
    let of = |start| matching_row(&traits, &anon(start));
    assert_eq!(of(0x7f00_0000_1000), "glibc");
    assert_eq!(of(0x7f00_0000_0000), "glibc, memory of threads");
    assert_eq!(of(0x7f00_0020_0000), "", "a mapping of whole blocks is the program's own");
    let longer = of_length(0x7f00_0000_0000, 65 << 20, 2 << 20);
    assert_eq!(matching_row(&traits, &longer), "", "no arena is longer than 64 MiB");
}

#[test]
fn a_request_to_malloc_tells_its_memory_from_that_of_the_program() {
    let traits = named("/opt/x", "x", "libc.so.6");
    let odd = anon(0x7f00_0000_1000);
    let with = |longest_chunk| matching_row(&traits, &Wanted { longest_chunk, ..odd.clone() });
    assert_eq!([with(Some(2 << 20)), with(None), with(Some(0))], ["glibc", "glibc", ""]);
    assert_eq!(with(Some((2 << 20) - 4096)), "", "it advises no request below a PMD entry");
}

#[test]
fn arenas_of_python_are_told_from_what_it_maps_itself() {
    let of = |allocator: &str, longest_chunk, is_object_arena| {
        let longest_chunk = Some(longest_chunk);
        let wanted = Wanted { longest_chunk, is_object_arena, ..anon(START) };
        matching_row(&named("/usr/bin/python3", "python3", allocator), &wanted)
    };
    let (libc, other) = ("libc.so.6", "libjemalloc.so.2");
    assert_eq!([of(libc, 0, true), of(libc, 2 << 20, false)], ["CPython"; 2]);
    assert_eq!(of(libc, 0, false), "CPython, memory of mmap");
    assert_eq!(of(other, 0, true), "CPython, memory of objects", "no setting makes it larger");
    assert_eq!(of(other, 0, false), "CPython, memory of mmap");
}

#[test]
fn an_option_for_a_heap_is_for_no_other_memory() {
    let traits = Traits {
        objects: vec!["libjvm.so".to_owned()],
        ..named("/usr/bin/java", "java", "libc.so.6")
    };
    let of = |longest_chunk, is_own_heap, start| {
        let longest_chunk = Some(longest_chunk);
        matching_row(&traits, &Wanted { longest_chunk, is_own_heap, ..anon(start) })
    };
    let other = "OpenJDK, memory outside its heap";
    assert_eq!(of(0, true, START), "OpenJDK");
    assert_eq!(of(0, false, START), other, "a table of the collector");
    assert_eq!(of(0, false, 0x7f00_0000_0000), other, "an arena");
    assert_eq!(of(2 << 20, false, START), "glibc", "a direct buffer");
}

#[test]
fn an_arena_is_known_by_its_address_and_what_it_begins_with() {
    let traits = named("/opt/x", "x", "libc.so.6");
    let with = |is_arena| matching_row(&traits, &Wanted { is_arena, ..anon(0x7f00_0000_0000) });
    assert_eq!(with(Some(true)), "glibc, memory of threads");
    assert_eq!([with(None), with(Some(false))], ["glibc, memory of threads", ""]);
}

#[test]
fn malloc_advises_no_mapping_below_a_pmd_entry() {
    let traits = named("/opt/x", "x", "libc.so.6");
    let of =
        |bytes, pmd_bytes| matching_row(&traits, &of_length(0x7f00_0001_0000, bytes, pmd_bytes));
    for pmd_bytes in [2 << 20, 32 << 20, 512 << 20] {
        assert_eq!(of(pmd_bytes - 1, pmd_bytes), "", "{pmd_bytes}");
        assert_eq!(of(pmd_bytes, pmd_bytes), "glibc", "{pmd_bytes}");
    }
    let heap = Wanted { is_heap: true, ..of_length(0xaaaa_0001_0000, 1 << 20, 512 << 20) };
    assert_eq!(matching_row(&traits, &heap), "glibc", "the heap grows in steps of 512 MiB then");
}

fn started(arguments: &[&str], variables: &[(&str, &str)]) -> Traits {
    let arguments: Vec<_> = arguments.iter().map(|&word| word.into()).collect();
    let variables = variables.iter().map(|&(name, value)| (name.into(), value.into()));
    let variables = Some(variables.chain([("HOME".into(), "/".into())]).collect());
    let start = Start { arguments, variables, ..Start::default() };
    Traits { start, ..named("/usr/bin/x", "x", "libc.so.6") }
}

#[test]
fn an_option_stands_after_the_program_and_a_variable_before_it() {
    let java = |start: Traits| Traits {
        objects: vec!["libjvm.so".to_owned()],
        name: "java".to_owned(),
        ..start
    };
    let of = |arguments: &[&str], variables: &[(&str, &str)]| {
        let traits = java(started(arguments, variables));
        Runtime::of(&traits, &anon(START)).unwrap().start(&traits)
    };
    let on = "-XX:+UseTransparentHugePages";
    let off = "-XX:-UseTransparentHugePages";
    let line = |started: Started| match started {
        Started::As { line, notes } => (line, notes.join("; ")),
        other => panic!("{other:?}"),
    };
    let plain = (format!("x {on} .."), String::new());
    assert_eq!(line(of(&["x", "-jar", "a"], &[])), plain);
    assert_eq!(line(of(&["x"], &[("JAVA_TOOL_OPTIONS", off)])), plain, "it is overruled");
    let (line_of_command, note) = line(of(&["x", off], &[]));
    assert!(line_of_command == plain.0 && note.contains(off), "{note}");
    let (line_of_command, note) = line(of(&["x", on], &[("_JAVA_OPTIONS", off)]));
    assert_eq!(line_of_command, format!("_JAVA_OPTIONS='{off} {on}' x .."));
    assert!(note.contains(off));
    let embedded = Traits { name: "soffice".to_owned(), ..java(started(&["x"], &[])) };
    let embedded = Runtime::of(&embedded, &anon(START)).unwrap().start(&embedded);
    assert_eq!(line(embedded).0, format!("JAVA_TOOL_OPTIONS={on} x .."));
    for (arguments, variables) in [
        (vec!["x", on], vec![]),
        (vec!["x", off, on], vec![("JAVA_TOOL_OPTIONS", off)]),
        (vec!["x"], vec![("JAVA_TOOL_OPTIONS", "-Xmx1g -XX:+UseTransparentHugePages")]),
        (vec!["x", off], vec![("_JAVA_OPTIONS", on)]),
    ] {
        assert_eq!(of(&arguments, &variables), Started::Already(on.to_owned()), "{arguments:?}");
    }
}

#[test]
fn variables_are_merged_said_to_be_in_effect_or_ignored() {
    let start = |traits: &Traits| Runtime::of(traits, &anon(START)).unwrap().start(traits);
    let tunables = "glibc.pthread.rseq=0";
    let traits = started(&["x"], &[("GLIBC_TUNABLES", tunables)]);
    let line = format!("GLIBC_TUNABLES={tunables}:glibc.malloc.hugetlb=1 x ..");
    assert_eq!(start(&traits), Started::As { line, notes: Vec::new() });
    let traits = started(&["x"], &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:a.b.c=d")]);
    assert!(matches!(start(&traits), Started::Already(what) if what.contains("hugetlb=1")));
    let mut traits = started(&["x"], &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")]);
    let Started::As { notes, .. } = start(&traits) else { panic!("it is new") };
    assert!(notes[0].contains("glibc.malloc.hugetlb=2"), "{notes:?}");
    traits.start.is_secure = true;
    assert_eq!(start(&traits), Started::Ignored);
    let unseen = Start { variables: None, ..started(&["x"], &[]).start };
    let traits = Traits { start: unseen, ..traits };
    let Started::As { notes, .. } = start(&traits) else { panic!("it is new") };
    assert!(notes[0].contains("cannot be read"), "{notes:?}");
}

proptest! {
    /// A shell runs the printed line with the program's old variables and the merged one.
    #[test]
    fn a_shell_understands_the_line(
        // A shell keeps its own values in IFS, PWD and other variables.
        others in proptest::collection::vec(("V_[A-Z]{1,6}", "[ -~]{0,9}"), 0..4),
        tunables in proptest::option::of("[ -~&&[^:=]]{0,6}=[ -~&&[^:=]]{0,6}"),
        word in "[ -~]{1,9}",
    ) {
        let mut variables: Vec<(&str, &str)> =
            others.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        variables.extend(tunables.as_ref().map(|text| ("GLIBC_TUNABLES", text.as_str())));
        let mut traits = started(&["x", "a"], &variables);
        traits.typed = vec!["env".into(), "-0".into(), format!("Z_Z={word}").into()];
        let line = line(&traits, &anon(START));
        let mut command = std::process::Command::new("sh");
        command.args(["-c", line.strip_suffix(" ..").unwrap()]).env_clear();
        let old: std::collections::BTreeMap<&str, &str> = variables.into_iter().collect();
        command.envs(old.iter()).env("PATH", "/usr/bin:/bin");
        let output = command.output().unwrap().stdout;
        let text = String::from_utf8(output).unwrap();
        let mut got: std::collections::BTreeMap<&str, &str> =
            text.split_terminator('\0').filter_map(|line| line.split_once('=')).collect();
        prop_assert_eq!(got.remove("Z_Z"), Some(word.as_str()));
        let value = got.remove("GLIBC_TUNABLES").unwrap();
        let kept = tunables.as_ref().map(|text| format!("{text}:")).unwrap_or_default();
        prop_assert_eq!(value, format!("{kept}glibc.malloc.hugetlb=1"));
        for (name, value) in old {
            prop_assert!(name == "GLIBC_TUNABLES" || got.get(name) == Some(&value), "{}", name);
        }
    }
}
