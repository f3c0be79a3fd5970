//! Short names for the cells in a result: anything that all cells share is named only once.

use largefolio_sim::kernel::{overrides, parts};
use largefolio_sim::machine::THIS;
use largefolio_sim::replay::Outcome;

use crate::figures::{self, size};

/// The words that distinguish a cell from the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    kernel: Option<String>,
    /// Edits that not every kernel has.
    edits: Vec<String>,
    machine: Option<String>,
    rest: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    pub(crate) cells: Vec<Label>,
    /// `altra, 4K pages`; empty without cells.
    pub(crate) common: String,
}

impl Label {
    /// The label in one line: `6.12+page=64K on altra, 64K pages`.
    pub(crate) fn name(&self) -> String {
        let kernel = self.kernel.iter().chain(&self.edits).map(String::as_str).collect::<String>();
        let cell = match (kernel.as_str(), &self.machine) {
            ("", Some(machine)) => machine.clone(),
            (kernel, None) => kernel.to_owned(),
            (kernel, Some(machine)) => format!("{kernel} on {machine}"),
        };
        let parts = Some(cell).filter(|cell| !cell.is_empty()).into_iter();
        parts.chain(self.rest.iter().cloned()).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let parts = self.kernel.iter().chain(&self.edits).chain(&self.machine).chain(&self.rest);
        parts.cloned().collect()
    }
}

impl Labels {
    pub(crate) fn new<'a>(rows: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let rows: Vec<&Outcome> = rows.into_iter().collect();
        let Some(first) = rows.first() else { return Self::default() };
        let is_one =
            |get: &dyn Fn(&Outcome) -> String| rows.iter().all(|row| get(row) == get(first));
        let page = |row: &Outcome| format!("{} pages", size(row.page_bytes));
        let one_kernel = is_one(&|row| row.kernel.clone());
        let one_machine = is_one(&|row| row.machine.clone());
        let one_page = is_one(&page);
        let shared = if one_kernel { Vec::new() } else { shared_edits(&rows) };
        let one_linked = is_one(&|row| row.linked.join(","));
        let one_memory = is_one(&|row| row.memory_bytes.to_string());
        let one_seed = is_one(&|row| row.seed.to_string());
        // Columns that differ in something else are named by that difference.
        let is_alike = one_machine && one_page && one_linked && one_memory && one_seed;
        let has_kernel = !one_kernel || is_alike;
        let cell = |row: &&Outcome| {
            let (base, edits) = parts(&row.kernel);
            let own = edits.iter().filter(|edit| !shared.contains(edit));
            let edits = own.map(|edit| format!("+{edit}"));
            let mut rest = Vec::new();
            if !one_page {
                rest.push(page(row));
            }
            if !one_linked {
                rest.push(format!("linked for {}", row.linked.join(", ")));
            }
            if !one_memory {
                rest.push(format!("{} memory", figures::bytes(row.memory_bytes)));
            }
            if !one_seed {
                rest.push(format!("seed {}", row.seed));
            }
            Label {
                kernel: has_kernel.then(|| base.to_owned()),
                edits: if has_kernel { edits.collect() } else { Vec::new() },
                machine: (!one_machine).then(|| machine(&row.machine)),
                rest,
            }
        };
        let mut common = Vec::new();
        if !has_kernel {
            common.push(first.kernel.clone());
        }
        if one_machine {
            common.push(machine(&first.machine));
        }
        if one_page {
            common.push(page(first));
        }
        common.extend(shared.iter().map(|edit| format!("+{edit}")));
        Self { cells: rows.iter().map(cell).collect(), common: common.join(", ") }
    }

    pub(crate) fn names<'a>(rows: impl IntoIterator<Item = &'a Outcome>) -> Vec<String> {
        Self::new(rows).cells.iter().map(Label::name).collect()
    }
}

pub(crate) fn machine(name: &str) -> String {
    if name == THIS { "this machine".to_owned() } else { name.to_owned() }
}

/// Returns the edits in force in every kernel, in the order of the first kernel. A later edit of
/// the same rule overrides an earlier one.
fn shared_edits(rows: &[&Outcome]) -> Vec<String> {
    let mut all = rows.iter().map(|row| parts(&row.kernel).1);
    let Some(first) = all.next() else { return Vec::new() };
    let others: Vec<_> = all.collect();
    let is_shared = |edit: &String| others.iter().all(|edits| is_in_force(edit, edits));
    first.iter().filter(|edit| is_in_force(edit, &first) && is_shared(edit)).cloned().collect()
}

fn is_in_force(edit: &String, edits: &[String]) -> bool {
    let Some(at) = edits.iter().rposition(|other| other == edit) else { return false };
    !edits[at + 1..].iter().any(|later| overrides(later, edit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, machine: &str) -> Outcome {
        let (kernel, machine) = (kernel.to_owned(), machine.to_owned());
        Outcome { kernel, machine, page_bytes: 4096, ..Outcome::default() }
    }

    fn names_and_common(rows: &[Outcome]) -> (Vec<String>, String) {
        (Labels::names(rows), Labels::new(rows).common)
    }

    #[test]
    fn what_all_cells_share_is_said_once() {
        let rows = [row("6.12", "altra"), row("7.2", "altra")];
        assert_eq!(
            names_and_common(&rows),
            (strings(&["6.12", "7.2"]), "altra, 4K pages".to_owned())
        );
        let rows = [row("6.12", "altra"), row("6.12", "zen4")];
        assert_eq!(
            names_and_common(&rows),
            (strings(&["altra", "zen4"]), "6.12, 4K pages".to_owned())
        );
        let rows = [row("6.12", "altra")];
        assert_eq!(names_and_common(&rows), (strings(&["6.12"]), "altra, 4K pages".to_owned()));
        assert_eq!(names_and_common(&[]), (Vec::new(), String::new()));
    }

    #[test]
    fn edits_of_every_kernel_are_said_once() {
        let rows = [row("6.12+thp=always+io=1M", "altra"), row("7.2+io=1M", "altra")];
        let common = "altra, 4K pages, +io=1M".to_owned();
        assert_eq!(names_and_common(&rows), (strings(&["6.12+thp=always", "7.2"]), common));
        // The whole name stays if nothing would be left of it.
        let rows = [row("7.2+io=1M", "altra"), row("7.2+io=1M", "zen4")];
        assert_eq!(
            names_and_common(&rows),
            (strings(&["altra", "zen4"]), "7.2+io=1M, 4K pages".to_owned())
        );
    }

    #[test]
    fn an_edit_that_a_later_one_overrides_is_not_common() {
        for (first, second) in [
            ("7.2+io=1M+thp=always", "7.2+io=1M+thp=always+thp=never"),
            ("7.2+io=1M+readahead=8M", "7.2+io=1M+readahead=8M+readahead_bytes=4096"),
            ("7.2+io=1M+policy=exec-order", "7.2+io=1M+policy=exec-order+policy=always-exec"),
        ] {
            let names = [first, second].map(|name| name.replace("+io=1M", ""));
            let expected = (names.to_vec(), "altra, 4K pages, +io=1M".to_owned());
            assert_eq!(names_and_common(&[row(first, "altra"), row(second, "altra")]), expected);
            let expected = (names.iter().rev().cloned().collect(), expected.1);
            assert_eq!(names_and_common(&[row(second, "altra"), row(first, "altra")]), expected);
        }
    }

    #[test]
    fn what_differs_stands_in_each_name() {
        let mut rows = [row("6.12", "altra"), row("7.2", "zen4")];
        rows[1].page_bytes = 64 << 10;
        rows[1].seed = 3;
        let names = ["6.12 on altra, 4K pages, seed 0", "7.2 on zen4, 64K pages, seed 3"];
        assert_eq!(names_and_common(&rows), (strings(&names), String::new()));
        let lines = ["7.2", "zen4", "64K pages", "seed 3"];
        assert_eq!(Labels::new(&rows).cells[1].lines(), strings(&lines));
    }

    fn strings(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|&word| word.to_owned()).collect()
    }
}
