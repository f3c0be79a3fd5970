use super::*;
use crate::settings::ProcessThp;

const M2: usize = 2 << 20;
const START: usize = 0x7f00_0000_0000;
const SETTINGS: Settings = Settings::TYPICAL;
const AREA: Area = Area {
    range: Range::of_pages(START, START + 4 * M2),
    kind: Kind::Private,
    is_advised: true,
    is_advised_against: false,
    huge_bytes: 0,
};

/// All of the area is present, in base pages.
fn small() -> Seen {
    let mut by_order = [0; NR_ORDERS];
    by_order[0] = 4 * M2;
    Seen { total: 4 * M2, present: 4 * M2, by_order: Some(by_order), ..Seen::default() }
}

fn judge(area: &Area, settings: &Settings, seen: &Seen) -> Verdict {
    Evidence { area, part: area.range, settings, seen }.judge()
}

fn reason(area: &Area, settings: &Settings, seen: &Seen) -> Reason {
    judge(area, settings, seen).reason
}

#[test]
fn what_prevents_folios_comes_before_what_the_memory_holds() {
    let seen = small();
    let of = |area: Area, settings: Settings| reason(&area, &settings, &seen);
    assert_eq!(of(AREA, SETTINGS), Reason::SmallFolios);
    assert_eq!(of(Area { is_advised: false, ..AREA }, SETTINGS), Reason::NeedsAdvice);
    let off = Settings { advised: 0, ..SETTINGS };
    assert_eq!(of(AREA, off), Reason::SettingOff);
    assert_eq!(of(Area { is_advised: false, ..AREA }, off), Reason::SettingOff);
    assert_eq!(of(Area { is_advised_against: true, ..AREA }, SETTINGS), Reason::AdvisedAgainst);
    let locked_out = Settings { process: ProcessThp::Off, ..SETTINGS };
    assert_eq!(of(AREA, locked_out), Reason::ProcessOff);
    assert_eq!(of(AREA, Settings { has_thp: false, ..SETTINGS }), Reason::NoThp);
    assert_eq!(of(Area { kind: Kind::File, ..AREA }, SETTINGS), Reason::NotPrivate);
    assert_eq!(of(Area { kind: Kind::Hugetlb, ..AREA }, SETTINGS), Reason::Hugetlb);
}

#[test]
fn memory_in_pmd_folios_is_complete_whatever_the_settings_are() {
    let huge = Seen { huge: Some(4 * M2), by_order: None, ..small() };
    let off = Settings { advised: 0, ..SETTINGS };
    let verdict = judge(&AREA, &off, &huge);
    assert_eq!((verdict.reason, verdict.folio_bytes), (Reason::Complete, 0));
    assert_eq!(judge(&AREA, &SETTINGS, &huge).fitting_bytes, 4 * M2);
}

#[test]
fn the_state_of_most_bytes_is_the_reason() {
    let absent = Seen { present: M2, by_order: None, ..small() };
    assert_eq!(reason(&AREA, &SETTINGS, &absent), Reason::NotTouched);
    let swapped = Seen { swapped: 3 * M2, ..absent };
    assert_eq!(reason(&AREA, &SETTINGS, &swapped), Reason::Swapped);
    let read = Seen { zero: Some(3 * M2), by_order: None, ..small() };
    assert_eq!(reason(&AREA, &SETTINGS, &read), Reason::OnlyRead);
}

#[test]
fn what_is_not_visible_is_unknown() {
    // Folios of 64K are allowed, but the process sees only PMD entries.
    let middle = Settings { advised: 1 << 4, ..SETTINGS };
    let seen = Seen { by_order: None, ..small() };
    assert_eq!(reason(&AREA, &middle, &seen), Reason::NotVisible);
    let mut by_order = [0; NR_ORDERS];
    by_order[4] = 4 * M2;
    assert_eq!(
        reason(&AREA, &middle, &Seen { by_order: Some(by_order), ..seen }),
        Reason::Complete
    );
    let nothing = Seen { huge: None, zero: None, ..seen };
    assert_eq!(reason(&AREA, &SETTINGS, &nothing), Reason::NotVisible);
}

#[test]
fn a_block_must_fit_the_mapping_not_the_range() {
    let short = Area { range: Range::of_pages(START, START + M2 / 2), ..AREA };
    let seen = Seen { total: M2 / 2, present: M2 / 2, by_order: None, ..small() };
    assert_eq!(reason(&short, &SETTINGS, &seen), Reason::TooShort);
    let off = Area { range: Range::of_pages(START + 4096, START + 2 * M2 - 4096), ..AREA };
    assert_eq!(reason(&off, &SETTINGS, &seen), Reason::Misaligned);
    let part = Range::of_pages(START + M2 / 2, START + M2);
    let verdict = Evidence { area: &AREA, part, settings: &SETTINGS, seen: &seen }.judge();
    assert_eq!((verdict.fitting_bytes, verdict.reason), (M2 / 2, Reason::SmallFolios));
}

#[test]
fn a_size_that_fits_is_judged_if_the_largest_does_not() {
    let both = Settings { advised: 1 << 9 | 1 << 4, ..SETTINGS };
    let area = Area { range: Range::of_pages(START, START + M2 / 2), ..AREA };
    let mut by_order = [0; NR_ORDERS];
    by_order[4] = M2 / 2;
    let seen = Seen { total: M2 / 2, present: M2 / 2, by_order: Some(by_order), ..small() };
    let verdict = judge(&area, &both, &seen);
    assert_eq!((verdict.reason, verdict.folio_bytes), (Reason::Complete, 64 << 10));
    assert_eq!(verdict.fitting_bytes, M2 / 2);
    let nothing = judge(&area, &SETTINGS, &seen);
    assert_eq!((nothing.reason, nothing.folio_bytes), (Reason::TooShort, 0));
}

#[test]
fn hidden_settings_are_not_called_off() {
    let hidden = Settings { advised: 0, is_visible: false, ..SETTINGS };
    assert_eq!(reason(&AREA, &hidden, &small()), Reason::SettingHidden);
}

#[test]
fn pages_are_counted_by_state() {
    let page = Page { is_present: true, order: Some(9), is_huge: true, ..Page::default() };
    let zero = Page { is_zero: true, ..page };
    let swapped = Page { is_swapped: true, ..Page::default() };
    let large = Page { order: Some(200), is_huge: false, ..page };
    let mut seen = Seen::default();
    seen.count(&[page, zero, swapped, large]);
    let bytes = page_bytes();
    assert_eq!((seen.total, seen.present, seen.swapped), (4 * bytes, 3 * bytes, bytes));
    assert_eq!((seen.zero, seen.huge), (Some(bytes), Some(bytes)));
    let by_order = seen.by_order.unwrap();
    assert_eq!((by_order[9], by_order[NR_ORDERS - 1]), (bytes, bytes));
}
