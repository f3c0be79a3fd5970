//! The contents of a trace: its metadata, and its rows by operation.
//!
//! Owns the result of `folio trace info` and its JSON (schema version 1). It needs one pass over
//! the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use serde::Serialize;

use crate::event::{FileId, Op, SHARES_MEMORY, ThreadId};
use crate::file::{Batch, Reader, TraceError};
use crate::meta::{Meta, program_file_of};
use crate::validate::NR_THREADS_MAX;

const SCHEMA_VERSION: u32 = 1;

/// Rows of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OpCount {
    /// Number of rows.
    pub nr_rows: u64,
    /// Number of references, if the rows are runs of references.
    pub nr_references: u64,
}

/// The contents of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Info {
    /// Version of the JSON.
    pub schema_version: u32,
    /// Version of folio.
    pub tool_version: &'static str,
    /// The file's name, as given.
    pub path: String,
    /// The file's size in bytes.
    pub file_bytes: u64,
    /// Threads with at least one row.
    pub nr_threads: usize,
    /// Processes started.
    pub nr_processes: u64,
    /// Number of starts by program path.
    pub programs: BTreeMap<String, u64>,
    /// Rows by operation, without operations that have none.
    pub ops: BTreeMap<&'static str, OpCount>,
    /// The footer.
    pub meta: Meta,
}

impl Info {
    /// Reads all rows of `reader`, which was opened at `path`. `progress` receives the rows read so
    /// far and can stop it, which returns `None`.
    ///
    /// # Errors
    /// As [`Reader::next_batch`]; [`TraceError::Corrupt`] for more threads than [`NR_THREADS_MAX`].
    pub fn read(
        path: &Path,
        reader: &mut Reader,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Option<Self>, TraceError> {
        let (mut counts, mut threads) = ([OpCount::default(); Op::ALL.len()], BTreeSet::new());
        let (mut batch, mut last) = (Batch::default(), None);
        let mut started = Started::first(reader.meta());
        while reader.next_batch(&mut batch)? {
            count(&batch, &mut counts, &mut threads, &mut last);
            // Checked for each batch, because a row can name any thread.
            if threads.len() > NR_THREADS_MAX {
                return Err(too_many_threads(path));
            }
            started.count(&batch);
            if progress(reader.nr_read()).is_break() {
                return Ok(None);
            }
        }
        let ops = Op::ALL.into_iter().zip(counts).filter(|(_, count)| count.nr_rows > 0);
        Ok(Some(Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            path: path.to_string_lossy().into_owned(),
            file_bytes: reader.file_bytes(),
            nr_threads: threads.len(),
            nr_processes: started.nr_processes,
            programs: started.programs(reader.meta()),
            ops: ops.map(|(op, count)| (op.name(), count)).collect(),
            meta: reader.meta().clone(),
        }))
    }
}

struct Started {
    nr_processes: u64,
    /// Rows per entry of [`Meta::execs`]. Long layouts and paths are read only at the end.
    of_execs: Vec<u64>,
}

impl Started {
    fn first(meta: &Meta) -> Self {
        Self { nr_processes: 1, of_execs: vec![0; meta.execs.len()] }
    }

    fn count(&mut self, batch: &Batch) {
        let is_start = |op: u8| op == Op::Fork as u8 || op == Op::Execve as u8;
        for row in (0..batch.len()).filter(|&row| is_start(batch.ops()[row])) {
            let event = batch.event(row);
            if event.op == Op::Fork {
                self.nr_processes += u64::from(event.flags & SHARES_MEMORY == 0);
            } else if let Some(nr) =
                usize::try_from(event.aux).ok().and_then(|exec| self.of_execs.get_mut(exec))
            {
                *nr += 1;
            }
        }
    }

    fn programs(&self, meta: &Meta) -> BTreeMap<String, u64> {
        let mut of_images = vec![0; meta.images.len()];
        for (exec, nr) in meta.execs.iter().zip(&self.of_execs) {
            if let Some(sum) = of_images.get_mut(exec.image as usize) {
                *sum += nr;
            }
        }
        let images = meta.images.iter().map(|image| &image.layout).zip(of_images);
        // Handles each file once, because long paths are slow to compare.
        let mut of_files: BTreeMap<FileId, u64> = BTreeMap::new();
        for (layout, nr) in images.chain([(&meta.layout, 1)]).filter(|&(_, nr)| nr > 0) {
            if let Some(file) = program_file_of(layout) {
                *of_files.entry(file).or_default() += nr;
            }
        }
        let mut programs: BTreeMap<String, u64> = BTreeMap::new();
        for (file, nr) in of_files {
            if let Some(file) = meta.files.get(file as usize) {
                *programs.entry(file.path.clone()).or_default() += nr;
            }
        }
        programs
    }
}

fn too_many_threads(path: &Path) -> TraceError {
    let what = format!("its rows name more than {NR_THREADS_MAX} threads");
    TraceError::Corrupt { path: path.to_owned(), what }
}

fn count(
    batch: &Batch,
    counts: &mut [OpCount; Op::ALL.len()],
    threads: &mut BTreeSet<ThreadId>,
    last: &mut Option<ThreadId>,
) {
    for ((&op, &len), &thread) in batch.ops().iter().zip(batch.lens()).zip(batch.threads()) {
        let count = &mut counts[usize::from(op)];
        count.nr_rows += 1;
        if Op::from_number(op).is_some_and(Op::is_reference) {
            count.nr_references += len;
        }
        if *last != Some(thread) {
            threads.insert(thread);
            *last = Some(thread);
        }
    }
}
