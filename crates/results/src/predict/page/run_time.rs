//! The change of the run time with its bounds: a lane per cell.

use largefolio_sim::replay::Outcome;

use crate::figures::{change_in_words, change_of_run, run_base};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::lanes::{Axis, Guide, Lane, Mark, Shape, Side, lanes};
use crate::html::markup::Markup;
use crate::predict::labels::Labels;
use crate::predict::result::run_reference;

pub(super) fn figures(rows: &[Outcome]) -> Option<Markup> {
    let names = Labels::names(rows);
    let compared = rows.iter().enumerate().filter_map(|(nr, row)| {
        let change = row.estimate.run_change?;
        Some((nr, row, change))
    });
    let compared: Vec<_> = compared.collect();
    if compared.is_empty() {
        return None;
    }
    // The change is relative to the reference cell's run, not to the cell's own.
    let base = |row: &Outcome| run_base(&run_reference(rows, row).estimate);
    let ends = compared.iter().flat_map(|(.., change)| [change.low, change.high, 0.0]);
    let axis = Axis::over(ends, "%");
    let drawn: Vec<Lane> = compared
        .iter()
        .map(|&(nr, row, change)| {
            let tip = format!("{}: {}", names[nr], change_of_run(change));
            let (mut name, mut end) = (Markup::new(), Markup::new());
            name.text(&names[nr]);
            let at = format!("/rows/{nr}/estimate/run_change/mid");
            end.number(&at, change.mid, &change_in_words(change).0);
            let side = Side::Middle;
            let (from, to, class) = (change.low, change.high, "interval");
            let shape = Shape::Diamond;
            let marks = vec![
                Mark::Span { from, to, side, class, tip: tip.clone() },
                Mark::At { value: change.mid, side, shape, class: "predicted", tip },
            ];
            let title = format!("Change in run time, {}: of {}", names[nr], base(row));
            Lane { title, name, marks, end }
        })
        .collect();
    let guide = Guide { from: 0.0, to: 0.0, class: "one" };
    let mut table = table_head("Change in run time, percent", &columns());
    for (nr, row, change) in compared {
        table.raw("<tr>").element("th scope=\"row\"", &names[nr]);
        for (key, value) in [("low", change.low), ("mid", change.mid), ("high", change.high)] {
            let at = format!("/rows/{nr}/estimate/run_change/{key}");
            table.raw("<td>").number(&at, value, &format!("{value:+.2}")).raw("</td>");
        }
        table.element("td", &base(row)).raw("</tr>");
    }
    table.raw(TABLE_END);
    Some(figure("Change in run time", &lanes(&axis, &[guide], &drawn), &table))
}

fn columns() -> [String; 4] {
    ["from", "likeliest", "to", "of a run"].map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use largefolio_sim::cost::{BaseTime, Estimate};
    use largefolio_sim::interval::Interval;

    use super::*;

    #[test]
    fn a_change_is_a_share_of_the_run_that_it_is_compared_with() {
        let row = |machine: &str, ns, run_change| {
            let estimate = Estimate { run: BaseTime::given(ns), run_change, ..Estimate::default() };
            Outcome { machine: machine.to_owned(), estimate, ..Outcome::default() }
        };
        let change = Some(Interval { low: -2.0, mid: -1.0, high: -0.5 });
        let rows = [row("altra", 1e9, None), row("zen4", 2e9, None), row("zen4", 3e9, change)];
        let page = figures(&rows).unwrap();
        let page = page.as_str();
        assert_eq!(page.matches("2,000.00 ms, as given").count(), 2, "{page}");
        assert!(!page.contains("3,000.00 ms"), "{page}");
    }
}
