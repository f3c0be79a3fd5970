//! Settings that a program changes itself: `set hugepages-64kB/enabled always`.
//!
//! The trace has a mark where the program did it, so the prediction changes the setting at that row,
//! as `folio predict --at` does.

use std::path::PathBuf;

use largefolio_linux::proc::thp;
use largefolio_mm::units::parse_bytes;
use largefolio_results::figures;
use largefolio_sim::replay::SettingChange;
use largefolio_trace::{Batch, Op, OpenTrace, TraceError};

/// Files of the folder of settings that a script may change.
const FILES: [&str; 2] = ["enabled", "shmem_enabled"];
const OF_SIZE: &str = "hugepages-";

/// A step that changes a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingStep {
    /// Below the folder of the settings.
    file: String,
    value: String,
}

impl SettingStep {
    #[must_use]
    pub fn of(step: &str) -> Option<Self> {
        match step.split_whitespace().collect::<Vec<_>>()[..] {
            ["set", file, value] => Some(Self { file: file.to_owned(), value: value.to_owned() }),
            _ => None,
        }
    }

    /// Whether the file is a setting of folio sizes, and not elsewhere.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.edit().is_some()
    }

    #[must_use]
    pub fn path(&self) -> PathBuf {
        thp::setting(&self.file)
    }

    /// Returns the edit of a kernel with the same effect: `anon-64K=always`.
    fn edit(&self) -> Option<String> {
        let value = self.value.replace('_', "-");
        let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
        if value.is_empty() || !value.chars().all(is_word) {
            return None;
        }
        let (size, name) = match self.file.split_once('/') {
            None => ("", self.file.as_str()),
            Some((size, name)) => (size, name),
        };
        let is_shmem = FILES.iter().position(|file| *file == name)? == 1;
        if size.is_empty() {
            return Some(format!("{}={value}", if is_shmem { "shmem" } else { "thp" }));
        }
        let kib = size.strip_prefix(OF_SIZE)?.strip_suffix("kB")?;
        let bytes = parse_bytes(&format!("{kib}K"))?;
        let of = if is_shmem { "shmem" } else { "anon" };
        Some(format!("{of}-{}={value}", figures::size(bytes)))
    }
}

/// The descriptor that a script closes after it changed a setting (`SET_MARK` in
/// `probe/script.c`).
const MARK: u64 = 200;

/// Returns the changes of `steps`, which happen in this order, at the rows of their marks.
///
/// # Errors
/// A trace that cannot be read.
pub fn changes(steps: &[SettingStep], trace: &OpenTrace) -> Result<Vec<SettingChange>, TraceError> {
    let mut left = steps.iter();
    let (mut found, mut row) = (Vec::new(), 0);
    let (mut reader, mut batch) = (trace.reader()?, Batch::default());
    while left.len() > 0 && reader.next_batch(&mut batch)? {
        for event in batch.events() {
            if event.op == Op::Close
                && event.pos == MARK
                && let Some(edit) = left.next().and_then(SettingStep::edit)
            {
                found.push(SettingChange::at_row(row, trace.meta().nr_rows, edit));
            }
            row += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_folio_sizes_is_an_edit() {
        let edit = |file: &str, value: &str| {
            SettingStep { file: file.to_owned(), value: value.to_owned() }.edit()
        };
        for (file, value, expected) in [
            ("enabled", "never", "thp=never"),
            ("shmem_enabled", "within_size", "shmem=within-size"),
            ("hugepages-64kB/enabled", "always", "anon-64K=always"),
            ("hugepages-2048kB/shmem_enabled", "advise", "shmem-2M=advise"),
        ] {
            assert_eq!(edit(file, value).as_deref(), Some(expected));
        }
        for (file, value) in [
            ("defrag", "always"),
            ("../enabled", "always"),
            ("hugepages-64kB/../enabled", "always"),
            ("hugepages-64kB/enabled", ""),
            ("enabled", "a+b=c"),
        ] {
            assert_eq!(edit(file, value), None, "{file}");
        }
    }
}
