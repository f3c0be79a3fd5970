//! The answer and the overview: which rows count, and which of them match.

use largefolio_report::html::bars::{Bar, Part, bars};
use largefolio_report::html::frame::{TABLE_END, figure, table_head};
use largefolio_report::html::markup::Markup;
use largefolio_sim::study::{Finding, RowFinding, TableFinding};

use super::super::answer::{self, CLASSES};
use super::super::result::StudyResult;
use super::{how_class, over_limits, over_programs};
use crate::sentence;

pub(super) fn headline(report: &StudyResult) -> Markup {
    let mut answer = Markup::new();
    for found in report.studies.iter().flat_map(|study| &study.frontiers) {
        over_programs::answer(&mut answer, found);
    }
    for curve in report.studies.iter().flat_map(|study| &study.curves) {
        over_limits::answer(&mut answer, curve);
    }
    let Some(sentence) = answer::of(report) else { return answer };
    answer.append(&sentence::marked(&sentence));
    let mut hows = [("counted", 0), ("estimated", 0), ("measured", 0), ("quoted", 0), ("none", 0)];
    let rows = report.studies.iter().flat_map(|study| &study.tables).flat_map(|table| &table.rows);
    for row in rows {
        let word = how_class(&row.how).1;
        for (_, nr) in hows.iter_mut().filter(|(known, _)| *known == word) {
            *nr += 1;
        }
    }
    answer.raw("<ul class=\"facts\">");
    for (word, nr) in hows.into_iter().filter(|(_, nr)| *nr > 0) {
        let word = if word == "none" { "not obtained" } else { word };
        answer.raw("<li>").element("b", &nr.to_string()).text(" ").text(word).raw("</li>");
    }
    answer.raw("</ul>");
    for (study, table, row) in surprises(&report.studies) {
        let text = format!("Unexpected direction: {study}: {}: {}", table.title, row.what);
        answer.element("p class=\"honest other-way-text\"", &text);
    }
    answer.element(
        "p class=\"honest\"",
        "A row counts if no input comes from its own series, it measures the published quantity, \
         and it does not compare zero with zero. Differences are shown unchanged, with the reason \
         if known.",
    );
    answer.element("p class=\"about\"", &format!("kernel {}", report.kernel));
    answer
}

pub(super) fn surprises(
    studies: &[Finding],
) -> impl Iterator<Item = (&str, &TableFinding, &RowFinding)> {
    studies.iter().flat_map(|finding| {
        finding.surprises().map(|(table, row)| (finding.study.as_str(), table, row))
    })
}

const COLOURS: [&str; 7] = ["equal", "near", "different", "apart", "toward", "skipped", "unknown"];

pub(super) fn overview(report: &StudyResult) -> Markup {
    let mut drawn = Vec::new();
    let columns: Vec<String> = CLASSES.iter().map(|class| class.title.to_owned()).collect();
    let mut table = table_head("Study", &columns);
    let with_rows = report.summary.iter().enumerate().filter(|(_, counts)| counts.nr_rows > 0);
    for (nr, summary) in with_rows {
        let parts = CLASSES.iter().zip(COLOURS).map(|(class, colour)| Part {
            class: colour.to_owned(),
            value: (class.of)(summary) as u64,
            tip: format!("{}: {} rows: {}", summary.study, (class.of)(summary), class.title),
        });
        let mut total = Markup::new();
        total.number(
            &format!("/summary/{nr}/nr_rows"),
            summary.nr_rows,
            &summary.nr_rows.to_string(),
        );
        total.text(" rows");
        drawn.push(Bar { label: summary.study.clone(), parts: parts.collect(), total });
        table.raw("<tr>").element("th scope=\"row\"", &summary.study);
        for class in &CLASSES {
            let (at, value) = (format!("/summary/{nr}/{}", class.key), (class.of)(summary));
            table.raw("<td>").number(&at, value, &value.to_string());
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    let mut picture = Markup::new();
    picture.raw("<ul class=\"legend\">");
    for (class, colour) in CLASSES.iter().zip(COLOURS) {
        picture.raw("<li><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">");
        picture.raw(&format!("<rect class=\"{colour}\" width=\"12\" height=\"12\"/></svg>"));
        picture.text(class.title).raw("</li>");
    }
    picture.raw("</ul>").append(&bars(&drawn));
    figure("Which rows count, and which match", &picture, &table)
}
