//! The policy in a kernel's file: its name and its object file, so another host needs no extra
//! file. This module also pairs kernels with policies.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::table::take as take_key;
use super::{Kernel, KernelError};
use crate::policy::{KernelPolicy, PolicyFileError};

pub(super) const POLICY: &str = "policy";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    /// The object file's bytes, in hex.
    object: String,
}

/// Returns each kernel, followed by the same kernel with each policy.
///
/// # Errors
/// Two policies with the same name, or a name that does not fit in a table.
pub fn with_policies(
    kernels: Vec<Kernel>,
    policies: &[KernelPolicy],
) -> Result<Vec<Kernel>, PolicyFileError> {
    let mut names = BTreeSet::new();
    for policy in policies {
        let name = policy.name().to_owned();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(PolicyFileError::Name(name));
        }
        if !names.insert(policy.name()) {
            return Err(PolicyFileError::Twice(name));
        }
    }
    let with = |kernel: Kernel| {
        let with: Vec<Kernel> =
            policies.iter().map(|policy| kernel.with_policy(policy.clone())).collect();
        std::iter::once(kernel).chain(with)
    };
    Ok(kernels.into_iter().flat_map(with).collect())
}

pub(super) fn take(origin: &str, table: &mut Table) -> Result<Option<KernelPolicy>, KernelError> {
    let Some(written) = take_key::<Written>(origin, table, POLICY)? else { return Ok(None) };
    let bad = || KernelError::BadFile {
        origin: origin.to_owned(),
        message: "policy.object: expected bytes in hex".to_owned(),
    };
    let bytes = bytes_of(&written.object).ok_or_else(bad)?;
    Ok(Some(KernelPolicy::from_object(&written.name, &bytes)?))
}

pub(super) fn put(policy: &KernelPolicy, table: &mut Table) -> Result<(), KernelError> {
    let name = policy.name().to_owned();
    let Some(object) = policy.0.object() else {
        return Err(PolicyFileError::NotAnObject(name).into());
    };
    let digits = |byte: &u8| {
        [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
    };
    let object = object.iter().flat_map(digits).collect();
    let written = Value::try_from(Written { name, object });
    let bad = |error: toml::ser::Error| KernelError::BadFile {
        origin: policy.name().to_owned(),
        message: error.to_string(),
    };
    table.insert(POLICY.to_owned(), written.map_err(bad)?);
    Ok(())
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}
