//! Finds the footer, compares it with the limits, decodes it and checks it.
//!
//! Owns all checks before the first row is read. Invariants:
//! - I1: there are at most [`NR_GROUPS_MAX`] row groups of at most [`GROUP_ROWS_MAX`] rows each.
//! - I2: column chunks follow each other in the file without gaps, so no byte is decoded twice. The
//!   number of rows limits their lengths, and the gap before the footer is limited too. So the
//!   declared rows bound the time to read a file, even if a sparse file is very long.
//! - I3: the groups have as many rows as the metadata says.

use parquet::basic::Compression;
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader,
    ParquetStatisticsPolicy, RowGroupMetaData,
};
use serde::Deserialize;

use super::error::TraceError;
use super::schema::{
    CHECKSUM_KEY, Column, FOOTER_BYTES_MAX, GROUP_ROWS_MAX, META_KEY, NR_GROUPS_MAX,
};
use super::shape::FOOTER;
use super::source::Source;
use super::thrift::Outline;
use crate::meta::{Meta, SCHEMA_VERSION};
use crate::shown::{brief, printable};
use crate::validate::{META_BYTES_MAX, NR_FILES_MAX};

/// Maximum bytes of a column chunk per row. Pages of eight rows take 20 bytes per row.
const CHUNK_BYTES_PER_ROW_MAX: u64 = 64;
const CHUNK_MORE_BYTES_MAX: u64 = 4096;

/// Maximum bytes between the last row group and the footer, where other writers put a page index.
const GAP_BYTES_MAX: u64 = FOOTER_BYTES_MAX;

pub(super) const MAGIC: &[u8; 4] = b"PAR1";

/// Length of the footer's length field and the magic after it.
pub(super) const TAIL_BYTES: usize = 8;

const SCHEMA: usize = 2;
const ROW_GROUPS: usize = 4;
const KEY_VALUES: usize = 5;
const COLUMN_ORDERS: usize = 7;

/// Maximum lengths of the footer's decoded lists. They leave room for a foreign schema, whose
/// columns an error names. They are small compared with the file, because an element of a few bytes
/// decodes to hundreds.
const LIST_LIMITS: [(usize, u64); 4] =
    [(SCHEMA, 4096), (ROW_GROUPS, NR_GROUPS_MAX as u64), (KEY_VALUES, 256), (COLUMN_ORDERS, 4096)];

#[derive(Clone, Debug)]
pub(super) struct Footer {
    pub(super) meta: Meta,
    pub(super) parquet: ParquetMetaData,
    pub(super) rows_end: u64,
}

impl Footer {
    pub(super) fn value_of(&self, key: &str) -> Option<&str> {
        value_of(&self.parquet, key)
    }

    pub(super) fn json(&self) -> &str {
        self.value_of(META_KEY).unwrap_or_default()
    }
}

pub(super) fn read(source: &Source) -> Result<Footer, TraceError> {
    check_magic(source)?;
    let bytes = footer_bytes(source)?;
    let parquet = decode(source, &bytes)?;
    let tail_bytes = (bytes.len() + TAIL_BYTES) as u64;
    drop(bytes);
    let meta = read_meta(source, &parquet)?;
    let rows_end = check_groups(source, &parquet, &meta)?;
    if source.bytes().saturating_sub(tail_bytes).saturating_sub(rows_end) > GAP_BYTES_MAX {
        return Err(TraceError::corrupt(source.path(), "its footer is too far from its rows"));
    }
    Ok(Footer { meta, parquet, rows_end })
}

fn check_magic(source: &Source) -> Result<(), TraceError> {
    let path = source.path();
    let len = usize::try_from(source.bytes().min(MAGIC.len() as u64)).unwrap_or(0);
    let start = source.read(0, len).map_err(|e| TraceError::io(path, "read", e))?;
    if start != MAGIC {
        return Err(TraceError::not_a_trace(path, describe(&start)));
    }
    Ok(())
}

fn describe(start: &[u8]) -> String {
    match start {
        [] => "an empty file".to_owned(),
        b"\x7fELF" => "an ELF program".to_owned(),
        b"PERF" => "a perf.data file".to_owned(),
        [0x1f, 0x8b, ..] => "a gzip file".to_owned(),
        b"\x28\xb5\x2f\xfd" => "a zstd file".to_owned(),
        _ => format!("a file that starts with {:?}", start.escape_ascii().to_string()),
    }
}

fn footer_bytes(source: &Source) -> Result<Vec<u8>, TraceError> {
    let path = source.path();
    let cut = || TraceError::corrupt(path, "the file ends before its footer");
    let tail_at = source.bytes().checked_sub(TAIL_BYTES as u64).ok_or_else(cut)?;
    let mut tail = [0; TAIL_BYTES];
    source.read_into(tail_at, &mut tail).map_err(|e| TraceError::io(path, "read", e))?;
    let len = len_of(tail).ok_or_else(cut)?;
    if len > FOOTER_BYTES_MAX {
        let what =
            format!("its footer declares {len} bytes, but at most {FOOTER_BYTES_MAX} are read");
        return Err(TraceError::corrupt(path, what));
    }
    let at = tail_at.checked_sub(len).ok_or_else(cut)?;
    let len = usize::try_from(len).map_err(|_| cut())?;
    source.read(at, len).map_err(|e| TraceError::io(path, "read", e))
}

/// Returns the footer's length from a file's last bytes; `None` if it is not Parquet.
pub(super) fn len_of(tail: [u8; TAIL_BYTES]) -> Option<u64> {
    let (len, magic) = tail.split_first_chunk::<4>()?;
    (magic == MAGIC).then(|| u32::from_le_bytes(*len).into())
}

/// Checks a footer before the library decodes it and allocates the declared sizes.
pub(super) fn check(bytes: &[u8]) -> Result<(), &'static str> {
    let outline = Outline::of(bytes, &FOOTER).ok_or("its footer is not a Parquet footer")?;
    if LIST_LIMITS.iter().any(|&(field, limit)| outline.list_len(field) > limit) {
        return Err("its footer lists more entries than such a file can have");
    }
    Ok(())
}

fn decode(source: &Source, bytes: &[u8]) -> Result<ParquetMetaData, TraceError> {
    let path = source.path();
    check(bytes).map_err(|what| TraceError::corrupt(path, what))?;
    let options = ParquetMetaDataOptions::new()
        .with_encoding_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_column_stats_policy(ParquetStatisticsPolicy::SkipAll)
        .with_size_stats_policy(ParquetStatisticsPolicy::SkipAll);
    ParquetMetaDataReader::decode_metadata_with_options(bytes, Some(&options))
        .map_err(|e| TraceError::from_read(path, e))
}

/// Only the schema version, to recognize a newer footer with unknown keys.
#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

fn read_meta(source: &Source, parquet: &ParquetMetaData) -> Result<Meta, TraceError> {
    let path = source.path();
    let json = value_of(parquet, META_KEY)
        .ok_or_else(|| TraceError::not_a_trace(path, describe_parquet(parquet)))?;
    let bad = |what: String| TraceError::corrupt(path, format!("its metadata {what}"));
    if let Some(key) = [META_KEY, CHECKSUM_KEY].into_iter().find(|key| is_twice(parquet, key)) {
        return Err(bad(format!("has `{key}` twice")));
    }
    let nr_objects = json.bytes().filter(|&byte| byte == b'{').count();
    if json.len() > META_BYTES_MAX || nr_objects > 2 * NR_FILES_MAX {
        return Err(bad(format!("takes {} bytes", json.len())));
    }
    let Version { schema_version: found } = serde_json::from_str(json)
        .map_err(|e| bad(format!("has no version: {}", parser_message(&e))))?;
    if found > SCHEMA_VERSION {
        let path = path.to_path_buf();
        return Err(TraceError::NewerSchema { path, found, known: SCHEMA_VERSION });
    }
    let meta: Meta = serde_json::from_str(json)
        .map_err(|e| bad(format!("is unreadable: {}", parser_message(&e))))?;
    meta.validate().map_err(|fault| TraceError::BadMeta { path: path.to_path_buf(), fault })?;
    Ok(meta)
}

fn parser_message(error: &serde_json::Error) -> String {
    brief(&error.to_string())
}

/// Returns whether a key is repeated. This reader would take the first value, others the last.
fn is_twice(parquet: &ParquetMetaData, key: &str) -> bool {
    let pairs = parquet.file_metadata().key_value_metadata();
    pairs.is_some_and(|pairs| pairs.iter().filter(|pair| pair.key == key).count() > 1)
}

fn value_of<'a>(parquet: &'a ParquetMetaData, key: &str) -> Option<&'a str> {
    let pairs = parquet.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
}

fn describe_parquet(parquet: &ParquetMetaData) -> String {
    let schema = parquet.file_metadata().schema_descr();
    let names: Vec<_> =
        schema.columns().iter().take(8).map(|c| printable(&format!("{:.32}", c.name()))).collect();
    format!("a Parquet file with {} columns ({})", schema.num_columns(), names.join(", "))
}

/// Checks the row groups (I1 to I3) and returns the end of the last one.
fn check_groups(
    source: &Source,
    parquet: &ParquetMetaData,
    meta: &Meta,
) -> Result<u64, TraceError> {
    let bad = |what: &str| TraceError::corrupt(source.path(), what);
    if !has_our_columns(parquet) {
        return Err(bad("it does not have the columns of a trace"));
    }
    let mut nr_rows = 0;
    let mut end = MAGIC.len() as u64;
    for group in parquet.row_groups() {
        let of_group =
            group_rows(group).ok_or_else(|| bad("the size of a row group is impossible"))?;
        nr_rows += of_group;
        let bytes_max = of_group * CHUNK_BYTES_PER_ROW_MAX + CHUNK_MORE_BYTES_MAX;
        for chunk in group.columns() {
            end = chunk_end(chunk, end, bytes_max)
                .filter(|&end| end <= source.bytes())
                .ok_or_else(|| bad("a column is not in its expected place"))?;
        }
    }
    if nr_rows != meta.nr_rows {
        return Err(bad(&format!(
            "it contains {nr_rows} rows but should contain {}",
            meta.nr_rows
        )));
    }
    Ok(end)
}

fn has_our_columns(parquet: &ParquetMetaData) -> bool {
    let columns = parquet.file_metadata().schema_descr().columns();
    columns.len() == Column::ALL.len()
        && columns.iter().zip(Column::ALL).all(|(found, ours)| {
            let is_plain = found.max_def_level() == 0 && found.max_rep_level() == 0;
            is_plain && found.name() == ours.name() && found.physical_type() == ours.physical()
        })
}

fn group_rows(group: &RowGroupMetaData) -> Option<u64> {
    let nr_rows = u64::try_from(group.num_rows()).ok()?;
    (1..=GROUP_ROWS_MAX as u64).contains(&nr_rows).then_some(nr_rows)
}

fn chunk_end(chunk: &ColumnChunkMetaData, start: u64, bytes_max: u64) -> Option<u64> {
    let is_known = matches!(chunk.compression(), Compression::ZSTD(_) | Compression::UNCOMPRESSED);
    let first = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let is_there = is_known && u64::try_from(first) == Ok(start);
    let nr_bytes = u64::try_from(chunk.compressed_size()).ok();
    start.checked_add(nr_bytes.filter(|&bytes| is_there && bytes <= bytes_max)?)
}
