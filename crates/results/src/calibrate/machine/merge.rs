//! Merges several calibrations of one machine: a cost is the mean of all calibrations, and its
//! range covers them all.
//!
//! A machine drifts more from hour to hour than within one calibration's rounds, so bounds from one
//! calibration are too narrow. Calibrations with the same CPU and kernel are merged. Some costs
//! only make sense together: unmapping with or without freeing, entries with or without map counts.
//! Their earlier values are kept only if the earlier calibration measured the same set; otherwise,
//! only the last calibration counts.

use std::collections::BTreeMap;

use largefolio_sim::cost::digits;
use largefolio_sim::machine::{Costs, Machine, Quantity, UnitRate};

/// The largest weight of a mean, so that it follows a machine that changes.
const NR_MAX: u32 = 8;
/// Calibrations that differ by this factor did not measure the same machine.
const FAR: f64 = 3.0;
/// Costs that change their meaning if another of them is missing.
const TOGETHER: [&str; 11] = [
    "map_entry",
    "fork_entry",
    "fork_large",
    "unmap_batch",
    "unmap_large",
    "unmap_pte",
    "unmap_pmd",
    "folio_free",
    "page_free",
    "page_mapcount",
    "owner_word",
];
/// Costs of programs, not of a machine: no calibration measures them.
const NOT_MEASURED: [&str; 2] = ["cpi", "reference"];

pub(super) fn add(calibrated: &mut Machine, earlier: &Machine) -> bool {
    let same_cpu = calibrated.cpu.is_some() && calibrated.cpu == earlier.cpu;
    let (Some(now), Some(before)) = (&mut calibrated.calibrated, &earlier.calibrated) else {
        return false;
    };
    if !same_cpu || now.kernel != before.kernel || before.nr == 0 {
        return false;
    }
    now.nr = before.nr.saturating_add(1);
    add_costs(&mut calibrated.costs, &earlier.costs, now.nr);
    true
}

/// Returns the costs that an earlier calibration measured as [`FAR`] times as large or small.
pub(super) fn far_apart(now: &Costs, earlier: &Costs) -> Vec<String> {
    let known: BTreeMap<&str, &Quantity> = earlier.known().collect();
    let far = now.known().filter_map(|(name, cost)| {
        let before = known.get(name).filter(|before| before.unit == cost.unit)?;
        let ratio = cost.value / before.value;
        let is_far = ratio.max(1.0 / ratio) >= FAR && !cost.assumed && !before.assumed;
        is_far.then(|| format!("{name} {} now, {} {} before", cost.value, before.value, cost.unit))
    });
    far.collect()
}

fn add_costs(costs: &mut Costs, earlier: &Costs, nr: u32) {
    // A cost that one side lacks would change the meaning of the others.
    let apart = |costs: &Costs| {
        [&costs.page_mapcount, &costs.owner_word, &costs.folio_free]
            .map(|cost| is_measured(cost.as_ref()))
    };
    let fits = apart(costs) == apart(earlier);
    let known: BTreeMap<&str, &Quantity> = earlier.known().collect();
    for (name, cost) in costs.quantities_mut() {
        let is_kept = NOT_MEASURED.contains(&name) || !fits && TOGETHER.contains(&name);
        if let Some(earlier) = known.get(name).filter(|earlier| !is_kept && !earlier.assumed) {
            add_quantity(cost, earlier, nr);
        }
    }
    add_rates(&mut costs.clear, &earlier.clear, nr);
    add_rates(&mut costs.copy, &earlier.copy, nr);
}

fn is_measured(cost: Option<&Quantity>) -> bool {
    cost.is_some_and(|cost| !cost.assumed)
}

fn add_quantity(cost: &mut Option<Quantity>, earlier: &Quantity, nr: u32) {
    match cost {
        Some(cost) if !cost.assumed && cost.unit == earlier.unit => {
            let mean = Mean::of((cost.value, cost.range), (earlier.value, earlier.range), nr);
            (cost.value, cost.range) = (mean.value, Some(mean.range));
            cost.source.push_str(&mean.note(nr));
        }
        // An earlier calibration measured this cost.
        Some(cost) if cost.assumed => *cost = earlier.clone(),
        Some(_) => {}
        None => *cost = Some(earlier.clone()),
    }
}

fn add_rates(rates: &mut [UnitRate], earlier: &[UnitRate], nr: u32) {
    for rate in rates.iter_mut().filter(|rate| !rate.assumed) {
        let same = earlier.iter().find(|earlier| earlier.size == rate.size && !earlier.assumed);
        let Some(earlier) = same else { continue };
        let mean = Mean::of((rate.gb_per_s, rate.range), (earlier.gb_per_s, earlier.range), nr);
        (rate.gb_per_s, rate.range) = (mean.value, Some(mean.range));
        rate.source.push_str(&mean.note(nr));
    }
}

struct Mean {
    value: f64,
    range: [f64; 2],
}

impl Mean {
    fn of(
        (value, range): (f64, Option<[f64; 2]>),
        (earlier, earlier_range): (f64, Option<[f64; 2]>),
        nr: u32,
    ) -> Self {
        let weight = nr.saturating_sub(1).min(NR_MAX);
        let mean = (value + f64::from(weight) * earlier) / f64::from(weight + 1);
        let [low, high] = range.unwrap_or([value; 2]);
        let [earlier_low, earlier_high] = earlier_range.unwrap_or([earlier; 2]);
        let mean = digits(mean);
        Self {
            value: mean,
            range: [low.min(earlier_low).min(mean), high.max(earlier_high).max(mean)],
        }
    }

    fn note(&self, nr: u32) -> String {
        let [low, high] = self.range;
        format!("; mean of {nr} calibrations, {low} to {high} in all")
    }
}

#[cfg(test)]
mod tests {
    use largefolio_sim::machine::{Calibrated, Unit};

    use super::*;

    fn cost(value: f64, range: [f64; 2]) -> Quantity {
        let source = "measured: x".to_owned();
        Quantity { value, unit: Unit::Ns, source, assumed: false, range: Some(range) }
    }

    fn machine(kernel: &str, nr: u32, fault: Option<Quantity>) -> Machine {
        let base = Machine::named("cascadelake").unwrap();
        let costs = Costs { fault, ..base.costs.clone() };
        let calibrated = Some(Calibrated { kernel: kernel.to_owned(), nr });
        Machine { cpu: Some("a CPU".to_owned()), calibrated, costs, ..base }
    }

    #[test]
    fn costs_that_differ_threefold_are_named() {
        let now = machine("6.18", 1, Some(cost(300.0, [290.0, 310.0]))).costs;
        let of = |value| {
            let earlier = machine("6.18", 1, Some(cost(value, [value; 2]))).costs;
            far_apart(&now, &earlier)
        };
        assert_eq!(of(101.0), Vec::<String>::new());
        assert_eq!(of(890.0), Vec::<String>::new());
        assert_eq!(of(900.0), ["fault 300 now, 900 ns before"]);
        assert_eq!(of(100.0), ["fault 300 now, 100 ns before"]);
    }

    #[test]
    fn costs_are_averaged_over_all_calibrations() {
        let mut calibrated = machine("6.18", 1, Some(cost(400.0, [390.0, 500.0])));
        assert!(add(&mut calibrated, &machine("6.18", 3, Some(cost(800.0, [600.0, 900.0])))));
        let fault = calibrated.costs.fault.clone().unwrap();
        assert_eq!((fault.value, fault.range), (700.0, Some([390.0, 900.0])));
        assert!(fault.source.ends_with("; mean of 4 calibrations, 390 to 900 in all"));
        assert_eq!(calibrated.calibrated.as_ref().unwrap().nr, 4);
        calibrated.to_toml("").unwrap();
    }

    #[test]
    fn the_note_counts_calibrations_whose_weight_is_bounded() {
        let mut calibrated = machine("6.18", 1, Some(cost(900.0, [900.0; 2])));
        assert!(add(&mut calibrated, &machine("6.18", 20, Some(cost(9.0, [9.0; 2])))));
        let fault = calibrated.costs.fault.unwrap();
        assert!((fault.value - 108.0).abs() < 1e-9, "a ninth of the last: {}", fault.value);
        assert!(fault.source.ends_with("mean of 21 calibrations, 9 to 900 in all"));
    }

    #[test]
    fn unmeasured_costs_are_not_taken_from_earlier_calibrations() {
        let mut calibrated = machine("6.18", 1, None);
        let mut before = machine("6.18", 1, None);
        (calibrated.costs.cpi, before.costs.cpi) = (None, Some(cost(1.0, [1.0; 2])));
        assert!(add(&mut calibrated, &before));
        assert_eq!(calibrated.costs.cpi, None);
        let names: Vec<_> =
            calibrated.costs.quantities_mut().into_iter().map(|(name, _)| name).collect();
        assert!(TOGETHER.iter().chain(&NOT_MEASURED).all(|name| names.contains(name)));
    }

    #[test]
    fn earlier_measurements_fill_gaps_of_this_calibration() {
        let mut calibrated = machine("6.18", 1, None);
        let before = machine("6.18", 1, Some(cost(800.0, [600.0, 900.0])));
        assert!(add(&mut calibrated, &before));
        assert_eq!(calibrated.costs.fault, before.costs.fault);
    }

    #[test]
    fn another_kernel_cpu_or_a_file_by_hand_is_not_added() {
        let own = || machine("6.18", 1, Some(cost(400.0, [390.0, 500.0])));
        let other_cpu = Machine { cpu: Some("other".to_owned()), ..own() };
        let by_hand = Machine { calibrated: None, ..own() };
        for earlier in [machine("6.12", 1, Some(cost(1.0, [1.0, 1.0]))), other_cpu, by_hand] {
            let mut calibrated = own();
            assert!(!add(&mut calibrated, &earlier));
            assert_eq!(calibrated, own());
        }
    }

    #[test]
    fn unmapping_without_freeing_is_not_mixed_with_unmapping_with_it() {
        let both = |freed: Option<Quantity>, ns| {
            let mut machine = machine("6.18", 1, Some(cost(400.0, [400.0; 2])));
            (machine.costs.folio_free, machine.costs.unmap_batch) =
                (freed, Some(cost(ns, [ns; 2])));
            machine
        };
        let mut calibrated = both(Some(cost(200.0, [200.0; 2])), 100.0);
        assert!(add(&mut calibrated, &both(None, 300.0)));
        assert_eq!(calibrated.costs.unmap_batch, Some(cost(100.0, [100.0; 2])));
        assert!(add(&mut calibrated, &both(Some(cost(100.0, [100.0; 2])), 300.0)));
        assert!(calibrated.costs.unmap_batch.unwrap().value > 100.0);
    }
}
