//! The trace file on disk: Parquet, one row per [`Event`](crate::Event), metadata in the footer.
//!
//! Owns the columns and their encodings ([`schema`]), [`Writer`] and [`Reader`], the open file that
//! readers share ([`OpenTrace`]), the errors ([`TraceError`]), and the checks of any Parquet file
//! before the Parquet library reads it ([`ForeignParquet`]). Invariants:
//! - I1: a file under its final name is complete. It gets its name only at the end
//!   ([`crate::disk`]).
//! - I2: every [`Batch`] returned by a reader is validated.
//! - I3: reading takes bounded memory and time for any bytes, and never panics. Each size that a
//!   file declares is compared with a constant before it is used for an allocation.
//! - I4: the checksum verifies that an opened file is the one that was written.
//!
//! ```text
//!   PAR1 | row group: thread op addr len pos aux flags file | row group | .. | footer | len PAR1
//!                     each column: [dictionary page] data pages of 64 Ki rows     |
//!                                       key `largefolio` = Meta as JSON  <--------'
//!                                       key `largefolio.checksum` = LEN DATA META
//! ```

pub mod schema;

mod batch;
mod checksum;
mod columns;
mod dictionary;
mod digest;
mod encode;
mod error;
mod footer;
mod foreign;
mod opened;
mod pages;
mod reader;
mod rows;
mod shape;
mod source;
mod thrift;
mod unpack;
mod values;
mod writer;

pub use batch::{Batch, NO_FILE};
pub use digest::{digest, digest_until};
pub use error::TraceError;
pub use foreign::ForeignParquet;
pub use opened::OpenTrace;
pub use reader::Reader;
pub use writer::{Summary, Writer};
