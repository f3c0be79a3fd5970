//! Tests damaged and hostile files: they produce an error or legal rows, never a panic, an endless
//! loop or unbounded memory use.
//!
//! The seeds are three encodings of one trace: the writer's, and two without compression, because
//! zstd would catch most damage before the decoders see it. The checksum is not verified, because
//! it would catch nearly all damage, and an attacker can recompute it. Each round applies a few
//! random mutations. The rounds run in a child process with a limited address space, so an
//! unchecked size in a file ends the child.
//!
//! `LARGEFOLIO_FUZZ_ROUNDS=1000000` fuzzes for longer, `LARGEFOLIO_FUZZ_SEED` selects another seed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::common::{rows_of, write};
use bytes::Bytes;
use largefolio_testkit::parquet::with_hidden_fields;
use largefolio_trace::generate::Rng;
use largefolio_trace::validate::NR_REFERENCES_MAX;
use largefolio_trace::{Event, Meta, Op, Reader, TraceError, Writer};
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Address space of the child, in KiB: the reader's limits (512 MiB) and the test binary.
const CHILD_KIB: u64 = 640 << 10;

/// Takes two seconds.
const NR_ROUNDS: u64 = 20_000;

const SCHEMA: &str = "message event { required int32 thread (uint_32);
    required binary op (utf8); required int64 addr (uint_64); required int64 len (uint_64);
    required int64 pos (uint_64); required int64 aux (uint_64); required int32 flags (uint_32);
    required int32 file; }";

fn read(path: &Path) -> Result<Vec<Event>, TraceError> {
    rows_of(Reader::open_unverified(path)?)
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn rows() -> Vec<Event> {
    let mut rng = Rng::new(7);
    let run = |i: u32| {
        let op = Op::ALL[rng.below(3) as usize];
        Event::references(i % 2, op, rng.below(40) << 12, 1 + rng.below(30))
    };
    let mut rows: Vec<_> = (0..300).map(run).collect();
    rows[8] = Event { flags: 3, ..Event::references(0, Op::Read, 4096, 1) };
    rows[9] = Event { pos: 3, file: Some(4), ..Event::new(0, Op::Open) };
    rows
}

/// Writes the rows and metadata of the trace `path` to an uncompressed file.
fn plain_twin(path: &Path, properties: WriterProperties) -> Vec<u8> {
    with_meta(path, properties, Reader::open_unverified(path).unwrap().meta())
}

fn with_meta(path: &Path, properties: WriterProperties, meta: &Meta) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties.into()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    write_columns(&mut group, &read(path).unwrap());
    group.close().unwrap();
    let json = serde_json::to_string(meta).unwrap();
    writer.append_key_value_metadata(KeyValue::new("largefolio".to_owned(), json));
    writer.into_inner().unwrap()
}

fn write_columns(group: &mut SerializedRowGroupWriter<'_, Vec<u8>>, rows: &[Event]) {
    let file_of = |row: &Event| row.file.map_or(-1, u32::cast_signed);
    narrow(group, rows, |row| row.thread.cast_signed());
    let names: Vec<_> = rows.iter().map(|row| ByteArray::from(row.op.name())).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    wide(group, rows, |row| row.addr.cast_signed());
    wide(group, rows, |row| row.len.cast_signed());
    wide(group, rows, |row| row.pos.cast_signed());
    wide(group, rows, |row| row.aux.cast_signed());
    narrow(group, rows, |row| row.flags.cast_signed());
    narrow(group, rows, file_of);
}

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

fn narrow(group: &mut Group<'_>, rows: &[Event], value: impl Fn(&Event) -> i32) {
    let values: Vec<_> = rows.iter().map(value).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
}

fn wide(group: &mut Group<'_>, rows: &[Event], value: impl Fn(&Event) -> i64) {
    let values: Vec<_> = rows.iter().map(value).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
}

fn seeds(dir: &Path) -> Vec<Vec<u8>> {
    let path = dir.join("seed.folio");
    write(&path, &rows());
    let plain = || WriterProperties::builder().set_compression(Compression::UNCOMPRESSED);
    let dictionary = plain().build();
    let mut delta = plain()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED);
    delta = delta.set_column_encoding("op".into(), Encoding::PLAIN);
    let twins = [dictionary, delta.build()].map(|properties| plain_twin(&path, properties));
    std::iter::once(fs::read(&path).unwrap()).chain(twins).collect()
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        let len = bytes.len() as u64;
        let footer = if rng.below(2) == 0 { len / 2 } else { 0 };
        let at = (footer + rng.below(len - footer)) as usize;
        let end = (at + rng.below(12) as usize).min(bytes.len());
        match rng.below(8) {
            0 | 1 => bytes[at] ^= 1 << rng.below(8),
            2 => bytes[at] = rng.next() as u8,
            3 => bytes[at..end].fill(0xff),
            4 => bytes[at..end].fill(rng.next() as u8 | 0x80),
            5 => drop(bytes.drain(at..end)),
            6 => splice(bytes, at, rng),
            _ if rng.below(8) == 0 => bytes.truncate(at.max(1)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
}

fn splice(bytes: &mut [u8], to: usize, rng: &mut Rng) {
    let from = rng.below(bytes.len() as u64) as usize;
    let len = (rng.below(64) as usize).min(bytes.len() - from.max(to));
    bytes.copy_within(from..from + len, to);
}

#[test]
fn the_plain_twins_are_traces() {
    let dir = tempfile::tempdir().unwrap();
    for seed in seeds(dir.path()) {
        let path = dir.path().join("t.folio");
        fs::write(&path, seed).unwrap();
        assert_eq!(read(&path).unwrap(), rows());
    }
}

fn with_gap(bytes: &[u8], gap: u16) -> Vec<u8> {
    let mut reader = ParquetMetaDataReader::new();
    reader.try_parse(&Bytes::copy_from_slice(bytes)).unwrap();
    let metadata = reader.finish().unwrap();
    let group = metadata.row_group(0).clone();
    let mut chunks = group.columns().to_vec();
    let last = chunks.pop().unwrap();
    let (start, len) = last.byte_range();
    let moved = |at: i64| at + i64::from(gap);
    let dictionary = last.dictionary_page_offset().map(moved);
    let data = moved(last.data_page_offset());
    let last = last.into_builder().set_dictionary_page_offset(dictionary);
    chunks.push(last.set_data_page_offset(data).build().unwrap());
    let group = group.into_builder().set_column_metadata(chunks).build().unwrap();
    let metadata = metadata.into_builder().set_row_groups(vec![group]).build();
    let (start, end) = (start as usize, (start + len) as usize);
    let mut gapped = [&bytes[..start], &vec![0; gap.into()], &bytes[start..end]].concat();
    ParquetMetaDataWriter::new(&mut gapped, &metadata).finish().unwrap();
    gapped
}

#[test]
fn a_gap_between_columns_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    write(&path, &rows());
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, with_gap(&bytes, 0)).unwrap();
    assert_eq!(read(&path).unwrap(), rows());
    fs::write(&path, with_gap(&bytes, 8)).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("is not in its expected place"), "{error}");
}

#[test]
fn the_footer_counts_the_references_of_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    write(&path, &rows());
    let meta = Reader::open_unverified(&path).unwrap().meta().clone();
    let lie = dir.path().join("lie.folio");
    let refused = |nr_references| {
        let meta = Meta { nr_references, ..meta.clone() };
        fs::write(&lie, with_meta(&path, WriterProperties::default(), &meta)).unwrap();
        read(&lie).unwrap_err().to_string()
    };
    let stated = meta.nr_references;
    let more = refused(stated - 1);
    assert!(more.contains("more references than the"), "{more}");
    let fewer = refused(stated + 1);
    assert!(fewer.contains("fewer references than the"), "{fewer}");
    let absurd = refused(NR_REFERENCES_MAX);
    assert!(absurd.contains("fewer than 2^62 are allowed"), "{absurd}");
}

#[test]
fn a_footer_with_two_readings_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    for seed in seeds(dir.path()) {
        fs::write(&path, with_hidden_fields(&seed).unwrap()).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("its footer is not a Parquet footer"), "{error}");
    }
}

#[test]
fn nobody_writes_more_references_than_a_program_makes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&dir.path().join("t.folio"), Meta::default()).unwrap();
    let most = Event::references(0, Op::Exec, 0x1000, NR_REFERENCES_MAX - 1);
    writer.push(most).unwrap();
    let error = writer.push(Event::references(0, Op::Exec, 0x1000, 1)).unwrap_err();
    assert!(error.to_string().contains("cannot hold more: 2^62 references"), "{error}");
}

#[test]
#[ignore = "run by damaged_traces_do_no_harm in a child with limited memory"]
fn fuzz_rounds() {
    // The reader may convert a panic to an error, but thousands of backtraces would be noise.
    std::panic::set_hook(Box::new(|_| ()));
    let dir = tempfile::tempdir().unwrap();
    let (path, seeds) = (dir.path().join("t.folio"), seeds(dir.path()));
    let first = variable("LARGEFOLIO_FUZZ_SEED", 1);
    let (mut nr_ok, mut nr_caught) = (0, 0);
    for seed in first..first + variable("LARGEFOLIO_FUZZ_ROUNDS", NR_ROUNDS) {
        let mut rng = Rng::new(seed);
        let mut bytes = seeds[rng.below(3) as usize].clone();
        mutate(&mut bytes, &mut rng);
        // Uses a new file each round, because ext4 flushes a file that is truncated and rewritten.
        let _ = fs::remove_file(&path);
        fs::write(&path, &bytes).unwrap();
        match std::panic::catch_unwind(|| read(&path)) {
            Ok(Ok(_)) => nr_ok += 1,
            Ok(Err(error)) if error.to_string().contains("the decoder failed") => {
                nr_caught += 1;
                println!("SEED={seed}: {error}");
            }
            Ok(Err(_)) => {}
            Err(_) => {
                println!("SEED={seed} panics");
                std::process::exit(1);
            }
        }
    }
    println!("{nr_ok} rounds were still legal, {nr_caught} panicked inside the library");
}

#[test]
fn damaged_traces_do_no_harm() {
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -v {CHILD_KIB}; exec \"$0\" --ignored --exact {} --nocapture",
        "hostile::fuzz_rounds"
    );
    let output = Command::new("sh").arg("-c").arg(script).arg(this).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "the child ran the rounds: {text}");
}
