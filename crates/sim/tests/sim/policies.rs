//! Policies over whole programs, and what clang makes of their sources.

#![expect(clippy::unwrap_used, reason = "what cannot fail in a test fails it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError, Window, area, victim};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::policy::{KernelPolicy, Source};
use largefolio_sim::replay::{
    Budget, CacheState, CellError, CellSpec, Excess, Outcome, OverBudget, ReplayError, replay,
};
use largefolio_sim::sweep::{CellId, Recipe};
use largefolio_trace::generate::{Advice, RetStubs, SweepOrder, Workload};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn cell(kernel: &str, machine: &str) -> CellSpec {
    CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
}

fn replayed(trace: &str, specs: &[CellSpec]) -> Vec<Outcome> {
    replay(&root().join("traces").join(trace), specs, &mut |_| {}).unwrap().1
}

/// The same without what names the kernel.
fn counted(outcome: &Outcome) -> Outcome {
    Outcome { kernel: String::new(), policy: None, ..outcome.clone() }
}

/// The policy that `source` is, or why there is none; `None` without clang, which is told loudly.
fn compiled(name: &str, source: &str) -> Option<Result<KernelPolicy, String>> {
    compiled_with(&["-O2"], name, source)
}

/// The same with options of clang.
#[expect(clippy::print_stderr, reason = "a test that skips says so")]
fn compiled_with(
    options: &[&str],
    name: &str,
    source: &str,
) -> Option<Result<KernelPolicy, String>> {
    let dir = tempfile::tempdir().unwrap();
    let (c, o) = (dir.path().join("policy.c"), dir.path().join("policy.o"));
    std::fs::write(&c, source).unwrap();
    let include = format!("-I{}", root().join("policies").display());
    let words = ["-target", "bpf", "-Wall", "-Werror", "-Wno-unused-variable", &include, "-c"];
    let run = Command::new("clang").args(options).args(words).arg(&c).arg("-o").arg(&o).output();
    let Ok(output) = run else {
        eprintln!("SKIPPED: no clang to compile {name}; scripts/setup.sh installs it");
        return None;
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let policy = KernelPolicy::from_object(name, &std::fs::read(&o).unwrap());
    Some(policy.map_err(|error| error.to_string()))
}

fn example(name: &str) -> String {
    std::fs::read_to_string(root().join("policies").join(format!("{name}.c"))).unwrap()
}

/// A kernel without the order of executable memory, with the policy, counts what one with it counts:
/// every fault, folio, read and TLB miss.
#[test]
fn the_exec_order_as_a_policy_is_the_exec_order() {
    for (trace, machine) in [("demo.folio", "altra"), ("cc1-arm64.folio", "grace-64k")] {
        for cache in [CacheState::Cold, CacheState::Warm] {
            let of = |kernel: &str| CellSpec { cache, ..cell(kernel, machine) };
            let kernels = ["6.16", "6.16+policy=exec-order", "6.16+fault.exec=arch-window"];
            let [without, policy, with] = replayed(trace, &kernels.map(of)).try_into().unwrap();
            assert_eq!(counted(&policy), counted(&with), "{trace} {machine} {cache:?}");
            if cache == CacheState::Warm {
                continue;
            }
            let answers = policy.policy.as_ref().unwrap().points["window"];
            assert!(answers.honoured > 20 && answers.refused == 0, "{answers:?}");
            assert_ne!(counted(&policy), counted(&without), "{trace} {machine} {cache:?}");
        }
    }
}

#[test]
fn the_same_policy_gives_the_same_result_and_own_answers_change_nothing() {
    for name in ["per-program", "pressure", "always-exec"] {
        let kernel = format!("7.2+thp=always+anon-64K=always+anon-16K=always+policy={name}");
        let mut spec = cell(&kernel, "altra");
        spec.cgroups = vec!["24M".parse().unwrap()];
        let [one, other] = replayed("demo.folio", &[spec.clone(), spec]).try_into().unwrap();
        assert_eq!(one, other, "{name}");
        let policy = one.policy.unwrap();
        assert!(policy.points.values().any(|answers| answers.honoured > 0), "{name}: {policy:?}");
        assert!(policy.points.values().all(|answers| answers.refused == 0), "{name}: {policy:?}");
    }
    let own = "SEC(\"folio/anon_order\") __u64 f(struct folio_context *c) { return FOLIO_OWN; }\n\
               SEC(\"folio/window\") __u64 g(struct folio_context *c) { return FOLIO_OWN; }\n\
               SEC(\"folio/around\") __u64 h(struct folio_context *c) { return FOLIO_OWN; }\n";
    let own = compiled("own", &format!("#include \"folio_policy.h\"\n{own}"));
    let Some(own) = own else { return };
    let plain = cell("7.2+thp=always", "altra");
    let with = CellSpec { kernel: plain.kernel.with_policy(own.unwrap()), ..plain.clone() };
    let [plain, with] = replayed("demo.folio", &[plain, with]).try_into().unwrap();
    assert_eq!(counted(&plain), counted(&with));
    assert!(with.policy.unwrap().points.values().all(|answers| answers.asked > 0));
}

/// Two programs that differ in one byte are two cells.
#[test]
fn the_identity_of_a_cell_has_the_bytes_of_its_policy() {
    let id = |spec: &CellSpec| CellId::new("00", &Recipe::of(spec).unwrap());
    let object = std::fs::read(root().join("policies/exec-order.o")).unwrap();
    let mut other = object.clone();
    // A byte behind what is read.
    other.push(0);
    let plain = cell("6.16", "altra");
    let with = |bytes: &[u8]| {
        let policy = KernelPolicy::from_object("mine", bytes).unwrap();
        CellSpec { kernel: plain.kernel.with_policy(policy), ..plain.clone() }
    };
    let ids = [id(&plain), id(&with(&object)), id(&with(&other))];
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert_eq!(id(&with(&object)), ids[1]);
    // Written down and read again it is the same cell, without a file.
    let spec = with(&object);
    let text = serde_json::to_string(&Recipe::of(&spec).unwrap()).unwrap();
    let again = serde_json::from_str::<Recipe>(&text).unwrap().cell().unwrap();
    assert_eq!(again.kernel, spec.kernel);
    assert_eq!(id(&again), ids[1]);
    let damaged = text.replace("7f454c46", "7f454c47");
    assert!(serde_json::from_str::<Recipe>(&damaged).unwrap().cell().is_err());
}

/// What is shipped does what its source says: the same answers to many questions.
#[test]
fn the_shipped_objects_are_what_clang_makes_of_their_sources() {
    for (name, _) in KernelPolicy::builtin() {
        let Some(built) = compiled(name, &example(name)) else { return };
        let mut built = built.unwrap().0.start().unwrap();
        let mut shipped = KernelPolicy::named(name).unwrap().0.start().unwrap();
        for number in 0..20_000_u64 {
            let context = question(number);
            for point in Point::ALL {
                let answers =
                    [&mut built, &mut shipped].map(|policy| policy.answer(point, &context));
                assert_eq!(answers[0], answers[1], "{name}: {context:?}");
            }
        }
    }
}

/// The number of a process is used again: another program starts from the first fault.
#[test]
fn per_program_counts_the_faults_of_a_program() {
    let mut policy = KernelPolicy::named("per-program").unwrap().0.start().unwrap();
    let mut ask = |name: &str, process| {
        let (orders, page_shift) = (1 << 9 | 1 << 4 | 1 << 2, 12);
        let mut context = Context { process, orders, page_shift, ..Context::default() };
        context.comm[..name.len()].copy_from_slice(name.as_bytes());
        policy.answer(Point::AnonOrder, &context).unwrap()
    };
    let up_to_64k = Answer::Value(1 << 4 | 1 << 2);
    for (name, process) in [("as", 7), ("ld", 7), ("ld", 8)] {
        assert!((0..256).all(|_| ask(name, process) == up_to_64k), "{name}");
        assert_eq!(ask(name, process), Answer::Own, "{name}");
    }
    assert!((0..300).all(|_| ask("python3", 7) == Answer::Value(1 << 2)));
}

/// Numbers from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        let mixed = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = mixed.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// A question as they may come, by number.
fn question(number: u64) -> Context {
    let mut numbers = Numbers(number);
    let mut comm = [0; 16];
    let name = numbers.pick(&["cc1", "python3", "perl", "a"]);
    comm[..name.len()].copy_from_slice(name.as_bytes());
    let area_start = numbers.below(1000);
    let page = area_start + numbers.below(2000);
    Context {
        comm,
        process: numbers.below(300),
        area_start,
        page,
        area_end: page + 1 + numbers.below(3000),
        area_flags: numbers.below(512),
        orders: numbers.below(1024),
        index: page + numbers.below(5000),
        file_pages: 10_000,
        max_order: numbers.below(12),
        ra_pages: numbers.pick(&[0, 8, 32, 1024]),
        cause: numbers.below(3),
        own_start: page + numbers.below(5000),
        own_pages: numbers.pick(&[0, 1, 32, 512]),
        own_order: numbers.below(10),
        page_shift: numbers.pick(&[12, 14, 16]),
        nr_pages: 100_000,
        nr_free: numbers.below(100_000),
        low: 1000,
        high: 2000,
        group_max: numbers.pick(&[u64::MAX, 10_000]),
        group_pages: numbers.below(10_000),
        ..Context::default()
    }
}

/// Names the function of a point in the sources below.
const F: &str = "SEC(\"folio/around\") __u64 f(struct folio_context *c)";

/// A whole source.
fn around(body: &str) -> String {
    format!(
        "#include \"folio_policy.h\"\n{body}\n\
         SEC(\"license\") char own_license[] = \"GPL\";"
    )
}

/// What clang compiles for: without and with instructions of 32 bits. Which it takes by itself depends
/// on its version.
const TARGETS: [&str; 2] = ["-mcpu=v1", "-mcpu=v3"];

/// Each source is refused with what to do instead.
fn refused(cases: &[(String, &str)]) {
    for (target, (source, expected)) in
        TARGETS.into_iter().flat_map(|to| cases.iter().map(move |case| (to, case)))
    {
        let Some(policy) = compiled_with(&["-O2", target], "bad", source) else { return };
        let Err(told) = policy else { panic!("passed: {source}") };
        assert!(told.contains(expected), "{target}: expected {expected:?}: {told}\n{source}");
    }
}

/// An index that is compared first, of any type.
#[test]
fn an_index_that_was_compared_is_within_its_table() {
    let count = |declared: &str| {
        around(&format!(
            "static __u64 nr[14];\n{F} {{ {declared} return FOLIO_OWN; nr[o]++; return FOLIO_OWN; }}"
        ))
    };
    let u64_ = count("__u64 o = c->pmd_order; if (o >= 14)");
    let u32_ = count("__u32 o = c->pmd_order; if (o >= 14)");
    let s64_ = count("__s64 o = c->pmd_order; if (o < 0 || o >= 14)");
    let int_ = count("int o = c->pmd_order; if (o < 0 || o >= 14)");
    let of = |target: &str, source: &str| compiled_with(&["-O2", target], "counts", source);
    for target in TARGETS {
        for source in [&u64_, &u32_, &s64_] {
            let Some(policy) = of(target, source) else { return };
            assert!(policy.is_ok(), "{target}: {source}: {policy:?}");
        }
    }
    // Without instructions of 32 bits clang compares a copy, as kernels do not follow either.
    assert!(of("-mcpu=v3", &int_).unwrap().is_ok());
    let told = of("-mcpu=v1", &int_).unwrap().unwrap_err();
    assert!(
        told.contains("compare the index with the size first, as a number without a sign"),
        "{told}"
    );
}

#[test]
fn code_that_was_not_optimized_is_told_so() {
    let source = around(&format!(
        "FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
         {F} {{ __u64 key = 1; return bpf_map_lookup_elem(&m, &key) != 0; }}"
    ));
    let Some(policy) = compiled_with(&["-O0"], "slow", &source) else { return };
    let told = policy.unwrap_err();
    assert!(told.contains("compile with -O2"), "{told}");
}

/// What clang makes and nobody may run.
#[test]
fn programs_that_are_refused_say_what_to_do() {
    refused(&[
        (
            around(&format!(
                "{F} {{ __u64 n = c->page; while (n & 1) n = n / 3 + c->index; return n; }}"
            )),
            "it jumps back in a loop: unroll it",
        ),
        (
            around(&format!(
                "static __attribute__((noinline)) __u64 g(__u64 n) {{ return n * n; }}\n\
                 {F} {{ return g(c->page); }}"
            )),
            "always_inline",
        ),
        (around(&format!("{F} {{ return (__u64)c; }}")), "it returns an address"),
        (around(&format!("{F} {{ return *(__u64 *)0x1000; }}")), "a number is no address"),
        (around(&format!("{F} {{ c->page = 1; return 1; }}")), "the context cannot be written"),
        (
            around(&format!(
                "FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
                 {F} {{ return *(__u64 *)bpf_map_lookup_elem(&m, &(__u64){{1}}); }}"
            )),
            "compared with 0 before",
        ),
        (
            around(&format!("static long (*now)(void) = (void *)5;\n{F} {{ return now(); }}")),
            "no clock and no random numbers",
        ),
        (
            around(&format!("__u64 n; {F} {{ return __sync_fetch_and_add(&n, 1), n; }}")),
            "nothing runs beside a policy",
        ),
    ]);
}

/// What clang makes that is no policy.
#[test]
fn files_that_are_refused_say_what_to_do() {
    refused(&[
        (
            around("SEC(\"folio/arround\") __u64 f(struct folio_context *c) { return 1; }"),
            "known points: anon_order, window, around",
        ),
        (around("int nothing;"), "no section folio/POINT"),
        (
            around(&format!(
                "{F} {{ return 1; }} SEC(\"folio/around\") __u64 g(struct folio_context *c) {{ return 2; }}"
            )),
            "2 functions; use one for each point",
        ),
        (
            around(&format!(
                "struct folio_map m SEC(\"folio_maps\") = {{ 9, 8, 8, 8 }};\n\
                 {F} {{ return bpf_map_lookup_elem(&m, &(__u64){{1}}) != 0; }}"
            )),
            "neither FOLIO_HASH nor FOLIO_ARRAY",
        ),
        (
            around(&format!(
                "static const char *names[] = {{ \"a\", \"b\" }};\n\
                 {F} {{ return names[c->page & 1][c->index & 1]; }}"
            )),
            "holds addresses",
        ),
        (
            around(&format!("static __u64 table[4]; {F} {{ return table[c->page]++; }}")),
            "are not all in its variables",
        ),
        (around(&format!("extern __u64 n; {F} {{ return n; }}")), "is not defined in this file"),
    ]);
}

/// Maps of both kinds, variables, tables and a bounded index.
#[test]
fn what_sources_use_works_as_in_c() {
    let source = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(seen, FOLIO_HASH, __u64, struct { __u64 nr; __u32 last; }, 2);\n\
        FOLIO_MAP(table, FOLIO_ARRAY, __u32, __u64, 8);\n\
        static const __u16 squares[8] = { 0, 1, 4, 9, 16, 25, 36, 49 };\n\
        static __u64 asked;\n\
        SEC(\"folio/around\") __u64 f(struct folio_context *c)\n\
        {\n\
            struct { __u64 nr; __u32 last; } new = { 1, 7 }, *found;\n\
            __u64 key = c->process;\n\
            __u32 at = c->page % 8;\n\
            __u64 *sum = bpf_map_lookup_elem(&table, &at);\n\
            asked++;\n\
            found = bpf_map_lookup_elem(&seen, &key);\n\
            if (found) { found->nr += 1; found->last = c->page; }\n\
            else if (bpf_map_update_elem(&seen, &key, &new, 1)) return 1000 + asked;\n\
            if (sum) *sum += squares[c->index & 7];\n\
            return found ? found->nr * 100 + found->last + (sum ? *sum : 0) : 1;\n\
        }\n\
        SEC(\"folio/victim\") __u64 g(struct folio_context *c)\n\
        {\n\
            __u64 key = c->process;\n\
            return folio_is(c, \"cc1\") ? asked : -bpf_map_delete_elem(&seen, &key);\n\
        }";
    let Some(policy) = compiled("uses", source) else { return };
    let mut policy = policy.unwrap().0.start().unwrap();
    let mut ask = |point, process, page, comm: &str| {
        let mut context = Context { process, page, index: page, ..Context::default() };
        context.comm[..comm.len()].copy_from_slice(comm.as_bytes());
        match policy.answer(point, &context).unwrap() {
            Answer::Value(value) => value,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(Point::Around, 5, 3, ""), 1);
    assert_eq!(ask(Point::Around, 5, 3, ""), 2 * 100 + 3 + 18);
    assert_eq!(ask(Point::Around, 6, 0, ""), 1);
    // The map is full.
    assert_eq!(ask(Point::Around, 7, 0, ""), 1004);
    assert_eq!(ask(Point::Victim, 5, 0, "cc1plus"), 0);
    assert_eq!(ask(Point::Victim, 5, 0, "c"), 2, "ENOENT");
    assert_eq!(ask(Point::Around, 7, 0, ""), 1);
    assert_eq!(ask(Point::Victim, 0, 0, "cc1"), 5);
}

/// A policy in Rust: what each cell starts with, or why it cannot.
#[derive(Debug)]
struct Native<P>(&'static str, Result<P, &'static str>);

impl<P: Policy + Clone + Sync + 'static> Source for Native<P> {
    fn name(&self) -> &str {
        self.0
    }

    fn digest(&self) -> Option<&str> {
        None
    }

    fn object(&self) -> Option<&[u8]> {
        None
    }

    fn start(&self) -> Result<Box<dyn Policy>, String> {
        let policy = self.1.as_ref().map_err(|why| (*why).to_owned())?;
        Ok(Box::new(policy.clone()))
    }
}

/// One that fails after a number of questions.
#[derive(Clone, Debug)]
struct Fails(u64);

impl Policy for Fails {
    fn asks(&self, _: Point) -> bool {
        true
    }

    fn answer(&mut self, point: Point, _: &Context) -> Result<Answer, PolicyError> {
        self.0 -= 1;
        if self.0 > 0 {
            return Ok(Answer::Own);
        }
        Err(PolicyError { point, message: "it gave up".to_owned() })
    }
}

#[test]
fn a_policy_that_fails_ends_the_replay_and_cannot_be_written_down() {
    let plain = cell("7.2", "altra");
    let fails = |policy| {
        let kernel = plain.kernel.with_policy(KernelPolicy(Arc::new(Native("fails", policy))));
        let spec = CellSpec { kernel, ..plain.clone() };
        let told =
            replay(&root().join("traces/demo.folio"), std::slice::from_ref(&spec), &mut |_| {});
        (told.unwrap_err().to_string(), Recipe::of(&spec).unwrap_err().to_string())
    };
    let (told, unwritten) = fails(Ok(Fails(5)));
    assert!(told.contains("7.2+policy=fails on altra: the policy failed at"), "{told}");
    assert!(told.contains("it gave up"), "{told}");
    assert!(unwritten.contains("cannot be written down"), "{unwritten}");
    assert!(fails(Err("not today")).0.contains("cannot start: not today"));
}

/// One that keeps program text, whatever the pressure.
#[derive(Clone, Debug)]
struct Keeps;

impl Policy for Keeps {
    fn asks(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, _: Point, context: &Context) -> Result<Answer, PolicyError> {
        let is_text = context.area_flags & area::EXEC != 0;
        Ok(if is_text { Answer::Value(victim::KEEP) } else { Answer::Own })
    }
}

/// No policy fails an operation: before memory is out, reclaim takes what was kept.
#[test]
fn a_policy_that_keeps_text_does_not_run_out_of_memory() {
    let keeps = KernelPolicy(Arc::new(Native("keeps", Ok(Keeps))));
    let spec = |(kernel, limit): (&str, &str)| {
        let plain = cell(kernel, "altra");
        let kernel = plain.kernel.with_policy(keeps.clone());
        let (cgroups, filesystem) = (vec![limit.parse().unwrap()], Some("xfs".to_owned()));
        CellSpec { kernel, cgroups, filesystem, ..plain }
    };
    let below = [("6.16", "6M"), ("6.16", "10M"), ("6.18", "6M"), ("6.18", "8M"), ("7.2", "8M")];
    for outcome in replayed("make.folio", &below.map(spec)) {
        let answers = outcome.policy.as_ref().unwrap().points["victim"];
        assert!(answers.honoured > 1000 && answers.refused > 0, "{}: {answers:?}", outcome.kernel);
    }
}

/// One that keeps everything.
#[derive(Clone, Debug)]
struct KeepsAll;

impl Policy for KeepsAll {
    fn asks(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, _: Point, _: &Context) -> Result<Answer, PolicyError> {
        Ok(Answer::Value(victim::KEEP))
    }
}

/// A round for each folio, and then they go: no request looks at everything for each batch.
#[test]
fn a_policy_that_keeps_everything_gets_one_round_and_fails_nothing() {
    let keeps = KernelPolicy(Arc::new(Native("keeps-all", Ok(KeepsAll))));
    let spec = |(kernel, limit): (&str, &str)| {
        let plain = cell(kernel, "altra");
        let kernel = plain.kernel.with_policy(keeps.clone());
        let (cgroups, filesystem) = (vec![limit.parse().unwrap()], Some("xfs".to_owned()));
        CellSpec { kernel, cgroups, filesystem, ..plain }
    };
    let below = [("6.16", "6M"), ("6.16", "24M"), ("7.2", "6M")];
    for outcome in replayed("make.folio", &below.map(spec)) {
        let answers = outcome.policy.as_ref().unwrap().points["victim"];
        let (kept, taken) = (answers.honoured, answers.refused);
        // As many as are in the group, beside those that were taken.
        let nr_pages = 24 << 20 >> 12;
        assert!(kept > 100 && kept < 2 * taken + nr_pages, "{}: {answers:?}", outcome.kernel);
    }
}

/// One that sees what reclaim chose in groups, and keeps nothing.
#[derive(Clone, Debug)]
struct SeesGroup;

impl Policy for SeesGroup {
    fn asks(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let Context { group_max, group_pages, .. } = *context;
        if group_max == 24 << 20 >> 12 && (1..=group_max).contains(&group_pages) {
            return Ok(Answer::Own);
        }
        let message =
            format!("{group_pages} of {group_max}, in an area from {:#x}", context.area_start);
        Err(PolicyError { point, message })
    }
}

/// Also of a folio that no process maps.
#[test]
fn a_victim_has_the_limit_of_its_group() {
    let sees = KernelPolicy(Arc::new(Native("sees", Ok(SeesGroup))));
    let plain = cell("6.16", "altra");
    let kernel = plain.kernel.with_policy(sees);
    let spec = CellSpec { kernel, cgroups: vec!["24M".parse().unwrap()], ..plain };
    let [outcome] = replayed("make.folio", &[spec]).try_into().unwrap();
    assert!(outcome.policy.unwrap().points["victim"].asked > 100);
}

/// One that answers what the kernel would do.
#[derive(Clone, Debug)]
struct Echoes;

impl Policy for Echoes {
    fn asks(&self, _: Point) -> bool {
        true
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let Context { own_start, own_pages, own_ahead, own_order, own, orders, .. } = *context;
        let (start, nr_pages, nr_ahead, order) = (own_start, own_pages, own_ahead, own_order);
        Ok(match point {
            Point::AnonOrder | Point::Collapse => Answer::Value(orders),
            Point::Window if own_pages == 0 => Answer::Value(0),
            Point::Window => Answer::Window(Window { start, nr_pages, nr_ahead, order }),
            Point::Around | Point::Write | Point::Victim => Answer::Value(own),
        })
    }
}

/// What a policy sees of the kernel's own answers is what the kernel does: who answers it changes
/// nothing, under any kernel, whatever the areas were advised.
#[test]
fn the_kernels_own_answers_change_nothing_when_a_policy_gives_them() {
    let echoes = KernelPolicy(Arc::new(Native("echoes", Ok(Echoes))));
    let dir = tempfile::tempdir().unwrap();
    let mut traces = vec![root().join("traces/demo.folio")];
    for (name, order, advice) in [
        ("sequential", SweepOrder::Sequential, Advice::Sequential),
        ("shuffled", SweepOrder::Random, Advice::Sequential),
        ("huge", SweepOrder::Random, Advice::HugePage),
        ("random", SweepOrder::Random, Advice::Random),
        ("plain", SweepOrder::Sequential, Advice::None),
    ] {
        traces.push(dir.path().join(format!("{name}.folio")));
        let nr_pages = 2_000;
        let stubs = RetStubs { nr_pages, order, advice, nr_calls: 10, ..RetStubs::default() };
        stubs.write(traces.last().unwrap()).unwrap();
    }
    let settings = "thp=always+anon-64K=always+anon-16K=always";
    let names: Vec<&str> = Kernel::names().collect();
    let mut specs = Vec::new();
    for (name, is_tight) in names.iter().flat_map(|name| [(name, false), (name, true)]) {
        let with_sizes = Kernel::parse(&format!("{name}+{settings}"));
        let kernel = with_sizes.unwrap_or_else(|_| Kernel::parse(name).unwrap());
        let mut plain = cell("7.2", "altra");
        plain.kernel = kernel;
        plain.filesystem = Some("xfs".to_owned());
        if is_tight {
            plain.cgroups = vec!["9M".parse().unwrap()];
            plain.cache = CacheState::Warm;
        }
        let kernel = plain.kernel.with_policy(echoes.clone());
        specs.extend([plain.clone(), CellSpec { kernel, ..plain }]);
    }
    for trace in &traces {
        let (_, outcomes) = replay(trace, &specs, &mut |_| {}).unwrap();
        let pairs = outcomes.as_chunks::<2>().0;
        for ([plain, echoed], spec) in pairs.iter().zip(specs.iter().step_by(2)) {
            let of = format!("{} {:?} {}", plain.kernel, spec.cache, trace.display());
            assert_eq!(counted(plain), counted(echoed), "{of}");
            let points = &echoed.policy.as_ref().unwrap().points;
            assert!(points.values().all(|point| point.asked == point.honoured), "{of}: {points:?}");
        }
    }
}

/// How a cell with too small a budget ends.
fn over_budget(trace: &str, spec: &CellSpec) -> (OverBudget, String) {
    let told = replay(&root().join("traces").join(trace), std::slice::from_ref(spec), &mut |_| {});
    let error = told.unwrap_err();
    let text = error.to_string();
    let ReplayError::Cell { source: CellError::OverBudget(over), .. } = error else {
        panic!("another error: {text}")
    };
    (*over, text)
}

/// Hundreds of lookups for each folio that reclaim looks at end as a hostile trace does, and soon.
#[test]
fn a_policy_that_computes_without_end_ends_within_the_budget() {
    let source = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
        SEC(\"folio/victim\") __u64 f(struct folio_context *c)\n\
        {\n\
            __u64 key = c->page, nr = 0;\n\
            _Pragma(\"unroll\") for (int i = 0; i < 500; i++)\n\
                nr += bpf_map_lookup_elem(&m, &key) != 0;\n\
            return nr > 1000 ? FOLIO_EVICT : FOLIO_KEEP;\n\
        }";
    let Some(policy) = compiled("burns", source) else { return };
    let plain = cell("6.16", "altra");
    let mut spec = CellSpec { kernel: plain.kernel.with_policy(policy.unwrap()), ..plain };
    spec.cgroups = vec!["6M".parse().unwrap()];
    spec.budget = Budget { steps: 1 << 20, steps_per_row: 0, ..Budget::default() };
    let (over, text) = over_budget("make.folio", &spec);
    let Excess::Steps { taken, allowed, of_policy } = over.excess else { panic!("{text}") };
    assert!(taken < 2 * allowed && of_policy > allowed / 2, "{text}");
    assert!(text.contains("of them in the policy, and") && text.contains("policy burns"), "{text}");
    assert_eq!(over_budget("make.folio", &spec), (over, text), "the same again");
}

/// 40 MiB of variables and 16 MiB of a map: zeroes that nobody wrote, and still room that they may take.
#[test]
fn what_a_policy_may_hold_is_state_of_its_cell() {
    let source = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(table, FOLIO_ARRAY, __u32, __u64, 2 << 20);\n\
        static __u64 all[5 << 20];\n\
        SEC(\"folio/around\") __u64 f(struct folio_context *c)\n\
        {\n\
            __u32 key = 0;\n\
            __u64 *first = bpf_map_lookup_elem(&table, &key);\n\
            return all[c->page & 7]++ + (first ? *first : 0) < 100 ? FOLIO_OWN : 1;\n\
        }";
    let Some(policy) = compiled("holds", source) else { return };
    let plain = cell("6.16", "altra");
    let state_bytes = 48 << 20;
    let budget = Budget { state_bytes, ..Budget::default() };
    let kernel = plain.kernel.with_policy(policy.unwrap());
    let spec = CellSpec { kernel, budget, ..plain.clone() };
    let (over, text) = over_budget("demo.folio", &spec);
    let Excess::State { held, allowed } = over.excess else { panic!("{text}") };
    assert!(held > 56 << 20 && allowed == state_bytes, "{text}");
    replayed("demo.folio", &[CellSpec { budget, ..plain }]);
}

#[test]
fn only_who_replays_traces_takes_a_policy() {
    let with = Kernel::parse("7.2+policy=pressure").unwrap();
    let told = with.without_policy().unwrap_err().to_string();
    assert!(told.contains("leave +policy out"), "{told}");
    let changes = Kernel::parse("6.16")
        .unwrap()
        .changes_to(&Kernel::parse("6.16+policy=exec-order").unwrap());
    let [change] = changes.unwrap().try_into().unwrap();
    assert_eq!(
        (change.rule(), change.from(), change.to()),
        ("policy".to_owned(), "absent".to_owned(), "exec-order".to_owned())
    );
}
