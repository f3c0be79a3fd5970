//! Counts how often files are opened for writing and programs are executed.

/// Opens for writing and executions, and their effect on page caches. All are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounters {
    /// Opens for writing that succeeded.
    pub nr_opens: u64,
    /// Opens for writing refused because a process runs the file (`ETXTBSY`).
    pub nr_text_busy: u64,
    /// Executions refused because the file is open for writing (`ETXTBSY` of execve).
    pub nr_open_for_write: u64,
    /// Opens for writing that dropped the file's page cache, including huge folios (H.3.3).
    pub nr_drops: u64,
    /// Pages dropped by those opens.
    pub nr_dropped_pages: u64,
}
