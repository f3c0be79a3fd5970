//! Files and programs of anybody's making: an error, or a program that runs to its end.

use proptest::prelude::*;

use super::*;

/// Runs what was accepted, twice from the start: no trap, and the same answers.
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

/// A register that programs use.
fn register() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0_u8..4, 1 => 4_u8..11]
}

/// An instruction: likely to be accepted after others, and now and then anything.
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
    let anything = (any::<u8>(), any::<u8>(), any::<u8>(), any::<i16>(), any::<i32>());
    let anything = anything.prop_map(|(code, dst, src, off, imm)| {
        vec![insn(code, dst & 15, src & 15, off, imm.into())]
    });
    let constant = (register(), any::<i32>()).prop_map(|(dst, imm)| vec![mov(dst, imm.into())]);
    prop_oneof![6 => arithmetic, 1 => swap, 4 => comparison, 6 => access, 3 => pointer, 3 => map, 3 => constant, 1 => anything]
}

/// What is wrong with `per-program` after `patch` changed the section that `is_it` chooses.
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
    // Every symbol begins 16 bytes further on: functions, and maps.
    let moved = refused_with(
        |name| name == ".symtab",
        |table| {
            for symbol in table.chunks_mut(24) {
                let is_function = symbol[4] & 15 == 2;
                symbol[8] += if is_function { 16 } else { 0 };
            }
        },
    );
    assert!(moved.contains("its function does not begin it"), "{moved}");
    // A second map of the same place: the function's symbol is one as well.
    let crowded = refused_with(
        |name| name == ".symtab",
        |table| {
            let map = table.chunks(24).find(|symbol| symbol[4] & 15 == 1).unwrap().to_vec();
            let function = table.chunks_mut(24).find(|symbol| symbol[4] & 15 == 2).unwrap();
            function[4..].copy_from_slice(&map[4..]);
        },
    );
    assert!(crowded.contains("it stands where another one does"), "{crowded}");
    let twice = refused_with(
        |name| name.starts_with(".rel"),
        |table| {
            let first = table[..8].to_vec();
            table[16..24].copy_from_slice(&first);
        },
    );
    assert!(twice.contains("two relocations are of one instruction"), "{twice}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_are_no_policy(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert!(KernelPolicy::from_object("x", &bytes).is_err());
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
        // Every register holds a number, so that more is let through.
        let mut code = vec![mov(0, 1), mov(2, 9), mov(3, 3)];
        code.extend(parts.into_iter().flatten());
        code.extend([mov(0, 2), EXIT]);
        // What does not pass is cut out, one instruction after the other.
        for _ in 0..code.len() {
            let found = parsed(Point::Window, code.clone());
            let Err(fault) = verify::check(&code, &found, Point::Window) else { break };
            let nr = if code[fault.at].code == insn::LDDW { 2 } else { 1 };
            code.drain(fault.at..(fault.at + nr).min(code.len()));
            prop_assume!(!code.is_empty());
        }
        if fault_at(Point::Window, &code).is_none() {
            let policy = running(parsed(Point::Window, code.clone()));
            let mut policy = policy;
            for page in 0..3 {
                let context = Context { page, ..Context::default() };
                let answer = policy.answer(Point::Window, &context);
                prop_assert!(answer.is_ok(), "{:?}: {:#?}", answer, code);
            }
        }
    }
}
