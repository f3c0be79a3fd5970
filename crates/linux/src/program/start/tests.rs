//! Process starts, read from directories.

use std::fmt::Write as _;
use std::fs;

use proptest::prelude::*;

use super::*;
use crate::proc::maps;
use crate::system::MemSystem;

fn task_of(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Start) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("7")).unwrap();
    for (name, text) in files {
        fs::write(dir.path().join("7").join(name), text).unwrap();
    }
    let system = MemSystem::from_dir(dir.path());
    let start = Start::of(&Task::of(&system, 7));
    (dir, start)
}

fn arguments(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

fn auxv(entries: &[(u64, u64)]) -> Vec<u8> {
    let words = entries.iter().flat_map(|&(kind, value)| [kind, value]);
    words.flat_map(u64::to_ne_bytes).collect()
}

#[test]
fn words_variables_and_the_entry_are_read() {
    let auxv = auxv(&[(AT_PAGESZ, 4096), (AT_ENTRY, 0x40_1000), (AT_SECURE, 1), (0, 0)]);
    let (_dir, start) = task_of(&[
        ("cmdline", b"/bin/x\0-a\0b c\0"),
        ("environ", b"A=1\0GLIBC_TUNABLES=a=b\0=odd\0rubbish\0"),
        ("auxv", &auxv),
    ]);
    assert_eq!(start.arguments, arguments(&["/bin/x", "-a", "b c"]));
    assert_eq!(start.variable("GLIBC_TUNABLES"), Some(OsStr::new("a=b")));
    assert_eq!((start.variable("odd"), start.is_secure), (None, true));
    assert_eq!(start.entry, Some(0x40_1000));
}

#[test]
fn tunables_that_glibc_took_apart_are_one_value() {
    let of = |text: &str| {
        let (_dir, start) = task_of(&[("environ", text.as_bytes())]);
        let value = start.variable("GLIBC_TUNABLES").unwrap().to_owned().into_string().unwrap();
        (value, start.variables.unwrap().len())
    };
    let whole = "glibc.malloc.hugetlb=0:glibc.pthread.rseq=0:glibc.malloc.check=3";
    for nr_split in 0..3 {
        let value = whole.replacen(':', "\0", nr_split);
        let text = format!("A=1\0GLIBC_TUNABLES={value}\0glibcx=1\0glibc.b=2\0");
        assert_eq!(of(&text), (whole.to_owned(), 4));
    }
    assert_eq!(of("GLIBC_TUNABLES=glibc.a=1\0\0B=2\0"), ("glibc.a=1".to_owned(), 2));
}

#[test]
fn the_vector_of_a_32_bit_process_has_short_words() {
    let short = [AT_PAGESZ, 4096, AT_ENTRY, 0x804_8000, AT_SECURE, 0, 0, 0]
        .map(|word| u32::try_from(word).unwrap());
    let short: Vec<u8> = short.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (_dir, start) = task_of(&[("auxv", &short)]);
    assert_eq!((start.entry, start.is_secure), (Some(0x804_8000), false));
    let (_dir, start) = task_of(&[("auxv", b"odd")]);
    assert_eq!(start.entry, None);
}

#[test]
fn a_title_hides_words_and_variables() {
    let (_dir, start) =
        task_of(&[("cmdline", b"redis-server *:6379\0\0\0"), ("environ", &[0; 64])]);
    assert_eq!(start.variables, None);
    let program = Path::new("/usr/bin/redis-check-rdb");
    let typed = |start: &Start, program: &Path, finds| start.typed(program, |_| finds);
    assert_eq!(typed(&start, program, true), arguments(&["redis-server"]));
    assert_eq!(typed(&start, program, false), arguments(&["/usr/bin/redis-check-rdb"]));
    let (_dir, start) = task_of(&[("cmdline", b"nginx: master process /usr/sbin/nginx\0")]);
    assert_eq!(start.name(Path::new("/usr/sbin/nginx")), "nginx");
    let blank = Path::new("/opt/my program");
    let (_dir, start) = task_of(&[("cmdline", b"/opt/my program\0")]);
    assert_eq!(typed(&start, blank, false), arguments(&["/opt/my program"]));
}

#[test]
fn a_program_is_typed_so_that_a_shell_finds_it() {
    let typed = |word: &str, program: &str, finds| {
        let start = Start { arguments: arguments(&[word, "-x"]), ..Start::default() };
        start.typed(Path::new(program), |_| finds)[0].clone().into_string().unwrap()
    };
    assert_eq!(typed("java", "/opt/jdk/bin/java", true), "java");
    assert_eq!(typed("-bash", "/bin/bash", true), "bash");
    assert_eq!(typed("/opt/jdk/bin/java", "/opt/jdk/bin/java", false), "/opt/jdk/bin/java");
    assert_eq!(typed("./x", "/tmp/x", false), "/tmp/x");
    assert_eq!(typed("./link", "/tmp/x", false), "./link");
    assert_eq!(typed("any name", "/tmp/x", false), "/tmp/x");
    assert_eq!(Start::default().typed(Path::new("/tmp/x"), |_| false), arguments(&["x"]));
}

const LOADER: &str = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

fn layout(names: &[&str]) -> Vec<Vma> {
    let mut text = String::new();
    for (at, name) in names.iter().enumerate() {
        let start = 0x40_0000 + at * 0x10_0000;
        let inode = at + 1;
        let (middle, end) = (start + 0x1000, start + 0x9000);
        writeln!(text, "{start:x}-{middle:x} r--p 0 fe:0 {inode} {name}").unwrap();
        writeln!(text, "{middle:x}-{end:x} r-xp 0 fe:0 {inode} {name}").unwrap();
    }
    maps::parse(text.as_bytes(), 4096).vmas
}

proptest! {
    /// The program is found in any mapping order, started directly or by its loader.
    #[test]
    fn the_program_is_the_file_that_was_started(
        order in Just(["/tmp/a (deleted)", LOADER, "/usr/lib/libc.so.6", "/usr/lib/libz.so.1"])
            .prop_shuffle(),
        by_loader in any::<bool>(),
        options in proptest::sample::subsequence(
            vec!["--library-path /usr/lib", "--inhibit-cache", "--argv0 odd", "--preload a b"], 0..4),
        name in prop_oneof![Just("./a (deleted)"), Just("/tmp/a (deleted)"), Just("a (deleted)")],
    ) {
        let mut order = order;
        let own = "/tmp/a (deleted)";
        // The kernel appends a mark to a deleted file's path. Here it belongs to the file's name.
        let vmas: Vec<Vma> = layout(&order).into_iter()
            .map(|vma| if vma.is_deleted {
                Vma { path: own.into(), is_deleted: false, ..vma }
            } else { vma }).collect();
        let files: Vec<&Vma> = vmas.iter().collect();
        let entered = if by_loader { LOADER } else { own };
        let at = order.iter().position(|name| *name == entered).unwrap();
        let entry = Some(0x40_0000 + at as u64 * 0x10_0000 + 0x2000);
        let mut line: Vec<OsString> = Vec::new();
        if by_loader {
            line.push(LOADER.into());
            for option in &options {
                let (first, second) = option.split_once(' ').unwrap_or((option, ""));
                line.push(first.into());
                line.extend((!second.is_empty()).then(|| second.into()));
            }
        }
        line.extend([name.into(), "--argv0".into(), "1".into()]);
        let start = Start { arguments: line.clone(), entry, ..Start::default() };
        let program = start.program(&files).unwrap();
        prop_assert_eq!(&program.path, Path::new(own));
        let typed = start.typed(&program.path, |_| false);
        let nr = line.len() - 2;
        prop_assert_eq!(typed.len(), nr);
        prop_assert_eq!(&typed[..nr - 1], &line[..nr - 1]);
        prop_assert_eq!(typed.last().unwrap(), own);
        order.reverse();
    }
}

#[test]
fn without_an_entry_the_lowest_program_counts() {
    let vmas = layout(&["/tmp/x", LOADER]);
    let files: Vec<&Vma> = vmas.iter().collect();
    assert_eq!(Start::default().program(&files).unwrap().path, Path::new("/tmp/x"));
    let outside = Start { entry: Some(1), ..Start::default() };
    assert_eq!(outside.program(&files).unwrap().path, Path::new("/tmp/x"));
    assert_eq!(Start::default().program(&[]), None);
}

#[test]
fn a_parent_that_disabled_thp_is_named_up_to_the_highest() {
    let dir = tempfile::tempdir().unwrap();
    let put = |pid: u32, parent: u32, enabled: u32| {
        let at = dir.path().join(pid.to_string());
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("comm"), format!("p{pid}\n")).unwrap();
        fs::write(at.join("status"), format!("PPid:\t{parent}\nTHP_enabled:\t{enabled}\n"))
            .unwrap();
    };
    let system = MemSystem::from_dir(dir.path());
    let of = |pid: u32| Disabled::of(&Task::of(&system, pid));
    put(9, 8, 0);
    put(8, 7, 1);
    assert_eq!(of(9), Some(Disabled { ancestor: None }));
    put(8, 7, 0);
    put(7, 1, 0);
    put(1, 0, 1);
    let ancestor = Some(Ancestor { pid: 7, name: "p7".to_owned() });
    assert_eq!(of(9), Some(Disabled { ancestor }));
    assert_eq!((of(1), of(4)), (None, None));
    // Pids are reused, so parents can form a loop; the walk must end.
    put(7, 9, 0);
    assert!(of(9).is_some());
}
