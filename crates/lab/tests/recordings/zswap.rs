//! Programs on kernels with zswap: what it stores, loads and writes back, in kernels and in the
//! model.
//!
//! The programs page memory out themselves, so which page reclaim takes first does not matter.
//! `LARGEFOLIO_ZSWAP=DIR` tests another folder's recordings and prints each program's first
//! difference.

use super::document;
use super::kinds::{judge, recordings_or, table};

const VARIABLE: &str = "LARGEFOLIO_ZSWAP";

#[test]
fn model_stores_what_the_recorded_kernels_stored() {
    let kinds = judge(&recordings_or("zswap", VARIABLE));
    let table = table(&kinds);
    println!("{table}");
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    document("zswap.rs", &table);
}
