//! Turns figures into a machine.
//!
//! Owns which number is used for which cost, and what replaces a missing one: a number of a
//! built-in machine, marked as assumed, with the reason. A figure that is not a cost never gets
//! here ([`Figure::of`]), and [`Machine::to_toml`] refuses what is left.

use largefolio_linux::calibrate::{
    Bracket, Calibration, Effort, Figure, Pages, Place, Rate, Side, Structure, step_within,
};
use largefolio_linux::measure::Spread;
use largefolio_mm::rules::Arch;
use largefolio_mm::units::PageSize;
use largefolio_sim::machine::{
    Costs, Machine, MachineError, Quantity, THIS, Unit, UnitBytes, UnitRate,
};
use largefolio_sim::tlb::{
    CoalescingConfig, EntrySize, EntrySizes, MAX_ENTRIES, StructureConfig, TlbConfig, Ways,
};

use crate::running;

/// The machine whose numbers stand in for those that could not be measured.
const STAND_IN: &str = "cascadelake";
/// Entries of a level-1 TLB about which nothing is known.
const L1_ENTRIES: u32 = 64;
/// Entries of a level-2 TLB about which nothing is known.
const L2_ENTRIES: u32 = 1024;
/// Where level 1 of any core ends, in pages.
const L1_WITHIN: std::ops::Range<usize> = 24..512;

/// A machine, and what a reader of its file should know.
pub struct Made {
    /// What the file will say.
    pub machine: Machine,
    /// How measured reach and CPUID agree, what is missing.
    pub(super) notes: Vec<String>,
    /// Lines about reach, for the table.
    pub(super) reach: Vec<Reach>,
}

/// What one curve says about one level.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    pub(super) place: Place,
    pub(super) pages: Pages,
    /// What was measured; `None`: the data shows no step.
    pub(super) measured: Option<Bracket>,
    /// What CPUID says, for pages of 4 KiB.
    pub(super) documented: Option<u32>,
}

impl Made {
    /// The head of the file.
    #[must_use]
    pub fn comment(&self, effort: Effort) -> String {
        let mut text = format!("{}\n", self.machine.description);
        text.push_str("Written by folio calibrate");
        text.push_str(match effort {
            Effort::Quick => " --quick: few rounds, only a first estimate.\n",
            Effort::Full => ".\n",
        });
        text.push_str("docs/design/calibration.md says what the numbers mean.\n\n");
        for note in &self.notes {
            text.push_str(note);
            text.push('\n');
        }
        text
    }
}

/// The machine of `found`.
///
/// # Errors
/// None in practice: the machine that stands in is built in.
pub fn machine(found: &Calibration) -> Result<Made, MachineError> {
    let stand_in = Machine::named(STAND_IN)?;
    let is_splintered = is_splintered(found);
    let reach = reach(found);
    let mut notes: Vec<String> = reach.iter().map(Reach::note).collect();
    if is_splintered {
        notes.push(
            "Working sets on 2M folios miss where those on 4K folios do: the host backs this \
             machine's memory with 4K pages, and TLB entries are no larger."
                .to_owned(),
        );
    }
    notes.extend(found.missing.iter().map(|missing| format!("Not measured: {missing}")));
    let is_arm = cfg!(target_arch = "aarch64");
    let kernel = running::release();
    let description = format!("{}, measured on {} under Linux {kernel}", found.cpu.name, today());
    let description = description.replace(char::is_control, " ");
    let machine = Machine {
        name: THIS.to_owned(),
        description,
        cpu: Some(found.cpu.name.clone()),
        arch: if is_arm { Arch::Arm64 } else { Arch::X86_64 },
        page_sizes: vec![PageSize::K4],
        page_size: PageSize::K4,
        tlb: tlb(found, &reach, is_splintered),
        costs: costs(found, &stand_in.costs, is_splintered),
    };
    Ok(Made { machine, notes, reach })
}

/// `2026-11-22`, in UTC.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date(now.map_or(0, |now| now.as_secs() / 86_400))
}

/// The date of a day that is counted from 1970-01-01.
///
/// Years begin in March here, so that the day of a leap year is the last of them: then the months
/// begin after 0, 31, 61, 92, .. days, which is `(153 * month + 2) / 5`; 400 years have 146,097 days.
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

/// Whether 2M folios miss where 4K folios do: over working sets that a few PMD entries cover.
fn is_splintered(found: &Calibration) -> bool {
    let over = |pages| found.curve(Side::Data, pages)?.extra_over(96..=512);
    match (over(Pages::Base), over(Pages::Pmd)) {
        (Some(base), Some(pmd)) => base > 0.0 && pmd > base / 2.0,
        _ => false,
    }
}

/// Reach by level, side and kind of page.
fn reach(found: &Calibration) -> Vec<Reach> {
    let mut all = Vec::new();
    for curve in &found.curves {
        let (l1, l2) = match curve.side {
            Side::Data => (Place::L1Data, Place::L2Data),
            Side::Instruction => (Place::L1Instruction, Place::L2Instruction),
        };
        // Level 2 against what translation adds, so that steps of the data caches are no steps;
        // level 1 against the whole, since nothing is added before it.
        let first = step_within(&curve.spread, L1_WITHIN.start..200);
        let from = first.map_or(256, |step| step.next * 3);
        let second = step_within(&curve.extra, from..8192);
        for (place, measured) in [(l1, first), (l2, second)] {
            let documented = documented(found, place).map(|known| known.entries);
            all.push(Reach { place, pages: curve.pages, measured, documented });
        }
    }
    all
}

/// What CPUID says of a level, for pages of 4 KiB; a shared level 2 stands for both sides.
fn documented(found: &Calibration, place: Place) -> Option<&Structure> {
    let of = |wanted: Place| {
        let holds = |known: &&Structure| known.place == wanted && known.page_bytes.contains(&4096);
        found.cpu.structures.iter().find(holds)
    };
    let is_l2 = matches!(place, Place::L2Data | Place::L2Instruction);
    of(place).or_else(|| if is_l2 { of(Place::L2) } else { None })
}

impl Reach {
    /// Whether measurement and CPUID agree: a step begins below the entries, as the program's own
    /// pages and full sets take some, but not below half of them.
    pub(super) fn agrees(&self) -> Option<bool> {
        let (step, entries) = (self.measured?, self.documented? as usize);
        Some(step.last <= entries && step.next > entries / 2)
    }

    pub(super) fn name(&self) -> String {
        let place = match self.place {
            Place::L1Data => "L1 data",
            Place::L1Instruction => "L1 instruction",
            Place::L2Data => "L2 data",
            Place::L2Instruction => "L2 instruction",
            Place::L2 => "L2",
        };
        let pages = match self.pages {
            Pages::Base => "4K folios",
            Pages::Pmd => "2M folios",
        };
        format!("{place} TLB, {pages}")
    }

    fn note(&self) -> String {
        let measured = match self.measured {
            Some(step) => format!("{} to {} pages of 4K measured", step.last, step.next),
            None => "no step measured".to_owned(),
        };
        let documented = self.documented.map(|entries| format!("CPUID says {entries} entries"));
        let verdict = match (self.agrees(), self.pages) {
            (Some(true), _) => "; they agree",
            (Some(false), Pages::Base) => "; THEY DISAGREE",
            _ => "",
        };
        let documented = documented.unwrap_or_else(|| "CPUID does not tell".to_owned());
        format!("{}: {measured}, {documented}{verdict}.", self.name())
    }
}

fn tlb(found: &Calibration, reach: &[Reach], is_splintered: bool) -> TlbConfig {
    let of = |place: Place, entries| structures(found, reach, place, entries, is_splintered);
    let shared = found.cpu.structures.iter().any(|known| known.place == Place::L2);
    let (mut l2, mut l2_instruction, mut l2_data) = (Vec::new(), Vec::new(), Vec::new());
    if shared {
        l2 = of(Place::L2, L2_ENTRIES);
    } else if found.cpu.structures.iter().any(|known| known.place == Place::L2Data) {
        l2_instruction = of(Place::L2Instruction, L2_ENTRIES);
        l2_data = of(Place::L2Data, L2_ENTRIES);
    } else {
        l2 = of(Place::L2Data, L2_ENTRIES);
    }
    TlbConfig {
        l1_instruction: of(Place::L1Instruction, L1_ENTRIES),
        l1_data: of(Place::L1Data, L1_ENTRIES),
        l2,
        l2_instruction,
        l2_data,
        walk_cache: Vec::new(),
        coalescing: CoalescingConfig {
            modes: Vec::new(),
            source: "not measured: pages were measured without a neighbour in order".to_owned(),
            assumed: true,
        },
    }
}

/// The structures of a place: as CPUID has them, else as measured, else `otherwise` entries.
fn structures(
    found: &Calibration,
    reach: &[Reach],
    place: Place,
    otherwise: u32,
    is_splintered: bool,
) -> Vec<StructureConfig> {
    let known = found.cpu.structures.iter().filter(|known| known.place == place);
    let mut all: Vec<&Structure> = known.collect();
    // One for 4K and one for 2M with the same entries are one structure for both (AMD).
    let first = all.iter().find(|known| known.page_bytes == [4096]).copied();
    let second = all.iter().find(|known| known.page_bytes == [2 << 20]).copied();
    let is_one = matches!((first, second), (Some(a), Some(b)) if a.entries == b.entries);
    let is_narrow = is_splintered || is_one;
    all.retain(|known| !is_narrow || known.page_bytes.contains(&4096));
    let is_held = all.iter().any(|known| known.page_bytes.contains(&4096));
    if !is_held {
        return vec![measured_structure(reach, place, otherwise, is_splintered)];
    }
    let of = |known: &Structure| {
        let ways = known.ways.filter(|&ways| known.entries.is_multiple_of(ways.max(1)));
        let sizes = match (is_splintered, is_one) {
            (true, _) => listed(&[4096]),
            (false, true) => EntrySizes::Any,
            (false, false) => listed(&known.page_bytes),
        };
        StructureConfig {
            name: format!("{place:?}"),
            entries: known.entries.clamp(1, MAX_ENTRIES),
            ways: ways.map_or(Ways::Full, Ways::Number),
            sizes,
            source: source_of(known, is_splintered, is_one),
            assumed: is_one && !is_splintered,
        }
    };
    all.into_iter().map(of).collect()
}

fn source_of(known: &Structure, is_splintered: bool, is_one: bool) -> String {
    let sizes = match (is_splintered, is_one) {
        (true, _) => "; 4K only: measured, 2M folios reach no further",
        (false, true) => "; one structure for 4K and 2M assumed",
        (false, false) => "",
    };
    format!("{}{sizes}", known.leaf)
}

fn measured_structure(
    reach: &[Reach],
    place: Place,
    otherwise: u32,
    is_splintered: bool,
) -> StructureConfig {
    let of = |reach: &&Reach| reach.place == place && reach.pages == Pages::Base;
    let step = reach.iter().find(of).and_then(|reach| reach.measured);
    let entries = step.and_then(|step| u32::try_from(step.last).ok());
    let source = match step {
        Some(Bracket { last, next }) => format!(
            "measured: the step of the curve lies between {last} and {next} pages; ways and sizes \
             assumed"
        ),
        None => "the CPU does not tell, and the curve shows no step".to_owned(),
    };
    StructureConfig {
        name: format!("{place:?}"),
        entries: entries.unwrap_or(otherwise).clamp(1, MAX_ENTRIES),
        ways: Ways::Full,
        sizes: if is_splintered { listed(&[4096]) } else { EntrySizes::Any },
        source,
        assumed: true,
    }
}

fn listed(bytes: &[u64]) -> EntrySizes {
    let text = |bytes: &u64| String::from(UnitBytes(*bytes));
    EntrySizes::Listed(bytes.iter().filter_map(|size| EntrySize::parse(&text(size))).collect())
}

/// `median of n = 9, 1.20 to 1.31 ns`.
fn spread_text(ns: &Spread) -> String {
    format!("median of n = {}, {:.4} to {:.4} ns", ns.n, ns.min, ns.max)
}

/// Factor below the median where a spread ends that reaches below 0.
const RANGE_WITHIN: f64 = 10.0;

fn measured(figure: &Figure) -> Quantity {
    Quantity {
        value: digits(figure.ns.median),
        unit: Unit::Ns,
        source: format!("measured: {}; {}", figure.how, spread_text(&figure.ns)),
        assumed: false,
        range: range(&figure.ns),
    }
}

/// The spread as a range of the median; a difference of two measurements may fall below 0, which no
/// cost does.
fn range(ns: &Spread) -> Option<[f64; 2]> {
    let least = ns.median / RANGE_WITHIN;
    (ns.median > 0.0).then(|| {
        [digits(ns.min.max(least)).min(digits(ns.median)), digits(ns.max).max(digits(ns.median))]
    })
}

/// Five digits: a machine's drift is larger than the rest.
fn digits(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

fn costs(found: &Calibration, stand_in: &Costs, is_splintered: bool) -> Costs {
    let kernel = &found.kernel;
    let or = |figure: &Option<Figure>, other: &Option<Quantity>| match figure {
        Some(figure) => Some(measured(figure)),
        None => other.as_ref().map(assumed),
    };
    let own = |figure: &Option<Figure>| figure.as_ref().map(measured);
    let mut costs = Costs {
        clock: clock(found),
        reference: stand_in
            .reference
            .as_ref()
            .map(|known| Quantity { assumed: true, ..known.clone() }),
        l2_hit: Some(l2_hit(found)),
        fault: or(&kernel.fault, &stand_in.fault),
        folio_alloc: own(&kernel.folio_alloc),
        map_batch: own(&kernel.map_batch),
        map_entry: or(&kernel.map_entry, &stand_in.map_entry),
        fork_entry: or(&kernel.fork_entry, &stand_in.fork_entry),
        fork_batch: own(&kernel.fork_batch),
        fork_pmd: own(&kernel.fork_pmd),
        unmap_batch: or(&kernel.unmap_batch, &stand_in.unmap_batch),
        unmap_large: own(&kernel.unmap_large),
        unmap_pte: or(&kernel.unmap_pte, &stand_in.unmap_pte),
        unmap_pmd: own(&kernel.unmap_pmd),
        page_mapcount: own(&found.mapcounts.page),
        owner_word: own(&found.mapcounts.owner_word),
        clear: clear(found),
        copy: found.copy.iter().map(rate).collect(),
        storage_latency: or(&found.storage.random, &stand_in.storage_latency),
        storage_rate: storage_rate(found).or_else(|| stand_in.storage_rate.as_ref().map(assumed)),
        ..Costs::default()
    };
    set_walks(&mut costs, found, is_splintered);
    set_apart(&mut costs, found);
    costs
}

/// Takes map counts out of the costs that were measured with them in, as `cascadelake` has them: of
/// each PTE the count of its page, of each batch of a large folio the owner word, and on the way out
/// the folio's own counter as well. Where too little would be left they stay in, and nothing stands
/// apart.
fn set_apart(costs: &mut Costs, found: &Calibration) {
    let (Some(page), Some(word)) = (&found.mapcounts.page, &found.mapcounts.owner_word) else {
        (costs.page_mapcount, costs.owner_word) = (None, None);
        return;
    };
    let (page, word) = (page.ns.median, word.ns.median);
    let mut parts = [
        (&mut costs.map_entry, page, "page_mapcount"),
        (&mut costs.fork_entry, page, "page_mapcount"),
        (&mut costs.fork_batch, word, "owner_word"),
        (&mut costs.unmap_pte, page, "page_mapcount"),
        (&mut costs.unmap_large, page + word, "page_mapcount and owner_word"),
    ];
    // What was taken from another machine has them out already.
    let measured = |cost: &Option<Quantity>| cost.as_ref().is_some_and(|cost| !cost.assumed);
    let fits = |cost: &Option<Quantity>, less: f64| {
        cost.as_ref().is_none_or(|cost| cost.assumed || cost.value > less)
    };
    if !parts.iter().all(|(cost, less, _)| fits(cost, *less)) {
        (costs.page_mapcount, costs.owner_word) = (None, None);
        return;
    }
    for (cost, less, what) in parts.iter_mut().filter(|(cost, ..)| measured(cost)) {
        let Some(cost) = cost else { continue };
        cost.value = digits(cost.value - *less);
        cost.range = cost.range.map(|[low, high]| {
            let low = (low - *less).max(cost.value / RANGE_WITHIN);
            [digits(low).min(cost.value), digits(high - *less).max(cost.value)]
        });
        cost.source = format!("{}; less {what}", cost.source);
    }
}

/// A number of another machine.
fn assumed(known: &Quantity) -> Quantity {
    Quantity {
        source: format!(
            "not measured on this machine, taken from {STAND_IN}; the head of the file \
                         says why"
        ),
        assumed: true,
        range: None,
        ..known.clone()
    }
}

fn clock(found: &Calibration) -> Option<Quantity> {
    let ghz = found.clock_ghz.filter(|ghz| ghz.median.is_finite() && ghz.median > 0.0)?;
    Some(Quantity {
        value: digits(ghz.median),
        unit: Unit::GHz,
        source: format!(
            "measured: dependent additions; median of n = {}, {:.3} to {:.3} GHz",
            ghz.n, ghz.min, ghz.max
        ),
        assumed: false,
        range: range(&ghz),
    })
}

/// What translation adds to loads over working sets between the levels.
fn l2_hit(found: &Calibration) -> Quantity {
    let curve = found.curve(Side::Data, Pages::Base);
    let extra = curve.and_then(|curve| curve.extra_over(96..=512));
    match extra.filter(|ns| ns.is_finite() && *ns > 0.05) {
        Some(ns) => Quantity {
            value: digits(ns),
            unit: Unit::Ns,
            source: "measured: loads from 96 to 512 pages less loads from as many lines of a 64th \
                     of the pages; median of working sets"
                .to_owned(),
            assumed: false,
            range: None,
        },
        None => Quantity {
            value: 2.0,
            unit: Unit::Ns,
            source: "the curve shows no level-2 hits; 7 cycles of 3.5 GHz".to_owned(),
            assumed: true,
            range: None,
        },
    }
}

/// Walks: instructions over the largest working set.
fn set_walks(costs: &mut Costs, found: &Calibration, is_splintered: bool) {
    let walk = |pages| {
        let sides = [Side::Instruction, Side::Data];
        let curve = sides.into_iter().find_map(|side| found.curve(side, pages))?;
        let point = curve.extra.last()?;
        let side = match curve.side {
            Side::Instruction => "calls of stubs",
            Side::Data => "loads",
        };
        let how =
            format!("{side} on {} pages less as many packed into a 64th of the pages", point.nr);
        let is_cost = point.ns.median.is_finite() && point.ns.median > 0.0;
        is_cost.then(|| measured(&Figure { ns: point.ns, how }))
    };
    let pte = walk(Pages::Base);
    let pmd = match walk(Pages::Pmd).filter(|_| is_splintered) {
        Some(pmd) => Some(pmd),
        // Translations of 2M folios stay in the TLB over any working set that was measured.
        None => pte.clone().map(|pte| Quantity {
            source: "as a walk to a PTE, which is longer: an upper bound".to_owned(),
            assumed: true,
            range: None,
            ..pte
        }),
    };
    if found.cpu.is_virtual == Some(true) {
        (costs.walk_nested, costs.walk_nested_pmd) = (pte, pmd);
    } else {
        (costs.walk_native, costs.walk_native_pmd) = (pte, pmd);
    }
}

/// The kernel's own clearing for base pages, user space's for larger units.
fn clear(found: &Calibration) -> Vec<UnitRate> {
    let mut rates: Vec<UnitRate> = found.clear.iter().map(rate).collect();
    if let (Some(first), Some(figure)) = (rates.first_mut(), &found.kernel.clear_page) {
        *first = rate(&Rate { unit_bytes: 4096, figure: figure.clone() });
    }
    rates
}

fn rate(known: &Rate) -> UnitRate {
    let Rate { unit_bytes, figure } = known;
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let gb_per_s = digits(*unit_bytes as f64 / figure.ns.median);
    let size = UnitBytes(*unit_bytes as u64);
    let source = format!("measured: {}; {}", figure.how, spread_text(&figure.ns));
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let range = range(&figure.ns)
        .map(|[low, high]| [high, low].map(|ns| digits(*unit_bytes as f64 / ns)))
        .map(|[low, high]| [low.min(gb_per_s), high.max(gb_per_s)]);
    UnitRate { size, gb_per_s, source, assumed: false, range }
}

fn storage_rate(found: &Calibration) -> Option<Quantity> {
    let figure = found.storage.sequential.as_ref()?;
    let value = digits(f64::from(1 << 20) / figure.ns.median);
    let range = range(&figure.ns)
        .map(|[low, high]| [high, low].map(|ns| digits(f64::from(1 << 20) / ns)))
        .map(|[low, high]| [low.min(value), high.max(value)]);
    Some(Quantity { value, unit: Unit::GbPerS, range, ..measured(figure) })
}

#[cfg(test)]
mod tests;
