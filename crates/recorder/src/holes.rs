//! Parts of a file without data in storage.
//!
//! `largefolio-linux` compiles this file too, through a symbolic link.

/// Maximum number of holes of one file. The rest of the file counts as data.
pub(crate) const NR_HOLES_MAX: usize = 3072;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    Hole,
    Data,
}

/// Returns position and length of each hole in the first `size_bytes` of a file. `next` returns
/// where the first hole, or data, from a position on starts.
pub(crate) fn between(
    size_bytes: u64,
    mut next: impl FnMut(Edge, u64) -> Option<u64>,
) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut at = 0;
    while holes.len() < NR_HOLES_MAX
        && let Some(start) = next(Edge::Hole, at).filter(|start| *start < size_bytes)
    {
        // No data follows the last hole.
        let end = next(Edge::Data, start).unwrap_or(size_bytes).min(size_bytes);
        if end <= start {
            break;
        }
        holes.push((start, end - start));
        at = end;
    }
    holes
}
