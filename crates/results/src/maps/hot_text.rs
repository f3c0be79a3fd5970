//! The text of `folio maps --hot`: the answer, the mappings by use, and what would help.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::hot::{HotMapping, HotOne, HotResult, Use};
use super::plain::shortened;
use super::table::{grid, share};
use super::text::terms;
use crate::figures::{bytes, printable, size};
use crate::prose::hanging;

const LINE_CHARS: usize = 100;
const NAME_CHARS: usize = 48;
/// Less used memory than this, or than 1% of all, needs no remedy: two 2M folios.
const LEAST_BYTES: u64 = 4 << 20;
/// Remedies shown per mapping: for the running program, and for its next start.
const NR_REMEDIES: usize = 2;

pub(super) fn of(result: &HotResult) -> String {
    let mut out = String::new();
    if result.processes.len() > 1 {
        let nr = result.processes.len();
        let _ = writeln!(out, "{nr} processes: {}", answer(&result.all, result.page_bytes));
        out.push_str("A page that several of them share counts in each.\n\n");
    }
    for (nr, process) in result.processes.iter().enumerate() {
        if nr > 0 {
            out.push('\n');
        }
        add_process(process, result, &mut out);
    }
    out
}

/// Says how much was used, and how much of that is in base pages.
fn answer(all: &Use, page_bytes: u64) -> String {
    let mut out =
        format!("of {} resident, {} were used", bytes(all.resident_bytes), bytes(all.used_bytes));
    if all.used_bytes > 0 {
        let page = size(page_bytes);
        let _ = write!(out, "; {} of the used memory is in {page} pages", range(all, page_bytes));
    }
    out + "."
}

/// Formats the share of one folio size in the used memory: `83%`, or `40% to 83%`.
fn range(all: &Use, of_size: u64) -> String {
    let part = all.sizes.get(&of_size).copied().unwrap_or_default();
    let high = part.used_bytes_max.saturating_add(all.used_bytes_unknown).min(all.used_bytes);
    let shares = [part.used_bytes_min, high].map(|part| {
        let share = share(part, all.used_bytes);
        if share == "." { "0%".to_owned() } else { share }
    });
    let [low, high] = shares;
    if low == high { low } else { format!("{low} to {high}") }
}

fn add_process(process: &HotOne, result: &HotResult, out: &mut String) {
    let seconds = crate::figures::ratio(process.watched_ns, 1_000_000_000);
    let name = printable(&process.name);
    let _ = writeln!(
        out,
        "{name} ({}), {seconds:.1} s: {}\n",
        process.pid,
        answer(&process.all, result.page_bytes)
    );
    let header = ["used", "resident", "used, by folio size", "mapping"].map(str::to_owned);
    let is_used = |mapping: &&HotMapping| mapping.all.used_bytes > 0;
    let used: Vec<&HotMapping> = process.mappings.iter().filter(is_used).collect();
    let rows = used.iter().take(result.nr_shown).map(|mapping| {
        vec![
            bytes(mapping.all.used_bytes),
            bytes(mapping.all.resident_bytes),
            sizes(&mapping.all),
            shortened(&mapping.name, NAME_CHARS),
        ]
    });
    out.push_str(&grid(&header, rows.collect(), 0));
    if used.len() > result.nr_shown {
        let _ = writeln!(out, "  and {} more: --top {}", used.len() - result.nr_shown, used.len());
    }
    let least = LEAST_BYTES.max(process.all.used_bytes / 100);
    let is_small = |mapping: &&&HotMapping| {
        let part = mapping.all.sizes.get(&result.page_bytes);
        part.is_some_and(|part| part.used_bytes_max >= least) && !mapping.remedies.is_empty()
    };
    let small: Vec<&&HotMapping> = used.iter().filter(is_small).take(result.nr_shown).collect();
    if !small.is_empty() {
        let _ = writeln!(out, "\nused, in {} pages:", size(result.page_bytes));
    }
    let mut shown = BTreeSet::new();
    for mapping in small {
        add_remedies(mapping, &mut shown, out);
    }
}

fn sizes(all: &Use) -> String {
    let used = all.sizes.iter().filter(|(_, part)| part.used_bytes_max > 0);
    let mut parts: Vec<String> =
        used.map(|(&bytes, _)| format!("{} {}", size(bytes), range(all, bytes))).collect();
    if !parts.is_empty() && all.used_bytes_unknown > 0 {
        parts.push(format!("unknown {}", share(all.used_bytes_unknown, all.used_bytes)));
    }
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

/// Adds the remedies that no earlier mapping had.
fn add_remedies(mapping: &HotMapping, shown: &mut BTreeSet<String>, out: &mut String) {
    let _ = writeln!(out, "  {:>10} {}", bytes(mapping.all.used_bytes), mapping.name);
    for refusal in mapping.reasons.iter().filter(|refusal| !refusal.has_no_remedy()) {
        let _ = writeln!(out, "{:13}{}", "", refusal.meaning());
    }
    for remedy in mapping.remedies.iter().take(NR_REMEDIES) {
        let text = remedy.to_string();
        let is_new = shown.insert(text.clone());
        let again = if is_new { "" } else { " (see above)" };
        let _ = writeln!(out, "{:>16}{text}{again}", "-> ");
        for term in terms(remedy).into_iter().filter(|_| is_new) {
            for line in hanging(&" ".repeat(16), &term, LINE_CHARS, LINE_CHARS / 2) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::hot::SizeUse;
    use super::*;

    fn part(min: u64, max: u64) -> SizeUse {
        SizeUse { resident_bytes: max, used_bytes_min: min, used_bytes_max: max }
    }

    #[test]
    fn a_share_is_one_number_or_a_range() {
        let all = Use {
            resident_bytes: 1000 << 20,
            used_bytes: 100 << 20,
            sizes: BTreeMap::from([
                (4 << 10, part(83 << 20, 83 << 20)),
                (64 << 10, part(0, 17 << 20)),
            ]),
            ..Use::default()
        };
        let expected =
            "of 1,000 MiB resident, 100 MiB were used; 83% of the used memory is in 4K pages.";
        assert_eq!(answer(&all, 4 << 10), expected);
        assert_eq!(range(&all, 64 << 10), "0% to 17%");
        assert_eq!(sizes(&all), "4K 83%, 64K 0% to 17%");
        assert_eq!(sizes(&Use { used_bytes: 5, ..Use::default() }), "unknown");
        // A mapping grew between the readings: its pages may have any size.
        let grown = Use {
            used_bytes: 100 << 20,
            used_bytes_unknown: 99 << 20,
            sizes: BTreeMap::from([(4 << 10, part(1 << 20, 1 << 20))]),
            ..Use::default()
        };
        assert_eq!(range(&grown, 4 << 10), "1% to 100%");
        assert_eq!(range(&grown, 64 << 10), "0% to 99%");
        assert_eq!(sizes(&grown), "4K 1% to 100%, unknown 99%");
        assert_eq!(answer(&Use::default(), 4096), "of 0 B resident, 0 B were used.");
    }
}
