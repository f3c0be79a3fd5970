//! The embedded machines, `machines/*.toml`.

use crate::datafile::DataFiles;

pub(super) static MACHINES: DataFiles = DataFiles {
    what: "machine",
    own: " (name a file by its path, *.toml)",
    built_in: &BUILT_IN,
    bytes_max: 256 << 10,
};

const BUILT_IN: [(&str, &str); 16] = [
    ("altra", include_str!("../../machines/altra.toml")),
    ("ampereone", include_str!("../../machines/ampereone.toml")),
    ("cascadelake", include_str!("../../machines/cascadelake.toml")),
    ("grace-4k", include_str!("../../machines/grace-4k.toml")),
    ("grace-64k", include_str!("../../machines/grace-64k.toml")),
    ("grace-hpa", include_str!("../../machines/grace-hpa.toml")),
    ("graviton3", include_str!("../../machines/graviton3.toml")),
    ("graviton4", include_str!("../../machines/graviton4.toml")),
    ("icelake", include_str!("../../machines/icelake.toml")),
    ("milan", include_str!("../../machines/milan.toml")),
    ("phone", include_str!("../../machines/phone.toml")),
    ("phone-little", include_str!("../../machines/phone-little.toml")),
    ("sapphirerapids", include_str!("../../machines/sapphirerapids.toml")),
    ("xeon-4210r", include_str!("../../machines/xeon-4210r.toml")),
    ("zen4", include_str!("../../machines/zen4.toml")),
    ("zen5", include_str!("../../machines/zen5.toml")),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.names()
}
