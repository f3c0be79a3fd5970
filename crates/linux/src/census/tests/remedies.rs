//! Remedies on machines stored in directories: which one is recommended, with what gain, and when
//! nothing helps.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{K, edited, finding, fixture, judged, judged_with, replace};
use crate::alignment::{Obstacle, Placed};
use crate::census::block::{BlockFacts, Runs};
use crate::reasons::Refusal;
use crate::remedies::verbs::Verbs;
use crate::remedies::{Action, Remedy, Restart, Scope};
use crate::shell::as_root;
use crate::system::MemSystem;
use crate::warm::{WarmRefusal, Warmed};

const THP: &str = "sys/kernel/mm/transparent_hugepage";

#[derive(Default)]
pub(super) struct Answers {
    pub(super) warm: Option<WarmRefusal>,
    pub(super) placed: Option<Placed>,
    pub(super) remap: Option<String>,
    pub(super) notes: Vec<String>,
    pub(super) constants: Vec<&'static str>,
    pub(super) malloc_of: Option<&'static str>,
    pub(super) is_elsewhere: bool,
}

impl Verbs for Answers {
    fn is_here(&self, path: &Path, _inode: u64) -> bool {
        !path.starts_with("/gone")
    }

    fn warm(&self, path: &Path) -> Option<Warmed> {
        Some(Warmed {
            path: path.to_owned(),
            file_bytes: 4096 * K,
            folio_bytes: 2048 * K,
            filesystem: "ext4".to_owned(),
            possible_bytes: 4096 * K,
            before_bytes: Some(0),
            after_bytes: Some(0),
            elapsed: Duration::ZERO,
            refusal: self.warm.clone(),
        })
    }

    fn placed(&self, _path: &Path, _block_bytes: u64) -> Option<Placed> {
        self.placed.clone()
    }

    fn remap_refusal(&self, _path: &Path) -> Option<String> {
        self.remap.clone()
    }

    fn notes(&self, _path: &Path) -> Vec<String> {
        self.notes.clone()
    }

    fn finds(&self, _name: &OsStr, _inode: u64) -> bool {
        !self.is_elsewhere
    }

    fn symbols(&self, path: &Path, wanted: &[&str]) -> Vec<String> {
        let is_owner = self.malloc_of.is_some_and(|owner| path.ends_with(owner));
        if is_owner { wanted.iter().map(|&name| name.to_owned()).collect() } else { Vec::new() }
    }

    fn constants(&self, _path: &Path, wanted: &[&str]) -> Vec<String> {
        let is_there = |word: &&&str| self.constants.contains(word);
        wanted.iter().filter(is_there).map(|&word| word.to_owned()).collect()
    }
}

/// Puts the fixture's private memory in base pages; three quarters of the block are present.
fn small(dir: &Path) {
    replace(
        &dir.join("100/pagemap"),
        "40000 200 8000000000002000 1 pmd",
        "40000 180 8100000000008000 1",
    );
    replace(&dir.join("kpageflags"), "8000 100 828", "8000 200 5828");
    replace(&dir.join("100/smaps"), "AnonHugePages:      2048", "AnonHugePages:         0");
}

pub(super) fn set(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join(THP).join(name), text).unwrap();
}

pub(super) fn of_anon(answers: &Answers, edit: &dyn Fn(&Path)) -> (Refusal, Vec<Remedy>) {
    let (_dir, system) = edited("6.18", |dir| {
        small(dir);
        edit(dir);
    });
    let census_findings = judged_with(&system, 100, answers);
    let census_findings = finding(&census_findings, 0x4000_0000).unwrap();
    (census_findings.reasons[0].refusal, census_findings.remedies.clone())
}

pub(super) fn sentences(remedies: &[Remedy]) -> Vec<String> {
    remedies.iter().map(ToString::to_string).collect()
}

pub(super) fn collapse() -> String {
    as_root("folio collapse 100")
}

#[test]
fn memory_that_is_advised_is_collapsed_with_its_gain_and_cost() {
    let (refusal, remedies) = of_anon(&Answers::default(), &|_| ());
    assert_eq!(refusal, Refusal::FilledSmall);
    assert_eq!(sentences(&remedies), [collapse()]);
    let remedy = &remedies[0];
    assert_eq!((remedy.gain_bytes, remedy.extra_bytes), (2048 * K, 512 * K), "a quarter is empty");
    assert_eq!((remedy.action, remedy.restart), (Action::Collapse, Restart::None));
    assert!(remedy.undo.contains("none") && remedy.cost.contains("fork"));
    // After a fork no page is exclusively mapped: all of them are copied.
    let (_, shared) = of_anon(&Answers::default(), &|dir| {
        replace(&dir.join("100/pagemap"), "8100000000008000", "8000000000008000");
    });
    assert_eq!((shared[0].gain_bytes, shared[0].extra_bytes), (2048 * K, 2048 * K));
}

#[test]
fn a_setting_is_changed_with_tune_and_an_option_is_preferred() {
    let plain = |dir: &Path| replace(&dir.join("100/smaps"), " ac hg ", " ac ");
    let (refusal, remedies) = of_anon(&Answers::default(), &plain);
    assert_eq!(refusal, Refusal::NotAdvised);
    let tune = |value: &str| {
        as_root(&format!("folio tune --set thp.enabled={value} --yes, then restart the program"))
    };
    assert_eq!(sentences(&remedies), [collapse(), tune("always")]);
    assert_eq!(remedies[1].undo, as_root("folio tune --undo"));

    let go = Answers { notes: vec!["Go".to_owned()], ..Answers::default() };
    let (_, remedies) = of_anon(&go, &plain);
    assert!(remedies[1].cost.contains("Go has no option"), "{remedies:?}");

    let libc = |dir: &Path| {
        plain(dir);
        for file in ["maps", "smaps"] {
            replace(&dir.join("100").join(file), "/usr/bin/server", "/usr/lib/libc.so.6");
        }
    };
    let start = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1 libc.so.6 ..";
    let (_, remedies) = of_anon(&Answers::default(), &libc);
    assert_eq!(remedies[1].to_string(), format!("restart the program as: {start}"));

    let never = |dir: &Path| {
        libc(dir);
        set(dir, "enabled", "always madvise [never]");
    };
    let (refusal, remedies) = of_anon(&Answers::default(), &never);
    assert_eq!(refusal, Refusal::SettingOff);
    assert_eq!(remedies[1].to_string(), format!("{} as: {start}", tune("madvise")));
    assert_eq!(remedies[1].undo, format!("start it as before; {}", as_root("folio tune --undo")));

    let only_never = |dir: &Path| set(dir, "enabled", "always madvise [never]");
    let (_, remedies) = of_anon(&Answers::default(), &only_never);
    assert_eq!(sentences(&remedies), [collapse(), tune("madvise")], "it is advised");
}

#[test]
fn a_setting_that_does_not_take_the_value_is_not_named() {
    let (_, remedies) = of_anon(&Answers::default(), &|dir| {
        replace(&dir.join("100/smaps"), " ac hg ", " ac ");
        set(dir, "enabled", "[never]");
    });
    assert_eq!(sentences(&remedies), [collapse()]);
}

#[test]
fn what_the_program_forbids_no_verb_can_do() {
    let disabled =
        |dir: &Path| std::fs::write(dir.join("100/status"), "THP_enabled:\t0\n").unwrap();
    let forbidden = |dir: &Path| replace(&dir.join("100/smaps"), " ac hg ", " ac nh ");
    let cases = [
        (&disabled as &dyn Fn(&Path), Refusal::Disabled, "PR_SET_THP_DISABLE"),
        (&forbidden, Refusal::NoHugeAdvice, "MADV_NOHUGEPAGE"),
    ];
    for (edit, expected, cause) in cases {
        let (refusal, remedies) = of_anon(&Answers::default(), edit);
        assert_eq!((refusal, remedies.len()), (expected, 1));
        assert!(!remedies[0].is_some() && remedies[0].cost.contains(cause), "{remedies:?}");
    }
    let inherited = |dir: &Path| {
        std::fs::write(dir.join("100/status"), "PPid:\t50\nTHP_enabled:\t0\n").unwrap();
        std::fs::create_dir(dir.join("50")).unwrap();
        std::fs::write(dir.join("50/status"), "PPid:\t1\nTHP_enabled:\t0\n").unwrap();
        std::fs::write(dir.join("50/comm"), "wrapper\n").unwrap();
    };
    let (_, remedies) = of_anon(&Answers::default(), &inherited);
    assert!(remedies[0].cost.contains("50 (wrapper)"), "{remedies:?}");
    let redis = |dir: &Path| {
        disabled(dir);
        for file in ["maps", "smaps"] {
            replace(&dir.join("100").join(file), "/usr/bin/server", "/usr/bin/redis-server");
        }
    };
    let (_, remedies) = of_anon(&Answers::default(), &redis);
    assert_eq!(sentences(&remedies), ["restart the program as: redis-server .. --disable-thp no"]);
    assert!(remedies[0].cost.contains("fork"));
}

/// A 4 MiB file mapped at a suitable address, half of it in small folios.
fn of_file(answers: &Answers, edit: &dyn Fn(&Path)) -> Vec<Remedy> {
    let (_dir, system) = edited("6.18", |dir| {
        replace(&dir.join("100/maps"), "00400000-00430000 r-xp", "00400000-00800000 r-xp");
        edit(dir);
    });
    let census_findings = judged_with(&system, 100, answers);
    finding(&census_findings, 0x40_0000).unwrap().remedies.clone()
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the fixture has text blocks of 2M")]
fn a_file_is_warmed_only_if_warm_would() {
    let warm = |refusal| {
        let remedies = of_file(&Answers { warm: refusal, ..Answers::default() }, &|_| ());
        assert_eq!(remedies.len(), 1);
        remedies[0].clone()
    };
    let in_use = |pids: &[u32]| Some(WarmRefusal::InUse { bytes: 1, pids: pids.to_vec() });
    let alone = warm(in_use(&[100]));
    let sentence = "stop the program, folio warm /usr/bin/server, start it again";
    assert_eq!((alone.to_string().as_str(), alone.restart), (sentence, Restart::Around));
    assert_eq!(alone.gain_bytes, 2048 * K, "the second block is not touched");
    let shared = warm(in_use(&[100, 7]));
    assert!(!shared.is_some() && shared.cost.contains("it is a system file"), "{shared}");
    let none = warm(Some(WarmRefusal::NoFolios { filesystem: "zfs".to_owned() }));
    assert!(!none.is_some() && none.cost.contains("zfs"), "{none:?}");
}

#[test]
fn text_at_a_wrong_address_is_moved_only_if_it_can_be() {
    let badly = Some(Placed::Unmappable(Obstacle::Random(4096)));
    let of = |remap: Option<&str>| {
        let remap = remap.map(str::to_owned);
        of_file(&Answers { placed: badly.clone(), remap, ..Answers::default() }, &|_| ())
    };
    let moved = of(None);
    assert_eq!(moved[0].start, "folio run --text remap -- /usr/bin/server ..");
    let static_program = of(Some("it is static"));
    assert!(static_program[0].to_string().contains("it is static"), "{static_program:?}");
}

#[test]
fn a_file_that_cannot_be_reached_or_is_too_short_has_a_reason_instead() {
    let gone = of_file(&Answers::default(), &|dir| {
        replace(&dir.join("100/maps"), "/usr/bin/server", "/gone/server");
    });
    assert!(!gone[0].is_some(), "{gone:?}");
}

/// Text without a whole 2M block: 192 KiB with 48 base pages present.
fn of_short(answers: &Answers) -> Remedy {
    let census_findings = judged_with(&MemSystem::from_dir(fixture("6.18")), 100, answers);
    let mut remedies = finding(&census_findings, 0x40_0000).unwrap().remedies.clone();
    assert_eq!(remedies.len(), 1);
    remedies.remove(0)
}

#[test]
fn a_short_file_is_warmed_if_the_loader_places_it_so_each_time() {
    let well = || Some(Placed::Mappable { text_bytes: 128 * K, file: 0..192 * K });
    let warmed = of_short(&Answers { placed: well(), ..Answers::default() });
    assert_eq!(
        (warmed.action, warmed.command.as_str()),
        (Action::Warm, "folio warm /usr/bin/server")
    );
    assert!(warmed.gain_bytes > 0 && warmed.gain_bytes.is_multiple_of(64 * K), "{warmed:?}");
    let in_use = Some(WarmRefusal::InUse { bytes: 1, pids: vec![100, 7] });
    let shared = of_short(&Answers { placed: well(), warm: in_use, ..Answers::default() });
    assert!(!shared.is_some() && shared.cost.contains("folio warm /usr/bin/server"), "{shared:?}");
    let random = Some(Placed::Unmappable(Obstacle::Random(4096)));
    let random = of_short(&Answers { placed: random, ..Answers::default() });
    assert!(!random.is_some() && random.cost.contains("folio align --align 64K"), "{random:?}");
    assert!(random.cost.contains("at any address"), "{random:?}");
    let in_use = Some(WarmRefusal::InUse { bytes: 1, pids: vec![100, 7] });
    let refused = of_short(&Answers { warm: in_use, ..Answers::default() });
    assert!(!refused.cost.contains("folio warm"), "it would refuse: {refused:?}");
    let none = of_short(&Answers::default());
    assert!(!none.is_some() && none.cost.contains("a new address each time it starts"), "{none:?}");
}

#[test]
fn a_kernel_that_can_read_text_in_large_folios_is_set_to_do_so() {
    let well = || Some(Placed::Mappable { text_bytes: 128 * K, file: 0..192 * K });
    let of = |answers: &Answers, value: &str| {
        let (_dir, system) = edited("6.18", |dir| {
            let folder = dir.join("sys/kernel/mm/largefolio");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("exec_order"), value).unwrap();
            std::fs::write(folder.join("exec_order_bytes"), "65536\n").unwrap();
        });
        let census_findings = judged_with(&system, 100, answers);
        finding(&census_findings, 0x40_0000).unwrap().remedies.clone()
    };
    let off = "[off] block window\n";
    let [warm, read] = &of(&Answers { placed: well(), ..Answers::default() }, off)[..] else {
        panic!("the file's own remedy, and the system's");
    };
    assert_eq!((warm.action, warm.scope), (Action::Warm, Scope::Program));
    assert_eq!((read.action, read.scope), (Action::Tune, Scope::System));
    let tune = as_root("folio tune --set largefolio.exec_order=window --yes");
    let drop = "dd if=/usr/bin/server iflag=nocache count=0 status=none";
    let expected = format!("stop the program, {tune} && {drop}, start it again");
    assert_eq!((read.to_string(), &read.undo), (expected, &as_root("folio tune --undo")));
    assert_eq!((read.gain_bytes, read.folio_bytes), (warm.gain_bytes, 64 * K));
    let on = of(&Answers { placed: well(), ..Answers::default() }, "off block [window]\n");
    assert_eq!(on.len(), 1, "{on:?}");
    let in_use = Some(WarmRefusal::InUse { bytes: 1, pids: vec![100, 7] });
    let shared = of(&Answers { placed: well(), warm: in_use, ..Answers::default() }, off);
    assert!(!shared[0].is_some(), "another program keeps the file cached: {shared:?}");
    let random = Some(Placed::Unmappable(Obstacle::Random(4096)));
    let random = of(&Answers { placed: random, ..Answers::default() }, off);
    assert!(!random[0].is_some(), "entries could not map the folios: {random:?}");
}

#[test]
fn what_grows_in_steps_is_promised_no_small_folios() {
    let of = |next: &str| {
        let (_dir, system) = edited("6.18", |dir| {
            small(dir);
            set(dir, "hugepages-64kB/enabled", "always inherit madvise [never]");
            for file in ["maps", "smaps"] {
                let file = dir.join("100").join(file);
                replace(&file, "40000000-40200000 rw-p", "40000000-401f0000 rw-p");
            }
            let maps = dir.join("100/maps");
            let text = std::fs::read_to_string(&maps).unwrap();
            let (before, after) = text.split_once("40000000-401f0000").unwrap();
            let (line, after) = after.split_once('\n').unwrap();
            let text = format!("{before}40000000-401f0000{line}\n{next}{after}");
            std::fs::write(maps, text).unwrap();
            replace(&dir.join("100/smaps"), " ac hg ", " ac ");
        });
        let census_findings = judged_with(&system, 100, &Answers::default());
        finding(&census_findings, 0x4000_0000).unwrap().remedies[0].clone()
    };
    let plain = of("");
    assert!(plain.command.contains("thp.64K=always") && plain.gain_bytes > 0, "{plain:?}");
    let grows = of("401f0000-40400000 ---p 00000000 00:00 0 \n");
    assert!(!grows.is_some() && grows.cost.contains("small steps"), "{grows:?}");
}

#[test]
fn a_writer_is_named() {
    let (_dir, system) = edited("6.18", |dir| {
        replace(&dir.join("100/maps"), "/usr/bin/server", "/data/open");
    });
    let census_findings = judged(&system, 100);
    let census_findings = finding(&census_findings, 0x40_0000).unwrap();
    assert!(census_findings.reasons.iter().any(|reason| reason.refusal == Refusal::OpenForWrite));
    assert!(
        census_findings.remedies[0].to_string().contains("4242 has the file open"),
        "{census_findings:?}"
    );
}

/// 4 MiB of shared memory at an address, under a setting.
fn of_shared(start: &str, end: &str, setting: &str) -> Vec<Remedy> {
    let (_dir, system) = edited("6.18", |dir| {
        let line = "60000000-60008000 rw-s";
        for file in ["maps", "smaps"] {
            replace(&dir.join("100").join(file), line, &format!("{start}-{end} rw-s"));
        }
        if start != "60000000" {
            replace(&dir.join("100/pagemap"), "60000 8 ", "60200 8 ");
        }
        set(dir, "shmem_enabled", setting);
    });
    let census_findings = judged_with(&system, 100, &Answers::default());
    let start = u64::from_str_radix(start, 16).unwrap();
    finding(&census_findings, start).unwrap().remedies.clone()
}

#[test]
fn shared_memory_is_collapsed_where_it_fits_and_else_needs_the_setting() {
    const NEVER: &str = "always within_size advise [never] deny force";
    const ALWAYS: &str = "[always] within_size advise never deny force";
    let tune =
        as_root("folio tune --set thp.shmem_enabled=within_size --yes, then restart the program");
    let fits = of_shared("60000000", "60400000", NEVER);
    assert_eq!(sentences(&fits), [collapse(), tune.clone()]);
    assert_eq!(fits[0].gain_bytes, 2048 * K);
    let not = of_shared("60001000", "60401000", NEVER);
    assert_eq!(sentences(&not), std::slice::from_ref(&tune));
    let late = of_shared("60001000", "60401000", ALWAYS);
    assert_eq!(sentences(&late), ["restart the program"]);
    let denied = of_shared("60000000", "60400000", "always within_size advise never [deny] force");
    assert_eq!(sentences(&denied), [tune]);
}

#[test]
fn the_whole_blocks_of_a_mapping_are_counted_once() {
    let census_findings = judged(&MemSystem::from_dir(fixture("6.18")), 100);
    let touched = |nr: usize| census_findings.0.processes[0].mappings[nr].touched.clone().unwrap();
    let sums = |runs: &Runs| {
        let nr =
            |of: fn(&BlockFacts) -> u32| runs.iter().map(move |r| u64::from(of(&r.facts)) * r.nr);
        (runs.iter().map(|run| run.nr).sum::<u64>(), nr(|facts| facts.nr_present).sum::<u64>())
    };
    let server = touched(0);
    assert_eq!(sums(&server.pmd), (0, 0), "no whole block");
    assert_eq!(sums(&server.contpte), (3, 48));
    assert_eq!(sums(&touched(2).pmd), (1, 512));
}

/// Moves the file's mapping to a tmpfs on device 0:44. The lines are the mounts of `folio` and of
/// the process.
fn of_tmpfs(own: &str, process: &str, edit: &dyn Fn(&Path)) -> (Vec<Refusal>, Vec<Remedy>) {
    let (_dir, system) = edited("6.18", |dir| {
        for file in ["maps", "smaps"] {
            let old = "r--p 00001000 fe:00 12                                 /data/table";
            replace(&dir.join("100").join(file), old, "rw-s 00000000 00:2c 12 /scratch/table");
        }
        replace(&dir.join("kpageflags"), "8000 100 828", "8000 100 4828");
        std::fs::create_dir(dir.join("self")).unwrap();
        std::fs::write(dir.join("self/mountinfo"), own).unwrap();
        std::fs::write(dir.join("100/mountinfo"), process).unwrap();
        edit(dir);
    });
    let census_findings = judged(&system, 100);
    let census_findings = finding(&census_findings, 0x80_0000).unwrap();
    let refusals = census_findings.reasons.iter().map(|reason| reason.refusal);
    let refusals = refusals.filter(|refusal| *refusal != Refusal::NotTouched).collect();
    (refusals, census_findings.remedies.clone())
}

const ROOT: &str = "22 1 254:0 / / rw - ext4 /dev/vda rw\n";

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the mapping is one block of 2M")]
fn a_tmpfs_is_judged_by_its_mount_and_remounted_where_it_is() {
    let scratch = |huge: &str| format!("{ROOT}30 22 0:44 / /scratch rw - tmpfs none rw{huge}\n");
    let remounts = |census_findings: (Vec<Refusal>, Vec<Remedy>)| {
        let remedies =
            census_findings.1.into_iter().filter(|remedy| remedy.action == Action::Remount);
        (
            census_findings.0,
            remedies.map(|remedy| (remedy.command, remedy.undo)).collect::<Vec<_>>(),
        )
    };
    let plain = "mount -o remount,huge";
    let ours = remounts(of_tmpfs(&scratch(""), &scratch(""), &|_| ()));
    let typed = |huge: &str| as_root(&format!("{plain}={huge} /scratch"));
    let both = (typed("within_size"), typed("never"));
    assert_eq!(ours, (vec![Refusal::SettingOff], vec![both]));

    let theirs = remounts(of_tmpfs(ROOT, &scratch(",huge=advise"), &|_| ()));
    let typed = |huge: &str| as_root(&format!("nsenter -t 100 -m {plain}={huge} /scratch"));
    let both = (typed("within_size"), typed("advise"));
    assert_eq!(theirs, (vec![Refusal::NotAdvised], vec![both]));

    let (_, remedies) = of_tmpfs(ROOT, &scratch(""), &|_| ());
    let remount = remedies.iter().find(|remedy| remedy.action == Action::Remount).unwrap();
    assert!(remount.cost.ends_with("mount it with huge=within_size instead"), "{remount:?}");

    // In the fixture shmem_enabled is never, which does not matter here.
    let allowed = remounts(of_tmpfs(ROOT, &scratch(",huge=always"), &|_| ()));
    assert_eq!(allowed, (vec![Refusal::FilledSmall], vec![]));
    let (_, remedies) = of_tmpfs(ROOT, &scratch(",huge=always"), &|dir| {
        replace(
            &dir.join("100/maps"),
            "00800000-00a00000 rw-s 00000000",
            "00800000-00a00000 rw-s 00001000",
        );
        replace(
            &dir.join("100/smaps"),
            "00800000-00a00000 rw-s 00000000",
            "00800000-00a00000 rw-s 00001000",
        );
    });
    assert!(remedies[0].cost.starts_with("its mount already allows it"), "{remedies:?}");
    // If it is always, a mount without `huge=` does not follow it.
    let always = |dir: &Path| set(dir, "shmem_enabled", "[always] never");
    let (refusals, _) = of_tmpfs(ROOT, &scratch(""), &always);
    assert_eq!(refusals, [Refusal::SettingOff]);
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the mapping is one block of 2M")]
fn a_tmpfs_that_nobody_sees_or_that_is_denied_is_not_remounted() {
    let (refusals, remedies) = of_tmpfs(ROOT, ROOT, &|_| ());
    assert_eq!(refusals, [Refusal::MountUnseen]);
    assert!(remedies.iter().all(|remedy| remedy.action == Action::Collapse), "{remedies:?}");
    let forbid = |dir: &Path| set(dir, "shmem_enabled", "always [deny]");
    let (_, remedies) = of_tmpfs(ROOT, ROOT, &forbid);
    assert!(
        remedies[0].cost.contains("neither folio nor the process can see the mount"),
        "{remedies:?}"
    );
    // A driver's memory, on a mount that no process has.
    let of_driver = |dir: &Path| {
        for file in ["maps", "smaps"] {
            replace(
                &dir.join("100").join(file),
                "00:2c 12 /scratch/table",
                "00:01 12 /drm (deleted)",
            );
        }
    };
    let (refusals, _) = of_tmpfs(ROOT, ROOT, &of_driver);
    assert_eq!(refusals, [Refusal::SettingOff]);
    let mounted = format!("{ROOT}30 22 0:44 / /scratch rw - tmpfs none rw\n");
    let (refusals, remedies) = of_tmpfs(ROOT, &mounted, &forbid);
    assert_eq!(refusals, [Refusal::SettingOff]);
    assert!(remedies[0].cost.contains("deny, which overrules"), "{remedies:?}");
}

#[test]
fn a_mount_of_tmpfs_has_its_own_setting() {
    use crate::system::mounts::tmpfs;
    let text = b"30 22 0:44 / /dev/shm rw shared:5 - tmpfs tmpfs rw,size=1k,huge=advise\n\
        31 22 0:45 / /run rw - tmpfs tmpfs rw\n";
    assert_eq!(tmpfs(text, (0, 44)), Some((PathBuf::from("/dev/shm"), "advise".to_owned())));
    assert_eq!(tmpfs(text, (0, 45)), Some((PathBuf::from("/run"), "never".to_owned())));
    assert_eq!(tmpfs(text, (0, 46)), None);
}

/// Pages that KSM merged are collapsed, unless a block has one of them twice or KSM still runs.
#[test]
fn merged_pages_gain_nothing_while_ksm_runs_or_if_a_block_has_one_twice() {
    const ONCE: &str = "40000 180 8000000000008000 1";
    const TWICE: &str = "40000 17f 8000000000008000 1\n4017f 1 8000000000008000";
    let merged = |dir: &Path| replace(&dir.join("kpageflags"), "8000 200 5828", "8000 200 205828");
    let mergeable = |dir: &Path| {
        merged(dir);
        replace(&dir.join("100/smaps"), " ac hg ", " ac hg mg ");
        std::fs::create_dir_all(dir.join("sys/kernel/mm/ksm")).unwrap();
        std::fs::write(dir.join("sys/kernel/mm/ksm/run"), "1\n").unwrap();
    };
    let of_all = |dir: &Path| {
        mergeable(dir);
        std::fs::write(dir.join("100/ksm_stat"), "ksm_rmap_items 9\nksm_merge_any: yes\n").unwrap();
    };
    let off = |dir: &Path| {
        mergeable(dir);
        std::fs::write(dir.join("sys/kernel/mm/ksm/run"), "2\n").unwrap();
    };
    for edit in [&merged as &dyn Fn(&Path), &off] {
        assert_eq!(sentences(&of_pages(ONCE, edit)), [collapse()], "collapse copies them");
        let twice = of_pages(TWICE, edit);
        assert!(twice.iter().all(|remedy| remedy.action != Action::Collapse), "{twice:?}");
    }
    for (edit, why) in
        [(&mergeable as &dyn Fn(&Path), "MADV_MERGEABLE"), (&of_all, "PR_SET_MEMORY_MERGE")]
    {
        for pages in [ONCE, TWICE] {
            let none = of_pages(pages, edit);
            assert!(none.len() == 1 && !none[0].is_some(), "{none:?}");
            assert!(none[0].cost.contains("KSM") && none[0].cost.contains(why), "{none:?}");
        }
    }
}

fn of_pages(pagemap: &str, edit: &dyn Fn(&Path)) -> Vec<Remedy> {
    let (_, remedies) = of_anon(&Answers::default(), &|dir: &Path| {
        replace(&dir.join("100/pagemap"), "40000 180 8100000000008000 1", pagemap);
        edit(dir);
    });
    remedies
}

#[test]
fn a_block_that_the_kernel_refuses_gains_nothing() {
    const GUARD: &str = "40000 17f 8100000000008000 1\n4017f 1 440000000000009f";
    let none = of_pages(GUARD, &|_| ());
    assert!(
        none.len() == 1 && !none[0].is_some() && none[0].cost.contains("guard page"),
        "{none:?}"
    );
    let protected = "40000 17f 8100000000008000 1\n4017f 1 830000000000817f";
    let none = of_pages(protected, &|_| ());
    assert!(!none[0].is_some() && none[0].cost.contains("userfaultfd"), "{none:?}");
    let armed = |dir: &Path| replace(&dir.join("100/smaps"), " ac hg ", " ac hg um ");
    let none = of_pages("40000 180 8100000000008000 1", &armed);
    assert!(!none[0].is_some() && none[0].cost.contains("userfaultfd"), "a hole: {none:?}");
    let device = |dir: &Path| replace(&dir.join("100/smaps"), " ac hg ", " io pf ");
    let none = of_pages("40000 180 8100000000008000 1", &device);
    assert!(!none[0].is_some(), "{none:?}");
}

#[test]
fn what_is_swapped_out_is_read_back_at_a_price_and_no_block_of_it_alone_is() {
    const PART: &str = "40000 180 8100000000008000 1\n40180 40 4000000000000020 1";
    let remedy = of_pages(PART, &|_| ()).remove(0);
    assert_eq!(remedy.action, Action::Collapse);
    let bytes = (remedy.gain_bytes, remedy.extra_bytes, remedy.swapped_in_bytes);
    assert_eq!(bytes, (2048 * K, 256 * K, 256 * K));
    assert_eq!(remedy.present_bytes(), 1536 * K);
}

#[test]
fn a_pinned_block_waits_for_the_next_start() {
    let pinned = |dir: &Path, list: &str| {
        std::fs::write(dir.join("100/status"), "VmPin:\t4 kB\n").unwrap();
        for name in ["fd", "fdinfo"] {
            std::fs::create_dir_all(dir.join("100").join(name)).unwrap();
            std::fs::write(dir.join("100").join(name).join("3"), list).unwrap();
        }
    };
    let plain = |dir: &Path| replace(&dir.join("100/smaps"), " ac hg ", " ac ");
    let actions = |list: &'static str| {
        let remedies = of_pages("40000 180 8100000000008000 1", &move |dir: &Path| {
            plain(dir);
            pinned(dir, list);
        });
        remedies.iter().map(|remedy| remedy.action).collect::<Vec<_>>()
    };
    assert_eq!(actions("UserBufs:\t1\n    0: 0x40003000/4096\n"), [Action::Tune]);
    assert_eq!(actions("UserBufs:\t1\n    0: 0x90003000/4096\n"), [Action::Collapse, Action::Tune]);
    // Pinned by a device, at an unknown address.
    assert_eq!(actions("pos:\t0\n"), [Action::Tune]);
}

#[test]
fn a_process_that_has_large_folios_only_where_it_advises_is_reached_by_no_setting() {
    let (refusal, remedies) = of_anon(&Answers::default(), &|dir| {
        replace(
            &dir.join("100/smaps"),
            "VmFlags: rd wr mr mw me ac hg ",
            "THPeligible: 0\nVmFlags: rd wr mr mw me ac ",
        );
        set(dir, "enabled", "[always] madvise never");
    });
    assert_eq!(refusal, Refusal::DisabledExceptAdvised);
    assert_eq!(sentences(&remedies), [collapse()], "{remedies:?}");
}
