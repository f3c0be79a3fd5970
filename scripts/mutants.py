#!/usr/bin/env python3
"""Breaks one rule of the memory manager at a time: the tests must notice each.

    scripts/mutants.py                 all of them
    scripts/mutants.py marker-place    one
    scripts/mutants.py --sample        one in ten, others for each commit

A mutant is one edit of one file in a scratch copy of the tree. Test groups: `recordings` replays
every recording of files from a real kernel, `hugetlb` the recordings about hugetlb, `golden` the
worked examples of docs/behaviour, `statistics` the numbers of smaps and meminfo, `processes` the
recordings about copy-on-write; `entries`, `advice`, `populate`, `source`, `zswap` and `nodes` are
tests of `mm`. They run until one fails; the report
names it. A mutant takes two to six minutes. Exit status 1 if one survives all.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MM = "crates/mm/src/"
# Package, test target and tests, run in this order until one fails.
JUDGES = {"golden": ("sim", "sim", "golden::"), "hugetlb": ("lab", "recordings", "hugetlb"),
          "statistics": ("sim", "sim", "statistics"), "programs": ("lab", "recordings", "model_equals_the_recorded"),
          "collapse": ("lab", "recordings", "collapse"), "nodes": ("mm", "mm", "numa"),
          "processes": ("lab", "recordings", "cow"),
          "recordings": ("lab", "recordings", "files"), "entries": ("mm", "mm", "anon::protect"),
          "advice": ("mm", "mm", "anon::advised"), "populate": ("mm", "mm", "populate"),
          "source": ("mm", "mm", "source"), "zswap": ("mm", "mm", "anon::zswap")}

# Name, file, original text, replacement.
MUTANTS = [
    ("nodes-shared-moves", "numa/migrate.rs",
     "let may_move = sharers == Sharers::Any || !self.maybe_mapped_shared(id);",
     "let may_move = sharers == Sharers::Any || self.core.folios.get(id).order >= Order::ZERO;"),
    ("nodes-turn", "route.rs",
     "offset.wrapping_add((self.first.0 - self.vma.start.0) >> order.get())",
     "offset.wrapping_add(self.first.0 - self.vma.start.0)"),
    ("nodes-requeue", "numa/migrate.rs",
     "if unmaps_in_parts(sites, order) {", "if was_queued && unmaps_in_parts(sites, order) {"),
    ("nodes-fewest", "collapse/node.rs",
     "let most = loads.iter().max().copied().unwrap_or(0);",
     "let most = loads.iter().min().copied().unwrap_or(0);"),
    ("nodes-merge", "vma.rs",
     "self.merge == AreaMerge::Any || own.is_none() || neighbour.is_some();",
     "self.merge == AreaMerge::Any || own.is_none() || neighbour.is_none();"),
    ("nodes-huge-far", "route.rs",
     "if found.is_some() || !may_reclaim {", "if found.is_some() {"),
    ("nodes-mark", "nodes.rs",
     "for mark in [self.low.max(mark), mark] {", "for mark in [mark, mark] {"),
    ("zswap-large", "reclaim/zswap.rs",
     "if !rules.enabled || pages.nr > 1 && rules.folios == ZswapFolios::BasePages {",
     "if !rules.enabled {"),
    ("zswap-zeroes", "reclaim/zswap.rs",
     "self.rules.reclaim.zero_pages == ZeroPages::Noted\n",
     "self.rules.reclaim.zero_pages == ZeroPages::Written\n"),
    ("zswap-exclusive", "fault/swap.rs",
     "is_cached && self.rules.zswap.load == ZswapLoad::Exclusive;", "false;"),
    ("zswap-orders", "fault/swap.rs",
     "self.rules.reclaim.swap_in == SwapIn::Pages || self.core.pressure.zswap.was_on",
     "self.rules.reclaim.swap_in == SwapIn::Pages"),
    ("zswap-second-chance", "core/zswap.rs",
     ".filter(|pooled| pooled.is_new)", ".filter(|pooled| pooled.is_new && pooled.bytes == 0)"),
    ("zswap-accept", "reclaim/zswap.rs",
     "is_over || zswap.was_full && nr_pages > nr_accepted;", "is_over;"),
    ("zswap-no-writeback", "reclaim/zswap.rs",
     "if self.rules.zswap.enabled && !self.may_write_back(pages.group) {", "if false {"),
    ("zswap-incompressible", "reclaim/zswap.rs",
     "rules.incompressible == Incompressible::Stored && self.may_write_back(group);",
     "rules.incompressible == Incompressible::Stored;"),
    ("zswap-group-limit", "reclaim/zswap.rs",
     "bytes_of(group) >> shift >= max >> shift", "bytes_of(group) >> shift > max >> shift"),
    ("regain-shared", "map/protect.rs",
     "folio.is_some_and(Folio::is_anon) && self.core.folios.is_exclusive(pfn)",
     "folio.is_some_and(Folio::is_anon)"),
    ("regain-clean", "map/protect.rs",
     "Regain::Dirty => is_dirty && leaf.kind != LeafKind::Pmd,",
     "Regain::Dirty => leaf.kind != LeafKind::Pmd,"),
    ("loaded-read-only", "fault/finish.rs",
     "if self.is_store_unnoticed(vma) { PteFlags::WRITABLE }",
     "if self.is_store_unnoticed(vma) { PteFlags::NONE }"),
    ("segment-around", "fault/around.rs",
     "if fault.vma.shmem == MappedShmem::Segment {", "if false {"),
    ("map-stack", "map.rs",
     "(Purpose::Stack, MapStack::Nohuge) => HugeAdvice::Nohuge,",
     "(Purpose::Stack, MapStack::Nohuge) => HugeAdvice::Default,"),
    ("stack-guard", "fault/stack.rs",
     "below.end.plus(GUARD_PAGES) > vpn", "below.end > vpn"),
    ("populate-major", "fault.rs",
     "FaultCause::Populate => Self::Again,",
     "FaultCause::Populate => Self::Tried,"),
    ("short-copy-chunk", "io/copy.rs", "self.chunk /= 2;", "self.chunk = self.page_bytes;"),
    ("short-copy-again", "io/copy.rs", "copy.again = Some(nr_present);", "copy.again = None;"),
    ("pageout-clean-shared", "reclaim/evict.rs",
     "if self.core.folios.get(id).is_dirty || self.core.pressure.swap.is_some() {",
     "if self.core.folios.get(id).is_swapbacked {"),
    ("ramp-up", "readahead/marker.rs",
     "state.order = state.order.raised(ORDER_STEP);",
     "state.order = state.order.raised(ORDER_STEP + 1);"),
    ("trimming", "readahead/marker.rs",
     "    if end > state.start {\n        state.size = end - state.start;\n    }",
     "    let _ = end;"),
    ("marker-place", "readahead/issue.rs",
     "mark.is_some_and(|mark| order.round_down(mark) == index)",
     "mark.is_some_and(|mark| order.round_up(mark) == index)"),
    ("alignment-shrink", "readahead/issue.rs",
     "while order > min && index + order.nr_pages() - 1 > range.limit {",
     "while order > min && index + order.nr_pages() > range.limit {"),
    ("miss-threshold", "core/open_file.rs",
     "if self.mmap_miss > MISS_THRESHOLD { MissGate::Closed }",
     "if self.mmap_miss >= MISS_THRESHOLD { MissGate::Closed }"),
    ("exec-clipping", "fault/readahead.rs",
     "order.round_up(start + state.ra_pages).min(end) - start",
     "order.round_up(start + state.ra_pages) - start"),
    ("fault-around-clipping", "fault/around.rs",
     ".max(slot - slot.min(before))",
     ""),
    ("eof-limit", "readahead/issue.rs",
     "let limit = last.0.min((start + plan.nr_pages).saturating_sub(1));",
     "let limit = (last.0 + 1).min((start + plan.nr_pages).saturating_sub(1));"),
    ("async-expectation", "readahead/marker.rs",
     "let expected = hit.order.round_down(state.mark());",
     "let expected = state.mark();"),
    ("fallback", "readahead/issue.rs",
     "Remainder::Rest => plan.nr_pages.saturating_sub(index - first),",
     "Remainder::Rest => plan.nr_pages.saturating_sub(index - first).saturating_sub(1),"),
    ("fragmentation-pins", "buddy/fragment.rs",
     "needed.max(USED_PERMILLE) as u32", "USED_PERMILLE as u32"),
    ("ageing-next-size", "buddy/age.rs",
     "for at in nr..self.orders.len() {", "for at in nr..=nr {"),
    ("hard-minimum", "memory.rs",
     "let is_soft = self.rules.order.min == MinOrder::Soft;", "let is_soft = true;"),
    ("soft-minimum-gaps", "core/soft.rs",
     "if self.find(new.file, index).is_some() {\n                continue;", "if self.find(new.file, index).is_some() {\n                break;"),
    ("exec-minimum-alone", "fault/readahead.rs",
     "Choice::Nothing => Choice::ExecBlock(min),", "Choice::Nothing => Choice::Nothing,"),
    ("exec-minimum-end", "fault/readahead.rs",
     "order.round_up(first + state.ra_pages.max(1)) - state.start", "state.ra_pages"),
    ("mmap-state-text", "map.rs",
     "if vma.prot.can_exec {\n            let opened", "if vma.prot.can_read {\n            let opened"),
    ("pressure-largest", "fault/readahead.rs",
     "orders.filter(is_free).max().unwrap_or(Order::ZERO)", "orders.filter(is_free).min().unwrap_or(Order::ZERO)"),
    ("ageing-half", "buddy/age.rs",
     "let target = self.buddy.nr_pages / 2;", "let target = self.buddy.nr_pages / 4;"),
    ("copy-extents", "rules/clear.rs",
     "CopyOrder::Extents => self.merged(arch),",
     "CopyOrder::Extents => Rule::converging(page.bytes()),"),
    ("copy-run", "collapse/anon.rs",
     "(is_hole(first) || pte.pfn() == first.pfn().plus(by as u64))",
     "(is_hole(first) || by < ptes.len())"),
    ("arm64-loop", "rules/clear.rs",
     "const LOOP_UNIT_BYTES: u64 = 512 << 10;",
     "const LOOP_UNIT_BYTES: u64 = 1 << 20;"),
    ("preemption", "rules/clear.rs",
     "Self::Full | Self::Lazy => plan::Preemption::Preemptible,",
     "Self::Full | Self::Lazy => plan::Preemption::Cooperative,"),
    ("stretch-end", "ram/stretches.rs",
     "Step::Reschedule => self.stretch(std::mem::take(&mut stretch)),",
     "Step::Reschedule => {}"),
    ("page-mapcount-updates", "rmap/mapcount/large.rs",
     "let updates = total + MapcountUpdates::of_pages(pages.len());",
     "let updates = total + MapcountUpdates::of_pages(1);"),
    ("owner-case-4-shared", "../../owner-word/src/words.rs",
     "let is_shared = is_new && count != large_mapcount;",
     "let is_shared = is_new && slot == 0 && count != large_mapcount;"),
    ("huge-reserve", "core/hugetlb.rs",
     "if charge == Charge::Available && self.nr_available() == 0 {",
     "if charge == Charge::Available && self.free.is_empty() {"),
    ("huge-keep", "hugetlb/copy.rs",
     "fault.vma.sharing == Sharing::Shared || folio.mapcount.mapcount() == 1",
     "fault.vma.sharing == Sharing::Shared || folio.is_exclusive"),
    ("huge-restore", "hugetlb/unmap.rs",
     "folio.restores_reserve = true;",
     "folio.restores_reserve = folio.mapcount.mapcount() == 1;"),
    ("huge-lost", "hugetlb/copy.rs",
     "                    area.has_lost = true;\n",
     ""),
    ("huge-move", "map/remap.rs",
     "            self.disown_rest(mm, VpnRange { start: old_start, end: old_end });\n",
     ""),
    ("huge-split", "hugetlb.rs",
     "if vma.huge().is_some_and(|area| area.order.is_aligned(at.0)) {",
     "if vma.huge().is_none() {"),
    ("whole-folio-mapped", "rmap/mapcount/large.rs",
     "return Change::mapped(if is_first { of.nr_pages() } else { 0 });",
     "return Change::mapped(if is_first { pages.end - pages.start } else { 0 });"),
    ("split-uncounted", "split/anon.rs",
     "        self.core.count_part(&folio);\n",
     ""),
    ("pss-of-shared", "view/statistics.rs",
     "u64::from(same.counts.mapcount.max(1))",
     "u64::from(same.counts.mapcount.min(2).max(1))"),
    ("uss-by-mapping", "view/statistics.rs",
     "is_private: folio.mapcount.is_page_exclusive(&shape, page),",
     "is_private: folio.mapcount.page_mapcount(&shape, page) == 1,"),
    ("lazyfree-shared", "map/advise.rs",
     "(folio.is_dirty || folio.slot().is_some()) && folio.maps() != nr",
     "folio.maps() != nr"),
    ("khugepaged-whole-area", "map/advise.rs",
     "self.khugepaged_enter_for(mm, &wholes);",
     "let _ = wholes;"),
    ("khugepaged-order", "collapse/khugepaged.rs",
     "self.khugepaged.mms.push(mm);",
     "self.khugepaged.mms.insert(0, mm);"),
    ("khugepaged-referenced", "collapse/scan.rs",
     "target.initiator == Initiator::Khugepaged && counts.nr_referenced < nr_wanted",
     "target.initiator == Initiator::Khugepaged && counts.nr_referenced > nr_wanted * 4096"),
    ("khugepaged-counted", "collapse/khugepaged.rs",
     "self.retract_one(target).map(|_| Done::Collapsed)",
     "self.retract_one(target)"),
    ("khugepaged-mount", "collapse/eligible.rs",
     "let setting = rules.setting(mapping.is_mounted());",
     "let setting = rules.setting(false);"),
    ("khugepaged-cost", "collapse/khugepaged.rs",
     "ScanCost::Block => pmd.nr_pages(),",
     "ScanCost::Block => khugepaged.nr_examined,"),
    ("file-thp-exec", "collapse/eligible.rs",
     "FileCollapse::Exec => vma.prot.can_exec && !mapping.gate.is_open_for_write(),",
     "FileCollapse::Exec => !mapping.gate.is_open_for_write(),"),
    ("file-thp-writers", "collapse/eligible.rs",
     "FileCollapse::Readers => !mapping.gate.is_open_for_write(),",
     "FileCollapse::Readers => true,"),
    ("file-thp-drop", "writers.rs",
     "(Ok(MustDrop::Yes), Writers::DropCache) => self.drop_everything(file),",
     "(Ok(MustDrop::Yes), Writers::DropCache) => {}"),
    ("file-thp-table", "collapse/file.rs",
     "self.rules.collapse.pmd_table != PmdTable::Made && !has_one",
     "self.rules.collapse.pmd_table != PmdTable::Made && has_one"),
    ("file-thp-flush", "collapse/file.rs",
     "Initiator::Advice => self.write_back(range.file, PageRange { first: 0, end: u64::MAX }),",
     "Initiator::Advice => {}"),
    ("file-thp-large", "collapse/file.rs",
     "is_refused && entry.order > Order::ZERO",
     "is_refused && entry.order > self.rules.page.pmd_order()"),
]


def scratch_tree(into):
    """The tracked and new files, without build results."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)


def stale():
    """Returns lines about mutants with an original text that is missing or not unique."""
    found = []
    for name, file, was, _ in MUTANTS:
        path = ROOT / MM / file
        count = path.read_text().count(was) if path.exists() else 0
        if count != 1:
            found.append(f"{name}: {MM}{file} has {count} places {was!r}: update it")
    return found


def notices(tree, target, judge):
    """Returns whether any test fails. An edit that does not compile is not a mutant."""
    package, test, tests = judge
    cargo = ["cargo", "test", "--quiet", "-p", f"largefolio-{package}", "--test", test]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    built = subprocess.run([*cargo, "--no-run"], cwd=tree, env=environment,
                           capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"does not compile:\n{built.stderr}")
    run = subprocess.run([*cargo, tests], cwd=tree, env=environment,
                         capture_output=True, text=True)
    return run.returncode != 0


def sample(mutants):
    """One in ten; the commit decides which."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout
    return mutants[int(head[:8], 16) % 10::10]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=" ".join(name for name, *_ in MUTANTS))
    parser.add_argument("--sample", action="store_true", help="one in ten, others for each commit")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target" / "mutants")
    args = parser.parse_args()
    unknown = set(args.names) - {name for name, *_ in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if lines := stale():
        sys.exit("\n".join(lines))
    survivors = []
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch)
        scratch_tree(tree)
        for who, judge in JUDGES.items():
            if notices(tree, args.target, judge):
                sys.exit(f"a test of {who} fails without any mutant")
        for name, file, was, becomes in sample(MUTANTS) if args.sample else MUTANTS:
            if args.names and name not in args.names:
                continue
            path = tree / MM / file
            text = path.read_text()
            path.write_text(text.replace(was, becomes))
            judges = (who for who, judge in JUDGES.items() if notices(tree, args.target, judge))
            found = next(judges, None)
            path.write_text(text)
            print(f"{name:22} {'noticed by ' + found if found else 'SURVIVED'}",
                  flush=True)
            if not found:
                survivors.append(name)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
