//! Which workloads: options that `crosscheck` and its verbs share.

use std::env;

use clap::Args;
use largefolio_linux::crosscheck::{Filesystem, Selection};

use super::super::values;

/// The options that choose workloads.
#[derive(Args, Debug)]
pub(super) struct SelectArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt (no large folios)
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', default_value = "ext4,xfs",
        value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    /// Readahead windows
    #[arg(long = "window", value_name = "SIZE,..", value_delimiter = ',',
        default_value = "128K,512K,2560K,8192K", value_parser = window_kb)]
    windows_kb: Vec<u64>,
    /// Only workloads whose name contains this; with * it stands for the whole name
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
}

impl SelectArgs {
    pub(super) fn selection(&self) -> Selection {
        let mut selection = Selection {
            filesystems: self.filesystems.clone(),
            windows_kb: self.windows_kb.clone(),
            only: self.only.clone(),
        };
        selection.filesystems.sort_unstable();
        selection.filesystems.dedup();
        selection.windows_kb.sort_unstable();
        selection.windows_kb.dedup();
        selection
    }
}

fn filesystem(name: &str) -> Result<Filesystem, String> {
    let known = Filesystem::LIVE.map(Filesystem::name);
    Filesystem::named(name)
        .filter(|one| Filesystem::LIVE.contains(one))
        .ok_or_else(|| format!("known: {}", known.join(", ")))
}

fn window_kb(text: &str) -> Result<u64, String> {
    const KB_MAX: u64 = 1 << 20;
    let bytes = values::size(text)?;
    let kb = Some(bytes >> 10).filter(|&kb| bytes.is_multiple_of(1024) && kb <= KB_MAX);
    kb.ok_or_else(|| "expected a multiple of 1K, at most 1G".to_owned())
}

/// What root should type for the same: sudo may not have this program in its path.
pub(super) fn as_root(command_line: &[String]) -> String {
    let own = env::current_exe().map_or_else(|_| "folio".into(), |path| path.display().to_string());
    let words = command_line.iter().skip(1).map(|word| quoted(word));
    ["sudo".to_owned(), quoted(&own)].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_told_what_a_shell_takes() {
        let words = ["folio", "crosscheck", "--only", "*it's*"].map(str::to_owned);
        let told = as_root(&words);
        assert!(told.starts_with("sudo /") && told.ends_with(r"crosscheck --only '*it'\''s*'"));
    }

    #[test]
    fn windows_are_whole_kib() {
        assert_eq!(window_kb("2560K"), Ok(2560));
        assert_eq!(window_kb("0"), Ok(0));
        assert!(window_kb("1000").is_err() && window_kb("2G").is_err());
    }
}
