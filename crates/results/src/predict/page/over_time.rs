//! Faults and bytes read over the trace: one small picture per cell, all on one scale.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::Bucket;

use crate::figures::{self, Scale, ratio};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::predict::labels::Labels;

const NR_LINES: usize = 20;

struct Series {
    title: &'static str,
    class: &'static str,
    get: fn(&Bucket) -> u64,
    is_bytes: bool,
}

const SERIES: [Series; 2] = [
    Series { title: "Faults", class: "faults", get: |bucket| bucket.faults, is_bytes: false },
    Series {
        title: "Read from files",
        class: "reads",
        get: |bucket| bucket.read_bytes,
        is_bytes: true,
    },
];

pub(super) fn figures(rows: &[Outcome]) -> Option<Markup> {
    let names = Labels::names(rows);
    let cells: Vec<(usize, &str, &[Bucket])> = (0..)
        .zip(rows)
        .zip(&names)
        .filter_map(|((nr, row), name)| Some((nr, name.as_str(), &*row.detail.as_ref()?.buckets)))
        .collect();
    if cells.is_empty() {
        return None;
    }
    let mut body = Markup::new();
    for series in SERIES {
        body.append(&figure(series.title, &picture(&cells, &series), &table(&cells, &series)));
    }
    Some(body)
}

type Cell<'a> = (usize, &'a str, &'a [Bucket]);

fn shown(series: &Series, value: u64) -> String {
    if series.is_bytes { figures::bytes(value) } else { figures::count(value) }
}

fn picture(cells: &[Cell<'_>], series: &Series) -> Markup {
    let buckets = cells.iter().flat_map(|(_, _, buckets)| buckets.iter());
    let max = buckets.map(series.get).max().unwrap_or(0);
    let mut picture = Markup::new();
    picture.raw("<div class=\"multiples\">");
    for &(nr, name, buckets) in cells {
        let sum: u64 = buckets.iter().map(series.get).sum();
        picture.raw("<div class=\"multiple\">").element("span class=\"name\"", name);
        picture.element("span class=\"total\"", &shown(series, sum));
        picture.raw(&format!(
            "<svg class=\"time\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\" \
             data-row=\"{nr}\" data-series=\"{}\">",
            buckets.len(),
            series.class
        ));
        picture.element("title", &format!("{} over the trace under {name}", series.title));
        let mut path = String::new();
        for (x, value) in buckets.iter().map(series.get).enumerate().filter(|(_, v)| *v > 0) {
            let height = (100.0 * ratio(value, max)).max(1.0);
            let drawn = format!("M{x} 100v-{height:.1}h1v{height:.1}z");
            path.push_str(&drawn);
        }
        picture.raw(&format!("<path class=\"{}\" d=\"{path}\"/></svg></div>", series.class));
    }
    picture.raw("</div>\n");
    let of = format!(
        "Left to right: the trace, in {} parts with equal numbers of references. Full height: {} \
         in one part.",
        cells.first().map_or(0, |(_, _, buckets)| buckets.len()),
        shown(series, max)
    );
    picture.element("p class=\"note\"", &of);
    picture
}

fn table(cells: &[Cell<'_>], series: &Series) -> Markup {
    let names: Vec<String> = cells.iter().map(|(_, name, _)| (*name).to_owned()).collect();
    let nr_buckets = cells.iter().map(|(_, _, buckets)| buckets.len()).max().unwrap_or(0);
    let per_line = nr_buckets.div_ceil(NR_LINES).max(1);
    let sum = |buckets: &[Bucket], first: usize| {
        let part = buckets.iter().skip(first).take(per_line);
        part.map(series.get).sum::<u64>()
    };
    let firsts = || (0..nr_buckets).step_by(per_line);
    let sums = cells.iter().flat_map(|(_, _, b)| firsts().map(|first| sum(b, first)));
    let scale = match (series.is_bytes, sums.max().unwrap_or(0)) {
        (true, max) => Scale::of_bytes(max),
        (false, max) => Scale::of_counts(max),
    };
    let mut table = table_head(&format!("References {}", scale.name), &names);
    for first in firsts() {
        let percent = |bucket: usize| 100 * bucket / nr_buckets.max(1);
        let part = format!("{}% - {}%", percent(first), percent(first + per_line));
        table.raw("<tr>").element("th scope=\"row\"", &part);
        for (_, _, buckets) in cells {
            table.element("td", &scale.show(sum(buckets, first)));
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}
