//! A number reported for many cells: its description, its metric and its unit.

use serde::Deserialize;

use super::error::Mistake;
use super::metric::Metric;
use super::sample::Sample;
use super::unit;

#[derive(Clone, Debug)]
pub struct Count {
    pub what: String,
    pub(super) metric: Metric,
    /// Empty for a plain count.
    pub unit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CountFile {
    what: String,
    count: String,
    #[serde(default)]
    unit: String,
}

impl CountFile {
    pub(super) fn counts(
        files: Vec<Self>,
        place: &str,
        sample: &Sample,
    ) -> Result<Vec<Count>, Mistake> {
        let mut counts = Vec::new();
        for (nr, file) in files.into_iter().enumerate() {
            let mistake =
                |message| Mistake::Count { place: format!("{place}.counts[{nr}]"), message };
            let metric = Metric::parse(&file.count).map_err(mistake)?;
            if let Some(message) = sample.unknown(&metric) {
                return Err(mistake(message));
            }
            unit::check(&metric, &file.unit).map_err(mistake)?;
            counts.push(Count { what: file.what, metric, unit: file.unit });
        }
        Ok(counts)
    }
}
