//! Helpers of the TLB's tests.

mod analytic;
mod front;
mod golden;
mod refusals;
mod speed;
mod twin;
mod walks;

use largefolio_mm::units::{Order, PageSize, Pfn, Vpn};

use super::*;

/// Creates a structure; `ways == 0` is fully associative.
pub(super) fn structure(entries: u32, ways: u32, sizes: &[&str]) -> StructureConfig {
    StructureConfig {
        name: format!("{entries}x{ways}"),
        entries,
        ways: if ways == 0 { Ways::Full } else { Ways::Number(ways) },
        sizes: if sizes == ["any"] {
            EntrySizes::Any
        } else {
            EntrySizes::Listed(sizes.iter().map(|size| EntrySize::parse(size).unwrap()).collect())
        },
        source: "test".to_owned(),
        assumed: false,
    }
}

pub(super) fn config(l1: Vec<StructureConfig>, l2: Vec<StructureConfig>) -> TlbConfig {
    TlbConfig {
        l1_instruction: l1.clone(),
        l1_data: l1,
        l2,
        l2_instruction: Vec::new(),
        l2_data: Vec::new(),
        walk_cache: Vec::new(),
        walker: WalkerConfig::default(),
        address_spaces: AddressSpaces::default(),
        coalescing: CoalescingConfig {
            modes: vec![CoalescingMode::Contpte],
            source: "test".to_owned(),
            assumed: false,
        },
    }
}

fn tlb(l1: Vec<StructureConfig>, l2: Vec<StructureConfig>) -> Tlb {
    Tlb::new(&config(l1, l2), PageSize::K4)
}

/// Creates a walk that finds a leaf of `order` at the frame equal to its page.
fn walk(vpn: u64, order: u8, is_writable: bool) -> Walk {
    let leaf = match order {
        0 => LeafKind::Pte,
        9 => LeafKind::Pmd,
        _ => LeafKind::Contpte,
    };
    let order = Order::new(order);
    Walk { leaf, order, ..Walk::page(Vpn(vpn), Pfn(vpn), is_writable) }
}

fn read(tlb: &mut Tlb, vpn: u64, order: u8) -> Lookup {
    let lookup = tlb.lookup(Side::Data, Vpn(vpn), Access::Read);
    if lookup.needs_walk() {
        tlb.fill_walk(Side::Data, &walk(vpn, order, true));
    }
    tlb.validate().unwrap();
    lookup
}

/// Returns the result of each read of a base page: `1`, `2` (level) or `-` (miss).
fn reads(tlb: &mut Tlb, vpns: impl IntoIterator<Item = u64>) -> String {
    vpns.into_iter().map(|vpn| letter(read(tlb, vpn, 0))).collect()
}

fn letter(lookup: Lookup) -> char {
    match lookup {
        Lookup::L1 => '1',
        Lookup::L2 => '2',
        Lookup::Miss => '-',
        Lookup::Permission => 'p',
    }
}
