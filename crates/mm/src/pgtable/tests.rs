//! Tests of the page table: golden vectors and the naive twin.

mod golden;
mod twin;
