//! Rejects impossible values of rules.

use largefolio_mm::rules::anon::{ProgramThp, SizeMode, ThpDisable};
use largefolio_mm::rules::collapse::SLEEP_MS_MAX;
use largefolio_mm::rules::shmem::ShmemSizeMode;
use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::rules::zswap::ZswapRules;
use largefolio_mm::rules::{Exec, Rules, StartOrder};

use crate::size::parse_bytes;

/// Checks `Rules` I1 and I2, and `AnonRules` I1 and I2.
pub(super) fn check(rules: &Rules) -> Result<(), String> {
    let around = rules.fault_around_bytes;
    if !around.is_power_of_two() {
        return Err(format!("fault_around_bytes = {around}: expected a power of two"));
    }
    let min = rules.min_folio_bytes;
    if min != 0 && !min.is_power_of_two() {
        return Err(format!("min_folio_bytes = {min}: expected 0 or a power of two"));
    }
    for (name, bytes) in
        [("exec", exec_bytes(rules.fault.exec)), ("start_order", start_bytes(rules))]
    {
        if bytes.is_some_and(|bytes| !bytes.is_power_of_two()) {
            return Err(format!("fault.{name}: expected a power of two in bytes"));
        }
    }
    for (name, bytes) in [
        ("exec_min_bytes", rules.order.exec_min_bytes),
        ("mmap_state_bytes", rules.order.mmap_state_bytes),
    ] {
        if bytes != 0 && !bytes.is_power_of_two() {
            return Err(format!("order.{name} = {bytes}: expected 0 or a power of two"));
        }
    }
    check_zswap(&rules.zswap)?;
    if rules.anon.program == ProgramThp::Advised && rules.anon.thp_disable == ThpDisable::All {
        return Err(
            "off or inherit: before Linux 6.18, a program cannot limit its large folios to \
                    advised memory (anon.thp_disable = all)"
                .to_owned(),
        );
    }
    for kib in rules.anon.size_kib.keys() {
        let bytes =
            parse_bytes(&format!("{kib}K")).filter(|bytes| (bytes >> 10).to_string() == *kib);
        if bytes.and_then(|bytes| rules.anon.clone().set_size(bytes, SizeMode::Never)).is_none() {
            return Err(format!(
                "anon.size_kib.{kib}: expected a power of two in KiB, at least 16, and sizes = \
                 \"per-size\""
            ));
        }
    }
    check_shmem_sizes(rules)?;
    for (name, percent) in [
        ("dirty_background_ratio", rules.reclaim.dirty_background_ratio),
        ("compaction_proactiveness", rules.reclaim.compaction_proactiveness),
    ] {
        if percent > 100 {
            return Err(format!("reclaim.{name} = {percent}: expected 0 to 100"));
        }
    }
    for (name, ms) in [
        ("scan_sleep_ms", rules.collapse.scan_sleep_ms),
        ("alloc_sleep_ms", rules.collapse.alloc_sleep_ms),
    ] {
        if ms > SLEEP_MS_MAX {
            return Err(format!("collapse.{name} = {ms}: expected at most {SLEEP_MS_MAX}"));
        }
    }
    let limit_bytes = 1_u64 << 40;
    let of_all = [("readahead_bytes", rules.readahead_bytes), ("io_bytes", rules.io_bytes)];
    let of_disks = rules.disks.values().flat_map(|own| {
        let all = [("readahead_bytes", own.readahead_bytes), ("io_bytes", own.io_bytes)];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    });
    for (name, value) in of_all.into_iter().chain(of_disks) {
        if value > limit_bytes {
            return Err(format!("{name} = {value}: expected at most {}", size_name(limit_bytes)));
        }
    }
    Ok(())
}

fn check_zswap(zswap: &ZswapRules) -> Result<(), String> {
    for (name, percent) in [
        ("max_pool_percent", zswap.max_pool_percent),
        ("accept_threshold_percent", zswap.accept_threshold_percent),
        ("incompressible_percent", zswap.incompressible_percent),
    ] {
        if percent > 100 {
            return Err(format!("zswap.{name} = {percent}: expected at most 100"));
        }
    }
    if zswap.ratio_percent < 100 {
        let ratio = zswap.ratio_percent;
        return Err(format!(
            "zswap.ratio_percent = {ratio}: expected at least 100, no compression"
        ));
    }
    Ok(())
}

/// Checks `ShmemRules` I1 and I2.
fn check_shmem_sizes(rules: &Rules) -> Result<(), String> {
    for kib in rules.shmem.size_kib.keys() {
        let bytes =
            parse_bytes(&format!("{kib}K")).filter(|bytes| (bytes >> 10).to_string() == *kib);
        let mut shmem = rules.shmem.clone();
        if bytes.and_then(|bytes| shmem.set_size(bytes, ShmemSizeMode::Never)).is_none() {
            return Err(format!(
                "shmem.size_kib.{kib}: expected a power of two in KiB, at least 8, and sizes = \
                 \"per-size\""
            ));
        }
    }
    Ok(())
}

const fn exec_bytes(exec: Exec) -> Option<u64> {
    match exec {
        Exec::Block { bytes } | Exec::Window { bytes } => Some(bytes),
        Exec::None | Exec::ArchWindow => None,
    }
}

const fn start_bytes(rules: &Rules) -> Option<u64> {
    match rules.fault.start_order {
        StartOrder::Size { bytes } => Some(bytes),
        StartOrder::Ramp => None,
    }
}
