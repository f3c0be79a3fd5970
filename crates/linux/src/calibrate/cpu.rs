//! The CPU's own data: its name, TLB structures, whether it is virtual, and its clock.
//!
//! Owns CPUID leaves 18h (Intel) and `8000_0005h`, `8000_0006h` (AMD), which user space can read.
//! arm64 has no register that describes TLB entries, so only the measured reach is known there.

use std::time::Instant;

use crate::proc::Processor;
use crate::system::Live;

/// Dependent additions: one cycle each on any core of the last twenty years. They add registers,
/// because some cores add a constant during renaming.
const NR_ADDITIONS: u64 = 1_000_000;
/// Additions per pass of the loop. With only one, a busy machine looks like a slow clock, probably
/// because two threads of a core share its taken branches per cycle. Zen 4, two virtual CPUs, load
/// 8, 300 times the fastest of eight chains: with 1, at least 1.72 GHz, 239 below 3.3. With 20,
/// interleaved with these: at least 3.15 GHz, 43 below.
const NR_UNROLLED: u64 = 20;
/// Number of chains, of which the fastest counts. They take a few milliseconds together.
const NR_CHAINS: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbLevel {
    L1Instruction,
    L1Data,
    L2,
    L2Instruction,
    L2Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    pub place: TlbLevel,
    pub entries: u32,
    /// `None` means fully associative.
    pub ways: Option<u32>,
    pub page_bytes: Vec<u64>,
    pub leaf: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// As [`Processor`] names it.
    pub name: String,
    /// Its ID numbers, as [`Processor`] lists them.
    pub id: Vec<String>,
    /// Whether a hypervisor is visible, `None` if unknown.
    pub is_virtual: Option<bool>,
    pub structures: Vec<Structure>,
}

impl Cpu {
    #[must_use]
    pub fn detect() -> Self {
        let (is_virtual, structures) = leaves::read();
        let Processor { name, id, .. } = Processor::of(&Live);
        Self { name, id, is_virtual, structures }
    }
}

/// Returns the core's current clock in GHz: the fastest of several short chains of additions. A
/// time slice of another program slows down one chain, a different clock all.
#[must_use]
pub fn fastest_clock_ghz() -> f64 {
    let chain = |_| {
        let start = Instant::now();
        add_in_a_chain(NR_ADDITIONS);
        #[expect(clippy::cast_precision_loss, reason = "a small constant")]
        let nr = NR_ADDITIONS as f64;
        nr / (start.elapsed().as_secs_f64() * 1e9)
    };
    (0..NR_CHAINS).map(chain).fold(0.0, f64::max)
}

#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn add_in_a_chain(nr: u64) {
    // SAFETY: arithmetic on registers only.
    unsafe {
        std::arch::asm!("2:", ".rept {unrolled}", "add {sum}, {one}", ".endr", "sub {nr}, 1",
            "jnz 2b", nr = inout(reg) nr / NR_UNROLLED => _, sum = inout(reg) 0_u64 => _,
            one = in(reg) 1_u64, unrolled = const NR_UNROLLED, options(nostack, nomem));
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(never)]
fn add_in_a_chain(nr: u64) {
    // SAFETY: arithmetic on registers only.
    unsafe {
        std::arch::asm!("2:", ".rept {unrolled}", "add {sum}, {sum}, {one}", ".endr",
            "subs {nr}, {nr}, #1", "b.ne 2b", nr = inout(reg) nr / NR_UNROLLED => _,
            sum = inout(reg) 0_u64 => _, one = in(reg) 1_u64, unrolled = const NR_UNROLLED,
            options(nostack, nomem));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn add_in_a_chain(nr: u64) {
    (0..nr).for_each(|nr| {
        std::hint::black_box(nr);
    });
}

#[cfg(not(target_arch = "x86_64"))]
mod leaves {
    pub(super) fn read() -> (Option<bool>, Vec<super::Structure>) {
        (None, Vec::new())
    }
}

#[cfg(target_arch = "x86_64")]
mod leaves {
    //! CPUID.

    use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

    use super::{Structure, TlbLevel};

    pub(super) fn read() -> (Option<bool>, Vec<Structure>) {
        let is_virtual = __cpuid(1).ecx >> 31 & 1 == 1;
        let mut structures = Vec::new();
        if __cpuid(0).eax >= 0x18 {
            let last = __cpuid_count(0x18, 0).eax.min(31);
            structures.extend((0..=last).filter_map(|nr| parameters(__cpuid_count(0x18, nr))));
        }
        if structures.is_empty() && __cpuid(0x8000_0000).eax >= 0x8000_0006 {
            structures = amd(__cpuid(0x8000_0005), __cpuid(0x8000_0006));
        }
        (Some(is_virtual), structures)
    }

    /// Parses a sub-leaf of 18h: type and level in EDX, ways and page sizes in EBX, sets in ECX.
    pub(super) fn parameters(leaf: CpuidResult) -> Option<Structure> {
        let place = match (leaf.edx & 0x1f, leaf.edx >> 5 & 7) {
            // Some cores have a separate structure for stores (type 5). Loads decide here.
            (1 | 4, 1) => TlbLevel::L1Data,
            (2, 1) => TlbLevel::L1Instruction,
            (1, 2) => TlbLevel::L2Data,
            (2, 2) => TlbLevel::L2Instruction,
            (3, 2) => TlbLevel::L2,
            _ => return None,
        };
        let (ways, sets) = (leaf.ebx >> 16, leaf.ecx);
        let entries = ways.checked_mul(sets).filter(|&entries| entries > 0)?;
        let sizes = [4 << 10, 2 << 20, 4 << 20, 1 << 30];
        let holds = |nr: usize| leaf.ebx >> nr & 1 == 1;
        let page_bytes = sizes.into_iter().enumerate().filter(|(nr, _)| holds(*nr));
        Some(Structure {
            place,
            entries,
            ways: (leaf.edx >> 8 & 1 == 0).then_some(ways),
            page_bytes: page_bytes.map(|(_, bytes)| bytes).collect(),
            leaf: "CPUID 18h".to_owned(),
        })
    }

    /// Parses the level 1 and 2 leaves: EAX for 2M and 4M, EBX for 4K, instructions in the low
    /// half.
    pub(super) fn amd(l1: CpuidResult, l2: CpuidResult) -> Vec<Structure> {
        let mut structures = Vec::new();
        for (page_bytes, [l1, l2]) in [(4 << 10, [l1.ebx, l2.ebx]), (2 << 20, [l1.eax, l2.eax])] {
            let mut add = |place, entries: u32, ways: Option<u32>, leaf: &str| {
                if entries > 0 {
                    let (page_bytes, leaf) = (vec![page_bytes], leaf.to_owned());
                    structures.push(Structure { place, entries, ways, page_bytes, leaf });
                }
            };
            let ways = |code: u32| (code != 0xff).then_some(code);
            let leaf = "CPUID 8000_0005h";
            add(TlbLevel::L1Instruction, l1 & 0xff, ways(l1 >> 8 & 0xff), leaf);
            add(TlbLevel::L1Data, l1 >> 16 & 0xff, ways(l1 >> 24), leaf);
            let leaf = "CPUID 8000_0006h";
            add(TlbLevel::L2Instruction, l2 & 0xfff, coded(l2 >> 12 & 0xf), leaf);
            add(TlbLevel::L2Data, l2 >> 16 & 0xfff, coded(l2 >> 28), leaf);
        }
        structures
    }

    fn coded(code: u32) -> Option<u32> {
        const WAYS: [u32; 16] = [0, 1, 2, 3, 4, 6, 8, 0, 16, 0, 32, 48, 64, 96, 128, 0];
        WAYS.get(code as usize).copied().filter(|&ways| ways > 0)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn leaves_of_a_zen_4_are_read() {
            let leaf = |eax, ebx| CpuidResult { eax, ebx, ecx: 0, edx: 0 };
            let structure = amd(leaf(0xff48_ff40, 0xff48_ff40), leaf(0x5c00_2200, 0x6c00_4200));
            let of = |place, bytes| {
                let fits = |s: &&Structure| s.place == place && s.page_bytes == [bytes];
                structure.iter().find(fits).map(|s| (s.entries, s.ways))
            };
            assert_eq!(of(TlbLevel::L1Data, 4 << 10), Some((72, None)));
            assert_eq!(of(TlbLevel::L1Instruction, 2 << 20), Some((64, None)));
            assert_eq!(of(TlbLevel::L2Data, 4 << 10), Some((3072, Some(8))));
            assert_eq!(of(TlbLevel::L2Data, 2 << 20), Some((3072, Some(6))));
            assert_eq!(of(TlbLevel::L2Instruction, 4 << 10), Some((512, Some(4))));
        }

        #[test]
        fn a_sub_leaf_of_an_intel_core_is_read() {
            // Unified, level 2, 8 ways of 128 sets, 4K and 2M/4M.
            let leaf = CpuidResult { eax: 0, ebx: 8 << 16 | 7, ecx: 128, edx: 3 | 2 << 5 };
            let structure = parameters(leaf).unwrap();
            assert_eq!(
                (structure.place, structure.entries, structure.ways),
                (TlbLevel::L2, 1024, Some(8))
            );
            assert_eq!(structure.page_bytes, [4 << 10, 2 << 20, 4 << 20]);
            assert_eq!(parameters(CpuidResult { edx: 0, ..leaf }), None);
            assert_eq!(parameters(CpuidResult { ecx: 0, ..leaf }), None);
            assert_eq!(parameters(CpuidResult { ecx: u32::MAX, ..leaf }), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_cpu_has_a_name_and_a_clock() {
        let cpu = Cpu::detect();
        assert!(!cpu.name.is_empty());
        assert!(fastest_clock_ghz() > 0.01);
    }
}
