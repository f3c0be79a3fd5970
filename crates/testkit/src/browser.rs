//! Opens a page in a real browser and checks numbers, pointing, zoom, keys and narrow windows.
//!
//! The probe (`browser/probe.js`) is appended to the page's script and runs in a frame. It posts
//! its results to the outer page, which the browser prints.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const ERRORS: &str = include_str!("browser/errors.js");
const PROBE: &str = include_str!("browser/probe.js");

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

#[must_use]
pub fn browser() -> Option<&'static str> {
    if !crate::is_whole() {
        crate::skipped!("only `make test-all` opens pages in a browser");
        return None;
    }
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let program = BROWSERS.into_iter().find(runs);
    if program.is_none() {
        crate::skipped!(
            "no browser, the page was not opened; install one with: sudo apt-get install \
             chromium"
        );
    }
    program
}

/// Opens `page` in a frame of `width` pixels. Returns the probe's results as JSON: `wrong`, a list
/// that should be empty, and `seen`, numbers.
///
/// # Panics
/// Panics if the browser fails or writes to its console.
#[must_use]
pub fn probed(browser: &str, page: &str, width: u32) -> String {
    let dir = home();
    let head = format!("<head>\n<script>{ERRORS}</script>");
    let page = page.replacen("<head>", &head, 1);
    let probe = format!("<script>{PROBE}</script>\n</body>");
    let Some((start, end)) = page.rsplit_once("</body>") else { panic!("a page has a body") };
    write(&dir.path().join("page.html"), &format!("{start}{probe}{end}"));
    let outer = format!(
        "<!DOCTYPE html><pre id=said></pre><script>addEventListener('message', e => \
         {{ said.textContent = encodeURIComponent(e.data) }})</script>\
         <iframe src=page.html style='width:{width}px;height:900px;border:0'></iframe>"
    );
    let outer_path = dir.path().join("outer.html");
    write(&outer_path, &outer);
    let arguments = ["--virtual-time-budget=20000", "--dump-dom", "--window-size=1400,1000"];
    let output = opened(browser, &arguments, &outer_path, dir.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = stderr.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "the console said: {console:?}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let content = dom.split("<pre id=\"said\">").nth(1).and_then(|rest| rest.split('<').next());
    let content = decoded(content.unwrap_or_else(|| panic!("the browser printed: {dom}")));
    assert!(content.starts_with('{'), "the probe did not end: '{content}'");
    content
}

/// Prints the page to PDF, with scripts off.
///
/// # Panics
/// Panics if the browser writes no PDF.
#[must_use]
pub fn printed(browser: &str, page: &str) -> Vec<u8> {
    let dir = home();
    let (path, pdf) = (dir.path().join("page.html"), dir.path().join("page.pdf"));
    write(&path, &page.replace("<script>", "<script type=\"text/plain\">"));
    let to = format!("--print-to-pdf={}", pdf.display());
    let output = opened(browser, &["--no-pdf-header-footer", &to], &path, dir.path());
    fs::read(&pdf).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|error| panic!("a directory for the browser: {error}"))
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn opened(browser: &str, arguments: &[&str], path: &Path, home: &Path) -> Output {
    Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
        .args(arguments)
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap_or_else(|error| panic!("{browser}: {error}"))
}

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
    String::from_utf8_lossy(&bytes).into_owned()
}
