//! Where QEMU differs from a kernel, a recorded program still gets the same answers as without QEMU.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::process::Command;

use largefolio_trace::Op;

use crate::recorded::{program, record};
use crate::support::has;

const PAGES: u64 = 1024;

/// Exits with the kernel's answer: an error number, or 1 if the mapping is aligned to 2 MiB.
const MAPS: &str = r#"
static int exit_code(void *mapped) {
    return mapped == MAP_FAILED ? errno : ((long)mapped & 0x1fffff) == 0;
}
int main(int argc, char **argv) {
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE;
    if (!strcmp(argv[1], "huge"))
        return exit_code(mmap(0, 4 << 20, both, anonymous | MAP_HUGETLB, -1, 0));
    if (!strcmp(argv[1], "reserve"))
        return exit_code(mmap(0, 64 << 20, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0));
    return exit_code(mmap(0, 4 << 20, both, anonymous, -1, 0));
}
"#;

/// Whether QEMU searches addresses in the form that the plugin knows.
fn is_qemu_7() -> bool {
    let version = Command::new("qemu-x86_64").arg("--version").output().unwrap();
    String::from_utf8_lossy(&version.stdout).contains("version 7.")
}

#[test]
fn the_kernel_chooses_where_mappings_are() {
    if !has("qemu-x86_64", "qemu-user") || !is_qemu_7() {
        return;
    }
    let made = program(MAPS, &["-O1", "-w"]);
    for kind in ["huge", "reserve", "plain"] {
        let plain = Command::new(&made.path).arg(kind).status().expect("a run").code();
        let outcome = record(&made.path, &[kind]).outcome;
        assert_eq!(Some(outcome.ended.exit_code().into()), plain, "{kind}");
        assert_eq!(outcome.warnings, [""; 0], "{kind}");
    }
}

#[test]
fn memcpy_goes_forward() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let copy = r"
        int main(void) {
            char *from;
            pages(1024);
            from = (char *)p;
            pages(1024);
            memcpy((void *)p, from, 4 << 20);
            return 0;
        }";
    let trace = record(&program(copy, &["-O0", "-w"]).path, &[]);
    let maps: Vec<_> =
        trace.of(Op::Mmap).into_iter().filter(|map| map.len == PAGES * 4096).collect();
    let [from, _] = maps[..] else { panic!("{maps:?}") };
    let mut first_loads: Vec<u64> = Vec::new();
    for load in trace.of(Op::Read) {
        let page = load.addr.wrapping_sub(from.addr) / 4096;
        if page < PAGES && !first_loads.contains(&page) {
            first_loads.push(page);
        }
    }
    let nr_backward = first_loads.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((first_loads.len() as u64, nr_backward), (PAGES, 0));
}

#[test]
fn what_only_qemu_refuses_is_a_warning() {
    if !has("qemu-x86_64", "qemu-user") || !is_qemu_7() {
        return;
    }
    let calls = r"
        #include <sys/uio.h>
        int main(void) {
            pages(8);
            struct iovec part = {(void *)p, 100};
            process_vm_readv(getpid(), &part, 1, &part, 1, 0);
            process_vm_readv(getpid(), &part, 1, &part, 1, 0);
            mremap((void *)p, 0, 4096, MREMAP_MAYMOVE);
            madvise((void *)1, 1, 0);             /* a kernel refuses it too */
            return 0;
        }";
    let warnings = record(&program(calls, &["-O1", "-w"]).path, &[]).outcome.warnings;
    let is_one = |text: &str| warnings.iter().filter(|warning| warning.contains(text)).count() == 1;
    assert!(is_one("QEMU refused process_vm_readv"), "{warnings:?}");
    assert!(is_one("QEMU refused mremap with an old size of 0"), "{warnings:?}");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
}
