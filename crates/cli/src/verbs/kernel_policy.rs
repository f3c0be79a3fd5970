//! A policy in the running kernel, for `folio run --policy`.

use std::ffi::CStr;

use anyhow::{Result, anyhow};
use largefolio_linux::bpf::{self, Attached, Map, MapKind, Program};
use largefolio_mm::policy::Point;
use largefolio_sim::policy::{KernelImage, KernelMapKind, KernelPolicy, KernelProgram};

/// The tracepoint of a decision point, if kernels have one (`kernel/policy`).
const fn tracepoint(point: Point) -> Option<&'static CStr> {
    match point {
        Point::AnonOrder => Some(c"lf_anon_order"),
        Point::Window => Some(c"lf_window"),
        Point::Around => Some(c"lf_around"),
        Point::Collapse
        | Point::Write
        | Point::Victim
        | Point::SwapinOrder
        | Point::ShmemOrder
        | Point::Added
        | Point::Accessed
        | Point::Removed
        | Point::Evict
        | Point::Admit
        | Point::Interval => None,
    }
}

/// A policy that answers until this is dropped, and the points where the kernel cannot ask it.
pub(super) struct KernelPolicyRun {
    _attached: Attached,
    pub(super) unasked: Vec<&'static str>,
}

/// Loads the policy called `name`, and attaches it.
pub(super) fn attach(name: &str) -> Result<KernelPolicyRun> {
    let image = KernelPolicy::named(name)?.for_kernel()?;
    let KernelImage { maps, programs } = image.ok_or_else(|| anyhow!("{name} has no programs"))?;
    let (asked, unasked): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| tracepoint(program.point).is_some());
    let unasked = unasked.iter().map(|program| program.point.name()).collect();
    let maps = maps.into_iter().map(|map| Map {
        kind: match map.kind {
            KernelMapKind::Hash => MapKind::Hash,
            KernelMapKind::Array => MapKind::Array,
            KernelMapKind::PerCpuArray => MapKind::PerCpuArray,
        },
        key_bytes: map.key_bytes,
        value_bytes: map.value_bytes,
        nr_max: map.nr_max,
        first: map.first,
    });
    let programs = asked.into_iter().filter_map(|KernelProgram { point, code, maps }| {
        Some(Program { tracepoint: tracepoint(point)?, code, maps })
    });
    let (maps, programs): (Vec<_>, Vec<_>) = (maps.collect(), programs.collect());
    let attached = bpf::attach(&maps, &programs)?;
    Ok(KernelPolicyRun { _attached: attached, unasked })
}
