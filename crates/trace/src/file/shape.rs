//! The shapes of Parquet's own structures, by field id (`parquet.thrift` of parquet-format).
//!
//! The Parquet library reads a known field with the type from the format definition, regardless of
//! the wire type in the file. With a wrong wire type, [`super::thrift`] would walk different data
//! than the library reads. These tables are used to reject such a file.

pub(super) enum Shape {
    Bool,
    Byte,
    /// An integer of any width; all are encoded the same way.
    Int,
    Double,
    Text,
    List(&'static Shape),
    /// A structure or a union: field `n` is at index `n - 1`. Newer fields are skipped by wire
    /// type.
    Struct(&'static [Shape]),
    /// Not read by the library, but skipped by its wire type.
    Skipped,
}

use Shape::{Bool, Byte, Double, Int, List, Skipped, Struct, Text};

const NOTHING: Shape = Struct(&[]);
const KEY_VALUE: Shape = Struct(&[Text, Text]);
const STATISTICS: Shape = Struct(&[Text, Text, Int, Int, Text, Text, Bool, Bool, Int]);

const TIME: Shape = Struct(&[Bool, Struct(&[NOTHING, NOTHING, NOTHING])]);
const LOGICAL_TYPE: Shape = Struct(&[
    NOTHING, // String.
    NOTHING,
    NOTHING,
    NOTHING,
    Struct(&[Int, Int]), // Decimal.
    NOTHING,
    TIME,
    TIME, // Timestamp.
    Skipped,
    Struct(&[Byte, Bool]), // Integer.
    NOTHING,
    NOTHING,
    NOTHING,
    NOTHING,
    NOTHING,              // Float16.
    Struct(&[Byte]),      // Variant.
    Struct(&[Text]),      // Geometry.
    Struct(&[Text, Int]), // Geography.
]);
const SCHEMA_ELEMENT: Shape = Struct(&[Int, Int, Int, Text, Int, Int, Int, Int, Int, LOGICAL_TYPE]);

const ENCODING_STATISTICS: Shape = Struct(&[Int, Int, Int]);
const SIZE_STATISTICS: Shape = Struct(&[Int, List(&Int), List(&Int)]);
const BOX: Shape = Struct(&[Double, Double, Double, Double, Double, Double, Double, Double]);
const COLUMN: Shape = Struct(&[
    Int, // Type.
    List(&Int),
    List(&Text),
    Int,
    Int, // Values.
    Int,
    Int,
    List(&KEY_VALUE),
    Int, // Page offset.
    Int,
    Int,
    STATISTICS,
    List(&ENCODING_STATISTICS),
    Int, // Bloom filter.
    Int,
    SIZE_STATISTICS,
    Struct(&[BOX, List(&Int)]),
]);
const COLUMN_CHUNK: Shape = Struct(&[Text, Int, COLUMN, Int, Int, Int, Int]);
const ROW_GROUP: Shape = Struct(&[
    List(&COLUMN_CHUNK),
    Int,
    Int,
    List(&Struct(&[Int, Bool, Bool])), // Sorted by.
    Int,
    Int,
    Int,
]);

pub(super) const FOOTER: Shape = Struct(&[
    Int,
    List(&SCHEMA_ELEMENT),
    Int,
    List(&ROW_GROUP),
    List(&KEY_VALUE),
    Text,
    List(&Struct(&[NOTHING, NOTHING])), // How each column is ordered.
]);

pub(super) const PAGE_HEADER: Shape = Struct(&[
    Int,
    Int,
    Int,
    Int,
    Struct(&[Int, Int, Int, Int, STATISTICS]), // Data.
    NOTHING,
    Struct(&[Int, Int, Bool]), // Dictionary.
    Struct(&[Int, Int, Int, Int, Int, Int, Bool, STATISTICS]), // Data, version 2.
]);
