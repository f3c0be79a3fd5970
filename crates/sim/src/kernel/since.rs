//! `[since]` of a kernel file: the version that a rule's value came with, where that lies between two
//! files, and the commit where it is known: `"anon.sizes" = { version = "6.8" }`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;

use super::{KernelError, table, version};

/// Key of the table.
const KEY: &str = "since";

/// What a kernel file says of a rule that it changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    /// First version with the value.
    pub(super) version: String,
    /// The commit that made it.
    pub(super) commit: Option<String>,
}

/// By the rule's name.
pub(super) type Sinces = BTreeMap<String, Since>;

/// Takes the table out of the kernel file `origin`.
pub(super) fn take(origin: &str, table: &mut Table) -> Result<Sinces, KernelError> {
    let since: Sinces = table::take(origin, table, KEY)?.unwrap_or_default();
    match since.iter().find(|(_, since)| version(&since.version).is_none()) {
        Some((rule, since)) => {
            let message = format!("{KEY}.{rule}: '{}' is no version, such as 6.8", since.version);
            Err(KernelError::BadFile { origin: origin.to_owned(), message })
        }
        None => Ok(since),
    }
}
