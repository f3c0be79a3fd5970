//! Edits of a kernel: `+exec-block=64K`.

use largefolio_mm::rmap::mapcount::PmdCount;
use largefolio_mm::rules::anon::{
    Defrag, Enabled, Mapcount, NonePtes, Reuse, SizeMode, TruncateSplit, Underused,
};
use largefolio_mm::rules::clear::{ClearOrder, Preemption};
use largefolio_mm::rules::collapse::{
    CollapseSizes, FileCollapse, SharedPtes, ShmemEnabled, SwapPtes,
};
use largefolio_mm::rules::sizes::{SizeControl, SizesError};
use largefolio_mm::rules::{
    AroundCredit, AroundWindow, Exec, ExecMiss, Forced, ForcedGate, StartOrder,
};
use largefolio_mm::units::PageSize;

use super::load::check;
use super::{Kernel, KernelError};
use crate::names::nearest;
use crate::size::parse_bytes;

/// What an edit does, for `--help`.
#[derive(Clone, Copy, Debug)]
pub struct EditHelp {
    /// Name before the `=`.
    pub name: &'static str,
    /// Form of the value.
    pub value: &'static str,
    /// What it sets.
    pub help: &'static str,
    apply: fn(&mut Kernel, &str) -> Option<()>,
}

/// Every edit.
pub const EDITS: &[EditHelp] = &[
    EditHelp {
        name: "page",
        value: "4K, 16K or 64K",
        help: "base page size",
        apply: |kernel, value| {
            kernel.is_page_given = true;
            kernel.rules.page = match value {
                "4K" | "4k" => PageSize::K4,
                "16K" | "16k" => PageSize::K16,
                "64K" | "64k" => PageSize::K64,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "exec-block",
        value: "a power of two of bytes, such as 64K",
        help: "series 000 as posted: one aligned block for a cold executable page",
        apply: |kernel, value| {
            kernel.rules.fault.exec = Exec::Block { bytes: power_of_two(value)? };
            Some(())
        },
    },
    EditHelp {
        name: "exec-window",
        value: "a power of two of bytes, or `arch`",
        help: "series 000 as merged, with folios of any size",
        apply: |kernel, value| {
            kernel.rules.fault.exec = if value == "arch" {
                Exec::ArchWindow
            } else {
                Exec::Window { bytes: power_of_two(value)? }
            };
            Some(())
        },
    },
    EditHelp {
        name: "exec-miss",
        value: "counted, posted or final",
        help: "series 002 patch 1: executable mappings and the miss counter",
        apply: |kernel, value| {
            kernel.rules.fault.exec_miss = match value {
                "counted" => ExecMiss::Counted,
                "posted" => ExecMiss::NotCounted,
                "final" => ExecMiss::Balanced,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "forced",
        value: "pmd, posted or final",
        help: "series 002 patch 2: the window of MADV_HUGEPAGE",
        apply: |kernel, value| {
            kernel.rules.fault.forced = match value {
                "pmd" => Forced::Pmd,
                "posted" => Forced::Posted,
                "final" => Forced::CappedAt2M,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "forced-gate",
        value: "on or off",
        help: "whether the miss counter gates forced windows",
        apply: |kernel, value| {
            kernel.rules.fault.forced_gate = match value {
                "on" => ForcedGate::Gated,
                "off" => ForcedGate::Ungated,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "readahead",
        value: "bytes, such as 128K; 0 = off",
        help: "readahead window of the device",
        apply: |kernel, value| {
            kernel.rules.readahead_bytes = parse_bytes(value)?;
            Some(())
        },
    },
    EditHelp {
        name: "io",
        value: "bytes, such as 1280K",
        help: "largest I/O of the device",
        apply: |kernel, value| {
            kernel.rules.io_bytes = parse_bytes(value)?;
            Some(())
        },
    },
    EditHelp {
        name: "fault-around",
        value: "a power of two of bytes, or `contpte`",
        help: "fault-around window; one base page = off, `contpte` = at least a contpte block",
        apply: |kernel, value| {
            kernel.rules.fault.around_window = if value == "contpte" {
                AroundWindow::ContpteBlock
            } else {
                kernel.rules.fault_around_bytes = power_of_two(value)?;
                AroundWindow::Bytes
            };
            Some(())
        },
    },
    EditHelp {
        name: "around-credit",
        value: "page, new-page or fault",
        help: "what fault-around gives back to the miss counter (7.2: at most one a fault)",
        apply: |kernel, value| {
            kernel.rules.fault.around_credit = match value {
                "page" => AroundCredit::PerPage,
                "new-page" => AroundCredit::PerNewPage,
                "fault" => AroundCredit::OncePerFault,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "start-order",
        value: "a power of two of bytes, such as 64K, or `ramp`",
        help: "beyond series 002: folios that a read-around starts with",
        apply: |kernel, value| {
            kernel.rules.fault.start_order = if value == "ramp" {
                StartOrder::Ramp
            } else {
                StartOrder::Size { bytes: power_of_two(value)? }
            };
            Some(())
        },
    },
    EditHelp {
        name: "sizes",
        value: "SIZE:USE/.., such as 64K:exec/2M:always; USE is never, always, exec or always+exec",
        help: "beyond series 000: folio sizes of all files; those not named are never used, or as \
               others:USE says",
        apply: |_, _| None,
    },
    EditHelp {
        name: "sizes.FS",
        value: "the same",
        help: "beyond series 000: folio sizes on one filesystem, such as sizes.xfs=2M:exec",
        apply: |_, _| None,
    },
    EditHelp {
        name: "min-folio",
        value: "a power of two of bytes, or 0",
        help: "smallest folio (block size) of filesystems with large folios",
        apply: |kernel, value| {
            let bytes = parse_bytes(value)?;
            kernel.rules.min_folio_bytes = if bytes == 0 { 0 } else { power_of_two(value)? };
            Some(())
        },
    },
    EditHelp {
        name: "thp",
        value: "always, madvise or never",
        help: "transparent_hugepage/enabled: anonymous folios of sizes that inherit it",
        apply: |kernel, value| {
            kernel.rules.anon.thp = match value {
                "always" => Enabled::Always,
                "madvise" => Enabled::Madvise,
                "never" => Enabled::Never,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "anon-SIZE",
        value: "always, madvise, inherit or never, for a SIZE of at least 16K from 6.8 on",
        help: "hugepages-SIZE/enabled: anonymous folios of that size, such as anon-64K=always",
        apply: |_, _| None,
    },
    EditHelp {
        name: "defrag",
        value: "always, defer, defer-madvise, madvise or never",
        help: "transparent_hugepage/defrag: how hard a fault tries",
        apply: |kernel, value| {
            kernel.rules.anon.defrag = match value {
                "always" => Defrag::Always,
                "defer" => Defrag::Defer,
                "defer-madvise" => Defrag::DeferMadvise,
                "madvise" => Defrag::Madvise,
                "never" => Defrag::Never,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "huge-zero",
        value: "on or off",
        help: "transparent_hugepage/use_zero_page: first reads share the huge zero folio",
        apply: |kernel, value| {
            kernel.rules.anon.use_zero_page = switch(value)?;
            Some(())
        },
    },
    EditHelp {
        name: "shrink-underused",
        value: "on or off",
        help: "whether nearly empty PMD folios are split under memory pressure",
        apply: |kernel, value| {
            let is_on = switch(value)?;
            kernel.rules.anon.shrink_underused =
                if is_on { Underused::Queued } else { Underused::Ignored };
            Some(())
        },
    },
    EditHelp {
        name: "max-ptes-none",
        value: "a number of pages",
        help: "khugepaged/max_ptes_none: empty pages above which a folio is under-used",
        apply: |kernel, value| {
            kernel.rules.anon.max_ptes_none = NonePtes::Exactly(value.parse().ok()?);
            Some(())
        },
    },
    EditHelp {
        name: "reuse",
        value: "small or tracked",
        help: "series 004: stores may keep a large folio that one process has to itself",
        apply: |kernel, value| {
            kernel.rules.anon.reuse = match value {
                "small" => Reuse::SmallOnly,
                "tracked" => Reuse::Tracked,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "mapcount",
        value: "page or folio",
        help: "series 004: `folio` is NO_PAGE_MAPCOUNT",
        apply: |kernel, value| {
            kernel.rules.anon.mapcount = match value {
                "page" => Mapcount::PerPage,
                "folio" => Mapcount::PerFolio,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "owners-max",
        value: "mappings, 0 = no limit",
        help: "beyond series 004: owners of a folio with more mappings are not tracked",
        apply: |kernel, value| {
            kernel.rules.anon.owners_max = value.parse().ok()?;
            Some(())
        },
    },
    EditHelp {
        name: "pmd-counts",
        value: "one or pages",
        help: "beyond series 004: a PMD entry counts as one mapping, or as one for each page",
        apply: |kernel, value| {
            kernel.rules.anon.pmd_counts = match value {
                "one" => PmdCount::One,
                "pages" => PmdCount::AllPages,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "truncate-split",
        value: "uniform or non-uniform",
        help: "how truncation and hole punch split a folio",
        apply: |kernel, value| {
            kernel.rules.anon.truncate_split = match value {
                "uniform" => TruncateSplit::Uniform,
                "non-uniform" => TruncateSplit::NonUniform,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "clear",
        value: "converging, posted, merged or one-pass",
        help: "series 001: in which order a new folio is zeroed",
        apply: |kernel, value| {
            kernel.rules.clear.order = match value {
                "converging" => ClearOrder::Converging,
                "posted" => ClearOrder::Posted,
                "merged" => ClearOrder::Merged,
                "one-pass" => ClearOrder::OnePass,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "preemption",
        value: "on or off",
        help: "whether clearing goes in whole extents (`full`, `lazy`) or in units",
        apply: |kernel, value| {
            kernel.rules.clear.preemption =
                if switch(value)? { Preemption::Preemptible } else { Preemption::Cooperative };
            Some(())
        },
    },
    EditHelp {
        name: "file-collapse",
        value: "absent, deny-write, exec, readers or large-folios",
        help: "series 003: which files khugepaged and MADV_COLLAPSE take",
        apply: |kernel, value| {
            kernel.rules.collapse.file = match value {
                "absent" => FileCollapse::Absent,
                "deny-write" => FileCollapse::DenyWrite,
                "exec" => FileCollapse::Exec,
                "readers" => FileCollapse::Readers,
                "large-folios" => FileCollapse::LargeFolios,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "shmem-collapse",
        value: "never, advise, within-size or always",
        help: "transparent_hugepage/shmem_enabled, as khugepaged asks it",
        apply: |kernel, value| {
            kernel.rules.collapse.shmem = match value {
                "never" => ShmemEnabled::Never,
                "advise" => ShmemEnabled::Advise,
                "within-size" => ShmemEnabled::WithinSize,
                "always" => ShmemEnabled::Always,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "collapse-sizes",
        value: "pmd or enabled",
        help: "sizes khugepaged collapses anonymous memory to",
        apply: |kernel, value| {
            kernel.rules.collapse.sizes = match value {
                "pmd" => CollapseSizes::PmdOnly,
                "enabled" => CollapseSizes::Enabled,
                _ => return None,
            };
            Some(())
        },
    },
    EditHelp {
        name: "max-ptes-swap",
        value: "a number of pages",
        help: "khugepaged/max_ptes_swap: pages of a block that are swapped out or evicted",
        apply: |kernel, value| {
            kernel.rules.collapse.max_ptes_swap = SwapPtes::Exactly(value.parse().ok()?);
            Some(())
        },
    },
    EditHelp {
        name: "max-ptes-shared",
        value: "a number of pages",
        help: "khugepaged/max_ptes_shared: pages of a block that others may map",
        apply: |kernel, value| {
            kernel.rules.collapse.max_ptes_shared = SharedPtes::Exactly(value.parse().ok()?);
            Some(())
        },
    },
    EditHelp {
        name: "khugepaged-scan-sleep",
        value: "milliseconds, such as 100ms",
        help: "khugepaged/scan_sleep_millisecs",
        apply: |kernel, value| {
            kernel.rules.collapse.scan_sleep_ms = milliseconds(value)?;
            Some(())
        },
    },
    EditHelp {
        name: "khugepaged-alloc-sleep",
        value: "milliseconds, such as 60000ms",
        help: "khugepaged/alloc_sleep_millisecs",
        apply: |kernel, value| {
            kernel.rules.collapse.alloc_sleep_ms = milliseconds(value)?;
            Some(())
        },
    },
];

/// What the names of controls of one size of anonymous folios begin with.
const ANON: &str = "anon-";
/// What the names of per-size controls of files begin with.
const SIZES: &str = "sizes";

/// Longest sleep of a setting: a day.
const SLEEP_MS_MAX: u64 = 86_400_000;

fn milliseconds(value: &str) -> Option<u64> {
    let ms = value.strip_suffix("ms").unwrap_or(value).parse().ok()?;
    (1..=SLEEP_MS_MAX).contains(&ms).then_some(ms)
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// `anon-64K=always`.
fn set_anon_size(kernel: &mut Kernel, size: &str, value: &str) -> Option<()> {
    let mode = match value {
        "always" => SizeMode::Always,
        "madvise" => SizeMode::Madvise,
        "inherit" => SizeMode::Inherit,
        "never" => SizeMode::Never,
        _ => return None,
    };
    kernel.rules.anon.set_size(parse_bytes(size)?, mode)
}

fn power_of_two(value: &str) -> Option<u64> {
    parse_bytes(value).filter(|bytes| bytes.is_power_of_two())
}

/// The kernel and its edits in `text`. The `+` of the word `always+exec` begins no edit.
pub(super) fn parts(text: &str) -> (&str, Vec<String>) {
    let mut parts = text.split('+');
    let base = parts.next().unwrap_or_default();
    let mut edits: Vec<String> = Vec::new();
    for part in parts {
        match edits.last_mut() {
            Some(edit)
                if edit.starts_with(SIZES)
                    && edit.ends_with(":always")
                    && (part == "exec" || part.starts_with("exec/")) =>
            {
                *edit = format!("{edit}+{part}");
            }
            _ => edits.push(part.to_owned()),
        }
    }
    (base, edits)
}

/// `sizes=64K:exec`, `sizes.xfs=64K:exec`; `None` when it is another edit.
fn set_sizes(kernel: &mut Kernel, name: &str, value: &str) -> Option<Result<(), SizesError>> {
    let filesystem = name.strip_prefix(SIZES)?;
    if !(filesystem.is_empty() || filesystem.starts_with('.')) {
        return None;
    }
    let sizes = &mut kernel.rules.sizes;
    let set = |control: SizeControl| match filesystem.strip_prefix('.') {
        Some(name) => drop(sizes.filesystems.insert(name.to_owned(), control)),
        None => sizes.machine = Some(control),
    };
    Some(value.parse().map(set))
}

/// Applies one `name=value`.
pub(super) fn apply(kernel: &mut Kernel, edit: &str) -> Result<(), KernelError> {
    let (name, value) = edit.split_once('=').unwrap_or((edit, ""));
    if let Some(set) = set_sizes(kernel, name, value) {
        let edit = format!("'+{edit}'");
        set.map_err(|source| KernelError::Sizes { edit: edit.clone(), source })?;
        let known = &kernel.rules.filesystems;
        let unknown = name.strip_prefix("sizes.").filter(|&name| !known.contains_key(name));
        return unknown.map_or(Ok(()), |name| {
            let hint = nearest(name, known.keys().map(String::as_str));
            Err(KernelError::SizesFilesystem { edit, name: name.to_owned(), hint })
        });
    }
    let size = name.strip_prefix(ANON);
    let is_known = |known: &&EditHelp| match size {
        Some(_) => known.name.starts_with(ANON),
        None => known.name == name,
    };
    let Some(known) = EDITS.iter().find(is_known) else {
        let hint = nearest(name, EDITS.iter().map(|known| known.name));
        let (name, edit) = (name.to_owned(), edit.to_owned());
        return Err(KernelError::UnknownEdit { name, edit, hint });
    };
    let bad = |expected: String| KernelError::BadValue {
        name: name.to_owned(),
        edit: edit.to_owned(),
        expected,
    };
    let applied = match size {
        Some(size) => set_anon_size(kernel, size, value),
        None => (known.apply)(kernel, value),
    };
    applied.ok_or_else(|| bad(known.value.to_owned()))?;
    check(&kernel.rules).map_err(bad)
}
