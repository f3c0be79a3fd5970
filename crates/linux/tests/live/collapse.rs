//! Collapses another process's memory.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::io::Read as _;

use largefolio_linux::census::smaps;
use largefolio_linux::collapse::{
    self, CollapseError, CollapseKind, CollapseOutcome, CollapseRequest,
};

use crate::held::Held;

const M2: u64 = 2 << 20;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    long len = 8 << 20;
    int file = memfd_create("shared", 0);
    ftruncate(file, len);
    char *own = mmap(0, len, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long room = (long)mmap(0, 2 * len, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *want = (char *)((room + 0x1fffff) & ~0x1fffffL);
    char *shared = mmap(want, len, 3, MAP_SHARED | MAP_FIXED, file, 0);
    for (long at = 0; at < len; at += 4096) own[at] = shared[at] = at >> 12;
    puts("ready");
    fflush(stdout);
    getchar();
    for (long at = 0; at < len; at += 4096)
        if (own[at] != (char)(at >> 12) || shared[at] != (char)(at >> 12)) return 1;
    return 0;
}
"#;

/// Starts a process with 8 MiB of private and 8 MiB of shared memory, without advice.
fn start() -> Option<Held> {
    let mut held = Held::compiled(PROGRAM)?;
    held.child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
    Some(held)
}

fn request(pid: u32, kinds: &[CollapseKind]) -> CollapseRequest {
    CollapseRequest { pid, kinds: kinds.to_vec(), is_named: true, min_bytes: M2 }
}

fn collapsed(request: &CollapseRequest) -> Option<CollapseOutcome> {
    match collapse::run(request, "folio collapse", &mut |_| {}) {
        Ok(outcome) => Some(outcome),
        Err(CollapseError::NotAllowed { .. } | CollapseError::OldKernel) => {
            largefolio_testkit::skipped!("collapse of another process needs root and Linux 6.1");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn private_pmd_bytes(pid: u32) -> u64 {
    let text = std::fs::read(format!("/proc/{pid}/smaps")).unwrap();
    smaps::parse(&text).iter().map(|smap| smap.anon_pmd_bytes).sum()
}

#[test]
fn private_and_shared_memory_become_large_and_keep_their_content() {
    let Some(mut held) = start() else { return };
    let all = request(held.pid(), &[CollapseKind::Anon, CollapseKind::Shmem, CollapseKind::File]);
    let Some(outcome) = collapsed(&all) else { return };
    // The program did not align it: at least three of four blocks.
    let anon = &outcome.kinds[&CollapseKind::Anon];
    assert!(anon.after_bytes >= 3 * M2, "{outcome:?}");
    let shmem = &outcome.kinds[&CollapseKind::Shmem];
    assert_eq!((shmem.nr_blocks, shmem.after_bytes), (4, 4 * M2), "{outcome:?}");
    // It reads all its memory again.
    drop(held.child.stdin.take());
    assert_eq!(held.child.wait().unwrap().code(), Some(0));
    let gone = collapse::run(&all, "folio collapse", &mut |_| {}).unwrap_err();
    assert!(matches!(gone, CollapseError::NoProcess(_)), "{gone}");
}

#[test]
fn only_the_kinds_asked_for_are_touched() {
    let Some(held) = start() else { return };
    let pid = held.pid();
    if private_pmd_bytes(pid) > 0 {
        largefolio_testkit::skipped!("the settings gave the private memory large folios already");
        return;
    }
    let outcome = collapsed(&request(pid, &[CollapseKind::Shmem]));
    let private = private_pmd_bytes(pid);
    let Some(outcome) = outcome else { return };
    assert_eq!(private, 0, "{outcome:?}");
    assert!(outcome.kinds.keys().eq([&CollapseKind::Shmem]), "{outcome:?}");
    assert_eq!(outcome.kinds[&CollapseKind::Shmem].after_bytes, 4 * M2, "{outcome:?}");
}

#[test]
fn a_process_that_does_not_exist_is_named() {
    let error =
        collapse::run(&request(u32::MAX, &[CollapseKind::Anon]), "", &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("there is no process 4294967295"), "{error}");
}
