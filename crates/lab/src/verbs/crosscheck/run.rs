//! `folio-lab crosscheck run`: programs from the command to the answer.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use largefolio_lab::Error;
use largefolio_lab::crosscheck::record::{
    Disk, Facts, Filesystem, PlainOptions, ProgramRecorder, RunPlan, WantedSettings,
};
use largefolio_lab::crosscheck::result::{
    Judged, RunCheck, RunOutcome, RunResult, RunRow, Runs, ScriptCheck, ScriptRun,
};
use largefolio_lab::crosscheck::run::generate::{Feature, draw};
use largefolio_lab::crosscheck::run::script::Script;
use largefolio_lab::crosscheck::run::suite::Suite;
use largefolio_results::Forms as _;
use tempfile::TempDir;

use super::live::{interrupted, make};
use super::select::{filesystem, window_kb};
use crate::verbs::again_as_root;
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::values::{self, FormArgs};

/// The maximum number of random programs per run; each takes a second.
const NR_RANDOM_MAX: u64 = 100_000;
/// The maximum of `--shorten`; each program takes up to forty runs.
const NR_SHORTENED_MAX: usize = 1000;
/// Plain runs of one program.
const RUNS: Runs = Runs { nr: 3, nr_max: 9 };

/// Compare a program's prediction with its plain run
///
/// folio records the program under QEMU, predicts it with the running kernel's rules and settings,
/// runs it plainly with a cold page cache, and observes that run at its end. Every number must be
/// equal: faults, bytes read, the folio sizes of files and of all memory, Rss and Pss. Numbers that
/// differ between plain runs are not compared. The program's files are copies on a private
/// filesystem. The program runs five times or more, so it also writes as often; its standard output
/// goes to standard error. With `--suite`, `--script` or `--random`, folio judges small programs
/// instead, and shortens those that differ. Needs root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck run -- ls -l
  sudo folio-lab crosscheck run --fs xfs --window 2560K --setting always,64K=always -- sort data
  sudo folio-lab crosscheck run --suite --setting madvise --setting always
  sudo folio-lab crosscheck run --random 1000 --seed 7 --keep here
  sudo folio-lab crosscheck run --random 500 --feature shared,locks
  sudo folio-lab crosscheck run --script 'map 0 2M rw private; write 0 0 2M'

Exit status: 0 if all numbers are equal, 1 if some differ, 2 on error. A script of the suite that is
known to differ (crates/lab/scripts.toml) must differ.")]
pub(super) struct RunArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt (no large folios) [default: ext4; with --random ext4
    /// and xfs]
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    /// Readahead windows [default: 128K; with --random several]
    #[arg(long = "window", value_name = "SIZE,..", value_delimiter = ',',
        value_parser = window_kb)]
    windows_kb: Vec<u64>,
    /// Change settings of transparent huge pages during the runs: always, 64K=always,
    /// shmem=advise; may be repeated, for further runs [default: as they are; with --random several]
    #[arg(long = "setting", value_name = "VALUE,..", value_parser = str::parse::<WantedSettings>)]
    settings: Vec<WantedSettings>,
    /// Keep the page cache of an earlier run
    #[arg(long)]
    warm: bool,
    /// Run in a memory cgroup with this limit
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    limit: Option<u64>,
    /// Judge the hand-written scripts
    #[arg(long, conflicts_with_all = ["random", "script", "command"])]
    suite: bool,
    /// With --suite: only scripts whose name contains this
    #[arg(long, value_name = "TEXT", requires = "suite")]
    only: Option<String>,
    /// Judge this script; crates/lab/scripts.toml has the language
    #[arg(long, value_name = "STEPS", value_parser = str::parse::<Script>,
        conflicts_with_all = ["random", "command"])]
    script: Option<Script>,
    /// Judge this many random scripts
    #[arg(long, value_name = "N", conflicts_with = "command",
        value_parser = values::within::<u64>(1..=NR_RANDOM_MAX))]
    random: Option<u64>,
    /// Seed of the first random script; each following one uses the next seed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "random",
        value_parser = values::number::<u64>)]
    seed: u64,
    /// Features that the random scripts test: shared, locks, pins, thp, collapse, processes, moves,
    /// advice, merging, policy, changes; `all` for N of each [default: mixed]
    #[arg(long = "feature", value_name = "NAME,..", value_delimiter = ',', requires = "random",
        value_parser = features)]
    features: Vec<Features>,
    /// Shorten this many random scripts that differ; 0 is the fastest
    #[arg(long, value_name = "N", default_value_t = 8, requires = "random",
        value_parser = values::within::<usize>(0..=NR_SHORTENED_MAX))]
    shorten: usize,
    /// Keep traces in this directory; of scripts, those that differ
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the scripts instead of running them
    #[arg(long, conflicts_with = "command")]
    print: bool,
    #[command(flatten)]
    form: FormArgs,
    /// Program and its arguments
    #[arg(required_unless_present_any = ["suite", "script", "random"], last = true,
        value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) struct RunVerb {
    args: RunArgs,
    facts: Facts,
    /// Empty for a program.
    scripts: Vec<ScriptRun>,
    /// For traces that are not kept.
    folder: TempDir,
    command_line: Vec<String>,
}

impl RunArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<RunVerb> {
        make(self.keep.as_deref())?;
        let mut scripts = Vec::new();
        if self.suite {
            let suite = Suite::built_in().map_err(anyhow::Error::msg)?;
            for (name, script) in &suite.scripts {
                if self.only.as_ref().is_none_or(|part| name.contains(part.as_str())) {
                    let known = |settings: &str, filesystem: &str| {
                        suite.known(name, settings, filesystem).map(str::to_owned)
                    };
                    scripts.extend(self.runs_of(name, script, known));
                }
            }
        }
        if let Some(part) = self.only.as_ref().filter(|_| scripts.is_empty()) {
            anyhow::bail!("no script's name contains {part:?}; --suite --print shows all");
        }
        if let Some(script) = &self.script {
            scripts.extend(self.runs_of("script", script, |_, _| None));
        }
        for feature in self.features() {
            for seed in 0..self.random.unwrap_or(0) {
                scripts.push(self.random_run(feature, self.seed.wrapping_add(seed))?);
            }
        }
        scripts.sort_by_key(|run| run.plan.filesystem);
        let (facts, folder) = (Facts::of_host(), tempfile::tempdir()?);
        Ok(RunVerb { args: self, facts, scripts, folder, command_line })
    }

    fn options(&self) -> PlainOptions {
        PlainOptions { is_warm: self.warm, limit: self.limit, ..PlainOptions::default() }
    }

    fn plans(&self) -> Vec<RunPlan> {
        let filesystems = or(&self.filesystems, Filesystem::Ext4);
        let windows_kb = or(&self.windows_kb, 128);
        let plans = filesystems.iter().flat_map(|&filesystem| {
            windows_kb.iter().map(move |&window_kb| plan(filesystem, window_kb))
        });
        plans.collect()
    }

    fn runs_of(
        &self,
        name: &str,
        script: &Script,
        known: impl Fn(&str, &str) -> Option<String>,
    ) -> Vec<ScriptRun> {
        let mut runs = Vec::new();
        for plan in self.plans() {
            for settings in or(&self.settings, WantedSettings::default()) {
                let known = known(&settings.to_string(), plan.filesystem.name());
                let (name, script, options) = (name.to_owned(), script.clone(), self.options());
                runs.push(ScriptRun {
                    name,
                    script,
                    plan,
                    settings,
                    options,
                    known,
                    feature: None,
                });
            }
        }
        runs
    }

    /// Returns the features of random scripts, each once.
    fn features(&self) -> Vec<Feature> {
        let mut features: Vec<Feature> =
            self.features.iter().flat_map(|one| one.0.clone()).collect();
        features.sort();
        features.dedup();
        if features.is_empty() { vec![Feature::Mixed] } else { features }
    }

    /// Returns the random script of a seed. Options replace the seed's choices.
    fn random_run(&self, feature: Feature, seed: u64) -> Result<ScriptRun> {
        let drawn = draw(feature, seed);
        let nth = usize::try_from(seed).unwrap_or(0);
        let settings = match self.settings.as_slice() {
            [] => drawn.settings.parse().map_err(anyhow::Error::msg)?,
            given => given[nth % given.len()].clone(),
        };
        let filesystem = match self.filesystems.as_slice() {
            [] => drawn.filesystem,
            given => given[nth % given.len()],
        };
        let window_kb = self.windows_kb.first().copied().unwrap_or(drawn.window_kb);
        Ok(ScriptRun {
            name: match feature {
                Feature::Mixed => format!("random-{seed}"),
                feature => format!("{feature}-{seed}"),
            },
            script: drawn.script,
            plan: plan(filesystem, window_kb),
            settings,
            options: PlainOptions { is_warm: self.warm || drawn.is_warm, ..self.options() },
            known: None,
            feature: Some(feature),
        })
    }
}

/// One feature, or all.
#[derive(Clone, Debug)]
struct Features(Vec<Feature>);

fn features(name: &str) -> Result<Features, String> {
    if name == "all" {
        return Ok(Features(Feature::ALL.to_vec()));
    }
    Ok(Features(vec![name.parse()?]))
}

fn or<T: Clone>(given: &[T], default: T) -> Vec<T> {
    if given.is_empty() { vec![default] } else { given.to_vec() }
}

const fn plan(filesystem: Filesystem, window_kb: u64) -> RunPlan {
    RunPlan { filesystem, window_kb, disk: Disk::Best }
}

impl RunVerb {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        if self.args.print {
            let line = |run: &ScriptRun| format!("{}: {}\n", run.name, run.script);
            let lines: String = self.scripts.iter().map(line).collect();
            console.deliver(lines.as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        let as_root = again_as_root(&self.command_line);
        let mut recorder = ProgramRecorder::new(self.facts.clone(), &as_root)?;
        recorder.send_khugepaged_to_sleep()?;
        let mut result = RunResult::new(&self.facts.release, self.command_line.clone());
        let judged = if self.scripts.is_empty() {
            self.judge_program(&recorder, &mut result)
        } else {
            self.judge_scripts(&recorder, &mut result)
        };
        if let Err(error) = judged {
            return interrupted(error);
        }
        console.deliver(result.written(self.args.form.form())?.as_bytes(), None)?;
        let is_unexpected = |row: &RunRow| row.outcome != RunOutcome::Failed && !row.is_expected();
        Ok(if result.rows.iter().any(is_unexpected) {
            Exit::No
        } else if result.nr(RunOutcome::Failed) > 0 || result.is_interrupted {
            Exit::Error
        } else {
            Exit::Done
        })
    }

    fn judge_scripts(
        &self,
        recorder: &ProgramRecorder,
        result: &mut RunResult,
    ) -> Result<(), Error> {
        let bar = console::counter(self.scripts.len() as u64, "judging");
        let check = ScriptCheck {
            facts: &self.facts,
            keep: self.args.keep.as_deref(),
            nr_reduced_max: self.args.shorten,
        };
        let judged = check.run(recorder, &self.scripts, result, &mut || bar.inc(1));
        bar.finish_and_clear();
        judged
    }

    fn judge_program(
        &self,
        recorder: &ProgramRecorder,
        result: &mut RunResult,
    ) -> Result<(), Error> {
        let args = &self.args;
        let files = recorder.files_of(&args.command)?;
        let name = args.command[0].to_string_lossy().into_owned();
        let program = Judged { name, command: args.command.clone(), script: None };
        let folder = args.keep.as_deref().unwrap_or(self.folder.path());
        for plan in args.plans() {
            for settings in or(&args.settings, WantedSettings::default()) {
                let trace = folder.join(format!("run-{}.folio", result.rows.len()));
                let (facts, options, nr_huge) = (&self.facts, args.options(), 0);
                let check = RunCheck {
                    facts,
                    plan,
                    options,
                    settings,
                    changed: Vec::new(),
                    nr_huge,
                    runs: RUNS,
                };
                let row = recorder
                    .run_in_place(plan, &files, |place| check.judge(place, &program, &trace))?;
                result.rows.push(row);
            }
        }
        result.keep_in(args.keep.as_deref());
        Ok(())
    }
}
