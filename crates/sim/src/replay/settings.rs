//! Changes the machine's settings while a cell runs, like writes to sysfs.
//!
//! Owns when a change happens and which parts of the cell must know about it. Folios, mappings and
//! open files stay as they are.

use std::sync::Arc;

use largefolio_mm::rules::Rules;

use crate::replay::cell::Cell;
use crate::replay::changed::{Changed, Pending};
use crate::replay::hardware::clock::Sleeper;

impl Cell {
    /// Returns the row before which the next setting changes. The run that fills the page cache is
    /// an earlier one: nothing changes during it.
    pub(crate) fn next_change(&self) -> u64 {
        self.settings.next_row().filter(|_| !self.is_warming()).unwrap_or(u64::MAX)
    }

    /// Changes the settings that are due before `row`.
    pub(crate) fn change_settings(&mut self, row: u64) {
        if self.is_warming() {
            return;
        }
        while let Some(Pending { change, row, rules }) = self.settings.take_due(row) {
            let before = self.memory.rules().clone();
            let was_on = self.memory.is_khugepaged_on();
            let has_effect = before != rules;
            self.change(|memory| memory.change_rules(|now| *now = rules));
            self.renew_devices();
            // Writing the sleeps or starting khugepaged makes it scan at once (H.6.5).
            let has_started = !was_on && self.memory.is_khugepaged_on();
            if has_started || sleeps(&before) != sleeps(self.memory.rules()) {
                self.wake_khugepaged();
            }
            self.settings.done.push(Changed {
                at: change.share(),
                edits: change.edits().to_owned(),
                row,
                references: self.hardware.nr_references,
                has_effect,
            });
        }
        while let Some(event) = self.settings.take_due_numa(row) {
            self.follow_numa(event);
        }
    }

    pub(crate) fn wake_khugepaged(&mut self) {
        self.clock.sleep(Sleeper::Khugepaged, 0);
    }

    fn renew_devices(&mut self) {
        let mappings = self.program.files.mappings();
        let meta = Arc::clone(&self.meta);
        for (mapping, file) in mappings.into_iter().zip(&meta.files) {
            self.change(|memory| memory.renew_device(mapping, &file.disk));
        }
    }
}

fn sleeps(rules: &Rules) -> [u64; 2] {
    [rules.collapse.scan_sleep_ms, rules.collapse.alloc_sleep_ms]
}
