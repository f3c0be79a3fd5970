//! Formats a comparison's sentences and numbers.

use crate::figures;
use largefolio_linux::measure::bootstrap::Interval;
use largefolio_linux::verify::proof::Dropped;
use largefolio_linux::verify::rounds::NR_ROUNDS_MIN;
use largefolio_linux::verify::threshold::Undecided;
use largefolio_linux::verify::verdict::Doubt;

const NR_NAMED: usize = 8;

pub(super) fn is_time(metric: &str) -> bool {
    ["wall", "user", "system", "server user", "server system"].contains(&metric)
}

/// `wall time`, `tps`.
pub(super) fn metric_name(metric: &str) -> String {
    if is_time(metric) { format!("{metric} time") } else { metric.to_owned() }
}

pub(super) fn rounds_needed(nr_rounds: Option<usize>) -> String {
    match nr_rounds {
        Some(nr) => format!("at least {nr} rounds are needed to decide (--runs {nr})"),
        None => "a decision takes more rounds than is practical; longer runs on a quieter machine \
                 need fewer rounds"
            .to_owned(),
    }
}

/// Names an interval's ends. With fewer than six rounds they are the smallest and largest
/// value, which contain the median with less than 95% probability (five rounds: 94%, three: 75%).
pub(super) fn interval(nr_rounds: usize) -> &'static str {
    if nr_rounds < 6 { "range" } else { "95% interval" }
}

pub(super) fn no_ratio(nr_rounds: usize) -> &'static str {
    if nr_rounds < 3 { "no ratio: too few rounds" } else { "no ratio: 0 in plain runs" }
}

pub(super) fn undecided_reason(why: Undecided, ratio: Option<&Interval>) -> String {
    match (why, ratio) {
        (Undecided::FewRounds { nr: 0 }, _) => {
            "no round has a value for it in both runs".to_owned()
        }
        (Undecided::FewRounds { nr }, _) => {
            format!("{nr} rounds have a value for it, but {NR_ROUNDS_MIN} are needed")
        }
        (Undecided::Inside, Some(ratio)) if ratio.high.is_infinite() => {
            "the value is 0 in plain runs and larger in changed runs: the ratio has no upper \
             limit"
                .to_owned()
        }
        (Undecided::Inside, _) => "the interval contains the limit; use more --runs".to_owned(),
    }
}

/// `12.3 ms [11.9 .. 14.0]`, median first.
pub(super) fn spread(unit: &str, values: [f64; 3]) -> String {
    let (divisor, unit, digits) = match (unit, values[0]) {
        ("ns", large) if large >= 1e9 => (1e9, " s".to_owned(), 2),
        ("ns", _) => (1e6, " ms".to_owned(), 2),
        ("bytes", _) => (f64::from(1 << 20), " MiB".to_owned(), 1),
        ("faults", _) => (1.0, String::new(), 0),
        (unit, value) => {
            let digits = if value >= 1000.0 { 0 } else { 3 };
            (1.0, if unit.is_empty() { String::new() } else { format!(" {unit}") }, digits)
        }
    };
    let [median, min, max] = values.map(|value| value / divisor);
    format!("{median:.digits$}{unit} [{min:.digits$} .. {max:.digits$}]")
}

pub(super) fn dropped(nr_rounds: usize, all: &[Dropped]) -> Option<String> {
    let mut reasons: Vec<(&str, Vec<usize>)> = Vec::new();
    for Dropped { nr, why } in all {
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, nrs)) => nrs.push(*nr),
            None => reasons.push((why, vec![*nr])),
        }
    }
    let of = |(why, nrs): &(&str, Vec<usize>)| {
        let named: Vec<String> = nrs.iter().take(NR_NAMED).map(usize::to_string).collect();
        let more = if nrs.len() > NR_NAMED { ", .." } else { "" };
        let word = if nrs.len() == 1 { "round" } else { "rounds" };
        format!("{why} ({word} {}{more})", named.join(", "))
    };
    let reasons: Vec<String> = reasons.iter().map(of).collect();
    (!all.is_empty()).then(|| {
        format!(
            "{} of {nr_rounds} rounds do not count because the change did not take effect in \
             them: {}",
            figures::grouped(all.len() as u64),
            reasons.join("; ")
        )
    })
}

pub(super) fn warning(doubt: &Doubt) -> String {
    match doubt {
        Doubt::FewRounds { nr } => {
            format!("{nr} rounds are too few for a reliable interval; use --runs 20")
        }
        Doubt::Noise { part } => format!(
            "the middle half of the plain runs spreads over {:.0}% of their median: end other \
             programs, or run more rounds (--runs, --time)",
            100.0 * part
        ),
        Doubt::Drift { ratio } => format!(
            "the machine drifts: the second half of the plain runs took {ratio:.2} times as long \
             as the first; ratios within a round still hold, but times do not. A longer --time \
             helps"
        ),
        Doubt::Short { wall_ns } => format!(
            "a run takes {:.1} ms, most of which starts the process; give the command more work",
            wall_ns / 1e6
        ),
        Doubt::Stopped { nr } => {
            format!("stopped by a signal, or at the end of --within, after {nr} rounds")
        }
        Doubt::LeftRunning { name, nr_runs } => format!(
            "the command ended and left {name} running in {nr_runs} runs: folio killed {name} and \
             did not measure what it did after that. To measure a server, start it with --server \
             and pass its load generator as the command"
        ),
        Doubt::NoTrace { is_looked: true } => {
            "folios and faults are the same with and without the change, except for noise; the \
             change may not have taken effect"
                .to_owned()
        }
        Doubt::NoTrace { is_looked: false } => {
            "folios were not checked, and faults are the same with and without the change, except \
             for noise; the change may not have taken effect"
                .to_owned()
        }
        Doubt::NotLooked { part, nr } => format!(
            "memory and folios were sampled in {nr} rounds, because a sample takes {:.0}% of a run \
             and more than 2% would disturb it. Their values come from one extra untimed run of \
             each arm; --metric memory compares them in every round",
            100.0 * part
        ),
        Doubt::Unlike { nr } => format!(
            "the change shows in folios or faults, but in {nr} rounds it does not show or shows \
             less than in the others; all rounds count"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_rounds_are_listed_by_reason() {
        let one = |nr, why: &str| Dropped { nr, why: why.to_owned() };
        assert_eq!(dropped(20, &[]), None);
        let text = dropped(20, &[one(2, "a"), one(4, "b"), one(9, "a")]).unwrap();
        assert!(text.starts_with("3 of 20 rounds do not count"), "{text}");
        assert!(text.ends_with(": a (rounds 2, 9); b (round 4)"), "{text}");
        let many: Vec<Dropped> = (1..=20).map(|nr| one(nr, "a")).collect();
        assert!(dropped(20, &many).unwrap().ends_with("7, 8, ..)"));
    }

    #[test]
    fn few_rounds_have_a_range_instead_of_an_interval() {
        assert_eq!([3, 5, 6, 20].map(interval), ["range", "range", "95% interval", "95% interval"]);
    }

    #[test]
    fn a_missing_ratio_has_a_cause() {
        assert_eq!([2, 3].map(no_ratio), ["no ratio: too few rounds", "no ratio: 0 in plain runs"]);
    }

    #[test]
    fn an_undecided_limit_has_a_reason() {
        let few = |nr| undecided_reason(Undecided::FewRounds { nr }, None);
        assert_eq!(few(0), "no round has a value for it in both runs");
        assert_eq!(few(7), "7 rounds have a value for it, but 10 are needed");
        let inside = |high| {
            let ratio = Interval { median: 1.0, low: 1.0, high, n: 20 };
            undecided_reason(Undecided::Inside, Some(&ratio))
        };
        assert!(inside(1.5).contains("use more --runs"));
        assert!(inside(f64::INFINITY).starts_with("the value is 0 in plain runs"));
    }

    #[test]
    fn numbers_have_their_unit() {
        assert_eq!(spread("ns", [2e6, 1e6, 3e6]), "2.00 ms [1.00 .. 3.00]");
        assert_eq!(spread("bytes", [1_048_576.0; 3]), "1.0 MiB [1.0 .. 1.0]");
        assert_eq!(spread("/s", [1234.5, 1.0, 2000.0]), "1234 /s [1 .. 2000]");
        assert_eq!(spread("", [0.25; 3]), "0.250 [0.250 .. 0.250]");
    }
}
