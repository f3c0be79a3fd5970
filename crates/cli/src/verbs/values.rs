//! Values of options, and options that several verbs have.

use clap::Args;
use largefolio_sim::size::parse_bytes;

/// `64K`, `16G`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected bytes, such as 4096, 64K, 2M or 16G".to_owned())
}

/// The size of a folio: base pages of 4 KiB times a power of two.
pub(crate) fn folio_size(text: &str) -> Result<u64, String> {
    parse_bytes(text)
        .filter(|&bytes| bytes.is_power_of_two() && (4 << 10..=1 << 30).contains(&bytes))
        .ok_or_else(|| "expected a power of two from 4K to 1G, such as 64K or 2M".to_owned())
}

/// Physical memory, at most 4 TiB: the model keeps nine bytes of state a page, and a larger zone
/// may not be had from the host.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    const GIB_MAX: u64 = 1 << 12;
    parse_bytes(text)
        .filter(|&bytes| bytes <= GIB_MAX << 30)
        .ok_or_else(|| format!("expected bytes, such as 512M or 16G, and at most {GIB_MAX}G"))
}

/// Swap space: none, or as much as there can be memory.
pub(crate) fn swap(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { memory(text) }
}

/// In which form a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
    Csv,
}

/// The options that choose the form.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct FormArgs {
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Write CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl FormArgs {
    pub(crate) fn form(self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (false, true) => Form::Csv,
            (false, false) => Form::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folio_is_a_power_of_two_of_base_pages() {
        assert_eq!(folio_size("64K"), Ok(64 << 10));
        for refused in ["3K", "2K", "96K", "4G", "x"] {
            assert!(folio_size(refused).is_err(), "{refused}");
        }
    }
}
