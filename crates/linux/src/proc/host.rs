//! What the trace's footer says about this machine.

use std::fs;

/// Version of the running kernel, empty when unknown. What a builder appended to it (`-amd64`,
/// `-custom`) names a machine, and no rule goes by it.
pub(crate) fn kernel_release() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    upstream(&release).to_owned()
}

/// `6.18.44` of `6.18.44-custom`.
fn upstream(release: &str) -> &str {
    let release = release.trim();
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    release[..end].trim_end_matches('.')
}

/// Model of the processor, empty when unknown.
pub(crate) fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.and_then(|rest| rest.split_once(':'));
    model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::upstream;

    #[test]
    fn a_builders_suffix_is_left_out() {
        for (release, kept) in [
            ("6.18.44-custom\n", "6.18.44"),
            ("6.12.57+deb13-amd64", "6.12.57"),
            ("7.2.0-rc1", "7.2.0"),
            ("7.2", "7.2"),
            ("", ""),
            ("x", ""),
        ] {
            assert_eq!(upstream(release), kept, "{release}");
        }
    }
}
