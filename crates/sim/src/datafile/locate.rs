//! Finds the line of a value in a file.

use toml::de::{DeTable, DeValue};

/// Returns the line of `place` (`tlb.l1_data[0].ways`) in `text`, counted from 1. If the file has
/// no such key, returns the line of the nearest enclosing table, or 1.
#[must_use]
pub fn line_of(text: &str, place: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else { return 1 };
    let mut offset = 0;
    let mut at = None;
    for step in steps(place) {
        let table = match at {
            None => Some(root.get_ref()),
            Some(value) => DeValue::as_table(value),
        };
        let next = match (step, at) {
            (PathStep::Key(key), _) => table.and_then(|table| {
                let (key, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
                Some((key.span().start, value))
            }),
            (PathStep::Index(nr), Some(DeValue::Array(items))) => {
                items.get(nr).map(|item| (item.span().start, item))
            }
            (PathStep::Index(_), _) => None,
        };
        let Some((start, value)) = next else { break };
        offset = start;
        at = Some(value.get_ref());
    }
    line_at(text, offset)
}

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    before.split(|&byte| byte == b'\n').count()
}

enum PathStep<'a> {
    Key(&'a str),
    Index(usize),
}

fn steps(place: &str) -> impl Iterator<Item = PathStep<'_>> {
    place.split('.').flat_map(|part| {
        let (key, index) = match part.strip_suffix(']').and_then(|part| part.split_once('[')) {
            Some((key, index)) => (key, index.parse().ok().map(PathStep::Index)),
            None => (part, None),
        };
        std::iter::once(PathStep::Key(key)).chain(index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a = 1\n[b]\nc = [\n  2,\n  3]\n[[d.e]]\nf = 4\n\n[[d.e]]\nf = 5\n";

    #[test]
    fn a_place_is_found_or_what_is_around_it() {
        let lines = ["a", "b", "b.c", "b.c[1]", "d.e[0].f", "d.e[1]", "d.e[1].f", "d.e[1].g"];
        assert_eq!(lines.map(|place| line_of(TEXT, place)), [1, 2, 3, 5, 7, 9, 10, 9]);
        assert_eq!(
            ["x", "a.b", "a[0]", "", "d.e[9].f"].map(|place| line_of(TEXT, place)),
            [1, 1, 1, 1, 6]
        );
        assert_eq!(line_of("no toml", "a"), 1);
    }
}
