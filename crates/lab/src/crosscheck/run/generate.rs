//! Random scripts: the same seed gives the same script, filesystem, settings and cache.
//!
//! Owns the choice of steps. The generator keeps track of areas and files, so that a script never
//! touches memory without a page (`SIGSEGV`, `SIGBUS`).

mod feature;
mod steps;

pub use feature::Feature;

use largefolio_trace::generate::Rng;

use super::script::Script;
use crate::crosscheck::record::{Filesystem, OwnFile};

/// A random program and how it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub script: Script,
    pub filesystem: Filesystem,
    pub window_kb: u64,
    /// As `--setting`.
    pub settings: &'static str,
    pub is_warm: bool,
}

const FILESYSTEMS: [Filesystem; 2] = [Filesystem::Ext4, Filesystem::Xfs];
const WINDOWS_KB: [u64; 4] = [128, 128, 512, 2560];
const NR_STEPS_MIN: u64 = 5;
const NR_STEPS_MORE: u64 = 14;

/// Generates the program of `seed` about a feature.
///
/// ```
/// use largefolio_lab::crosscheck::run::generate::{Feature, draw};
/// assert_eq!(draw(Feature::Mixed, 7), draw(Feature::Mixed, 7));
/// assert_ne!(draw(Feature::Mixed, 7).script, draw(Feature::Mixed, 8).script);
/// assert_ne!(draw(Feature::Mixed, 7).script, draw(Feature::Locks, 7).script);
/// ```
#[must_use]
pub fn draw(feature: Feature, seed: u64) -> Drawn {
    let mut rng = Rng::new(seed);
    let filesystem = FILESYSTEMS[pick(&mut rng, FILESYSTEMS.len())];
    let window_kb = WINDOWS_KB[pick(&mut rng, WINDOWS_KB.len())];
    let settings = feature.settings();
    let settings = settings[pick(&mut rng, settings.len())];
    let is_warm = rng.below(5) == 0;
    let script = Generator::new(rng).script(feature);
    let is_warm = is_warm && script.keeps_files();
    Drawn { script, filesystem, window_kb, settings, is_warm }
}

fn pick(rng: &mut Rng, nr: usize) -> usize {
    usize::try_from(rng.below(nr as u64)).unwrap_or(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Private,
    Shared,
    SystemV,
    Heap,
    /// Pages of a file from `pos` on.
    File {
        slot: usize,
        pos: u64,
        is_shared: bool,
    },
    Huge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    slot: usize,
    bytes: u64,
    source: Source,
    is_writable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    Disk,
    /// With `O_DIRECT`.
    Direct,
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    slot: usize,
    bytes: u64,
    is_writable: bool,
    ground: Ground,
}

#[derive(Debug)]
struct Generator {
    rng: Rng,
    script: Script,
    areas: Vec<Area>,
    opens: Vec<Open>,
    /// Open blocks: inside, nothing changes that the steps after them rely on.
    depth: usize,
    nr_names: usize,
}

impl Generator {
    fn new(rng: Rng) -> Self {
        let (areas, opens) = (Vec::new(), Vec::new());
        Self { rng, script: Script::default(), areas, opens, depth: 0, nr_names: 0 }
    }

    fn script(mut self, feature: Feature) -> Script {
        let nr_steps = NR_STEPS_MIN + self.rng.below(NR_STEPS_MORE);
        self.first_of(feature);
        for _ in 0..nr_steps {
            self.step_of(feature);
        }
        self.script
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[pick(&mut self.rng, all.len())]
    }

    fn push(&mut self, step: String) {
        self.script.steps.push(step);
    }

    fn bytes(&mut self) -> u64 {
        const SIZES_KB: [u64; 12] =
            [16, 64, 100, 256, 512, 1024, 1024, 2048, 2500, 3300, 4096, 6144];
        self.one_of(&SIZES_KB) << 10
    }

    /// Readable bytes of an area from its start.
    fn valid(&self, area: &Area) -> u64 {
        let Source::File { slot, pos, .. } = area.source else { return area.bytes };
        let open = self.opens.iter().find(|open| open.slot == slot);
        let bytes = open.map_or(0, |open| open.bytes.saturating_sub(pos));
        bytes.min(area.bytes)
    }

    /// A range inside the readable part of an area: offset and length, in whole pages.
    fn range(&mut self, area: &Area) -> Option<(u64, u64)> {
        let nr_pages = self.valid(area) >> 12;
        if nr_pages == 0 {
            return None;
        }
        let (first, nr) = match self.below(4) {
            0 => (0, nr_pages),
            1 => (0, 1 + self.below(nr_pages)),
            _ => {
                let first = self.below(nr_pages);
                (first, 1 + self.below(nr_pages - first))
            }
        };
        Some((first << 12, nr << 12))
    }

    fn area(&mut self) -> Option<Area> {
        let nr = self.areas.len();
        (nr > 0).then(|| self.areas[pick(&mut self.rng, nr)])
    }

    fn area_with(&mut self, fits: impl Fn(&Area) -> bool) -> Option<Area> {
        let fitting: Vec<Area> = self.areas.iter().copied().filter(fits).collect();
        (!fitting.is_empty()).then(|| fitting[pick(&mut self.rng, fitting.len())])
    }

    fn open_with(&mut self, fits: impl Fn(&Open) -> bool) -> Option<Open> {
        let fitting: Vec<Open> = self.opens.iter().copied().filter(fits).collect();
        (!fitting.is_empty()).then(|| fitting[pick(&mut self.rng, fitting.len())])
    }

    fn free_area(&self) -> Option<usize> {
        (0..12).find(|slot| self.areas.iter().all(|area| area.slot != *slot))
    }

    fn free_file(&self) -> Option<usize> {
        (0..8).find(|slot| self.opens.iter().all(|open| open.slot != *slot))
    }

    fn set_bytes_of_file(&mut self, slot: usize, bytes: u64) {
        self.opens.iter_mut().filter(|open| open.slot == slot).for_each(|open| open.bytes = bytes);
    }

    fn new_name(&mut self) -> String {
        self.nr_names += 1;
        format!("f{}", self.nr_names)
    }

    fn add_file(&mut self, bytes: u64) -> String {
        let name = self.new_name();
        self.script.files.push(OwnFile { name: name.clone(), bytes });
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crosscheck::record::WantedSettings;

    /// Each kind of step occurs, and each script is one.
    #[test]
    fn random_scripts_are_whole_and_cover_all_steps() {
        let words = words(Feature::Mixed);
        for word in [
            "map",
            "read",
            "write",
            "unmap",
            "remap",
            "protect",
            "advise",
            "fork",
            "hold",
            "go",
            "thread",
            "spawn",
            "pread",
            "pwrite",
            "fread",
            "fwrite",
            "readv",
            "writev",
            "preadv",
            "pwritev",
            "sendfile",
            "splice",
            "copyrange",
            "fallocate",
            "truncate",
            "fsync",
            "msync",
            "fadvise",
            "readahead",
            "memfd",
            "open",
            "sysv",
            "heap",
            "stack",
            "lock",
            "unlock",
            "lockall",
            "limit",
            "thp",
            "info",
            "unlink",
            "copy",
        ] {
            assert!(words.contains(word), "no {word}");
        }
    }

    #[test]
    fn scripts_about_a_feature_have_its_steps() {
        for (feature, own) in [
            (Feature::Shared, &["memfd", "open", "sysv", "fallocate", "truncate", "pwrite"][..]),
            (Feature::Locks, &["lock", "unlock", "lockall", "unlockall"]),
            (Feature::Pins, &["pipe", "drain", "pread", "pwrite"]),
            (Feature::Thp, &["thp", "spawn", "thread"]),
            (Feature::Collapse, &["memfd", "fallocate", "protect"]),
            (Feature::Processes, &["fork", "hold", "go", "thread", "spawn"]),
            (Feature::Moves, &["remap"]),
            (Feature::Advice, &["advise"]),
            (Feature::Merging, &["merge"]),
            (Feature::Policy, &["policy", "bind"]),
            (Feature::Changes, &["set"]),
        ] {
            let words = words(feature);
            for word in own.iter().chain(&["map", "read", "write", "unmap", "fork", "hold"]) {
                assert!(words.contains(*word), "{feature}: no {word}");
            }
        }
    }

    /// The first words of the steps of many scripts, each of which is a script again as text.
    fn words(feature: Feature) -> std::collections::BTreeSet<String> {
        let mut words = std::collections::BTreeSet::new();
        // Some steps of the mixed scripts are rare.
        let nr_seeds = if feature == Feature::Mixed { 2000 } else { 300 };
        for seed in 0..nr_seeds {
            let drawn = draw(feature, seed);
            let again = drawn.script.to_string().parse();
            assert_eq!(again, Ok(drawn.script.clone()), "{feature} {seed}");
            let settings: Result<WantedSettings, _> = drawn.settings.parse();
            assert!(settings.is_ok(), "{settings:?}");
            let first = |step: &String| step.split(' ').next().unwrap_or_default().to_owned();
            words.extend(drawn.script.steps.iter().map(first));
        }
        words
    }

    #[test]
    fn features_have_names() {
        for feature in Feature::ALL {
            assert_eq!(feature.to_string().parse(), Ok(feature));
        }
        assert!("everything".parse::<Feature>().is_err());
    }
}
