//! Where events go.

use largefolio_trace::{Event, TraceError, Writer};

/// Takes the events of a recording in order: the trace writer, or a vector in a test.
pub(crate) trait EventSink {
    /// Takes events.
    ///
    /// # Errors
    /// Whatever the destination meets; the recording ends then.
    fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError>;

    /// Bytes written so far.
    fn bytes_written(&self) -> u64;
}

impl EventSink for Writer {
    fn push_rows(&mut self, events: &[Event]) -> Result<(), TraceError> {
        Self::push_rows(self, events)
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

    fn bytes_written(&self) -> u64 {
        0
    }
}
