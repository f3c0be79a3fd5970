//! The wording of remedies, and the choice of the leading one; both are the same in text, pages and
//! advice.

use crate::figures;
use largefolio_linux::remedies::{Remedy, Restart};

/// Returns the remedy that an answer begins with, and its subject. A remedy that mostly adds new
/// memory does not lead, and neither does one with less than half of the largest gain.
pub(crate) fn leading<'a, T>(
    remedies: impl Iterator<Item = (T, &'a Remedy)>,
) -> Option<(T, &'a Remedy)> {
    let (mut best, mut most_bytes) = (None, 0);
    for (of, remedy) in remedies.filter(|(_, remedy)| remedy.is_some()) {
        let bytes = remedy.present_bytes();
        most_bytes = most_bytes.max(bytes);
        let is_most =
            best.as_ref().is_none_or(|(_, best): &(T, &Remedy)| bytes >= best.present_bytes());
        if bytes > remedy.gain_bytes / 2 && is_most {
            best = Some((of, remedy));
        }
    }
    best.filter(|(_, remedy)| remedy.present_bytes() >= most_bytes / 2)
}

/// Says how much memory the remedy takes: empty, or one or two parts of a sentence.
pub(crate) fn takes(remedy: &Remedy) -> Vec<String> {
    // The program may touch more memory after its next start.
    let is_now = remedy.restart == Restart::None;
    let takes = if is_now { "takes up to" } else { "takes at least" };
    let extra = (takes, remedy.extra_bytes, "more memory");
    let read = ("reads", remedy.swapped_in_bytes, "back from swap");
    let parts = [extra, read].into_iter().filter(|(_, bytes, _)| *bytes > 0);
    parts.map(|(verb, bytes, what)| format!("{verb} {} {what}", figures::bytes(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use largefolio_linux::remedies::{Action, Scope};

    use super::*;

    fn remedy(restart: Restart, gain_mib: u64, extra_mib: u64, swapped_mib: u64) -> Remedy {
        Remedy {
            action: Action::Option,
            scope: Scope::Program,
            command: String::new(),
            start: String::new(),
            restart,
            gain_bytes: gain_mib << 20,
            folio_bytes: 2 << 20,
            extra_bytes: extra_mib << 20,
            swapped_in_bytes: swapped_mib << 20,
            undo: String::new(),
            cost: String::new(),
        }
    }

    #[test]
    fn mostly_new_memory_does_not_lead() {
        let all = [(80, 60, 0), (50, 10, 5), (30, 0, 0), (90, 0, 50)];
        let all = all.map(|(gain, extra, read)| remedy(Restart::After, gain, extra, read));
        assert_eq!(leading(all.iter().enumerate()).map(|(nr, _)| nr), Some(1));
        assert_eq!(leading(all[..1].iter().enumerate()), None);
        let small = [(200, 101, 0), (1, 0, 0)];
        let small = small.map(|(gain, extra, read)| remedy(Restart::None, gain, extra, read));
        assert_eq!(leading(small.iter().enumerate()), None, "1 MiB out of 201 MiB is not most");
        let nothing = Remedy { action: Action::Nothing, ..all[2].clone() };
        assert_eq!(leading([(0, &nothing)].into_iter()), None);
    }

    #[test]
    fn the_memory_after_a_new_start_is_a_lower_bound() {
        assert_eq!(takes(&remedy(Restart::None, 8, 0, 0)), [""; 0]);
        let now = ["takes up to 2 MiB more memory", "reads 1 MiB back from swap"];
        assert_eq!(takes(&remedy(Restart::None, 8, 2, 1)), now);
        assert_eq!(takes(&remedy(Restart::After, 8, 2, 0)), ["takes at least 2 MiB more memory"]);
    }
}
