use super::*;

/// Converts a trace of `execve`, a mapping, a fault and a read.
fn converted(trace: &str) -> Body {
    let exec_reads = |_| vec![(0, 256), (64, 728)];
    convert(trace, &Source { page: 4096, exec_reads: &exec_reads }).unwrap()
}

fn mark(text: &str) -> String {
    format!("  folio-9   [000] .....  1.5: tracing_mark_write: lf {text}\n")
}

/// A call of thread 7 with its events and a mark at its end.
fn in_call(nr: i64, events: &str, at_end: &str) -> String {
    mark(&format!("call 7 {nr}")) + events + &mark("return 7 0") + &mark(at_end)
}

fn event(text: &str) -> String {
    format!("  a b-c-7   [000] .....  1.5: {text}\n")
}

fn inserted(inode: u64, page: u64) -> String {
    let pos = page << 12;
    event(&format!(
        "mm_filemap_add_to_page_cache: dev 253:1 ino {inode:x} pfn=0x1 ofs={pos} order=0"
    ))
}

fn collected(inode: u64) -> String {
    event(&format!("mm_filemap_get_pages: dev=253:1 ino={inode:x} ofs=0-8191"))
}

fn fault(address: u64, code: u64) -> String {
    event(&format!("page_fault_user: address=0x{address:x} ip=0x1 error_code=0x{code:x}"))
}

/// A program with one file (inode 20), mapped by the kernel at 0x400000, four pages.
fn executed() -> String {
    [
        mark("thread 7 0"),
        mark(&format!("call 7 {}", libc::SYS_execve)),
        inserted(20, 0),
        inserted(20, 1),
        collected(20),
        collected(20),
        mark("thread 7 1"),
        mark("kmap 1 400000 16384 5 20 0"),
        mark("exec 7 1"),
        mark("return 7 0"),
    ]
    .concat()
}

const EXECUTED: &str = "O 32769 0\nB 0 0 256 32769\nA 0 0 x2\nG 0 1\nB 0 64 728 32769\nG 0 1\n\
    H 1\nN 0 open=32769 first=0 pages=4 prot=rx map=private advice=plain addr=0x400000\n";

#[test]
fn reads_and_mappings_of_execve_stand_in_their_place() {
    assert_eq!(converted(&executed()).text, EXECUTED);
}

#[test]
fn a_mapping_of_execve_begins_at_its_position_whatever_the_base_page() {
    let segment = mark("kmap 1 410000 32768 3 20 49152");
    let trace = executed().replace(&mark("exec 7 1"), &(segment + &mark("exec 7 1")));
    let trace = trace + &fault(0x41_4000, 6);
    let expected = |first: u64, pages: u64, index: u64| {
        format!(
            "N 1 open=32769 first={first} pages={pages} prot=rw map=private advice=plain \
             addr=0x410000\nT {index} 1 w\n"
        )
    };
    for (page, expected) in [(4096, expected(12, 8, 16)), (16384, expected(3, 2, 4))] {
        let text = convert(&trace, &Source { page, exec_reads: &|_| Vec::new() }).unwrap().text;
        assert!(text.ends_with(&expected), "{page}\n{text}");
    }
}

#[test]
fn faults_become_touches_of_the_mapping_that_holds_the_address() {
    let trace = executed()
        + &fault(0x40_2123, 0x14)
        + &inserted(20, 2)
        + &fault(0x7008, 4)
        + &fault(0x8000, 4);
    assert_eq!(converted(&trace).text, format!("{EXECUTED}T 2 0 x\nA 2 0\na 7000\n"));
}

#[test]
fn what_was_mapped_before_is_replaced() {
    let anonymous = in_call(libc::SYS_mmap, "", "map 1 401000 4096 3 32 - 0");
    let trace = executed() + &anonymous + &fault(0x40_1000, 6) + &fault(0x40_2000, 6);
    let expected = format!("{EXECUTED}U 401000 4096\na 401000\nT 2 0 w\n");
    assert_eq!(converted(&trace).text, expected);
}

#[test]
fn a_fault_inside_a_read_follows_it() {
    let trace = executed()
        + &mark("open 0 21")
        + &mark(&format!("call 7 {}", libc::SYS_read))
        + &mark("read 0 4097 100")
        + &fault(0x40_3000, 6)
        + &inserted(21, 1)
        + &mark("return 7 100");
    let text = converted(&trace).text;
    assert_eq!(text, format!("{EXECUTED}O 0 1\nB 1 1 100 0\n@1 A 1 0\nT 3 0 w\n"));
}

fn by_8(text: &str) -> String {
    text.replace("-7 ", "-8 ")
}

/// Two threads, two files, each thread in its own read.
fn two_reads(between: &str) -> String {
    executed()
        + &mark("thread 8 1")
        + &mark("open 0 21")
        + &mark("open 1 22")
        + &mark(&format!("call 7 {}", libc::SYS_read))
        + &mark("read 0 0 100")
        + &mark(&format!("call 8 {}", libc::SYS_read))
        + &mark("read 1 0 200")
        + between
        + &mark("return 8 200")
        + &mark("return 7 100")
}

#[test]
fn events_belong_to_the_call_of_their_own_thread() {
    let trace = two_reads(&(inserted(21, 0) + &by_8(&inserted(22, 0)) + &inserted(21, 1)));
    let text = converted(&trace).text;
    let expected = "O 0 1\nO 1 2\nB 0 0 100 0\n@1 A 0 0 x2\nB 0 0 200 1\n@2 A 0 0\n";
    assert_eq!(text, format!("{EXECUTED}{expected}"));
}

#[test]
fn a_call_stands_where_it_took_effect() {
    let trace = two_reads(&(by_8(&inserted(22, 0)) + &inserted(21, 0)));
    let text = converted(&trace).text;
    let expected = "O 0 1\nO 1 2\nB 0 0 200 1\n@2 A 0 0\nB 0 0 100 0\n@1 A 0 0\n";
    assert_eq!(text, format!("{EXECUTED}{expected}"));
}

#[test]
fn threads_at_work_on_one_file_at_once_are_told() {
    let trace = two_reads(&(inserted(21, 0) + &by_8(&inserted(21, 8)) + &inserted(21, 1)));
    let trace = trace.replace("open 1 22", "open 1 21");
    let text = converted(&trace).text;
    let expected = "O 0 1\nO 1 1\n~ 1\nB 0 0 100 0\n@1 A 0 0 x2\n~ 1\nB 0 0 200 1\n@1 A 8 0\n";
    assert_eq!(text, format!("{EXECUTED}{expected}"));
}

#[test]
fn a_fault_that_found_its_page_mapped_by_another_thread_did_nothing() {
    let around = event("mm_filemap_map_pages: dev=253:1 ino=14 ofs=0-12288");
    let late = fault(0x40_0000, 4) + &by_8(&fault(0x40_1000, 4)) + &by_8(&around);
    let trace = executed() + &mark("thread 8 1") + &late + &fault(0x40_2000, 6);
    assert_eq!(converted(&trace).text, format!("{EXECUTED}T 1 0\nW 0 3\nT 2 0 w\n"));
}

#[test]
fn an_advice_stands_before_what_it_reads() {
    let trace = executed()
        + &mark("open 0 20")
        + &in_call(libc::SYS_fadvise64, &inserted(20, 2), "fadvise 0 3 8192 4096");
    let expected = "O 0 0\nL willneed 0 8192 4096\nA 2 0\n";
    assert_eq!(converted(&trace).text, format!("{EXECUTED}{expected}"));
}

#[test]
fn a_populated_mapping_is_made_before_its_pages_are_read() {
    let map = in_call(libc::SYS_mmap, &inserted(20, 0), "map 1 500000 8192 1 8001 0 0");
    let trace = executed() + &mark("open 0 20") + &map;
    let text = converted(&trace).text;
    assert!(text.ends_with("addr=0x500000\nV populate 500000 8192\nA 0 0\n"), "{text}");
    let private = in_call(libc::SYS_mmap, &inserted(20, 0), "map 1 500000 8192 3 8002 0 0");
    let text = converted(&(executed() + &mark("open 0 20") + &private)).text;
    let expected = "~ 0 MAP_POPULATE of a private mapping with stores\nA 0 0\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn what_no_rule_covers_is_named() {
    let whole = |call: &str| converted(&(executed() + &mark("open 0 20") + call)).text;
    for (call, expected) in [
        (in_call(libc::SYS_mlock, &inserted(20, 2), "lock 1 400000 4096"), "~ 0 mlock\nA 2 0\n"),
        (in_call(libc::SYS_madvise, "", "advise 1 400000 4096 21"), "~ 0 MADV_PAGEOUT\n"),
        (in_call(libc::SYS_mlockall, "", "lockall 1 1"), "~ 0 mlockall\n"),
        (in_call(libc::SYS_vmsplice, &inserted(20, 2), "thread 7 1"), "~ 0 vmsplice\nA 2 0\n"),
        (in_call(999, &inserted(20, 2), "thread 7 1"), "~ 0 system call 999\nA 2 0\n"),
        (inserted(20, 2).replace("-7 ", "-99 "), "~ 0 used by another process\nA 2 0\n"),
        (
            mark(&format!("call 7 {}", libc::SYS_pread64))
                + &mark("aside 20 read with O_DIRECT")
                + &mark("return 7 4096"),
            "~ 0 read with O_DIRECT\n",
        ),
    ] {
        assert_eq!(whole(&call), format!("{EXECUTED}O 0 0\n{expected}"));
    }
}

#[test]
fn what_another_process_does_during_an_execve_is_its_own() {
    let other = mark("thread 8 5")
        + &mark(&format!("call 8 {}", libc::SYS_write))
        + &mark("return 8 0")
        + &mark(&format!("call 8 {}", libc::SYS_close));
    let late = executed().replace(&mark("thread 7 1"), &(other + &mark("thread 7 1")));
    let trace = late.replace(&mark("exec 7 1"), &(mark("exec 7 1") + &fault(0x40_2000, 6)));
    let text = converted(&trace).text;
    assert_eq!(text, format!("{EXECUTED}T 2 0 w\n"));
}

#[test]
fn an_execve_that_failed_orders_nothing() {
    let failed = mark(&format!("call 7 {}", libc::SYS_execve)) + &mark("return 7 -2");
    let trace = executed() + &failed + &failed + &fault(0x40_2000, 4) + &inserted(20, 2);
    assert_eq!(converted(&trace).text, format!("{EXECUTED}T 2 0\nA 2 0\n"));
}

#[test]
fn a_read_that_failed_read_nothing() {
    let failed =
        mark(&format!("call 7 {}", libc::SYS_read)) + &mark("read 0 0 100") + &mark("return 7 -14");
    let trace = executed() + &mark("open 0 20") + &failed;
    assert_eq!(converted(&trace).text, format!("{EXECUTED}O 0 0\n"));
}

#[test]
fn a_copied_address_space_has_the_same_mappings() {
    let fork = mark("fork 1 2") + &mark("thread 8 2");
    let trace = executed() + &fork + &fault(0x40_0000, 4).replace("-7 ", "-8 ");
    assert_eq!(converted(&trace).text, format!("{EXECUTED}H 1 2\nH 2\nT 0 0\n"));
}

#[test]
fn inodes_of_the_filesystem_itself_are_left_out() {
    assert_eq!(converted(&(executed() + &inserted(1, 9))).text, EXECUTED);
}

#[test]
fn folios_taken_away_are_counted() {
    let removed = inserted(20, 1).replace("add_to", "delete_from").replace("-7 ", "-99 ");
    let body = converted(&(executed() + &removed));
    assert_eq!((body.nr_removed, body.text), (1, format!("{EXECUTED}D 1 0\n")));
}

#[test]
fn folios_the_program_gives_back_are_not_taken_away() {
    let removed = inserted(20, 1).replace("add_to", "delete_from");
    let advice = in_call(libc::SYS_fadvise64, &removed, "fadvise 0 4 0 0");
    let body = converted(&(executed() + &mark("open 0 20") + &advice));
    let expected = format!("{EXECUTED}O 0 0\nL dontneed 0 0 0\nD 1 0\n");
    assert_eq!((body.nr_removed, body.text), (0, expected));
}

#[test]
fn a_damaged_trace_names_its_line() {
    for line in [
        "nonsense at some length",
        "CPU:0 [LOST 3 EVENTS]",
        &mark("map 1"),
        &event("mm_filemap_fault: x"),
    ] {
        let exec_reads = |_| Vec::new();
        let source = Source { page: 4096, exec_reads: &exec_reads };
        let error = convert(&format!("# comment\n{line}\n"), &source).unwrap_err();
        assert_eq!(error.line, 2, "{error}");
    }
}
