//! Per-size control of file folios, and sizes requested per area (K.1.4).

use largefolio_mm::core::observed::Observed;
use largefolio_mm::map::Madvice::{Hugepage, Random, Sequential};
use largefolio_mm::map::MapError;
use largefolio_mm::memory::Config;
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{Order, Vaddr};
use largefolio_mm::vma::Prot;
use largefolio_sim::kernel::Kernel;
use proptest::prelude::*;

use super::random::may_fail;
use super::world::World;

/// The folios read by a first touch of `fault` in an executable mapping of pages `[10, 74)` on
/// arm64.
fn text(kernel: &str, fault: u64) -> String {
    let mut world = World::arm(kernel, "xfs", 4096);
    world.map_part(Prot::READ_EXEC, (10, 74));
    world.touch(fault);
    world.validate();
    world.folios()
}

/// All folios after a sweep over 256 pages of a readable mapping.
fn swept(kernel: &str) -> String {
    let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ);
    world.touch_all(0..256);
    world.validate();
    world.folios()
}

#[test]
fn marked_exec_and_all_others_allowed_is_the_merged_rule() {
    // On arm64, 7.2 uses 64K for text and the ramp for data. With this control, so does any kernel.
    for fault in [10, 17, 40, 73] {
        let stock = text("7.2", fault);
        assert_eq!(text("7.2+sizes=64K:always+exec/others:always", fault), stock, "{fault}");
        assert_eq!(text("6.12+sizes=64K:always+exec/others:always", fault), stock, "{fault}");
        assert_eq!(text("6.12+exec-block=64K+sizes=64K:exec/others:always", fault), stock);
    }
    assert_eq!(swept("7.2+sizes=others:always"), swept("7.2"));
    assert_eq!(swept("6.12+sizes=64K:always+exec/others:always"), swept("6.12"));
}

#[test]
fn marked_exec_alone_leaves_base_pages_at_the_edges_and_for_data() {
    // B.4.7 reads o1@10 o2@12 before the first aligned block; those sizes are not allowed here.
    assert_eq!(text("7.2+sizes=64K:exec", 10), "6xo0@10 2xo4@16");
    assert_eq!(text("7.2+sizes=64K:exec", 17), "2xo4@16");
    assert_eq!(text("7.2+sizes=64K:exec", 73), "10xo0@64");
    assert_eq!(swept("7.2+sizes=64K:exec"), "288xo0@0");
}

#[test]
fn a_pmd_sized_exec_window_is_one_aligned_folio() {
    let mut world = World::arm("7.2+sizes=2M:exec", "xfs", 4096).mapped(Prot::READ_EXEC);
    world.touch(700);
    assert_eq!(world.folios(), "o9@512");
    // btrfs has no folio that large: the kernel's own rule applies with the remaining sizes.
    let mut world = World::arm("7.2+sizes=2M:exec", "btrfs", 4096).mapped(Prot::READ_EXEC);
    world.touch(700);
    assert_eq!(world.folios(), "32xo0@688");
}

#[test]
fn the_ramp_climbs_over_what_is_not_allowed() {
    // Orders 0, 2, 4, 4.. of the windows (A.9.3), with base pages for all but order 4.
    assert_eq!(swept("7.2+sizes=64K:always"), "64xo0@0 14xo4@64");
    // Up to 6.16 the order is the marked folio's plus two, or the next allowed one.
    assert_eq!(swept("6.12+sizes=64K:always"), "18xo4@0");
    assert_eq!(swept("6.12+sizes=64K:always/8K:always"), swept("6.16+sizes=64K:always/8K:always"));
    assert!(swept("6.12+sizes=64K:always/8K:always").starts_with("16xo1@0"));
}

#[test]
fn text_without_a_size_of_its_own_is_read_by_the_kernels_rule_in_allowed_sizes() {
    assert_eq!(text("7.2+sizes=32K:always", 17), "4xo3@16");
    assert_eq!(text("7.2+sizes=2M:always", 17), "32xo0@16");
    assert_eq!(text("6.12+exec-block=64K+sizes=32K:always", 17), "2xo3@16");
}

#[test]
fn a_filesystem_comes_before_the_machine_and_an_area_before_both() {
    let kernel = "7.2+sizes=64K:exec+sizes.ext4=32K:exec";
    let touched = |fs: &str, bytes: Option<u64>| {
        let mut world = World::arm(kernel, fs, 4096).mapped(Prot::READ_EXEC);
        if bytes.is_some() {
            world.memory.prefer_folios(world.mm, world.base, 4096 << 12, bytes).unwrap();
        }
        world.touch(17);
        world.folios()
    };
    assert_eq!([touched("xfs", None), touched("ext4", None)], ["2xo4@16", "4xo3@16"]);
    assert_eq!(touched("ext4", Some(16 << 10)), "8xo2@16");
    // A filesystem without large folios gets none.
    assert_eq!(touched("vfat", Some(16 << 10)), "32xo0@16");
}

#[test]
fn an_area_may_ask_on_any_kernel_whatever_its_protection() {
    for kernel in ["6.1", "6.12", "6.18", "7.2"] {
        for prot in [Prot::READ, Prot::READ_EXEC, Prot::READ_WRITE] {
            let mut world = World::x86(kernel, "xfs", 4096).mapped(prot);
            world.memory.prefer_folios(world.mm, world.base, 4096 << 12, Some(64 << 10)).unwrap();
            world.touch(100);
            assert_eq!(world.folios(), "2xo4@96", "{kernel} {prot:?}");
            assert!(world.markers().is_empty());
        }
    }
}

#[test]
fn asking_again_changes_the_area_and_nothing_merges_across() {
    let mut world = World::x86("7.2", "xfs", 4096).mapped(Prot::READ);
    let (mm, base) = (world.mm, world.base);
    let half = 2048 << 12;
    let nr_areas = |world: &World| world.memory.space(mm).vmas.iter().count();
    world.memory.prefer_folios(mm, base, half, Some(64 << 10)).unwrap();
    assert_eq!(nr_areas(&world), 2);
    world.touch_all([100, 3000]);
    assert_eq!(world.folios(), "2xo4@96 32xo0@2984");
    world.memory.prefer_folios(mm, base, half, None).unwrap();
    assert_eq!(nr_areas(&world), 1);
    world.touch(1000);
    assert_eq!(world.cached()[1], (984, 1015));
    world.validate();
}

#[test]
fn a_size_the_page_cache_has_not_is_refused() {
    let mut world = World::x86("7.2", "xfs", 4096).mapped(Prot::READ);
    for bytes in [4 << 20, 6 << 10, 2048, 0] {
        let refused = world.memory.prefer_folios(world.mm, world.base, 4096, Some(bytes));
        let error = MapError::NoSuchFolio { bytes, page_bytes: 4096, max_bytes: 2 << 20 };
        assert_eq!(refused, Err(error));
    }
}

#[test]
fn forced_windows_have_the_largest_allowed_size_or_are_none() {
    let touched = |kernel: &str, prot: Prot| {
        let mut world = World::x86(kernel, "xfs", 1 << 13).mapped(prot).advised(&[Hugepage]);
        world.touch(1000);
        world.folios()
    };
    for kernel in ["6.12", "6.18", "7.2"] {
        let of = |sizes: &str, prot| touched(&format!("{kernel}+sizes={sizes}"), prot);
        assert_eq!(of("64K:always/2M:never", Prot::READ), "2xo4@992", "{kernel}");
        assert_eq!(of("64K:always/2M:exec", Prot::READ_EXEC), "2xo9@512", "{kernel}");
        assert_eq!(of("2M:always", Prot::READ), "2xo9@512", "{kernel}");
        assert_eq!(of("2M:exec", Prot::READ), "32xo0@984", "{kernel}");
    }
}

#[test]
fn writes_use_the_sizes_for_everything() {
    let written = |sizes: &str| {
        let mut world = World::x86(&format!("7.2{sizes}"), "xfs", 0);
        world.memory.pwrite(world.open, 0, 256 << 10).unwrap();
        world.folios()
    };
    assert_eq!(written(""), "o6@0");
    assert_eq!(written("+sizes=64K:always"), "4xo4@0");
    assert_eq!(written("+sizes=64K:exec"), "64xo0@0");
    // 128 KiB is not allowed, so the next smaller size is used.
    assert_eq!(written("+sizes=512K:always/32K:always"), "8xo3@0");
}

#[test]
fn advice_about_order_of_access_keeps_its_meaning() {
    // MADV_RANDOM on text keeps the exec window (B.4.1); without readahead there is none.
    let mut world =
        World::arm("7.2+sizes=64K:exec", "xfs", 4096).mapped(Prot::READ_EXEC).advised(&[Random]);
    world.touch(17);
    assert_eq!(world.folios(), "2xo4@16");
    let kernel = "7.2+sizes=64K:exec+readahead=0";
    let mut world = World::arm(kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
    world.touch(17);
    assert_eq!(world.folios(), "o0@17");
    // MADV_SEQUENTIAL reads like a read call: text has no exec window, but its own size.
    let mut world = World::arm("7.2+sizes=64K:exec", "xfs", 4096).mapped(Prot::READ_EXEC);
    world.advise(Sequential);
    world.touch_all(0..160);
    assert_eq!(world.new_folios(), "64xo0@0 8xo4@64");
}

#[test]
fn edits_are_read_and_refused_with_cause_and_form() {
    let sizes = |text: &str| Kernel::parse(text).unwrap().rules.sizes;
    let both = sizes("7.2+sizes=64K:always+exec/2M:always+readahead=1M+sizes.xfs=2M:exec");
    assert_eq!(both.machine.unwrap().to_string(), "64K:always+exec/2M:always");
    assert_eq!(both.filesystems["xfs"].to_string(), "2M:exec");
    let page = Kernel::parse("7.2+sizes=64K:always+page=16K").unwrap();
    assert_eq!(page.rules.page.bytes(), 16 << 10);
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    let two = message("7.2+sizes=64K:exec/2M:always+exec");
    assert_eq!(
        two,
        "'+sizes=64K:exec/2M:always+exec': 64K and 2M are both marked exec; expected at most one \
         size with exec or always+exec"
    );
    assert!(
        message("7.2+sizes=64K:execute")
            .contains("'execute' is not a use for a size; expected never")
    );
    assert!(
        message("7.2+page=64K+sizes=16K:exec")
            .contains("16K is smaller than the base page size, 64K")
    );
    assert!(message("7.2+page=4K+sizes=4M:exec").contains("the page cache has no folios of 4M"));
    assert!(message("7.2+sizes.xsf=64K:exec").contains("a filesystem called 'xsf'; "));
    assert!(message("7.2+sizes").contains("such as 64K:exec/2M:always"));
    assert!(message("7.2+sizesx=64K:exec").contains("there is no rule 'sizesx'"));
}

/// Rules for sizes from 4K to 4M, as text; at most one is marked exec.
fn control() -> impl Strategy<Value = String> {
    let uses = prop::collection::vec(prop::sample::select(vec!["never", "always"]), 9);
    (uses, prop::option::of(0..9_usize), any::<bool>()).prop_map(|(uses, exec, is_both)| {
        let sizes = ["8K", "16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M"];
        let parts = sizes.iter().zip(uses).enumerate().map(|(nr, (size, word))| {
            match (exec == Some(nr), is_both) {
                (true, true) => format!("{size}:always+exec"),
                (true, false) => format!("{size}:exec"),
                (false, _) => format!("{size}:{word}"),
            }
        });
        parts.collect::<Vec<_>>().join("/")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(400)))]

    /// Under any touches, reads and writes, an inserted folio has an allowed size (the size marked
    /// exec only through text), or the mapping's smallest.
    #[test]
    fn only_allowed_sizes_are_inserted(
        sizes in control(),
        base in prop::sample::select(vec!["6.1", "6.12", "6.17", "7.2", "7.2+min-folio=16K"]),
        is_text in any::<bool>(),
        preferred in prop::option::of(13..22_u32),
        steps in prop::collection::vec((0..6_u8, 0..1500_u64, 1..300_u64), 1..40),
    ) {
        let kernel = format!("{base}+sizes={sizes}");
        let rules = Kernel::parse(&kernel).unwrap().rules;
        let prot = if is_text { Prot::READ_EXEC } else { Prot::READ };
        let config = Config { ram_bytes: 24 << 20, ..Config::new(Arch::Arm64) };
        let mut world = World::new(&kernel, &config, "xfs", 1500).mapped(prot);
        let preferred_bytes = preferred.map(|shift| 1 << shift);
        world.memory.prefer_folios(world.mm, world.base, 1500 << 12, preferred_bytes).unwrap();
        for (step, at, nr) in steps {
            let (addr, bytes) = (world.addr(at), (at << 12, nr << 12));
            match step {
                0 | 1 => may_fail(world.memory.touch(world.mm, addr, largefolio_mm::fault::Access::Read)),
                2 => may_fail(world.memory.pread(world.open, bytes.0, bytes.1)),
                3 => may_fail(world.memory.pwrite(world.open, bytes.0, bytes.1)),
                4 if at % 3 == 0 => world.advise(Hugepage),
                4 if at % 3 == 1 => world.advise(Random),
                4 => world.advise(Sequential),
                _ => world.memory.drop_cache(world.file),
            }
            world.validate();
        }
        let mapping = world.memory.core().mapping(world.file);
        let (control, min) = (rules.sizes.orders("xfs", rules.page, mapping.orders.max), mapping.orders.min);
        let preferred_order = preferred.map(|shift| Order::new(u8::try_from(shift - 12).unwrap()));
        let of_text = preferred_order.or(control.exec.filter(|_| is_text));
        for event in world.memory.take_observed() {
            let Observed::Insertion { index, order, .. } = event else { continue };
            let is_allowed = control.always.contains(order) || Some(order) == of_text || order == min;
            prop_assert!(is_allowed, "{kernel}: {order}@{index}, asked {preferred_order:?}");
        }
    }
}

#[test]
fn an_unmapped_range_is_stepped_over() {
    let mut world = World::x86("7.2", "xfs", 64).mapped(Prot::READ);
    let far = Vaddr(world.base.0 + (1 << 30));
    assert_eq!(world.memory.prefer_folios(world.mm, far, 4096, Some(65536)), Ok(()));
}

#[test]
fn one_cached_page_leaves_the_rest_of_a_large_window_in_base_pages() {
    // The larger the window, the more is lost (A.5.8). Page 600 came with a neighbour's
    // read-around.
    let after = |sizes: &str| {
        let kernel = format!("7.2+sizes={sizes}");
        let mut world = World::arm(&kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
        world.cache(600, 0);
        world.touch(512);
        world.touch(640);
        world.folios()
    };
    assert_eq!(after("2M:exec"), "512xo0@512");
    assert_eq!(after("64K:exec"), "2xo4@512 o0@600 2xo4@640");
}

#[test]
fn a_kernel_file_may_have_a_control() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let text = "based-on = \"7.2\"\ndescription = \"mine\"\n[sizes]\nmachine = \"64K:exec\"\n\
                filesystems = { xfs = \"2M:always+exec\" }\n";
    std::fs::write(&path, text).unwrap();
    let sizes = Kernel::parse(path.to_str().unwrap()).unwrap().rules.sizes;
    assert_eq!(sizes.machine.unwrap().to_string(), "64K:exec");
    assert_eq!(sizes.filesystems["xfs"].to_string(), "2M:always+exec");
    std::fs::write(&path, text.replace("64K:exec", "64K:exec/32K:exec")).unwrap();
    let message = Kernel::parse(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(message.contains("64K and 32K are both marked exec"), "{message}");
}
