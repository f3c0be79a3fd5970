//! The eight columns of one row group, decoded side by side into a batch.
//!
//! Owns the decoders and their scratch memory. Does not own the checks of values, which follow on
//! the whole batch.

use std::sync::Arc;

use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::SchemaDescriptor;

use super::batch::Batch;
use super::pages::Pages;
use super::schema::Column;
use super::source::Source;

type Narrow = ColumnReaderImpl<Int32Type>;
type Wide = ColumnReaderImpl<Int64Type>;

/// Decoders of a row group.
pub(super) struct Columns {
    thread: Narrow,
    op: Narrow,
    addr: Wide,
    len: Wide,
    pos: Wide,
    aux: Wide,
    flags: Narrow,
    file: Narrow,
}

/// Memory between decoder and batch, reused.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    narrow: Vec<i32>,
    wide: Vec<i64>,
}

impl Columns {
    /// Decoders for `group` of `source`; `decoded` is the schema they decode to.
    pub(super) fn new(
        source: &Arc<Source>,
        group: &RowGroupMetaData,
        decoded: &SchemaDescriptor,
    ) -> Result<Self, ParquetError> {
        let open = Opener { source, group, decoded };
        Ok(Self {
            thread: open.column(Column::Thread)?,
            op: open.column(Column::Op)?,
            addr: open.column(Column::Addr)?,
            len: open.column(Column::Len)?,
            pos: open.column(Column::Pos)?,
            aux: open.column(Column::Aux)?,
            flags: open.column(Column::Flags)?,
            file: open.column(Column::File)?,
        })
    }

    /// Decodes the next `nr_rows` rows into the empty `batch`.
    ///
    /// An op number that no op has, or that does not fit a byte, becomes 255.
    pub(super) fn decode(
        &mut self,
        nr_rows: usize,
        batch: &mut Batch,
        scratch: &mut Scratch,
    ) -> Result<(), ParquetError> {
        let Scratch { narrow, wide } = scratch;
        take(&mut self.thread, nr_rows, narrow)?;
        batch.threads.extend(narrow.iter().map(|&value| value.cast_unsigned()));
        take(&mut self.op, nr_rows, narrow)?;
        batch.ops.extend(narrow.iter().map(|&value| u8::try_from(value).unwrap_or(u8::MAX)));
        take(&mut self.flags, nr_rows, narrow)?;
        batch.flags.extend(narrow.iter().map(|&value| value.cast_unsigned()));
        take(&mut self.file, nr_rows, narrow)?;
        batch.files.extend(narrow.iter().map(|&value| value.cast_unsigned()));
        for (column, target) in [
            (&mut self.addr, &mut batch.addrs),
            (&mut self.len, &mut batch.lens),
            (&mut self.pos, &mut batch.positions),
            (&mut self.aux, &mut batch.auxes),
        ] {
            take(column, nr_rows, wide)?;
            target.extend(wide.iter().map(|&value| value.cast_unsigned()));
        }
        Ok(())
    }
}

/// What opening a column needs.
struct Opener<'a> {
    source: &'a Arc<Source>,
    group: &'a RowGroupMetaData,
    decoded: &'a SchemaDescriptor,
}

impl Opener<'_> {
    fn column<T: DataType>(&self, column: Column) -> Result<ColumnReaderImpl<T>, ParquetError> {
        let nr_rows = usize::try_from(self.group.num_rows())?;
        let chunk = self.group.column(column as usize);
        let pages = SerializedPageReader::new(Arc::clone(self.source), chunk, nr_rows, None)?;
        let pages: Box<dyn PageReader> = Box::new(Pages::new(pages, column, nr_rows));
        Ok(ColumnReaderImpl::new(self.decoded.column(column as usize), pages))
    }
}

/// Replaces `values` by the column's next `nr_rows`; fewer is an error.
fn take<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    nr_rows: usize,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    values.clear();
    let (nr_read, ..) = column.read_records(nr_rows, None, None, values)?;
    if nr_read == nr_rows && values.len() == nr_rows {
        return Ok(());
    }
    Err(ParquetError::General(format!("a column ends {} rows early", nr_rows - nr_read)))
}
