//! The machines of `machines/*.toml`, embedded.

use super::error::Nearest;

/// Name and text of every built-in machine, by name.
pub(super) const MACHINES: [(&str, &str); 3] = [
    ("altra", include_str!("../../../../machines/altra.toml")),
    ("cascadelake", include_str!("../../../../machines/cascadelake.toml")),
    ("grace-64k", include_str!("../../../../machines/grace-64k.toml")),
];

/// Similarity (Jaro-Winkler, 0 to 1) from which a name is offered for a wrong one: one wrong letter
/// in five (`alta`, `altre`) is above it.
const NEAR: f64 = 0.75;

/// Names of the built-in machines, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, _)| *name)
}

/// At most two built-in names similar to `wanted`, the most similar first.
pub(super) fn nearest(wanted: &str) -> Nearest {
    let wanted = wanted.to_ascii_lowercase();
    let mut near: Vec<(f64, &'static str)> = names()
        .map(|name| (strsim::jaro_winkler(&wanted, name), name))
        .filter(|(similarity, _)| *similarity >= NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.truncate(2);
    Nearest(near.into_iter().map(|(_, name)| name).collect())
}
