//! Turns a finished cell's counts into an [`Outcome`].

use std::collections::BTreeMap;

use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::counters::mapcounts::MapcountUpdates;
use largefolio_mm::counters::{Counters, PmdRefusal};
use largefolio_mm::policy::Point;
use largefolio_mm::rules::reclaim::SwapDevice;

use crate::cost::{BaseTime, Estimate, Events, Latency, Mark, SwapEvents};
use crate::gaps::Gap;
use crate::machine::TimeErrors;
use crate::replay::cell::Cell;
use crate::replay::observers::requested;
use crate::replay::observers::statistics::memory_events;
use crate::replay::outcome::{
    AnonSize, Collapses, Entries, Faults, Mapcounts, Nodes, Outcome, PolicyAnswers, PolicyOutcome,
    Reads, Writers,
};
use crate::replay::request::spec::CellSpec;
use crate::tlb;

impl Cell {
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        self.note_end_of_memory();
        self.end_recording();
        self.hardware.charge_all();
        let detail = self.take_detail();
        let regions = self.regions.take().map(|regions| regions.finish(&self.meta));
        let costs = &self.spec.machine.costs;
        let fault_times = self.fault_work.take().map(|work| work.finish(costs, &self.meta));
        let events = self.events();
        let estimate = self.estimate(&events);
        let latency = self.latency();
        let Mark { counters, ram } = &self.counted.end;
        let base = &self.counted.base;
        let page_bytes = self.page().bytes();
        let gaps = self.gaps();
        let memory_stat = self.memory_stat();
        let refused = PmdRefusal::ALL.into_iter().map(|refusal| {
            let nr = refusal as usize;
            (refusal.name(), counters.pmd_refused[nr] - base.counters.pmd_refused[nr])
        });
        Outcome {
            kernel: self.spec.kernel.name.clone(),
            is_judged: gaps.is_empty(),
            gaps,
            machine: self.spec.machine.name.clone(),
            page_bytes,
            seed: self.spec.seed,
            cache: self.spec.cache.name().to_owned(),
            memory_bytes: self.spec.ram_bytes,
            swap_bytes: self.spec.swap_bytes,
            cgroups: self.cgroups.outcomes(&self.spec.cgroups, &self.memory),
            changes: std::mem::take(&mut self.settings.done),
            linked: self.spec.linked.iter().map(ToString::to_string).collect(),
            policy: self.policy(),
            cached_bytes: self.cached_bytes(),
            faults: self.faults(),
            reads: self.reads(),
            tlb: self.tlb(),
            nr_cpus: self.spec.nr_cpus(),
            anon_sizes: self.anon_sizes(),
            asked: requested::between(&base.counters, counters, page_bytes),
            asked_tenths: self.counted.tenths.requested(&base.counters, page_bytes),
            aged: requested::aged(self.memory.aged(), page_bytes),
            unusable_at_start: self.unusable.clone(),
            pmd_refused: refused.collect(),
            writers: self.writers(),
            collapse: self.collapses(),
            pressure: self.pressure(),
            zeroed_pages: ram.nr_zeroed - base.ram.nr_zeroed,
            copied_pages: ram.nr_copied - base.ram.nr_copied,
            entries: self.entries(),
            mapcounts: self.mapcounts(),
            cleared_bytes: events.cleared,
            copied_bytes: events.copied,
            latency,
            waits: events.read,
            estimate,
            strays: self.counted.strays,
            nodes: self.nodes(),
            hugetlb: self.hugetlb(),
            processes: self.many_processes(),
            is_replaced: self.program.is_replaced,
            folios: self.counted.sizes,
            statistics: self.counted.largest.statistics,
            page_table_bytes: self.counted.largest.page_table_bytes,
            memory_stat,
            detail,
            regions,
            fault_times,
        }
    }

    /// Memory by node, on a machine with several.
    fn nodes(&self) -> Option<Nodes> {
        if self.memory.core().buddy.is_single() {
            return None;
        }
        let (now, base) = (&self.counted.end.counters.numa, &self.counted.base.counters.numa);
        let page_bytes = self.page().bytes();
        let [near, far] = self.counted.largest.near_and_far;
        Some(Nodes {
            local_bytes: (now.nr_local_pages - base.nr_local_pages) * page_bytes,
            other_bytes: (now.nr_other_pages - base.nr_other_pages) * page_bytes,
            mapped_local_bytes: near * page_bytes,
            mapped_other_bytes: far * page_bytes,
            hint_faults: now.nr_hints - base.nr_hints,
            hint_moved_bytes: (now.nr_hint_moved_pages - base.nr_hint_moved_pages) * page_bytes,
        })
    }

    fn memory_stat(&self) -> BTreeMap<&'static str, u64> {
        let (now, base) = (&self.counted.end.counters, &self.counted.base.counters);
        let amounts = self.counted.largest.memory_stat.iter();
        let amounts = amounts.map(|(&name, &bytes)| (name, bytes));
        amounts.chain(memory_events(base, now)).collect()
    }

    fn gaps(&self) -> Vec<Gap> {
        let CellSpec { kernel, filesystem, machine, .. } = &self.spec;
        let (rules, filesystem) = (&kernel.rules, filesystem.as_deref());
        let of_trace = self.counted.met.gaps(rules, &self.meta, filesystem, machine.nodes.len());
        kernel.all_gaps().chain(of_trace).collect()
    }

    fn policy(&self) -> Option<PolicyOutcome> {
        let policy = self.spec.kernel.policy.as_ref()?;
        let (now, base) = (&self.counted.end.counters.policy, &self.counted.base.counters.policy);
        let points = Point::ALL.into_iter().map(|point| {
            let (now, base) = (now[point as usize], base[point as usize]);
            let answers = PolicyAnswers {
                asked: now.nr_calls - base.nr_calls,
                honoured: now.nr_honoured - base.nr_honoured,
                refused: now.nr_refused - base.nr_refused,
            };
            (point.name(), answers)
        });
        Some(PolicyOutcome {
            name: policy.name().to_owned(),
            digest: policy.0.digest().map(str::to_owned),
            points: points.filter(|(_, answers)| answers.asked > 0).collect(),
        })
    }

    /// Returns the TLB counters: zero for a trace of faults only, because a fault never hits.
    fn tlb(&self) -> tlb::Counters {
        if self.meta.faults_only { tlb::Counters::default() } else { self.hardware.counters() }
    }

    fn estimate(&self, events: &Events) -> Estimate {
        let costs = &self.spec.machine.costs;
        let instructions = self.hardware.counters().instruction.references;
        let run = self.measured.unwrap_or_else(|| {
            if self.meta.faults_only {
                BaseTime::not_known()
            } else {
                BaseTime::estimated(instructions, costs, &self.meta.runs)
            }
        });
        let walks = self.spec.walks.on(&self.spec.machine);
        let machine = &self.spec.machine;
        // Without a calibration, the errors of the costs are not known either.
        let shipped = || machine.calibrated.as_ref().map(|_| TimeErrors::shipped());
        let errors = machine.errors.clone().or_else(shipped);
        let estimate = Estimate::new(events, costs, walks).of_run(run, costs, &self.meta.runs);
        Estimate { errors, ..estimate }.anchored(self.spec.anchor.as_ref())
    }

    fn collapses(&self) -> Collapses {
        let (now, base) =
            (&self.counted.end.counters.collapse, &self.counted.base.counters.collapse);
        let refused = CollapseRefusal::ALL.into_iter().map(|refusal| {
            let nr = refusal as usize;
            (refusal.name(), now.refused[nr] - base.refused[nr])
        });
        Collapses {
            thp_collapse_alloc: now.thp_collapse_alloc - base.thp_collapse_alloc,
            thp_collapse_alloc_failed: now.thp_collapse_alloc_failed
                - base.thp_collapse_alloc_failed,
            collapsed: now.nr_advised - base.nr_advised,
            pages_collapsed: now.pages_collapsed - base.pages_collapsed,
            refused: refused.filter(|&(_, nr)| nr > 0).collect(),
        }
    }

    fn cached_bytes(&self) -> BTreeMap<u64, u64> {
        let mut by_size = BTreeMap::new();
        for (_, mapping) in self.memory.core().mappings() {
            for entry in mapping.tree.iter() {
                let bytes = entry.order.nr_pages() << self.memory.rules().page.shift();
                *by_size.entry(bytes).or_default() += bytes;
            }
        }
        by_size
    }

    fn pressure(&self) -> BTreeMap<&'static str, u64> {
        let (now, base) = (&self.counted.end.counters.reclaim, &self.counted.base.counters.reclaim);
        let pairs = now.named().into_iter().zip(base.named());
        let counts = pairs.map(|((name, now), (_, base))| (name, now - base));
        counts.filter(|(_, nr)| *nr > 0).collect()
    }

    fn anon_sizes(&self) -> BTreeMap<u64, AnonSize> {
        let (now, base) = (&self.counted.end.counters, &self.counted.base.counters);
        let page = self.memory.rules().page;
        let sizes = (0_u32..).zip(now.sizes.iter().zip(&base.sizes));
        let sizes = sizes.map(|(order, (now, base))| {
            let size = AnonSize {
                anon_fault_alloc: now.anon_fault_alloc - base.anon_fault_alloc,
                anon_fault_fallback: now.anon_fault_fallback - base.anon_fault_fallback,
                split: now.split - base.split,
                split_failed: now.split_failed - base.split_failed,
                split_deferred: now.split_deferred - base.split_deferred,
            };
            (page.bytes() << order, size)
        });
        sizes.filter(|(_, size)| *size != AnonSize::default()).collect()
    }

    fn latency(&mut self) -> Latency {
        let stretches = self.change(largefolio_mm::memory::Memory::take_stretches);
        let rules = self.memory.rules();
        let (preemption, page_bytes) = (rules.clear.preemption, rules.page.bytes());
        Latency::new(&stretches, preemption, page_bytes, &self.spec.machine.costs)
    }

    fn events(&self) -> Events {
        let now = &self.counted.end;
        let rules = self.memory.rules();
        let counted = now.since(&self.counted.base, rules.page.bytes());
        let is_on_disk = rules.reclaim.swap_device == SwapDevice::Disk;
        Events {
            swap: SwapEvents { is_on_disk, ..counted.swap },
            read: self.counted.reads.counts(),
            l2_hits: self.tlb().l2_hits_by_wait(),
            walks: self.tlb().walk_kinds,
            has_links: self.has_links,
            ..counted
        }
    }

    fn entries(&self) -> Entries {
        let (now, base) = (&self.counted.end.counters, &self.counted.base.counters);
        let set = now.nr_ptes_set + now.nr_pmds_set - base.nr_ptes_set - base.nr_pmds_set;
        let by_fork = now.nr_forked - base.nr_forked;
        Entries {
            set_by_faults: set.saturating_sub(by_fork),
            set_by_fork: by_fork,
            ptes_cleared: now.nr_ptes_cleared - base.nr_ptes_cleared,
            pmds_cleared: now.nr_pmds_cleared - base.nr_pmds_cleared,
            batches_cleared: now.nr_batches_cleared - base.nr_batches_cleared,
        }
    }

    fn mapcounts(&self) -> Mapcounts {
        let of = |counters: &Counters| counters.mapcounts_set + counters.mapcounts_cleared;
        let counted = of(&self.counted.end.counters) - of(&self.counted.base.counters);
        let MapcountUpdates { pages, folios, owner_words } = counted;
        Mapcounts { pages, folios, owner_words }
    }

    fn faults(&self) -> Faults {
        let (now, base) = (&self.counted.end.counters, &self.counted.base.counters);
        Faults {
            total: now.pgfault - base.pgfault,
            major: now.pgmajfault - base.pgmajfault,
            around: now.nr_around - base.nr_around,
            finish: now.nr_finish - base.nr_finish,
            anon: now.nr_anon_faults - base.nr_anon_faults,
            zero_page: now.nr_zero_page - base.nr_zero_page,
            cow: now.nr_cow - base.nr_cow,
            wp_reuse: now.nr_wp_reuse - base.nr_wp_reuse,
            swap_in: now.nr_swap_in - base.nr_swap_in,
            hugetlb: now.hugetlb.nr_all_faults() - base.hugetlb.nr_all_faults(),
            retries: now.nr_retry - base.nr_retry,
        }
    }

    fn writers(&self) -> Writers {
        let (now, base) = (&self.counted.end.counters.writers, &self.counted.base.counters.writers);
        let dropped = now.nr_dropped_pages - base.nr_dropped_pages;
        Writers {
            opens: now.nr_opens - base.nr_opens,
            text_busy: now.nr_text_busy - base.nr_text_busy,
            open_for_write: now.nr_open_for_write - base.nr_open_for_write,
            drops: now.nr_drops - base.nr_drops,
            dropped_bytes: dropped << self.memory.rules().page.shift(),
        }
    }

    fn reads(&self) -> Reads {
        let (now, base) = (&self.counted.end.counters, &self.counted.base.counters);
        let bytes = (now.nr_read - base.nr_read) << self.memory.rules().page.shift();
        let used_bytes = self.counted.touched.bytes();
        Reads {
            bytes,
            used_bytes,
            amplification: (used_bytes > 0).then(|| ratio(bytes, used_bytes)),
            windows: now.nr_windows - base.nr_windows,
            async_windows: now.nr_async - base.nr_async,
            gated: now.nr_gated - base.nr_gated,
            large_folio_fallback: now.large_folio_fallback - base.large_folio_fallback,
        }
    }
}

/// A ratio for display; the exact counts are kept as well.
#[expect(clippy::cast_precision_loss, reason = "a ratio is read to three digits")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}
