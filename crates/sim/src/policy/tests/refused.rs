//! Refused programs, each with its reason.

use super::*;

/// `bpf_map_lookup_elem(&hash, r10 - 8)` with the key set; the result is in r0.
fn lookup() -> Vec<Insn> {
    let mut code = vec![insn(0x7a, 10, 0, -8, 5)];
    code.extend(wide(1, insn::wide::MAP, 0));
    code.extend([copy(2, 10), add(2, -8), call(helper::MAP_LOOKUP)]);
    code
}

#[test]
fn what_a_program_may_not_do() {
    let jump_back = insn(class::JMP | jump::JA, 0, 0, -2, 0);
    let data = |src: i64, off: i64| {
        let mut code = wide(2, insn::wide::DATA, src << 32 | off).to_vec();
        code.push(load(0, 2, 0));
        code.push(EXIT);
        code
    };
    let unchecked = [lookup(), vec![load(0, 0, 0), EXIT]].concat();
    let beyond =
        [lookup(), vec![insn(class::JMP | jump::JEQ, 0, 0, 1, 0), load(0, 0, 9), mov(0, 0), EXIT]]
            .concat();
    let leaks = [
        lookup(),
        vec![insn(class::JMP | jump::JEQ, 0, 0, 1, 0), store(0, 0, 10), mov(0, 0), EXIT],
    ]
    .concat();
    let kept = [lookup(), vec![copy(0, 1), EXIT]].concat();
    let cases: Vec<(Vec<Insn>, &str)> = vec![
        (vec![mov(0, 0)], "0: a path leads past the end"),
        (vec![EXIT], "0: a path returns without an answer"),
        (vec![copy(0, 10), EXIT], "1: it returns an address"),
        (vec![copy(0, 5), EXIT], "0: it computes with a value that may be unset"),
        (vec![mov(0, 0), jump_back, EXIT], "1: it jumps back in a loop: unroll it"),
        (vec![mov(10, 0), EXIT], "0: r10 cannot be written"),
        (vec![load(0, 1, 456), EXIT], "0: bytes 0 to 0 from 456 are not all in the context"),
        (vec![load(0, 1, -8), EXIT], "0: bytes 0 to 0 from -8 are not all in the context"),
        (vec![store(1, 0, 1), mov(0, 0), EXIT], "0: the context cannot be modified"),
        (vec![load(0, 10, -8), EXIT], "0: the byte at r10-8 is unset"),
        (vec![store(10, -520, 1), mov(0, 0), EXIT], "0: 8 bytes at r10-520 are not in the stack"),
        (vec![store(10, -4, 1), mov(0, 0), EXIT], "0: 8 bytes at r10-4 are not in the stack"),
        (vec![mov(2, 64), load(0, 2, 0), EXIT], "1: a number is not an address"),
        (vec![call(5), EXIT], "0: helper 5 is not supported"),
        (vec![insn(class::JMP | jump::CALL, 0, 1, 0, 3), EXIT], "0: function calls"),
        (vec![mov(1, 0), call(helper::MAP_LOOKUP), EXIT], "1: the first argument is not a map"),
        (unchecked, "6: the result of bpf_map_lookup_elem must first be compared"),
        (beyond, "are not all in the value of its map"),
        (leaks, "7: it stores an address in a map or variable"),
        (kept, "6: it computes with a value that may be unset"),
        (data(0, 9), "2: bytes 9 to 9 from 0 are not all in its variables"),
        (data(9, 0), "2: no such variable"),
        (
            [&wide(2, insn::wide::DATA, 0)[..], &[insn(0x7a, 2, 0, 0, 1), mov(0, 0), EXIT]]
                .concat(),
            "2: a constant cannot be modified",
        ),
        (vec![insn(0xdb, 10, 1, -8, 0), EXIT], "0: r1 is not a number"),
        (vec![mov(2, 0), insn(0xdb, 10, 2, -8, 0), EXIT], "1: the byte at r10-8 is unset"),
        (vec![mov(2, 0), insn(0xdb, 10, 2, -8, 7), EXIT], "1: atomic operation 0x7 is not known"),
        (vec![insn(0x99, 0, 1, 0, 0), EXIT], "0: sign-extending loads"),
        (vec![insn(class::ALU64 | alu::DIV, 1, 0, 1, 3), EXIT], "0: signed divisions"),
        (vec![insn(class::ALU | alu::ADD, 1, 0, 0, 3), EXIT], "0: it computes with an address"),
        (
            vec![insn(class::JMP | jump::JGT, 1, 0, 1, 3), mov(0, 0), EXIT],
            "0: it compares an address",
        ),
        (vec![insn(0x05, 0, 0, 0, 0), insn(0xff, 0, 0, 0, 0)], "1: code 0xff is not known"),
        (vec![insn(class::JMP32 | jump::EXIT, 0, 0, 0, 0)], "0: jump 0x96 is not known"),
        (vec![insn(0xb7, 12, 0, 0, 0), EXIT], "0: only registers r0 to r10 exist"),
        (
            [&[insn(class::JMP | jump::JA, 0, 0, 1, 0)][..], &wide(0, 0, 1), &[EXIT]].concat(),
            "0: a path leads past the end, or into a 64-bit number",
        ),
        (
            vec![insn(0x85, 0, 0, 0, helper::WINDOW), EXIT],
            "0: folio_window() is available only in folio/window",
        ),
    ];
    are_refused(&cases);
}

#[test]
fn what_only_looks_harmless() {
    let far = |from: u8, off: i16| {
        let mut code = vec![copy(2, from)];
        code.extend(wide(3, insn::wide::NUMBER, i64::MAX));
        code.extend([insn(class::ALU64 | alu::ADD | X, 2, 3, 0, 0), load(0, 2, off), EXIT]);
        code
    };
    // Whether variables + 17 is 0 would reveal their address if the sum can wrap around.
    let comes_round = [
        &wide(2, insn::wide::DATA, 1 << 32)[..],
        &[add(2, 17), mov(0, 1), insn(class::JMP | jump::JEQ, 2, 0, 0, 0), EXIT],
    ]
    .concat();
    // The upper half of swapped bytes is not 0.
    let swapped = [
        &[load(3, 1, 0), insn(class::ALU | alu::END | X, 3, 0, 0, 64)][..],
        &[insn(class::ALU64 | alu::RSH, 3, 0, 0, 32)],
        &wide(2, insn::wide::DATA, 1 << 32),
        &[insn(class::ALU64 | alu::ADD | X, 2, 3, 0, 0), load(0, 2, 0), EXIT],
    ]
    .concat();
    let updates = [
        &[insn(0x7a, 10, 0, -8, 1), insn(0x7a, 10, 0, -16, 1)][..],
        &wide(1, insn::wide::MAP, 0),
        &[copy(2, 10), add(2, -8), copy(3, 10), add(3, -16), mov(4, 0), call(helper::MAP_UPDATE)],
    ]
    .concat();
    are_refused(&[
        (
            vec![insn(0x8d, 0, 0, 0, 1), EXIT],
            "0: it calls an address, as unoptimized code does; compile with -O2",
        ),
        (vec![insn(0xb7, 0, 3, 0, 0), EXIT], "0: code 0xb7 has unknown parts"),
        (vec![insn(0xbf, 0, 1, 0, 9), EXIT], "0: code 0xbf has unknown parts"),
        (vec![mov(0, 0), insn(0x95, 0, 0, 1, 0)], "1: code 0x95 has unknown parts"),
        (
            far(1, 32_767),
            "4: bytes 9223372036854775807 to 9223372036854775807 from 32767 are not all in the \
             context",
        ),
        (far(10, 32_767), "4: 8 bytes at r10"),
        (comes_round, "4: bytes 17 to 17 from 0 are not all in its variables"),
        (swapped, "6: bytes 0 to 4294967295 from 0 are not all in its variables"),
        (updates.repeat(700), "the keys and values for its helpers take more than 16 KiB"),
    ]);
}

fn are_refused(cases: &[(Vec<Insn>, &str)]) {
    for (code, expected) in cases {
        let message =
            fault_at(Point::AnonOrder, code).unwrap_or_else(|| panic!("passed: {code:?}"));
        assert!(message.contains(expected), "expected {expected:?}: {message}");
    }
}

#[test]
fn a_number_that_was_bounded_may_move_a_pointer_and_no_other() {
    // r3 = a byte of the context; r2 = variables (16 bytes) + r3.
    let start = |bound: Option<i64>| {
        let mut code = vec![insn(0x71, 3, 1, 0, 0)];
        code.extend(bound.map(|bound| insn(class::ALU64 | alu::AND, 3, 0, 0, bound)));
        code.extend(wide(2, insn::wide::DATA, 1 << 32));
        code.extend([insn(class::ALU64 | alu::ADD | X, 2, 3, 0, 0), load(0, 2, 0), EXIT]);
        code
    };
    assert_eq!(fault_at(Point::Around, &start(Some(8))), None);
    assert!(fault_at(Point::Around, &start(Some(9))).is_some());
    assert!(fault_at(Point::Around, &start(None)).is_some());
    // Bounded by a comparison: r3 > 8 returns.
    let compared = |limit| {
        let mut code = vec![insn(0x71, 3, 1, 0, 0), mov(0, 0)];
        code.push(insn(class::JMP | jump::JGT, 3, 0, 4, limit));
        code.extend(wide(2, insn::wide::DATA, 1 << 32));
        code.extend([insn(class::ALU64 | alu::ADD | X, 2, 3, 0, 0), load(0, 2, 0), EXIT]);
        code
    };
    assert_eq!(fault_at(Point::Around, &compared(8)), None);
    assert!(fault_at(Point::Around, &compared(9)).is_some());
}

#[test]
fn an_entry_that_was_compared_stays_one_through_copies_and_the_stack() {
    let code = [
        lookup(),
        vec![
            copy(6, 0),
            store(10, -16, 0),
            insn(class::JMP | jump::JNE, 6, 0, 2, 0),
            mov(0, 0),
            EXIT,
            load(7, 10, -16),
            load(0, 7, 8),
            EXIT,
        ],
    ]
    .concat();
    assert_eq!(fault_at(Point::Victim, &code), None);
}
