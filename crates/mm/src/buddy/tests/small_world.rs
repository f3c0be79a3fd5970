//! The exhaustive small world: every sequence of six operations on 16 page frames, compared with
//! the naive twin.

use super::super::MigrateType;
use super::twin::Pair;

const REQUESTS: [(u8, MigrateType); 6] = [
    (0, MigrateType::Movable),
    (1, MigrateType::Movable),
    (3, MigrateType::Movable),
    (0, MigrateType::Unmovable),
    (2, MigrateType::Unmovable),
    (1, MigrateType::Reclaimable),
];

fn explore(pair: &Pair, nr_steps: u32) -> u64 {
    if nr_steps == 0 {
        return 1;
    }
    let allocs = REQUESTS.into_iter().map(|(order, of)| {
        let mut next = pair.clone();
        next.alloc(order, of);
        explore(&next, nr_steps - 1)
    });
    let frees = (0..pair.live.len()).map(|which| {
        let mut next = pair.clone();
        next.free(which);
        explore(&next, nr_steps - 1)
    });
    allocs.chain(frees).sum()
}

#[test]
fn every_sequence_of_six_operations_agrees_with_the_twin() {
    // Two orders above a pageblock, so that claims, steals and retags all happen.
    let nr_sequences = explore(&Pair::new(16, 4, 2), 6);
    assert!(nr_sequences > 100_000, "{nr_sequences}");
}

#[test]
fn every_sequence_of_five_operations_agrees_when_the_pageblock_is_the_largest_block() {
    assert!(explore(&Pair::new(16, 3, 3), 5) > 10_000);
}
