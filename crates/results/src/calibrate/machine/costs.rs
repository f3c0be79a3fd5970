//! Turns measurements into a machine file's costs.

use largefolio_linux::calibrate::{Calibration, Figure, Pages, Rate, Side};
use largefolio_linux::geometry::Geometry;
use largefolio_sim::cost::digits;
use largefolio_sim::machine::{Costs, Quantity, Unit, UnitBytes, UnitRate};
use largefolio_sim::tlb::TlbConfig;

use super::quantity::{RANGE_WITHIN, assumed, measured, range, spread_text};
use super::walks;
use crate::running;

/// The largest share of `unmap_pte` attributed to the page's map count. Without freeing, removing
/// an entry is little else (n = 12: 10 ns, of which 9). On a busy machine the count alone was
/// measured above that.
const MAPCOUNT_SHARE: f64 = 0.9;
/// A host that backs memory again takes at least this many times as long as clearing it.
const RETURNED: f64 = 2.0;
/// Its share in memory that it had not taken back.
const BACKED_NS: f64 = 1.0;

pub(super) fn costs(
    calibration: &Calibration,
    stand_in: &Costs,
    tlb: &TlbConfig,
    is_splintered: bool,
) -> Costs {
    let kernel = &calibration.kernel;
    let or = |figure: &Option<Figure>, other: &Option<Quantity>| match figure {
        Some(figure) => Some(measured(figure)),
        None => other.as_ref().map(assumed),
    };
    let own = |figure: &Option<Figure>| figure.as_ref().map(measured);
    let mut costs = Costs {
        clock: clock(calibration),
        reference: stand_in
            .reference
            .as_ref()
            .map(|known| Quantity { assumed: true, ..known.clone() }),
        l2_hit: Some(l2_hit(calibration)),
        fault: or(&kernel.fault, &stand_in.fault),
        fault_around: own(&kernel.fault_around),
        folio_alloc: own(&kernel.folio_alloc),
        host_backing: host_backing(calibration),
        map_batch: own(&kernel.map_batch),
        map_entry: or(&kernel.map_entry, &stand_in.map_entry),
        fork_entry: or(&kernel.fork_entry, &stand_in.fork_entry),
        fork_batch: own(&kernel.fork_batch),
        fork_large: own(&kernel.fork_large),
        fork_pmd: own(&kernel.fork_pmd),
        page_mapcount: own(&calibration.mapcounts.page),
        owner_word: own(&calibration.mapcounts.owner_word),
        clear: clear(calibration),
        copy: calibration.copy.iter().map(rate).collect(),
        storage_latency: or(&calibration.storage.random, &stand_in.storage_latency),
        storage_rate: storage_rate(calibration)
            .or_else(|| stand_in.storage_rate.as_ref().map(assumed)),
        storage_interval: deepest(calibration).map(measured),
        ..Costs::default()
    };
    set_unmap(&mut costs, calibration, stand_in);
    walks::set(&mut costs, calibration, stand_in, tlb, is_splintered);
    set_apart(&mut costs, calibration);
    costs
}

/// Sets unmapping without freeing, and freeing, both as measured. Otherwise takes both from the
/// other machine: its costs of unmapping include freeing, which must not count twice.
fn set_unmap(costs: &mut Costs, calibration: &Calibration, stand_in: &Costs) {
    let kernel = &calibration.kernel;
    let own = |figure: &Option<Figure>| figure.as_ref().map(measured);
    let needed = [&kernel.unmap_batch, &kernel.unmap_pte, &kernel.folio_free];
    if needed.iter().any(|figure| figure.is_none()) {
        costs.unmap_batch = stand_in.unmap_batch.as_ref().map(assumed);
        costs.unmap_large = stand_in.unmap_large.as_ref().map(assumed);
        costs.unmap_pte = stand_in.unmap_pte.as_ref().map(assumed);
        costs.unmap_pmd = stand_in.unmap_pmd.as_ref().map(assumed);
        return;
    }
    costs.unmap_batch = own(&kernel.unmap_batch);
    costs.unmap_large = own(&kernel.unmap_large);
    costs.unmap_pte = own(&kernel.unmap_pte);
    costs.unmap_pmd = own(&kernel.unmap_pmd);
    costs.folio_free = own(&kernel.folio_free);
    costs.page_free = own(&kernel.page_free);
}

/// Subtracts map counts from costs measured together with them, as in `cascadelake`: the page's
/// count from each PTE, the owner word from each batch of a large folio, and on unmapping the
/// folio's own counter too. A page's count takes at most [`MAPCOUNT_SHARE`] of `unmap_pte`. If a
/// subtraction would leave too little, nothing is subtracted.
fn set_apart(costs: &mut Costs, calibration: &Calibration) {
    let (Some(page), Some(word)) = (&calibration.mapcounts.page, &calibration.mapcounts.owner_word)
    else {
        (costs.page_mapcount, costs.owner_word) = (None, None);
        return;
    };
    let (mut page, word) = (page.ns.median, word.ns.median);
    if let Some(pte) = costs.unmap_pte.as_ref().filter(|pte| !pte.assumed)
        && page > MAPCOUNT_SHARE * pte.value
    {
        page = digits(MAPCOUNT_SHARE * pte.value);
        if let Some(cost) = &mut costs.page_mapcount {
            cost.value = page;
            cost.range = cost.range.map(|[low, high]| [low.min(page), high]);
            cost.source.push_str("; capped at nine tenths of unmap_pte, which includes it");
        }
    }
    let mut parts = [
        (&mut costs.map_entry, page, "page_mapcount"),
        (&mut costs.fork_entry, page, "page_mapcount"),
        (&mut costs.fork_large, word, "owner_word"),
        (&mut costs.unmap_pte, page, "page_mapcount"),
        (&mut costs.unmap_large, page + word, "page_mapcount and owner_word"),
    ];
    // Costs from another machine already exclude map counts.
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

fn clock(calibration: &Calibration) -> Option<Quantity> {
    let ghz = calibration.clock_ghz.filter(|ghz| ghz.median.is_finite() && ghz.median > 0.0)?;
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

fn l2_hit(calibration: &Calibration) -> Quantity {
    let curve = calibration.curve(Side::Data, Pages::Base);
    let extra = curve.and_then(|curve| curve.extra_over(96..=512));
    match extra.filter(|ns| ns.is_finite() && *ns > 0.05) {
        Some(ns) => Quantity {
            value: digits(ns),
            unit: Unit::Ns,
            source: "measured: loads from 96 to 512 pages minus loads from as many lines in a \
                     64th of the pages; median over working sets"
                .to_owned(),
            assumed: false,
            range: None,
        },
        None => Quantity {
            value: 2.0,
            unit: Unit::Ns,
            source: "the curve shows no level-2 hits; 7 cycles at 3.5 GHz assumed".to_owned(),
            assumed: true,
            range: None,
        },
    }
}

/// Base pages use the kernel's own clearing rate, larger units user space's.
fn clear(calibration: &Calibration) -> Vec<UnitRate> {
    let mut rates: Vec<UnitRate> = calibration.clear.iter().map(rate).collect();
    if let (Some(first), Some(figure)) = (rates.first_mut(), &calibration.kernel.clear_page) {
        *first = rate(&Rate { unit_bytes: 1 << running::page().shift(), figure: figure.clone() });
    }
    rates
}

/// Returns the host's part of a PMD folio's first touch: in repeated runs next to nothing, and
/// after a pause up to the slowest round. `None` unless a pause makes the touch much slower.
fn host_backing(calibration: &Calibration) -> Option<Quantity> {
    let returned = calibration.returned.as_ref()?;
    let clear_ns = calibration.kernel.clear_page.as_ref()?.ns.median;
    let sizes = Geometry::running();
    #[expect(clippy::cast_precision_loss, reason = "the pages of a PMD folio")]
    let own_ns = clear_ns * (sizes.pmd_bytes() / sizes.page_bytes) as f64;
    let most = returned.ns.max - own_ns;
    (most > RETURNED * own_ns).then(|| Quantity {
        value: BACKED_NS,
        unit: Unit::Ns,
        source: format!(
            "measured: {}, less clearing it; {}. Programs that soon reuse freed memory wait for \
             next to none of it",
            returned.how,
            spread_text(&returned.ns)
        ),
        assumed: false,
        range: Some([BACKED_NS, digits(most)]),
    })
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

/// Returns the figure with most outstanding reads, or `None` if it is no faster than sequential
/// reads.
fn deepest(calibration: &Calibration) -> Option<&Figure> {
    let (_, deepest) = calibration.storage.at_depth.iter().max_by_key(|(depth, _)| *depth)?;
    let one = calibration.storage.random.as_ref()?;
    Some(deepest).filter(|deepest| deepest.ns.median < one.ns.median)
}

fn storage_rate(calibration: &Calibration) -> Option<Quantity> {
    let figure = calibration.storage.sequential.as_ref()?;
    let value = digits(f64::from(1 << 20) / figure.ns.median);
    let range = range(&figure.ns)
        .map(|[low, high]| [high, low].map(|ns| digits(f64::from(1 << 20) / ns)))
        .map(|[low, high]| [low.min(value), high.max(value)]);
    Some(Quantity { value, unit: Unit::GbPerS, range, ..measured(figure) })
}
