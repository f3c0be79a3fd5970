//! Reader of kernel recordings (`recordings/README.md` has the format).

#![expect(clippy::expect_used, reason = "a recording is test data: a bad one fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One recorded workload.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// `VARIANT/FILE`.
    pub name: String,
    /// `key=value` pairs of the first line.
    pub header: Vec<(String, String)>,
    /// What the program did, each with what the kernel did.
    pub steps: Vec<Step>,
    /// Pages present at the end; `None` = exactly the touched ones.
    pub present: Option<BTreeSet<u64>>,
}

/// One touch or read call and the kernel's answer.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// What the program did.
    pub action: Action,
    /// Insertions, in order: index and order.
    pub insertions: Vec<(u64, u8)>,
    /// State at each cold fault.
    pub cold: Vec<State>,
    /// Handler hits.
    pub hits: Vec<Hit>,
}

/// What the program did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Touched this page.
    Touch(u64),
    /// Called `read(2)` at this page and byte offset.
    Read(u64, u64),
    /// Nothing yet.
    #[default]
    Start,
}

/// Readahead state the kernel printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// First index of the last window.
    pub start: u64,
    /// Pages in it.
    pub size: u64,
    /// Pages in its tail.
    pub async_size: u64,
    /// Miss counter.
    pub mmap_miss: u32,
}

/// A hit in the fault handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Page.
    pub index: u64,
    /// The folio carried the marker.
    pub is_marked: bool,
    /// Its I/O was in flight.
    pub is_locked: bool,
    /// State before the decrement.
    pub state: State,
}

impl Recording {
    /// A header value.
    ///
    /// # Panics
    /// When the recording has no such key.
    #[must_use]
    pub fn get(&self, key: &str) -> &str {
        let found = self.header.iter().find(|(name, _)| name == key);
        found.map_or_else(|| panic!("{}: no {key} in the header", self.name), |(_, value)| value)
    }

    /// A numeric header value.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn number(&self, key: &str) -> u64 {
        let value = self.get(key);
        value.parse().unwrap_or_else(|_| panic!("{}: {key}={value}", self.name))
    }

    /// Parses one file.
    ///
    /// # Panics
    /// On a line that is not of the format: a recording is test data.
    #[must_use]
    pub fn parse(name: &str, text: &str) -> Self {
        let mut recording = Self { name: name.to_owned(), ..Self::default() };
        let mut present = BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words.as_slice() {
                ["#", pairs @ ..] => {
                    let pair = |pair: &&str| {
                        pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))
                    };
                    recording.header.extend(pairs.iter().filter_map(pair));
                }
                ["T", index] => recording.start(Action::Touch(number(index))),
                ["B", index, offset] => {
                    recording.start(Action::Read(number(index), number(offset)));
                }
                ["P", "=", "T"] => recording.present = None,
                ["P", range] => {
                    let (first, last) = range.split_once("..").unwrap_or((range, range));
                    present.extend(number(first)..=number(last));
                    recording.present = Some(BTreeSet::new());
                }
                _ => recording.kernel_line(&words),
            }
        }
        if recording.present.is_some() {
            recording.present = Some(present);
        }
        recording
    }

    fn start(&mut self, action: Action) {
        self.steps.push(Step { action, ..Step::default() });
    }

    /// A line that tells what the kernel did.
    fn kernel_line(&mut self, words: &[&str]) {
        let Some(step) = self.steps.last_mut() else { return };
        let here = match step.action {
            Action::Touch(index) | Action::Read(index, _) => index,
            Action::Start => 0,
        };
        let at = |word: &str| if word == "." { here } else { number(word) };
        match words {
            ["A", index, order, rest @ ..] => {
                let times = rest.first().map_or(1, |times| number(&times[1..]));
                let order: u8 = order.parse().expect("an order");
                for nr in 0..times {
                    step.insertions.push((at(index) + (nr << order), order));
                }
            }
            ["R", "msync", _, _, _, start, size, async_size, miss, ..] => {
                step.cold.push(state(at(start), [size, async_size, miss]));
            }
            ["R", "masync", index, _, bits, start, size, async_size, miss, ..] => {
                let bits = number(bits);
                let state = state(at(start), [size, async_size, miss]);
                let (is_marked, is_locked) = (bits & 1 != 0, bits & 2 != 0);
                step.hits.push(Hit { index: at(index), is_marked, is_locked, state });
            }
            _ => {}
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is not a number"))
}

fn state(start: u64, [size, async_size, miss]: [&str; 3]) -> State {
    let mmap_miss = miss.parse().expect("a miss counter");
    State { start, size: number(size), async_size: number(async_size), mmap_miss }
}

/// Every recording below `dir`: `*.tar.xz` archives, and folders of `.txt` files.
///
/// # Panics
/// When the folder cannot be read or an archive cannot be unpacked.
#[must_use]
pub fn read_all(dir: &Path, scratch: &Path) -> Vec<Recording> {
    let mut folders = Vec::new();
    for path in sorted(dir) {
        if path.is_dir() {
            folders.push(path);
        } else if path.to_string_lossy().ends_with(".tar.xz") {
            let status = Command::new("tar").arg("-xJf").arg(&path).arg("-C").arg(scratch).status();
            let is_unpacked = status.is_ok_and(|status| status.success());
            assert!(is_unpacked, "{} was not unpacked: is xz-utils installed?", path.display());
        }
    }
    folders.extend(sorted(scratch).into_iter().filter(|path| path.is_dir()));
    folders.iter().flat_map(|folder| read_folder(folder)).collect()
}

fn read_folder(folder: &Path) -> Vec<Recording> {
    let variant = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_text = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "txt");
    sorted(folder)
        .into_iter()
        .filter(is_text)
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable recording");
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            Recording::parse(&format!("{variant}/{file}"), &text)
        })
        .collect()
}

fn sorted(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder entry").path()).collect();
    paths.sort();
    paths
}
