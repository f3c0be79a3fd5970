//! Remedies that need a restart: options in effect, other allocators and disabled THP.

use std::path::Path;

use super::remedies::{Answers, collapse, of_anon, sentences, set};
use super::{edited, replace, take};
use crate::reasons::Refusal;
use crate::remedies::Remedy;

const LIBC: &str = "/usr/lib/libc.so.6";

/// The program `server`, started with these words and variables, with glibc and without advice. Its
/// memory is a thread arena.
fn started(dir: &Path, cmdline: &str, environ: &str) {
    let process = dir.join("100");
    replace(&process.join("smaps"), " ac hg ", " ac ");
    std::fs::write(process.join("cmdline"), cmdline.replace(' ', "\0")).unwrap();
    std::fs::write(process.join("environ"), environ.replace(' ', "\0")).unwrap();
    for file in ["maps", "smaps"] {
        let path = process.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let line = format!("7f0000000000-7f0000001000 r-xp 00000000 fe:00 77 {LIBC}\n");
        let (before, after) = text.split_at(text.find("ffffffffff").unwrap_or(text.len()));
        std::fs::write(path, format!("{before}{line}{after}")).unwrap();
    }
    let pagemap = process.join("pagemap");
    let text = std::fs::read_to_string(&pagemap).unwrap();
    std::fs::write(pagemap, text + "7f0000000 1 8000000000000100\n").unwrap();
}

fn next_start(answers: &Answers, edit: &dyn Fn(&Path)) -> (Refusal, Remedy) {
    let (refusal, mut remedies) = of_anon(answers, edit);
    assert_eq!(sentences(&remedies[..1]), [collapse()]);
    assert_eq!(remedies.len(), 2, "{remedies:?}");
    (refusal, remedies.remove(1))
}

#[test]
fn an_option_is_merged_and_one_in_effect_is_not_named_again() {
    let of = |environ: &'static str| {
        next_start(&Answers::default(), &move |dir| started(dir, "server -x", environ)).1
    };
    let both = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1";
    assert_eq!(of("A=1").start, format!("GLIBC_TUNABLES={both} server .."));
    let merged = of("GLIBC_TUNABLES=glibc.pthread.rseq=0:glibc.malloc.hugetlb=1 A=1");
    assert_eq!(merged.start, format!("GLIBC_TUNABLES=glibc.pthread.rseq=0:{both} server .."));
    let known = of("GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1");
    assert!(known.start.is_empty() && known.command.is_empty(), "madvise is set: {known:?}");
    assert!(known.cost.contains(both) && known.cost.contains("is in effect"), "{known:?}");
}

/// glibc reads the global setting when the program starts, and advises only under madvise.
#[test]
fn malloc_advises_only_if_the_global_setting_is_madvise() {
    const IN_EFFECT: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1";
    let edited = |global: &'static str, size: &'static str, environ: &'static str| {
        move |dir: &Path| {
            started(dir, "server -x", environ);
            for (file, chosen) in [("enabled", global), ("hugepages-2048kB/enabled", size)] {
                let words = "always inherit madvise never";
                set(dir, file, &words.replace(chosen, &format!("[{chosen}]")));
            }
        }
    };
    let of =
        |global, size, environ| next_start(&Answers::default(), &edited(global, size, environ)).1;
    let tuned = "folio tune --set thp.enabled=madvise --yes";
    for size in ["inherit", "madvise"] {
        let known = of("never", size, IN_EFFECT);
        assert!(known.command.contains(tuned) && known.start.is_empty(), "{known:?}");
        let new = of("never", size, "A=1");
        assert!(new.command.contains(tuned) && new.start.contains("hugetlb=1"), "{new:?}");
    }
    for environ in ["A=1", IN_EFFECT] {
        for (global, size) in [("always", "madvise"), ("never", "never")] {
            let (_, none) = of_anon(&Answers::default(), &edited(global, size, environ));
            assert_eq!(sentences(&none), [collapse()], "{global} {size}");
        }
        let of_size = of("madvise", "never", environ);
        assert!(of_size.command.contains("thp.2M=madvise"), "{of_size:?}");
    }
}

#[test]
fn a_program_with_its_own_malloc_gets_no_option_of_glibc() {
    let answers = Answers { malloc_of: Some("server"), ..Answers::default() };
    let (_, remedy) = next_start(&answers, &|dir| started(dir, "server", "A=1"));
    assert!(remedy.start.is_empty() && remedy.command.contains("thp.enabled=always"));
    assert!(remedy.cost.contains("malloc is not glibc's"), "{remedy:?}");
}

#[test]
fn a_program_that_no_shell_finds_is_named_by_its_path() {
    let answers = Answers { is_elsewhere: true, ..Answers::default() };
    let (_, remedy) = next_start(&answers, &|dir| started(dir, "./server", "A=1"));
    assert!(remedy.start.ends_with(" /usr/bin/server .."), "{remedy:?}");
}

#[test]
fn a_disabled_parent_is_named_and_its_childs_own_option_is_not() {
    let (refusal, remedies) = of_anon(&Answers::default(), &|dir| {
        for file in ["maps", "smaps"] {
            replace(&dir.join("100").join(file), "/usr/bin/server", "/usr/bin/redis-server");
        }
        let status = |parent: u32| format!("PPid:\t{parent}\nTHP_enabled:\t0\n");
        std::fs::write(dir.join("100/status"), status(200)).unwrap();
        std::fs::write(dir.join("200/status"), status(1)).unwrap();
    });
    assert_eq!((refusal, remedies.len()), (Refusal::Disabled, 1));
    let cost = &remedies[0].cost;
    assert!(!remedies[0].is_some() && cost.contains("process 200 (worker)"), "{cost}");
}

#[test]
fn no_setting_is_promised_to_a_process_that_takes_advised_memory_only() {
    let eligible = |value: u32| {
        move |dir: &Path| {
            started(dir, "server", "A=1");
            set(dir, "enabled", "[always] madvise never");
            let smaps = dir.join("100/smaps");
            let text = std::fs::read_to_string(&smaps).unwrap();
            let lines = text.lines().map(|line| {
                if line.starts_with("AnonHugePages:") {
                    format!("{line}\nTHPeligible:           {value}\n")
                } else {
                    format!("{line}\n")
                }
            });
            std::fs::write(&smaps, lines.collect::<String>()).unwrap();
        }
    };
    let own = Answers { malloc_of: Some("server"), ..Answers::default() };
    let (refusal, remedies) = of_anon(&own, &eligible(0));
    assert_eq!(refusal, Refusal::DisabledExceptAdvised);
    assert_eq!(sentences(&remedies), [collapse()]);
    // Advice works here, so an option that advises is recommended. Under always, glibc gives none.
    let mimalloc =
        Answers { malloc_of: Some("server"), constants: vec!["mimalloc: "], ..Answers::default() };
    let (_, remedy) = next_start(&mimalloc, &eligible(0));
    assert!(remedy.start.contains("MIMALLOC_LARGE_OS_PAGES=1"), "{remedy:?}");
    let (_, remedies) = of_anon(&Answers::default(), &eligible(0));
    assert_eq!(sentences(&remedies), [collapse()]);
    let (refusal, remedies) = of_anon(&own, &eligible(1));
    assert_eq!((refusal, remedies.len()), (Refusal::FilledSmall, 1));
    // Under madvise nothing shows it.
    let under_madvise = |release: &'static str| {
        let (_, remedy) = next_start(&own, &move |dir| {
            started(dir, "server", "A=1");
            std::fs::create_dir_all(dir.join("sys/kernel")).unwrap();
            std::fs::write(dir.join("sys/kernel/osrelease"), release).unwrap();
        });
        remedy.cost
    };
    assert!(under_madvise("6.18.44").contains("except for advised"));
    assert!(!under_madvise("6.17.13-amd64").contains("except for advised"));
}

#[test]
fn a_name_that_ends_like_the_mark_of_a_deleted_file_is_a_name() {
    let of = |there: &str| {
        let (_dir, system) = edited("6.18", |dir| {
            for file in ["maps", "smaps"] {
                replace(&dir.join("100").join(file), "/usr/bin/server", "/usr/bin/x (deleted)");
            }
            std::fs::write(dir.join("there"), there).unwrap();
        });
        let census = take(&system, &[100]).unwrap();
        let vma = &census.processes[0].mappings[0].vma;
        (vma.path.display().to_string(), vma.is_deleted)
    };
    assert_eq!(of("11 /usr/bin/x (deleted)\n"), ("/usr/bin/x (deleted)".to_owned(), false));
    assert_eq!(of("12 /usr/bin/x (deleted)\n"), ("/usr/bin/x".to_owned(), true));
    assert_eq!(of(""), ("/usr/bin/x".to_owned(), true));
}

#[test]
fn a_heap_of_malloc_takes_half_a_block_more() {
    let (_, remedy) = next_start(&Answers::default(), &|dir| {
        started(dir, "server", "A=1");
        for file in ["maps", "smaps"] {
            let path = dir.join("100").join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            let named = text.lines().map(|line| {
                let is_memory = line.starts_with("40000000-40200000");
                let name = if is_memory { "                 [heap]" } else { "" };
                format!("{line}{name}\n")
            });
            std::fs::write(&path, named.collect::<String>()).unwrap();
        }
    });
    assert_eq!(remedy.start, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 server ..");
    assert_eq!(remedy.extra_bytes, (512 << 10) + (1 << 20), "the holes, and half a block");
}

/// Under always, glibc does not advise its heap, which then grows in small steps.
#[test]
fn no_setting_is_named_that_takes_large_folios_from_the_heap() {
    let own = Answers { malloc_of: Some("server"), ..Answers::default() };
    let with_heap = |flags: &'static str| {
        move |dir: &Path| {
            started(dir, "server", "A=1");
            let smaps = dir.join("100/smaps");
            let heap = format!(
                "0fe00000-10000000 rw-p 00000000 00:00 0                  [heap]\nRss: 2048 kB\n\
                 VmFlags: rd wr mr mw me ac {flags}\n\
                 10000000-10800000 rw-p 00000000 00:00 0                  [heap]\nRss: 8192 kB\n\
                 AnonHugePages: 6144 kB\nVmFlags: rd wr mr mw me ac {flags}\n"
            );
            let text = std::fs::read_to_string(&smaps).unwrap();
            std::fs::write(&smaps, heap + &text).unwrap();
        }
    };
    let (_, remedy) = next_start(&own, &with_heap(""));
    assert!(remedy.command.contains("thp.enabled=always"), "{remedy:?}");
    let (_, remedies) = of_anon(&own, &with_heap("hg"));
    assert_eq!(sentences(&remedies), [collapse()]);
}

#[test]
fn a_new_start_of_java_costs_the_holes_of_its_heap_and_blocks_of_code() {
    let java = |dir: &Path| {
        started(dir, "java -jar x", "A=1");
        for file in ["maps", "smaps"] {
            replace(&dir.join("100").join(file), LIBC, "/usr/lib/jvm/libjvm.so");
        }
    };
    let (_, remedy) = next_start(&Answers::default(), &java);
    assert_eq!(remedy.start, "java -XX:+UseTransparentHugePages ..");
    assert_eq!(remedy.extra_bytes, 512 << 10, "a quarter of the block is empty");
    // A page of code in a reservation of eight blocks.
    let (_, remedy) = next_start(&Answers::default(), &|dir| {
        java(dir);
        for file in ["maps", "smaps"] {
            let code = "7e0000000000-7e0000001000 rwxp 00000000 00:00 0 \n\
                        7e0000001000-7e0001001000 ---p 00000000 00:00 0 \n";
            let libjvm = "7f0000000000-";
            replace(&dir.join("100").join(file), libjvm, &format!("{code}{libjvm}"));
        }
        let pagemap = dir.join("100/pagemap");
        let text = std::fs::read_to_string(&pagemap).unwrap();
        let text = text.replace("7f0000000 1 ", "7e0000000 1 8100000000000101\n7f0000000 1 ");
        std::fs::write(pagemap, text).unwrap();
    });
    assert_eq!(remedy.extra_bytes, (512 << 10) + (2 << 20) - 4096, "and one block of code");
    let (_, remedy) = next_start(&Answers::default(), &|dir| {
        java(dir);
        let cmdline = dir.join("100/cmdline");
        std::fs::write(cmdline, "java\0-XX:+UseTransparentHugePages\0-jar\0x").unwrap();
    });
    assert!(remedy.start.is_empty() && remedy.command.contains("thp.enabled=always"));
    assert!(remedy.cost.contains("-XX:+UseTransparentHugePages is in effect"), "{remedy:?}");
}
