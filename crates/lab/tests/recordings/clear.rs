//! The order in which kernels zero new folios (`recordings/README.md`, "Clearing").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be compared fails the test")]

use std::collections::BTreeSet;
use std::path::Path;

use largefolio_lab::crosscheck::clears::Clears;
use largefolio_lab::crosscheck::{Aspect, Recording, read_all};
use largefolio_sim::kernel::Kernel;

/// Two forms and the kernel's own order under three preemption models, nine sizes each; and without
/// `CONFIG_PREEMPTION`, two on each of two architectures.
const NR_RECORDINGS_MIN: usize = 100;

fn recordings() -> Vec<Recording<Clears>> {
    let mut all = Vec::new();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/clear");
    read_all(&dir, &mut |recording| all.push(recording)).unwrap();
    all
}

#[test]
fn kernels_clear_in_the_models_order() {
    let all = recordings();
    assert!(all.len() >= NR_RECORDINGS_MIN, "{} recordings", all.len());
    for one in &all {
        assert!(one.body.is_complete, "{}", one.name);
        let verdict = one.check(None).unwrap();
        assert!(verdict.is_equal(), "{}: {}", one.name, verdict.differences[0]);
        assert!(verdict.nr_compared(Aspect::Clearing) > 0, "{}", one.name);
    }
    let edits: BTreeSet<&str> = all.iter().map(|one| one.header.edits.as_str()).collect();
    assert_eq!(edits.len(), 9, "{edits:?}");
}

/// The comparison can fail: under the rules without its edits, the merged form differs at every
/// size above five pages.
#[test]
fn other_orders_are_told_apart() {
    let kernel = |page: u64| Kernel::parse(&format!("6.12+page={}K", page >> 10)).unwrap();
    for one in recordings().iter().filter(|one| one.header.edits.contains("clear=merged")) {
        let verdict = one.check(Some(&kernel(one.header.page_bytes))).unwrap();
        assert!(!verdict.is_equal(), "{}", one.name);
    }
}
