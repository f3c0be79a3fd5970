//! Where the page walks are. The first column determines order and selection, so a line shows the
//! same addresses in all columns.

use std::collections::HashMap;

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::regions::{Block, Regions};

use super::section::{Section, SectionLine};
use crate::figures::{bytes, counted, grouped, percent, printable};

const NR_SHOWN: usize = 12;

fn key(block: &Block) -> (usize, u64) {
    (block.program, block.start)
}

fn label(block: &Block) -> String {
    let name = match block.kind {
        AreaKind::File => printable(block.path.rsplit('/').next().unwrap_or(&block.path)),
        AreaKind::Heap => "heap".to_owned(),
        AreaKind::Stack => "stack".to_owned(),
        AreaKind::Private => "memory".to_owned(),
    };
    format!("{name} at {:#x}", block.start)
}

pub(super) fn section(rows: &[Outcome]) -> Option<Section> {
    let first = rows.first()?.regions.as_ref()?;
    let blocks = |regions: &Regions| -> HashMap<_, _> {
        regions.blocks.iter().map(|block| (key(block), block.walks())).collect()
    };
    let by_row: Vec<_> = rows.iter().map(|row| row.regions.as_ref().map(blocks)).collect();
    let walks = |row: usize, block: &Block| {
        by_row[row].as_ref().and_then(|blocks| blocks.get(&key(block))).copied().unwrap_or(0)
    };
    let wholes: Vec<u64> =
        rows.iter().map(|row| row.regions.as_ref().map_or(0, |regions| regions.walks)).collect();
    let shown = &first.blocks[..first.blocks.len().min(NR_SHOWN)];
    let mut rest = wholes.clone();
    let mut lines: Vec<SectionLine> = shown
        .iter()
        .map(|block| {
            let values: Vec<u64> = (0..rows.len()).map(|row| walks(row, block)).collect();
            rest.iter_mut().zip(&values).for_each(|(rest, value)| *rest -= value);
            SectionLine::counts(label(block), values).with_shares_of(&wholes)
        })
        .collect();
    if first.nr_blocks > shown.len() as u64 {
        lines.push(SectionLine::counts("elsewhere", rest).with_shares_of(&wholes));
    }
    Some(Section::new("Page walks by address", lines))
}

/// Says how much of the memory has most of the walks.
pub(super) fn sentence(rows: &[Outcome]) -> Option<String> {
    let Regions { block_bytes, nr_blocks, walks, nr_for_three_quarters, .. } =
        rows.first()?.regions.as_ref()?;
    let blocks = format!("{} of {}", counted(*nr_blocks, "block"), bytes(*block_bytes));
    if *walks == 0 {
        return Some("No reference needed a page walk.".to_owned());
    }
    Some(format!(
        "The program uses {blocks}; {} of them ({}) {} three quarters of the page walks.",
        grouped(*nr_for_three_quarters),
        percent(*nr_for_three_quarters, *nr_blocks),
        if *nr_for_three_quarters == 1 { "has" } else { "have" }
    ))
}
