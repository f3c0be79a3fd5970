//! The `[since]` table of a kernel file: the version that introduced a rule's value, if it lies
//! between the versions of two files, and the commit if known: `"anon.sizes" = { version = "6.8"
//! }`.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;

use super::{KernelError, table, version};

const KEY: &str = "since";

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    pub(super) version: String,
    pub(super) commit: Option<String>,
}

/// By the rule's name.
pub(super) type Sinces = BTreeMap<String, Since>;

pub(super) fn take(origin: &str, table: &mut Table) -> Result<Sinces, KernelError> {
    let since: Sinces = table::take(origin, table, KEY)?.unwrap_or_default();
    match since.iter().find(|(_, since)| version(&since.version).is_none()) {
        Some((rule, since)) => {
            let message = format!("{KEY}.{rule}: '{}' is not a version such as 6.8", since.version);
            Err(KernelError::BadFile { origin: origin.to_owned(), message })
        }
        None => Ok(since),
    }
}
