//! The options of `folio tune` for one service, and for a share of its instances.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{ArgGroup, Args};
use largefolio_linux::persist::place::ServiceName;
use largefolio_linux::persist::thp::{self, ServiceManager};
use largefolio_linux::persist::unit::{self, Variable};
use largefolio_linux::persist::variables::{Joined, Variables};
use largefolio_linux::persist::{FilePiece, manager};
use largefolio_linux::proc::host;
use largefolio_linux::system::Live;

use super::canary::{Canary, Share};
use crate::console;
use crate::verbs::run::ThpMode;
use crate::verbs::values;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("change").multiple(true))]
pub(super) struct ServiceArgs {
    /// Change only this service, with a systemd drop-in for --env and --thp
    #[arg(long, value_name = "UNIT", requires = "change", conflicts_with = "undo")]
    unit: Option<String>,
    /// Environment variable for the service named by --unit; may be repeated
    #[arg(
        long,
        value_name = "NAME=VALUE",
        requires = "unit",
        group = "change",
        conflicts_with = "undo"
    )]
    env: Vec<String>,
    /// Large folios of memory that the service named by --unit may use, as for folio run --thp.
    /// Before systemd 260, this puts folio in front of the service's command
    #[arg(long, value_enum, requires = "unit", group = "change", conflicts_with = "undo")]
    thp: Option<ThpMode>,
    /// Change only this share of the running instances of the template named by --unit (worker@),
    /// at least one, and take the change back if --check fails
    #[arg(long, value_name = "PERCENT%", requires_all = ["unit", "check"],
        conflicts_with_all = ["set", "profile", "persist"])]
    canary: Option<Share>,
    /// Shell command that checks an instance; its name is in $UNIT, and $INSTANCE has the part
    /// after the @. A failure, or no end within a minute, takes the change back
    #[arg(long, value_name = "COMMAND", requires = "canary")]
    check: Option<String>,
    /// Time for which the check must succeed, every 10 s
    #[arg(long = "for", value_name = "TIME", requires = "canary", default_value = "5m",
        value_parser = values::duration)]
    during: Duration,
    /// Restart the changed instances, one after the other, and again if the change is taken back
    #[arg(long, requires = "canary")]
    restart: bool,
}

pub(super) enum Wish {
    Nothing,
    Service(FilePiece),
    Canary(Canary),
}

impl ServiceArgs {
    pub(super) const fn is_some(&self) -> bool {
        self.unit.is_some()
    }

    pub(super) fn wish(self, root: &Path) -> Result<Wish> {
        let Some(name) = &self.unit else { return Ok(Wish::Nothing) };
        let env = self.env.iter().map(|one| Variable::parse(one)).collect::<Result<Vec<_>, _>>()?;
        let Some(share) = self.canary else {
            let unit = ServiceName::of_service(name, root)?;
            return Ok(Wish::Service(piece(&unit, &env, self.thp, root)?));
        };
        if root != Path::new("/") {
            bail!(
                "--canary asks the running systemd for instances, so it works only without --root"
            );
        }
        let template = name.strip_suffix(".service").unwrap_or(name);
        let Some(stem) = template.strip_suffix('@') else {
            bail!("--canary changes instances of a template: --unit {template}@");
        };
        ServiceName::of_service(name, root)?;
        let instances = manager::instances(stem).map_err(anyhow::Error::msg)?;
        let nr = instances.len();
        if nr < 2 {
            bail!(
                "{nr} instances of {template} run, and a canary needs 2 or more; systemctl list-units \
                 '{template}*' lists them"
            );
        }
        let units: Vec<ServiceName> = instances.into_iter().take(share.of(nr)).collect();
        let pieces = units.iter().map(|unit| piece(unit, &env, self.thp, root));
        let pieces = pieces.collect::<Result<_>>()?;
        let check = self.check.unwrap_or_default();
        let (during, is_restart) = (self.during, self.restart);
        Ok(Wish::Canary(Canary { units, nr_all: nr, pieces, check, during, is_restart }))
    }
}

/// Returns the drop-in. Options that the unit already passes in a variable are kept.
fn piece(
    unit: &ServiceName,
    env: &[Variable],
    thp: Option<ThpMode>,
    root: &Path,
) -> Result<FilePiece> {
    let present = Variables::of(unit, root);
    let mut variables = Vec::new();
    for variable in env {
        let Joined { variable, note } = present.join(variable.clone(), root)?;
        if !note.is_empty() {
            console::say(&format!("folio: {note}"));
        }
        variables.push(variable);
    }
    let mut piece = unit::drop_in(unit, &variables);
    if let Some(mode) = thp {
        let folio = std::env::current_exe().context("cannot find folio's own file")?;
        // Another root may boot another kernel.
        let can_advise = root != Path::new("/") || host::can_except_advised(&Live);
        let version = manager::version(root);
        let manager = ServiceManager { root, version, folio: &folio, can_advise };
        piece.add(thp::drop_in(unit, mode.limit(), &manager)?);
    }
    Ok(piece)
}
