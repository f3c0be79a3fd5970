//! C sources compiled by clang: accepted ones, refused ones with reasons, and results.

use largefolio_mm::policy::{Answer, Context, Point};

use super::{compiled, compiled_with};

const F: &str = "SEC(\"folio/around\") __u64 f(struct folio_context *c)";

fn around(body: &str) -> String {
    format!(
        "#include \"folio_policy.h\"\n{body}\n\
         SEC(\"license\") char own_license[] = \"GPL\";"
    )
}

/// clang targets: without and with 32-bit instructions. The default depends on clang's version.
const TARGETS: [&str; 2] = ["-mcpu=v1", "-mcpu=v3"];

fn refused(cases: &[(String, &str)]) {
    for (target, (source, expected)) in
        TARGETS.into_iter().flat_map(|to| cases.iter().map(move |case| (to, case)))
    {
        let Some(policy) = compiled_with(&["-O2", target], "bad", source) else { return };
        let Err(message) = policy else { panic!("passed: {source}") };
        assert!(message.contains(expected), "{target}: expected {expected:?}: {message}\n{source}");
    }
}

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
    // Without 32-bit instructions, clang compares a copy, which Linux's verifier does not track
    // either.
    assert!(of("-mcpu=v3", &int_).unwrap().is_ok());
    let message = of("-mcpu=v1", &int_).unwrap().unwrap_err();
    assert!(
        message.contains("compare the index with the size first, as an unsigned number"),
        "{message}"
    );
}

#[test]
fn code_that_was_not_optimized_is_told_so() {
    let source = around(&format!(
        "FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
         {F} {{ __u64 key = 1; return bpf_map_lookup_elem(&m, &key) != 0; }}"
    ));
    let Some(policy) = compiled_with(&["-O0"], "slow", &source) else { return };
    let message = policy.unwrap_err();
    assert!(message.contains("compile with -O2"), "{message}");
}

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
        (around(&format!("{F} {{ return *(__u64 *)0x1000; }}")), "a number is not an address"),
        (around(&format!("{F} {{ c->page = 1; return 1; }}")), "the context cannot be modified"),
        (
            around(&format!(
                "FOLIO_MAP(m, FOLIO_HASH, __u64, __u64, 4);\n\
                 {F} {{ return *(__u64 *)bpf_map_lookup_elem(&m, &(__u64){{1}}); }}"
            )),
            "compared with 0",
        ),
        (
            around(&format!("static long (*now)(void) = (void *)5;\n{F} {{ return now(); }}")),
            "no clock and no random numbers",
        ),
        (
            around(&format!(
                "struct key {{ __u32 a; __u64 b; }};\n\
                 FOLIO_MAP(m, FOLIO_HASH, struct key, __u64, 4);\n\
                 {F} {{ struct key k; k.a = c->page; k.b = c->index;\n\
                 return bpf_map_lookup_elem(&m, &k) != 0; }}"
            )),
            "clear a struct with __builtin_memset first",
        ),
    ]);
}

#[test]
fn files_that_are_refused_say_what_to_do() {
    refused(&[
        (
            around("SEC(\"folio/arround\") __u64 f(struct folio_context *c) { return 1; }"),
            "known points: anon_order, window, around",
        ),
        (around("int nothing;"), "no section named folio/POINT"),
        (
            around(&format!(
                "{F} {{ return 1; }} SEC(\"folio/around\") __u64 g(struct folio_context *c) {{ return 2; }}"
            )),
            "2 functions; use one function per point",
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
                "FOLIO_MAP(m, FOLIO_ARRAY, __u64, __u64, 4);\n\
                 {F} {{ return bpf_map_lookup_elem(&m, &(__u64){{1}}) != 0; }}"
            )),
            "make it an unsigned int, or make the map a FOLIO_HASH",
        ),
        (
            around(&format!(
                "struct {{ int (*type)[1]; __u64 *key; }} m SEC(\".maps\");\n\
                 {F} {{ return bpf_map_lookup_elem(&m, &(__u64){{1}}) != 0; }}"
            )),
            "define maps with FOLIO_MAP",
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
    assert_eq!(ask(Point::Around, 7, 0, ""), 1004);
    assert_eq!(ask(Point::Victim, 5, 0, "cc1plus"), 0);
    assert_eq!(ask(Point::Victim, 5, 0, "c"), 2, "ENOENT");
    assert_eq!(ask(Point::Around, 7, 0, ""), 1);
    assert_eq!(ask(Point::Victim, 0, 0, "cc1"), 5);
}
