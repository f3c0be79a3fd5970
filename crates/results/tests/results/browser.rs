//! A prediction's page in a real browser (`largefolio_testkit::browser`).

use std::path::Path;

use largefolio_testkit::browser::{browser, printed, probed};
use serde_json::Value;

use super::support::{generated, hostile, html, predicted};

fn check(page: &str, width: u32) {
    let Some(browser) = browser() else { return };
    let probe: Value = serde_json::from_str(&probed(browser, page, width)).unwrap();
    assert_eq!(probe["wrong"], Value::Array(Vec::new()), "{probe}");
    let count = |what: &str| probe["seen"][what].as_u64().unwrap();
    assert_eq!(count("width"), u64::from(width));
    assert!(count("numbers") > 40 && count("pictures") > 10, "{probe}");
    assert!(count("charts") >= 2, "{probe}");
    assert!(count("folios") > 0, "pointing at a strip never met a folio: {probe}");
}

#[test]
fn a_page_works_in_a_wide_window() {
    check(&html(&generated(&[("6.12", "altra"), ("7.2", "grace-64k")])), 1200);
}

#[test]
fn a_page_works_in_a_narrow_window() {
    check(&html(&generated(&[("6.12", "altra")])), 390);
}

#[test]
fn hostile_names_stay_text_in_a_browser() {
    check(&html(&hostile()), 390);
}

#[test]
fn a_recorded_program_fits_and_works() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/demo.folio");
    let cells =
        ["6.12", "6.18", "7.0", "7.2"].map(|k| ["altra", "grace-64k", "zen4"].map(|m| (k, m)));
    let page = html(&predicted(&trace, cells.as_flattened()));
    assert!(page.len() < 3 << 20, "{} bytes", page.len());
    check(&page, 1200);
}

#[test]
fn a_page_can_be_printed() {
    let Some(browser) = browser() else { return };
    let page = html(&generated(&[("6.12", "altra")]));
    let pdf = printed(browser, &page);
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 20_000, "{} bytes", pdf.len());
}
