//! Keys of a kernel file's table that are not rules.

use serde::de::DeserializeOwned;
use toml::Table;

use super::KernelError;

pub(super) fn take<T: DeserializeOwned>(
    origin: &str,
    table: &mut Table,
    key: &str,
) -> Result<Option<T>, KernelError> {
    let Some(value) = table.remove(key) else { return Ok(None) };
    let bad = |error: toml::de::Error| KernelError::BadFile {
        origin: origin.to_owned(),
        message: format!("{key}: {}", error.message()),
    };
    value.try_into().map(Some).map_err(bad)
}
