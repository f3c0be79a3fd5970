//! Errors about machines.

use std::fmt;
use std::path::PathBuf;

use largefolio_mm::units::PageSize;
use largefolio_trace::shown;

use crate::datafile::DataFileError;
use crate::tlb::ConfigError;

use super::NR_CPUS_MAX;
use super::costs::Unit;

#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error(transparent)]
    File(#[from] DataFileError),
    #[error("{origin}:{line}: {error}")]
    Contradiction { origin: String, line: usize, error: Box<Contradiction> },
    #[error("machine {machine} has no {page} base pages; it has {supported}")]
    PageSize { machine: String, page: PageSize, supported: Listed },
    #[error(
        "neither XDG_CONFIG_HOME nor HOME is an absolute path, so folio does not know where to \
         put this machine's file; name a file: folio calibrate -o FILE"
    )]
    NoPlace,
    #[error("this machine is not calibrated ({} is missing); run folio calibrate", shown(path))]
    NotCalibrated { path: PathBuf },
    #[error("{0}\nfolio calibrate writes a new file")]
    Calibration(Box<MachineError>),
}

#[derive(Debug, thiserror::Error)]
pub enum Contradiction {
    #[error("{0}")]
    Tlb(#[from] ConfigError),
    #[error(
        "{key} is missing; add it, or name the machine on which this one is based: based-on = \
         \"altra\""
    )]
    Missing { key: &'static str },
    #[error("based-on: there is no machine '{}'; {hint}", shown(name))]
    NoBase { name: String, hint: String },
    #[error("page_sizes is empty; list the base page sizes, such as [\"4K\"]")]
    NoPageSize,
    #[error("page_sizes has {page} twice; list each size once")]
    PageSizeTwice { page: PageSize },
    #[error("default_page_size is {page}, but page_sizes has {supported}")]
    DefaultPageSize { page: PageSize, supported: Listed },
    #[error("nr_cpus: {value} CPUs; a machine has 1 to {NR_CPUS_MAX}")]
    NrCpus { value: u32 },
    #[error(
        "{place}: {} {unit} is not a valid cost; expected {} to {}",
        short(*value), unit.limits().start(), unit.limits().end()
    )]
    Cost { place: String, value: f64, unit: Unit },
    #[error("{place}: the unit is {unit}; expected {expected}")]
    CostUnit { place: String, unit: Unit, expected: Listed },
    #[error(
        "{place}: range = [{low}, {high}] is not valid for {value}; give the smallest and largest \
         possible value, both above 0, with the value between them"
    )]
    Range { place: String, value: f64, low: f64, high: f64 },
    #[error(
        "{place}: the source is missing; name the document, or set assumed = true and give \
             the reason"
    )]
    NoSource { place: String },
    #[error("{place}: {what}")]
    Node { place: String, what: &'static str },
    #[error("{place}: list each size once, in ascending order")]
    RateOrder { place: String },
    #[error("errors: total, user and system are multiples of a scale; expected 0 to 1000")]
    Errors,
}

fn short(value: f64) -> String {
    if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") }
}

impl Contradiction {
    pub(super) fn place(&self) -> String {
        match self {
            Self::Tlb(error) => error.path(),
            Self::Missing { key } => (*key).to_owned(),
            Self::NoBase { .. } => "based-on".to_owned(),
            Self::NoPageSize | Self::PageSizeTwice { .. } => "page_sizes".to_owned(),
            Self::DefaultPageSize { .. } => "default_page_size".to_owned(),
            Self::NrCpus { .. } => "nr_cpus.value".to_owned(),
            Self::Cost { place, .. } if place.ends_with(']') => format!("{place}.gb_per_s"),
            Self::Cost { place, .. } => format!("{place}.value"),
            Self::Range { place, .. } => format!("{place}.range"),
            Self::CostUnit { place, .. } => format!("{place}.unit"),
            Self::Node { place, .. } => place.clone(),
            Self::NoSource { place } => format!("{place}.source"),
            Self::RateOrder { place } => format!("{place}.size"),
            Self::Errors => "errors.total".to_owned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed(Vec<String>);

impl<T: ToString> From<&[T]> for Listed {
    fn from(items: &[T]) -> Self {
        Self(items.iter().map(ToString::to_string).collect())
    }
}

impl<T: ToString> From<Vec<T>> for Listed {
    fn from(items: Vec<T>) -> Self {
        Self::from(items.as_slice())
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("none"),
            [only] => f.write_str(only),
            [first @ .., last] => write!(f, "{} and {last}", first.join(", ")),
        }
    }
}
