//! The embedded policies in `policies/` and `policies/posted/`. Their C sources describe them.

use crate::names::nearest;

macro_rules! policy {
    ($name:literal, $what:literal) => {
        ($name, $what, include_bytes!(concat!("../../policies/", $name, ".o")))
    };
}

/// A policy for an interface that was posted upstream.
macro_rules! posted {
    ($name:literal, $what:literal) => {
        ($name, $what, include_bytes!(concat!("../../policies/posted/", $name, ".bpf.o")))
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
    posted!(
        "thp-by-area",
        "for bpf_thp: up to 64K in private memory areas below 4M, else all sizes"
    ),
    posted!(
        "mthp-pressure",
        "for mthp_ext: base pages while a control group is small, or waits for memory"
    ),
    posted!(
        "cache-once",
        "for cache_ext: evicts unused folios before used ones, and does not cache large reads"
    ),
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
