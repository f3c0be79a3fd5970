//! What the trace's footer says about this machine.

use std::fs;

/// Release of the running kernel, empty when unknown.
pub(crate) fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

/// Model of the processor, empty when unknown.
pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':'));
    model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}
