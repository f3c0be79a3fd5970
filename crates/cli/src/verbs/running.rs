//! The kernels and machines that a user names, and the defaults.

use std::path::PathBuf;

use anyhow::Result;
use largefolio_results::running::This;
use largefolio_results::{Remark, running};
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;

use crate::console;

/// Returns the named kernels, each with `edits`, or the default kernels. Those with this system's
/// settings share one reading of them, and of the devices that `traces` name.
pub fn all_with(names: &[String], edits: &str, traces: &[PathBuf]) -> Result<Vec<Kernel>> {
    let this = This::of_traces(traces);
    let own = if names.is_empty() { this.default_names()? } else { Vec::new() };
    let mut kernels = Vec::new();
    for name in names.iter().chain(&own) {
        let kernel = this.named(&format!("{name}{edits}"))?;
        console::remark(Remark::of_rules(kernel.note.as_deref()).as_slice());
        kernels.push(kernel);
    }
    console::remark(this.remark().cloned().as_slice());
    Ok(kernels)
}

pub(crate) fn machines(names: &[String]) -> Result<(Vec<Machine>, Walks)> {
    if names.is_empty() {
        let host = running::machine()?;
        console::remark(host.remark.as_slice());
        return Ok((vec![host.machine], host.walks));
    }
    let machines = names.iter().map(|name| Machine::of_user(name)).collect::<Result<_, _>>()?;
    Ok((machines, Walks::Native))
}
