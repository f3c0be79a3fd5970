//! Edits of a kernel: `+exec-block=64K`, `+fault.exec_miss=counted`.
//!
//! An edit uses a rule's name in a kernel file ([`super::rule`]) or a short name
//! ([`super::alias`]). Owns the splitting of edits, and their error messages.

use std::path::Path;

use largefolio_mm::rules::DiskLimits;
use largefolio_mm::rules::sizes::SizeControl;

use super::alias::{self, Setting};
use super::check::check;
use super::rule::{self, Refused};
use super::{Kernel, KernelError};
use crate::names::nearest;
use crate::policy::KernelPolicy;

const SIZES: &str = "sizes.";
const SIZES_OF_FILESYSTEMS: &str = "sizes.filesystems.";

const POLICY: &str = "policy";

const FILE: &str = ".toml";

/// Values that contain a `+`, split at the `+`. It does not start an edit.
const PLUS_VALUES: [(&str, &str); 2] = [(":always", "exec"), ("=defer", "madvise")];

/// Splits a kernel's name into the kernel and its edits.
///
/// ```
/// use largefolio_sim::kernel::parts;
/// let (base, edits) = parts("7.2+sizes=64K:always+exec+thp=never");
/// assert_eq!((base, edits), ("7.2", vec!["sizes=64K:always+exec".to_owned(), "thp=never".to_owned()]));
/// ```
#[must_use]
pub fn parts(text: &str) -> (&str, Vec<String>) {
    let (base, edits_of) = text.split_at(base_len(text));
    let parts = edits_of.split('+').skip(1);
    let mut edits: Vec<String> = Vec::new();
    for part in parts {
        let ends_word = |edit: &String| {
            PLUS_VALUES.iter().any(|(start, end)| {
                let rest = part.strip_prefix(end);
                edit.ends_with(start)
                    && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        match edits.last_mut() {
            Some(edit) if ends_word(edit) => *edit = format!("{edit}+{part}"),
            _ => edits.push(part.to_owned()),
        }
    }
    (base, edits)
}

/// Returns the length before the edits: to the first `+`, or to the end of an existing file's path.
fn base_len(text: &str) -> usize {
    let plain = text.find('+').unwrap_or(text.len());
    if text[..plain].ends_with(FILE) {
        return plain;
    }
    let ends = text
        .match_indices(FILE)
        .map(|(at, found)| at + found.len())
        .filter(|&end| end > plain && (end == text.len() || text[end..].starts_with('+')));
    ends.into_iter().find(|&end| Path::new(&text[..end]).is_file()).unwrap_or(plain)
}

pub(super) fn is_policy(edit: &str) -> bool {
    edit.split_once('=').is_some_and(|(name, _)| name == POLICY)
}

/// Returns whether the edit `later` sets a rule that `earlier` also sets, or a part of it.
///
/// ```
/// use largefolio_sim::kernel::overrides;
/// assert!(overrides("readahead_bytes=131072", "readahead=8192K"));
/// assert!(!overrides("io=1M", "readahead=8192K"));
/// ```
#[must_use]
pub fn overrides(later: &str, earlier: &str) -> bool {
    let is_within = |one: &str, other: &str| {
        one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let earlier = paths(earlier);
    paths(later)
        .iter()
        .any(|one| earlier.iter().any(|other| is_within(one, other) || is_within(other, one)))
}

pub(super) fn paths(edit: &str) -> Vec<String> {
    let (name, value) = edit.split_once('=').unwrap_or((edit, ""));
    if let Some(filesystem) = filesystem_of(name) {
        return vec![format!("{SIZES_OF_FILESYSTEMS}{filesystem}")];
    }
    let of_alias = alias::find(name).and_then(|alias| alias.paths(name, value));
    of_alias.unwrap_or_else(|| vec![name.to_owned()])
}

pub(super) fn apply(kernel: &mut Kernel, edit: &str) -> Result<(), KernelError> {
    let (name, value) = edit.split_once('=').unwrap_or((edit, ""));
    if name == POLICY {
        kernel.policy = Some(KernelPolicy::named(value)?);
        return Ok(());
    }
    let bad = |expected: String| KernelError::BadValue {
        name: name.to_owned(),
        edit: edit.to_owned(),
        expected,
    };
    let alias = alias::find(name);
    let settings = match (alias, filesystem_of(name)) {
        (_, Some(filesystem)) => vec![Setting {
            path: format!("{SIZES_OF_FILESYSTEMS}{filesystem}"),
            value: value.to_owned(),
        }],
        (Some(alias), None) => {
            alias.settings(name, value, &kernel.rules).ok_or_else(|| bad(alias.value.clone()))?
        }
        (None, None) => vec![Setting { path: name.to_owned(), value: value.to_owned() }],
    };
    for Setting { path, value } in settings {
        if path.starts_with(SIZES) {
            check_sizes(kernel, edit, &value, filesystem_of(name))?;
        }
        kernel.rules =
            rule::set(&kernel.rules, &path, &value).map_err(|refused| match refused {
                Refused::Unknown(hint) => unknown(kernel, edit, hint),
                Refused::Value(expected) => {
                    bad(alias.map_or(expected, |alias| alias.value.clone()))
                }
            })?;
        kernel.is_page_given |= path == "page";
        // For all devices, also those with limits of their own.
        for own in kernel.rules.disks.values_mut() {
            match path.as_str() {
                "readahead_bytes" => own.readahead_bytes = None,
                "io_bytes" => own.io_bytes = None,
                _ => {}
            }
        }
        kernel.rules.disks.retain(|_, own| *own != DiskLimits::default());
    }
    check(&kernel.rules).map_err(bad)
}

fn filesystem_of(name: &str) -> Option<&str> {
    let of_rule = name.strip_prefix(SIZES_OF_FILESYSTEMS);
    of_rule.or_else(|| name.strip_prefix(SIZES).filter(|name| *name != "machine"))
}

fn check_sizes(
    kernel: &Kernel,
    edit: &str,
    value: &str,
    filesystem: Option<&str>,
) -> Result<(), KernelError> {
    if let Err(source) = value.parse::<SizeControl>() {
        return Err(KernelError::Sizes { edit: format!("'+{edit}'"), source });
    }
    let known = &kernel.rules.filesystems;
    let Some(name) = filesystem.filter(|name| !known.contains_key(*name)) else { return Ok(()) };
    let hint = nearest(name, known.keys().map(String::as_str));
    let (edit, name) = (format!("'+{edit}'"), name.to_owned());
    Err(KernelError::SizesFilesystem { edit, name, hint })
}

fn unknown(kernel: &Kernel, edit: &str, hint: Option<String>) -> KernelError {
    let name = edit.split_once('=').map_or(edit, |(name, _)| name);
    let single = rule::single(&kernel.rules);
    let known: Vec<&str> = alias::names().chain(single.iter().map(String::as_str)).collect();
    let near = || nearest(name, known.into_iter());
    let hint = match hint {
        Some(hint) if name.contains('.') => hint,
        Some(hint) => format!("{} {hint}", near()),
        None => near(),
    };
    KernelError::UnknownEdit { name: name.to_owned(), edit: edit.to_owned(), hint }
}
