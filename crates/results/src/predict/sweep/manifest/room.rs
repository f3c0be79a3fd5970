//! Keeps the manifest short enough to be read again: drops the oldest entries first.
//!
//! ```text
//!   runs but the last   the oldest first
//!   texts               that no remaining run names
//!   failed              the oldest first
//! ```
//!
//! What remains belongs to the last run. If that is still too long, the request is too large.

use std::collections::BTreeSet;

use serde::Serialize;

use super::super::error::SweepError;
use super::Manifest;

impl Manifest {
    /// Returns the text in at most `bytes_max` bytes, after dropping entries that do not fit.
    pub(super) fn fitted(&mut self, bytes_max: u64) -> Result<Vec<u8>, SweepError> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        loop {
            let text = self.text()?;
            let Some(over) = text.len().checked_sub(bytes_max).filter(|&over| over > 0) else {
                return Ok(text);
            };
            if !self.drop_oldest(over) {
                return Err(SweepError::LongManifest { nr_bytes: text.len(), bytes_max });
            }
        }
    }

    fn text(&self) -> Result<Vec<u8>, SweepError> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Drops about `nr_bytes` of one kind, or all of it. Returns whether it dropped anything.
    fn drop_oldest(&mut self, nr_bytes: usize) -> bool {
        let nr_earlier = self.runs.len().saturating_sub(1);
        let nr_runs = nr_of(&self.runs[..nr_earlier], nr_bytes);
        self.runs.drain(..nr_runs);
        let is_any = nr_runs > 0 || self.drop_idle_texts();
        let nr_failures = if is_any { 0 } else { nr_of(&self.failed, nr_bytes) };
        self.failed.drain(..nr_failures);
        if let Some(run) = self.runs.last_mut() {
            run.nr_runs_dropped += nr_runs;
            run.nr_failures_dropped += nr_failures;
        }
        is_any || nr_failures > 0
    }

    fn drop_idle_texts(&mut self) -> bool {
        let requests = self.runs.iter().map(|run| &run.asked);
        let stamps =
            requests.flat_map(|requests| requests.kernels.iter().chain(&requests.machines));
        let named: BTreeSet<&str> = stamps.map(|stamp| stamp.text.as_str()).collect();
        let nr_before = self.texts.len();
        self.texts.retain(|text, _| named.contains(text.as_str()));
        self.texts.len() < nr_before
    }
}

/// Returns how many of the first `items` take at least `nr_bytes`, or all of them.
fn nr_of<T: Serialize>(items: &[T], nr_bytes: usize) -> usize {
    let mut left = nr_bytes;
    let bytes_of = |item: &T| serde_json::to_vec_pretty(item).map_or(0, |text| text.len());
    let is_more = |item: &&T| {
        let is_more = left > 0;
        left = left.saturating_sub(bytes_of(item));
        is_more
    };
    items.iter().take_while(is_more).count()
}

#[cfg(test)]
mod tests {
    use largefolio_sim::kernel::Kernel;
    use largefolio_sim::machine::Machine;
    use largefolio_sim::replay::CellSpec;
    use largefolio_sim::sweep::{Setting, Stamp};

    use super::super::{Failure, RequestedTrace, RunEnding, RunRequest, SweepRun};
    use super::*;

    fn run(nr: usize) -> SweepRun {
        let kernel = Kernel::parse("6.12").unwrap();
        let spec = CellSpec::new(kernel, Machine::named("altra").unwrap());
        let stamp = Stamp { name: format!("k{nr}"), text: format!("text{nr}") };
        let path = "a".repeat(1000);
        SweepRun {
            tool_version: String::new(),
            command_line: vec![nr.to_string()],
            asked: RunRequest {
                traces: vec![RequestedTrace { path, digest: None }],
                kernels: vec![stamp],
                machines: Vec::new(),
                memory_bytes: Vec::new(),
                seeds: Vec::new(),
                setting: Setting::of(&spec),
            },
            ended: RunEnding::Done,
            nr_asked: 0,
            nr_found: 0,
            nr_done: 0,
            nr_failed: 0,
            set_aside: Vec::new(),
            nr_runs_dropped: 0,
            nr_failures_dropped: 0,
        }
    }

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new();
        for nr in 0..10 {
            manifest.runs.push(run(nr));
            manifest.texts.insert(format!("text{nr}"), "b".repeat(1000));
            manifest.failed.push(Failure::of_trace(format!("t{nr}"), 1, "c".repeat(1000)));
        }
        manifest
    }

    /// Returns the runs, texts and failures left in a manifest of at most `bytes_max`, after
    /// reading it again.
    fn left(bytes_max: u64) -> (usize, usize, usize) {
        let mut manifest = manifest();
        let text = manifest.fitted(bytes_max).unwrap();
        assert!(text.len() as u64 <= bytes_max);
        let read: Manifest = serde_json::from_slice(&text).unwrap();
        assert_eq!(read, manifest);
        let last = read.last().unwrap();
        assert_eq!(last.command_line, ["9"]);
        let (runs, failed) = (read.runs.len(), read.failed.len());
        assert_eq!((last.nr_runs_dropped, last.nr_failures_dropped), (10 - runs, 10 - failed));
        assert_eq!(last.dropped().is_some(), runs < 10 || failed < 10);
        (runs, read.texts.len(), failed)
    }

    #[test]
    fn what_a_manifest_has_no_room_for_goes_the_oldest_first() {
        let whole = manifest().text().unwrap().len() as u64;
        assert_eq!(left(whole), (10, 10, 10));
        assert_eq!(left(whole - 1), (9, 10, 10));
        assert_eq!(left(whole - 4000), (7, 10, 10));
        assert_eq!(left(whole - 20_000), (1, 1, 10));
        let (runs, texts, failed) = left(whole - 28_000);
        assert!((runs, texts) == (1, 1) && (3..10).contains(&failed), "{failed}");
        let error = manifest().fitted(2000).unwrap_err().to_string();
        assert!(error.contains("at most 2000"), "{error}");
    }
}
