//! Tests what [`TlbConfig::check`] rejects, and its messages.

use super::*;

fn refusal(edit: impl FnOnce(&mut TlbConfig)) -> String {
    let mut config = config(vec![structure(48, 0, &["4K"])], vec![structure(1280, 5, &["4K"])]);
    config.check(&[PageSize::K4]).unwrap();
    edit(&mut config);
    config.check(&[PageSize::K4, PageSize::K64]).unwrap_err().to_string()
}

#[test]
fn contradictions_are_named_with_their_place() {
    let l2 = |edit: fn(&mut StructureConfig)| refusal(|config| edit(&mut config.l2[0]));
    assert_eq!(
        l2(|l2| l2.entries = 0),
        "tlb.l2[0] \"1280x5\": it has 0 entries; omit the structure if the machine has none"
    );
    assert_eq!(
        l2(|l2| l2.entries = 70_000),
        "tlb.l2[0] \"1280x5\": 70000 entries are more than the supported 65536"
    );
    assert_eq!(
        l2(|l2| l2.ways = Ways::Number(0)),
        "tlb.l2[0] \"1280x5\": it has 0 ways; write 1 for direct mapped or \"full\" for fully \
         associative"
    );
    assert_eq!(
        l2(|l2| l2.entries = 4),
        "tlb.l2[0] \"1280x5\": 5 ways are more than its 4 entries; use \"full\" or fewer ways"
    );
    assert_eq!(
        l2(|l2| l2.entries = 1283),
        "tlb.l2[0] \"1280x5\": 1283 entries do not divide into whole sets of 5 ways (3 left over)"
    );
    assert_eq!(
        l2(|l2| l2.sizes = EntrySizes::Listed(vec![])),
        "tlb.l2[0] \"1280x5\": sizes is empty; \
         list some, such as [\"4K\", \"2M\"], or write \"any\""
    );
    assert_eq!(
        l2(|l2| l2.source = " ".to_owned()),
        "tlb.l2[0] \"1280x5\": the source is missing; \
         name the document, or set assumed = true and give the reason"
    );
}

#[test]
fn contradictions_between_structures_are_named() {
    assert_eq!(
        refusal(|config| config.l2 = vec![structure(4, 2, &["4K"]); 9]),
        "tlb.l2: 9 structures are more than the supported 8"
    );
    assert_eq!(
        refusal(|config| config.l2_data = config.l2.clone()),
        "tlb: l2 is shared by both sides; give either l2 or l2_instruction and l2_data"
    );
    assert_eq!(
        refusal(|config| config.l1_instruction[0].sizes = EntrySizes::Any),
        "tlb: no level-1 data structure holds 64K pages; add the size to one, or remove 64K from \
         page_sizes"
    );
    assert_eq!(
        refusal(|config| config.l1_instruction.clear()),
        "tlb: no level-1 instruction structure holds 4K pages; add the size to one, or remove 4K \
         from page_sizes"
    );
}

#[test]
fn contradictory_coalescing_is_named() {
    use CoalescingMode::{Contpte, Hpa, Zen, Zen32K};
    let modes =
        |modes: &[CoalescingMode]| refusal(|config| config.coalescing.modes = modes.to_vec());
    assert_eq!(
        modes(&[Hpa, Zen]),
        "tlb.coalescing: give at most one of \"hpa\", \"zen\" and \"zen-32K\""
    );
    assert_eq!(modes(&[Contpte, Contpte]), "tlb.coalescing: \"contpte\" is listed twice");
    assert_eq!(modes(&[Zen32K]), "tlb.coalescing: \"zen\" merges 4K pages, but page_sizes has 64K");
    assert_eq!(
        refusal(|config| config.coalescing.source.clear()),
        "tlb.coalescing: the source is missing; name the document, or set assumed = true and give \
         the reason"
    );
}
