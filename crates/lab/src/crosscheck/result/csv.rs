//! The result of a check as CSV.

use largefolio_results::ExportError;
use largefolio_results::cells::Cells;

use super::labels::outcome;
use super::rows::CrosscheckResult;

pub(super) fn of(result: &CrosscheckResult) -> Result<String, ExportError> {
    let mut writer = Cells::text();
    writer.record([
        "name",
        "variant",
        "rules",
        "filesystem",
        "window_kb",
        "outcome",
        "reason",
        "steps",
        "compared",
        "differences",
    ])?;
    for row in &result.rows {
        writer.record([
            row.name.as_str(),
            row.variant.as_str(),
            row.rules.as_str(),
            row.filesystem.as_str(),
            row.window_kb.to_string().as_str(),
            outcome(row.outcome),
            row.reason.as_deref().unwrap_or(""),
            row.nr_steps.to_string().as_str(),
            row.compared.values().sum::<u64>().to_string().as_str(),
            row.differences.len().to_string().as_str(),
        ])?;
    }
    writer.into_text()
}
