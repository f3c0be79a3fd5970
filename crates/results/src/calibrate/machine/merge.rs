//! Several calibrations of one machine as one: a cost is their mean, and its range holds them all.
//!
//! A machine drifts by more from one hour to the next than within the rounds of one calibration, so
//! the bounds of an estimate that knows only one are too narrow. Calibrations belong together if CPU
//! and kernel are the same. Costs that only make sense together - unmapping with or without freeing,
//! entries with or without map counts - are kept from before only if the same ones were measured
//! then; else the last calibration stands alone for them.

use largefolio_sim::cost::digits;
use largefolio_sim::machine::{Costs, Machine, Quantity, UnitRate};

/// Weight at which a mean no longer becomes heavier, so that it follows a machine that changes.
const NR_MAX: u32 = 8;

/// Adds to `made` what `earlier` knows; whether there was anything to add.
pub(super) fn add(made: &mut Machine, earlier: &Machine) -> bool {
    let same_cpu = made.cpu.is_some() && made.cpu == earlier.cpu;
    let (Some(now), Some(before)) = (&mut made.calibrated, &earlier.calibrated) else {
        return false;
    };
    if !same_cpu || now.kernel != before.kernel || before.nr == 0 {
        return false;
    }
    let weight = before.nr.min(NR_MAX);
    now.nr = before.nr.saturating_add(1);
    add_costs(&mut made.costs, &earlier.costs, weight);
    true
}

fn add_costs(costs: &mut Costs, earlier: &Costs, weight: u32) {
    // A cost that one of them lacks would change what the others stand for.
    let apart = |costs: &Costs| {
        [&costs.page_mapcount, &costs.owner_word, &costs.folio_free]
            .map(|cost| is_measured(cost.as_ref()))
    };
    let fits = apart(costs) == apart(earlier);
    let single = [
        (&mut costs.clock, &earlier.clock),
        (&mut costs.l2_hit, &earlier.l2_hit),
        (&mut costs.walk, &earlier.walk),
        (&mut costs.walk_pmd, &earlier.walk_pmd),
        (&mut costs.walk_l2, &earlier.walk_l2),
        (&mut costs.walk_llc, &earlier.walk_llc),
        (&mut costs.walk_memory, &earlier.walk_memory),
        (&mut costs.walk_beside, &earlier.walk_beside),
        (&mut costs.walk_alone, &earlier.walk_alone),
        (&mut costs.walk_fetch, &earlier.walk_fetch),
        (&mut costs.fault, &earlier.fault),
        (&mut costs.fault_around, &earlier.fault_around),
        (&mut costs.folio_alloc, &earlier.folio_alloc),
        (&mut costs.map_batch, &earlier.map_batch),
        (&mut costs.fork_batch, &earlier.fork_batch),
        (&mut costs.fork_pmd, &earlier.fork_pmd),
        (&mut costs.storage_latency, &earlier.storage_latency),
        (&mut costs.storage_rate, &earlier.storage_rate),
        (&mut costs.storage_interval, &earlier.storage_interval),
    ];
    let together = [
        (&mut costs.map_entry, &earlier.map_entry),
        (&mut costs.fork_entry, &earlier.fork_entry),
        (&mut costs.fork_large, &earlier.fork_large),
        (&mut costs.unmap_batch, &earlier.unmap_batch),
        (&mut costs.unmap_large, &earlier.unmap_large),
        (&mut costs.unmap_pte, &earlier.unmap_pte),
        (&mut costs.unmap_pmd, &earlier.unmap_pmd),
        (&mut costs.folio_free, &earlier.folio_free),
        (&mut costs.page_free, &earlier.page_free),
        (&mut costs.page_mapcount, &earlier.page_mapcount),
        (&mut costs.owner_word, &earlier.owner_word),
    ];
    for (cost, earlier) in single.into_iter().chain(together.into_iter().filter(|_| fits)) {
        add_quantity(cost, earlier.as_ref(), weight);
    }
    add_rates(&mut costs.clear, &earlier.clear, weight);
    add_rates(&mut costs.copy, &earlier.copy, weight);
}

fn is_measured(cost: Option<&Quantity>) -> bool {
    cost.is_some_and(|cost| !cost.assumed)
}

fn add_quantity(cost: &mut Option<Quantity>, earlier: Option<&Quantity>, weight: u32) {
    let Some(earlier) = earlier.filter(|earlier| !earlier.assumed) else { return };
    match cost {
        Some(cost) if !cost.assumed && cost.unit == earlier.unit => {
            let mean = Mean::of((cost.value, cost.range), (earlier.value, earlier.range), weight);
            (cost.value, cost.range) = (mean.value, Some(mean.range));
            cost.source.push_str(&mean.note(weight));
        }
        // What this calibration could not measure, an earlier one did.
        Some(cost) if cost.assumed => *cost = earlier.clone(),
        Some(_) => {}
        None => *cost = Some(earlier.clone()),
    }
}

fn add_rates(rates: &mut [UnitRate], earlier: &[UnitRate], weight: u32) {
    for rate in rates.iter_mut().filter(|rate| !rate.assumed) {
        let same = earlier.iter().find(|earlier| earlier.size == rate.size && !earlier.assumed);
        let Some(earlier) = same else { continue };
        let mean = Mean::of((rate.gb_per_s, rate.range), (earlier.gb_per_s, earlier.range), weight);
        (rate.gb_per_s, rate.range) = (mean.value, Some(mean.range));
        rate.source.push_str(&mean.note(weight));
    }
}

/// A cost of several calibrations.
struct Mean {
    value: f64,
    range: [f64; 2],
}

impl Mean {
    /// Of one, and of `weight` earlier ones.
    fn of(
        (value, range): (f64, Option<[f64; 2]>),
        (earlier, earlier_range): (f64, Option<[f64; 2]>),
        weight: u32,
    ) -> Self {
        let mean = (value + f64::from(weight) * earlier) / f64::from(weight + 1);
        let [low, high] = range.unwrap_or([value; 2]);
        let [earlier_low, earlier_high] = earlier_range.unwrap_or([earlier; 2]);
        let mean = digits(mean);
        Self {
            value: mean,
            range: [low.min(earlier_low).min(mean), high.max(earlier_high).max(mean)],
        }
    }

    fn note(&self, weight: u32) -> String {
        let [low, high] = self.range;
        format!("; here the mean with {weight} earlier calibrations, of {low} to {high}")
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
    fn a_cost_is_the_mean_of_all_calibrations_and_its_range_holds_them() {
        let mut made = machine("6.18", 1, Some(cost(400.0, [390.0, 500.0])));
        assert!(add(&mut made, &machine("6.18", 3, Some(cost(800.0, [600.0, 900.0])))));
        let fault = made.costs.fault.clone().unwrap();
        assert_eq!((fault.value, fault.range), (700.0, Some([390.0, 900.0])));
        assert!(fault.source.ends_with("mean with 3 earlier calibrations, of 390 to 900"));
        assert_eq!(made.calibrated.as_ref().unwrap().nr, 4);
        made.to_toml("").unwrap();
    }

    #[test]
    fn what_this_calibration_could_not_measure_stays_as_it_was_measured() {
        let mut made = machine("6.18", 1, None);
        let before = machine("6.18", 1, Some(cost(800.0, [600.0, 900.0])));
        assert!(add(&mut made, &before));
        assert_eq!(made.costs.fault, before.costs.fault);
    }

    #[test]
    fn another_kernel_cpu_or_a_file_by_hand_is_not_added() {
        let own = || machine("6.18", 1, Some(cost(400.0, [390.0, 500.0])));
        let other_cpu = Machine { cpu: Some("other".to_owned()), ..own() };
        let by_hand = Machine { calibrated: None, ..own() };
        for earlier in [machine("6.12", 1, Some(cost(1.0, [1.0, 1.0]))), other_cpu, by_hand] {
            let mut made = own();
            assert!(!add(&mut made, &earlier));
            assert_eq!(made, own());
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
        let mut made = both(Some(cost(200.0, [200.0; 2])), 100.0);
        assert!(add(&mut made, &both(None, 300.0)));
        assert_eq!(made.costs.unmap_batch, Some(cost(100.0, [100.0; 2])));
        assert!(add(&mut made, &both(Some(cost(100.0, [100.0; 2])), 300.0)));
        assert!(made.costs.unmap_batch.unwrap().value > 100.0);
    }
}
