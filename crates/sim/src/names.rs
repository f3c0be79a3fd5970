//! Suggestions for misspelt names.

/// If a name is more similar than this (Jaro-Winkler), only similar names are suggested.
const NEAR: f64 = 0.75;

/// Returns "did you mean A or B?" for the names similar to `name`, or the list of all names.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let around = neighbours(name, &known);
    if !around.is_empty() {
        return format!("did you mean {}?", around.join(" or "));
    }
    let mut near: Vec<(f64, &str)> = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(score, _)| *score > NEAR)
        .collect();
    // Among names that differ only in their number, the nearest number comes first.
    let distance = |candidate: &str| trailing(name).abs_diff(trailing(candidate));
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(distance(a.1).cmp(&distance(b.1))));
    near.truncate(3);
    if near.is_empty() {
        return format!("known: {}", known.join(", "));
    }
    let near: Vec<&str> = near.into_iter().map(|(_, candidate)| candidate).collect();
    format!("did you mean {}?", near.join(" or "))
}

/// Returns the versions before and after `name` in `known`, if it is a version and both have its
/// major number.
fn neighbours<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let number = |text: &str| -> Option<(u32, u32)> {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let Some(wanted) = number(name) else { return Vec::new() };
    let of_major = known.iter().filter_map(|known| Some((number(known)?, *known)));
    let of_major: Vec<_> = of_major.filter(|(known, _)| known.0 == wanted.0).collect();
    let before = of_major.iter().filter(|(known, _)| *known < wanted).max();
    let after = of_major.iter().filter(|(known, _)| *known > wanted).min();
    match (before, after) {
        (Some((_, before)), Some((_, after))) => vec![before, after],
        _ => Vec::new(),
    }
}

/// Returns the number at the end of a name, or 0.
fn trailing(name: &str) -> u64 {
    let start = name.trim_end_matches(|last: char| last.is_ascii_digit()).len();
    name[start..].parse().unwrap_or(0)
}

/// Returns `a, b or c`.
pub(crate) fn or_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_between_two_known_ones_is_answered_with_both() {
        let hint =
            |name| nearest(name, ["6.1", "6.6", "6.8", "6.16", "7.0", "recorded/x"].into_iter());
        assert_eq!(hint("6.7"), "did you mean 6.6 or 6.8?");
        assert_eq!(hint("6.9"), "did you mean 6.8 or 6.16?");
        // No known version with its major number is newer, so a typing error is likelier.
        assert_eq!(hint("6.61"), "did you mean 6.6 or 6.16 or 6.1?");
        assert!(hint("6.").starts_with("did you mean"), "{}", hint("6."));
    }

    #[test]
    fn the_next_number_comes_first() {
        let hint = |name| nearest(name, ["graviton3", "graviton4", "zz"].into_iter());
        assert_eq!(hint("graviton5"), "did you mean graviton4 or graviton3?");
        assert_eq!(hint("graviton2"), "did you mean graviton3 or graviton4?");
        assert_eq!(hint("graviton99999999999999999999"), "did you mean graviton3 or graviton4?");
    }
}
