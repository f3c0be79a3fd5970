//! The library on this process's memory. No test changes a setting: a collapse makes PMD folios
//! whatever the settings are.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use largefolio_ranges::{
    Advice, Backed, Errno, Options, Range, Reason, Reserved, Settings, advise, back, block_bytes,
    collapse, page_bytes, split, view, waste,
};
use largefolio_testkit::skipped;

fn block() -> usize {
    block_bytes(page_bytes())
}

/// Aligned memory of `nr` blocks.
fn memory(nr: usize) -> Reserved {
    Reserved::new(nr * block(), Some(block()), None).unwrap()
}

fn write(memory: &Reserved, at: usize, value: u8) {
    assert!(at < memory.len());
    // SAFETY: inside the mapping, which only the test uses.
    unsafe { ptr::write_volatile(memory.as_ptr().add(at), value) };
}

fn read(memory: &Reserved, at: usize) -> u8 {
    assert!(at < memory.len());
    // SAFETY: inside the mapping, which only the test uses.
    unsafe { ptr::read_volatile(memory.as_ptr().add(at)) }
}

fn fill(memory: &Reserved, step: usize) {
    (0..memory.len()).step_by(step).for_each(|at| write(memory, at, 7));
}

/// Collapses all of the memory. Returns whether the machine had enough free folios.
fn is_collapsed(memory: &Reserved) -> bool {
    let done = collapse(memory.range()).unwrap();
    match done.reason {
        Reason::Complete => assert_eq!(done.collapsed_bytes, memory.len() as u64),
        Reason::NoFreeFolio
        | Reason::Busy
        | Reason::CgroupLimit
        | Reason::OldKernel
        | Reason::NoThp => {
            skipped!("the kernel collapses nothing: {}", done.reason.text());
            return false;
        }
        reason => panic!("{}", reason.text()),
    }
    true
}

#[test]
fn a_reservation_is_aligned_named_and_takes_no_memory() {
    let named = Reserved::new(3 * block() + 1, None, Some(c"largefolio test")).unwrap();
    assert_eq!(named.len(), 3 * block() + page_bytes());
    let align = Settings::read().unwrap().largest_bytes(true).unwrap_or(block());
    assert_eq!(named.as_ptr().addr() % align, 0);
    assert_eq!(view(named.range()).unwrap().present_bytes, 0);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{:x}-", named.as_ptr().addr())));
    let name = line.unwrap().split_once('[').map(|(_, name)| name);
    assert!(matches!(name, None | Some("anon:largefolio test]")), "{line:?}");
    if name.is_none() {
        skipped!("this kernel does not name memory");
    }
}

#[test]
fn a_reservation_that_cannot_be_is_refused() {
    let error = |len, align, name| Reserved::new(len, align, name).unwrap_err();
    assert_eq!(error(0, None, None), Errno(libc::EINVAL));
    assert_eq!(error(4096, Some(3 << 12), None), Errno(libc::EINVAL));
    assert_eq!(error(4096, None, Some(c"a[b]")), Errno(libc::EINVAL));
    assert_eq!(error(usize::MAX, None, None), Errno(libc::ENOMEM));
    assert_eq!(error(1 << 60, None, None), Errno(libc::ENOMEM));
}

#[test]
fn memory_that_is_not_touched_stays_so_while_it_is_looked_at() {
    let memory = memory(2);
    let found = view(memory.range()).unwrap();
    assert_eq!((found.mapped_bytes, found.present_bytes), (memory.len() as u64, 0));
    assert_ne!(found.reason, Reason::Complete);
    assert_eq!(waste(memory.range()).unwrap().large_bytes, 0);
    assert_eq!(split(memory.range(), 0).unwrap().huge_bytes, 0);
    assert_eq!(collapse(memory.range()).unwrap().reason, Reason::NotTouched);
    assert_eq!(view(memory.range()).unwrap().present_bytes, 0);
}

#[test]
fn a_collapse_is_seen_and_its_waste_is_counted() {
    let memory = memory(3);
    // Every eighth page.
    fill(&memory, 8 * page_bytes());
    assert_ne!(view(memory.range()).unwrap().reason, Reason::Complete);
    if !is_collapsed(&memory) {
        return;
    }
    let found = view(memory.range()).unwrap();
    assert_eq!(found.present_bytes, memory.len() as u64);
    assert_eq!(found.reason, Reason::Complete);
    assert_eq!(found.huge_bytes.unwrap_or(found.present_bytes), memory.len() as u64);
    match found.bytes_by_order {
        None => skipped!("only root sees the sizes of folios"),
        Some(by_order) => {
            assert_eq!(by_order[(block() / page_bytes()).ilog2() as usize], memory.len() as u64);
            assert_eq!(by_order.iter().sum::<u64>(), found.present_bytes);
        }
    }
    let unused = waste(memory.range()).unwrap();
    assert_eq!((unused.large_bytes, unused.unreadable_bytes), (memory.len() as u64, 0));
    assert_eq!(unused.zero_bytes, memory.len() as u64 / 8 * 7);
}

#[test]
fn a_split_returns_zeros_and_loses_nothing_that_is_written_meanwhile() {
    let memory = memory(4);
    advise(memory.range(), Advice::NoHuge).unwrap();
    fill(&memory, block());
    advise(memory.range(), Advice::Huge).unwrap();
    if !is_collapsed(&memory) {
        return;
    }
    // khugepaged must not collapse again.
    advise(memory.range(), Advice::NoHuge).unwrap();
    assert_eq!(split(memory.range(), block() as u64).unwrap().split_bytes, 0, "each has data");
    let is_over = AtomicBool::new(false);
    let (written, done) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = vec![0; memory.len() / page_bytes()];
            let mut value = 0_u8;
            while !is_over.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                for page in (1..written.len()).step_by(16) {
                    write(&memory, page * page_bytes() + 9, value);
                    assert_eq!(read(&memory, page * page_bytes() + 9), value);
                    written[page] = value;
                }
            }
            written
        });
        let done = split(memory.range(), 1).unwrap();
        is_over.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), done)
    });
    for (page, value) in written.into_iter().enumerate() {
        assert_eq!(read(&memory, page * page_bytes() + 9), value, "page {page}");
    }
    assert!((0..4).all(|nr| read(&memory, nr * block()) == 7));
    assert!(done.split_bytes > 0 && done.split_bytes <= done.huge_bytes, "{done:?}");
    assert!(done.freed_bytes <= done.split_bytes);
    let found = view(memory.range()).unwrap();
    assert!(found.huge_bytes.unwrap() <= memory.len() as u64 - done.split_bytes);
}

#[test]
fn backing_uses_every_page_and_keeps_what_is_there() {
    let memory = memory(2);
    write(&memory, 12345, 42);
    // The first and last page only in part: they are left alone.
    let range = Range::new(memory.as_ptr().addr() + 1, memory.len() - 2).unwrap();
    let done = back(range, Options { populate: true, collapse: true }).unwrap();
    let Backed { range_bytes, populated_bytes, advised_bytes, .. } = done;
    assert_eq!(range_bytes, (memory.len() - 2 * page_bytes()) as u64);
    assert_eq!((populated_bytes, advised_bytes), (range_bytes, range_bytes));
    assert!(done.collapsed_bytes == 0, "no whole block is in it");
    assert_eq!(read(&memory, 12345), 42);
    assert_eq!(view(range).unwrap().present_bytes, range_bytes);
}

#[test]
fn backing_never_calls_memory_complete_that_has_no_large_folios() {
    let memory = memory(2);
    advise(memory.range(), Advice::NoHuge).unwrap();
    fill_block(&memory, 0);
    fill_block(&memory, 1);
    let done = back(memory.range(), Options { populate: true, collapse: false }).unwrap();
    assert_ne!(done.reason, Reason::Complete);
    assert_eq!(done.reason, view(memory.range()).unwrap().reason);
    let advised = back(memory.range(), Options::default()).unwrap().reason;
    let off = [Reason::SettingOff, Reason::NoThp, Reason::SettingHidden, Reason::TooShort];
    assert!(advised == Reason::Advised || off.contains(&advised), "{}", advised.text());
    if is_collapsed(&memory) && !off.contains(&advised) {
        let done = back(memory.range(), Options { populate: true, collapse: true }).unwrap();
        assert_eq!(done.reason, Reason::Complete);
    }
}

#[test]
fn backing_shared_memory_says_that_other_settings_decide() {
    let (len, protection) = (4 * block(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    let shared = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    assert_ne!(shared, libc::MAP_FAILED);
    let range = Range::new(shared.addr(), len).unwrap();
    let done = back(range, Options { populate: true, collapse: false }).unwrap();
    // SAFETY: the test's own mapping.
    unsafe { largefolio_ranges::release(range.start(), len) }.unwrap();
    let off = [Reason::SettingOff, Reason::NoThp, Reason::SettingHidden];
    assert!(done.reason == Reason::NotPrivate || off.contains(&done.reason), "{done:?}");
}

#[test]
fn shared_memory_is_collapsed_before_this_process_touches_it() {
    let (memory, len) = (memory(2), 2 * block());
    // SAFETY: a C string.
    let fd = unsafe { libc::memfd_create(c"shared".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the new descriptor belongs to nothing else.
    let file = unsafe { <fs::File as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; len], 0).unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let (place, flags) = (memory.as_ptr().cast(), libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: replaces the test's own mapping.
    assert_eq!(unsafe { libc::mmap(place, len, protection, flags, fd, 0) }, place);
    let done = collapse(memory.range()).unwrap();
    // The kernel would say so for memory that it does not try.
    assert_ne!(done.reason, Reason::NotTouched, "{done:?}");
    if done.reason == Reason::Complete {
        assert_eq!(done.collapsed_bytes, len as u64);
    }
}

#[test]
fn a_collapse_names_the_advice_against_it() {
    let memory = memory(2);
    advise(memory.range(), Advice::NoHuge).unwrap();
    let reason = || collapse(memory.range()).unwrap().reason;
    let untouched = reason();
    fill_block(&memory, 0);
    fill_block(&memory, 1);
    if matches!(untouched, Reason::NoThp | Reason::OldKernel) {
        return skipped!("the kernel collapses nothing: {}", untouched.text());
    }
    assert_eq!((untouched, reason()), (Reason::AdvisedAgainst, Reason::AdvisedAgainst));
}

/// Otherwise the call takes minutes.
#[test]
fn address_space_that_was_never_used_is_not_tried_block_by_block() {
    if std::env::var("LARGEFOLIO_TEST_HOW").is_err() {
        let test = "address_space_that_was_never_used_is_not_tried_block_by_block";
        let printed = again(test, "1");
        assert!(printed.contains("PROVED") || printed.contains("SKIPPED"), "{printed}");
        return;
    }
    let memory = Reserved::new(4 << 40, Some(block()), None).unwrap();
    if view(Range::new(memory.as_ptr().addr(), block()).unwrap()).unwrap().huge_bytes.is_none() {
        return skipped!("before Linux 6.7, every block is tried");
    }
    // A call for a block would be an error.
    deny(&[libc::SYS_madvise]);
    assert_eq!(collapse(memory.range()).unwrap().reason, Reason::NotTouched);
    println!("PROVED");
}

#[test]
fn holes_and_other_kinds_of_memory_are_named() {
    // Alone, so that no other test's memory gets into the hole.
    if std::env::var("LARGEFOLIO_TEST_HOW").is_err() {
        let printed = again("holes_and_other_kinds_of_memory_are_named", "1");
        assert!(printed.contains("PROVED"), "{printed}");
        return;
    }
    let memory = memory(4);
    let hole = memory.as_ptr().addr() + block();
    // SAFETY: a part of the test's mapping that it does not use.
    unsafe { largefolio_ranges::release(hole, 2 * block()) }.unwrap();
    fill_block(&memory, 0);
    let found = view(memory.range()).unwrap();
    assert_eq!(found.mapped_bytes, 2 * block() as u64);
    assert_eq!(found.reason, Reason::Unmapped);
    assert_eq!(waste(memory.range()).unwrap().unreadable_bytes, 0);
    let in_hole = Range::new(hole, block()).unwrap();
    assert_eq!(collapse(in_hole).unwrap().reason, Reason::Unmapped);
    assert_eq!(back(in_hole, Options::default()).unwrap().reason, Reason::Unmapped);
    // This program's text.
    let text = Range::new(page_of(main_text()), page_bytes()).unwrap();
    assert_eq!(view(text).unwrap().reason, Reason::NotPrivate);
    println!("PROVED");
}

fn fill_block(memory: &Reserved, nr: usize) {
    (0..block()).step_by(page_bytes()).for_each(|at| write(memory, nr * block() + at, 1));
}

fn main_text() -> usize {
    fill_block as fn(&Reserved, usize) as usize
}

fn page_of(address: usize) -> usize {
    address & !(page_bytes() - 1)
}

/// Runs this test program again, with one test and a variable.
fn again(test: &str, how: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("LARGEFOLIO_TEST_HOW", how);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_process_that_is_locked_out_says_so() {
    if std::env::var("LARGEFOLIO_TEST_HOW").is_err() {
        let printed = again("a_process_that_is_locked_out_says_so", "1");
        assert!(printed.contains("PROVED"), "{printed}");
        return;
    }
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1_u64, 0_u64, 0_u64, 0_u64) }, 0);
    let memory = memory(1);
    let expected =
        if Settings::read().unwrap().has_thp { Reason::ProcessOff } else { Reason::NoThp };
    assert_eq!(back(memory.range(), Options::default()).unwrap().reason, expected);
    fill_block(&memory, 0);
    let collapsed = collapse(memory.range()).unwrap().reason;
    assert!([expected, Reason::OldKernel].contains(&collapsed), "{}", collapsed.text());
    assert_eq!(view(memory.range()).unwrap().reason, expected);
    println!("PROVED");
}

#[test]
fn a_child_sees_its_own_memory_and_not_its_parents() {
    let memory = memory(1);
    fill_block(&memory, 0);
    // SAFETY: the child calls only functions that neither allocate nor lock, then exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the child's copy of the mapping.
        let is_gone =
            unsafe { largefolio_ranges::release(memory.as_ptr().addr(), block()) }.is_ok();
        let seen = view(memory.range()).map_or(u64::MAX, |found| found.mapped_bytes);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!(is_gone && seen == 0))) };
    }
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(view(memory.range()).unwrap().present_bytes, block() as u64);
}

#[test]
fn a_filter_that_denies_the_calls_makes_errors() {
    if std::env::var("LARGEFOLIO_TEST_HOW").is_err() {
        let printed = again("a_filter_that_denies_the_calls_makes_errors", "1");
        assert!(printed.contains("PROVED"), "{printed}");
        return;
    }
    let memory = memory(1);
    fill_block(&memory, 0);
    deny(&[libc::SYS_madvise, libc::SYS_openat, libc::SYS_process_vm_readv, libc::SYS_prctl]);
    let denied = Errno(libc::EPERM);
    assert_eq!(view(memory.range()), Err(denied));
    assert_eq!(waste(memory.range()), Err(denied));
    assert_eq!(collapse(memory.range()), Err(denied));
    assert_eq!(advise(memory.range(), Advice::Huge), Err(denied));
    assert_eq!(back(memory.range(), Options::default()), Err(denied));
    assert_eq!(split(memory.range(), 0), Err(denied));
    assert!(Reserved::new(block(), None, Some(c"x")).is_ok());
    println!("PROVED");
}

/// Makes the calls fail with `EPERM` in this thread.
fn deny(calls: &[i64]) {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code.try_into().unwrap(),
        jt,
        jf: 0,
        k,
    };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for (nr, call) in calls.iter().enumerate() {
        // To the last statement.
        let jump = u8::try_from(calls.len() - nr).unwrap();
        let number = u32::try_from(*call).unwrap();
        filter.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, jump));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    let errno = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    filter.push(statement(libc::BPF_RET | libc::BPF_K, errno, 0));
    let program =
        libc::sock_fprog { len: filter.len().try_into().unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: the call takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1_u64, 0_u64, 0_u64, 0_u64) }, 0);
    // SAFETY: the program and its statements outlive the call.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2_u64, &raw const program) };
    assert_eq!(set, 0);
}
