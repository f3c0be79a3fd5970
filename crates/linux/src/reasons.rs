//! Why a mapping's folios are not larger.
//!
//! ```text
//!   target    the size that pays off for this mapping (text, memory), else a contpte block
//!   large     bytes mapped at that size: by PMD entries, or as contpte blocks
//!   missing   whole blocks of the target that are smaller
//!
//!   congruent?  -no->  Incongruent
//!   pages       absent: NotTouched      in small folios: CachedSmall, Filesystem, ..Setting, ..
//!               in large ones: PartlyMapped, NoHugeAdvice, MappedByPages
//! ```
//!
//! Owns the judgement, which uses the census, smaps, settings and facts about the file. The bytes
//! counted for different reasons may overlap: a file that is cached small *and* mapped at a wrong
//! address needs both remedies. Each remedy is checked with its verb first
//! ([`CensusQuestion::verbs`]).
//!
//! If any folio on a filesystem has the target size, the filesystem supports that size. For all
//! other filesystems, the caller passes the limit.

mod advise;
mod allocated;
mod case;
mod contents;
mod facts;
mod gain;
mod gains;
mod heap;
mod judge;
mod objects;
mod pieces;
mod reason;
mod restart;
mod tmpfs;

pub use reason::{CensusQuestion, Finding, FolioLimit, Reason, Refusal};

use self::facts::Facts;
use self::judge::Judge;
use crate::census::Census;
use crate::census::folios::{Cell, MemoryKind};
use crate::census::process::Mapping;
use crate::proc::maps::Vma;

/// Judges the mappings of a census with the most memory to gain. For the others, only counts the
/// memory outside whole blocks, which needs no reading and keeps sums over all mappings correct.
#[must_use]
pub fn findings(census: &Census, question: &CensusQuestion<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if question.nr_max == 0 {
        return findings;
    }
    for (process, one) in census.processes.iter().enumerate() {
        for (mapping, at) in one.mappings.iter().enumerate() {
            findings.extend(missing(census, at).map(
                |(target_bytes, large_bytes, missing_bytes)| {
                    let (reasons, remedies) = (Vec::new(), Vec::new());
                    Finding {
                        process,
                        mapping,
                        target_bytes,
                        large_bytes,
                        missing_bytes,
                        reasons,
                        remedies,
                    }
                },
            ));
        }
    }
    findings.sort_by_key(|finding| {
        let mapping = &census.processes[finding.process].mappings[finding.mapping];
        std::cmp::Reverse(finding.missing_bytes.min(mapping.tally.all().mapped_bytes()))
    });
    let nr_judged = findings.len().min(question.nr_max);
    let facts = Facts::read(question.system, census, &findings[..nr_judged]);
    let mut judge = Judge::new(census, question, &facts);
    for (nr, finding) in findings.iter_mut().enumerate() {
        if nr < nr_judged {
            finding.reasons = judge.reasons(finding);
            finding.remedies = judge.remedies(finding);
        } else {
            finding.reasons = judge.too_small(finding);
        }
    }
    findings.retain(|finding| !finding.reasons.is_empty() || !finding.remedies.is_empty());
    findings
}

fn missing(census: &Census, mapping: &Mapping) -> Option<(u64, u64, u64)> {
    let all = mapping.tally.all();
    let is_all = |kind| mapping.tally.of(kind) == all;
    let is_swapped_out = all.mapped_bytes() == 0 && mapping.swapped_bytes(census.geometry) > 0;
    let is_one_kind = is_all(MemoryKind::Other) || is_all(MemoryKind::Hugetlb);
    if !is_swapped_out && is_one_kind || is_kernels(&mapping.vma) {
        return None;
    }
    let geometry = census.geometry;
    let is_file = mapping.vma.has_file() && mapping.tally.of(MemoryKind::Shmem) == Cell::default();
    let pays = if is_file { geometry.text_block_bytes() } else { geometry.block_bytes() };
    let is_whole = mapping.vma.nr_whole_blocks(pays) > 0;
    let target = if is_whole { pays } else { geometry.contpte_bytes() };
    let large = if target == geometry.pmd_bytes() { all.pmd_bytes } else { all.contpte_bytes };
    let blocks = mapping.vma.nr_whole_blocks(target).saturating_mul(target);
    let missing = if blocks == 0 { all.mapped_bytes() } else { blocks.saturating_sub(large) };
    (missing > 0).then_some((target, large, missing))
}

/// `[vdso]`, `[vvar]` and similar. `[heap]` and `[stack]` belong to the program.
fn is_kernels(vma: &Vma) -> bool {
    vma.path.to_string_lossy().starts_with("[v")
}
