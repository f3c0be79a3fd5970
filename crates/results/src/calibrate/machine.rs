//! Turns figures into a machine.
//!
//! Owns the mapping from figures to costs, and the replacement of missing ones: a built-in
//! machine's number, marked as assumed, with the reason. Only valid costs reach this module
//! ([`largefolio_linux::calibrate::Figure::of`]), and [`Machine::to_toml`] refuses all others.

mod costs;
mod merge;
mod quantity;
mod walks;

use largefolio_linux::calibrate::{
    Bracket, Calibration, Effort, Pages, Side, Structure, TlbLevel, step_within,
};
use largefolio_mm::rules::Arch;
use largefolio_sim::machine::{Calibrated, CpuId, Machine, MachineError, THIS, UnitBytes};
use largefolio_sim::tlb::{
    AddressSpaces, CoalescingConfig, EntrySize, EntrySizes, MAX_ENTRIES, StructureConfig,
    TlbConfig, Ways,
};

use crate::running;

/// The machine that provides numbers which could not be measured here.
const STAND_IN: &str = if cfg!(target_arch = "aarch64") { "altra" } else { "cascadelake" };
const L1_ENTRIES: u32 = 64;
const L2_ENTRIES: u32 = 1024;
/// The pages at which any core's level 1 ends.
const L1_WITHIN: std::ops::Range<usize> = 24..512;

pub struct CalibratedMachine {
    pub machine: Machine,
    pub(super) notes: Vec<String>,
    pub(super) reach: Vec<Reach>,
}

#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) place: TlbLevel,
    pub(super) pages: Pages,
    /// The measured step; `None`: the data shows none.
    pub(super) measured: Option<Bracket>,
    /// Entries according to CPUID, for pages of 4 KiB.
    pub(super) documented: Option<u32>,
}

impl CalibratedMachine {
    pub fn add(&mut self, earlier: &Machine) {
        let nr = earlier.calibrated.as_ref().map_or(0, |calibrated| calibrated.nr);
        if self.machine.cpu == earlier.cpu {
            self.machine.errors.clone_from(&earlier.errors);
        }
        let far_apart = merge::far_apart(&self.machine.costs, &earlier.costs);
        if merge::add(&mut self.machine, earlier) {
            if !far_apart.is_empty() {
                self.notes.push(format!(
                    "Some costs differ threefold from the earlier calibrations', so the machine was \
                     not the same (a busy host, another clock), and their ranges are wide: {}.",
                    far_apart.join("; ")
                ));
            }
            self.notes.push(format!(
                "Costs are the mean of {} calibrations, and their ranges contain all of them; \
                 folio calibrate --fresh discards the earlier ones.",
                nr.saturating_add(1)
            ));
        } else if nr > 0 {
            self.notes.push(
                "The earlier calibrations in this file were for another CPU or kernel and were \
                 discarded."
                    .to_owned(),
            );
        }
    }

    /// Marks it as a first estimate, which is excluded from means.
    #[must_use]
    pub fn quick(mut self) -> Self {
        if let Some(calibrated) = &mut self.machine.calibrated {
            calibrated.nr = 0;
        }
        self
    }

    #[must_use]
    pub fn comment(&self, effort: Effort) -> String {
        let mut text = format!("{}\n", self.machine.description);
        text.push_str("Written by folio calibrate");
        text.push_str(match effort {
            Effort::Quick => " --quick: few rounds, only a first estimate.\n",
            Effort::Full => ".\n",
        });
        text.push_str("docs/design/calibration.md explains the numbers.\n\n");
        for note in &self.notes {
            text.push_str(note);
            text.push('\n');
        }
        text
    }
}

/// Builds the machine of `calibration`.
///
/// # Errors
/// Never in practice: the replacement machine is built in.
pub fn machine(calibration: &Calibration) -> Result<CalibratedMachine, MachineError> {
    let stand_in = Machine::named(STAND_IN)?;
    let is_splintered = is_splintered(calibration);
    let reach = reach(calibration);
    let mut notes: Vec<String> = reach.iter().map(Reach::note).collect();
    if is_splintered {
        notes.push(
            "Working sets in 2M folios start to miss at the same sizes as those in 4K folios: the \
             host backs this machine's memory with 4K pages, so TLB entries cover 4K."
                .to_owned(),
        );
    }
    notes.extend(
        calibration
            .kernel
            .pace
            .as_ref()
            .map(|pace| format!("Faults, fork and unmapping: {}", pace.note())),
    );
    notes.extend(calibration.missing.iter().map(|missing| format!("Not measured: {missing}")));
    let is_arm = cfg!(target_arch = "aarch64");
    let kernel = running::release();
    let cpu = if calibration.cpu.name.is_empty() { "unknown CPU" } else { &calibration.cpu.name };
    let description = format!("{cpu}, measured on {} under Linux {kernel}", today());
    let description = description.replace(char::is_control, " ");
    let known = listed(calibration)?;
    let tlb = tlb(calibration, &reach, is_splintered, known.as_ref());
    let contradicted =
        reach.iter().any(|reach| reach.pages == Pages::Base && reach.agrees() == Some(false));
    if let Some(known) = known.as_ref().filter(|_| contradicted) {
        notes.push(format!(
            "Where the curve contradicts CPUID, the file has the structures of {}, which lists this CPU.",
            known.name
        ));
    }
    let machine = Machine {
        nr_cpus: None,
        nodes: Vec::new(),
        name: THIS.to_owned(),
        description,
        cpu: Some(calibration.cpu.name.clone()),
        arch: if is_arm { Arch::Arm64 } else { Arch::X86_64 },
        page_sizes: vec![running::page()],
        page_size: running::page(),
        costs: costs::costs(calibration, &stand_in.costs, &tlb, is_splintered),
        tlb,
        calibrated: Some(Calibrated { kernel, nr: 1 }),
        errors: None,
    };
    Ok(CalibratedMachine { machine, notes, reach })
}

/// `2026-11-22`, in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date(now.map_or(0, |now| now.as_secs() / 86_400))
}

/// Returns the date of a day counted from 1970-01-01.
///
/// Years begin in March here, so a leap year's extra day is its last. Months then begin after 0,
/// 31, 61, 92, .. days, which is `(153 * month + 2) / 5`. 400 years have 146,097 days.
fn date(days: u64) -> String {
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    format!("{year}-{month:02}-{day:02}")
}

/// Returns whether 2M folios miss like 4K folios over working sets that a few PMD entries cover.
fn is_splintered(calibration: &Calibration) -> bool {
    let over = |pages| calibration.curve(Side::Data, pages)?.extra_over(96..=512);
    match (over(Pages::Base), over(Pages::Pmd)) {
        (Some(base), Some(pmd)) => base > 0.0 && pmd > base / 2.0,
        _ => false,
    }
}

fn reach(calibration: &Calibration) -> Vec<Reach> {
    let mut all = Vec::new();
    for curve in &calibration.curves {
        let (l1, l2) = match curve.side {
            Side::Data => (TlbLevel::L1Data, TlbLevel::L2Data),
            Side::Instruction => (TlbLevel::L1Instruction, TlbLevel::L2Instruction),
        };
        // Level 2 uses the cost of translation, so that steps of the data caches do not count.
        // Level 1 uses the total, since nothing is added before it.
        let first = step_within(&curve.spread, L1_WITHIN.start..200);
        let from = first.map_or(256, |step| step.next * 3);
        let second = step_within(&curve.extra, from..8192);
        for (place, measured) in [(l1, first), (l2, second)] {
            let documented = documented(calibration, place).map(|known| known.entries);
            all.push(Reach { place, pages: curve.pages, measured, documented });
        }
    }
    all
}

/// Returns CPUID's entry for a level with pages of 4 KiB. A shared level 2 serves both sides.
fn documented(calibration: &Calibration, place: TlbLevel) -> Option<&Structure> {
    let of = |wanted: TlbLevel| {
        let holds = |known: &&Structure| known.place == wanted && known.page_bytes.contains(&4096);
        calibration.cpu.structures.iter().find(holds)
    };
    let is_l2 = matches!(place, TlbLevel::L2Data | TlbLevel::L2Instruction);
    of(place).or_else(|| if is_l2 { of(TlbLevel::L2) } else { None })
}

impl Reach {
    /// Returns whether measurement and CPUID agree. A step begins below the number of entries,
    /// because the program's own pages and full sets take some, but not below half of it.
    pub(super) fn agrees(&self) -> Option<bool> {
        let (step, entries) = (self.measured?, self.documented? as usize);
        Some(step.last <= entries && step.next > entries / 2)
    }

    pub(super) fn name(&self) -> String {
        let place = match self.place {
            TlbLevel::L1Data => "L1 data",
            TlbLevel::L1Instruction => "L1 instruction",
            TlbLevel::L2Data => "L2 data",
            TlbLevel::L2Instruction => "L2 instruction",
            TlbLevel::L2 => "L2",
        };
        let [page, pmd] = running::size_names();
        let pages = match self.pages {
            Pages::Base => page,
            Pages::Pmd => pmd,
        };
        format!("{place} TLB, {pages} folios")
    }

    fn note(&self) -> String {
        let measured = match self.measured {
            Some(step) => {
                let [page, _] = running::size_names();
                format!("{} to {} pages of {page} measured", step.last, step.next)
            }
            None => "no step measured".to_owned(),
        };
        let documented = self.documented.map(|entries| format!("CPUID says {entries} entries"));
        let verdict = match (self.agrees(), self.pages) {
            (Some(true), _) => "; they agree",
            (Some(false), Pages::Base) => "; THEY DISAGREE",
            _ => "",
        };
        let silent = if cfg!(target_arch = "aarch64") {
            "arm64 has no register that reports it"
        } else {
            "CPUID does not report it"
        };
        let documented = documented.unwrap_or_else(|| silent.to_owned());
        format!("{}: {measured}, {documented}{verdict}.", self.name())
    }
}

/// Returns the built-in machine that lists this very CPU, if any.
fn listed(calibration: &Calibration) -> Result<Option<Machine>, MachineError> {
    let nearest = CpuId::new(calibration.cpu.id.iter().map(String::as_str)).nearest()?;
    Ok(nearest.is_listed.then_some(nearest.machine))
}

/// Returns the structures of a place that `machine` has from documents, if the curve contradicts
/// CPUID: a register can be too narrow for the number, and a hypervisor can report another CPU's.
fn corrected(
    machine: Option<&Machine>,
    reach: &[Reach],
    place: TlbLevel,
) -> Option<Vec<StructureConfig>> {
    let tlb = &machine?.tlb;
    let all = match place {
        TlbLevel::L1Data => &tlb.l1_data,
        TlbLevel::L1Instruction => &tlb.l1_instruction,
        TlbLevel::L2Data => &tlb.l2_data,
        TlbLevel::L2Instruction => &tlb.l2_instruction,
        TlbLevel::L2 => &tlb.l2,
    };
    let of_place = |reach: &&Reach| reach.place == place && reach.pages == Pages::Base;
    let found = reach.iter().find(of_place)?;
    let (false, Some(entries)) = (found.agrees()?, found.documented) else { return None };
    let of = |known: &StructureConfig| StructureConfig {
        source: format!(
            "CPUID says {entries} entries, which the measured curve contradicts; {}",
            known.source
        ),
        ..known.clone()
    };
    let corrected: Vec<StructureConfig> = all.iter().map(of).collect();
    (!corrected.is_empty()).then_some(corrected)
}

fn tlb(
    calibration: &Calibration,
    reach: &[Reach],
    is_splintered: bool,
    listed: Option<&Machine>,
) -> TlbConfig {
    let of = |place: TlbLevel, entries| {
        corrected(listed, reach, place)
            .unwrap_or_else(|| structures(calibration, reach, place, entries))
    };
    let shared = calibration.cpu.structures.iter().any(|known| known.place == TlbLevel::L2);
    let (mut l2, mut l2_instruction, mut l2_data) = (Vec::new(), Vec::new(), Vec::new());
    if shared {
        l2 = of(TlbLevel::L2, L2_ENTRIES);
    } else if calibration.cpu.structures.iter().any(|known| known.place == TlbLevel::L2Data) {
        l2_instruction = of(TlbLevel::L2Instruction, L2_ENTRIES);
        l2_data = of(TlbLevel::L2Data, L2_ENTRIES);
    } else {
        l2 = of(TlbLevel::L2Data, L2_ENTRIES);
    }
    TlbConfig {
        l1_instruction: of(TlbLevel::L1Instruction, L1_ENTRIES),
        l1_data: of(TlbLevel::L1Data, L1_ENTRIES),
        l2,
        l2_instruction,
        l2_data,
        walk_cache: walks::caches(),
        walker: walks::walker(calibration, is_splintered, listed),
        address_spaces: if cfg!(target_arch = "aarch64") {
            AddressSpaces {
                nr: 16_384,
                source: "not measured: Linux gives each process its own 16-bit ASID".to_owned(),
                assumed: true,
            }
        } else {
            AddressSpaces {
                nr: 6,
                source: "not measured: Linux keeps six address spaces per CPU if it has PCIDs"
                    .to_owned(),
                assumed: true,
            }
        },
        coalescing: CoalescingConfig {
            modes: Vec::new(),
            source: "not measured: pages were measured without a neighbour in order".to_owned(),
            assumed: true,
        },
    }
}

/// Returns a place's structures: from CPUID, else as measured, else with `otherwise` entries.
fn structures(
    calibration: &Calibration,
    reach: &[Reach],
    place: TlbLevel,
    otherwise: u32,
) -> Vec<StructureConfig> {
    let known = calibration.cpu.structures.iter().filter(|known| known.place == place);
    let mut all: Vec<&Structure> = known.collect();
    // AMD: two entries for 4K and 2M with equal sizes are one shared structure.
    let first = all.iter().find(|known| known.page_bytes == [4096]).copied();
    let second = all.iter().find(|known| known.page_bytes == [2 << 20]).copied();
    let is_one = matches!((first, second), (Some(a), Some(b)) if a.entries == b.entries);
    all.retain(|known| !is_one || known.page_bytes.contains(&4096));
    let is_held = all.iter().any(|known| known.page_bytes.contains(&4096));
    if !is_held {
        return vec![measured_structure(reach, place, otherwise)];
    }
    let of = |known: &Structure| {
        let ways = known.ways.filter(|&ways| known.entries.is_multiple_of(ways.max(1)));
        let sizes = if is_one { EntrySizes::Any } else { entry_sizes(&known.page_bytes) };
        StructureConfig {
            name: format!("{place:?}"),
            entries: known.entries.clamp(1, MAX_ENTRIES),
            ways: ways.map_or(Ways::Full, Ways::Number),
            sizes,
            source: source_of(known, is_one),
            assumed: is_one,
        }
    };
    all.into_iter().map(of).collect()
}

fn source_of(known: &Structure, is_one: bool) -> String {
    let sizes = if is_one { "; one structure for 4K and 2M assumed" } else { "" };
    format!("{}{sizes}", known.leaf)
}

fn measured_structure(reach: &[Reach], place: TlbLevel, otherwise: u32) -> StructureConfig {
    let of = |reach: &&Reach| reach.place == place && reach.pages == Pages::Base;
    let step = reach.iter().find(of).and_then(|reach| reach.measured);
    let entries = step.and_then(|step| u32::try_from(step.last).ok());
    let source = match step {
        Some(Bracket { last, next }) => format!(
            "measured: the curve's step is between {last} and {next} pages; ways and sizes assumed"
        ),
        None => "the CPU does not report it, and the curve shows no step".to_owned(),
    };
    StructureConfig {
        name: format!("{place:?}"),
        entries: entries.unwrap_or(otherwise).clamp(1, MAX_ENTRIES),
        ways: Ways::Full,
        sizes: EntrySizes::Any,
        source,
        assumed: true,
    }
}

fn entry_sizes(bytes: &[u64]) -> EntrySizes {
    let text = |bytes: &u64| String::from(UnitBytes(*bytes));
    EntrySizes::Listed(bytes.iter().filter_map(|size| EntrySize::parse(&text(size))).collect())
}

#[cfg(test)]
mod tests;
