//! The choices in `choices.toml` that this system accepts.

use std::path::Path;

use largefolio_linux::remedies::runtime::{Memory, Runtime, Traits, Wanted};
use largefolio_linux::tune::TuneError;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::tune::plan::ChangeSet;
use largefolio_sim::kernel::Kernel;
use largefolio_trace::Meta;
use serde::{Deserialize, Serialize};

use crate::{Error, running};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    Program,
    System,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Choices with the same lever exclude each other.
    pub lever: String,
    pub name: String,
    #[serde(default)]
    pub edits: String,
    /// The folio size that the loader requests: `pmd`.
    #[serde(default)]
    pub annotate: Option<String>,
    #[serde(default)]
    pub set: Vec<String>,
    /// Those of `set` that are not in force.
    #[serde(skip)]
    pub(super) tuned: Vec<String>,
    #[serde(default)]
    pub start: Vec<String>,
    /// The same as `start` for a service: its limit of large folios.
    #[serde(default)]
    pub unit_thp: Option<String>,
    /// The same as `start` for a service: an environment variable.
    #[serde(default)]
    pub env: Option<String>,
    #[serde(default)]
    pub env_set: Vec<String>,
    #[serde(default)]
    pub verify: Vec<String>,
    /// Why `folio verify` cannot show the effect; empty if it can.
    #[serde(default)]
    pub not_verified: String,
    #[serde(default)]
    pub warm: bool,
    pub scope: Scope,
    #[serde(default)]
    pub limits: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Why `folio warm` cannot fill the page cache with one of its files; `None` if it can.
    pub(super) text_refusal: Option<String>,
    /// Why `--heap` does not reach its memory; `None` if it does.
    pub(super) heap_refusal: Option<String>,
}

impl Program {
    pub(super) fn of(meta: &Meta, text_refusal: Option<String>) -> Self {
        let files = || meta.files.iter().map(|file| Path::new(&file.path));
        let traits = Traits::recorded(files().next().unwrap_or(Path::new("")), files());
        // The heap represents all of malloc's mappings. Its address, which arenas do not have, is
        // irrelevant.
        let wanted = Wanted {
            memory: Memory::Anon,
            range: 1..2,
            is_heap: true,
            pmd_bytes: 2 << 20,
            is_disabled: false,
            longest_chunk: None,
            is_arena: None,
            is_object_arena: false,
            is_own_heap: true,
        };
        let heap_refusal = match Runtime::of(&traits, &wanted) {
            Some(row) if row.is_glibc_alone() => None,
            Some(row) => Some(format!(
                "it affects glibc's malloc, but the memory belongs to {}; folio advise PID shows \
                 remedies for that memory",
                row.name
            )),
            None => Some(
                "it affects only glibc's malloc, which the recorded program does not use"
                    .to_owned(),
            ),
        };
        Self { text_refusal, heap_refusal }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub choice: String,
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceFile {
    choice: Vec<Choice>,
}

/// Returns the choices that the running `kernel` and its settings offer, in the order of the file,
/// and those that they or the program do not. Choices for features of `kernel/` that this kernel
/// lacks are in neither.
///
/// # Errors
/// If the file of choices is invalid.
pub(super) fn of_system(
    catalog: &Catalog,
    kernel: &Kernel,
    program: &Program,
) -> Result<(Vec<Choice>, Vec<LeftOut>), Error> {
    let file: ChoiceFile = toml::from_str(include_str!("choices.toml"))
        .map_err(|error| Error::request(format!("choices.toml: {error}")))?;
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for choice in file.choice.into_iter().filter(|choice| has_features(catalog, choice)) {
        let set = on_disks(catalog, choice.set);
        let edits = match choice.edits.as_str() {
            "" => running::edits_of_features(catalog, &set),
            _ => choice.edits,
        };
        let tuned = set.iter().filter(|one| !is_in_force(catalog, one)).cloned().collect();
        let choice = Choice { edits, set, tuned, ..choice };
        let why = match (&program.text_refusal, &program.heap_refusal) {
            (Some(why), _) if choice.warm => Some(why.clone()),
            (_, Some(why)) if choice.env.is_some() => Some(why.clone()),
            _ => refusal(catalog, kernel, &choice),
        };
        match why {
            None => taken.push(choice),
            Some(why) => left_out.push(LeftOut { choice: choice.name, why }),
        }
    }
    Ok((taken, left_out))
}

fn has_features(catalog: &Catalog, choice: &Choice) -> bool {
    let mut names = choice.set.iter().filter_map(|one| Some(one.split_once('=')?.0));
    !names.any(|name| matches!(catalog.read(name), Err(TuneError::NoFeature { .. })))
}

fn is_in_force(catalog: &Catalog, assignment: &str) -> bool {
    let current = |(name, value)| catalog.read(name).is_ok_and(|now| now.value == value);
    assignment.split_once('=').is_some_and(current)
}

/// Says why this system does not accept a choice. A choice that is already in force is not refused,
/// but it is not a change either.
fn refusal(catalog: &Catalog, kernel: &Kernel, choice: &Choice) -> Option<String> {
    if !choice.edits.is_empty() {
        match Kernel::parse(&format!("{}+{}", kernel.name, choice.edits)) {
            Err(error) => return Some(error.to_string()),
            Ok(edited) if edited.rules == kernel.rules => return Some("is already set".to_owned()),
            Ok(_) => {}
        }
    }
    let mut changes = ChangeSet::default();
    for assignment in &choice.set {
        let Some((name, value)) = assignment.split_once('=') else { continue };
        if let Err(error) = changes.set(catalog, name, value) {
            return Some(error.to_string());
        }
    }
    (!choice.set.is_empty() && changes.changes.is_empty()).then(|| "is already set".to_owned())
}

/// `readahead=512` for each disk.
fn on_disks(catalog: &Catalog, set: Vec<String>) -> Vec<String> {
    let of = |assignment: String| match assignment.strip_prefix("readahead=") {
        Some(value) => {
            catalog.disks().iter().map(|disk| format!("readahead.{disk}={value}")).collect()
        }
        None => vec![assignment],
    };
    set.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use largefolio_trace::meta::FileInfo;

    use super::*;

    fn here() -> Catalog {
        Catalog::below(Path::new("/"))
    }

    fn program(has_text: bool) -> Program {
        let text_refusal = (!has_text).then(|| "none".to_owned());
        Program { text_refusal, heap_refusal: None }
    }

    #[test]
    fn other_heaps_than_glibcs_are_left_out() {
        let meta = |files: &[&str]| {
            let file = |path: &&str| FileInfo { path: (*path).to_owned(), ..FileInfo::default() };
            Meta { files: files.iter().map(file).collect(), ..Meta::default() }
        };
        let refusal = |files: &[&str]| Program::of(&meta(files), None).heap_refusal;
        assert_eq!(refusal(&["/no/hash", "/lib/libc.so.6"]), None);
        let java = refusal(&["/no/java", "/lib/libc.so.6", "/jdk/libjvm.so"]).unwrap();
        assert!(java.contains("belongs to OpenJDK"), "{java}");
        assert!(refusal(&["/no/node", "/lib/libc.so.6"]).unwrap().contains("V8"));
        assert!(refusal(&["/no/static"]).unwrap().contains("the recorded program does not use"));
        let kernel = Kernel::parse("6.18").unwrap();
        let own = Program { text_refusal: None, heap_refusal: Some("because".to_owned()) };
        let (taken, left_out) = of_system(&here(), &kernel, &own).unwrap();
        assert!(taken.iter().all(|choice| choice.env.is_none()));
        assert!(left_out.iter().any(|one| one.why == "because"));
    }

    #[test]
    fn every_choice_can_be_replayed_or_has_a_reason() {
        let kernel = Kernel::parse("6.18").unwrap();
        let (taken, left_out) = of_system(&here(), &kernel, &program(true)).unwrap();
        assert!(taken.len() + left_out.len() > 10);
        for choice in &taken {
            assert!(!choice.edits.is_empty() || choice.annotate.is_some(), "{choice:?}");
            assert!(
                !choice.set.is_empty() || !choice.start.is_empty() || choice.warm,
                "{choice:?}"
            );
        }
        assert!(left_out.iter().all(|one| !one.why.is_empty()));
        // 6.1 has no sizes of private memory but the PMD's.
        let old = Kernel::parse("6.1").unwrap();
        let (taken, left_out) = of_system(&here(), &old, &program(false)).unwrap();
        assert!(taken.iter().all(|choice| !choice.edits.contains("anon-64K")), "{left_out:?}");
        let is_taken = |edits: &str| taken.iter().any(|choice| choice.edits == edits);
        assert!(is_taken("program-thp=off") && !is_taken("program-thp=advised"), "{left_out:?}");
    }
    #[test]
    fn features_are_choices_only_in_a_kernel_that_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::below(dir.path());
        let of = |kernel: &str| {
            let kernel = Kernel::parse(kernel).unwrap();
            let (taken, left_out) = of_system(&catalog, &kernel, &program(false)).unwrap();
            let is_feature = |choice: &Choice| choice.lever == "reads";
            let taken: Vec<_> = taken.into_iter().filter(is_feature).collect();
            let left: Vec<_> =
                left_out.into_iter().filter(|one| one.choice.starts_with("text read")).collect();
            (taken, left)
        };
        assert_eq!(of("6.12"), (Vec::new(), Vec::new()));
        let write = |name: &str, text: &str| {
            let path = dir.path().join("sys/kernel/mm/largefolio").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("exec_order", "[off] block window\n");
        write("exec_order_bytes", "65536\n");
        let (taken, left) = of("6.12");
        let all: Vec<_> = taken.iter().map(|one| (one.edits.as_str(), one.tuned.len())).collect();
        assert_eq!(
            (all.as_slice(), left),
            (&[("exec-window=64K", 1), ("exec-window=2M", 2)][..], vec![])
        );
        assert_eq!(taken[0].tuned, ["largefolio.exec_order=window"]);
        write("exec_order", "off block [window]\n");
        let (taken, left) = of("6.12+exec-window=64K");
        assert_eq!((taken.len(), left.len()), (1, 1), "one is in force");
        assert_eq!(taken[0].tuned, ["largefolio.exec_order_bytes=2097152"]);
        fs::remove_dir_all(dir.path().join("sys")).unwrap();
        for size in ["4", "16", "64", "2048"] {
            write(&format!("file_sizes/hugepages-{size}kB"), "never [always] exec always+exec\n");
        }
        let (taken, left) = of("7.3");
        let edits: Vec<_> = taken.iter().map(|one| one.edits.as_str()).collect();
        let expected =
            ["sizes=64K:always+exec/others:always", "sizes=2M:always+exec/others:always"];
        assert_eq!((edits.as_slice(), left), (&expected[..], vec![]));
    }
}
