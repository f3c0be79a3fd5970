//! Hostile files and programs: each is refused, or runs to its end.

use proptest::prelude::*;

use super::*;

/// Runs an accepted policy twice from the start: no trap, and the same answers.
fn runs_the_same(policy: &KernelPolicy) {
    let (mut one, mut other) = (policy.0.start().unwrap(), policy.0.start().unwrap());
    for page in 0..3 {
        let context = Context { page, ra_pages: 32, nr_pages: 1 << 20, ..Context::default() };
        for point in Point::ALL {
            let answer = one.answer(point, &context).unwrap();
            assert_eq!(answer, other.answer(point, &context).unwrap());
        }
    }
}

fn objects() -> impl Strategy<Value = &'static [u8]> {
    let names: Vec<&str> = KernelPolicy::builtin().map(|(name, _)| name).collect();
    prop::sample::select(names).prop_map(|name| builtin::object(name).unwrap())
}

fn register() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0_u8..4, 1 => 4_u8..11]
}

/// An instruction: mostly one that is accepted after others, sometimes anything.
fn instruction() -> impl Strategy<Value = Vec<Insn>> {
    let arithmetic =
        (register(), register(), any::<u8>(), -40_i64..40).prop_map(|(dst, src, op, imm)| {
            let class = if op & 1 == 0 { class::ALU64 } else { class::ALU };
            vec![insn(class | op & 0xf8, dst, src, 0, imm)]
        });
    let swap = (register(), prop::sample::select(vec![16_i64, 32, 64]), any::<u8>());
    let swap = swap.prop_map(|(dst, imm, kind)| {
        let class = if kind & 1 == 0 { class::ALU64 } else { class::ALU };
        vec![insn(class | alu::END | kind & X, dst, 0, 0, imm)]
    });
    let comparison = (register(), register(), any::<u8>(), 0_i16..6, -3_i64..40);
    let comparison = comparison.prop_map(|(dst, src, op, off, imm)| {
        let class = if op & 1 == 0 { class::JMP } else { class::JMP32 };
        vec![insn(class | op & 0xf8, dst, src, off, imm)]
    });
    let offsets = prop_oneof![3 => -40_i16..40, 1 => any::<i16>()];
    let access = (register(), register(), any::<u8>(), offsets, any::<i32>());
    let access = access.prop_map(|(dst, src, kind, off, imm)| {
        let class = [class::LDX, class::ST, class::STX][usize::from(kind % 3)];
        vec![insn(insn::MODE_MEM | class | kind & 0x18, dst, src, off, imm.into())]
    });
    let pointer = (register(), 0_i64..3, 0_i64..24)
        .prop_map(|(dst, section, off)| wide(dst, insn::wide::DATA, section << 32 | off).to_vec());
    let map =
        (1_u8..3, 0_i64..3, any::<bool>(), 1_i64..4).prop_map(|(dst, nr, from_stack, helper)| {
            let mut code = vec![insn(0x7a, 10, 0, -8, nr), insn(0x7a, 10, 0, -16, 3)];
            code.push(insn(0x7a, 10, 0, -24, 4));
            code.extend(wide(dst, insn::wide::MAP, nr));
            code.extend([copy(2, 10), add(2, if from_stack { -8 } else { -2 })]);
            code.extend([copy(3, 10), add(3, -24), mov(4, 0), call(helper)]);
            code
        });
    // bpf_loop with a callback of this file, of another one, or none.
    let repeat = (0_i64..3, 0_i64..70, register(), 0_i64..2, any::<bool>()).prop_map(
        |(nr, count, passed, function, is_stack)| {
            let mut code = vec![insn(0x7a, 10, 0, -8, nr), copy(3, passed)];
            if is_stack {
                code.extend([copy(3, 10), add(3, -8)]);
            }
            code.extend(wide(2, insn::wide::FUNCTION, function));
            code.extend([mov(1, count), mov(4, 0), call(helper::LOOP)]);
            code
        },
    );
    let atomic =
        (register(), register(), -40_i16..40, prop::sample::select(vec![0, 1, 0x51, 0xe1, 0xf1]));
    let atomic = atomic.prop_map(|(dst, src, off, imm)| vec![insn(0xdb, dst, src, off, imm)]);
    let anything = (any::<u8>(), any::<u8>(), any::<u8>(), any::<i16>(), any::<i32>());
    let anything = anything.prop_map(|(code, dst, src, off, imm)| {
        vec![insn(code, dst & 15, src & 15, off, imm.into())]
    });
    let constant = (register(), any::<i32>()).prop_map(|(dst, imm)| vec![mov(dst, imm.into())]);
    prop_oneof![
        6 => arithmetic, 1 => swap, 4 => comparison, 6 => access, 3 => pointer, 3 => map,
        2 => repeat, 1 => atomic, 3 => constant, 1 => anything
    ]
}

fn refused_with(is_it: impl Fn(&str) -> bool, patch: impl Fn(&mut [u8])) -> String {
    use ::object::{Object as _, ObjectSection as _};
    let mut bytes = builtin::object("per-program").unwrap().to_vec();
    let file = ::object::File::parse(&*bytes).unwrap();
    let section = file.sections().find(|section| section.name().is_ok_and(&is_it)).unwrap();
    let (start, size) = section.file_range().unwrap();
    let (start, size) = (usize::try_from(start).unwrap(), usize::try_from(size).unwrap());
    patch(&mut bytes[start..][..size]);
    KernelPolicy::from_object("x", &bytes).unwrap_err().to_string()
}

#[test]
fn a_file_that_says_something_twice_or_beside_the_point_is_refused() {
    // Shift every function symbol by 16 bytes.
    let moved = refused_with(
        |name| name == ".symtab",
        |table| {
            for symbol in table.chunks_mut(24) {
                let is_function = symbol[4] & 15 == 2;
                symbol[8] += if is_function { 16 } else { 0 };
            }
        },
    );
    assert!(moved.contains("it does not begin with its function"), "{moved}");
    // Add a second map at the same place by replacing the function's symbol.
    let crowded = refused_with(
        |name| name == ".symtab",
        |table| {
            let map = table.chunks(24).find(|symbol| symbol[4] & 15 == 1).unwrap().to_vec();
            let function = table.chunks_mut(24).find(|symbol| symbol[4] & 15 == 2).unwrap();
            function[4..].copy_from_slice(&map[4..]);
        },
    );
    assert!(crowded.contains("it overlaps another one"), "{crowded}");
    let twice = refused_with(
        |name| name.starts_with(".rel"),
        |table| {
            let first = table[..8].to_vec();
            table[16..24].copy_from_slice(&first);
        },
    );
    assert!(twice.contains("two relocations patch one instruction"), "{twice}");
}

/// Returns the header's and the sections' byte ranges: first byte and length.
fn ranges(object: &[u8]) -> Vec<(usize, usize)> {
    use ::object::{Object as _, ObjectSection as _};
    const HEADER_BYTES: u64 = 64;
    let file = ::object::File::parse(object).unwrap();
    let sections = file.sections().filter_map(|section| section.file_range());
    let all = sections.filter(|&(_, size)| size > 0).chain([(0, HEADER_BYTES)]);
    all.map(|(start, size)| (start.try_into().unwrap(), size.try_into().unwrap())).collect()
}

fn contexts() -> impl Iterator<Item = Context> {
    let ends = [0, 7, 8, 14, 1 << 31, 1 << 32, 1 << 32 | 3, 1 << 63, u64::MAX];
    ends.into_iter().flat_map(|end| [0, 1, u64::MAX].map(|by| end.wrapping_add(by))).map(|number| {
        let mut context =
            Context { point: number, process: number, page: number, ..Context::default() };
        context.comm = [number.to_le_bytes(), number.to_le_bytes()].concat().try_into().unwrap();
        context
    })
}

/// Compares a number of the context, then adds it to a pointer to variables.
fn bounded() -> impl Strategy<Value = Vec<Insn>> {
    let load = (0_u8..4, 0_i16..10);
    let compare = (any::<bool>(), 1_u8..0xe, prop::sample::select(vec![-1_i64, 0, 1, 7, 8, 9, 15]));
    let shift = (0_u8..4, prop::sample::select(vec![29_i64, 31, 32, 33]), any::<bool>());
    (load, prop::collection::vec(compare, 1..4), shift, 0_u8..4).prop_map(
        |((load, off), compares, (shift, by, is_late), access)| {
            let from_context = insn(insn::MODE_MEM | class::LDX | load << 3, 3, 1, 8 * off, 0);
            let mut code = vec![mov(0, 0), from_context];
            let shifts = match shift {
                0 => vec![],
                1 => vec![insn(class::ALU | alu::MOV | X, 3, 3, 0, 0)],
                kind => {
                    let back = if kind == 2 { alu::RSH } else { alu::ARSH };
                    vec![
                        insn(class::ALU64 | alu::LSH, 3, 0, 0, 32),
                        insn(class::ALU64 | back, 3, 0, 0, by),
                    ]
                }
            };
            // Jump over the remaining comparisons and the access, or to the next instruction.
            let mut left = compares.len() + 4 + if is_late { shifts.len() } else { 0 };
            let compares = compares.into_iter().flat_map(|(is_half, op, imm)| {
                left -= 1;
                let class = if is_half { class::JMP32 } else { class::JMP };
                let off = i16::try_from(left).unwrap();
                [insn(class | op << 4, 3, 0, if op & 1 == 0 { off } else { 0 }, imm)]
            });
            let compares: Vec<Insn> = compares.collect();
            code.extend(if is_late {
                [compares, shifts].concat()
            } else {
                [shifts, compares].concat()
            });
            code.extend(wide(2, insn::wide::DATA, 1 << 32));
            code.push(insn(class::ALU64 | alu::ADD | X, 2, 3, 0, 0));
            code.push(insn(insn::MODE_MEM | class::LDX | access << 3, 0, 2, 0, 0));
            code.push(EXIT);
            code
        },
    )
}

/// A callback is checked at each call, so a small file could ask for much work.
#[test]
fn the_checks_of_callbacks_are_bounded() {
    let mut callback = vec![mov(0, 0); 4_000];
    callback.push(EXIT);
    let calls = |nr: usize| {
        let mut code = Vec::new();
        for _ in 0..nr {
            code.extend([mov(1, 1), mov(3, 0), mov(4, 0)]);
            code.extend(wide(2, insn::wide::FUNCTION, 0));
            code.push(call(helper::LOOP));
        }
        code.push(EXIT);
        let mut parsed = parsed(Point::Around, code.clone());
        parsed.functions = vec![Function { name: "g".to_owned(), code: callback.clone() }];
        let entrance = verify::Entrance::of(Entry::Point(Point::Around));
        verify::check(&code, &parsed, entrance)
    };
    assert_eq!(calls(10), Ok(()));
    let fault = calls(40).unwrap_err();
    assert!(
        fault.what.contains("more than 65536 instructions would have to be checked"),
        "{fault:?}"
    );
}

/// A run that only loops ends, and so does one that only calls helpers.
#[test]
fn a_run_is_bounded() {
    let code = [
        &[insn(0x7a, 10, 0, -8, 0), mov(1, 1 << 22), copy(3, 10), add(3, -8), mov(4, 0)][..],
        &wide(2, insn::wide::FUNCTION, 0),
        &[call(helper::LOOP), EXIT],
    ]
    .concat();
    assert_eq!(fault_at(Point::Around, &code), None);
    let error = running(parsed(Point::Around, code)).answer(Point::Around, &Context::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("more than 1048576 instructions"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_types_are_refused_or_read(
        random in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        use ::object::{Object as _, ObjectSection as _};
        let object = builtin::object("mthp-pressure").unwrap();
        let file = ::object::File::parse(object).unwrap();
        let mut bytes = file.section_by_name(".BTF").unwrap().data().unwrap().to_vec();
        for (at, value) in random {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let cut = cut.index(2 * bytes.len());
        bytes.truncate(cut);
        if let Some(btf) = btf::Btf::parse(&bytes) {
            for nr in 0..64 {
                let members = btf.structure(nr).map_or(vec![], |(_, members)| members);
                for member in members {
                    let _ = (btf.number(member.of_type), btf.pointed_bytes(member.of_type));
                }
            }
        }
    }

    #[test]
    fn an_object_with_random_bytes_in_a_section_is_refused_or_runs(
        object in objects(),
        section in any::<prop::sample::Index>(),
        start in any::<prop::sample::Index>(),
        random in prop::collection::vec(any::<u8>(), 1..64),
    ) {
        let mut bytes = object.to_vec();
        let ranges = ranges(object);
        let (first, size) = ranges[section.index(ranges.len())];
        let start = start.index(size);
        let nr = random.len().min(size - start);
        bytes[first + start..][..nr].copy_from_slice(&random[..nr]);
        if let Ok(policy) = KernelPolicy::from_object("x", &bytes) {
            runs_the_same(&policy);
        }
    }

    #[test]
    fn a_damaged_object_is_refused_or_runs(
        object in objects(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = object.to_vec();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(policy) = KernelPolicy::from_object("x", &bytes) {
            runs_the_same(&policy);
        }
    }

    #[test]
    fn what_the_verifier_lets_through_never_traps(
        parts in prop::collection::vec(instruction(), 1..24),
    ) {
        // Set every register to a number, so that more programs pass.
        let mut code = vec![mov(0, 1), mov(2, 9), mov(3, 3)];
        code.extend(parts.into_iter().flatten());
        code.extend([mov(0, 2), EXIT]);
        // Remove refused instructions one by one.
        for _ in 0..code.len() {
            let object = parsed(Point::Window, code.clone());
            let entrance = verify::Entrance::of(Entry::Point(Point::Window));
            let Err(fault) = verify::check(&code, &object, entrance) else { break };
            let nr = if code[fault.at].code == insn::LDDW { 2 } else { 1 };
            code.drain(fault.at..(fault.at + nr).min(code.len()));
            prop_assume!(!code.is_empty());
        }
        if fault_at(Point::Window, &code).is_none() {
            let policy = running(parsed(Point::Window, code.clone()));
            let mut policy = policy;
            for context in contexts() {
                let answer = policy.answer(Point::Window, &context);
                prop_assert!(answer.is_ok(), "{:?}: {:#?}", answer, code);
            }
        }
    }
}

/// After any comparison, adding the number keeps a pointer inside its object, or the program is
/// refused. Both cases occur.
#[test]
fn a_number_that_was_compared_moves_no_pointer_out_of_its_thing() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut nr_run, mut nr_refused) = (0, 0);
    for _ in 0..20_000 {
        let code = bounded().new_tree(&mut runner).unwrap().current();
        if fault_at(Point::Around, &code).is_some() {
            nr_refused += 1;
            continue;
        }
        nr_run += 1;
        let mut policy = running(parsed(Point::Around, code.clone()));
        for context in contexts() {
            let answer = policy.answer(Point::Around, &context);
            assert!(answer.is_ok(), "{answer:?} of {context:?}: {code:#?}");
        }
    }
    assert!(nr_run > 1_000 && nr_refused > 1_000, "{nr_run} run, {nr_refused} are refused");
}
