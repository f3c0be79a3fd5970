//! The page in a real browser: its numbers, pointing, zoom, keys, narrow windows; no error and no
//! request.
//!
//! The probe (`browser/probe.js`) is put behind the page's script and runs in a frame as wide as the
//! test says; it posts what it saw to the outer page, which the browser prints.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it cannot go on, and says what it skips"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{generated, hostile, html, predicted};

const ERRORS: &str = include_str!("browser/errors.js");
const PROBE: &str = include_str!("browser/probe.js");

/// Debian's and Ubuntu's name, and that of the vendor's package.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let found = BROWSERS.into_iter().find(runs);
    if found.is_none() {
        eprintln!(
            "SKIPPED: no browser, the page was not opened; install one with: sudo apt-get install \
             chromium"
        );
    }
    found
}

/// Opens `page` in a frame of `width` dots; what the probe posted.
fn probed(browser: &str, page: &str, width: u32) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let head = format!("<head>\n<script>{ERRORS}</script>");
    let page = page.replacen("<head>", &head, 1);
    let probe = format!("<script>{PROBE}</script>\n</body>");
    let (start, end) = page.rsplit_once("</body>").unwrap();
    fs::write(dir.path().join("page.html"), format!("{start}{probe}{end}")).unwrap();
    let outer = format!(
        "<!DOCTYPE html><pre id=said></pre><script>addEventListener('message', e => \
         {{ said.textContent = encodeURIComponent(e.data) }})</script>\
         <iframe src=page.html style='width:{width}px;height:900px;border:0'></iframe>"
    );
    let outer_path = dir.path().join("outer.html");
    fs::write(&outer_path, outer).unwrap();
    let dom = opened(browser, &outer_path, dir.path());
    let said = dom.split("<pre id=\"said\">").nth(1).and_then(|rest| rest.split('<').next());
    let said = decoded(said.unwrap_or_else(|| panic!("the browser printed: {dom}")));
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("the probe did not end: '{said}'"))
}

fn opened(browser: &str, path: &Path, home: &Path) -> String {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"])
        .args(["--enable-logging=stderr", "--dump-dom", "--window-size=1400,1000"])
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the console said: {console:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The inverse of `encodeURIComponent`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        if let Some(byte) = code.filter(|_| first == b'%') {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn check(page: &str, width: u32) {
    let Some(browser) = browser() else { return };
    let said = probed(browser, page, width);
    assert_eq!(said["wrong"], Value::Array(Vec::new()), "{said}");
    let seen = |what: &str| said["seen"][what].as_u64().unwrap();
    assert_eq!(seen("width"), u64::from(width));
    assert!(seen("numbers") > 40 && seen("pictures") > 10, "{said}");
    assert!(seen("charts") >= 2, "{said}");
    assert!(seen("folios") > 0, "pointing at a strip never met a folio: {said}");
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
