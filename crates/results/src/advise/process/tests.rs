use largefolio_linux::remedies::{Action, Scope};

use super::*;

const MIB: u64 = 1 << 20;

fn remedy(command: &str, restart: Restart, gain_mib: u64) -> Remedy {
    let text = String::new;
    let action = if restart == Restart::None { Action::Collapse } else { Action::Option };
    Remedy {
        action,
        scope: Scope::Program,
        command: command.to_owned(),
        start: text(),
        restart,
        gain_bytes: gain_mib * MIB,
        folio_bytes: 2 * MIB,
        extra_bytes: MIB / 4,
        swapped_in_bytes: 0,
        undo: text(),
        cost: text(),
    }
}

fn figures_of(lines: &[SharedRemedy]) -> Vec<(&str, u64, usize)> {
    lines
        .iter()
        .map(|line| {
            let gain = line.remedy.gain_bytes / MIB;
            (line.remedy.command.as_str(), gain, line.mappings.len())
        })
        .collect()
}

/// A permanent remedy shows its whole gain, even if another one works now on the same memory.
#[test]
fn each_remedy_has_its_total_gain() {
    let [now, after] = [Restart::None, Restart::After];
    let of = |name: &str, remedies: Vec<Remedy>| (name.to_owned(), remedies);
    let areas = areas(vec![
        of("[heap]", vec![remedy("collapse", now, 100), remedy("option", after, 90)]),
        of("libc", vec![remedy("warm", Restart::Around, 2)]),
        of("[anonymous]", vec![remedy("collapse", now, 62), remedy("option", after, 62)]),
        of("[anonymous]", vec![remedy("option", after, 10)]),
        of("[stack]", vec![Remedy { gain_bytes: 4096, ..remedy("other", after, 0) }]),
        of("nothing", Vec::new()),
    ]);
    assert_eq!(areas.len(), 2, "{areas:?}");
    assert_eq!(figures_of(&areas[0].for_good), [("option", 162, 2)]);
    assert_eq!(figures_of(&areas[0].now), [("collapse", 162, 2)]);
    assert_eq!(figures_of(&areas[1].for_good), [("warm", 2, 1)]);
}

/// A mapping that shares remedies with two areas joins them, in any order of mappings.
#[test]
fn pieces_with_a_shared_remedy_are_merged_in_any_order() {
    let [now, after] = [Restart::None, Restart::After];
    let all = [
        ("a", vec![remedy("collapse", now, 5), remedy("one", after, 5)]),
        ("b", vec![remedy("two", after, 7)]),
        ("c", vec![remedy("collapse", now, 9), remedy("two", after, 9)]),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let known = order.map(|nr| (all[nr].0.to_owned(), all[nr].1.clone())).to_vec();
        let areas = areas(known);
        assert_eq!(areas.len(), 1, "{order:?}: {areas:?}");
        assert_eq!(figures_of(&areas[0].for_good), [("two", 16, 2), ("one", 5, 1)]);
        assert_eq!(figures_of(&areas[0].now), [("collapse", 14, 2)]);
    }
}

/// A setting for all programs comes after an option of the program, even if it gains more.
#[test]
fn the_narrowest_remedy_comes_first() {
    let after = Restart::After;
    let wide = Remedy { scope: Scope::System, ..remedy("tune", after, 90) };
    let areas = areas(vec![
        ("a".to_owned(), vec![wide, remedy("option", after, 60)]),
        ("b".to_owned(), vec![remedy("option", after, 5)]),
    ]);
    assert_eq!(figures_of(&areas[0].for_good), [("option", 65, 2), ("tune", 90, 1)]);
}

#[test]
fn a_group_s_name_cannot_end_the_command() {
    let units =
        ["db.service", "x;reboot;.service", "$(reboot).service", "a.scope", "w@a\\x2db.service"];
    let services = known_services(units.iter().map(|unit| (*unit).to_owned()));
    assert_eq!(services, ["db.service", "w@a\\x2db.service"]);
    let command = variable_command(&services[1]);
    assert!(command.contains(r"--unit 'w@a\x2db.service' --env"), "{command}");
}
