//! A group of table lines before layout.
//!
//! A line has a value for each cell and at most one derived number (a share, a rate). Lines that
//! are zero in every cell are hidden.

use crate::figures::{self, Scale};

/// A number derived from a value and shown next to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Proportion {
    None,
    /// The share of the given total, one total per cell.
    Share(Vec<u64>),
    /// The rate per million of the given total, one total per cell.
    PerMillion(Vec<u64>),
}

/// A line's values, one per cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    /// In the section's unit.
    Bytes(Vec<u64>),
    /// Each in the unit that suits it.
    Counts(Vec<u64>),
    Ratios(Vec<(u64, u64)>),
    /// Parts and totals, shown in percent.
    Shares(Vec<(u64, u64)>),
    /// Nanoseconds, in the section's unit; `None`: not known.
    Times(Vec<Option<u64>>),
    /// Literal text; may be empty.
    Texts(Vec<String>),
}

const NOT_KNOWN: &str = "not known";

impl Values {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes(values) | Self::Counts(values) => values.len(),
            Self::Ratios(values) | Self::Shares(values) => values.len(),
            Self::Times(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    const fn has_section_unit(&self) -> bool {
        matches!(self, Self::Bytes(_) | Self::Times(_))
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Times(values) => values.iter().all(|&value| value == Some(0)),
            Self::Bytes(values) | Self::Counts(values) => values.iter().all(|&value| value == 0),
            Self::Ratios(values) | Self::Shares(values) => {
                values.iter().all(|&(part, _)| part == 0)
            }
            Self::Texts(values) => values.iter().all(String::is_empty),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct SectionLine {
    label: String,
    values: Values,
    proportion: Proportion,
}

impl SectionLine {
    pub(super) fn bytes(label: impl Into<String>, values: Vec<u64>) -> Self {
        Self { label: label.into(), values: Values::Bytes(values), proportion: Proportion::None }
    }

    pub(super) fn counts(label: impl Into<String>, values: Vec<u64>) -> Self {
        Self { label: label.into(), values: Values::Counts(values), proportion: Proportion::None }
    }

    pub(super) fn ratios(label: impl Into<String>, values: Vec<(u64, u64)>) -> Self {
        Self { label: label.into(), values: Values::Ratios(values), proportion: Proportion::None }
    }

    pub(super) fn shares(label: impl Into<String>, values: Vec<(u64, u64)>) -> Self {
        Self { label: label.into(), values: Values::Shares(values), proportion: Proportion::None }
    }

    pub(super) fn times(label: impl Into<String>, values: Vec<Option<u64>>) -> Self {
        Self { label: label.into(), values: Values::Times(values), proportion: Proportion::None }
    }

    pub(super) fn texts(label: impl Into<String>, values: Vec<String>) -> Self {
        Self { label: label.into(), values: Values::Texts(values), proportion: Proportion::None }
    }

    pub(super) fn with_shares_of(mut self, wholes: &[u64]) -> Self {
        self.proportion = Proportion::Share(wholes.to_vec());
        self
    }

    pub(super) fn with_rates_of(mut self, wholes: &[u64]) -> Self {
        self.proportion = Proportion::PerMillion(wholes.to_vec());
        self
    }

    fn show(&self, scale: Scale) -> Shown {
        let (unit, entries) = match &self.values {
            Values::Bytes(values) => {
                (scale.name, values.iter().map(|&value| scale.show(value)).collect::<Vec<_>>())
            }
            Values::Counts(values) => {
                let scale = Scale::of_counts(values.iter().copied().max().unwrap_or(0));
                (scale.name, values.iter().map(|&value| scale.show(value)).collect())
            }
            Values::Ratios(values) => {
                let show = |&(part, whole): &(u64, u64)| match whole {
                    0 => String::new(),
                    _ => format!("{:.2}", figures::ratio(part, whole)),
                };
                ("", values.iter().map(show).collect())
            }
            Values::Shares(values) => {
                let show = |&(part, whole): &(u64, u64)| match part {
                    0 => "0%".to_owned(),
                    _ => figures::percent(part, whole),
                };
                ("", values.iter().map(show).collect())
            }
            Values::Times(values) => {
                let show = |ns: &Option<u64>| ns.map_or(NOT_KNOWN.to_owned(), |ns| scale.show(ns));
                (scale.name, values.iter().map(show).collect())
            }
            Values::Texts(values) => ("", values.clone()),
        };
        let entries = (0..).zip(entries).map(|(cell, value)| self.entry(cell, value)).collect();
        Shown { label: self.label.clone(), unit, entries, is_heading: false }
    }

    fn entry(&self, cell: usize, value: String) -> Entry {
        let proportion = match (&self.values, &self.proportion) {
            (Values::Bytes(values) | Values::Counts(values), Proportion::Share(wholes)) => {
                figures::percent(values[cell], wholes[cell])
            }
            (Values::Bytes(values) | Values::Counts(values), Proportion::PerMillion(wholes)) => {
                figures::per_million(values[cell], wholes[cell])
            }
            _ => String::new(),
        };
        Entry { value, proportion, change: self.change(cell) }
    }

    /// Formats the change of `cell` from cell 0: shares in points, everything else relative.
    fn change(&self, cell: usize) -> String {
        let share = |values: &[u64], wholes: &[u64], cell: usize| {
            100.0 * figures::ratio(values[cell], wholes[cell])
        };
        match (&self.values, &self.proportion) {
            (Values::Bytes(values) | Values::Counts(values), Proportion::Share(wholes)) => {
                figures::change_of_shares(share(values, wholes, 0), share(values, wholes, cell))
            }
            (Values::Bytes(values) | Values::Counts(values), _) => {
                figures::change(figures::ratio(values[0], 1), figures::ratio(values[cell], 1))
            }
            (Values::Ratios(values), _) => {
                let ratio = |cell: usize| figures::ratio(values[cell].0, values[cell].1);
                figures::change(ratio(0), ratio(cell))
            }
            (Values::Shares(values), _) => {
                let share = |cell: usize| 100.0 * figures::ratio(values[cell].0, values[cell].1);
                figures::change_of_shares(share(0), share(cell))
            }
            (Values::Times(values), _) => match (values[0], values[cell]) {
                (Some(before), Some(now)) => {
                    figures::change(figures::ratio(before, 1), figures::ratio(now, 1))
                }
                _ => String::new(),
            },
            (Values::Texts(_), _) => String::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Section {
    title: &'static str,
    lines: Vec<SectionLine>,
}

impl Section {
    pub(super) fn new(title: &'static str, lines: Vec<SectionLine>) -> Self {
        Self { title, lines }
    }

    /// Formats heading and lines; empty if every line is zero.
    pub(super) fn show(&self) -> Vec<Shown> {
        let lines: Vec<&SectionLine> =
            self.lines.iter().filter(|line| !line.values.is_zero()).collect();
        let Some(first) = lines.first() else { return Vec::new() };
        let nr_cells = first.values.len();
        let scale = scale(&self.lines);
        let mut shown = vec![self.heading(&lines, scale, nr_cells)];
        let has_one_unit = lines.iter().all(|line| line.values.has_section_unit());
        shown.extend(lines.iter().map(|line| {
            let mut shown = line.show(scale);
            if has_one_unit {
                shown.unit = "";
            }
            shown
        }));
        shown
    }

    pub(super) fn show_mixed(&self) -> Vec<Shown> {
        let lines: Vec<&SectionLine> =
            self.lines.iter().filter(|line| !line.values.is_zero()).collect();
        let Some(first) = lines.first() else { return Vec::new() };
        let entry = Entry { change: "change".to_owned(), ..Entry::default() };
        let entries = vec![entry; first.values.len()];
        let heading = Shown { label: self.title.to_owned(), unit: "", entries, is_heading: true };
        let lines = lines.into_iter().map(|line| line.show(scale(std::slice::from_ref(line))));
        std::iter::once(heading).chain(lines).collect()
    }

    fn heading(&self, lines: &[&SectionLine], scale: Scale, nr_cells: usize) -> Shown {
        let has_one_unit = lines.iter().all(|line| line.values.has_section_unit());
        let proportion =
            match lines.iter().map(|line| &line.proportion).find(|a| **a != Proportion::None) {
                Some(Proportion::Share(_)) => "share",
                Some(Proportion::PerMillion(_)) => "/M refs",
                Some(Proportion::None) | None => "",
            };
        let entry = Entry {
            value: if has_one_unit { scale.name } else { "" }.to_owned(),
            proportion: proportion.to_owned(),
            change: "change".to_owned(),
        };
        let entries = vec![entry; nr_cells];
        Shown { label: self.title.to_owned(), unit: "", entries, is_heading: true }
    }
}

fn scale(lines: &[SectionLine]) -> Scale {
    let values = |line: &SectionLine| match &line.values {
        Values::Bytes(values) => values.iter().copied().max(),
        Values::Times(values) => values.iter().flatten().copied().max(),
        Values::Counts(_) | Values::Ratios(_) | Values::Shares(_) | Values::Texts(_) => None,
    };
    let max = lines.iter().filter_map(values).max().unwrap_or(0);
    match lines.iter().map(|line| &line.values).find(|values| values.has_section_unit()) {
        Some(Values::Times(_)) => Scale::of_ns(max),
        _ => Scale::of_bytes(max),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) value: String,
    pub(crate) proportion: String,
    pub(crate) change: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    label: String,
    unit: &'static str,
    pub(crate) entries: Vec<Entry>,
    pub(crate) is_heading: bool,
}

impl Shown {
    pub(crate) fn label(&self) -> String {
        match (self.is_heading, self.unit) {
            (true, _) => self.label.clone(),
            (false, "") => format!("  {}", self.label),
            (false, unit) => format!("  {}, {unit}", self.label),
        }
    }
}
