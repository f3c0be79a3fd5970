//! A part: rows of cells, as Parquet.
//!
//! The bytes come from workers and from the disk. After reading, a part has the columns of this
//! version of folio and an identity in every row. Columns newer than the part are empty.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, new_null_array};
use arrow_schema::FieldRef;
use bytes::Bytes;
use largefolio_sim::sweep::CellId;
use largefolio_trace::file::ForeignParquet;
use largefolio_trace::shown::brief;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use crate::predict::parquet::file_of_all;
use crate::predict::table;

const TRACE_DIGEST: &str = "trace_digest";

/// Maximum number of rows of a part: several times as many as a merge produces.
const NR_ROWS_MAX: i64 = 1 << 18;
/// Maximum bytes of a part, as a file and as rows in memory: several times the largest merged
/// part.
pub(super) const BYTES_MAX: u64 = 1 << 28;
const BATCH_ROWS: usize = 1024;

#[derive(Debug)]
pub(super) struct Part {
    bytes: Bytes,
    batches: Vec<RecordBatch>,
    cells: Vec<CellId>,
    nr_bytes: u64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPart {
    #[error("its columns are from another version of folio")]
    OtherColumns,
    #[error("{0}")]
    Damaged(String),
}

impl Part {
    /// Reads a whole part. If the library panics on damaged bytes, returns an error.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, NoPart> {
        let damaged = |why: String| NoPart::Damaged(format!("it cannot be read: {}", brief(&why)));
        if bytes.len() as u64 > BYTES_MAX {
            return Err(damaged(format!("it has more than {BYTES_MAX} bytes")));
        }
        let bytes = Bytes::from(bytes);
        let read = catch_unwind(AssertUnwindSafe(|| batches(bytes.clone())));
        let batches = match read {
            Ok(Ok(batches)) => batches,
            Ok(Err(error)) => return Err(damaged(error.to_string())),
            Err(_) => return Err(damaged("the Parquet library panicked".to_owned())),
        };
        let batches: Option<Vec<_>> = batches.iter().map(widened).collect();
        let batches = batches.ok_or(NoPart::OtherColumns)?;
        let mut cells = Vec::new();
        for batch in &batches {
            for cell in texts(batch, table::CELL) {
                let cell = CellId::try_from(cell.to_owned());
                cells.push(cell.map_err(|error| NoPart::Damaged(brief(&error.to_string())))?);
            }
        }
        let mut sorted = cells.clone();
        sorted.sort();
        if let Some([twice, ..]) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(NoPart::Damaged(format!("it contains cell {twice} twice")));
        }
        let of_rows = batches.iter().map(|batch| batch.get_array_memory_size() as u64);
        let nr_bytes = of_rows.fold(bytes.len() as u64, u64::saturating_add);
        Ok(Self { bytes, batches, cells, nr_bytes })
    }

    pub(super) fn cells(&self) -> &[CellId] {
        &self.cells
    }

    pub(super) const fn nr_bytes(&self) -> u64 {
        self.nr_bytes
    }

    pub(super) fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    pub(super) fn is_of(&self, digest: &str) -> bool {
        self.batches.iter().all(|batch| texts(batch, TRACE_DIGEST).all(|known| known == digest))
    }

    pub(super) fn without(&self, drops: &dyn Fn(&CellId) -> bool) -> Result<Bytes, ParquetError> {
        if !self.cells.iter().any(drops) {
            return Ok(self.bytes.clone());
        }
        let mut cells = self.cells.iter();
        let mut kept = Vec::new();
        for batch in &self.batches {
            for (row, cell) in (0..batch.num_rows()).zip(cells.by_ref()) {
                if !drops(cell) {
                    kept.push(batch.slice(row, 1));
                }
            }
        }
        Ok(file_of_all(&kept)?.into())
    }
}

fn batches(bytes: Bytes) -> Result<Vec<RecordBatch>, ParquetError> {
    let mut file = ForeignParquet::new(bytes);
    let metadata = Arc::new(file.metadata()?);
    let nr_rows = metadata.file_metadata().num_rows();
    let declared = declared_bytes(&metadata);
    if !(0..=NR_ROWS_MAX).contains(&nr_rows) || declared > BYTES_MAX {
        let what = format!("it declares {nr_rows} rows and {declared} bytes");
        return Err(ParquetError::General(what));
    }
    file.allow(declared);
    let metadata = ArrowReaderMetadata::try_new(metadata, ArrowReaderOptions::default())?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    let schema = builder.schema().clone();
    // A single value can be as long as all pages together.
    let nr_rows = usize::try_from(BYTES_MAX / declared.max(1)).unwrap_or(usize::MAX);
    let reader = builder.with_batch_size(nr_rows.clamp(1, BATCH_ROWS)).build()?;
    let (mut batches, mut nr_bytes) = (Vec::new(), 0_u64);
    for batch in reader {
        let batch = batch?;
        nr_bytes = nr_bytes.saturating_add(batch.get_array_memory_size() as u64);
        if nr_bytes > BYTES_MAX {
            return Err(ParquetError::General(format!("it has more than {BYTES_MAX} bytes")));
        }
        batches.push(batch);
    }
    if batches.is_empty() {
        batches.push(RecordBatch::new_empty(schema));
    }
    Ok(batches)
}

fn declared_bytes(metadata: &ParquetMetaData) -> u64 {
    let columns = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns);
    let bytes = columns.map(|column| u64::try_from(column.uncompressed_size()).unwrap_or(u64::MAX));
    bytes.fold(0, u64::saturating_add)
}

/// Adds the columns that came after the part was written, as null. `None` if another column is
/// missing, or if one is unknown.
fn widened(batch: &RecordBatch) -> Option<RecordBatch> {
    let expected = table::schema();
    let own = batch.schema();
    if own.fields() == expected.fields() {
        return Some(batch.clone());
    }
    let is_known = |field: &FieldRef| expected.fields().find(field.name()).is_some();
    if !own.fields().iter().all(is_known) {
        return None;
    }
    let columns = expected.fields().iter().map(|field| match own.fields().find(field.name()) {
        Some((at, held_field)) if held_field == field => Some(batch.column(at).clone()),
        None if field.is_nullable() => Some(new_null_array(field.data_type(), batch.num_rows())),
        Some(_) | None => None,
    });
    let columns = columns.collect::<Option<Vec<_>>>()?;
    let schema = expected.as_ref().clone().with_metadata(own.metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns).ok()
}

fn texts<'a>(batch: &'a RecordBatch, column: &str) -> impl Iterator<Item = &'a str> {
    let texts = batch.column_by_name(column).and_then(|column| column.as_string_opt::<i32>());
    let nr_rows = texts.map_or(0, Array::len);
    let text =
        move |row| texts.filter(|texts| texts.is_valid(row)).map_or("", |texts| texts.value(row));
    (0..nr_rows).map(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_part_are_not_copied() {
        let empty = RecordBatch::new_empty(table::schema());
        let bytes = file_of_all(&[empty]).unwrap();
        let place = bytes.as_ptr();
        let part = Part::read(bytes).unwrap();
        assert_eq!(part.without(&|_| false).unwrap().as_ptr(), place);
        assert_eq!(part.into_bytes().as_ptr(), place);
    }
}
