//! The result as Parquet: the data frame of [`crate::table`] as one file.
//!
//! One row group, zstd where that pays. What the whole result has in common - versions, settings, trace, command
//! line - stands in the file's key-value metadata (`largefolio.*`, the last four as JSON).

use std::io::Write;

use arrow_array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use crate::{ExportError, Exporter, PredictResult, table};

/// A file with fewer rows is not compressed: each column would have a frame of its own around some
/// bytes, and to set up zstd takes longer than all the rest.
const COMPRESSED_ROWS_MIN: usize = 256;

/// Parquet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parquet;

impl Exporter for Parquet {
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError> {
        let batch = table::batch(&report.trace, &report.settings, &report.rows)?;
        let batch = table::with_command_line(batch, &report.command_line)?;
        Ok(out.write_all(&file_of(&batch)?)?)
    }
}

/// The Parquet file of `batch`. The same batch gives the same bytes.
///
/// # Errors
/// When the library refuses the batch.
pub fn file_of(batch: &RecordBatch) -> Result<Vec<u8>, ParquetError> {
    file_of_all(std::slice::from_ref(batch))
}

/// The file of batches that have the schema of the first.
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
        // A file has as many rows as cells were asked for: an index over their pages finds nothing.
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
