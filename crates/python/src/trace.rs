//! A trace file: its footer, its rows by operation, and its events as Arrow batches.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, Int32Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use arrow_pyarrow::ToPyArrow as _;
use arrow_schema::ArrowError;
use largefolio_trace::{Batch, Info, Op, Reader};
use pyo3::prelude::*;

use crate::errors::{Failure, detached};

#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Trace {
    path: PathBuf,
    nr_rows: u64,
    nr_references: u64,
}

#[pymethods]
impl Trace {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> Result<Self, Failure> {
        let meta = detached(py, || Ok(Reader::open(&path)?.meta().clone()))?;
        Ok(Self { path, nr_rows: meta.nr_rows, nr_references: meta.nr_references })
    }

    #[getter]
    fn nr_rows(&self) -> u64 {
        self.nr_rows
    }

    #[getter]
    fn nr_references(&self) -> u64 {
        self.nr_references
    }

    /// The output of `folio trace info --json`.
    fn info(&self, py: Python<'_>) -> Result<String, Failure> {
        let mut interrupted = None;
        let info = detached(py, || {
            let mut reader = Reader::open(&self.path)?;
            let info = Info::read(&self.path, &mut reader, &mut |_| match Python::attach(|py| {
                py.check_signals()
            }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    interrupted = Some(error);
                    ControlFlow::Break(())
                }
            })?;
            Ok(info)
        })?;
        if let Some(error) = interrupted {
            return Err(Failure::Python(error));
        }
        serde_json::to_string(&info).map_err(|error| Failure::Argument(error.to_string()))
    }

    /// Returns the events from the first, as record batches of at most `batch_rows` rows.
    fn events(&self, py: Python<'_>, batch_rows: usize) -> Result<Events, Failure> {
        let reader = detached(py, || Ok(Reader::open(&self.path)?))?;
        let state = State { reader, current: Batch::default(), at: 0 };
        Ok(Events { state: Mutex::new(state), batch_rows })
    }
}

/// Events in program order, batch by batch.
#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct Events {
    state: Mutex<State>,
    batch_rows: usize,
}

struct State {
    reader: Reader,
    current: Batch,
    /// Rows of `current` already returned.
    at: usize,
}

#[pymethods]
impl Events {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let columns = detached(py, || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.take(self.batch_rows)
        })?;
        if columns.ops.is_empty() {
            return Ok(None);
        }
        let batch = columns.batch().map_err(|error| Failure::Argument(error.to_string()))?;
        Ok(Some(batch.to_pyarrow(py)?))
    }
}

impl State {
    /// Returns the next rows, at most `nr_max`; none at the end.
    fn take(&mut self, nr_max: usize) -> Result<Columns, Failure> {
        let mut columns = Columns::default();
        while columns.ops.len() < nr_max {
            if self.at == self.current.len() {
                self.at = 0;
                if !self.reader.next_batch(&mut self.current)? {
                    break;
                }
            }
            let end = self.current.len().min(self.at + nr_max - columns.ops.len());
            columns.extend(&self.current, self.at, end);
            self.at = end;
        }
        Ok(columns)
    }
}

/// Rows during conversion to Arrow, in the file's columns.
#[derive(Default)]
struct Columns {
    threads: Vec<u32>,
    ops: Vec<i8>,
    addrs: Vec<u64>,
    lens: Vec<u64>,
    positions: Vec<u64>,
    auxes: Vec<u64>,
    flags: Vec<u32>,
    files: Vec<i32>,
}

impl Columns {
    fn extend(&mut self, batch: &Batch, start: usize, end: usize) {
        self.threads.extend(&batch.threads()[start..end]);
        self.ops.extend(batch.ops()[start..end].iter().map(|&op| op.cast_signed()));
        self.addrs.extend(&batch.addrs()[start..end]);
        self.lens.extend(&batch.lens()[start..end]);
        self.positions.extend(&batch.positions()[start..end]);
        self.auxes.extend(&batch.auxes()[start..end]);
        self.flags.extend(&batch.flags()[start..end]);
        self.files.extend(batch.files()[start..end].iter().map(|&file| file.cast_signed()));
    }

    fn batch(self) -> Result<RecordBatch, ArrowError> {
        let names: ArrayRef = Arc::new(StringArray::from_iter_values(Op::ALL.map(Op::name)));
        let ops = DictionaryArray::<Int8Type>::try_new(Int8Array::from(self.ops), names)?;
        let columns: [(&str, ArrayRef); 8] = [
            ("thread", Arc::new(UInt32Array::from(self.threads))),
            ("op", Arc::new(ops)),
            ("addr", Arc::new(UInt64Array::from(self.addrs))),
            ("len", Arc::new(UInt64Array::from(self.lens))),
            ("pos", Arc::new(UInt64Array::from(self.positions))),
            ("aux", Arc::new(UInt64Array::from(self.auxes))),
            ("flags", Arc::new(UInt32Array::from(self.flags))),
            ("file", Arc::new(Int32Array::from(self.files))),
        ];
        RecordBatch::try_from_iter(columns)
    }
}
