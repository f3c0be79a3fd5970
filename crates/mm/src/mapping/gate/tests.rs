mod interleavings;

use super::*;

fn gate() -> Gate {
    Gate::new()
}

#[test]
fn writers_and_huge_folios_exclude_each_other() {
    let gate = gate();
    assert_eq!(gate.open_for_write(), Ok(MustDrop::No));
    assert_eq!(gate.try_add_thp(), Err(OpenForWrite));
    assert_eq!((gate.nr_thps(), gate.writecount()), (0, 1));
    gate.close_write();
    assert_eq!(gate.try_add_thp(), Ok(()));
    assert_eq!(gate.try_add_thp(), Ok(()));
    assert_eq!(gate.open_for_write(), Ok(MustDrop::Yes));
    gate.remove_thp();
    assert_eq!(gate.open_for_write(), Ok(MustDrop::Yes));
    gate.remove_thp();
    assert_eq!(gate.open_for_write(), Ok(MustDrop::No));
    assert_eq!((gate.nr_thps(), gate.writecount()), (0, 3));
}

#[test]
fn writers_and_deny_write_holders_exclude_each_other() {
    let gate = gate();
    assert_eq!(gate.deny_write(), Ok(()));
    assert_eq!(gate.deny_write(), Ok(()));
    assert_eq!(gate.open_for_write(), Err(TextBusy));
    assert_eq!(gate.writecount(), -2);
    gate.allow_write();
    assert_eq!(gate.open_for_write(), Err(TextBusy));
    gate.allow_write();
    assert_eq!(gate.open_for_write(), Ok(MustDrop::No));
    assert_eq!(gate.deny_write(), Err(OpenForWrite));
    assert_eq!(gate.writecount(), 1);
}

#[test]
fn a_running_program_may_have_huge_folios() {
    let gate = gate();
    assert_eq!(gate.deny_write(), Ok(()));
    assert!(!gate.is_open_for_write());
    assert_eq!(gate.try_add_thp(), Ok(()));
}

#[test]
fn a_clone_counts_for_itself() {
    let gate = gate();
    assert_eq!(gate.open_for_write(), Ok(MustDrop::No));
    let copy = gate.clone();
    gate.close_write();
    assert!(copy.is_open_for_write() && !gate.is_open_for_write());
    assert_eq!(format!("{copy:?}"), "Gate { nr_thps: 0, writecount: 1 }");
}

#[test]
#[should_panic(expected = "a writer closed a file that had none: i_writecount was -1")]
fn a_writer_that_never_opened_cannot_close() {
    let gate = gate();
    assert_eq!(gate.deny_write(), Ok(()));
    gate.close_write();
}

#[test]
#[should_panic(expected = "writes were allowed that had not been denied: i_writecount was 0")]
fn only_who_denied_writes_allows_them() {
    gate().allow_write();
}

#[test]
#[should_panic(expected = "a huge folio was removed that had not been counted: nr_thps was 0")]
fn only_a_counted_huge_folio_goes() {
    gate().remove_thp();
}
