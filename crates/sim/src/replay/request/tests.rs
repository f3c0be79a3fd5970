use largefolio_trace::{FileInfo, Image, LayoutEntry, LayoutKind};

use super::*;

fn request(kernels: &[&str], machines: &[&str]) -> ReplayRequest {
    let kernels = kernels.iter().map(|name| Kernel::parse(name).unwrap()).collect();
    ReplayRequest::new(kernels, machines.iter().map(|name| Machine::named(name).unwrap()).collect())
}

fn permille(permille: u32) -> Fragmented {
    Fragmented { bytes: 0, permille }
}

fn message(request: &ReplayRequest) -> String {
    request.specs().unwrap_err().to_string()
}

#[test]
fn cells_come_kernels_outermost_and_each_once() {
    let mut edited = request(&["6.12", "7.2", "6.12"], &["altra", "altra"]);
    edited.memory_bytes = vec![1 << 30, 2 << 30, 1 << 30];
    edited.seeds = vec![3, 4, 3];
    edited.fragmentation.permille = 1;
    let specs = edited.specs().unwrap();
    let key = |spec: &CellSpec| (spec.kernel.name.clone(), spec.ram_bytes >> 30, spec.seed);
    let cells: Vec<_> = specs.iter().map(key).collect();
    let of =
        |kernel: &str| [(1, 3), (1, 4), (2, 3), (2, 4)].map(|(m, s)| (kernel.to_owned(), m, s));
    assert_eq!(cells, [of("6.12"), of("7.2")].concat());
    assert!(!edited.has_idle_seeds());
}

#[test]
fn a_request_without_settings_is_a_cell_of_the_defaults() {
    let spec = request(&["7.2"], &["altra"]).specs().unwrap().remove(0);
    let plain = CellSpec::new(Kernel::parse("7.2").unwrap(), Machine::named("altra").unwrap());
    assert_eq!((spec.ram_bytes, spec.seed), (plain.ram_bytes, plain.seed));
    assert_eq!(spec.ns_per_reference, plain.ns_per_reference);
}

#[test]
fn what_no_model_has_is_refused() {
    assert!(message(&request(&[], &["altra"])).starts_with("no kernel was given"));
    assert!(message(&request(&["7.2"], &[])).starts_with("no machine was given"));
    let plain = request(&["7.2"], &["altra"]);
    let memory_bytes = vec![(MEMORY_GIB_MAX << 30) + 1];
    assert!(message(&ReplayRequest { memory_bytes, ..plain.clone() }).contains("at most 4T"));
    let swap_bytes = u64::MAX;
    assert!(message(&ReplayRequest { swap_bytes, ..plain.clone() }).contains("at most 4T"));
    assert!(
        message(&ReplayRequest { fragmentation: permille(1001), ..plain.clone() })
            .contains("0 to 1000")
    );
    let seeds = (0..300).collect();
    let edited = ReplayRequest { seeds, fragmentation: permille(1), ..plain.clone() };
    assert!(message(&edited).contains("300 seeds make 300 cells"));
    let filesystem = Some("ntfs".to_owned());
    assert!(message(&ReplayRequest { filesystem, ..plain.clone() }).contains("use `--fs none`"));
    let annotations = vec!["cc1=2M".parse().unwrap()];
    let edited = ReplayRequest { annotations, ..plain };
    let message = edited.check_trace(&Meta::default()).unwrap_err().to_string();
    assert!(message.starts_with("--annotate cc1=2M: no file in the trace matches"), "{message}");
    let cgroups = vec!["64M".parse().unwrap(), "cc1=2M".parse().unwrap()];
    let edited = ReplayRequest { cgroups, ..request(&["7.2"], &["altra"]) };
    let message = edited.check_trace(&Meta::default()).unwrap_err().to_string();
    assert!(message.starts_with("--cgroup cc1=2M: no program in the trace matches"), "{message}");
}

#[test]
fn machines_that_differ_have_names_that_differ() {
    let mut edited = request(&["7.2"], &["zen4", "zen4"]);
    assert_eq!(edited.specs().unwrap().len(), 1, "the same machine twice is one");
    edited.machines[1].costs.fault = None;
    let named = "two different machines are called 'zen4'; give each machine file its own `name`";
    assert_eq!(message(&edited), named);
    edited.machines[1].name = "slow".to_owned();
    assert_eq!(edited.specs().unwrap().len(), 2);
}

#[test]
fn a_group_that_a_later_one_leaves_empty_is_refused() {
    let of = |texts: &[&str]| {
        let cgroups = texts.iter().map(|text| text.parse().unwrap()).collect();
        ReplayRequest { cgroups, ..request(&["7.2"], &["altra"]) }
    };
    let overridden = |group: &str, by: &str| {
        format!(
            "--cgroup {group}: no program is left for it because '{by}' matches them all; omit \
             either group"
        )
    };
    assert_eq!(message(&of(&["8M", "cc1=6M", "4M"])), overridden("8M", "4M"));
    assert_eq!(message(&of(&["cc1=8M", "cc1=4M"])), overridden("cc1=8M", "cc1=4M"));
    let meta = programs(&["/bin/one", "/bin/two"]);
    let message = |texts: &[&str]| of(texts).check_trace(&meta).map_err(|error| error.to_string());
    assert_eq!(message(&["*=1M", "one=256K"]), Ok(()), "two is in the first");
    assert_eq!(message(&["one=1M", "o*=256K"]), Err(overridden("one=1M", "o*=256K")));
    let all = message(&["*=1M", "one=256K", "two=128K"]);
    assert_eq!(all, Err(overridden("*=1M", "one=256K")));
    assert_eq!(message(&["64M", "*=1M"]), Ok(()), "the first is for what the second leaves");
}

fn programs(paths: &[&str]) -> Meta {
    let file = |path: &&str| FileInfo { path: (*path).to_owned(), ..FileInfo::default() };
    let layout = |file| {
        let kind = LayoutKind::Program;
        vec![LayoutEntry { addr: 1 << 22, len: 4096, prot: 5, file: Some(file), pos: 0, kind }]
    };
    let image = |file| Image { layout: layout(file), brk: 0 };
    let files = paths.iter().map(file).collect();
    Meta {
        files,
        layout: layout(0),
        images: (0..).take(paths.len()).map(image).collect(),
        ..Meta::default()
    }
}
