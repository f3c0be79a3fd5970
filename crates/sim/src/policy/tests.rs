//! Accepted and refused programs, their results, and hostile files. `tests/sim/policies.rs` tests
//! the examples' effect on a replay.

mod hostile;
mod meaning;
mod refused;

use largefolio_mm::policy::{Context, Point, admit, area, cause, folio, victim, write};

use super::insn::{Insn, alu, class, helper, jump};
use super::maps::{MapKind, MapSpec};
use super::object::{Function, Parsed, Section};
use super::*;

const X: u8 = insn::IS_REGISTER;

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i64) -> Insn {
    Insn { code, dst, src, off, imm }
}

const fn mov(dst: u8, imm: i64) -> Insn {
    insn(class::ALU64 | alu::MOV, dst, 0, 0, imm)
}

const fn copy(dst: u8, src: u8) -> Insn {
    insn(class::ALU64 | alu::MOV | X, dst, src, 0, 0)
}

const fn add(dst: u8, imm: i64) -> Insn {
    insn(class::ALU64 | alu::ADD, dst, 0, 0, imm)
}

const fn load(dst: u8, src: u8, off: i16) -> Insn {
    insn(0x79, dst, src, off, 0)
}

const fn store(dst: u8, off: i16, src: u8) -> Insn {
    insn(0x7b, dst, src, off, 0)
}

const fn call(nr: i64) -> Insn {
    insn(class::JMP | jump::CALL, 0, 0, 0, nr)
}

/// Adds its index to the number that its caller passed.
const CALLBACK: [Insn; 5] =
    [load(3, 2, 0), insn(class::ALU64 | alu::ADD | X, 3, 1, 0, 0), store(2, 0, 3), mov(0, 0), EXIT];

const EXIT: Insn = insn(class::JMP | jump::EXIT, 0, 0, 0, 0);

const fn wide(dst: u8, src: u8, imm: i64) -> [Insn; 2] {
    [insn(insn::LDDW, dst, src, 0, imm), insn(insn::FILLER, 0, 0, 0, 0)]
}

/// A constant and a variable of 16 bytes each, a hash map and an array, with `code` at `point`.
/// [`CALLBACK`] is a function.
fn parsed(point: Point, code: Vec<Insn>) -> Parsed {
    let section = |is_writable| Section { bytes: vec![7; 16], is_writable, is_zeroed: false };
    let map = |kind, key_bytes| MapSpec {
        name: "m".to_owned(),
        kind,
        key_bytes,
        value_bytes: 16,
        nr_max: 4,
    };
    let function = |code: Vec<Insn>| Function { name: "f".to_owned(), code };
    Parsed {
        programs: [(Entry::Point(point), function(code))].into(),
        functions: vec![function(CALLBACK.to_vec())],
        interface: None,
        interval_ns: None,
        maps: vec![map(MapKind::Hash, 8), map(MapKind::Array, 4)],
        data: vec![section(false), section(true)],
    }
}

fn fault_at(point: Point, code: &[Insn]) -> Option<String> {
    let parsed = parsed(point, code.to_vec());
    let entrance = verify::Entrance::of(Entry::Point(point));
    verify::check(code, &parsed, entrance)
        .err()
        .map(|fault| format!("{}: {}", fault.at, fault.what))
}

fn running(parsed: Parsed) -> Native {
    Native(Running::new(Arc::new(parsed)))
}

#[test]
fn the_header_names_the_context_and_the_numbers() {
    let header = include_str!("../../policies/folio_policy.h");
    let (_, body) = header.split_once("struct folio_context {").unwrap();
    let (body, _) = body.split_once("};").unwrap();
    let declared = body.lines().map(str::trim).filter(|line| !line.starts_with(['*', '/']));
    let fields: Vec<&str> =
        declared.filter_map(|line| line.split_once(';')).map(|(name, _)| name).collect();
    let later = Context::LATER_NAMES;
    let names = Context::NAMES.iter().take(Context::NAMES.len() - later.len());
    let number = |name: &&str| format!("__u64 {name}");
    let mut expected = vec!["char comm[16]".to_owned()];
    expected.extend(names.map(number));
    expected.push(format!("__u64 free[{}]", largefolio_mm::policy::NR_FREE));
    expected.extend(later.iter().map(number));
    assert_eq!(fields, expected);
    let nr_words = fields.len() - 2 + 2 + largefolio_mm::policy::NR_FREE;
    assert_eq!(Context::default().bytes().len(), 8 * nr_words);
    let number = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        let text = line.unwrap_or_else(|| panic!("{name} is not defined"));
        let text = text.split("/*").next().unwrap().trim();
        match text.strip_prefix("(1 << ") {
            Some(shift) => 1 << shift.trim_end_matches(')').parse::<u32>().unwrap(),
            None => text.parse::<u64>().unwrap(),
        }
    };
    for (name, value) in [
        ("FOLIO_READ", area::READ),
        ("FOLIO_WRITE", area::WRITE),
        ("FOLIO_EXEC", area::EXEC),
        ("FOLIO_SHARED", area::SHARED),
        ("FOLIO_FILE", area::FILE),
        ("FOLIO_HUGEPAGE", area::HUGEPAGE),
        ("FOLIO_NOHUGEPAGE", area::NOHUGEPAGE),
        ("FOLIO_RANDOM", area::RANDOM),
        ("FOLIO_SEQUENTIAL", area::SEQUENTIAL),
        ("FOLIO_ANON", folio::ANON),
        ("FOLIO_DIRTY", folio::DIRTY),
        ("FOLIO_PARTIAL", folio::PARTIAL),
        ("FOLIO_COLD", cause::COLD),
        ("FOLIO_GATED", cause::GATED),
        ("FOLIO_MARKER", cause::MARKER),
        ("FOLIO_REUSE", write::REUSE),
        ("FOLIO_COPY", write::COPY),
        ("FOLIO_EVICT", victim::EVICT),
        ("FOLIO_KEEP", victim::KEEP),
        ("FOLIO_SPLIT", victim::SPLIT),
        ("FOLIO_CACHE", admit::CACHE),
        ("FOLIO_BYPASS", admit::BYPASS),
        ("FOLIO_HASH", 1),
        ("FOLIO_ARRAY", 2),
    ] {
        assert_eq!(number(name), value, "{name}");
    }
    for point in Point::ALL {
        assert!(header.contains(&format!("folio/{}", point.name())), "{}", point.name());
    }
    for number in [helper::WINDOW, helper::LOOP] {
        assert!(header.contains(&format!("(void *){number};")));
    }
}

#[test]
fn every_policy_that_comes_with_folio_is_verified_and_runs() {
    assert!(KernelPolicy::builtin().count() >= 4);
    for (name, _) in KernelPolicy::builtin() {
        let policy = KernelPolicy::named(name).unwrap();
        assert_eq!(policy, KernelPolicy::named(name).unwrap());
        let mut running = policy.0.start().unwrap();
        assert!(Point::ALL.iter().any(|&point| running.handles(point)), "{name}");
        for point in Point::ALL {
            running.answer(point, &Context::default()).unwrap();
        }
    }
    let unknown = KernelPolicy::named("exec-ordr").unwrap_err().to_string();
    assert!(unknown.contains("did you mean exec-order"), "{unknown}");
    let missing = KernelPolicy::named("/nonexistent/x.o").unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/x.o"), "{missing}");
}
