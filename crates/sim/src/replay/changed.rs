//! Changes of settings in a replay: those to come, and those that happened.

use std::collections::VecDeque;

use largefolio_mm::rules::Rules;
use largefolio_trace::Meta;
use serde::Serialize;

use crate::kernel::KernelError;
use crate::replay::request::changes::SettingChange;
use crate::replay::request::numa::NumaEvent;
use crate::replay::request::spec::CellSpec;

/// A change of settings that happened during a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The share of the recorded rows before it.
    pub at: String,
    /// The settings, as edits of a kernel.
    pub edits: String,
    /// The first row of the trace with the new settings.
    pub row: u64,
    /// References of the recording before it.
    pub references: u64,
    /// Whether the kernel had other values before.
    pub has_effect: bool,
}

pub(crate) struct Pending {
    pub(crate) change: SettingChange,
    pub(crate) row: u64,
    pub(crate) rules: Rules,
}

/// A cell's changes of settings, in the order of their rows.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) done: Vec<Changed>,
    /// Moves and passes of NUMA balancing, with their rows.
    pub(crate) numa: VecDeque<(u64, NumaEvent)>,
}

impl Changes {
    /// Returns the changes of `spec`, whose kernel has its page size.
    pub(crate) fn of(spec: &CellSpec, meta: &Meta) -> Result<Self, KernelError> {
        let all = SettingChange::all(&spec.changes, &spec.kernel, spec.kernel.rules.page)?;
        let (nr_before, nr_rows) = (meta.nr_rows_before(), meta.nr_rows);
        let pending = all.into_iter().map(|(change, kernel)| Pending {
            change: change.clone(),
            row: change.row(nr_before, nr_rows),
            rules: kernel.rules,
        });
        let numa = spec.numa.map_or_else(Vec::new, |numa| numa.events(nr_before, nr_rows));
        Ok(Self { pending: pending.collect(), done: Vec::new(), numa: numa.into() })
    }

    /// Returns the row of the next change; `None` after the last.
    pub(crate) fn next_row(&self) -> Option<u64> {
        let setting = self.pending.front().map(|next| next.row);
        let numa = self.numa.front().map(|(row, _)| *row);
        setting.into_iter().chain(numa).min()
    }

    pub(crate) fn take_due_numa(&mut self, row: u64) -> Option<NumaEvent> {
        self.numa.pop_front_if(|(due, _)| *due <= row).map(|(_, event)| event)
    }

    pub(crate) fn take_due(&mut self, row: u64) -> Option<Pending> {
        self.pending.pop_front_if(|next| next.row <= row)
    }
}
