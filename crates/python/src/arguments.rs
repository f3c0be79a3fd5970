//! Converts the arguments of `predict` to a [`ReplayRequest`].
//!
//! Python has checked types and integer ranges (`largefolio/_arguments.py`). Names and sizes are
//! parsed here as on the command line.

use largefolio_results::{Error, running};
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::{self, with_policies};
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{
    CacheState, CgroupError, FragmentedError, LinkedError, ReplayRequest, SettingChangeError,
};
use largefolio_sim::size;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::errors::Failure;
use crate::kernel::Kernel;
use crate::policy::{self, Raised};

#[derive(FromPyObject)]
enum KernelArgument<'py> {
    Value(PyRef<'py, Kernel>),
    Name(String),
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PredictArguments<'py> {
    kernels: Vec<KernelArgument<'py>>,
    policies: Vec<policy::PolicyArgument>,
    machines: Vec<String>,
    seeds: Vec<u64>,
    memory: Vec<String>,
    swap: String,
    cgroup: Vec<String>,
    at: Vec<String>,
    fragmentation: String,
    aged: u32,
    filesystem: Option<String>,
    warm: bool,
    annotate: Vec<String>,
    linked: Vec<String>,
    nested: bool,
    reference_ns: Option<u64>,
    cpus: Option<u32>,
    numa: Option<String>,
    max_work: u64,
}

impl PredictArguments<'_> {
    pub(crate) fn request(
        &self,
        py: Python<'_>,
        raised: &Raised,
        traces: &[PathBuf],
    ) -> Result<ReplayRequest, Failure> {
        let this = running::This::of_traces(traces);
        let kernels =
            self.kernels.iter().map(|rules| rules.kernel(&this)).collect::<Result<Vec<_>, _>>()?;
        let policies = self.policies.iter().map(|policy| policy.policy(py, raised));
        let kernels = with_policies(kernels, &policies.collect::<Result<Vec<_>, _>>()?)
            .map_err(|error| Failure::Kernel(error.into()))?;
        let machines =
            self.machines.iter().map(|name| Machine::of_user(name)).collect::<Result<_, _>>()?;
        let annotations = self.annotate.iter().map(|text| text.parse());
        let linked = self.linked.iter().map(|text| text.parse());
        let memory = self.memory.iter().map(|text| sized("memory", text, size::memory(text)));
        let cgroups = self.cgroup.iter().map(|text| text.parse());
        let changes = self.at.iter().map(|text| text.parse());
        let invalid = |error: FragmentedError| Failure::Argument(error.to_string());
        let plain = ReplayRequest::new(kernels, machines);
        Ok(ReplayRequest {
            seeds: self.seeds.clone(),
            memory_bytes: memory.collect::<Result<_, _>>()?,
            swap_bytes: sized("swap", &self.swap, size::swap(&self.swap))?,
            cgroups: cgroups
                .collect::<Result<_, CgroupError>>()
                .map_err(|error| Failure::Argument(format!("cgroup: {error}")))?,
            changes: changes
                .collect::<Result<_, SettingChangeError>>()
                .map_err(|error| Failure::Argument(format!("at: {error}")))?,
            fragmentation: self.fragmentation.parse().map_err(invalid)?,
            aged_rounds: self.aged,
            filesystem: self.filesystem.clone(),
            annotations: annotations.collect::<Result<_, _>>()?,
            linked: linked.collect::<Result<_, LinkedError>>()?,
            cache: if self.warm { CacheState::Warm } else { CacheState::Cold },
            ns_per_reference: self.reference_ns.unwrap_or(plain.ns_per_reference),
            nr_cpus: self.cpus,
            numa: self
                .numa
                .as_ref()
                .map(|text| text.parse())
                .transpose()
                .map_err(|error: String| Failure::Argument(format!("numa: {error}")))?,
            max_work: self.max_work,
            walks: if self.nested { Walks::Nested } else { Walks::Native },
            ..plain
        })
    }
}

impl KernelArgument<'_> {
    fn kernel(&self, this: &running::This) -> Result<kernel::Kernel, Failure> {
        Ok(match self {
            Self::Value(kernel) => kernel.0.clone(),
            Self::Name(name) => this.named(name).map_err(kernel_failure)?,
        })
    }
}

pub(crate) fn kernel_failure(error: Error) -> Failure {
    match error {
        Error::Kernel(error) => Failure::Kernel(error),
        error => Failure::Command { class: "KernelError", error: Box::new(error) },
    }
}

fn sized(what: &str, text: &str, parsed: Result<u64, String>) -> Result<u64, Failure> {
    parsed.map_err(|expected| Failure::Argument(format!("{what} '{text}': {expected}")))
}
