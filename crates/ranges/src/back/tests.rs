use super::*;

const M2: usize = 2 << 20;
const START: usize = 0x7f00_0000_0000;
const SETTINGS: Settings = Settings::TYPICAL;

fn obstacle_of(start: usize, len: usize, settings: &Settings) -> Reason {
    let range = Range::of_pages(start, start + len);
    obstacle(range, settings)
}

#[test]
fn ranges_without_a_whole_block_are_too_short_or_misaligned() {
    assert_eq!(obstacle_of(START, M2, &SETTINGS), Reason::Advised);
    assert_eq!(obstacle_of(START, M2 - 4096, &SETTINGS), Reason::TooShort);
    assert_eq!(obstacle_of(START + 4096, 2 * M2 - 8192, &SETTINGS), Reason::Misaligned);
}

#[test]
fn a_size_below_the_largest_is_enough() {
    let both = Settings { advised: 1 << 9 | 1 << 4, ..SETTINGS };
    assert_eq!(obstacle_of(START, M2 / 2, &both), Reason::Advised);
    assert_eq!(obstacle_of(START + 4096, 68 << 10, &both), Reason::Misaligned);
    assert_eq!(obstacle_of(START, 60 << 10, &both), Reason::TooShort);
}

#[test]
fn the_setting_and_the_process_can_prevent_every_size() {
    let off = Settings { advised: 0, ..SETTINGS };
    assert_eq!(obstacle_of(START, M2, &off), Reason::SettingOff);
    let locked_out = Settings { process: ProcessThp::Off, ..SETTINGS };
    assert_eq!(obstacle_of(START, M2, &locked_out), Reason::ProcessOff);
    let none = Settings { has_thp: false, ..off };
    assert_eq!(obstacle_of(START, M2, &none), Reason::NoThp);
}
