use proptest::prelude::*;

use super::*;
use crate::machine::Machine;

fn compared(before: &str, after: &str, machine: &str) -> Comparison {
    let spec = |kernel: &str| {
        CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
    };
    Comparison::new(&spec(before), &spec(after)).unwrap()
}

fn rules(comparison: &Comparison) -> Vec<Vec<String>> {
    let of = |switch: &Switch| switch.changes.iter().map(KernelChange::rule).collect();
    comparison.switches().iter().map(of).collect()
}

#[test]
fn every_pair_of_kernels_has_mixes_that_can_be() {
    let edited = "7.2+page=64K+exec-block=64K+anon-256K=always+anon-2M=always+min-folio=1M";
    let names: Vec<&str> = Kernel::names().chain([edited]).collect();
    for before in &names {
        for after in names.iter().step_by(3) {
            let compared = compared(before, after, "altra");
            let nr = compared.switches().len();
            let parts = compared.parts();
            assert!(parts.len() <= 3 * nr, "{before} {after}");
            assert!(parts.iter().all(|mix| compared.is_possible(mix)), "{before} {after}");
            let all = compared.spec(&Mix::first(nr, nr)).unwrap();
            assert_eq!(all.kernel.rules.fault, Kernel::parse(after).unwrap().rules.fault);
        }
    }
}

#[test]
fn most_rules_are_switches_of_their_own() {
    let all_rules = rules(&compared("6.1", "7.3", "altra"));
    assert!(
        all_rules.len() > 40 && all_rules.iter().all(|rules| rules.len() == 1),
        "{all_rules:?}"
    );
}

#[test]
fn rules_that_need_each_other_move_together() {
    // Sizes of their own need a kernel that supports them.
    let all_rules = rules(&compared("6.1", "6.1+anon.sizes=per-size+anon-64K=always", "altra"));
    assert_eq!(all_rules, [["anon.size_kib.64", "anon.sizes"]]);
    let three = "6.1+anon.sizes=per-size+anon-64K=always+anon-32K=always+exec-block=64K";
    let all_rules = rules(&compared("6.1", three, "altra"));
    assert_eq!(all_rules.len(), 2, "{all_rules:?}");
    assert!(all_rules.iter().any(|rules| rules == &["fault.exec"]), "{all_rules:?}");
}

#[test]
fn the_page_is_a_rule_where_the_cells_differ_in_it() {
    assert_eq!(rules(&compared("7.2", "7.2+page=16K", "altra")), [["page"]]);
    assert!(rules(&compared("7.2", "7.2+page=64K", "grace-64k")).is_empty());
    // 32M folios need a base page above 4K.
    let all_rules = rules(&compared("7.2", "7.2+page=16K+min-folio=32M", "altra"));
    assert_eq!(all_rules, [["min_folio_bytes", "page"]]);
}

fn of(values: &[i64], mix: &Mix) -> i128 {
    let nr = mix.is_set().iter().rev().fold(0, |nr, &is_set| 2 * nr + usize::from(is_set));
    values[nr].into()
}

proptest! {
    #[test]
    fn effects_and_interactions_add_up(
        values in prop::collection::vec(any::<i64>(), 16..17),
        chosen in prop::collection::vec(any::<bool>(), 6..7),
    ) {
        let pairs = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        let pairs: Vec<[usize; 2]> =
            pairs.into_iter().zip(chosen).filter(|(_, is_chosen)| *is_chosen).map(|(p, _)| p).collect();
        let shared = attribute(4, &pairs, &|mix| Some(of(&values, mix))).unwrap();
        let difference = shared.after - shared.before;
        let sum = |of: fn(&Effect) -> i128| shared.effects.iter().map(of).sum::<i128>();
        prop_assert_eq!(sum(|effect| effect.in_order), difference);
        let pairs: i128 = shared.interactions.iter().map(|pair| pair.value).sum();
        prop_assert_eq!(sum(|effect| effect.alone) + pairs + shared.together, difference);
    }

    #[test]
    fn switches_that_only_add_up_have_no_interaction(each in prop::collection::vec(-99..99_i128, 4..5)) {
        let value = |mix: &Mix| {
            Some(mix.is_set().iter().zip(&each).map(|(&is_set, &one)| if is_set { one } else { 0 }).sum())
        };
        let shared = attribute(4, &[[0, 3], [1, 2]], &value).unwrap();
        for (effect, &alone) in shared.effects.iter().zip(&each) {
            prop_assert_eq!(*effect, Effect { alone, left_out: alone, in_order: alone });
        }
        prop_assert!(shared.interactions.iter().all(|pair| pair.value == 0));
        prop_assert_eq!(shared.together, 0);
    }
}

#[test]
fn three_that_work_only_together_are_no_pair() {
    let value = |mix: &Mix| Some(i128::from(mix.is_all()) * 7);
    let shared = attribute(3, &[[0, 1], [0, 2], [1, 2]], &value).unwrap();
    assert!(shared.interactions.iter().all(|pair| pair.value == 0));
    assert_eq!(shared.together, 7);
}

#[test]
fn what_is_not_known_is_not_shared_out() {
    assert_eq!(attribute(2, &[], &|mix| (!mix.is_all()).then_some(1)), None);
    assert!(attribute(0, &[], &|_| Some(1)).unwrap().effects.is_empty());
}
