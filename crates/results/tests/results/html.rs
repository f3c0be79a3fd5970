//! The page as text: complete without scripts, safe, and with the JSON's numbers.

use largefolio_results::predict::PredictResult;
use largefolio_sim::replay::Outcome;
use largefolio_testkit::skeleton::{between, skeleton};
use serde_json::Value;

use super::support::{HOSTILE, generated, hostile, html};

const TWO: [(&str, &str); 2] = [("6.12", "altra"), ("7.2", "altra")];

#[test]
fn the_page_has_this_skeleton() {
    let page = skeleton(&html(&generated(&[("6.12", "altra")])));
    insta::assert_snapshot!(page);
}

#[test]
fn the_data_of_the_page_are_the_json() {
    let report = generated(&TWO);
    let page = html(&report);
    let data = between(&page, "id=\"result\">", "</script>");
    let data: Value = serde_json::from_str(data[0]).unwrap();
    assert_eq!(data, serde_json::to_value(&report).unwrap());
}

#[test]
fn marked_numbers_are_those_of_the_json() {
    let report = generated(&[("6.12", "altra"), ("7.2", "grace-64k"), ("6.18", "altra")]);
    let json = serde_json::to_value(&report).unwrap();
    let page = html(&report);
    let marked = between(&page, "<data value=\"", "\">");
    assert!(marked.len() > 100, "{} numbers are marked", marked.len());
    for number in marked {
        let (value, at) = number.split_once("\" data-at=\"").unwrap();
        let expected = json.pointer(at).unwrap_or_else(|| panic!("nothing at {at}"));
        let expected = expected.as_f64().unwrap();
        assert!((value.parse::<f64>().unwrap() - expected).abs() < 1e-9, "{at}: {value}");
    }
}

#[test]
fn every_picture_has_a_table_and_no_script_draws() {
    let page = html(&generated(&TWO));
    let (body, _) = page.split_once("<script").unwrap();
    let figures = between(body, "<figure", "</figure>");
    assert!(figures.len() > 10, "{} figures", figures.len());
    for figure in figures {
        assert!(figure.contains("<svg") && figure.contains("<table"), "{figure}");
        assert!(figure.contains("<rect") || figure.contains("<path"), "{figure}");
    }
}

#[test]
fn a_curve_has_a_line_for_each_kernel_and_dots_where_the_machine_stands() {
    let report = generated(&[("6.12", "altra"), ("7.2", "altra"), ("7.2", "grace-64k")]);
    let page = html(&report);
    let charts = between(&page, "<svg class=\"curve\"", "</svg>");
    assert_eq!(charts.len(), 4, "two machines, two sides");
    let nr = |chart: &str, what: &str| chart.matches(what).count();
    let lines: Vec<usize> = charts.iter().map(|c| nr(c, "<path class=\"line")).collect();
    assert_eq!(lines, [2, 1, 2, 1]);
    for chart in charts {
        assert_eq!(nr(chart, "<circle"), 2 * nr(chart, "<path class=\"line"), "level 1 and 2");
        assert!(chart.contains("L1: ") && chart.contains("L2: ") && !chart.contains("NaN"));
    }
    for (nr, row) in report.rows.iter().enumerate() {
        let curve = &row.detail.as_ref().unwrap().tlb_curve;
        for (side, points) in [("instruction", &curve.instruction), ("data", &curve.data)] {
            let at = points.iter().position(|point| point.entries == 1024).unwrap();
            let number = format!(
                "<data value=\"{}\" data-at=\"/rows/{nr}/detail/tlb_curve/{side}/{at}/1\">",
                points[at].misses
            );
            assert!(page.contains(&number), "{number}");
        }
    }
}

#[test]
fn refusals_are_bars_with_reasons_and_their_table() {
    let mut report = generated(&TWO);
    report.rows[0].pmd_refused.insert("misaligned", 7);
    report.rows[1].pmd_refused.insert("misaligned", 2);
    report.rows[1].collapse.refused.insert("exceed_none_pte", 3);
    report.rows[1].writers.drops = 1;
    let page = html(&report);
    let (_, section) = page.split_once("<section id=\"refusals\">").unwrap();
    let (section, _) = section.split_once("</section>").unwrap();
    assert_eq!(between(section, "<figure>", "</figure>").len(), 3 + was_refused(&report));
    for part in [
        "congruent address",
        "too many pages in the range are empty",
        "data-tip=\"misaligned: 7\"",
        "<data value=\"7\" data-at=\"/rows/0/pmd_refused/misaligned\">7</data>",
        "<data value=\"3\" data-at=\"/rows/1/collapse/refused/exceed_none_pte\">3</data>",
        "<data value=\"1\" data-at=\"/rows/1/writers/drops\">1</data>",
    ] {
        assert!(section.contains(part), "{part} is not in {section}");
    }
}

fn was_refused(report: &PredictResult) -> usize {
    let gated = report.rows.iter().any(|row| row.reads.gated > 0);
    let short = |row: &Outcome| {
        row.reads.large_folio_fallback > 0
            || row.anon_sizes.values().any(|size| size.anon_fault_fallback > 0)
    };
    usize::from(gated) + usize::from(report.rows.iter().any(short))
}

#[test]
fn a_strip_says_in_its_table_who_caused_the_folios() {
    let page = html(&generated(&TWO));
    assert!(page.contains("caused by: first touch</th>"), "private memory");
    assert!(page.contains("caused by: instruction fault</th>"), "text");
}

#[test]
fn the_page_names_nothing_outside_itself() {
    let page = html(&generated(&TWO));
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
    let (head, _) = page.split_once("<main>").unwrap();
    let (_, script) = page.rsplit_once("</script>\n<script>").unwrap();
    for outside in ["src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!head.contains(outside) && !script.contains(outside), "{outside}");
    }
}

#[test]
fn hostile_names_are_text() {
    let page = html(&hostile());
    let (body, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    assert!(!body.contains("<img") && !body.contains("<script"), "a name became an element");
    assert!(!body.contains(['\u{1b}', '\u{202e}', '\u{0}']), "a control character came through");
    assert_eq!(rest.matches("</script>").count(), 2, "a name ended the data");
    assert_eq!(rest.matches("<script").count(), 1, "a name began a script");
    let data = between(&page, "id=\"result\">", "</script>");
    let data: Value = serde_json::from_str(data[0]).unwrap();
    assert_eq!(data["trace"]["path"], HOSTILE);
}

#[test]
fn one_cell_and_none_are_pages_too() {
    let one = html(&generated(&[("6.12", "grace-4k")]));
    assert!(one.contains("<p class=\"answer\">With 6.12, "), "nothing to compare with");
    let mut report = generated(&TWO);
    report.rows.clear();
    assert!(html(&report).contains("The result has no rows."));
}

#[test]
fn without_detail_the_page_has_no_strips() {
    let mut report = generated(&TWO);
    for row in &mut report.rows {
        row.detail = None;
    }
    let page = html(&report);
    assert!(!page.contains("id=\"places\"") && page.contains("id=\"sizes\""));
}

#[test]
fn the_same_result_gives_the_same_page() {
    assert_eq!(html(&generated(&TWO)), html(&generated(&TWO)));
}
