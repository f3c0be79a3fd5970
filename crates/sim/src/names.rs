//! Names in messages: which one was meant, and what there is.

/// Names nearer than this (Jaro-Winkler) are offered alone.
const NEAR: f64 = 0.75;

/// "did you mean A or B?" for the names near `name`, else the list of all of them.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let mut near: Vec<(f64, &str)> = known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(score, _)| *score > NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(3);
    if near.is_empty() {
        return format!("known: {}", known.join(", "));
    }
    let near: Vec<&str> = near.into_iter().map(|(_, candidate)| candidate).collect();
    format!("did you mean {}?", near.join(" or "))
}

/// `a, b or c`.
pub(crate) fn or_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
