//! The embedded policies in `policies/`. Their C sources describe them.

use crate::names::nearest;

macro_rules! policy {
    ($name:literal, $what:literal) => {
        ($name, $what, include_bytes!(concat!("../../policies/", $name, ".o")))
    };
}

static BUILT_IN: &[(&str, &str, &[u8])] = &[
    policy!("around-64k", "the kernel's own readahead windows for files, in whole 64K folios"),
    policy!("exec-order", "reads text in 64K folios, as Linux 6.17 and later do on arm64"),
    policy!(
        "always-exec",
        "reads text in 64K folios, and other mapped data in 2M folios if the file supports them"
    ),
    policy!(
        "per-program",
        "interpreters get up to 16K; other programs get up to 64K for 256 faults, then all sizes"
    ),
    policy!("pressure", "large folios while memory is free, small ones when it is short"),
];

pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILT_IN.iter().map(|&(name, what, _)| (name, what))
}

pub(super) fn object(name: &str) -> Option<&'static [u8]> {
    BUILT_IN.iter().find(|(known, _, _)| *known == name).map(|&(_, _, object)| object)
}

pub(super) fn hint(name: &str) -> String {
    nearest(name, all().map(|(name, _)| name))
}
