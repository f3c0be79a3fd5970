//! Arguments that name kernels, machines or policies, with shell completion.
//!
//! Owns the names that completion offers. Lookup decides what a name means: an argument can also be
//! a file or contain edits, so any string is accepted here.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{Error, ErrorKind};
use clap::{Arg, Command};
use largefolio_results::running;
use largefolio_sim::kernel::{Kernel, version};
use largefolio_sim::machine::{self, THIS};
use largefolio_sim::policy::KernelPolicy;

/// Accepts any string, and completes names.
#[derive(Clone, Copy)]
pub struct NameParser(fn() -> Vec<&'static str>);

/// A kernel, a file, or either with edits. Completion omits the self-built kernels that made
/// recordings.
pub const KERNEL: NameParser = NameParser(|| {
    Kernel::names().filter(|name| version(name).is_some()).chain([running::THIS]).collect()
});

pub(crate) const POLICY: NameParser =
    NameParser(|| KernelPolicy::builtin().map(|(name, _)| name).collect());

pub(crate) const MACHINE: NameParser = NameParser(|| machine::names().chain([THIS]).collect());

impl TypedValueParser for NameParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        if value.is_empty() {
            let text =
                "a name is empty; separate names by commas without spaces, such as 6.12,7.2\n";
            return Err(Error::raw(ErrorKind::InvalidValue, text).with_cmd(command));
        }
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
