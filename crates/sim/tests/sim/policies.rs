//! Policies over whole programs: the built-in ones, and cells with a policy. `sources` compiles C
//! sources with clang, `posted` those for interfaces posted upstream, `natives` has policies in
//! Rust, `work` tests the budget of both.

#![expect(clippy::unwrap_used, reason = "a test panics on an unexpected error")]

mod natives;
mod posted;
mod sources;
mod work;

use std::path::{Path, PathBuf};
use std::process::Command;

use largefolio_mm::policy::{Answer, Context, Point};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::policy::KernelPolicy;
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_sim::sweep::{CellId, Recipe};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn cell(kernel: &str, machine: &str) -> CellSpec {
    CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap())
}

fn replayed(trace: &str, specs: &[CellSpec]) -> Vec<Outcome> {
    replay(&root().join("traces").join(trace), specs, &mut |_| {}).unwrap().1
}

fn counted(outcome: &Outcome) -> Outcome {
    Outcome { kernel: String::new(), policy: None, ..outcome.clone() }
}

/// Compiles `source` to a policy, or returns the refusal; `None`, with a loud message, if there is
/// no clang.
fn compiled(name: &str, source: &str) -> Option<Result<KernelPolicy, String>> {
    compiled_with(&["-O2"], name, source)
}

fn compiled_with(
    options: &[&str],
    name: &str,
    source: &str,
) -> Option<Result<KernelPolicy, String>> {
    let dir = tempfile::tempdir().unwrap();
    let (c, o) = (dir.path().join("policy.c"), dir.path().join("policy.o"));
    std::fs::write(&c, source).unwrap();
    let include = format!("-I{}", root().join("policies").display());
    let arguments = ["-target", "bpf", "-Wall", "-Werror", "-Wno-unused-variable", &include, "-c"];
    let run =
        Command::new("clang").args(options).args(arguments).arg(&c).arg("-o").arg(&o).output();
    let Ok(output) = run else {
        largefolio_testkit::skipped!("no clang to compile {name}; scripts/setup.sh installs it");
        return None;
    };
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let policy = KernelPolicy::from_object(name, &std::fs::read(&o).unwrap());
    Some(policy.map_err(|error| error.to_string()))
}

/// The source of a shipped policy, compiled again.
fn rebuilt(name: &str) -> Option<Result<KernelPolicy, String>> {
    let policies = root().join("policies");
    if let Ok(source) = std::fs::read_to_string(policies.join(format!("{name}.c"))) {
        return compiled(name, &source);
    }
    let source = policies.join("posted").join(format!("{name}.bpf.c"));
    posted::compiled(name, &std::fs::read_to_string(source).unwrap())
}

/// The exec-order policy on a kernel without that rule produces the same faults, folios, reads and
/// TLB misses as a kernel with it.
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
            // One window at the end of an area is too short for a large folio.
            assert!(answers.honoured > 20 && answers.refused <= 1, "{answers:?}");
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
    let points: Vec<_> = with.policy.unwrap().points.into_keys().collect();
    assert_eq!(points, ["anon_order", "around", "window"]);
}

/// C code in which clang selects between addresses in the context instead of between values.
#[test]
fn the_context_is_read_in_every_form_of_c() {
    for (name, body) in [
        ("either", "return (c->access == 3 ? c->ra_pages : c->own_pages) > 16 ? FOLIO_OWN : 0;"),
        (
            "cause",
            "folio_window(c->cause == FOLIO_MARKER ? c->own_start : c->index, 16, 0, 2); return 0;",
        ),
        (
            "branches",
            "__u64 limit; if (c->area_flags & FOLIO_EXEC) limit = c->max_order; \
             else limit = c->min_order; folio_window(c->index, 16, 0, limit); return 0;",
        ),
        (
            "index",
            "__u64 order = c->max_order; \
             return order < 14 && c->free[order] > 1 ? FOLIO_OWN : 0;",
        ),
        (
            "loop",
            "__u64 n = 0; _Pragma(\"unroll\") for (int i = 0; i < 14; i++) \
             if ((__u64)i == c->max_order) n = c->free[i]; return n ? FOLIO_OWN : 0;",
        ),
        (
            "switch",
            "switch (c->max_order) { case 0: return c->free[0] > 1; case 4: return c->free[4] > 1; \
             case 9: return c->free[9] > 1; } return FOLIO_OWN;",
        ),
        ("tested", "return c && c->index ? FOLIO_OWN : 0;"),
    ] {
        let source = format!(
            "#include \"folio_policy.h\"\n\
             SEC(\"folio/window\") __u64 f(struct folio_context *c) {{ {body} }}\n"
        );
        for cpu in ["-mcpu=v1", "-mcpu=v2", "-mcpu=v3"] {
            let Some(object) = compiled_with(&["-O2", cpu], name, &source) else { return };
            let policy = object.unwrap_or_else(|refused| panic!("{name} {cpu}: {refused}"));
            let mut running = policy.0.start().unwrap();
            for order in 0..20 {
                let context = Context { max_order: order, index: 7, ..Context::default() };
                running.answer(Point::Window, &context).unwrap();
            }
        }
    }
}

#[test]
fn what_is_refused_of_c_says_what_to_do() {
    let array = "FOLIO_MAP(one, FOLIO_HASH, __u64, __u64, 16);\n";
    for (name, before, body, expected) in [
        (
            "either",
            array,
            "__u64 z = 3, *p = bpf_map_lookup_elem(&one, &z); if (!p) p = &z; return *p;",
            "an address points to different objects on different paths",
        ),
        (
            "function",
            "static __attribute__((noinline)) __u64 own(__u64 n) { return n * 3 + 1; }\n",
            "return own(c->index) + own(c->access);",
            "calls the function 'own'",
        ),
        (
            "local",
            "",
            "volatile __u64 a[4] = {1, 2, 3, 4}; return a[c->index & 3];",
            "use a variable or a map",
        ),
    ] {
        let source = format!(
            "#include \"folio_policy.h\"\n{before}\
             SEC(\"folio/window\") __u64 f(struct folio_context *c) {{ {body} }}\n"
        );
        let Some(object) = compiled(name, &source) else { return };
        let refused = object.err().unwrap_or_else(|| panic!("{name} passed"));
        assert!(refused.contains(expected), "{name}: {refused}");
    }
    let two = Kernel::parse("7.2+policy=exec-order+policy=pressure").unwrap_err().to_string();
    assert!(two.contains("a kernel has one policy"), "{two}");
}

#[test]
fn the_identity_of_a_cell_has_the_bytes_of_its_policy() {
    let id = |spec: &CellSpec| CellId::new("00", &Recipe::of(spec).unwrap());
    let object = std::fs::read(root().join("policies/exec-order.o")).unwrap();
    let mut other = object.clone();
    other.push(0);
    let plain = cell("6.16", "altra");
    let with = |bytes: &[u8]| {
        let policy = KernelPolicy::from_object("mine", bytes).unwrap();
        CellSpec { kernel: plain.kernel.with_policy(policy), ..plain.clone() }
    };
    let ids = [id(&plain), id(&with(&object)), id(&with(&other))];
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert_eq!(id(&with(&object)), ids[1]);
    // A serialized cell is read back equal, without a file.
    let spec = with(&object);
    let text = serde_json::to_string(&Recipe::of(&spec).unwrap()).unwrap();
    let again = serde_json::from_str::<Recipe>(&text).unwrap().cell().unwrap();
    assert_eq!(again.kernel, spec.kernel);
    assert_eq!(id(&again), ids[1]);
    let damaged = text.replace("7f454c46", "7f454c47");
    assert!(serde_json::from_str::<Recipe>(&damaged).unwrap().cell().is_err());
}

#[test]
fn the_shipped_objects_are_what_clang_makes_of_their_sources() {
    for (name, _) in KernelPolicy::builtin() {
        let Some(built) = rebuilt(name) else { return };
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

/// Process numbers are reused: another program counts from its first fault.
#[test]
fn per_program_counts_the_faults_of_a_program() {
    let mut policy = KernelPolicy::named("per-program").unwrap().0.start().unwrap();
    let mut order_of = |name: &str, process| {
        let (orders, page_shift) = (1 << 9 | 1 << 4 | 1 << 2, 12);
        let mut context = Context { process, orders, page_shift, ..Context::default() };
        context.comm[..name.len()].copy_from_slice(name.as_bytes());
        policy.answer(Point::AnonOrder, &context).unwrap()
    };
    let up_to_64k = Answer::Value(1 << 4 | 1 << 2);
    for (name, process) in [("as", 7), ("ld", 7), ("ld", 8)] {
        assert!((0..256).all(|_| order_of(name, process) == up_to_64k), "{name}");
        assert_eq!(order_of(name, process), Answer::Own, "{name}");
    }
    assert!((0..300).all(|_| order_of("python3", 7) == Answer::Value(1 << 2)));
}

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

#[test]
fn only_who_replays_traces_takes_a_policy() {
    let with = Kernel::parse("7.2+policy=pressure").unwrap();
    let message = with.without_policy().unwrap_err().to_string();
    assert!(message.contains("omit +policy"), "{message}");
    let changes = Kernel::parse("6.16")
        .unwrap()
        .changes_to(&Kernel::parse("6.16+policy=exec-order").unwrap());
    let [change] = changes.unwrap().try_into().unwrap();
    assert_eq!(
        (change.rule(), change.from(), change.to()),
        ("policy".to_owned(), "absent".to_owned(), "exec-order".to_owned())
    );
}
