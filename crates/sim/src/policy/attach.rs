//! A policy as programs for a running kernel with the decision points of `kernel/policy`.
//!
//! ```text
//!   entry:   context = args[0]; answer = main(context); the window that main set, if any
//!   main:    the object file's instructions, unchanged but for calls of folio_window
//!   window:  keeps folio_window's arguments in a map, one entry a CPU
//! ```
//!
//! Owns the layout of a question: a context, then the answer, whether a window was set, and the
//! window. `kernel/policy/policy.h` has the same.

use largefolio_mm::policy::{NR_KERNEL_WORDS, Point};

use super::PolicyRefusal;
use super::insn::{FILLER, INSN_BYTES, IS_REGISTER, Insn, LDDW, MODE_MEM, R10, alu, class, helper};
use super::insn::{jump, wide};
use super::maps::MapKind;
use super::object::{Parsed, Section};
use super::posted::Entry;
use super::verify::{self, Entrance};

const WORD: i16 = 8;
const ANSWER: i16 = WORD * NR_KERNEL_WORDS as i16;
const NR_WINDOW_WORDS: i16 = 4;
/// A double word, as an access size.
const DW: u8 = 0x18;
/// A word of 32 bits.
const W: u8 = 0x00;
/// [`wide::MAP`] and [`wide::DATA`] are also the kernel's numbers for a map and for a map's value.
const CALL_FUNCTION: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelMapKind {
    Hash,
    Array,
    /// One array a CPU.
    PerCpuArray,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMap {
    pub kind: KernelMapKind,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub nr_max: usize,
    /// The first entry's value at the start, unless it is zeroed.
    pub first: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProgram {
    pub point: Point,
    pub code: Vec<[u8; INSN_BYTES]>,
    /// Instructions whose 32-bit number must become the descriptor of a map: where, and which map.
    pub maps: Vec<(usize, usize)>,
}

/// Programs for a kernel, and the maps that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelImage {
    pub maps: Vec<KernelMap>,
    pub programs: Vec<KernelProgram>,
}

/// # Errors
/// The object file cannot be parsed, or uses what only the model has.
pub(super) fn image(object: &[u8]) -> Result<KernelImage, PolicyRefusal> {
    let parsed = super::object::parse(object)?;
    if let Some(interface) = parsed.interface {
        return Err(PolicyRefusal::NotForKernel(interface.to_owned()));
    }
    check(&parsed)?;
    let mut maps = maps_of(&parsed);
    let of_window = maps.len();
    maps.push(KernelMap {
        kind: KernelMapKind::PerCpuArray,
        key_bytes: 4,
        value_bytes: usize::from((1 + NR_WINDOW_WORDS).unsigned_abs()) * 8,
        nr_max: 1,
        first: None,
    });
    let first_data = parsed.maps.len();
    let programs = parsed
        .programs
        .iter()
        .filter_map(|(&entry, function)| match entry {
            Entry::Point(point) => Some(program(point, &function.code, first_data, of_window)),
            Entry::Hook(_) => None,
        })
        .collect();
    Ok(KernelImage { maps, programs })
}

/// A kernel fills in fewer words of the context, and its answer follows them.
fn check(parsed: &Parsed) -> Result<(), PolicyRefusal> {
    for (&entry, function) in &parsed.programs {
        let Entry::Point(point) = entry else { continue };
        // No kernel has later points, so their programs are not loaded.
        if point > Point::Victim {
            continue;
        }
        let refused = |at, what| {
            let section = format!("folio/{}, in a kernel", point.name());
            Err(PolicyRefusal::Insn { section, at, what })
        };
        let calls = |insn: &Insn| {
            insn.class() == class::JMP && insn.op() == jump::CALL && insn.imm == helper::LOOP
        };
        if let Some(at) = function.code.iter().position(calls) {
            return refused(at, "bpf_loop() is available only in the model".to_owned());
        }
        let entrance = Entrance::at(point, NR_KERNEL_WORDS);
        if let Err(fault) = verify::check(&function.code, parsed, entrance) {
            return refused(fault.at, fault.what);
        }
    }
    Ok(())
}

/// The policy's maps, then its sections of variables, each the only entry of an array.
fn maps_of(parsed: &Parsed) -> Vec<KernelMap> {
    let declared = parsed.maps.iter().map(|spec| KernelMap {
        kind: match spec.kind {
            MapKind::Hash | MapKind::OfCgroups => KernelMapKind::Hash,
            MapKind::Array | MapKind::Ring => KernelMapKind::Array,
        },
        key_bytes: spec.key_bytes,
        value_bytes: spec.value_bytes,
        nr_max: spec.nr_max,
        first: None,
    });
    let variables = parsed.data.iter().map(|Section { bytes, is_zeroed, .. }| KernelMap {
        kind: KernelMapKind::Array,
        key_bytes: 4,
        value_bytes: bytes.len().max(1),
        nr_max: 1,
        first: (!is_zeroed && !bytes.is_empty()).then(|| bytes.clone()),
    });
    declared.chain(variables).collect()
}

fn program(point: Point, main: &[Insn], first_data: usize, of_window: usize) -> KernelProgram {
    let sets_window = |insn: &Insn| {
        let is_call = insn.class() == class::JMP && insn.op() == jump::CALL;
        is_call && insn.imm == helper::WINDOW
    };
    let has_window = main.iter().any(sets_window);
    let mut all = entry(has_window);
    let window_at = all.len() + main.len();
    for insn in main {
        let distance = window_at as i64 - (all.len() as i64 + 1);
        let called = Insn { src: CALL_FUNCTION, imm: distance, ..*insn };
        all.push(if sets_window(insn) { called } else { *insn });
    }
    // The kernel refuses code that nothing reaches.
    if has_window {
        all.extend(window());
    }
    encode(point, &all, first_data, of_window)
}

/// Cuts numbers to 32 bits, and finds the references to maps.
fn encode(point: Point, insns: &[Insn], first_data: usize, of_window: usize) -> KernelProgram {
    let (mut code, mut maps) = (Vec::with_capacity(insns.len()), Vec::new());
    let mut high = None;
    for (at, insn) in insns.iter().enumerate() {
        let mut imm = insn.imm as i32;
        if let Some(half) = high.take() {
            imm = half;
        } else if insn.code == LDDW {
            let (low, next, map) = match insn.src {
                // The map of `window` has no number in the object file.
                wide::MAP => (0, 0, Some(usize::try_from(insn.imm).unwrap_or(of_window))),
                wide::DATA => {
                    let section = (insn.imm as u64 >> 32) as usize;
                    (0, insn.imm as i32, Some(first_data + section))
                }
                _ => (insn.imm as i32, (insn.imm >> 32) as i32, None),
            };
            maps.extend(map.map(|map| (at, map)));
            (imm, high) = (low, Some(next));
        }
        let [o0, o1] = insn.off.to_le_bytes();
        let [i0, i1, i2, i3] = imm.to_le_bytes();
        code.push([insn.code, insn.src << 4 | insn.dst, o0, o1, i0, i1, i2, i3]);
    }
    KernelProgram { point, code, maps }
}

const NONE: Insn = Insn { code: 0, dst: 0, src: 0, off: 0, imm: 0 };

const fn load(dst: u8, src: u8, off: i16) -> Insn {
    Insn { code: class::LDX | MODE_MEM | DW, dst, src, off, ..NONE }
}

const fn store(dst: u8, off: i16, src: u8) -> Insn {
    Insn { code: class::STX | MODE_MEM | DW, dst, src, off, ..NONE }
}

const fn moved(dst: u8, src: u8) -> Insn {
    Insn { code: class::ALU64 | alu::MOV | IS_REGISTER, dst, src, ..NONE }
}

const fn set(dst: u8, imm: i64) -> Insn {
    Insn { code: class::ALU64 | alu::MOV, dst, imm, ..NONE }
}

const fn call(src: u8, imm: i64) -> Insn {
    Insn { code: class::JMP | jump::CALL, src, imm, ..NONE }
}

const EXIT: Insn = Insn { code: class::JMP | jump::EXIT, ..NONE };

/// Looks up this CPU's window in r0; without one, which does not happen, the function ends.
fn window_of_cpu() -> [Insn; 8] {
    [
        Insn { code: class::ST | MODE_MEM | W, dst: R10, off: -4, ..NONE },
        Insn { code: LDDW, dst: 1, src: wide::MAP, imm: -1, ..NONE },
        Insn { code: FILLER, ..NONE },
        moved(2, R10),
        Insn { code: class::ALU64 | alu::ADD, dst: 2, imm: -4, ..NONE },
        call(0, helper::MAP_LOOKUP),
        Insn { code: class::JMP | jump::JNE, dst: 0, off: 1, ..NONE },
        EXIT,
    ]
}

fn entry(has_window: bool) -> Vec<Insn> {
    let mut code = vec![load(6, 1, 0), moved(1, 6), NONE, store(6, ANSWER, 0)];
    let called_at = 2;
    if has_window {
        code.extend(window_of_cpu());
        for word in 0..=NR_WINDOW_WORDS {
            code.extend([load(7, 0, word * WORD), store(6, ANSWER + (1 + word) * WORD, 7)]);
        }
        code.extend([set(7, 0), store(0, 0, 7)]);
    }
    code.extend([set(0, 0), EXIT]);
    code[called_at] = call(CALL_FUNCTION, code.len() as i64 - (called_at as i64 + 1));
    code
}

/// `folio_window(start, nr_pages, nr_ahead, order)`.
fn window() -> Vec<Insn> {
    let kept = [6, 7, 8, 9];
    let mut code: Vec<Insn> = kept.iter().zip(1..).map(|(&to, from)| moved(to, from)).collect();
    code.extend(window_of_cpu());
    code.extend([set(1, 1), store(0, 0, 1)]);
    code.extend(kept.iter().zip(1..).map(|(&from, word)| store(0, word * WORD, from)));
    code.extend([set(0, 0), EXIT]);
    code
}
