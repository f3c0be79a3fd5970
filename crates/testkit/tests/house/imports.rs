//! Checks that no file imports itself, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::{Item, UseTree};

use super::{files_below, root};

/// All crates but `testkit`, whose models do not import each other, and `c`, which is one file.
const CRATES: &[&str] = &[
    "bulk",
    "cli",
    "lab",
    "linux",
    "mm",
    "owner-word",
    "preload",
    "python",
    "ranges",
    "recorder",
    "regions",
    "results",
    "sim",
    "trace",
];

type Module = Vec<String>;
type Imports = BTreeMap<Module, BTreeSet<Module>>;

fn module_of(inside: &Path) -> Module {
    let inside = inside.with_extension("");
    let names = inside.iter().map(|name| name.to_str().unwrap().to_owned());
    let mut names: Module = names.collect();
    if matches!(names.last().map(String::as_str), Some("lib" | "main")) {
        names.pop();
    }
    names
}

fn paths(tree: &UseTree, before: &[String], imports: &mut Vec<Vec<String>>) {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => paths(&path.tree, &with(path.ident.to_string()), imports),
        UseTree::Group(group) => group.items.iter().for_each(|tree| paths(tree, before, imports)),
        UseTree::Name(name) => imports.push(with(name.ident.to_string())),
        UseTree::Rename(name) => imports.push(with(name.ident.to_string())),
        UseTree::Glob(_) => imports.push(before.to_vec()),
    }
}

fn from_root(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let nr_up = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len() - nr_up], &path[nr_up..]].concat()),
        _ => None,
    }
}

/// Imports between a crate's modules; `texts` are its files, except tests.
///
/// A folder and its contents count as one module: neither imports the other.
fn imports(texts: &BTreeMap<Module, String>) -> Imports {
    let mut imports = Imports::new();
    for (module, text) in texts {
        let items = syn::parse_file(text).unwrap().items;
        let mut named = Vec::new();
        for item in items {
            if let Item::Use(item) = item {
                paths(&item.tree, &[], &mut named);
            }
        }
        let target = |path: Vec<String>| {
            let path = from_root(&path, module)?;
            (1..=path.len()).rev().map(|len| path[..len].to_vec()).find(|m| texts.contains_key(m))
        };
        let is_other = |target: &Module| !target.starts_with(module) && !module.starts_with(target);
        let others = named.into_iter().filter_map(target).filter(is_other).collect();
        imports.insert(module.clone(), others);
    }
    imports
}

fn circles(mut imports: Imports) -> Vec<String> {
    // A module without remaining imports is not in a cycle: remove it, and repeat.
    loop {
        let left: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|_, others| others.iter().any(|other| left.contains(other)));
        if imports.len() == left.len() {
            break;
        }
    }
    loop {
        let imported: BTreeSet<_> = imports.values().flatten().cloned().collect();
        let nr_before = imports.len();
        imports.retain(|module, _| imported.contains(module));
        if imports.len() == nr_before {
            break;
        }
    }
    let left: BTreeSet<_> = imports.keys().collect();
    let pairs = imports.iter().flat_map(|(from, others)| others.iter().map(move |to| (from, to)));
    let shown = pairs.filter(|(_, to)| left.contains(to));
    shown.map(|(from, to)| format!("{} -> {}", from.join("/"), to.join("/"))).collect()
}

fn texts_of(name: &str) -> BTreeMap<Module, String> {
    let src = root().join("crates").join(name).join("src");
    let is_test = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    let files = files_below(&src, "rs").into_iter().filter_map(|path| {
        let inside = path.strip_prefix(&src).unwrap();
        let text = || fs::read_to_string(&path).unwrap();
        (!inside.iter().any(is_test)).then(|| (module_of(inside), text()))
    });
    files.collect()
}

#[test]
fn no_imports_run_in_a_circle() {
    for name in CRATES {
        let imports = imports(&texts_of(name));
        assert!(imports.values().any(|others| !others.is_empty()), "{name}: no import is seen");
        let circles = circles(imports);
        assert!(circles.is_empty(), "{name}: imports in a circle:\n{}", circles.join("\n"));
    }
}

/// The imports between top-level modules: a folder and its files count as one.
fn folders(imports: &Imports) -> Imports {
    let mut folders = Imports::new();
    for (from, others) in imports.iter().filter(|(from, _)| !from.is_empty()) {
        let others = others.iter().map(|other| other[..1].to_vec());
        let own = folders.entry(from[..1].to_vec()).or_default();
        own.extend(others.filter(|other| other[..] != from[..1]));
    }
    folders
}

#[test]
fn no_folders_import_each_other() {
    for name in CRATES {
        let circles = circles(folders(&imports(&texts_of(name))));
        assert!(circles.is_empty(), "{name}: folders in a circle:\n{}", circles.join("\n"));
    }
}

/// Layer of each top-level module of `mm`, counted from the bottom, as listed in ARCHITECTURE.md.
fn layers() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, rest) = text.split_once("\n## `mm`, from the ground\n").unwrap();
    let (section, _) = rest.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut layers = BTreeMap::new();
    for (nr, row) in rows.enumerate() {
        for name in row.split('`').skip(1).step_by(2) {
            let is_module = name.bytes().all(|byte| byte.is_ascii_lowercase());
            if is_module {
                assert_eq!(layers.insert(name.to_owned(), nr), None, "{name} is in two layers");
            }
        }
    }
    layers
}

#[test]
fn modules_of_mm_import_from_layers_below_them() {
    let (layers, texts) = (layers(), texts_of("mm"));
    let top: BTreeSet<_> = texts.keys().filter_map(|module| module.first()).collect();
    assert!(top.iter().copied().eq(layers.keys()), "{top:?} and in ARCHITECTURE.md {layers:?}");
    let up: Vec<_> = imports(&texts)
        .into_iter()
        .flat_map(|(from, others)| others.into_iter().map(move |to| (from.clone(), to)))
        .filter(|(from, to)| layers.get(&to[0]) > from.first().map(|from| &layers[from]))
        .map(|(from, to)| format!("{} -> {}", from.join("/"), to.join("/")))
        .collect();
    assert!(up.is_empty(), "imports from a layer above:\n{}", up.join("\n"));
}

#[test]
fn a_circle_is_seen_through_others_and_a_folder_is_none() {
    let texts = [
        ("a", "use crate::b::B;"),
        ("b", "use super::c::{deep::D, C};"),
        ("c", "pub mod deep; use deep::D;"),
        ("c/deep", "use super::C; use crate::a::{self, A as Other};"),
        ("leads-in", "use crate::a::A;"),
        ("led-to", "use std::fs;"),
    ];
    let texts = texts.map(|(path, text)| (module_of(Path::new(path)), text.to_owned()));
    let of_folders = [("a/x", "use crate::b::y::Y;"), ("b/y", ""), ("b/z", "use crate::a::X;")];
    let of_folders = of_folders.map(|(path, text)| (module_of(Path::new(path)), text.to_owned()));
    let of_folders = [("a", ""), ("b", "")]
        .map(|(path, text)| (module_of(Path::new(path)), text.to_owned()))
        .into_iter()
        .chain(of_folders)
        .collect();
    let of_folders = imports(&of_folders);
    assert!(circles(of_folders.clone()).is_empty(), "no file imports itself");
    assert_eq!(circles(folders(&of_folders)), ["a -> b", "b -> a"]);
    assert_eq!(circles(imports(&texts.into())), ["a -> b", "b -> c/deep", "c/deep -> a"]);
}
