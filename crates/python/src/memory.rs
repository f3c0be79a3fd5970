//! The process's own memory: `largefolio.memory`.
//!
//! An address and a length cross the bridge; `largefolio/memory.py` holds the buffer that they are
//! of. No function changes the memory's contents (`largefolio_ranges` R1), so a wrong address
//! harms nothing.

use largefolio_ranges::{self as ranges, Advice, Errno, Options, Range, Reason, Settings};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

type Found<'py> = PyResult<Bound<'py, PyDict>>;

fn raised(Errno(number): Errno) -> PyErr {
    let text = std::io::Error::from_raw_os_error(number).to_string();
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((number, text))
}

/// Runs `work` on a buffer's whole pages, without the interpreter's lock.
fn on_range<T: Send>(
    py: Python<'_>,
    (address, len): (usize, usize),
    work: impl FnOnce(Range) -> ranges::Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| Range::new(address, len).and_then(work)).map_err(raised)
}

fn dictionary<'py>(py: Python<'py>, numbers: &[(&str, u64)]) -> Found<'py> {
    let found = PyDict::new(py);
    numbers.iter().try_for_each(|(name, number)| found.set_item(name, number))?;
    Ok(found)
}

/// Adds the reason's name (`needs-advice`) and its text.
fn with_reason(found: Bound<'_, PyDict>, reason: Reason) -> Found<'_> {
    let mut name = String::new();
    for letter in format!("{reason:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    found.set_item("reason", name)?;
    found.set_item("why", reason.text())?;
    Ok(found)
}

/// Folio sizes that private memory of this process gets now.
#[pyfunction]
pub(crate) fn memory_sizes(py: Python<'_>) -> Found<'_> {
    let settings = Settings::read().map_err(raised)?;
    let bytes = |is_advised| settings.largest_bytes(is_advised).unwrap_or(0) as u64;
    dictionary(
        py,
        &[
            ("page_bytes", settings.page_bytes as u64),
            ("pmd_bytes", settings.pmd_bytes() as u64),
            ("always_bytes", bytes(false)),
            ("advised_bytes", bytes(true)),
        ],
    )
}

#[pyfunction]
pub(crate) fn memory_back(
    py: Python<'_>,
    memory: (usize, usize),
    populate: bool,
    collapse: bool,
) -> Found<'_> {
    let options = Options { populate, collapse };
    let done = on_range(py, memory, |range| ranges::back(range, options))?;
    let numbers = [
        ("range_bytes", done.range_bytes),
        ("folio_bytes", done.folio_bytes),
        ("fitting_bytes", done.fitting_bytes),
        ("advised_bytes", done.advised_bytes),
        ("populated_bytes", done.populated_bytes),
        ("collapsed_bytes", done.collapsed_bytes),
    ];
    with_reason(dictionary(py, &numbers)?, done.reason)
}

#[pyfunction]
pub(crate) fn memory_view(py: Python<'_>, memory: (usize, usize)) -> Found<'_> {
    let seen = on_range(py, memory, ranges::view)?;
    let numbers = [
        ("range_bytes", seen.range_bytes),
        ("mapped_bytes", seen.mapped_bytes),
        ("present_bytes", seen.present_bytes),
        ("swapped_bytes", seen.swapped_bytes),
        ("folio_bytes", seen.folio_bytes),
        ("fitting_bytes", seen.fitting_bytes),
    ];
    let found = dictionary(py, &numbers)?;
    found.set_item("zero_page_bytes", seen.zero_page_bytes)?;
    found.set_item("huge_bytes", seen.huge_bytes)?;
    let page_bytes = ranges::page_bytes() as u64;
    let by_size = seen.bytes_by_order.map(|orders| {
        let sizes = orders.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0);
        sizes.map(|(order, bytes)| (page_bytes << order, bytes)).collect::<Vec<_>>()
    });
    found.set_item("bytes_by_size", by_size)?;
    with_reason(found, seen.reason)
}

#[pyfunction]
pub(crate) fn memory_waste(py: Python<'_>, memory: (usize, usize)) -> Found<'_> {
    let found = on_range(py, memory, ranges::waste)?;
    let numbers = [
        ("large_bytes", found.large_bytes),
        ("zero_bytes", found.zero_bytes),
        ("unreadable_bytes", found.unreadable_bytes),
    ];
    let waste = dictionary(py, &numbers)?;
    waste.set_item("has_all_sizes", found.has_all_sizes)?;
    Ok(waste)
}

#[pyfunction]
pub(crate) fn memory_collapse(py: Python<'_>, memory: (usize, usize)) -> Found<'_> {
    let done = on_range(py, memory, ranges::collapse)?;
    let numbers = [
        ("folio_bytes", done.folio_bytes),
        ("fitting_bytes", done.fitting_bytes),
        ("collapsed_bytes", done.collapsed_bytes),
    ];
    with_reason(dictionary(py, &numbers)?, done.reason)
}

#[pyfunction]
pub(crate) fn memory_advise(py: Python<'_>, memory: (usize, usize), is_huge: bool) -> PyResult<()> {
    let advice = if is_huge { Advice::Huge } else { Advice::NoHuge };
    on_range(py, memory, |range| ranges::advise(range, advice))
}

#[pyfunction]
pub(crate) fn memory_split(
    py: Python<'_>,
    memory: (usize, usize),
    zero_bytes_min: u64,
) -> Found<'_> {
    let done = on_range(py, memory, |range| ranges::split(range, zero_bytes_min))?;
    let numbers = [
        ("huge_bytes", done.huge_bytes),
        ("split_bytes", done.split_bytes),
        ("freed_bytes", done.freed_bytes),
    ];
    dictionary(py, &numbers)
}
