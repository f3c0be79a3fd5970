//! Where the page walks are: addresses, code, and the regions that save walks. The first column
//! determines order and selection, so a line shows the same addresses in all columns.

use std::collections::HashMap;
use std::hash::Hash;

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::regions::{Block, CodePage, Regions};

use super::section::{Section, SectionLine};
use crate::figures::{bytes, counted, grouped, percent};
use crate::predict::PredictResult;
use crate::predict::gains::{Gain, Gains};
use crate::predict::labels::Labels;
use crate::predict::places::{block_label, code_label};

const NR_SHOWN: usize = 12;

pub(super) fn sections(report: &PredictResult) -> Vec<Section> {
    let rows = &report.rows;
    let Some(first) = rows.first().and_then(|row| row.regions.as_ref()) else { return Vec::new() };
    let block = |block: &Block| ((block.program, block.start), block.walks());
    let blocks = Columns::new(rows, |regions| regions.blocks.iter().map(block).collect());
    let lines = first.blocks.iter().map(|it| (block(it).0, block_label(it)));
    let by_address = blocks.lines(lines.collect(), first.nr_blocks);
    let page = |page: &CodePage| ((page.program, page.start), page.walks());
    let code = Columns::new(rows, |regions| regions.code.iter().map(page).collect());
    let lines = first.code.iter().map(|it| (page(it).0, code_label(&report.functions, it)));
    let by_code = code.lines(lines.collect(), first.code.len() as u64);
    vec![
        Section::new("Page walks by address", by_address),
        Section::new("Page walks by code", by_code),
    ]
}

/// The walks of each column, by what they are counted for.
struct Columns<K> {
    walks: Vec<HashMap<K, u64>>,
    wholes: Vec<u64>,
}

impl<K: Eq + Hash> Columns<K> {
    fn new(rows: &[Outcome], walks: impl Fn(&Regions) -> HashMap<K, u64>) -> Self {
        let regions = || rows.iter().map(|row| row.regions.as_ref());
        Self {
            walks: regions().map(|regions| regions.map_or_else(HashMap::new, &walks)).collect(),
            wholes: regions().map(|regions| regions.map_or(0, |regions| regions.walks)).collect(),
        }
    }

    /// Returns the first lines of `labels`, and one for the rest if there are more than these.
    fn lines(&self, labels: Vec<(K, String)>, nr_all: u64) -> Vec<SectionLine> {
        let mut rest = self.wholes.clone();
        let mut lines = Vec::new();
        for (key, label) in labels.into_iter().take(NR_SHOWN) {
            let values = self.walks.iter().map(|walks| walks.get(&key).copied().unwrap_or(0));
            let values: Vec<u64> = values.collect();
            rest.iter_mut().zip(&values).for_each(|(rest, &value)| *rest -= value.min(*rest));
            lines.push(SectionLine::counts(label, values).with_shares_of(&self.wholes));
        }
        if nr_all > lines.len() as u64 {
            lines.push(SectionLine::counts("elsewhere", rest).with_shares_of(&self.wholes));
        }
        lines
    }
}

/// Says how much of the memory has most of the walks, and which regions save most.
pub(super) fn sentences(rows: &[Outcome]) -> Vec<String> {
    let Some(regions) = rows.first().and_then(|row| row.regions.as_ref()) else {
        return Vec::new();
    };
    let Regions { block_bytes, nr_blocks, walks, nr_for_three_quarters, .. } = regions;
    let blocks = format!("{} of {}", counted(*nr_blocks, "block"), bytes(*block_bytes));
    if *walks == 0 {
        return vec!["No reference needed a page walk.".to_owned()];
    }
    let mut all = vec![format!(
        "The program uses {blocks}; {} of them ({}) {} three quarters of the page walks.",
        grouped(*nr_for_three_quarters),
        percent(*nr_for_three_quarters, *nr_blocks),
        if *nr_for_three_quarters == 1 { "has" } else { "have" }
    )];
    all.extend(Gains::of(rows).map(|gains| saved(rows, &gains, *block_bytes)));
    all
}

fn saved(rows: &[Outcome], gains: &Gains<'_>, block_bytes: u64) -> String {
    let (nr_regions, nr_blocks) = gains.nr_for(75);
    let nr_listed = nr_regions.min(NR_SHOWN);
    let mut sum = 0;
    let list = gains.regions[..nr_listed].iter().map(|gain: &Gain<'_>| {
        sum += gain.saved;
        let length = bytes(gain.nr_blocks * block_bytes);
        format!("{} ({length}, {})", block_label(gain.first), percent(gain.saved, gains.saved))
    });
    let list = list.collect::<Vec<_>>().join(", ");
    format!(
        "{} needs {}; {} of the program's blocks {} {} of the saving: {list}.",
        Labels::names(rows)[gains.column],
        counted(gains.net, "fewer page walk"),
        percent(nr_blocks, gains.nr_blocks),
        if nr_blocks == 1 { "brings" } else { "bring" },
        percent(sum, gains.saved),
    )
}
