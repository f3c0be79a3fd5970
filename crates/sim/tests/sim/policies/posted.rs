//! Policies for interfaces that were posted upstream: their effects, the same policies written with
//! `folio_policy.h`, and refusals.

use largefolio_mm::policy::{Answer, Context, Point};
use largefolio_sim::policy::KernelPolicy;
use largefolio_sim::replay::{CellSpec, Outcome};

use super::{cell, compiled as compiled_native, compiled_with, counted, replayed, root};

const SIZES: &str = "7.2+thp=always+anon-64K=always+anon-16K=always";

const HEADERS: &str = "#include \"vmlinux.h\"\n\
    #include <bpf/bpf_helpers.h>\n\
    #include <bpf/bpf_tracing.h>\n\
    #include <bpf/bpf_core_read.h>\n\
    #include \"cache_ext_lib.bpf.h\"\n\
    char _license[] SEC(\"license\") = \"GPL\";\n";

/// Compiles a source for a posted interface, as the guide does.
pub(super) fn compiled(name: &str, source: &str) -> Option<Result<KernelPolicy, String>> {
    with_options(&["-g"], name, source)
}

fn with_options(
    options: &[&str],
    name: &str,
    source: &str,
) -> Option<Result<KernelPolicy, String>> {
    let include = format!("-I{}", root().join("policies/posted").display());
    let options = [&["-O2", &include], options].concat();
    compiled_with(&options, name, source)
}

fn with(policy: &KernelPolicy, plain: &CellSpec) -> CellSpec {
    CellSpec { kernel: plain.kernel.with_policy(policy.clone()), ..plain.clone() }
}

/// The policy's counts by point: asked, honoured, refused.
fn points(outcome: &Outcome) -> Vec<(&'static str, [u64; 3])> {
    let points = outcome.policy.as_ref().unwrap().points.iter();
    points.map(|(name, nr)| (*name, [nr.asked, nr.honoured, nr.refused])).collect()
}

/// Replays without a policy, with `posted` and with `native`. The last two must be equal in every
/// count. Returns the first two.
fn compared(
    trace: &str,
    plain: &CellSpec,
    posted: &KernelPolicy,
    native: &str,
) -> Option<[Outcome; 2]> {
    let native = compiled_native("native", native)?.unwrap();
    let specs = [plain.clone(), with(posted, plain), with(&native, plain)];
    let [plain, posted, native] = replayed(trace, &specs).try_into().unwrap();
    assert_eq!(points(&posted), points(&native));
    assert_eq!(counted(&posted), counted(&native));
    assert_ne!(counted(&posted), counted(&plain));
    Some([plain, posted])
}

#[test]
fn thp_get_order_decides_as_orders_of_folio_policy_h_do() {
    let native = "#include \"folio_policy.h\"\n\
        static __always_inline __u64 one(struct folio_context *c)\n\
        {\n\
            __u64 orders = c->orders, largest = 1;\n\
            if (c->area_end - c->area_start < 1024 && !(c->area_flags & FOLIO_HUGEPAGE))\n\
                orders &= 31;\n\
            _Pragma(\"unroll\") for (int order = 1; order < 14; order++)\n\
                if (orders >> order & 1) largest = FOLIO_ORDER(order);\n\
            return largest;\n\
        }\n\
        SEC(\"folio/anon_order\") __u64 a(struct folio_context *c) { return one(c); }\n\
        SEC(\"folio/collapse\") __u64 b(struct folio_context *c) { return one(c); }\n\
        SEC(\"folio/shmem_order\") __u64 s(struct folio_context *c) { return one(c); }\n\
        SEC(\"folio/swapin_order\") __u64 d(struct folio_context *c) { return 1; }\n";
    let policy = KernelPolicy::named("thp-by-area").unwrap();
    let Some([plain, posted]) = compared("demo.folio", &cell(SIZES, "altra"), &policy, native)
    else {
        return;
    };
    // Small areas lose their 2M folios, so the program has less memory and more faults.
    let large = |outcome: &Outcome| {
        outcome.anon_sizes.get(&(2 << 20)).map_or(0, |size| size.anon_fault_alloc)
    };
    assert!(large(&posted) < large(&plain), "{} {}", large(&posted), large(&plain));
    assert!(posted.faults.total > plain.faults.total);
    let [asked, honoured, refused] = points(&posted)[0].1;
    assert!(points(&posted)[0].0 == "anon_order" && asked > 50, "{:?}", points(&posted));
    assert!(honoured == asked && refused == 0);
}

/// Evicts what came first, and each folio once.
const FIFO: &str = "static u64 all;\n\
    s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init, struct mem_cgroup *memcg)\n\
    { all = bpf_cache_ext_ds_registry_new_list(memcg); return 0; }\n\
    void BPF_STRUCT_OPS(fifo_added, struct folio *folio)\n\
    { bpf_cache_ext_list_add_tail(all, folio); }\n\
    static int next(int index, struct cache_ext_list_node *node)\n\
    { bpf_cache_ext_list_del(node->folio); return CACHE_EXT_EVICT_NODE; }\n\
    void BPF_STRUCT_OPS(fifo_evict, struct cache_ext_eviction_ctx *request, struct mem_cgroup *memcg)\n\
    { bpf_cache_ext_list_iterate(memcg, all, next, request); }\n\
    SEC(\".struct_ops.link\") struct cache_ext_ops ops = { .init = (void *)fifo_init,\n\
        .folio_added = (void *)fifo_added, .evict_folios = (void *)fifo_evict };\n";

#[test]
fn an_eviction_list_decides_as_a_queue_of_folio_policy_h_does() {
    let Some(policy) = compiled("fifo", &format!("{HEADERS}{FIFO}")) else { return };
    let native = "#include \"folio_policy.h\"\n\
        FOLIO_MAP(queue, FOLIO_ARRAY, __u32, __u64, 1 << 16);\n\
        FOLIO_MAP(places, FOLIO_HASH, __u64, __u64, 1 << 16);\n\
        static __u64 head, tail;\n\
        struct found { __u64 folio; };\n\
        SEC(\"folio/added\") __u64 added(struct folio_context *c)\n\
        {\n\
            __u32 at = tail & 0xffff;\n\
            __u64 folio = c->folio, *place = bpf_map_lookup_elem(&queue, &at), nr = ++tail;\n\
            if (place) *place = folio;\n\
            bpf_map_update_elem(&places, &folio, &nr, 0);\n\
            return 0;\n\
        }\n\
        SEC(\"folio/removed\") __u64 removed(struct folio_context *c)\n\
        {\n\
            __u64 folio = c->folio;\n\
            return bpf_map_delete_elem(&places, &folio);\n\
        }\n\
        SEC(\"folio/accessed\") __u64 accessed(struct folio_context *c) { return 0; }\n\
        static long next(__u32 index, struct found *found)\n\
        {\n\
            __u32 at = head & 0xffff;\n\
            __u64 *place = bpf_map_lookup_elem(&queue, &at), folio, *nr;\n\
            if (head == tail || !place) return 1;\n\
            folio = *place;\n\
            nr = bpf_map_lookup_elem(&places, &folio);\n\
            head++;\n\
            if (!nr || *nr != head) return 0;\n\
            found->folio = folio;\n\
            return 1;\n\
        }\n\
        SEC(\"folio/evict\") __u64 evict(struct folio_context *c)\n\
        {\n\
            struct found found = { 0 };\n\
            bpf_loop(1 << 16, next, &found, 0);\n\
            return found.folio ? found.folio : FOLIO_OWN;\n\
        }\n";
    let mut plain = cell("7.2", "altra");
    plain.cgroups = vec!["6M".parse().unwrap()];
    let Some([plain, posted]) = compared("make.folio", &plain, &policy.unwrap(), native) else {
        return;
    };
    let evict = points(&posted).into_iter().find(|(name, _)| *name == "evict").unwrap().1;
    assert!(evict[1] > 100, "{evict:?}");
    // What came first is often still in use, so it is read again.
    assert!(posted.reads.bytes > plain.reads.bytes, "{} {}", posted.reads.bytes, plain.reads.bytes);
}

#[test]
fn folios_that_were_used_once_leave_first_and_large_reads_do_not_stay() {
    let mut plain = cell("7.2", "altra");
    plain.cgroups = vec!["6M".parse().unwrap()];
    let policy = KernelPolicy::named("cache-once").unwrap();
    let specs = [plain.clone(), with(&policy, &plain)];
    let [plain, posted] = replayed("make.folio", &specs).try_into().unwrap();
    assert_ne!(counted(&plain), counted(&posted));
    let of = |name: &str| points(&posted).into_iter().find(|point| point.0 == name).unwrap().1;
    assert!(of("evict")[1] > 100, "{:?}", points(&posted));
    assert!(of("accessed")[0] > 10 && of("added")[0] > of("removed")[0]);
}

#[test]
fn mthp_choose_follows_what_the_program_for_cgroups_saw() {
    let native = "#include \"folio_policy.h\"\n\
        struct seen { __u64 stall_ms, is_small; };\n\
        FOLIO_MAP(groups, FOLIO_HASH, __u64, struct seen, 256);\n\
        FOLIO_INTERVAL(10);\n\
        SEC(\"folio/interval\") __u64 scan(struct folio_context *c)\n\
        {\n\
            __u64 group = c->group, ms = c->group_stall_ns / 1000000;\n\
            struct seen none = { 0, 0 }, *seen;\n\
            bpf_map_update_elem(&groups, &group, &none, 1);\n\
            seen = bpf_map_lookup_elem(&groups, &group);\n\
            if (!seen) return 0;\n\
            seen->is_small = c->group_anon << c->page_shift < 1 << 20 || ms - seen->stall_ms > 1;\n\
            seen->stall_ms = ms;\n\
            return 0;\n\
        }\n\
        static __always_inline __u64 choose(struct folio_context *c)\n\
        {\n\
            __u64 group = c->group;\n\
            struct seen *seen = bpf_map_lookup_elem(&groups, &group);\n\
            return seen && seen->is_small ? 0 : c->orders;\n\
        }\n\
        SEC(\"folio/anon_order\") __u64 a(struct folio_context *c) { return choose(c); }\n\
        SEC(\"folio/collapse\") __u64 b(struct folio_context *c) { return choose(c); }\n\
        SEC(\"folio/shmem_order\") __u64 s(struct folio_context *c) { return choose(c); }\n\
        SEC(\"folio/swapin_order\") __u64 d(struct folio_context *c) { return choose(c); }\n";
    let mut plain = cell(SIZES, "altra");
    plain.cgroups = vec!["24M".parse().unwrap()];
    let policy = KernelPolicy::named("mthp-pressure").unwrap();
    let Some([plain, posted]) = compared("demo.folio", &plain, &policy, native) else { return };
    let intervals = points(&posted).into_iter().find(|(name, _)| *name == "interval").unwrap().1;
    assert!(intervals[0] >= 4, "{intervals:?}");
    // The program starts in base pages.
    assert!(posted.faults.total > plain.faults.total);
}

/// Programs as they are posted: addresses as keys, atomic counts, opts, samples, rings.
const USES: &str = "struct state { u64 uses; };\n\
        struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, u64); __type(value, struct state);\n\
            __uint(max_entries, 4096); } states SEC(\".maps\");\n\
        struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 1 << 18); } ring SEC(\".maps\");\n\
        static u64 one, two, nr, told;\n\
        s32 BPF_STRUCT_OPS_SLEEPABLE(x_init, struct mem_cgroup *memcg)\n\
        {\n\
            one = bpf_cache_ext_ds_registry_new_list(memcg);\n\
            two = bpf_cache_ext_ds_registry_new_list(memcg);\n\
            bpf_printk(\"lists %llu %llu\", one, two);\n\
            return 0;\n\
        }\n\
        static inline bool is_mine(struct folio *folio)\n\
        {\n\
            return folio->mapping && folio->mapping->host && BPF_CORE_READ(folio, mapping, host, i_ino);\n\
        }\n\
        void BPF_STRUCT_OPS(x_added, struct folio *folio)\n\
        {\n\
            struct state new = { 1 };\n\
            u64 key = (u64)folio, *event;\n\
            if (!is_mine(folio) || bpf_cache_ext_list_add(one, folio)) return;\n\
            __sync_fetch_and_add(&nr, 1);\n\
            bpf_map_update_elem(&states, &key, &new, BPF_ANY);\n\
            event = bpf_ringbuf_reserve(&ring, 8, 0);\n\
            if (event) { *event = key; told++; bpf_ringbuf_submit(event, 0); }\n\
        }\n\
        void BPF_STRUCT_OPS(x_accessed, struct folio *folio)\n\
        {\n\
            u64 key = (u64)folio;\n\
            struct state *state = bpf_map_lookup_elem(&states, &key);\n\
            if (state) __sync_fetch_and_add(&state->uses, 1);\n\
        }\n\
        void BPF_STRUCT_OPS(x_removed, struct folio *folio)\n\
        {\n\
            u64 key = (u64)folio;\n\
            bpf_map_delete_elem(&states, &key);\n\
        }\n\
        static s64 score(struct cache_ext_list_node *node)\n\
        {\n\
            u64 key = (u64)node->folio;\n\
            struct state *state = bpf_map_lookup_elem(&states, &key);\n\
            return state ? state->uses : 0;\n\
        }\n\
        static int used(int index, struct cache_ext_list_node *node)\n\
        {\n\
            return score(node) > 1 ? CACHE_EXT_CONTINUE_ITER : CACHE_EXT_EVICT_NODE;\n\
        }\n\
        void BPF_STRUCT_OPS(x_evict, struct cache_ext_eviction_ctx *request, struct mem_cgroup *memcg)\n\
        {\n\
            struct sampling_options sample = { .sample_size = 4 };\n\
            struct cache_ext_iterate_opts opts = { .continue_list = two,\n\
                .continue_mode = CACHE_EXT_ITERATE_TAIL, .evict_mode = CACHE_EXT_ITERATE_TAIL };\n\
            if (bpf_cache_ext_list_iterate_extended(memcg, one, used, &opts, request)) return;\n\
            nr -= opts.nr_folios_continue;\n\
            bpf_cache_ext_list_sample(memcg, two, score, &sample, request);\n\
        }\n\
        SEC(\".struct_ops.link\") struct cache_ext_ops ops = { .init = (void *)x_init,\n\
            .folio_added = (void *)x_added, .folio_accessed = (void *)x_accessed,\n\
            .folio_evicted = (void *)x_removed, .evict_folios = (void *)x_evict };\n";

#[test]
fn what_posted_programs_use_works() {
    let Some(policy) = compiled("uses", &format!("{HEADERS}{USES}")) else { return };
    let mut policy = policy.unwrap().0.start().unwrap();
    let mut ask = |point, folio: u64, wanted| {
        let context = Context { folio, file: 9, index: folio, wanted, ..Context::default() };
        policy.answer(point, &context).unwrap()
    };
    let events = [(Point::Added, &[1, 2, 3, 4, 5, 6, 7, 8][..]), (Point::Accessed, &[3, 5, 5, 6])];
    for (point, folios) in events.into_iter().chain([(Point::Removed, &[7][..])]) {
        for &folio in folios {
            assert_eq!(ask(point, folio, 0), Answer::Own);
        }
    }
    // The last one that was added is at the head of the list, and 3, 5 and 6 move to the other one.
    let answers: Vec<_> = (0..6).map(|_| ask(Point::Evict, 0, 5)).collect();
    let first = [8, 4, 2, 1].map(Answer::Value);
    assert_eq!(answers[..4], first);
    assert_eq!(answers[4], Answer::Value(6), "of 6, 5 and 3, the first with the fewest uses");
    // Nothing was evicted, so the sixth question proposes the same again.
    assert_eq!(answers[5], first[0]);
    for folio in [8, 4, 2, 1, 6] {
        assert_eq!(ask(Point::Removed, folio, 0), Answer::Own);
    }
    assert_eq!(ask(Point::Evict, 0, 5), Answer::Value(3), "of 5 and 3");
}

fn thp(body: &str) -> String {
    format!(
        "{HEADERS}SEC(\"struct_ops/thp_get_order\")\n\
         int BPF_PROG(f, struct vm_area_struct *vma, enum tva_type type, unsigned long orders)\n\
         {{ {body} }}\n\
         SEC(\".struct_ops.link\") struct bpf_thp_ops ops = {{ .thp_get_order = (void *)f }};\n"
    )
}

#[test]
fn areas_processes_and_causes_are_what_the_program_sees() {
    let body = "struct task_struct *p = vma->vm_mm ? vma->vm_mm->owner : NULL;\n\
        if (!p) return 0;\n\
        if (p->comm[0] == 'c' && p->comm[15] == 0) return p->pid;\n\
        if (vma->vm_flags & VM_HUGEPAGE) return type + 10 * (vma->vm_start >> 20);\n\
        return -1;";
    let Some(policy) = compiled("sees", &thp(body)) else { return };
    let mut policy = policy.unwrap().0.start().unwrap();
    let mut ask = |point, comm: u8, area_flags| {
        let mut context = Context {
            process: 4,
            area_start: 0x100,
            area_flags,
            orders: !1,
            page_shift: 12,
            ..Context::default()
        };
        context.comm[0] = comm;
        policy.answer(point, &context).unwrap()
    };
    let huge = largefolio_mm::policy::area::HUGEPAGE;
    assert_eq!(ask(Point::AnonOrder, b'c', 0), Answer::Value(1 << 5));
    assert_eq!(ask(Point::AnonOrder, b'x', huge), Answer::Value(1 << 11));
    assert_eq!(ask(Point::Collapse, b'x', huge), Answer::Value(1 << 12));
    assert_eq!(ask(Point::SwapinOrder, b'x', huge), Answer::Value(1 << 14));
    assert_eq!(ask(Point::ShmemOrder, b'x', 0), Answer::Value(0), "-1 means base pages");
    assert_eq!(ask(Point::Window, b'c', 0), Answer::Own);
}

fn is_refused(source: &str, options: &[&str], expected: &str) {
    let Some(policy) = with_options(options, "bad", source) else { return };
    let Err(message) = policy else { panic!("passed: {source}") };
    assert!(message.contains(expected), "expected {expected:?}: {message}\n{source}");
}

#[test]
fn hooks_that_the_model_lacks_are_named() {
    let scan = "SEC(\"iter/cgroup\") int g(struct bpf_iter__cgroup *c) { return 0; }\n";
    let traced = "SEC(\"fentry/vfs_open\") int g(void *c) { return 0; }\n";
    let plain = thp("return 4;");
    let of = |line: &str| thp("return 4;").replace(".thp_get_order = (void *)f", line);
    let cases = [
        (format!("{plain}{traced}"), "no event for the program in section fentry/vfs_open"),
        (format!("{plain}{scan}"), "no event for the program in section iter/cgroup"),
        (of(""), "bpf_thp_ops has no thp_get_order"),
        (of(".pid = 7, .thp_get_order = (void *)f"), "bpf_thp_ops.pid must be 0"),
        (of(".thp_get_order = (void *)_license"), "thp_get_order is set to something other than"),
        (
            format!("{plain}SEC(\".struct_ops.link\") struct bpf_thp_ops two = {{ 0 }};\n"),
            "a file has one structure",
        ),
        (
            plain.replace("bpf_thp_ops", "other_ops { void *thp_get_order; }"),
            "struct other_ops is not known",
        ),
        (
            format!("{plain}SEC(\"folio/around\") u64 g(void *c) {{ return 1; }}\n"),
            "also has sections named folio/POINT",
        ),
        (thp("return bpf_ktime_get_ns();"), "no clock and no random numbers"),
        (thp("return bpf_get_prandom_u32();"), "no clock and no random numbers"),
        (
            plain
                .replace(
                    "SEC(\"struct_ops",
                    "extern int bpf_task_acquire(void *) __ksym;\nSEC(\"struct_ops",
                )
                .replace("return 4;", "return bpf_task_acquire(vma);"),
            "calls the kernel function 'bpf_task_acquire', which the model does not have",
        ),
        (thp("vma->vm_flags = 0; return 4;"), "struct vm_area_struct cannot be modified"),
        (thp("return *(int *)((char *)vma + 60);"), "are not all in vm_area_struct"),
        (
            thp("return bpf_cache_ext_list_del((struct folio *)vma);"),
            "bpf_cache_ext_list_del(): r1 must be a struct folio",
        ),
    ];
    for (source, expected) in cases {
        is_refused(&source, &["-g", "-Wno-attributes"], expected);
    }
    is_refused(&plain, &[], "compile with -g");
    // A kernel's types, as far as this program needs them.
    let other = "struct bpf_thp_ops { int (*thp_get_order)(void *, int, unsigned long); };\n\
        __attribute__((section(\"struct_ops/x\"), used)) int f(unsigned long long *c) { return 4; }\n\
        __attribute__((section(\".struct_ops.link\"), used))\n\
        struct bpf_thp_ops ops = { .thp_get_order = (void *)f };\n";
    is_refused(other, &["-g"], "compiled with a kernel's types");
}

#[test]
fn maps_that_the_model_lacks_are_named() {
    let with_map = |map: &str| {
        format!(
            "{HEADERS}struct {{ {map} }} m SEC(\".maps\");\n{}",
            thp("return 4;").replace(HEADERS, "")
        )
    };
    let hash = "__uint(type, BPF_MAP_TYPE_HASH); __type(key, u64); __type(value, u64);";
    for (map, expected) in [
        (
            "__uint(type, BPF_MAP_TYPE_LRU_HASH); __uint(max_entries, 4);",
            "depends on a kernel's CPUs",
        ),
        ("__uint(type, BPF_MAP_TYPE_TASK_STORAGE);", "map m: type 29 is not supported"),
        (hash, "it has no entries"),
        (&format!("{hash} __uint(numa_node, 1);"), "its property numa_node is not supported"),
        (
            "__uint(type, BPF_MAP_TYPE_ARRAY); __type(key, u64); __type(value, u64); \
             __uint(max_entries, 4);",
            "the key of an array must have 4 bytes",
        ),
        (
            "__uint(type, BPF_MAP_TYPE_HASH); __type(key, char[5000]); __type(value, u64);",
            "keys and values must have 1 to 4096 bytes",
        ),
    ] {
        is_refused(&with_map(map), &["-g"], expected);
    }
}

#[test]
fn a_loop_has_a_result_and_an_end() {
    let source = |body: &str| {
        format!(
            "#include \"folio_policy.h\"\n\
             struct sum {{ __u64 total, limit; }};\n\
             static __u64 nr;\n\
             static __attribute__((unused)) long add(__u32 index, struct sum *sum)\n\
             {{ nr++; sum->total += index; return sum->total > sum->limit; }}\n\
             SEC(\"folio/around\") __u64 f(struct folio_context *c) {{ {body} }}\n"
        )
    };
    let sums = source(
        "struct sum sum = { 0, c->page }; long calls = bpf_loop(c->index, add, &sum, c->access);\n\
         return calls < 0 ? -calls : sum.total * 1000 + calls;",
    );
    let Some(policy) = compiled_native("sums", &sums) else { return };
    let mut policy = policy.unwrap().0.start().unwrap();
    let mut ask = |index, page, access| {
        policy.answer(Point::Around, &Context { index, page, access, ..Context::default() })
    };
    assert_eq!(ask(100, 10, 0), Ok(Answer::Value(15_006)), "0 + 1 + .. + 5 is above 10");
    assert_eq!(ask(4, 1000, 0), Ok(Answer::Value(6_004)));
    assert_eq!(ask(0, 0, 0), Ok(Answer::Value(0)));
    assert_eq!(ask(4, 0, 1), Ok(Answer::Value(22)), "EINVAL");
    assert_eq!(ask(u64::from(u32::MAX), 0, 0), Ok(Answer::Value(7)), "E2BIG");
    let error = ask(8 << 20, u64::MAX, 0).unwrap_err().to_string();
    assert!(error.contains("more than 1048576 instructions for one decision"), "{error}");
    for (body, expected) in [
        ("return bpf_loop(4, (void *)c, 0, 0);", "bpf_loop(): r2 must be a function"),
        ("return bpf_loop(4, add, 0, 0);", "a number is not an address"),
        (
            "struct sum sum; sum.total = 0; return bpf_loop(4, add, &sum, 0);",
            "bytes of its caller's stack that hold numbers",
        ),
    ] {
        let message = compiled_native("bad", &source(body)).unwrap().unwrap_err();
        assert!(message.contains(expected), "expected {expected:?}: {message}");
    }
    let nested = source("struct sum sum = { 0 }; return bpf_loop(4, outer, &sum, 0);").replace(
        "SEC(\"folio/around\")",
        "static long outer(__u32 index, struct sum *sum) { return bpf_loop(2, add, sum, 0); }\n\
         SEC(\"folio/around\")",
    );
    let message = compiled_native("nested", &nested).unwrap().unwrap_err();
    assert!(message.contains("a callback cannot call a helper that has a callback"), "{message}");
}

#[test]
fn a_kernel_gets_only_what_it_can_fill_in() {
    let image = |policy: &KernelPolicy| policy.for_kernel().map(|_| ()).unwrap_err().to_string();
    let message = image(&KernelPolicy::named("thp-by-area").unwrap());
    assert!(message.contains("written for bpf_thp_ops"), "{message}");
    let source = |body: &str| {
        format!(
            "#include \"folio_policy.h\"\n\
             static __attribute__((unused)) long once(__u32 index, void *none) {{ return 1; }}\n\
             SEC(\"folio/around\") __u64 f(struct folio_context *c) {{ {body} }}\n"
        )
    };
    for (body, expected) in [
        ("return bpf_loop(2, once, 0, 0);", "bpf_loop() is available only in the model"),
        ("return c->group;", "are not all in the context"),
    ] {
        let Some(policy) = compiled_native("model", &source(body)) else { return };
        let message = image(&policy.unwrap());
        assert!(message.contains("in a kernel") && message.contains(expected), "{message}");
    }
}
