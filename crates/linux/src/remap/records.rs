//! The processes' reports, summed up.
//!
//! The processes write these records, so every number is checked. Invalid lines are counted and
//! ignored.

use std::collections::BTreeMap;
use std::fmt;

use super::wire::{How, Refusal};
use crate::measure::Spread;

const NR_NAMES_MAX: usize = 10_000;
const OTHERS: &str = "(others)";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub nr_processes: u64,
    pub refused: BTreeMap<Refusal, u64>,
    pub texts: BTreeMap<String, TextSum>,
    pub micros: Vec<f64>,
    pub nr_damaged: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextSum {
    pub how: BTreeMap<How, u64>,
    pub refused: BTreeMap<Refusal, u64>,
    /// Largest text in bytes.
    pub text_bytes: u64,
    pub block_bytes: u64,
    /// Most bytes under PMD entries.
    pub large_bytes: u64,
    pub made_micros: Vec<f64>,
    pub shared_micros: Vec<f64>,
}

impl Summary {
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut summary = Self::default();
        for line in text.lines() {
            if summary.take(line).is_none() {
                summary.nr_damaged += 1;
            }
        }
        summary
    }

    #[must_use]
    pub fn nr_texts(&self, how: How) -> u64 {
        self.texts.values().filter_map(|text| text.how.get(&how)).sum()
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "P" => {
                let [_, micros, refusal] = numbers(rest)?.0;
                self.nr_processes += 1;
                self.micros.push(as_float(micros));
                if let Some(refusal) = Refusal::from_code(refusal.try_into().ok()?) {
                    *self.refused.entry(refusal).or_default() += 1;
                }
            }
            "T" => {
                let ([_, micros, how, refusal, text, blocks, large, _], name) = numbers(rest)?;
                let how = How::from_code(how.try_into().ok()?)?;
                let is_known = self.texts.contains_key(name) || self.texts.len() < NR_NAMES_MAX;
                let name = if is_known { name } else { OTHERS };
                let sum = self.texts.entry(name.to_owned()).or_default();
                *sum.how.entry(how).or_default() += 1;
                if let Some(refusal) = Refusal::from_code(refusal.try_into().ok()?) {
                    *sum.refused.entry(refusal).or_default() += 1;
                }
                sum.text_bytes = sum.text_bytes.max(text);
                sum.block_bytes = sum.block_bytes.max(blocks);
                sum.large_bytes = sum.large_bytes.max(large);
                match how {
                    How::Made | How::Private => sum.made_micros.push(as_float(micros)),
                    How::Shared => sum.shared_micros.push(as_float(micros)),
                    How::Plain => {}
                }
            }
            _ => return None,
        }
        Some(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^52 unless damaged")]
fn as_float(value: u64) -> f64 {
    value as f64
}

fn numbers<const N: usize>(text: &str) -> Option<([u64; N], &str)> {
    let mut values = [0; N];
    let mut rest = text;
    for slot in &mut values {
        let (value, after) = rest.split_once(' ').unwrap_or((rest, ""));
        *slot = value.parse().ok()?;
        rest = after;
    }
    Some((values, rest))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.nr_processes == 0 {
            // Another user's process cannot write to the store, not even a report.
            let other = "or the program runs as another user: then start folio as that user";
            writeln!(f, "in every process, {}; {other}", Refusal::Tiny.text())?;
        }
        for (name, text) in &self.texts {
            write!(f, "{name}: {text}")?;
            f.write_str("\n")?;
        }
        for (refusal, nr) in &self.refused {
            writeln!(
                f,
                "{nr} of {} processes left unchanged: {}",
                self.nr_processes,
                refusal.text()
            )?;
        }
        if let Some(micros) = Spread::of(&self.micros) {
            let Spread { median, min, max, n } = micros;
            writeln!(f, "start-up: {median:.0} us ({min:.0} to {max:.0}, n={n})")?;
        }
        if self.nr_damaged > 0 {
            writeln!(f, "{} damaged records", self.nr_damaged)?;
        }
        Ok(())
    }
}

impl fmt::Display for TextSum {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let nr = |how| self.how.get(&how).copied().unwrap_or(0);
        let mib = |bytes: u64| as_float(bytes) / f64::from(1 << 20);
        let (large, text) = (mib(self.large_bytes), mib(self.text_bytes));
        write!(f, "{large:.1} of {text:.1} MiB of text under PMD entries, ")?;
        let (made, shared) = (nr(How::Made), nr(How::Shared));
        write!(f, "{made} made a copy, {shared} shared it")?;
        if nr(How::Private) > 0 {
            let private = nr(How::Private);
            let step = if cfg!(target_arch = "aarch64") { "its alignment" } else { "4K" };
            write!(
                f,
                ", {private} not shared, because it is loaded at a random multiple of {step} \
                 (folio align makes a copy that can be shared)"
            )?;
        }
        for (refusal, nr) in &self.refused {
            write!(f, ", {nr} left unchanged: {}", refusal.text())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "T 10 900 2 0 27836416 25165824 25165824 0 node\nP 10 1000 0\n\
        T 11 90 1 0 27836416 25165824 25165824 0 node\nP 11 100 0\nP 12 50 9\n\
        T 13 80 0 14 5000000 4194304 0 0 my_prog\nP 13 60 0\n";

    #[test]
    fn records_are_summed_by_name() {
        let summary = Summary::parse(REPORT);
        assert_eq!((summary.nr_processes, summary.nr_damaged), (4, 0));
        assert_eq!(summary.refused, BTreeMap::from([(Refusal::Tiny, 1)]));
        let node = &summary.texts["node"];
        assert_eq!(node.how, BTreeMap::from([(How::Shared, 1), (How::Made, 1)]));
        assert_eq!((node.text_bytes, node.large_bytes), (27_836_416, 25_165_824));
        assert_eq!((&node.made_micros[..], &node.shared_micros[..]), (&[900.0][..], &[90.0][..]));
        assert_eq!(summary.texts["my_prog"].refused, BTreeMap::from([(Refusal::LowMemory, 1)]));
        assert_eq!((summary.nr_texts(How::Made), summary.nr_texts(How::Private)), (1, 0));
        let text = summary.to_string();
        assert!(text.starts_with("my_prog: 0.0 of 4.8 MiB"), "{text}");
        assert!(text.contains("start-up: 80 us (50 to 1000, n=4)"), "{text}");
    }

    #[test]
    fn what_is_no_record_is_counted() {
        let text =
            "x\nT 1 2\nT 1 2 9 0 0 0 0 0 a\nP 1 2\nP 1 99999999999999999999 0\nP 1 2 3 4\n\n";
        let summary = Summary::parse(text);
        assert_eq!((summary.nr_damaged, summary.nr_processes), (6, 1));
    }
}
