//! The destination for events.

use largefolio_trace::{Event, Run, ThreadId, TraceError, Writer};

/// Receives a recording's events in order: the trace writer, or a vector in a test.
pub(crate) trait EventSink {
    /// Writes events.
    ///
    /// # Errors
    /// Any error of the destination. The recording then ends.
    fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError>;

    /// Writes runs of references of `thread`.
    ///
    /// # Errors
    /// See [`EventSink::push_rows`].
    fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) -> Result<(), TraceError>;

    fn bytes_written(&self) -> u64;
}

impl EventSink for Writer {
    fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError> {
        Self::push_rows(self, events)
    }

    fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) -> Result<(), TraceError> {
        Self::push_runs(self, thread, runs)
    }

    fn bytes_written(&self) -> u64 {
        Self::bytes_written(self)
    }
}

impl EventSink for Vec<Event> {
    fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError> {
        self.extend_from_slice(events);
        Ok(())
    }

    fn push_runs(&mut self, thread: ThreadId, runs: &[Run]) -> Result<(), TraceError> {
        self.extend(runs.iter().map(|run| run.event(thread)));
        Ok(())
    }

    fn bytes_written(&self) -> u64 {
        0
    }
}
