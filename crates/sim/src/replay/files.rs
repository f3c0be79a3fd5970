//! The trace's files in the modelled kernel.

use std::ops::{Index, IndexMut};

use largefolio_mm::units::MappingId;
use largefolio_trace::FileId;

#[derive(Clone, Copy, Debug)]
pub(super) struct TraceFile {
    pub(super) mapping: MappingId,
    /// Current size according to the trace. References past the end use nothing.
    pub(super) size_bytes: u64,
    /// A device has no page cache; its mappings are anonymous memory here.
    pub(super) is_device: bool,
    /// Whether the file has a build id: a linker placed its segments.
    pub(super) is_elf: bool,
    /// Folio size that the loader requests before it reads the file.
    pub(super) preferred_bytes: Option<u64>,
    /// Folio size that the loader collapses executable mappings to.
    pub(super) collapse_bytes: Option<u64>,
}

/// The files by their number in the trace. The trace reader has checked the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceFiles(Vec<TraceFile>);

impl TraceFiles {
    pub(super) fn push(&mut self, file: TraceFile) {
        self.0.push(file);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn mappings(&self) -> Vec<MappingId> {
        self.0.iter().map(|file| file.mapping).collect()
    }
}

impl Index<FileId> for TraceFiles {
    type Output = TraceFile;

    fn index(&self, file: FileId) -> &TraceFile {
        &self.0[file as usize]
    }
}

impl IndexMut<FileId> for TraceFiles {
    fn index_mut(&mut self, file: FileId) -> &mut TraceFile {
        &mut self.0[file as usize]
    }
}
