//! `folio predict --list`: the known kernels, machines, edits and filesystems.

use std::collections::BTreeMap;

use anyhow::Result;
use largefolio_sim::kernel::{EDITS, Kernel};
use largefolio_sim::machine::{self, Machine, THIS};
use largefolio_sim::policy::KernelPolicy;
use largefolio_sim::replay::request::filesystems;

use crate::console::Console;
use crate::errors::Exit;

pub(super) fn run(console: &mut Console) -> Result<Exit> {
    let mut text = String::new();
    let kernels = Kernel::names().map(|name| Ok((name.to_owned(), describe_kernel(name)?)));
    add(&mut text, "Kernels (--kernel)", &kernels.collect::<Result<Vec<_>>>()?);
    let edits = EDITS
        .iter()
        .map(|edit| (format!("+{}=..", edit.name), format!("{} ({})", edit.help, edit.value)));
    add(&mut text, "Edits to a kernel (--kernel 7.2+page=64K)", &edits.collect::<Vec<_>>());
    let policies = KernelPolicy::builtin().map(|(name, what)| (name.to_owned(), what.to_owned()));
    add(
        &mut text,
        "Policies (--policy); your own BPF object files are accepted too",
        &policies.collect::<Vec<_>>(),
    );
    let machines =
        machine::names().map(|name| Ok((name.to_owned(), Machine::named(name)?.description)));
    let mut machines = machines.collect::<Result<Vec<_>>>()?;
    machines.push((THIS.to_owned(), "the machine that folio calibrate measured".to_owned()));
    add(&mut text, "Machines (--machine)", &machines);
    text.push_str("Filesystems (--fs)\n  ");
    text.push_str(&filesystems().into_iter().collect::<Vec<_>>().join(", "));
    text.push('\n');
    console.deliver(text.as_bytes(), None)?;
    Ok(Exit::Done)
}

fn describe_kernel(name: &str) -> Result<String> {
    let mut text = Kernel::parse(name)?.description;
    let packages = Kernel::packages(name)?;
    let mut by_summary = BTreeMap::<String, Vec<&str>>::new();
    for (flavour, package) in &packages {
        by_summary.entry(package.summary()).or_default().push(flavour);
    }
    for (summary, flavours) in &by_summary {
        let whose = if by_summary.len() == 1 { "packages".to_owned() } else { flavours.join(", ") };
        text = format!("{text}; {whose}: {summary}");
    }
    Ok(text)
}

fn add(text: &mut String, title: &str, entries: &[(String, String)]) {
    let width = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = entries.iter().map(|(name, help)| format!("  {name:width$}  {help}\n"));
    text.push_str(title);
    text.push('\n');
    text.extend(lines);
    text.push('\n');
}
