//! Opens for writing, and runs of programs.

/// Opens for writing and runs, and what they did to page caches. All are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounters {
    /// Opens for writing that succeeded.
    pub nr_opens: u64,
    /// Opens for writing that were refused because a process runs the file (`ETXTBSY`).
    pub nr_text_busy: u64,
    /// Runs that were refused because the file is open for writing (`ETXTBSY` of execve).
    pub nr_open_for_write: u64,
    /// Opens for writing that dropped the file's page cache, huge folios and all (H.3.3).
    pub nr_drops: u64,
    /// Pages that they dropped.
    pub nr_dropped_pages: u64,
}
