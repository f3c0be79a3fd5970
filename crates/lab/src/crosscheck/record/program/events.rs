//! The traced events: those of one filesystem, and the page faults of one program.
//!
//! Configures the [`Instance`].

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;

use super::super::error::CrosscheckError;
use super::super::tracefs;
use largefolio_linux::fault_probe::FaultProbe;
use largefolio_linux::tracefs::Instance;

/// The ring buffer of the only CPU that runs the program. A fault with its events takes about 200
/// bytes: a million fit.
const BUFFER_KB: u32 = 256 << 10;

/// File events, in the bit order of `events=` (`probe/trace.h`).
const FILE_EVENTS: [&str; 9] = [
    "filemap/mm_filemap_add_to_page_cache",
    "filemap/mm_filemap_delete_from_page_cache",
    "filemap/mm_filemap_fault",
    "filemap/mm_filemap_map_pages",
    "filemap/mm_filemap_get_pages",
    "readahead/page_cache_ra_order",
    "readahead/page_cache_ra_unbounded",
    "readahead/page_cache_sync_ra",
    "readahead/page_cache_async_ra",
];
/// Required: without these, events or their order are missing.
const NEEDED: [&str; 2] = ["filemap/mm_filemap_add_to_page_cache", "filemap/mm_filemap_fault"];
/// A filter must be shorter than a page. For very many threads the filter is `0`, which passes all
/// faults; other programs' faults are skipped later.
const FILTER_BYTES_MAX: usize = 4000;
const FAULTS: [&str; 2] = ["exceptions/page_fault_user", "exceptions/page_fault_kernel"];

/// Returns the fault events. Only x86-64 has them with addresses; elsewhere sets a probe.
fn faults(instance: &Instance) -> Result<(Vec<String>, Option<FaultProbe>), CrosscheckError> {
    if FAULTS.iter().all(|event| instance.has(event)) {
        return Ok((FAULTS.map(str::to_owned).to_vec(), None));
    }
    let probe = FaultProbe::new().map_err(CrosscheckError::NoFaultAddresses)?;
    Ok((vec![probe.event()], Some(probe)))
}

#[derive(Debug)]
pub(crate) struct Events {
    // Declared before the probe, so it is dropped first: an enabled event cannot be removed.
    instance: Instance,
    faults: Vec<String>,
    _probe: Option<FaultProbe>,
    /// Bit n: the kernel has event n.
    pub(crate) known: u64,
}

impl Events {
    /// Makes a new instance. The shell that will remove it must start now: later it would see the
    /// copies of the program's files instead of its own, and read them into the page cache.
    pub(crate) fn new() -> Result<Self, CrosscheckError> {
        let instance = tracefs::instance()?;
        let (faults, probe) = faults(&instance)?;
        Ok(Self { instance, faults, _probe: probe, known: 0 })
    }

    pub(crate) fn prepare(&mut self, device: u64, cpu: usize) -> Result<(), CrosscheckError> {
        let s_dev = u64::from(libc::major(device)) << 20 | u64::from(libc::minor(device));
        self.set("tracing_on", "0")?;
        // Opening it for writing empties the buffer, whatever is written.
        self.set("trace", "0")?;
        self.set("options/overwrite", "0")?;
        self.set(&format!("per_cpu/cpu{cpu}/buffer_size_kb"), &BUFFER_KB.to_string())?;
        self.known = 0;
        for (nr, event) in FILE_EVENTS.iter().enumerate() {
            if self.enable(event, s_dev) {
                self.known |= 1 << nr;
            } else if NEEDED.contains(event) {
                return Err(CrosscheckError::NoEvent(event));
            }
        }
        Ok(())
    }

    fn enable(&self, event: &str, s_dev: u64) -> bool {
        let set = |name: &str, value: &str| self.set(&format!("events/{event}/{name}"), value);
        self.instance.has(event)
            && set("filter", &format!("s_dev=={s_dev}")).is_ok()
            && set("enable", "1").is_ok()
    }

    fn set(&self, name: &str, value: &str) -> Result<(), CrosscheckError> {
        self.instance.set(name, value).map_err(CrosscheckError::os("set up tracing"))
    }

    pub(crate) fn marker(&self) -> Result<File, CrosscheckError> {
        OpenOptions::new()
            .write(true)
            .open(self.instance.path().join("trace_marker"))
            .map_err(CrosscheckError::os("open trace_marker"))
    }

    /// Traces the faults of these threads. File events are always traced, because of reclaim.
    pub(crate) fn follow(&self, tids: &BTreeSet<i32>) -> io::Result<()> {
        let filter: Vec<String> = tids.iter().map(|tid| format!("common_pid=={tid}")).collect();
        let filter = Some(filter.join("||")).filter(|filter| filter.len() < FILTER_BYTES_MAX);
        let filter = filter.unwrap_or_else(|| "0".to_owned());
        for event in &self.faults {
            let path = self.instance.path().join("events").join(event);
            fs::write(path.join("filter"), &filter)?;
            fs::write(path.join("enable"), "1")?;
        }
        fs::write(self.instance.path().join("tracing_on"), "1")
    }

    pub(crate) fn stop(&self) -> Result<String, CrosscheckError> {
        self.set("tracing_on", "0")?;
        let lost = self.instance.nr_lost();
        if lost > 0 {
            return Err(CrosscheckError::EventsLost(lost));
        }
        fs::read_to_string(self.instance.path().join("trace"))
            .map_err(CrosscheckError::os("read the trace"))
    }
}
