//! Scripts: the text that `probe/script.c` runs, with the files and huge pages that it needs.
//!
//! ```text
//!   file d 4M; open 0 d r; map 0 4M r shared file 0 0; fork; read 0 0 1M; end
//!   `-- the judge makes it           `-- steps of the program, in blocks up to `end`
//! ```

use std::fmt;
use std::str::FromStr;

use largefolio_mm::units::parse_bytes;

use super::changes::SettingStep;
use crate::crosscheck::record::OwnFile;

const BLOCKS: [&str; 3] = ["fork", "hold", "thread"];
const END: &str = "end";

/// The first words of the other steps. The program ignores any other word.
const STEPS: &str = "advise bind close copy copyrange detach drain fadvise fallocate fdatasync \
    fread fsync fwrite go heap info limit lock lockall map memfd merge msync open pipe policy pread \
    preadv protect pwrite pwritev read readahead readv remap rename seek sendfile set spawn splice \
    stack syncrange sysv thp truncate unlink unlock unlockall unmap vmread write writev";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// On the disk before the program starts.
    pub files: Vec<OwnFile>,
    /// Huge pages of 2 MiB in the pool.
    pub nr_huge: u64,
    pub steps: Vec<String>,
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for step in text.split(';').map(str::trim).filter(|step| !step.is_empty()) {
            let words: Vec<&str> = step.split_whitespace().collect();
            match words[..] {
                ["file", name, bytes] => {
                    let bytes = parse_bytes(bytes).ok_or_else(|| format!("{step}: not a size"))?;
                    script.files.push(OwnFile { name: name.to_owned(), bytes });
                }
                ["pool", nr] => {
                    script.nr_huge = nr.parse().map_err(|error| format!("{step}: {error}"))?;
                }
                ["set", ..] if !SettingStep::of(step).is_some_and(|set| set.is_known()) => {
                    return Err(format!(
                        "{step}: expected a setting of folio sizes, as in set \
                         hugepages-64kB/shmem_enabled always"
                    ));
                }
                [word, ..] if is_step(word) => script.steps.push(words.join(" ")),
                _ => return Err(format!("{step}: not a step (crates/lab/scripts.toml)")),
            }
        }
        if script.steps.is_empty() || !is_balanced(&script.steps) {
            return Err("expected steps, and an `end` for every fork, hold and thread".to_owned());
        }
        if sets_while_held(&script.steps) {
            return Err("`set` between `hold` and its `end`: its time is unknown".to_owned());
        }
        Ok(script)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            write!(f, "file {} {}; ", file.name, file.bytes)?;
        }
        if self.nr_huge > 0 {
            write!(f, "pool {}; ", self.nr_huge)?;
        }
        f.write_str(&self.text())
    }
}

impl Script {
    /// The steps as the program takes them.
    #[must_use]
    pub fn text(&self) -> String {
        self.steps.join("; ")
    }

    /// The settings of transparent huge pages that the program changes.
    #[must_use]
    pub fn changed_settings(&self) -> Vec<SettingStep> {
        self.steps.iter().filter_map(|step| SettingStep::of(step)).collect()
    }

    /// Whether files and settings are after a run as before it, so that another run can follow.
    pub(super) fn keeps_files(&self) -> bool {
        let keeps = |step: &String| match step.split(' ').collect::<Vec<_>>()[..] {
            ["open", _, _, flags] => !flags.contains(['w', 'c', 't']),
            ["unlink" | "rename" | "set", ..] => false,
            _ => true,
        };
        self.steps.iter().all(keeps)
    }

    fn with(&self, steps: Vec<String>) -> Option<Self> {
        let files = self.files.iter().filter(|file| {
            let is_named = |step: &String| step.split(' ').any(|word| word == file.name);
            steps.iter().any(is_named)
        });
        let files = files.cloned().collect();
        let nr = |word: &str| steps.iter().filter(|step| *step == word).count();
        let is_script = !steps.is_empty() && is_balanced(&steps) && nr("hold") == nr("go");
        is_script.then_some(Self { files, nr_huge: self.nr_huge, steps })
    }
}

fn is_step(word: &str) -> bool {
    BLOCKS.contains(&word) || word == END || STEPS.split_whitespace().any(|step| step == word)
}

fn is_balanced(steps: &[String]) -> bool {
    let mut depth = 0_usize;
    for step in steps {
        if BLOCKS.contains(&step.as_str()) {
            depth += 1;
        } else if step == END {
            let Some(less) = depth.checked_sub(1) else { return false };
            depth = less;
        }
    }
    depth == 0
}

/// Whether a process that waits for `go` changes a setting. All other steps run in their order.
fn sets_while_held(steps: &[String]) -> bool {
    let held = (0..steps.len()).filter(|&at| steps[at] == "hold");
    let mut blocks = held.filter_map(|at| Some(&steps[at..end_of(steps, at)?]));
    blocks.any(|block| block.iter().any(|step| SettingStep::of(step).is_some()))
}

/// The position of the `end` of the block that begins at `at`.
fn end_of(steps: &[String], at: usize) -> Option<usize> {
    (at + 1..steps.len()).find(|&end| is_balanced(&steps[at..=end]))
}

/// Leaves out steps as long as `differs` holds, with at most `nr_trials` calls of it.
///
/// # Errors
/// As `differs`.
pub fn reduce<E>(
    script: &Script,
    nr_trials: usize,
    mut differs: impl FnMut(&Script) -> Result<bool, E>,
) -> Result<Script, E> {
    let (mut best, mut nr_left) = (script.clone(), nr_trials);
    let mut is_shorter = true;
    while is_shorter && nr_left > 0 {
        is_shorter = false;
        for candidate in candidates(&best) {
            if nr_left == 0 {
                break;
            }
            nr_left -= 1;
            if differs(&candidate)? {
                best = candidate;
                is_shorter = true;
                break;
            }
        }
    }
    Ok(best)
}

/// Shorter scripts, the shortest first: without a range of steps, or without a block around steps.
fn candidates(script: &Script) -> Vec<Script> {
    let steps = &script.steps;
    let mut found: Vec<Script> = Vec::new();
    let mut len = steps.len() / 2;
    while len > 0 {
        for start in (0..steps.len()).step_by(len) {
            let end = (start + len).min(steps.len());
            let rest = [&steps[..start], &steps[end..]].concat();
            found.extend(script.with(rest));
        }
        len /= 2;
    }
    for start in 0..steps.len() {
        if !BLOCKS.contains(&steps[start].as_str()) {
            continue;
        }
        if let Some(end) = end_of(steps, start) {
            let mut after = steps[end + 1..].to_vec();
            if steps[start] == "hold"
                && let Some(go) = after.iter().position(|step| step == "go")
            {
                after.remove(go);
            }
            found.extend(script.with([&steps[..start], &after].concat()));
            found.extend(script.with([&steps[..start], &steps[start + 1..end], &after].concat()));
        }
    }
    found.retain(|one| one.steps.len() < steps.len());
    found.sort_by_key(|one| one.steps.len());
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_text_again() {
        let text = "file d 4M; pool 3; open 0 d r; fork;  read 0 0 1M ; end";
        let script: Script = text.parse().unwrap();
        assert_eq!(script.files, [OwnFile { name: "d".to_owned(), bytes: 4 << 20 }]);
        assert_eq!(script.text(), "open 0 d r; fork; read 0 0 1M; end");
        assert_eq!(script.to_string().parse::<Script>().unwrap(), script);
        for wrong in [
            "",
            "fork",
            "end",
            "end; fork",
            "file d x; read 0 0 1",
            "pool; pool x",
            "raed 0 0 1M",
            "set ../a always",
            "set enabled",
        ] {
            assert!(wrong.parse::<Script>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_that_only_reads_keeps_its_files() {
        let keeps = |text: &str| text.parse::<Script>().unwrap().keeps_files();
        assert!(keeps(
            "file d 4M; open 0 d rd; map 0 4M r shared file 0 0; memfd 1 m; truncate 1 4K"
        ));
        assert!(!keeps("open 0 d rw"));
        assert!(!keeps("open 0 d r; unlink d"));
    }

    #[test]
    fn reduction_keeps_what_differs_and_blocks_whole() {
        let text = "file d 1M; file e 1M; thp 0; open 0 d r; hold; stack 1; thread; spawn; thp 1; \
                    end; end; close 0; unlockall; go";
        let script: Script = text.parse().unwrap();
        let mut nr_trials = 0;
        let mut differs = |script: &Script| {
            nr_trials += 1;
            assert!(is_balanced(&script.steps), "{script}");
            let has = |step: &str| script.steps.iter().any(|one| one == step);
            Ok::<_, ()>(has("thp 1") && has("unlockall"))
        };
        let least = reduce(&script, 200, &mut differs).unwrap();
        assert_eq!(least.steps, ["thp 1", "unlockall"]);
        assert_eq!(least.files, []);
        assert!(nr_trials <= 200);
        // Without trials, nothing is shorter.
        assert_eq!(reduce(&script, 0, |_| Ok::<_, ()>(true)).unwrap(), script);
    }
}
