//! Short names of edits: `exec-block=64K` for `fault.exec.block.bytes=64K`.
//!
//! Owns the table of names, and which rules each value of a name stands for. Does not set a rule
//! (that is [`super::rule`]).

use largefolio_mm::rules::Rules;
use largefolio_mm::rules::anon::SizeMode;

use crate::size::parse_bytes;

/// What an edit does, for `--help`.
#[derive(Clone, Copy, Debug)]
pub struct EditHelp {
    /// Name before the `=`.
    pub name: &'static str,
    /// Form of the value.
    pub value: &'static str,
    /// What it sets, one line.
    pub help: &'static str,
    /// The first entry that takes the value, and the rules it sets: `PATH=VALUE`, one after the
    /// other, where `#` stands for the value of the edit.
    means: &'static [(Takes, &'static str)],
}

/// Which values an entry takes.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Word(&'static str),
    /// Bytes, such as `64K`.
    Bytes,
    PowerOfTwo,
    Number,
    /// `100` or `100ms`, from 1 to a day.
    Milliseconds,
    /// What the rule itself takes.
    Whatever,
}

use Takes::{Bytes, Milliseconds, Number, PowerOfTwo, Whatever, Word};

/// Stands for the value of the edit.
const VALUE: char = '#';
/// Name of the edits that set one rule by its own name.
const ANY_RULE: &str = "TABLE.RULE";
/// What the names of controls of one size of anonymous folios begin with.
const ANON: &str = "anon-";
/// Longest sleep of a setting: a day.
const SLEEP_MS_MAX: u64 = 86_400_000;

/// Every edit that has a short name, and the form of all others.
pub const EDITS: &[EditHelp] = &[
    EditHelp {
        name: "page",
        value: "4K, 16K or 64K",
        help: "base page size",
        means: &[
            (Word("4k"), "page=4K"),
            (Word("16k"), "page=16K"),
            (Word("64k"), "page=64K"),
            (Whatever, "page=#"),
        ],
    },
    EditHelp {
        name: "exec-block",
        value: "a power of two of bytes, such as 64K",
        help: "series 000 as posted: one aligned block for a cold executable page",
        means: &[(PowerOfTwo, "fault.exec.block.bytes=#")],
    },
    EditHelp {
        name: "exec-window",
        value: "a power of two of bytes, or `arch`",
        help: "series 000 as merged, with folios of any size",
        means: &[
            (Word("arch"), "fault.exec=arch-window"),
            (PowerOfTwo, "fault.exec.window.bytes=#"),
        ],
    },
    EditHelp {
        name: "exec-miss",
        value: "counted, posted or final",
        help: "series 002 patch 1: executable mappings and the miss counter",
        means: &[
            (Word("counted"), "fault.exec_miss=counted"),
            (Word("posted"), "fault.exec_miss=not-counted"),
            (Word("final"), "fault.exec_miss=balanced"),
        ],
    },
    EditHelp {
        name: "forced",
        value: "pmd, posted or final",
        help: "series 002 patch 2: the window of MADV_HUGEPAGE",
        means: &[
            (Word("pmd"), "fault.forced=pmd"),
            (Word("posted"), "fault.forced=posted"),
            (Word("final"), "fault.forced=capped-at-2m"),
        ],
    },
    EditHelp {
        name: "forced-gate",
        value: "on or off",
        help: "whether the miss counter gates forced windows",
        means: &[
            (Word("on"), "fault.forced_gate=gated"),
            (Word("off"), "fault.forced_gate=ungated"),
        ],
    },
    EditHelp {
        name: "readahead",
        value: "bytes, such as 128K; 0 = off",
        help: "readahead window of the device",
        means: &[(Bytes, "readahead_bytes=#")],
    },
    EditHelp {
        name: "io",
        value: "bytes, such as 1280K",
        help: "largest I/O of the device",
        means: &[(Bytes, "io_bytes=#")],
    },
    EditHelp {
        name: "fault-around",
        value: "a power of two of bytes, or `contpte`",
        help: "fault-around window; one base page = off, `contpte` = at least a contpte block",
        means: &[
            (Word("contpte"), "fault.around_window=contpte-block"),
            (PowerOfTwo, "fault_around_bytes=# fault.around_window=bytes"),
        ],
    },
    EditHelp {
        name: "around-credit",
        value: "page, new-page or fault",
        help: "what fault-around gives back to the miss counter (7.2: at most one a fault)",
        means: &[
            (Word("page"), "fault.around_credit=per-page"),
            (Word("new-page"), "fault.around_credit=per-new-page"),
            (Word("fault"), "fault.around_credit=once-per-fault"),
        ],
    },
    EditHelp {
        name: "start-order",
        value: "a power of two of bytes, such as 64K, or `ramp`",
        help: "beyond series 002: folios that a read-around starts with",
        means: &[
            (Word("ramp"), "fault.start_order=ramp"),
            (PowerOfTwo, "fault.start_order.size.bytes=#"),
        ],
    },
    EditHelp {
        name: "sizes",
        value: "SIZE:USE/.., such as 64K:exec/2M:always; USE is never, always, exec or always+exec",
        help: "beyond series 000: folio sizes of all files; those not named are never used, or as \
               others:USE says",
        means: &[(Whatever, "sizes.machine=#")],
    },
    EditHelp {
        name: "sizes.FS",
        value: "the same",
        help: "beyond series 000: folio sizes on one filesystem, such as sizes.xfs=2M:exec",
        means: &[],
    },
    EditHelp {
        name: "min-folio",
        value: "a power of two of bytes, or 0",
        help: "smallest folio (block size) of filesystems with large folios",
        means: &[(Word("0"), "min_folio_bytes=0"), (PowerOfTwo, "min_folio_bytes=#")],
    },
    EditHelp {
        name: "thp",
        value: "always, madvise or never",
        help: "transparent_hugepage/enabled: anonymous folios of sizes that inherit it",
        means: &[(Whatever, "anon.thp=#")],
    },
    EditHelp {
        name: "anon-SIZE",
        value: "always, madvise, inherit or never, for a SIZE of at least 16K from 6.8 on",
        help: "hugepages-SIZE/enabled: anonymous folios of that size, such as anon-64K=always",
        means: &[],
    },
    EditHelp {
        name: "defrag",
        value: "always, defer, defer-madvise, madvise or never",
        help: "transparent_hugepage/defrag: how hard a fault tries",
        means: &[(Word("defer-madvise"), "anon.defrag=defer+madvise"), (Whatever, "anon.defrag=#")],
    },
    EditHelp {
        name: "huge-zero",
        value: "on or off",
        help: "transparent_hugepage/use_zero_page: first reads share the huge zero folio",
        means: &[
            (Word("on"), "anon.use_zero_page=true"),
            (Word("off"), "anon.use_zero_page=false"),
        ],
    },
    EditHelp {
        name: "shrink-underused",
        value: "on or off",
        help: "whether nearly empty PMD folios are split under memory pressure",
        means: &[
            (Word("on"), "anon.shrink_underused=queued"),
            (Word("off"), "anon.shrink_underused=ignored"),
        ],
    },
    EditHelp {
        name: "max-ptes-none",
        value: "a number of pages",
        help: "khugepaged/max_ptes_none: empty pages above which a folio is under-used",
        means: &[(Number, "anon.max_ptes_none.exactly=#")],
    },
    EditHelp {
        name: "reuse",
        value: "small or tracked",
        help: "series 004: stores may keep a large folio that one process has to itself",
        means: &[(Word("small"), "anon.reuse=small-only"), (Word("tracked"), "anon.reuse=tracked")],
    },
    EditHelp {
        name: "mapcount",
        value: "page or folio",
        help: "series 004: `folio` is NO_PAGE_MAPCOUNT",
        means: &[
            (Word("page"), "anon.mapcount=per-page"),
            (Word("folio"), "anon.mapcount=per-folio"),
        ],
    },
    EditHelp {
        name: "owners-max",
        value: "mappings, 0 = no limit",
        help: "beyond series 004: owners of a folio with more mappings are not tracked",
        means: &[(Number, "anon.owners_max=#")],
    },
    EditHelp {
        name: "pmd-counts",
        value: "one or pages",
        help: "beyond series 004: a PMD entry counts as one mapping, or as one for each page",
        means: &[
            (Word("one"), "anon.pmd_counts=one"),
            (Word("pages"), "anon.pmd_counts=all-pages"),
        ],
    },
    EditHelp {
        name: "truncate-split",
        value: "uniform or non-uniform",
        help: "how truncation and hole punch split a folio",
        means: &[(Whatever, "anon.truncate_split=#")],
    },
    EditHelp {
        name: "clear",
        value: "converging, posted, merged or one-pass",
        help: "series 001: in which order a new folio is zeroed",
        means: &[(Whatever, "clear.order=#")],
    },
    EditHelp {
        name: "preemption",
        value: "on or off",
        help: "whether clearing goes in whole extents (`full`, `lazy`) or in units",
        means: &[
            (Word("on"), "clear.preemption=preemptible"),
            (Word("off"), "clear.preemption=cooperative"),
        ],
    },
    EditHelp {
        name: "file-collapse",
        value: "absent, deny-write, exec, readers or large-folios",
        help: "series 003: which files khugepaged and MADV_COLLAPSE take",
        means: &[(Whatever, "collapse.file=#")],
    },
    EditHelp {
        name: "shmem-collapse",
        value: "never, advise, within-size or always",
        help: "transparent_hugepage/shmem_enabled, as khugepaged asks it",
        means: &[(Whatever, "collapse.shmem=#")],
    },
    EditHelp {
        name: "collapse-sizes",
        value: "pmd or enabled",
        help: "sizes khugepaged collapses anonymous memory to",
        means: &[
            (Word("pmd"), "collapse.sizes=pmd-only"),
            (Word("enabled"), "collapse.sizes=enabled"),
        ],
    },
    EditHelp {
        name: "max-ptes-swap",
        value: "a number of pages",
        help: "khugepaged/max_ptes_swap: pages of a block that are swapped out or evicted",
        means: &[(Number, "collapse.max_ptes_swap.exactly=#")],
    },
    EditHelp {
        name: "max-ptes-shared",
        value: "a number of pages",
        help: "khugepaged/max_ptes_shared: pages of a block that others may map",
        means: &[(Number, "collapse.max_ptes_shared.exactly=#")],
    },
    EditHelp {
        name: "khugepaged-scan-sleep",
        value: "milliseconds, such as 100ms",
        help: "khugepaged/scan_sleep_millisecs",
        means: &[(Milliseconds, "collapse.scan_sleep_ms=#")],
    },
    EditHelp {
        name: "khugepaged-alloc-sleep",
        value: "milliseconds, such as 60000ms",
        help: "khugepaged/alloc_sleep_millisecs",
        means: &[(Milliseconds, "collapse.alloc_sleep_ms=#")],
    },
    EditHelp {
        name: ANY_RULE,
        value: "as in a kernel file",
        help: "any rule by its name in a kernel file, such as fault.exec_miss=counted or \
               readahead_bytes=1M",
        means: &[],
    },
];

/// The short name `name`.
pub(super) fn find(name: &str) -> Option<&'static EditHelp> {
    let is_it = |known: &&EditHelp| match name.strip_prefix(ANON) {
        Some(_) => known.name.starts_with(ANON),
        None => known.name == name && name != ANY_RULE,
    };
    EDITS.iter().find(is_it)
}

/// Short names, in the order they are listed.
pub(super) fn names<'a>() -> impl Iterator<Item = &'a str> {
    EDITS.iter().map(|known| known.name).filter(|name| *name != ANY_RULE)
}

/// A rule by its path in a kernel file, and its value.
pub(super) struct Setting {
    pub(super) path: String,
    pub(super) value: String,
}

impl EditHelp {
    /// The rules that `name=value` sets; `None` for a value that the name does not take.
    pub(super) fn settings(&self, name: &str, value: &str, rules: &Rules) -> Option<Vec<Setting>> {
        if let Some(size) = name.strip_prefix(ANON) {
            return Some(vec![anon_size(rules, size, value)?]);
        }
        let taken = self.means.iter().find_map(|(takes, rules)| Some((takes.take(value)?, rules)));
        let (value, rules) = taken?;
        let setting = |rule: &str| {
            let (path, taken) = rule.split_once('=')?;
            Some(Setting { path: path.to_owned(), value: taken.replace(VALUE, &value) })
        };
        rules.split(' ').map(setting).collect()
    }
}

impl Takes {
    /// The value in the form a rule has it.
    fn take(self, value: &str) -> Option<String> {
        let number = match self {
            Word(word) => return (word == value).then(String::new),
            Whatever => return Some(value.to_owned()),
            Bytes => parse_bytes(value)?,
            PowerOfTwo => parse_bytes(value).filter(|bytes| bytes.is_power_of_two())?,
            Number => value.parse().ok()?,
            Milliseconds => {
                let ms = value.strip_suffix("ms").unwrap_or(value).parse().ok()?;
                (1..=SLEEP_MS_MAX).contains(&ms).then_some(ms)?
            }
        };
        Some(number.to_string())
    }
}

/// `anon-64K=always`.
fn anon_size(rules: &Rules, size: &str, value: &str) -> Option<Setting> {
    let bytes = parse_bytes(size)?;
    rules.anon.clone().set_size(bytes, SizeMode::Never)?;
    let path = format!("anon.size_kib.{}", bytes >> 10);
    Some(Setting { path, value: value.to_owned() })
}
