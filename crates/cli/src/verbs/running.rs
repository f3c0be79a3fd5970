//! The kernel and the machine that a user names, or does not name.

use anyhow::Result;
use largefolio_results::{Remark, running};
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;

use crate::console;

/// The kernel, with a word where it has the rules of another version.
pub(crate) fn named(name: &str) -> Result<Kernel> {
    let kernel = running::named(name)?;
    console::remark(Remark::of_rules(kernel.note.as_deref()).as_slice());
    Ok(kernel)
}

/// The machines that were named, and walks as they make them; this machine where none was.
pub(crate) fn machines(names: &[String]) -> Result<(Vec<Machine>, Walks)> {
    if names.is_empty() {
        let host = running::machine()?;
        console::remark(host.remark.as_slice());
        return Ok((vec![host.machine], host.walks));
    }
    let machines = names.iter().map(|name| Machine::of_user(name)).collect::<Result<_, _>>()?;
    Ok((machines, Walks::Native))
}
