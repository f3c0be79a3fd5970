//! Settings of a kernel built with `kernel/`, as edits of a kernel.
//!
//! Owns the edit for each setting. Every setting is off at boot and is then no edit. Some are never
//! an edit: `size_advice` and `collapse_sizes` change nothing until a program asks for it.

use std::collections::BTreeMap;

use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::size::parse_bytes;

use crate::figures;

const LARGEFOLIO: &str = "largefolio.";
const FILE_SIZES: &str = "file_sizes.";
/// Settings that are one edit: their names, the value that changes nothing, and the edit.
const EDITS: [(&str, &str, &str); 8] = [
    ("exec_miss", "kernel", "exec-miss"),
    ("forced", "kernel", "forced"),
    ("forced_gate", "kernel", "forced-gate"),
    ("clear", "off", "clear"),
    ("owners_max", "0", "owners-max"),
    ("pmd_counts", "one", "pmd-counts"),
    ("file_collapse", "large-folios", "file-collapse"),
    ("copy", "pages", "copy"),
];
/// The value at boot, half of the largest mapcount. The model has no such limit.
const MAPCOUNT_MAX: &str = "1073741823";

/// What settings mean for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features {
    pub(super) edits: Vec<String>,
    /// Settings without a rule that are not at their usual value, as `name=value`.
    pub(super) ignored: Vec<String>,
}

impl Features {
    /// `settings` are this system's, by their names for `folio tune`.
    pub(super) fn of(settings: &BTreeMap<String, String>) -> Self {
        let own = |name: &str| settings.get(&format!("{LARGEFOLIO}{name}")).map(String::as_str);
        let mut features = Self::default();
        // The feature exists only in kernels without mapcounts of pages.
        features.edits.extend(own("owners_max").map(|_| "mapcount=folio".to_owned()));
        features.edits.extend(exec_order(&own));
        for (name, off, edit) in EDITS {
            let value = own(name).filter(|value| *value != off);
            features.edits.extend(value.map(|value| format!("{edit}={value}")));
        }
        features.edits.extend(file_sizes(settings));
        let mapcount = own("mapcount_max").filter(|value| *value != MAPCOUNT_MAX);
        let mapcount = mapcount.map(|value| format!("{LARGEFOLIO}mapcount_max={value}"));
        features.ignored.extend(mapcount);
        features
    }
}

/// Returns the edits that the assignments `set` (`largefolio.exec_order=window`) add to this
/// system's, joined by `+`.
pub(crate) fn edits_of_features(catalog: &Catalog, set: &[String]) -> String {
    let read = |name: String| Some((name.clone(), catalog.read(&name).ok()?.value));
    let mut settings: BTreeMap<String, String> =
        catalog.largefolio_names().into_iter().filter_map(read).collect();
    let now = Features::of(&settings).edits;
    let pairs = set.iter().filter_map(|one| one.split_once('='));
    settings.extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let then = Features::of(&settings).edits;
    then.into_iter().filter(|edit| !now.contains(edit)).collect::<Vec<_>>().join("+")
}

/// Returns whether the model has the effect of a setting.
pub(super) fn has_rule(setting: &str) -> bool {
    let rest = setting.strip_prefix(LARGEFOLIO).unwrap_or_default();
    let has_edit = EDITS.iter().any(|(name, ..)| *name == rest);
    has_edit || Catalog::decides_reads(setting)
}

fn exec_order<'a>(own: &dyn Fn(&str) -> Option<&'a str>) -> Option<String> {
    let form = own("exec_order").filter(|form| *form != "off")?;
    let bytes = own("exec_order_bytes")?.parse().ok()?;
    Some(format!("exec-{form}={}", figures::size(bytes)))
}

/// Names the sizes that differ from most others. Base pages need no name to be allowed.
fn file_sizes(settings: &BTreeMap<String, String>) -> Option<String> {
    let size = |name: &str| {
        let size = name.strip_prefix(LARGEFOLIO)?.strip_prefix(FILE_SIZES)?;
        Some((parse_bytes(size)?, size.to_owned()))
    };
    let uses: BTreeMap<(u64, String), &str> =
        settings.iter().filter_map(|(name, value)| Some((size(name)?, value.as_str()))).collect();
    if uses.is_empty() {
        return None;
    }
    let nr = |wanted: &str| uses.values().filter(|value| **value == wanted).count();
    let are_few = nr("never") > nr("always");
    let base = uses.keys().next().filter(|_| are_few);
    let usual = if are_few { "never" } else { "always" };
    let is_named = |(size, value): &(&(u64, String), &&str)| {
        **value != usual && (Some(*size) != base || **value != "always")
    };
    let named = uses.iter().filter(is_named).map(|((_, size), value)| format!("{size}:{value}"));
    let others = (!are_few).then(|| "others:always".to_owned());
    let all: Vec<String> = named.chain(others).collect();
    (all != ["others:always"]).then(|| format!("sizes={}", all.join("/")))
}
