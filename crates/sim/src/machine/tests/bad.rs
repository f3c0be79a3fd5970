//! Invalid machine files: the error messages and their lines.

use proptest::prelude::*;

use super::*;

/// More of a machine file: a level 2, a page-walk cache, and rates.
const MORE: &str = r#"
[[tlb.l2]]
name = "L2"
entries = 1280
ways = 5
sizes = "any"
source = "test"

[[tlb.walk_cache]]
name = "W"
level = "pmd"
entries = 32
ways = 4
source = "test"

[costs.clock]
value = 3
unit = "GHz"
source = "test"

[[costs.clear]]
size = "4K"
gb_per_s = 10
source = "test"

[[costs.clear]]
size = "2M"
gb_per_s = 17.5
source = "test"

[costs.elision]
from = "32M"
source = "test"
"#;

/// Up to three bytes with a meaning in TOML.
const BYTES: &str = "[-0-9a-zA-Z\"\\[\\]{}=.#\n ]{0,3}";

const L2: &str = "\n[[tlb.l2]]\nname=\"x\"\nentries=65536\nways=1\nsizes=\"any\"\nsource=\"s\"";

fn load(text: &str) -> Result<Machine, String> {
    Machine::from_toml(text, "f").map_err(|error| error.to_string())
}

fn message_of(from: &str, to: &str) -> String {
    let whole = format!("{GOOD}{MORE}");
    assert!(whole.contains(from), "{from}");
    load(&whole.replacen(from, to, 1)).expect_err(to)
}

#[test]
fn the_file_that_the_tables_change_is_good() {
    let machine = load(&format!("{GOOD}{MORE}")).unwrap();
    let sizes: Vec<u64> = machine.costs.clear.iter().map(|rate| rate.size.0).collect();
    assert_eq!(sizes, [4096, 2 << 20]);
    assert_eq!(String::from(machine.costs.clear[1].size), "2M");
}

#[derive(serde::Deserialize)]
struct Case {
    from: String,
    to: String,
    says: String,
}

#[test]
fn every_wrong_file_is_answered_with_file_line_and_expected_form() {
    #[derive(serde::Deserialize)]
    struct Cases {
        case: Vec<Case>,
    }
    let cases: Cases = toml::from_str(include_str!("bad.toml")).unwrap();
    assert!(cases.case.len() > 40);
    let mut wrong = Vec::new();
    for Case { from, to, says } in cases.case {
        let message = message_of(&from, &to);
        if message != says {
            wrong.push(format!("expected {says}\n     got {message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(load("").unwrap_err().contains("missing field `name`"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(300)))]

    /// Deletes, doubles, swaps and damages lines of a good file. The parser never panics, and an
    /// error names an existing line.
    #[test]
    fn a_damaged_file_is_refused_with_a_line_or_is_a_machine(
        edits in proptest::collection::vec((0_usize..70, 0_u8..6, any::<u16>()), 1..6),
    ) {
        let mut lines: Vec<String> =
            format!("{GOOD}{MORE}").lines().map(str::to_owned).collect();
        for (at, kind, number) in edits {
            let at = at % lines.len();
            let key = lines[at].split('=').next().unwrap_or_default().to_owned();
            match kind {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines[at] = format!("{key}= {number}"),
                3 => lines[at] = format!("{key}= -{number}.5e{}", number % 400),
                4 => lines[at] = format!("{key}= [\"{number}K\"]"),
                _ => {
                    let to = usize::from(number) % lines.len();
                    lines.swap(at, to);
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        check(&lines.join("\n"))?;
    }

    #[test]
    fn replaced_bytes_are_refused_with_a_line_or_are_a_machine(
        edits in proptest::collection::vec((any::<u16>(), BYTES), 1..8),
    ) {
        let mut text = format!("{GOOD}{MORE}");
        for (at, with) in edits {
            let at = usize::from(at) % text.len();
            text.replace_range(at..=at, &with);
        }
        check(&text)?;
    }
}

fn check(text: &str) -> Result<(), TestCaseError> {
    match Machine::from_toml(text, "f") {
        Ok(machine) => {
            for &page in &machine.page_sizes {
                let _ = Tlb::new(&machine.tlb, page);
            }
        }
        Err(error) => {
            let message = error.to_string();
            let line = message.split(':').nth(1).and_then(|line| line.parse::<usize>().ok());
            let nr_lines = text.lines().count().max(1) + 1;
            prop_assert!(line.is_some_and(|line| (1..=nr_lines).contains(&line)), "{}", message);
        }
    }
    Ok(())
}

#[test]
fn nesting_and_length_are_bounded() {
    let deep = format!("name = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(load(&deep).is_err());
    let wide = format!("{GOOD}{}", L2.repeat(2_000));
    assert!(load(&wide).unwrap_err().ends_with("2000 structures are more than the supported 8"));
}
