//! A service's settings, as its unit and its drop-ins have them.
//!
//! Reads files in systemd's order. Skips folio's own drop-in, because its lines replace each other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_whole;
use largefolio_trace::shown;

use super::place::{ServiceName, UNIT_FOLDERS};
use super::{FilePlace, PersistError};

pub(super) const UNIT_BYTES_MAX: u64 = 1 << 20;
const NR_DROP_INS_MAX: usize = 256;

/// One line of a `[Service]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) file: PathBuf,
    /// Whether systemd reads the file after folio's drop-in.
    pub(super) is_later: bool,
}

/// Returns the lines of all `[Service]` sections in the order in which they apply.
pub(super) fn settings(unit: &ServiceName, root: &Path) -> Vec<Setting> {
    let ours = FilePlace::drop_in(unit.clone()).path(root);
    let is_drop_in = |file: &Path| file.extension() == Some(OsStr::new("conf"));
    let mut all = Vec::new();
    for file in files_of(unit, root).into_iter().filter(|file| *file != ours) {
        let is_later = is_drop_in(&file) && file.file_name() > ours.file_name();
        let text = read_whole(&file, UNIT_BYTES_MAX).unwrap_or_default();
        let mut is_service = false;
        for line in lines(&String::from_utf8_lossy(&text)) {
            if line.starts_with('[') {
                is_service = line == "[Service]";
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_service) else { continue };
            let (key, value) = (key.trim_end().to_owned(), value.trim_start().to_owned());
            all.push(Setting { key, value, file: file.clone(), is_later });
        }
    }
    all
}

/// Refuses a change that `later`, a line of another drop-in, makes ineffective.
pub(super) fn overruled(later: &Setting, ours: &ServiceName, what: &str) -> PersistError {
    let name = FilePlace::drop_in(ours.clone()).path(Path::new("/"));
    PersistError::File {
        path: later.file.clone(),
        message: format!(
            "it sets {what}, and systemd reads it after {}, so this change would have no effect; \
             change it there, or rename that file so that it sorts first",
            shown(name.file_name().unwrap_or_default())
        ),
    }
}

/// Joins lines that end with an odd number of backslashes to the next one. Comments between them
/// do not count, and a comment is never continued.
fn lines(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let mut whole = open.take().unwrap_or_default() + line.trim_start();
        let nr_backslashes = whole.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if nr_backslashes % 2 == 1 {
            whole.truncate(whole.len() - 1);
            open = Some(whole + " ");
        } else {
            all.push(whole.trim().to_owned());
        }
    }
    all.extend(open.map(|line| line.trim().to_owned()));
    all
}

/// Returns the unit, then its drop-ins by name. A file in an earlier folder hides files of the same
/// name. Drop-ins of a template, of a name's beginning (`a-.service.d`) and of all services apply.
fn files_of(unit: &ServiceName, root: &Path) -> Vec<PathBuf> {
    let folders = || UNIT_FOLDERS.iter().map(|folder| root.join(folder));
    let units = unit.names().flat_map(|name| folders().map(move |folder| folder.join(&name)));
    let mut files: Vec<PathBuf> = units.filter(|file| file.is_file()).take(1).collect();
    let mut drop_ins: BTreeMap<OsString, PathBuf> = BTreeMap::new();
    let of_unit = folders().flat_map(|folder| {
        unit.drop_in_names().into_iter().map(move |name| folder.join(format!("{name}.d")))
    });
    for folder in of_unit.chain(folders().map(|folder| folder.join("service.d"))) {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten().take(NR_DROP_INS_MAX) {
            let path = entry.path();
            if path.extension() == Some(OsStr::new("conf")) {
                drop_ins.entry(entry.file_name()).or_insert(path);
            }
        }
    }
    files.extend(drop_ins.into_values());
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(files: &[(&str, &str)], unit: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("[Service]\n{text}\n")).unwrap();
        }
        let unit = ServiceName::of_service(unit, root.path()).unwrap();
        settings(&unit, root.path()).into_iter().map(|one| one.value).collect()
    }

    #[test]
    fn comments_do_not_end_a_continued_line() {
        for (text, expected) in [
            ("A=/bin/db \\\n  # the port\n  --port 80", &["A=/bin/db  --port 80"][..]),
            ("A=1 \\\n; x \\\n2\nB=3", &["A=1  2", "B=3"]),
            ("# A=1 \\\nB=2", &["B=2"]),
            ("A=1\\\\\nB=2", &["A=1\\\\", "B=2"]),
            ("A=1 \\\r\n2", &["A=1  2"]),
            ("A=1 \\\n\nB=2", &["A=1", "B=2"]),
            ("A=1 \\", &["A=1"]),
        ] {
            let lines: Vec<String> = lines(text).into_iter().filter(|l| !l.is_empty()).collect();
            assert_eq!(lines, expected, "{text:?}");
        }
    }

    #[test]
    fn drop_ins_of_all_services_of_a_prefix_and_of_set_property_apply() {
        let files = [
            ("usr/lib/systemd/system/a-b.service", "X=unit"),
            ("etc/systemd/system/service.d/30-x.conf", "X=all"),
            ("etc/systemd/system/a-.service.d/20-x.conf", "X=prefix"),
            ("etc/systemd/system.control/a-b.service.d/60-x.conf", "X=control"),
            ("etc/systemd/system/a-b.service.d/60-x.conf", "X=hidden"),
            ("etc/systemd/system/a-c-.service.d/10-x.conf", "X=other"),
        ];
        assert_eq!(commands(&files, "a-b"), ["unit", "prefix", "all", "control"]);
    }

    #[test]
    fn a_template_s_drop_in_applies_below_that_of_an_instance() {
        let files = [
            ("usr/lib/systemd/system/w@.service", "X=unit"),
            ("etc/systemd/system/w@.service.d/50-largefolio.conf", "X=template"),
            ("etc/systemd/system/w@1.service.d/51-largefolio.conf", "X=instance"),
        ];
        assert_eq!(commands(&files, "w@"), ["unit"]);
        assert_eq!(commands(&files, "w@1"), ["unit", "template"]);
        assert_eq!(commands(&files, "w@2"), ["unit", "template"]);
    }
}
