use super::*;

/// What a trace of `execve`, a mapping, a fault and a read becomes.
fn converted(trace: &str) -> Body {
    let exec_reads = |_| vec![(0, 256), (64, 728)];
    convert(trace, &Source { exec_reads: &exec_reads }).unwrap()
}

fn mark(text: &str) -> String {
    format!("  folio-9   [000] .....  1.5: tracing_mark_write: lf {text}\n")
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

/// A program of one file (inode 20), mapped by the kernel at 0x400000, four pages.
fn executed() -> String {
    [
        mark("thread 7 0"),
        mark("execve 7"),
        inserted(20, 0),
        inserted(20, 1),
        collected(20),
        collected(20),
        mark("thread 7 1"),
        mark("kmap 1 400000 16384 5 20 0"),
        mark("exec 7 1"),
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
    let anonymous = mark("map 1 401000 4096 3 32 - 0");
    let trace = executed() + &anonymous + &fault(0x40_1000, 6) + &fault(0x40_2000, 6);
    let expected = format!("{EXECUTED}U 401000 4096\na 401000\nT 2 0 w\n");
    assert_eq!(converted(&trace).text, expected);
}

#[test]
fn a_fault_inside_a_read_follows_it() {
    let trace = executed()
        + &mark("open 0 21")
        + &mark("read 7 0 4097 100")
        + &fault(0x40_3000, 6)
        + &inserted(21, 1)
        + &mark("done 7");
    let text = converted(&trace).text;
    assert_eq!(text, format!("{EXECUTED}O 0 1\nB 1 1 100 0\n@1 A 1 0\nT 3 0 w\n"));
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
    let removed = inserted(20, 1).replace("add_to", "delete_from");
    let body = converted(&(executed() + &removed));
    assert_eq!((body.nr_removed, body.text), (1, format!("{EXECUTED}D 1 0\n")));
}

#[test]
fn a_damaged_trace_names_its_line() {
    for line in ["nonsense", "CPU:0 [LOST 3 EVENTS]", &mark("map 1"), &event("mm_filemap_fault: x")]
    {
        let exec_reads = |_| Vec::new();
        let source = Source { exec_reads: &exec_reads };
        let error = convert(&format!("# comment\n{line}\n"), &source).unwrap_err();
        assert_eq!(error.line, 2, "{error}");
    }
}
