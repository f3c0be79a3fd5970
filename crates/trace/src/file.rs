//! The trace file on disk: Parquet, one row per [`Event`](crate::Event), metadata in the footer.
//!
//! Owns the columns and their encodings ([`schema`]), the streaming [`Writer`] and [`Reader`], the
//! open file that several readers share ([`OpenTrace`]) and what can go wrong ([`TraceError`]); what is looked at in any Parquet file before the library reads
//! it ([`ForeignParquet`]). Does not own what rows mean ([`crate::event`]) or which are
//! legal ([`crate::validate`]). Invariants:
//! - I1: a file under its final name is complete: it is written beside it and renamed.
//! - I2: every [`Batch`] handed out is validated.
//! - I3: reading takes bounded memory and time whatever the bytes are, and never panics: each
//!   size that a file declares is checked against a constant before anything is allocated.
//! - I4: a file that is opened is, by its checksum, the one that was written.
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
