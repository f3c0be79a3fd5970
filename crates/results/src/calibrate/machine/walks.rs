//! What a walk costs on the measured machine.
//!
//! A line costs what a load of a line costs, shares are measured as such; what is left of a walk is
//! its fixed part: what translation adds to chains of loads, less the lines that the model counts for
//! the same chain.

use largefolio_linux::calibrate::{Calibration, Figure, Pages, Side};
use largefolio_linux::measure::Spread;
use largefolio_mm::units::{PageSize, Pfn, Vpn};
use largefolio_sim::machine::{Costs, Quantity, Unit};
use largefolio_sim::tlb::{
    Access, CacheSize, EntrySize, Lines, TableLevel, Tlb, TlbConfig, Walk, WalkCacheConfig,
    WalkerConfig, Ways,
};
use largefolio_trace::generate::Rng;

use super::costs::{assumed, digits, measured, range, spread_text};

/// Working sets, in pages, whose walks show the fixed part: level-2 entries run out, page tables are
/// in the L2 cache.
const SETS: std::ops::RangeInclusive<usize> = 6_000..=50_000;
/// The part of its size down to which noise may bring the fixed part.
const FIXED_MIN_NS: f64 = 0.5;

/// Page-walk caches: nothing tells their size.
pub(super) fn caches() -> Vec<WalkCacheConfig> {
    let of = |name: &str, level, entries, ways| WalkCacheConfig {
        name: name.to_owned(),
        level,
        entries,
        ways,
        source: "not measured; 32 PMD entries and 4 above them assumed, as on cascadelake"
            .to_owned(),
        assumed: true,
    };
    vec![
        of("PDE cache", TableLevel::Pmd, 32, Ways::Number(4)),
        of("PDPTE cache", TableLevel::Pud, 4, Ways::Full),
    ]
}

/// The walker: caches as the kernel reports them.
pub(super) fn walker(found: &Calibration, is_splintered: bool) -> WalkerConfig {
    let host_page = if is_splintered { "4K" } else { "2M" };
    let half = found.caches.llc_bytes as u64 / 2;
    WalkerConfig {
        l2: CacheSize(found.caches.l2_bytes as u64),
        llc: CacheSize(half.max(found.caches.l2_bytes as u64)),
        window: WalkerConfig::default().window,
        host_page: EntrySize::parse(host_page).unwrap_or(WalkerConfig::default().host_page),
        is_virtual: found.cpu.is_virtual == Some(true),
        source: "caches from /sys/devices/system/cpu/cpu0/cache, of the last one half; the host's \
                 pages by whether 2M folios miss where 4K folios do; instructions in flight assumed"
            .to_owned(),
        assumed: true,
    }
}

/// Writes the costs of walks.
pub(super) fn set(costs: &mut Costs, found: &Calibration, stand_in: &Costs, tlb: &TlbConfig) {
    let line = |figure: &Option<Figure>, other: &Option<Quantity>| match figure {
        Some(figure) => Some(measured(figure)),
        None => other.as_ref().map(assumed),
    };
    costs.walk_l2 = line(&found.lines.l2, &stand_in.walk_l2);
    costs.walk_llc = line(&found.lines.llc, &stand_in.walk_llc);
    costs.walk_memory = line(&found.lines.memory, &stand_in.walk_memory);
    let shares = &found.walk_shares;
    let of = |measured: &Option<Spread>, what, other: &Option<Quantity>| match measured {
        Some(spread) if spread.median > 0.0 => Some(share(spread, what)),
        _ => other.as_ref().map(assumed),
    };
    costs.walk_beside = of(&shares.beside, "of loads from lists", &stand_in.walk_beside);
    let apart = "of loads with 256 instructions between";
    costs.walk_alone = of(&shares.alone, apart, &stand_in.walk_alone);
    costs.walk_fetch = of(&shares.fetch, "of calls of stubs", &stand_in.walk_fetch);
    costs.walk = fixed(costs, found, tlb).or_else(|| stand_in.walk.as_ref().map(assumed));
}

fn share(spread: &Spread, what: &str) -> Quantity {
    Quantity {
        value: digits(spread.median),
        unit: Unit::Share,
        source: format!(
            "measured: what walks to 4K folios take longer than those to 2M folios, {what}, as a \
             share of the same for loads that need each other; median of n = {}, {:.3} to {:.3}",
            spread.n, spread.min, spread.max
        ),
        assumed: false,
        range: range(spread),
    }
}

/// The fixed part of a walk.
fn fixed(costs: &Costs, found: &Calibration, tlb: &TlbConfig) -> Option<Quantity> {
    let curve = found.curve(Side::Data, Pages::Base)?;
    // What a CPU says of itself need not make a TLB; the machine file will be refused.
    tlb.check(&[PageSize::K4]).ok()?;
    let each = |cost: &Option<Quantity>| {
        let cost = cost.as_ref()?;
        match cost.unit {
            Unit::Cycles => Some(cost.value / costs.clock.as_ref()?.value),
            _ => Some(cost.value),
        }
    };
    let (l2, llc, memory) =
        (each(&costs.walk_l2)?, each(&costs.walk_llc)?, each(&costs.walk_memory)?);
    let mut values = Vec::new();
    for point in curve.extra.iter().filter(|point| SETS.contains(&point.nr)) {
        let counted = chain(tlb, point.nr);
        let lines_ns =
            counted.lines.l2 * l2 + counted.lines.llc * llc + counted.lines.memory * memory;
        values.push(((point.ns.median - lines_ns) / counted.walks).max(FIXED_MIN_NS));
    }
    let spread = Spread::of(&values)?;
    let how = "what translation adds to chains of loads, less the lines that their walks read";
    Some(Quantity {
        source: format!("measured: {how}; {}", spread_text(&spread)),
        ..measured(&Figure { ns: spread, how: how.to_owned() })
    })
}

/// Walks, and the lines they read, of one load.
struct PerLoad {
    walks: f64,
    lines: LinesPerLoad,
}

struct LinesPerLoad {
    l2: f64,
    llc: f64,
    memory: f64,
}

/// What the model counts for a load of a chain over `nr` pages in random order.
fn chain(config: &TlbConfig, nr: usize) -> PerLoad {
    let mut tlb = Tlb::new(config, PageSize::K4);
    let mut order: Vec<u32> = (0..u32::try_from(nr).unwrap_or(u32::MAX)).collect();
    Rng::new(1).shuffle(&mut order);
    let mut pass = || {
        for &page in &order {
            let vpn = Vpn(u64::from(page));
            let side = largefolio_sim::tlb::Side::Data;
            tlb.bring_in(side, vpn.0, 1);
            if tlb.lookup(side, vpn, Access::Read).needs_walk() {
                let walk = Walk { link: 1, ..Walk::page(vpn, Pfn(vpn.0), true) };
                tlb.fill_walk(side, &walk);
            }
        }
        *tlb.counters()
    };
    let (before, after) = (pass(), pass());
    let sum = |counters: &largefolio_sim::tlb::Counters| {
        let [mut lines, host] = counters.walk_kinds.lines();
        if config.walker.is_virtual {
            lines += host;
        }
        (counters.walks(), lines)
    };
    let ((walks_before, before), (walks_after, after)) = (sum(&before), sum(&after));
    #[expect(clippy::cast_precision_loss, reason = "a few hundred thousand of each")]
    let per_load = |after: u64, before: u64| (after - before) as f64 / nr.max(1) as f64;
    let Lines { l2, llc, memory } = before;
    PerLoad {
        walks: per_load(walks_after, walks_before).max(f64::MIN_POSITIVE),
        lines: LinesPerLoad {
            l2: per_load(after.l2, l2),
            llc: per_load(after.llc, llc),
            memory: per_load(after.memory, memory),
        },
    }
}
