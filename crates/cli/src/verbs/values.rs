//! Values of options, and options that several verbs have.

use clap::Args;
use largefolio_sim::size::parse_bytes;

/// `64K`, `16G`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected bytes, such as 4096, 64K, 2M or 16G".to_owned())
}

/// Physical memory, at most 4 TiB: the model keeps nine bytes of state a page, and a larger zone may
/// not be had from the host.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    const GIB_MAX: u64 = 1 << 12;
    parse_bytes(text)
        .filter(|&bytes| bytes <= GIB_MAX << 30)
        .ok_or_else(|| format!("expected bytes, such as 512M or 16G, and at most {GIB_MAX}G"))
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
