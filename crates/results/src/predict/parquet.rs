//! A prediction as Parquet: the data frame of [`crate::predict::table`] in one file.
//!
//! The file has one row group, compressed with zstd if that pays. Its key-value metadata
//! (`largefolio.*`) contains the data that all rows share: versions, settings, trace and command
//! line; the last four are JSON.

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::predict::table::TableError;
use crate::predict::{PredictResult, table};

/// Files with fewer rows are not compressed: each column would be its own tiny zstd frame, and
/// setting up zstd takes longer than all the rest.
const COMPRESSED_ROWS_MIN: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("cannot write the result as Parquet: {0}")]
    Parquet(#[from] ParquetError),
}

/// # Errors
/// If a number does not fit in the data frame, or the library refuses it.
pub fn file(report: &PredictResult) -> Result<Vec<u8>, FileError> {
    let batch = table::batch(&report.trace, &report.settings, &report.rows)?;
    let batch = table::with_command_line(batch, &report.command_line)?;
    Ok(file_of(&batch)?)
}

/// Writes `batch` as a Parquet file. The same batch always produces the same bytes.
///
/// # Errors
/// If the library refuses the batch.
pub fn file_of(batch: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    file_of_all(std::slice::from_ref(batch))
}

pub(crate) fn file_of_all(batches: &[RecordBatch]) -> Result<Vec<u8>, ParquetError> {
    let schema = batches.first().map_or_else(table::schema, RecordBatch::schema);
    let mut common: Vec<_> = schema.metadata().iter().collect();
    common.sort();
    let common = common.into_iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let nr_rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let compression = match nr_rows {
        ..COMPRESSED_ROWS_MIN => Compression::UNCOMPRESSED,
        _ => Compression::ZSTD(ZstdLevel::default()),
    };
    let properties = WriterProperties::builder()
        .set_compression(compression)
        // The file has only as many rows as there are cells: a page index would not help.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_key_value_metadata(Some(common.collect()))
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema, Some(properties))?;
    for batch in batches {
        writer.write(batch)?;
    }
    writer.close()?;
    Ok(file)
}
