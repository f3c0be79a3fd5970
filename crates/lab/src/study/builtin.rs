//! The embedded studies, `studies/*.toml`.

use largefolio_sim::datafile::DataFiles;

pub(super) static STUDIES: DataFiles =
    DataFiles { what: "study", own: "", built_in: &BUILT_IN, bytes_max: 256 << 10 };

const BUILT_IN: [(&str, &str); 13] = [
    ("exec-order", include_str!("../../studies/exec-order.toml")),
    ("exec-order-arm64", include_str!("../../studies/exec-order-arm64.toml")),
    ("fragmentation", include_str!("../../studies/fragmentation.toml")),
    ("shared", include_str!("../../studies/shared.toml")),
    ("clear", include_str!("../../studies/clear.toml")),
    ("exec-readahead", include_str!("../../studies/exec-readahead.toml")),
    ("exec-headline", include_str!("../../studies/exec-headline.toml")),
    ("file-thp", include_str!("../../studies/file-thp.toml")),
    ("owners", include_str!("../../studies/owners.toml")),
    ("sizes", include_str!("../../studies/sizes.toml")),
    ("pressure", include_str!("../../studies/pressure.toml")),
    ("policies", include_str!("../../studies/policies.toml")),
    ("history", include_str!("../../studies/history.toml")),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    STUDIES.names()
}
