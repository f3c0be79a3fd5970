//! Proves and calibrates the model. `folio` does not need this crate, and it is not published.
//!
//! Reading order: [`mod@bench`] (the series' micro-benchmarks, on this kernel and in the model),
//! [`study`] (published tables compared with the model), [`crosscheck`] (recordings of real kernels
//! compared with the model).

pub mod bench;
pub mod crosscheck;
mod error;
pub mod study;

pub use error::Error;
