//! Kernels by name: presets, files, and edits.
//!
//! `6.12`, `./mine.toml` or `6.12+exec-block=64K+page=64K`: a base and edits, applied left to
//! right. A kernel file names the kernel it is `based-on` and lists only the changes, so the files
//! show the history of the rules. `mm` implements the rules.

mod alias;
mod builtin;
mod change;
mod check;
mod edit;
mod error;
mod leaves;
mod load;
mod nearest;
mod packaged;
mod policy;
mod rule;
mod setting;
mod since;
mod table;
mod text;
mod unverified;
mod versions;

pub use alias::{EDITS, EditHelp};
pub use change::KernelChange;
pub use edit::{overrides, parts};
pub use error::KernelError;
pub use packaged::Package;
pub use policy::with_policies;
pub use unverified::Unverified;
pub use versions::Origin;

use std::collections::BTreeMap;

use largefolio_mm::rules::{Exec, Rules, StartOrder};
use largefolio_mm::units::{Order, PageSize};
use toml::Table;

use crate::gaps::{Gap, GapKind};
use crate::policy::{KernelPolicy, PolicyFileError};
use nearest::Nearest;

#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: String,
    pub description: String,
    pub rules: Rules,
    /// Whether the file or an edit sets the base page size; otherwise the machine does.
    pub is_page_given: bool,
    /// Why no recording verifies the rules, if none does.
    pub unverified: Option<Unverified>,
    /// Properties of the described system that the rules do not cover.
    pub gaps: Vec<Gap>,
    /// For display, if the rules are another version's or no recording verifies them.
    pub note: Option<String>,
    /// A policy that overrides the kernel's decisions. No preset has one.
    pub policy: Option<KernelPolicy>,
}

/// Ignores `gaps` and `note`, which depend on the request.
impl PartialEq for Kernel {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, description, rules, is_page_given, unverified, note: _, policy, gaps: _ } =
            self;
        (name, description, rules) == (&other.name, &other.description, &other.rules)
            && *policy == other.policy
            && (is_page_given, unverified) == (&other.is_page_given, &other.unverified)
    }
}

impl Kernel {
    /// Parses a kernel's name. A version newer than all known ones gets the rules and the name of
    /// the newest; [`Kernel::note`] says so.
    ///
    /// ```
    /// use largefolio_sim::kernel::Kernel;
    /// let kernel = Kernel::parse("19.4+page=16K").unwrap();
    /// assert_eq!(kernel.name, "7.3+page=16K");
    /// assert_eq!(
    ///     kernel.note.as_deref(),
    ///     Some("Linux 19.4 is newer than the kernels this version knows; using the rules of 7.3")
    /// );
    /// ```
    ///
    /// # Errors
    /// Unknown names (with the nearest ones), unreadable or contradictory files, bad edits.
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let (base, edits) = parts(text);
        let Some(newest) = Nearest::to_newer(base) else {
            return load::by_name(base)?.with_edits(&edits, text);
        };
        let name = format!("{}{}", newest.base, &text[base.len()..]);
        let kernel = load::by_name(newest.base)?.with_edits(&edits, &name)?;
        Ok(kernel.after(newest.note))
    }

    /// Applies `edits` (`exec-block=64K+page=64K`) and adds them to the name.
    ///
    /// # Errors
    /// Bad edits.
    pub fn edited(&self, edits: &str) -> Result<Self, KernelError> {
        let name = format!("{}+{edits}", self.name);
        // The text up to the first `+` is a kernel's name, which is known here.
        let (_, parts) = parts(&name[self.name.len()..]);
        self.clone().with_edits(&parts, &name)
    }

    #[must_use]
    pub fn with_policy(&self, policy: KernelPolicy) -> Self {
        let (base, edits) = parts(&self.name);
        let kept = edits.iter().filter(|edit| !edit::is_policy(edit));
        let kept = kept.fold(base.to_owned(), |name, edit| format!("{name}+{edit}"));
        let name = format!("{kept}+policy={}", policy.name());
        Self { name, policy: Some(policy), ..self.clone() }
    }

    /// Returns the kernel if it has no policy, for callers that do not replay traces.
    ///
    /// # Errors
    /// [`KernelError::NoPolicyHere`].
    pub fn without_policy(self) -> Result<Self, KernelError> {
        match self.policy {
            None => Ok(self),
            Some(_) => Err(KernelError::NoPolicyHere(self.name)),
        }
    }

    /// Creates the kernel `name` from a kernel file's table, which can be `based-on` others.
    ///
    /// # Errors
    /// The errors of [`Kernel::parse`] for files.
    pub fn from_table(name: &str, table: Table) -> Result<Self, KernelError> {
        load::from_table(name, load::resolve(name, table)?)?.with_edits(&[], name)
    }

    /// Returns a complete kernel file without `based-on`. [`Kernel::from_table`] reads it back.
    ///
    /// # Errors
    /// Numbers above TOML's maximum, 2^63.
    pub fn to_table(&self) -> Result<Table, KernelError> {
        load::to_table(self)
    }

    fn with_edits(mut self, edits: &[String], name: &str) -> Result<Self, KernelError> {
        if edits.iter().filter(|edit| edit::is_policy(edit)).count() > 1 {
            return Err(PolicyFileError::Second(name.to_owned()).into());
        }
        for part in edits {
            edit::apply(&mut self, part)?;
        }
        name.clone_into(&mut self.name);
        if self.is_page_given {
            self.check_page(self.rules.page)?;
        } else {
            self.check_folio_sizes(PageSize::K64)?;
        }
        Ok(self)
    }

    /// Returns the rules for a running kernel of `release` (`uname -r`,
    /// `6.18.15+deb13-cloud-amd64`) with base pages of `page_bytes`. Uses the newest known version
    /// that is not newer than `release`; [`Kernel::note`] says if that is another version. `None`
    /// if every known version is newer, or if the release does not begin with two numbers.
    ///
    /// ```
    /// use largefolio_sim::kernel::Kernel;
    /// let rules = |release| Kernel::of_release(release, 4096).map(|found| found.unwrap().name);
    /// assert_eq!(rules("6.18.15+deb13-cloud-amd64").as_deref(), Some("6.18+page=4K"));
    /// assert_eq!(rules("6.13.2").as_deref(), Some("6.12+page=4K"));
    /// assert_eq!(rules("5.10.0"), None);
    /// ```
    #[must_use]
    pub fn of_release(release: &str, page_bytes: u64) -> Option<Result<Self, KernelError>> {
        let nearest = Nearest::to_release(release).filter(|nearest| !nearest.is_newer)?;
        Some(Self::of_nearest(nearest, page_bytes))
    }

    /// Returns the rules for `release` (`uname -r`): the newest known version that is not newer.
    ///
    /// # Errors
    /// There are no rules for it.
    pub fn rules_of_release(release: &str, page_bytes: u64) -> Result<Self, KernelError> {
        let unknown = || KernelError::UnknownRelease { release: release.to_owned() };
        Self::of_release(release, page_bytes).unwrap_or_else(|| Err(unknown()))
    }

    /// Like [`Kernel::of_release`], but uses the oldest rules if every known version is newer.
    /// `None` only if the release does not begin with two numbers.
    #[must_use]
    pub fn nearest_to_release(release: &str, page_bytes: u64) -> Option<Result<Self, KernelError>> {
        Some(Self::of_nearest(Nearest::to_release(release)?, page_bytes))
    }

    fn of_nearest(nearest: Nearest, page_bytes: u64) -> Result<Self, KernelError> {
        let kernel = Self::parse(&format!("{}+page={}K", nearest.base, page_bytes >> 10))?;
        Ok(kernel.after(nearest.note))
    }

    /// Returns the gaps of the rules, then those of the system that they describe.
    pub(crate) fn all_gaps(&self) -> impl Iterator<Item = Gap> {
        let unverified = self.unverified.iter().map(|unverified| {
            Gap::new(GapKind::Kernel, parts(&self.name).0, unverified.reason.clone())
        });
        unverified.chain(self.gaps.iter().cloned())
    }

    /// Adds why the rules are another version's.
    fn after(mut self, note: Option<String>) -> Self {
        if let Some((what, instead)) = note.as_deref().and_then(|note| note.split_once("; ")) {
            self.gaps.push(Gap::new(GapKind::Kernel, what, instead));
        }
        let notes: Vec<String> = note.into_iter().chain(self.note.clone()).collect();
        Self { note: (!notes.is_empty()).then(|| notes.join("; ")), ..self }
    }

    /// Returns the build options of a built-in kernel's packages, by flavour (`amd64`, `arm64`,
    /// `arm64_16k`). Empty for a kernel without packages.
    ///
    /// # Errors
    /// [`KernelError::BadFile`].
    pub fn packages(name: &str) -> Result<BTreeMap<String, Package>, KernelError> {
        packaged::of(name, builtin::KERNELS.text(name).unwrap_or_default())
    }

    /// Checks that the page cache and private memory support the requested folio sizes with base
    /// pages of `page`.
    ///
    /// # Errors
    /// Names the smallest and the largest size if they do not.
    pub fn check_page(&self, page: PageSize) -> Result<(), KernelError> {
        self.check_folio_sizes(page)?;
        if let Some(bytes) = self.rules.anon.idle_control(page) {
            let kernel = self.name.clone();
            return Err(KernelError::AnonSize { kernel, page, bytes });
        }
        let max = self.max_order(page);
        if let Some(bytes) = self.rules.shmem.idle_control(page, max) {
            let kernel = self.name.clone();
            return Err(KernelError::ShmemSize { kernel, page, bytes, max });
        }
        self.rules.sizes.check(page, max).map_err(|source| {
            let edit = self.name.clone();
            KernelError::Sizes { edit, source }
        })
    }

    pub(crate) fn max_order(&self, page: PageSize) -> Order {
        Rules { page, ..self.rules.clone() }.max_pagecache_order()
    }

    /// Checks the rules' folio sizes with base pages of `page`. Larger ones would silently shrink.
    fn check_folio_sizes(&self, page: PageSize) -> Result<(), KernelError> {
        let max_bytes = page.bytes() << self.max_order(page).get();
        let Rules { fault, order, min_folio_bytes, .. } = &self.rules;
        let exec = match fault.exec {
            Exec::Block { bytes } => ("exec-block (fault.exec.block.bytes)", bytes),
            Exec::Window { bytes } => ("exec-window (fault.exec.window.bytes)", bytes),
            Exec::None | Exec::ArchWindow => ("", 0),
        };
        let start = match fault.start_order {
            StartOrder::Size { bytes } => ("start-order (fault.start_order.size.bytes)", bytes),
            StartOrder::Ramp => ("", 0),
        };
        let all = [
            ("min-folio (min_folio_bytes)", *min_folio_bytes),
            exec,
            start,
            ("exec-min (order.exec_min_bytes)", order.exec_min_bytes),
            ("mmap-state (order.mmap_state_bytes)", order.mmap_state_bytes),
        ];
        match all.into_iter().find(|(_, bytes)| *bytes > max_bytes) {
            None => Ok(()),
            Some((rule, bytes)) => {
                let kernel = self.name.clone();
                Err(KernelError::FolioSize { kernel, page, rule, bytes, max_bytes })
            }
        }
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::KERNELS.names()
    }
}

#[must_use]
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
