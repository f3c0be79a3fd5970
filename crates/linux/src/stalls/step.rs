//! Decodes the kernel's events about waits for memory.
//!
//! Owns the list of events. The kernel may lack some: those of memory control groups, of
//! compaction, of NUMA.

use std::collections::BTreeMap;
use std::fs;

use crate::tracefs::Instance;
use crate::tracefs::format::{Field, NUMBER, parse, value};

/// Why a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Moving folios to get a larger free one.
    Compaction,
    /// Freeing memory of the whole system.
    Reclaim,
    /// Freeing memory of a control group at its limit.
    GroupReclaim,
    /// Freeing memory of one NUMA node (`vm.zone_reclaim_mode`).
    NodeReclaim,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Direct compaction for an allocation; each zone that is compacted begins and ends within it.
    Tries(u32),
    ZoneBegins,
    ZoneEnds,
    Begins(Kind, u32),
    Ends(Kind),
    /// A sleep within reclaim, in microseconds.
    Throttled(u64),
    /// A kernel thread begins to work.
    Wakes,
    /// An attempt to collapse a block, with its result.
    Collapses(u64),
}

struct Event {
    name: &'static str,
    fields: &'static [&'static str],
    step: ToStep,
}

const EVENTS: [Event; 13] = [
    event("compaction/mm_compaction_try_to_compact_pages", &["order"], |order| {
        Step::Tries(small(order))
    }),
    event("compaction/mm_compaction_begin", &[], |_| Step::ZoneBegins),
    event("compaction/mm_compaction_end", &[], |_| Step::ZoneEnds),
    event("compaction/mm_compaction_kcompactd_wake", &[], |_| Step::Wakes),
    event("vmscan/mm_vmscan_direct_reclaim_begin", &["order"], |order| {
        Step::Begins(Kind::Reclaim, small(order))
    }),
    event("vmscan/mm_vmscan_direct_reclaim_end", &[], |_| Step::Ends(Kind::Reclaim)),
    event("vmscan/mm_vmscan_memcg_reclaim_begin", &["order"], |order| {
        Step::Begins(Kind::GroupReclaim, small(order))
    }),
    event("vmscan/mm_vmscan_memcg_reclaim_end", &[], |_| Step::Ends(Kind::GroupReclaim)),
    event("vmscan/mm_vmscan_node_reclaim_begin", &["order"], |order| {
        Step::Begins(Kind::NodeReclaim, small(order))
    }),
    event("vmscan/mm_vmscan_node_reclaim_end", &[], |_| Step::Ends(Kind::NodeReclaim)),
    event("vmscan/mm_vmscan_throttled", &["usec_delayed"], Step::Throttled),
    event("vmscan/mm_vmscan_kswapd_wake", &[], |_| Step::Wakes),
    event(COLLAPSE, &["status"], Step::Collapses),
];
const COLLAPSE: &str = "huge_memory/mm_collapse_huge_page";
/// Names of results of a collapse; kernels have about 40.
const NR_NAMES_MAX: usize = 256;

const fn event(name: &'static str, fields: &'static [&'static str], step: ToStep) -> Event {
    Event { name, fields, step }
}

/// An order is a small number. Anything else is nonsense, and shown as such.
fn small(order: u64) -> u32 {
    u32::try_from(order).unwrap_or(u32::MAX)
}

type ToStep = fn(u64) -> Step;

#[derive(Debug, Default)]
pub(super) struct Events {
    by_number: BTreeMap<u64, (ToStep, Option<Field>)>,
    thread: Option<Field>,
    /// The names of a collapse's results.
    pub(super) results: BTreeMap<u64, String>,
    pub(super) missing: Vec<&'static str>,
}

impl Events {
    /// Enables the events in a stopped instance.
    pub(super) fn enable(instance: &Instance) -> Self {
        let mut events = Self::default();
        for event in &EVENTS {
            let folder = instance.path().join("events").join(event.name);
            let text = fs::read_to_string(folder.join("format")).unwrap_or_default();
            let is_known = events.add(event, &text);
            if !is_known || fs::write(folder.join("enable"), "1").is_err() {
                events.missing.push(event.name);
            }
        }
        events
    }

    fn add(&mut self, event: &Event, text: &str) -> bool {
        let Some((number, fields, thread)) = parse(text, event.fields) else { return false };
        self.by_number.insert(number, (event.step, fields.first().copied()));
        self.thread = Some(thread);
        if event.name == COLLAPSE {
            self.results = symbols(text, "REC->status");
        }
        true
    }

    /// Whether the kernel reports any wait.
    pub(super) fn has_any(&self) -> bool {
        EVENTS.iter().any(|event| {
            let is_begin = event.name.ends_with("_begin") || event.name.ends_with("compact_pages");
            is_begin && !self.missing.contains(&event.name)
        })
    }

    /// Returns the event's thread and what it says; `None` for data that is none of these events.
    pub(super) fn decode(&self, data: &[u8]) -> Option<(u32, Step)> {
        let (step, field) = self.by_number.get(&value(data, NUMBER)?)?;
        let thread = u32::try_from(value(data, self.thread?)?).ok()?;
        let value = match field {
            Some(field) => value(data, *field)?,
            None => 0,
        };
        Some((thread, step(value)))
    }
}

/// Parses the names of a field's values: `__print_symbolic(REC->status, { 0, "failed" }, ..)`.
fn symbols(format: &str, field: &str) -> BTreeMap<u64, String> {
    let list = format.split_once(&format!("__print_symbolic({field},"));
    let pairs = list.map_or("", |(_, rest)| rest).split('{').skip(1).take(NR_NAMES_MAX);
    let pairs = pairs.map_while(|pair| {
        let (number, name) = pair.split_once('}')?.0.split_once(',')?;
        let name = name.trim().strip_prefix('"')?.strip_suffix('"')?;
        Some((number.trim().parse().ok()?, name.to_owned()))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORMAT: &str = "name: x\nID: 17\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int order;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int status;\toffset:12;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"status=%s\", __print_symbolic(REC->status, { 0, \"failed\" }, {1, \"done\"}, \
        {x}), REC->order\n";

    fn reclaim() -> &'static Event {
        EVENTS.iter().find(|event| event.name.ends_with("direct_reclaim_begin")).unwrap()
    }

    #[test]
    fn an_event_is_decoded_by_its_format() {
        let mut events = Events::default();
        assert!(events.add(reclaim(), FORMAT));
        let data: Vec<u8> = [17_u32, 42, 9, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(events.decode(&data), Some((42, Step::Begins(Kind::Reclaim, 9))));
        assert_eq!(events.decode(&data[..11]), None, "cut short");
        assert_eq!(events.decode(&[1; 16]), None, "another event");
        assert!(!events.add(reclaim(), &FORMAT.replace("order;", "other;")));
    }

    #[test]
    fn the_names_of_values_end_at_the_first_one_that_is_none() {
        let names = symbols(FORMAT, "REC->status");
        let expected = [(0, "failed".to_owned()), (1, "done".to_owned())];
        assert_eq!(Vec::from_iter(names), expected);
        assert!(symbols(FORMAT, "REC->order").is_empty());
    }

    proptest! {
        #[test]
        fn no_format_and_no_data_break_the_decoder(
            text in "(ID: [0-9]{1,3}\n|field:int (order|common_pid); ?offset:[0-9]{1,20}; ?size:[0-9]{1,20};\n|\\PC|\n){0,20}",
            from in 0_usize..FORMAT.len(),
            data in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mixed = format!("{}{text}", FORMAT.get(from..).unwrap_or_default());
            let mut events = Events::default();
            for event in &EVENTS {
                events.add(event, &mixed);
            }
            let _ = events.decode(&data);
            prop_assert!(symbols(&mixed, "REC->status").len() <= NR_NAMES_MAX);
        }
    }
}
