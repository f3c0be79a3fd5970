//! The files of a trace as the modelled kernel has them.

use std::ops::{Index, IndexMut};

use largefolio_mm::units::MappingId;
use largefolio_trace::FileId;

/// A file of the trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceFile {
    /// Its page cache.
    pub(super) mapping: MappingId,
    /// Its length as the trace has it so far; a reference beyond it uses nothing.
    pub(super) size_bytes: u64,
    /// A device: it has no page cache, and a mapping of one is anonymous memory here.
    pub(super) is_device: bool,
    /// An image with a build id, whose segments a linker laid out.
    pub(super) is_elf: bool,
    /// Folio size that the loader asks for before the file is read.
    pub(super) preferred_bytes: Option<u64>,
    /// Folio size that it collapses executable mappings to.
    pub(super) collapse_bytes: Option<u64>,
}

/// The files by their number in the trace, which the reader of the trace has checked.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceFiles(Vec<TraceFile>);

impl TraceFiles {
    /// Adds the next file.
    pub(super) fn push(&mut self, file: TraceFile) {
        self.0.push(file);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The page cache of each.
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
