//! Which rule makes the difference: sentences, then a table per result.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};

use super::layout::STYLE;
use largefolio_sim::explain::{Effect, Explained, Why};

use crate::figures::{self, change, ratio, signed_of, size};
use crate::predict::PredictResult;
use crate::prose::wrapped;

const NR_NAMED: usize = 3;
/// Sentences omit switches with a step smaller than the largest step divided by this.
const SMALL: i128 = 50;

pub(super) fn answer(report: &PredictResult, why: &Why, width: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        sentences(report, why).iter().map(|text| wrapped(text, width, 2)).collect();
    for (_, result) in why.shown() {
        lines.push(String::new());
        lines.push(wrapped(&heading(result), width, 2));
        lines.push(table(why, result));
    }
    lines
}

pub(crate) fn sentences(report: &PredictResult, why: &Why) -> Vec<String> {
    let name = pair(report, why);
    let nr = why.switches.len();
    if nr == 0 {
        return vec![format!("{name}: the two kernels have the same rules.")];
    }
    let rules = if nr == 1 { "1 rule differs".to_owned() } else { format!("{nr} rules differ") };
    if why.results.is_empty() {
        let reason = "but no result does; folio did not search for rules whose effects cancel out";
        return vec![format!("{name}: {rules}, {reason}.")];
    }
    let idle = match why.nr_idle() {
        0 => String::new(),
        1 => "; 1 of them does not change any result".to_owned(),
        idle => format!("; {idle} of them change no result"),
    };
    let mut sentences = vec![format!("{name}: {rules}{idle}.")];
    sentences.extend(why.shown().map(|(_, result)| sentence(why, result)));
    if why.shown().next().is_none() {
        let metrics = why.results.iter().map(|result| result.metric.as_str());
        let mut metrics: Vec<&str> = metrics.collect();
        metrics.dedup();
        let heading = "None of the shown results differs; these do (--why=RESULT shows them)";
        sentences.push(format!("{heading}: {}.", metrics.join(", ")));
    }
    sentences
}

/// Names the pair, with everything that distinguishes it: `6.1 -> 7.3 on altra, 4K pages`.
pub(crate) fn pair(report: &PredictResult, why: &Why) -> String {
    let (before, after) = (&report.rows[why.before], &report.rows[why.after]);
    let pages = if before.page_bytes == after.page_bytes {
        size(after.page_bytes)
    } else {
        format!("{} -> {}", size(before.page_bytes), size(after.page_bytes))
    };
    let mut name =
        format!("{} -> {} on {}, {pages} pages", before.kernel, after.kernel, after.machine);
    let differs =
        |get: &dyn Fn(usize) -> u64| (0..report.rows.len()).any(|row| get(row) != get(why.before));
    if differs(&|row| report.rows[row].memory_bytes) {
        name = format!("{name}, {}", figures::bytes(after.memory_bytes));
    }
    if report.rows.iter().any(|row| row.linked != after.linked) {
        name = format!("{name}, linked for {}", after.linked.join(", "));
    }
    if differs(&|row| report.rows[row].seed) {
        name = format!("{name}, seed {}", after.seed);
    }
    name
}

/// `instruction walks -82.0% (..): fault.exec (since 6.17) makes -75.0 points, ..`.
fn sentence(why: &Why, result: &Explained) -> String {
    let mut effects: Vec<&Effect> =
        result.effects.iter().filter(|effect| effect.in_order != 0).collect();
    effects.sort_by_key(|effect| (std::cmp::Reverse(effect.in_order.abs()), effect.switch));
    let largest = effects.first().map_or(0, |effect| effect.in_order.abs());
    let is_named = |effect: &&&Effect| SMALL * effect.in_order.abs() >= largest;
    let nr_named = effects.iter().take(NR_NAMED).take_while(is_named).count();
    let (named, others) = effects.split_at(nr_named);
    let mut parts: Vec<String> = Vec::new();
    for (nr, effect) in named.iter().enumerate() {
        let makes = if nr == 0 { " makes" } else { "" };
        let share = share_of(result, effect.in_order);
        parts.push(format!("{}{makes} {share}", why.switches[effect.switch].with_origin()));
    }
    if !others.is_empty() {
        let rest = others.iter().map(|effect| effect.in_order).sum();
        let rules = if others.len() == 1 { "rule" } else { "rules" };
        parts.push(format!("{} more {rules} {}", others.len(), share_of(result, rest)));
    }
    let needed = needed(why, result, named);
    let together = match needed.is_empty() {
        false => format!(". Without {}, most of the difference disappears", needed.join(" or ")),
        true if interacts(result) => ". Some rules work together: see the table".to_owned(),
        true => String::new(),
    };
    format!("- {}: {}{together}.", heading(result), parts.join(", "))
}

/// Names rules with a small step that later rules depend on.
fn needed(why: &Why, result: &Explained, named: &[&Effect]) -> Vec<String> {
    let most = |value: i128| {
        value.signum() == result.difference.signum() && 2 * value.abs() >= result.difference.abs()
    };
    let makes = |effect: &Effect| {
        most(effect.in_order) && named.iter().any(|one| one.switch == effect.switch)
    };
    let needed = result.effects.iter().filter(|effect| most(effect.left_out) && !makes(effect));
    needed.map(|effect| why.switches[effect.switch].with_origin()).collect()
}

/// Returns whether the rules alone miss the difference by more than a tenth.
fn interacts(result: &Explained) -> bool {
    let alone: i128 = result.effects.iter().map(|effect| effect.alone).sum();
    10 * (result.difference - alone).abs() > result.difference.abs()
}

/// `instruction walks -82.0% (20,001 -> 3,600)`.
fn heading(result: &Explained) -> String {
    let changed = change(size_of(result.before), size_of(result.after));
    let show = |value: i128| figures::value(u64::try_from(value).unwrap_or(0), result.unit);
    format!("{} {changed} ({} -> {})", result.name(), show(result.before), show(result.after))
}

/// Formats a part of the difference in points of the first kernel's value, or as a number if that
/// value is 0.
fn share_of(result: &Explained, value: i128) -> String {
    match points(result, value) {
        Some(points) => format!("{points} points"),
        None => signed_of(value, result.unit),
    }
}

fn size_of(value: i128) -> f64 {
    ratio(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX), 1)
}

fn points(result: &Explained, value: i128) -> Option<String> {
    (result.before > 0).then(|| {
        let percent = 100.0 * size_of(value) / size_of(result.before);
        match (value, percent) {
            (0, _) => "0".to_owned(),
            (_, ..0.05) => format!("{}<0.1", if value < 0 { "-" } else { "+" }),
            _ => format!("{}{percent:.1}", if value < 0 { "-" } else { "+" }),
        }
    })
}

fn table(why: &Why, result: &Explained) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    let has_points = result.before > 0;
    let mut header = vec!["rule", "since", "in order"];
    if has_points {
        header.push("points");
    }
    header.extend(["alone", "left out"]);
    table.set_header(header.iter().enumerate().map(|(nr, text)| cell(text, nr > 1)));
    let show =
        |value: i128| if value == 0 { "=".to_owned() } else { signed_of(value, result.unit) };
    let mut line = |label: &str, since: &str, values: [Option<i128>; 3]| {
        let [in_order, alone, left_out] = values.map(|value| value.map(show).unwrap_or_default());
        let mut row = vec![cell(label, false), cell(since, false), cell(&in_order, true)];
        if has_points {
            let points = values[0].and_then(|value| points(result, value)).unwrap_or_default();
            row.push(cell(&points, true));
        }
        row.extend([cell(&alone, true), cell(&left_out, true)]);
        table.add_row(row);
    };
    for effect in &result.effects {
        let switch = &why.switches[effect.switch];
        let values = [Some(effect.in_order), Some(effect.alone), Some(effect.left_out)];
        line(&switch.change(), &switch.origin(), values);
    }
    for pair in &result.interactions {
        let [one, other] = pair.switches.map(|nr| why.switches[nr].name());
        line(&format!("{one} with {other}"), "", [None, Some(pair.value), None]);
    }
    if result.together != 0 {
        line(why.together(), "", [None, Some(result.together), None]);
    }
    line("sum", "", [Some(result.difference), Some(result.difference), None]);
    table.trim_fmt()
}

fn cell(text: &str, is_number: bool) -> Cell {
    let cell = Cell::new(figures::printable(text));
    if is_number { cell.set_alignment(CellAlignment::Right) } else { cell }
}

pub(super) fn notes(answers: &[Why]) -> Vec<String> {
    let mut notes = vec![
        "in order: the rules are changed one after another, the oldest first, so that the steps \
         add up to the difference. alone: one rule is changed on the first kernel; together with \
         the joint effects of rules, this column adds up as well. left out: the part of the change \
         that the second kernel loses without the rule. points: per cent of the first kernel's \
         value. since: the first version known to have the value."
            .to_owned(),
    ];
    if answers.iter().flat_map(|why| &why.switches).any(|switch| switch.rules.len() > 1) {
        notes.push(
            "Rules joined by + are changed together: no kernel can have only one of them."
                .to_owned(),
        );
    }
    let nr_left_out: usize = answers.iter().map(|why| why.nr_pairs_left_out).sum();
    if nr_left_out > 0 {
        notes.push(format!(
            "{nr_left_out} pairs of rules were not replayed separately; their joint effect is \
                included in 'other rules together'."
        ));
    }
    let mut not_known: Vec<&str> =
        answers.iter().flat_map(|why| &why.not_known).map(String::as_str).collect();
    not_known.sort_unstable();
    not_known.dedup();
    if !not_known.is_empty() {
        notes.push(format!("not known on some machine: {}.", not_known.join(", ")));
    }
    notes
}
