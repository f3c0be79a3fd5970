//! Parquet files that readers must reject.

/// Returns `file` with footer fields that only the Parquet library notices; `None` if it is
/// not a Parquet file. It reads them as lists of two billion booleans, which takes seconds.
#[must_use]
pub fn with_hidden_fields(file: &[u8]) -> Option<Vec<u8>> {
    const HIDDEN: [u8; 9] = [0x29, 0x71, 0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07];
    let (rest, magic) = file.split_last_chunk::<4>()?;
    let (rest, len) = rest.split_last_chunk()?;
    let (end, before) = rest.split_last()?;
    let len = u32::from_le_bytes(*len) + u32::try_from(HIDDEN.len()).ok()?;
    Some([before, &HIDDEN, &[*end], &len.to_le_bytes(), magic].concat())
}
