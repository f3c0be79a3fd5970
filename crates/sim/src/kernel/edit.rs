//! Edits of a kernel: `+exec-block=64K`.

use largefolio_mm::rules::{Exec, ExecMiss, Forced, ForcedGate};
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
        value: "a power of two of bytes",
        help: "fault-around window; one base page = off",
        apply: |kernel, value| {
            kernel.rules.fault_around_bytes = power_of_two(value)?;
            Some(())
        },
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
];

fn power_of_two(value: &str) -> Option<u64> {
    parse_bytes(value).filter(|bytes| bytes.is_power_of_two())
}

/// Applies one `name=value`.
pub(super) fn apply(kernel: &mut Kernel, edit: &str) -> Result<(), KernelError> {
    let (name, value) = edit.split_once('=').unwrap_or((edit, ""));
    let Some(known) = EDITS.iter().find(|known| known.name == name) else {
        let hint = nearest(name, EDITS.iter().map(|known| known.name));
        let (name, edit) = (name.to_owned(), edit.to_owned());
        return Err(KernelError::UnknownEdit { name, edit, hint });
    };
    let bad = |expected: String| KernelError::BadValue {
        name: name.to_owned(),
        edit: edit.to_owned(),
        expected,
    };
    (known.apply)(kernel, value).ok_or_else(|| bad(known.value.to_owned()))?;
    check(&kernel.rules).map_err(bad)
}
