//! Chooses the processes to examine. Every verb uses this type.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use super::{CensusError, all, cgroup};
use crate::proc::Task;
use crate::system::System;

/// The fewest digits accepted for a container id: shorter ones are probably typing errors.
const ID_DIGITS_MIN: usize = 3;
/// How many ids an error lists if several match.
const NR_IDS_MAX: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    All,
    Processes(Vec<u32>),
    /// Every process with one of these names: the kernel's, or the program's as started.
    Names(Vec<String>),
    /// The processes of a cgroup and of its descendants.
    Cgroup(PathBuf),
    /// The processes of a systemd unit, under every manager with a unit of this name.
    Unit(String),
    /// The processes of the container with an id that starts with this.
    Container(String),
}

#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error(
        "no process is called {}; give the whole name as shown by ps -eo comm, or the program's \
         file name",
        shown(.0)
    )]
    Name(String),
    #[error(
        "cannot read {}: {source}; is it a control group directory? systemd-cgls lists them",
        shown(path)
    )]
    Cgroup { path: PathBuf, source: io::Error },
    #[error(
        "no control group belongs to the unit {}; systemctl list-units shows the running units{}",
        shown(unit),
        also(like)
    )]
    Unit { unit: String, like: Vec<String> },
    #[error(
        "no control group belongs to a container with the ID {}; docker ps, podman ps and crictl \
         ps show IDs, not names",
        shown(.0)
    )]
    Container(String),
    #[error("several container IDs begin with {}: {}", shown(id), ids.join(", "))]
    Containers { id: String, ids: Vec<String> },
}

fn also(like: &[String]) -> String {
    let like: Vec<String> = like.iter().map(|name| shown(name).to_string()).collect();
    if like.is_empty() { String::new() } else { format!("; similar: {}", like.join(", ")) }
}

#[derive(Debug, Default)]
pub struct Chosen {
    pub pids: Vec<u32>,
    pub missing: Vec<Missing>,
}

impl Selection {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Processes(pids) if pids.is_empty())
    }

    /// Resolves the choice to the processes that run now.
    ///
    /// # Errors
    /// If the processes cannot be listed.
    pub fn chosen(&self, system: &dyn System) -> Result<Chosen, CensusError> {
        Ok(match self {
            Self::All => {
                let mut pids = all(system)?;
                // Leave out `folio` itself.
                pids.retain(|pid| *pid != std::process::id());
                Chosen { pids, ..Chosen::default() }
            }
            Self::Processes(pids) => {
                let pids: BTreeSet<u32> = pids.iter().copied().collect();
                Chosen { pids: pids.into_iter().collect(), ..Chosen::default() }
            }
            Self::Names(names) => named(system, names)?,
            Self::Cgroup(dir) => match cgroup::pids(system, dir) {
                Ok(pids) => Chosen { pids, ..Chosen::default() },
                Err((path, source)) => Chosen::without(Missing::Cgroup { path, source }),
            },
            Self::Unit(unit) => match cgroup::of_unit(system, unit) {
                Ok(groups) => Chosen::of_groups(system, &groups),
                Err(like) => Chosen::without(Missing::Unit { unit: unit.clone(), like }),
            },
            Self::Container(id) => container(system, id),
        })
    }
}

impl Chosen {
    fn without(missing: Missing) -> Self {
        Self { pids: Vec::new(), missing: vec![missing] }
    }

    fn of_groups(system: &dyn System, groups: &[PathBuf]) -> Self {
        let pids = groups.iter().filter_map(|group| cgroup::pids(system, group).ok()).flatten();
        let pids: BTreeSet<u32> = pids.collect();
        Self { pids: pids.into_iter().collect(), missing: Vec::new() }
    }
}

fn named(system: &dyn System, names: &[String]) -> Result<Chosen, CensusError> {
    let pids = all(system)?;
    let matching = |pid: &u32| {
        let task = Task::of(system, *pid);
        let own = [task.comm(), task.command_name()];
        Some((*pid, names.iter().position(|name| own.contains(name))?))
    };
    let matches: Vec<(u32, usize)> = pids.par_iter().filter_map(matching).collect();
    let is_missing = |nr: &usize| matches.iter().all(|(_, of)| of != nr);
    let missing = (0..names.len()).filter(is_missing);
    Ok(Chosen {
        pids: matches.iter().map(|(pid, _)| *pid).collect(),
        missing: missing.map(|nr| Missing::Name(names[nr].clone())).collect(),
    })
}

fn container(system: &dyn System, id: &str) -> Chosen {
    let groups =
        if id.len() < ID_DIGITS_MIN { Vec::new() } else { cgroup::of_container(system, id) };
    let ids: BTreeSet<&String> = groups.iter().map(|(id, _)| id).collect();
    match ids.len() {
        0 => Chosen::without(Missing::Container(id.to_owned())),
        1 => {
            let groups: Vec<PathBuf> = groups.into_iter().map(|(_, group)| group).collect();
            Chosen::of_groups(system, &groups)
        }
        _ => {
            let ids = ids.into_iter().take(NR_IDS_MAX).cloned().collect();
            Chosen::without(Missing::Containers { id: id.to_owned(), ids })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

    fn machine(processes: &[(u32, &str, &str)]) -> (tempfile::TempDir, MemSystem) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, comm, cmdline) in processes {
            let path = dir.path().join(pid.to_string());
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(path.join("cmdline"), cmdline).unwrap();
        }
        let system = MemSystem::from_dir(dir.path());
        (dir, system)
    }

    fn of(system: &MemSystem, names: &[&str]) -> (Vec<u32>, Vec<String>) {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let chosen = Selection::Names(names).chosen(system).unwrap();
        (chosen.pids, chosen.missing.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_name_is_the_kernels_or_that_of_the_program() {
        let (_dir, system) = machine(&[
            (2, "server", "/opt/bin/long-named-server\0--port\0"),
            (3, "postgres", "postgres: checkpointer "),
            (4, "server2", "server2\0"),
        ]);
        assert_eq!(of(&system, &["long-named-server"]), (vec![2], vec![]));
        assert_eq!(of(&system, &["postgres", "server"]), (vec![2, 3], vec![]));
        let (pids, missing) = of(&system, &["postgres", "serv"]);
        assert_eq!(pids, [3]);
        assert!(missing[0].starts_with("no process is called serv;"), "{missing:?}");
    }

    #[test]
    fn an_id_that_fits_several_containers_is_refused() {
        let (dir, system) = machine(&[]);
        for (nr, digit) in ["a", "b"].iter().enumerate() {
            let id = format!("abc{}", digit.repeat(61));
            let path = dir.path().join(format!("sys/fs/cgroup/docker/{id}"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(cgroup::LIST), format!("{}\n", nr + 7)).unwrap();
        }
        let of = |id: &str| Selection::Container(id.to_owned()).chosen(&system).unwrap();
        assert_eq!(of("abcb").pids, [8]);
        for (id, expected) in
            [("abc", "several container IDs"), ("ab", "ps show IDs"), ("x", "IDs")]
        {
            let chosen = of(id);
            assert!(chosen.pids.is_empty());
            let missing = chosen.missing[0].to_string();
            assert!(missing.contains(expected.trim_start_matches("ps ")), "{missing}");
        }
    }
}
