//! The meaning of instructions.

use super::*;

fn run(point: Point, code: Vec<Insn>, context: &Context) -> Answer {
    assert_eq!(fault_at(point, &code), None);
    running(parsed(point, code)).answer(point, context).unwrap()
}

#[test]
fn arithmetic_has_64_bits_or_the_lower_32_and_never_traps() {
    const MINUS: u64 = u64::MAX;
    let cases: [(u8, u64, u64, u64, u64); 14] = [
        (alu::ADD, MINUS, 2, 1, 1),
        (alu::SUB, 1, 2, MINUS, 0xffff_ffff),
        (alu::MUL, 1 << 33, 3, 3 << 33, 0),
        (alu::DIV, 7, 0, 0, 0),
        (alu::DIV, MINUS, 2, MINUS / 2, 0x7fff_ffff),
        (alu::MOD, 7, 0, 7, 7),
        (alu::MOD, 7, 4, 3, 3),
        (alu::OR, 1 << 40, 1, 1 << 40 | 1, 1),
        (alu::AND, MINUS, 1 << 40, 1 << 40, 0),
        (alu::XOR, 5, 6, 3, 3),
        (alu::LSH, 1, 33, 1 << 33, 2),
        (alu::RSH, 1 << 40, 33, 1 << 7, 0),
        (alu::ARSH, MINUS << 4, 2, MINUS << 2, 0xffff_fffc),
        (alu::MOV, 0, MINUS, MINUS, 0xffff_ffff),
    ];
    for (op, a, b, wide_result, narrow_result) in cases {
        for (class, expected) in [(class::ALU64, wide_result), (class::ALU, narrow_result)] {
            let code = [
                &wide(0, insn::wide::NUMBER, a.cast_signed())[..],
                &wide(2, insn::wide::NUMBER, b.cast_signed()),
                &[insn(class | op | X, 0, 2, 0, 0), EXIT],
            ];
            let answer = run(Point::Around, code.concat(), &Context::default());
            let is_own = [OWN, OWN_OF_INT].contains(&expected);
            let expected = if is_own { Answer::Own } else { Answer::Value(expected) };
            assert_eq!(answer, expected, "{op:#x} of class {class} on {a:#x} and {b:#x}");
        }
    }
}

#[test]
fn comparisons_have_a_sign_or_none_in_64_and_32_bits() {
    const LARGE: u64 = 0xffff_ffff_8000_0000;
    let holds = |class: u8, op: u8, a: u64, b: u64| {
        let code = [
            &wide(3, insn::wide::NUMBER, a.cast_signed())[..],
            &wide(4, insn::wide::NUMBER, b.cast_signed()),
            &[mov(0, 1), insn(class | op | X, 3, 4, 1, 0), mov(0, 0), EXIT],
        ];
        run(Point::Around, code.concat(), &Context::default()) == Answer::Value(1)
    };
    for class in [class::JMP, class::JMP32] {
        assert!(holds(class, jump::JGT, LARGE, 1) && !holds(class, jump::JSGT, LARGE, 1));
        assert!(holds(class, jump::JGE, 1, 1) && holds(class, jump::JSGE, 1, LARGE));
        assert!(holds(class, jump::JLT, 1, LARGE) && holds(class, jump::JSLT, LARGE, 1));
        assert!(holds(class, jump::JLE, 1, 1) && holds(class, jump::JSLE, LARGE, LARGE));
        assert!(holds(class, jump::JEQ, 3, 3) && holds(class, jump::JNE, 3, 4));
        assert!(holds(class, jump::JSET, 6, 2) && !holds(class, jump::JSET, 4, 2));
    }
    assert!(holds(class::JMP32, jump::JEQ, 1 << 32 | 3, 3));
    assert!(!holds(class::JMP, jump::JEQ, 1 << 32 | 3, 3));
}

#[test]
fn bytes_are_swapped_in_16_32_and_64_bits() {
    let swap = |code: u8, imm: i64| {
        let number = 0x0102_0304_0506_0708_i64;
        let code = [&wide(0, 0, number)[..], &[insn(code, 0, 0, 0, imm), EXIT]].concat();
        run(Point::Around, code, &Context::default())
    };
    let to_big = class::ALU | alu::END | X;
    assert_eq!(swap(to_big, 16), Answer::Value(0x0807));
    assert_eq!(swap(to_big, 32), Answer::Value(0x0807_0605));
    assert_eq!(swap(to_big, 64), Answer::Value(0x0807_0605_0403_0201));
    assert_eq!(swap(class::ALU | alu::END, 16), Answer::Value(0x0708));
    assert_eq!(swap(class::ALU64 | alu::END, 32), Answer::Value(0x0807_0605));
}

#[test]
fn a_program_reads_every_number_of_its_context() {
    let mut context = Context { page: 0x1234_5678_9abc, ..Context::default() };
    context.comm[..3].copy_from_slice(b"cc1");
    context.free[13] = 77;
    context.wanted = 78;
    let word = |nr: usize| {
        let code = vec![load(0, 1, i16::try_from(8 * nr).unwrap()), EXIT];
        run(Point::Around, code, &context)
    };
    assert_eq!(word(0), Answer::Value(u64::from_le_bytes(*b"cc1\0\0\0\0\0")));
    let page = Context::NAMES.iter().position(|&name| name == "page").unwrap();
    assert_eq!(word(2 + page), Answer::Value(0x1234_5678_9abc));
    assert_eq!(word(largefolio_mm::policy::NR_KERNEL_WORDS - 1), Answer::Value(77));
    assert_eq!(word(largefolio_mm::policy::NR_CONTEXT_WORDS - 1), Answer::Value(78));
}

#[test]
fn maps_and_variables_live_from_question_to_question() {
    // *variable += 1; return it.
    let code = [
        &wide(2, insn::wide::DATA, 1 << 32)[..],
        &[load(0, 2, 0), add(0, 1), store(2, 0, 0), EXIT],
    ];
    let mut counting = running(parsed(Point::Around, code.concat()));
    let mut next_answer = || counting.answer(Point::Around, &Context::default()).unwrap();
    let first = u64::from_le_bytes([7; 8]);
    assert_eq!(
        [next_answer(), next_answer()],
        [Answer::Value(first + 1), Answer::Value(first + 2)]
    );
}

#[test]
fn a_window_is_set_by_its_helper() {
    let code = vec![mov(1, 1), mov(2, 2), mov(3, 3), mov(4, 4), call(helper::WINDOW), EXIT];
    let answer = run(Point::Window, code, &Context::default());
    let window = largefolio_mm::policy::Window { start: 1, nr_pages: 2, nr_ahead: 3, order: 4 };
    assert_eq!(answer, Answer::Window(window));
    for class in [class::ALU64, class::ALU] {
        let own = vec![insn(class | alu::MOV, 0, 0, 0, -1), EXIT];
        assert_eq!(run(Point::Window, own, &Context::default()), Answer::Own);
    }
}

#[test]
fn an_answer_counts_what_ran_in_steps() {
    let steps = |code: Vec<Insn>| {
        let mut policy = running(parsed(Point::Around, code));
        policy.answer(Point::Around, &Context::default()).unwrap();
        policy.nr_steps()
    };
    assert_eq!(steps(vec![mov(0, 1), EXIT]), 0);
    assert_eq!(steps([vec![mov(0, 1); 159], vec![EXIT]].concat()), 10);
    let over = vec![mov(0, 1), insn(class::JMP | jump::JA, 0, 0, 157, 0)];
    assert_eq!(steps([over, vec![mov(0, 1); 157], vec![EXIT]].concat()), 0);
    // Five instructions; the lookup costs 64, and its 8-byte key one.
    let lookup = [
        &[insn(0x7a, 10, 0, -8, 5)][..],
        &wide(1, insn::wide::MAP, 0),
        &[copy(2, 10), add(2, -8), call(helper::MAP_LOOKUP)],
    ];
    let lookups = [lookup.concat().repeat(16), vec![mov(0, 1), EXIT]].concat();
    assert_eq!(steps(lookups), (16 * (5 + 64 + 1) + 2) / 16);
}

/// Each call of `folio_window` becomes a call of a function at the end, and nothing else changes.
#[test]
fn programs_for_a_kernel_call_only_code_that_they_have() {
    for (name, _) in KernelPolicy::builtin() {
        let policy = KernelPolicy::named(name).unwrap();
        let image = match policy.for_kernel() {
            Err(error) if error.to_string().contains("only with the posted patches") => continue,
            image => image.unwrap().unwrap(),
        };
        for program in &image.programs {
            let calls = program.code.iter().enumerate().filter(|(_, insn)| insn[0] == 0x85);
            let mut nr_functions = 0;
            for (at, insn) in calls {
                let imm = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
                if insn[1] >> 4 == 0 {
                    assert!((1..=3).contains(&imm), "{name}: helper {imm}");
                    continue;
                }
                nr_functions += 1;
                let target = i64::try_from(at).unwrap() + 1 + i64::from(imm);
                assert!(usize::try_from(target).unwrap() < program.code.len(), "{name} at {at}");
            }
            let has_window = program.point == Point::Window;
            assert!(nr_functions > usize::from(has_window), "{name}: {nr_functions} calls");
            for &(at, map) in &program.maps {
                assert!(program.code[at][0] == 0x18 && map < image.maps.len(), "{name} at {at}");
            }
        }
    }
}
