//! The columns of a trace and the types that store them.
//!
//! Owns the Parquet schema (version 1), the file's properties, and the limits for readers.
//!
//! | column | type | holds |
//! |---|---|---|
//! | thread | `UINT_32` | thread |
//! | op | `STRING` | name of the op, from a dictionary |
//! | addr len pos aux | `UINT_64` | numbers of the event table |
//! | flags | `UINT_32` | flags |
//! | file | `INT_32` | row of the file table, -1 for none |
//!
//! `op` is a string because people group and filter by it. The reader converts the dictionary of 20
//! names to numbers once per row group, so rows decode as fast as integers. `file` is -1 instead of
//! null, so no column is nullable: data frames keep integers, and rows have no levels to decode.

use std::sync::Arc;

use parquet::basic::{ConvertedType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::{Type, TypePtr};

/// Key of the footer's key-value metadata that stores [`Meta`](crate::Meta) as JSON.
pub const META_KEY: &str = "largefolio";

/// Key of the checksum: `LEN DATA META`. `LEN` is the number of bytes from the start of the file to
/// the end of the last row group. `DATA` is the CRC-32 of these bytes, `META` the CRC-32 of the
/// metadata (the JSON, then the row groups' layout), both in hexadecimal.
pub const CHECKSUM_KEY: &str = "largefolio.checksum";

/// Rows of a batch and of a page. They are equal, so a batch needs one page per column.
pub const BATCH_ROWS: usize = 1 << 16;

/// Rows per row group of the writer. 512 Ki waiting rows take 8 MB plus their dictionaries.
pub(super) const GROUP_ROWS: usize = 1 << 19;

/// Maximum rows of a row group in a reader, 8 times the writer's.
pub(super) const GROUP_ROWS_MAX: usize = 1 << 22;

/// At [`GROUP_ROWS`] this is 17 billion rows, and the decoded footer stays under 200 MB.
pub(super) const NR_GROUPS_MAX: usize = 1 << 15;

/// Maximum bytes of the footer: [`NR_GROUPS_MAX`] groups of about 700 bytes, and the metadata.
pub(super) const FOOTER_BYTES_MAX: u64 = 64 << 20;

/// Maximum decoded bytes of a page. The writer's largest is 1 MiB (a full dictionary).
pub(super) const PAGE_BYTES_MAX: u64 = 8 << 20;

/// Maximum bytes of a page header. The writer's take about 30.
pub(super) const PAGE_HEADER_BYTES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Thread,
    Op,
    Addr,
    Len,
    Pos,
    Aux,
    Flags,
    File,
}

impl Column {
    pub(super) const ALL: [Self; 8] = [
        Self::Thread,
        Self::Op,
        Self::Addr,
        Self::Len,
        Self::Pos,
        Self::Aux,
        Self::Flags,
        Self::File,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Op => "op",
            Self::Addr => "addr",
            Self::Len => "len",
            Self::Pos => "pos",
            Self::Aux => "aux",
            Self::Flags => "flags",
            Self::File => "file",
        }
    }

    pub(super) const fn physical(self) -> Physical {
        match self {
            Self::Op => Physical::BYTE_ARRAY,
            Self::Addr | Self::Len | Self::Pos | Self::Aux => Physical::INT64,
            Self::Thread | Self::Flags | Self::File => Physical::INT32,
        }
    }

    pub(super) const fn value_bytes(self) -> usize {
        match self {
            Self::Op => 1,
            Self::Addr | Self::Len | Self::Pos | Self::Aux => 8,
            Self::Thread | Self::Flags | Self::File => 4,
        }
    }

    pub(super) fn bad(self, what: &str) -> ParquetError {
        ParquetError::General(format!("column {} {what}", self.name()))
    }

    const fn converted(self) -> ConvertedType {
        match self {
            Self::Thread | Self::Flags => ConvertedType::UINT_32,
            Self::Op => ConvertedType::UTF8,
            Self::Addr | Self::Len | Self::Pos | Self::Aux => ConvertedType::UINT_64,
            Self::File => ConvertedType::INT_32,
        }
    }
}

pub(super) fn stored_schema() -> Result<TypePtr, ParquetError> {
    let columns = Column::ALL.map(|column| field(column, column.physical(), column.converted()));
    group(columns)
}

fn field(
    column: Column,
    physical: Physical,
    converted: ConvertedType,
) -> Result<Type, ParquetError> {
    Type::primitive_type_builder(column.name(), physical)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(converted)
        .build()
}

fn group(columns: [Result<Type, ParquetError>; 8]) -> Result<TypePtr, ParquetError> {
    let fields = columns.into_iter().map(|column| column.map(Arc::new));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(Type::group_type_builder("event").with_fields(fields).build()?))
}

/// Returns the file's properties. [`super::encode`] owns the encodings.
pub(super) fn write_properties() -> WriterProperties {
    WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_created_by(format!("largefolio {}", env!("CARGO_PKG_VERSION")))
        .build()
}
