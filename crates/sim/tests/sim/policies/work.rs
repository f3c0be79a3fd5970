//! The work and memory of policies count against their cell's budget.

use largefolio_sim::replay::{
    Budget, CellError, CellSpec, Excess, OverBudget, ReplayError, replay,
};

use super::{cell, compiled, replayed, root};

fn over_budget(trace: &str, spec: &CellSpec) -> (OverBudget, String) {
    let told = replay(&root().join("traces").join(trace), std::slice::from_ref(spec), &mut |_| {});
    let error = told.unwrap_err();
    let text = error.to_string();
    let ReplayError::Cell { source: CellError::OverBudget(over), .. } = error else {
        panic!("another error: {text}")
    };
    (*over, text)
}

/// Hundreds of lookups per scanned folio exceed the budget early, like a hostile trace.
#[test]
fn a_policy_that_computes_without_end_ends_within_the_budget() {
    let source = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
        SEC(\"folio/victim\") __u64 f(struct folio_context *c)\n\
        {\n\
            __u64 key = c->page, nr = 0;\n\
            _Pragma(\"unroll\") for (int i = 0; i < 500; i++)\n\
                nr += bpf_map_lookup_elem(&m, &key) != 0;\n\
            return nr > 1000 ? FOLIO_EVICT : FOLIO_KEEP;\n\
        }";
    let Some(policy) = compiled("burns", source) else { return };
    let plain = cell("6.16", "altra");
    let mut spec = CellSpec { kernel: plain.kernel.with_policy(policy.unwrap()), ..plain };
    spec.cgroups = vec!["6M".parse().unwrap()];
    spec.budget = Budget { steps: 1 << 20, steps_per_row: 0, ..Budget::default() };
    let (over, text) = over_budget("make.folio", &spec);
    let Excess::Steps { taken, allowed, of_policy } = over.excess else { panic!("{text}") };
    assert!(taken < 2 * allowed && of_policy > allowed / 2, "{text}");
    assert!(text.contains("of them in the policy, but") && text.contains("policy burns"), "{text}");
    assert_eq!(over_budget("make.folio", &spec), (over, text), "the same again");
}

/// 40 MiB of variables and 16 MiB of a map, all zeros and never written, but counted as possible
/// memory use.
#[test]
fn what_a_policy_may_hold_is_state_of_its_cell() {
    let source = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(table, FOLIO_ARRAY, __u32, __u64, 2 << 20);\n\
        static __u64 all[5 << 20];\n\
        SEC(\"folio/around\") __u64 f(struct folio_context *c)\n\
        {\n\
            __u32 key = 0;\n\
            __u64 *first = bpf_map_lookup_elem(&table, &key);\n\
            return all[c->page & 7]++ + (first ? *first : 0) < 100 ? FOLIO_OWN : 1;\n\
        }";
    let Some(policy) = compiled("holds", source) else { return };
    let plain = cell("6.16", "altra");
    let state_bytes = 48 << 20;
    let budget = Budget { state_bytes, ..Budget::default() };
    let kernel = plain.kernel.with_policy(policy.unwrap());
    let spec = CellSpec { kernel, budget, ..plain.clone() };
    let (over, text) = over_budget("demo.folio", &spec);
    let Excess::State { held, allowed } = over.excess else { panic!("{text}") };
    assert!(held > 56 << 20 && allowed == state_bytes, "{text}");
    replayed("demo.folio", &[CellSpec { budget, ..plain }]);
}
