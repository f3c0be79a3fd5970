//! The kernel that a user names.

use anyhow::Result;
use largefolio_results::Remark;
use largefolio_sim::kernel::Kernel;

use crate::console;

/// The kernel, with a word where it has the rules of another version.
pub(crate) fn named(name: &str) -> Result<Kernel> {
    let kernel = Kernel::parse(name)?;
    console::remark(Remark::of_rules(kernel.note.as_deref()).as_slice());
    Ok(kernel)
}
