//! Variables and files that the verbs use in addition to their arguments, and related manual pages.
//!
//! A verb's facts also apply to its subcommands. `tests/cli/man.rs` compares the variables with the
//! sources.

pub(super) type Fact = (&'static str, &'static str);

/// Verbs (empty: all) and their variables.
const ENVIRONMENT: &[(&[&str], Fact)] = &[
    (&[], ("NO_COLOR", "Turns off bold text in tables.")),
    (&[], ("COLUMNS", "Width of tables if standard output is not a terminal [120].")),
    (&[], ("RUST_BACKTRACE", "Shows where an internal error occurred.")),
    (
        &["record"],
        (
            "LARGEFOLIO_RECORDER",
            "The recorder plugin [liblargefolio_recorder.so next to `folio` or in \
             ../lib/largefolio].",
        ),
    ),
    (
        &["record"],
        (
            "LARGEFOLIO_QEMU",
            "The `qemu-x86_64` to record with [the one in PATH if it has plugins, else the one in \
             ../lib/largefolio].",
        ),
    ),
    (&["record"], ("LARGEFOLIO_QEMU_AARCH64", "The same for arm64 programs: `qemu-aarch64`.")),
    (
        &["record", "run", "verify"],
        ("PATH", "Where folio searches for the program and, for `record`, for QEMU."),
    ),
    (
        &["record", "calibrate"],
        ("TMPDIR", "Directory for temporary files if memory (/dev/shm) cannot be used [/tmp]."),
    ),
    (
        &["run", "verify"],
        (
            "LARGEFOLIO_PRELOAD",
            "The library for `--text remap` [liblargefolio_preload.so next to `folio` or in \
             ../lib/largefolio].",
        ),
    ),
    (
        &["run"],
        (
            "LARGEFOLIO_REGIONS_LIBRARY",
            "The library for `--regions` [liblargefolio_regions.so next to `folio` or in \
             ../lib/largefolio].",
        ),
    ),
    (
        &["run"],
        (
            "LD_PRELOAD, ASAN_OPTIONS, LARGEFOLIO_REGIONS, LARGEFOLIO_REGIONS_REPORT",
            "`--regions` sets or extends these for the program and everything it starts.",
        ),
    ),
    (
        &["run", "verify"],
        ("XDG_RUNTIME_DIR", "Directory for shared copies of text if /dev/shm cannot be used."),
    ),
    (
        &["run", "verify"],
        (
            "GLIBC_TUNABLES",
            "`--heap` adds glibc.malloc.hugetlb=1 for the program; an existing value is kept.",
        ),
    ),
    (
        &["run", "verify"],
        (
            "LD_PRELOAD, ASAN_OPTIONS, LARGEFOLIO_REMAP, LARGEFOLIO_REMAP_REPORT, \
             LARGEFOLIO_REMAP_BUDGET, LARGEFOLIO_REMAP_FILTERS, LARGEFOLIO_VERBOSE",
            "`--text remap` sets or extends these for the program and everything it starts.",
        ),
    ),
    (
        &["run", "verify", "warm"],
        ("LD_LIBRARY_PATH", "Where folio searches for libraries first, as the loader does."),
    ),
    (
        &["advise", "predict", "verify"],
        (
            "LARGEFOLIO_PROGRESS_MS",
            "Milliseconds between progress lines if standard error is not a terminal [10000].",
        ),
    ),
    (
        &["tune", "warm"],
        ("XDG_STATE_HOME, HOME", "Where the old values are stored [~/.local/state]."),
    ),
    (
        &["calibrate", "predict", "verify"],
        ("XDG_CONFIG_HOME, HOME", "Where the file of the machine `this` is stored [~/.config]."),
    ),
    (
        &["bench exec", "bench fault", "calibrate"],
        (
            "XDG_CACHE_HOME, HOME",
            "Where folio creates unnamed files that it reads and executes [~/.cache, else \
             /var/tmp].",
        ),
    ),
];

/// Verbs (empty: all) and their files.
const FILES: &[(&[&str], Fact)] = &[
    (
        &["predict", "calibrate", "verify"],
        ("~/.config/largefolio/machines/this.toml", "The machine that `folio calibrate` measured."),
    ),
    (
        &["tune", "warm"],
        (
            "~/.local/state/largefolio/tune.json",
            "Old values of the changed settings, and the files that folio wrote.",
        ),
    ),
    (
        &["tune"],
        (
            "/etc/tmpfiles.d/largefolio.conf, /etc/udev/rules.d/60-largefolio.rules",
            "Settings that `--persist` applies again at every boot.",
        ),
    ),
    (
        &["tune"],
        (
            "/etc/systemd/system/UNIT.d/50-largefolio.conf",
            "Environment variables that `--unit` and `--env` set for a service.",
        ),
    ),
    (
        &["warm"],
        (
            "/etc/systemd/system/largefolio-warm-NAME.{service,path}",
            "Units that `--persist` writes, with links in multi-user.target.wants.",
        ),
    ),
    (
        &["tune", "run", "verify", "calibrate"],
        ("/sys/kernel/mm/transparent_hugepage/", "Settings for large folios in private memory."),
    ),
    (
        &["record", "run"],
        ("PREFIX/lib/largefolio/", "The recorder plugin and the library of `folio run`."),
    ),
    (
        &["run", "verify"],
        ("/dev/shm/largefolio-UID/", "Shared copies of text, while programs use them."),
    ),
    (
        &["maps"],
        (
            "/proc/PID/{maps,smaps,pagemap}, /proc/kpageflags",
            "Mappings and their folios; the kernel shows PFNs and flags only to root.",
        ),
    ),
    (
        &[],
        (
            "PREFIX/share/largefolio/",
            "Kernels, machines, studies, tunings and policies (also built in), as examples for \
             your own files; folio_policy.h; recorded traces.",
        ),
    ),
    (&[], ("PREFIX/share/doc/largefolio/", "Guides and design notes.")),
];

/// Verbs and manual pages of other programs.
const PAGES: &[(&str, &[(&str, u8)])] = &[
    ("record", &[("qemu-user", 1)]),
    ("run", &[("madvise", 2), ("ld.so", 8)]),
    ("tune", &[("tmpfiles.d", 5), ("udev", 7), ("systemd.exec", 5)]),
    ("warm", &[("madvise", 2), ("posix_fadvise", 2), ("systemd.path", 5)]),
    ("collapse", &[("process_madvise", 2)]),
    ("maps", &[("proc", 5)]),
    ("align", &[("ld", 1), ("elf", 5)]),
];

/// Returns whether a fact for `verbs` applies to the page of `command` (`folio trace gen`).
fn matches_command(verbs: &[&str], command: &str) -> bool {
    let verb = command.strip_prefix("folio").unwrap_or(command).trim_start();
    if verbs.is_empty() {
        return verb.is_empty();
    }
    verbs.iter().any(|known| verb == *known || verb.starts_with(&format!("{known} ")))
}

fn facts(table: &[(&[&str], Fact)], command: &str) -> Vec<Fact> {
    table
        .iter()
        .filter(|(verbs, _)| matches_command(verbs, command))
        .map(|(_, fact)| *fact)
        .collect()
}

pub(super) fn environment(command: &str) -> Vec<Fact> {
    facts(ENVIRONMENT, command)
}

pub(super) fn files(command: &str) -> Vec<Fact> {
    facts(FILES, command)
}

pub(super) fn pages(command: &str) -> Vec<(&'static str, u8)> {
    let entries = PAGES.iter().filter(|(verb, _)| matches_command(&[verb], command));
    entries.flat_map(|(_, pages)| pages.iter().copied()).collect()
}

/// Returns the pages of `verbs` that `text` names as `folio VERB`.
pub(super) fn mentioned(text: &str, verbs: &[String]) -> Vec<String> {
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let is_verb = |word: &str| verbs.iter().any(|verb| verb == word);
    let pairs = words.windows(2).filter(|pair| pair[0] == "folio" && is_verb(pair[1]));
    pairs.map(|pair| format!("folio-{}", pair[1])).collect()
}
