//! The costs of page walks on the measured machine.
//!
//! Reading a page-table line costs as much as loading any other line; the shares of walks are
//! measured. The rest is the walk's fixed part: the cost of translation in chains of loads, minus
//! the lines that the model counts for the same chain.

use largefolio_linux::calibrate::{Calibration, Figure, HostLines, Pages, Side};
use largefolio_linux::measure::Spread;
use largefolio_mm::units::{PageSize, Pfn, Vpn};
use largefolio_sim::cost::{digits, ns_each};
use largefolio_sim::machine::{Costs, Machine, Quantity, Unit};
use largefolio_sim::tlb::{
    self, Access, CacheSize, EntrySize, LeafKind, Lines, Tlb, TlbConfig, TlbLevel, Walk,
    WalkCacheConfig, WalkerConfig, Ways,
};
use largefolio_trace::generate::Rng;

use super::quantity::{assumed, measured, range};
use crate::running;

/// Working sets, in pages, whose walks show the fixed part: level-2 entries run out, and page
/// tables are in the L2 cache.
const SETS: std::ops::RangeInclusive<usize> = 6_000..=50_000;
/// The lower limit of the fixed part, in nanoseconds, because noise could make it negative.
const FIXED_MIN_NS: f64 = 0.5;

/// Page-walk caches, with assumed sizes: nothing reports them.
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
        of("PDE cache", TlbLevel::Pmd, 32, Ways::Number(4)),
        of("PDPTE cache", TlbLevel::Pud, 4, Ways::Full),
    ]
}

pub(super) fn walker(
    calibration: &Calibration,
    is_splintered: bool,
    listed: Option<&Machine>,
) -> WalkerConfig {
    let host_page = if is_splintered { "4K" } else { "2M" };
    let half = calibration.caches.llc_bytes as u64 / 2;
    let kept = calibration.lines.kept_bytes.map(|bytes| bytes as u64);
    let window = listed.map(|listed| (listed.tlb.walker.window, &listed.name));
    let host_lines =
        calibration.host_lines.as_ref().map(|lines| per_thousand(lines, is_splintered));
    WalkerConfig {
        l2: CacheSize(calibration.caches.l2_bytes as u64),
        llc: CacheSize(kept.unwrap_or(half).max(calibration.caches.l2_bytes as u64)),
        window: window.map_or(WalkerConfig::default().window, |(window, _)| window),
        host_page: EntrySize::parse(host_page).unwrap_or(WalkerConfig::default().host_page),
        is_virtual: is_splintered || calibration.cpu.is_virtual == Some(true),
        host_lines,
        source: format!(
            "{}; the host's page size inferred from whether 2M folios start to miss at the same \
             sizes as 4K folios; {}; {}",
            match (calibration.caches.is_reported, kept) {
                (true, Some(_)) =>
                    "caches from /sys/devices/system/cpu/cpu0/cache, with the part of the last \
                     level that kept a circle of loads",
                (true, None) =>
                    "caches from /sys/devices/system/cpu/cpu0/cache, with half of the last level",
                (false, _) => "the kernel does not report the caches; typical sizes assumed",
            },
            if host_lines.is_some() {
                "lines of the host's table counted in pagemap, for 64 MiB of base pages"
            } else {
                "page frames are hidden (run as root), so base pages are assumed to be in order"
            },
            window.map_or_else(
                || "number of instructions in flight assumed".to_owned(),
                |(_, name)| format!("number of instructions in flight as on {name}")
            )
        ),
        assumed: true,
    }
}

fn per_thousand(lines: &HostLines, is_splintered: bool) -> u32 {
    let each = if is_splintered { lines.of_4k } else { lines.of_2m };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let nr = (each * 1000.0).round().clamp(1.0, 1000.0) as u32;
    nr
}

pub(super) fn set(
    costs: &mut Costs,
    calibration: &Calibration,
    stand_in: &Costs,
    tlb: &TlbConfig,
    is_splintered: bool,
) {
    let line = |figure: &Option<Figure>, other: &Option<Quantity>| match figure {
        Some(figure) => Some(measured(figure)),
        None => other.as_ref().map(assumed),
    };
    costs.walk_l2 = line(&calibration.lines.l2, &stand_in.walk_l2);
    costs.walk_llc = line(&calibration.lines.llc, &stand_in.walk_llc);
    costs.walk_memory = line(&calibration.lines.memory, &stand_in.walk_memory);
    let shares = &calibration.walk_shares;
    let of = |measured: &Option<Spread>, what, other: &Option<Quantity>| match measured {
        // An impossible share means that the measurement was disturbed.
        Some(spread) if Unit::Share.limits().contains(&spread.median) => Some(share(spread, what)),
        _ => other.as_ref().map(assumed),
    };
    costs.walk_beside = of(&shares.overlapped, "for loads from lists", &stand_in.walk_beside);
    let limits = Unit::Ns.limits();
    let time = |ns: &Option<Spread>, how: &str| {
        let ns = ns.filter(|ns| limits.contains(&ns.median))?;
        Some(measured(&Figure { ns, how: how.to_owned() }))
    };
    let how = "extra time of a load from a list if each line is on its own page";
    costs.walk_overlapped = time(&shares.overlapped_ns, how);
    let apart = "for loads with 256 instructions between them";
    costs.walk_alone = of(&shares.alone, apart, &stand_in.walk_alone);
    let how = "extra time of a call to a stub if each is on its own page, less that of a dependent \
               load";
    costs.fetch_miss = time(&shares.fetch_miss_ns, how);
    costs.walk_fetch = match costs.fetch_miss {
        Some(_) => Some(whole_walk()),
        None => stand_in.walk_fetch.as_ref().map(assumed),
    };
    costs.walk =
        fixed(costs, calibration, Pages::Base, tlb).or_else(|| stand_in.walk.as_ref().map(assumed));
    // If 2M folios have their own entries, few walks end at a PMD entry.
    costs.walk_pmd = if is_splintered { fixed(costs, calibration, Pages::Pmd, tlb) } else { None };
}

/// What `fetch_miss` assumes: it is the time beyond a whole walk.
fn whole_walk() -> Quantity {
    Quantity {
        value: 1.0,
        unit: Unit::Share,
        source: "a fetch waits for the whole walk; fetch_miss is the rest".to_owned(),
        assumed: false,
        range: None,
    }
}

fn share(spread: &Spread, what: &str) -> Quantity {
    Quantity {
        value: digits(spread.median),
        unit: Unit::Share,
        source: format!(
            "measured: extra time if each line is on its own page, {what}, as a share of the extra \
             time for dependent loads; median of n = {}, {:.3} to {:.3}",
            spread.n, spread.min, spread.max
        ),
        assumed: false,
        range: range(spread).map(|[low, high]| [low, high.min(*Unit::Share.limits().end())]),
    }
}

fn fixed(
    costs: &Costs,
    calibration: &Calibration,
    pages: Pages,
    tlb: &TlbConfig,
) -> Option<Quantity> {
    let curve = calibration.curve(Side::Data, pages)?;
    // CPUID may describe an impossible TLB; the machine file will be refused.
    let base = running::page();
    let mut tlb = tlb.clone();
    if let Some(lines) = &curve.host_lines {
        let is_splintered = tlb.walker.host_page.bytes() < 2 << 20;
        tlb.walker.host_lines = Some(per_thousand(lines, is_splintered));
    }
    tlb.check(&[base]).ok()?;
    let each = |cost: &Option<Quantity>| ns_each(cost.as_ref()?, costs);
    let (l2, llc, memory) =
        (each(&costs.walk_l2)?, each(&costs.walk_llc)?, each(&costs.walk_memory)?);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred thousand of each")]
    let float = |nr: u64| nr as f64;
    let mut medians = Vec::new();
    for point in curve.extra.iter().filter(|point| SETS.contains(&point.nr)) {
        let (nr_walks, lines) = chain(&tlb, base, point.nr, pages);
        let lines_ns = float(lines.l2) * l2 + float(lines.llc) * llc + float(lines.memory) * memory;
        let walks_ns = point.ns.median * float(point.nr as u64) - lines_ns;
        medians.push((walks_ns / float(nr_walks.max(1))).max(FIXED_MIN_NS));
    }
    let ns = Spread::of(&medians)?;
    let how = "time that translation adds to chains of loads over n working sets, minus the time \
               to read the lines of their walks; one median per working set";
    Some(measured(&Figure { ns, how: how.to_owned() }))
}

/// Follows a chain of loads over `nr` pages in random order twice, and counts the second pass's
/// walks and the lines that they read.
fn chain(config: &TlbConfig, base: PageSize, nr: usize, pages: Pages) -> (u64, Lines) {
    let mut tlb = Tlb::new(config, base);
    let pmd_order = base.pmd_order();
    let mut order: Vec<u32> = (0..u32::try_from(nr).unwrap_or(u32::MAX)).collect();
    Rng::new(1).shuffle(&mut order);
    let mut pass = || {
        for &page in &order {
            let (side, vpn) = (tlb::Side::Data, Vpn(u64::from(page)));
            tlb.bring_in(side, vpn.0, 1);
            if tlb.lookup(side, vpn, Access::Read).needs_walk() {
                let page = Walk::page(vpn, Pfn(vpn.0), true);
                let walk = match pages {
                    Pages::Base => Walk { link: 1, ..page },
                    Pages::Pmd => Walk { link: 1, leaf: LeafKind::Pmd, order: pmd_order, ..page },
                };
                tlb.fill_walk(side, &walk);
            }
        }
        let [own, host] = tlb.counters().walk_kinds.lines();
        let host = if config.walker.is_virtual { host } else { Lines::default() };
        let lines = Lines {
            l2: own.l2 + host.l2,
            llc: own.llc + host.llc,
            memory: own.memory + host.memory,
        };
        (tlb.counters().walks(), lines)
    };
    let ((walks_before, before), (walks, lines)) = (pass(), pass());
    let Lines { l2, llc, memory } = before;
    let lines = Lines { l2: lines.l2 - l2, llc: lines.llc - llc, memory: lines.memory - memory };
    (walks - walks_before, lines)
}
