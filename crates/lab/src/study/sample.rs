//! The numbers of a replay, by name.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::Value;

use super::metric::Metric;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{Cell, CellSpec, Images, Outcome};

pub(super) struct Sample(Value);

impl Sample {
    pub(super) fn new() -> Self {
        let named = || -> Option<Value> {
            let mut spec = CellSpec::new(Kernel::parse("7.2").ok()?, Machine::named("altra").ok()?);
            spec.ram_bytes = 64 << 20;
            let should_stop = &mut || ControlFlow::Continue(());
            let cell = Cell::new(&spec, &Arc::default(), &Images::default(), should_stop).ok()?;
            Some(shown(&cell.finish()))
        };
        Self(named().unwrap_or_default())
    }

    pub(super) fn unknown(&self, metric: &Metric) -> Option<String> {
        metric.unknown_in(&self.0)
    }
}

/// Returns the result as JSON. `folios.file` combines text and data; TLBs appear even without
/// counts.
pub(super) fn shown(outcome: &Outcome) -> Value {
    let mut value = serde_json::to_value(outcome).unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("tlb".to_owned(), serde_json::to_value(outcome.tlb).unwrap_or_default());
    }
    let all = serde_json::to_value(outcome.folios.all()).unwrap_or_default();
    if let Some(folios) = value.get_mut("folios").and_then(Value::as_object_mut) {
        folios.insert("file".to_owned(), all);
    }
    value
}
