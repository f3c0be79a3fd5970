//! The machines of `machines/*.toml`, embedded.

/// Name and text of every built-in machine, by name.
pub(super) const MACHINES: [(&str, &str); 4] = [
    ("altra", include_str!("../../../../machines/altra.toml")),
    ("cascadelake", include_str!("../../../../machines/cascadelake.toml")),
    ("grace-64k", include_str!("../../../../machines/grace-64k.toml")),
    ("zen4", include_str!("../../../../machines/zen4.toml")),
];

/// Names of the built-in machines, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, _)| *name)
}
