//! `--diff`: compares a saved reading with another, or with the system now.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use largefolio_results::maps::{DiffResult, MapsRequest, Show, State};
use largefolio_results::{Form, Forms as _, Remark};
use largefolio_trace::shown;

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::confined;

pub(crate) struct DiffPlan {
    old: PathBuf,
    new: New,
    show: Show,
    form: Form,
    command_line: Vec<String>,
}

enum New {
    File(PathBuf),
    Now(MapsRequest),
}

impl DiffPlan {
    pub(super) fn of(
        files: Vec<PathBuf>,
        now: MapsRequest,
        show: Show,
        form: Form,
    ) -> Result<Self> {
        let command_line = now.command_line.clone();
        let is_now = now.check().is_ok();
        let mut files = files.into_iter();
        let old = files.next().unwrap_or_default();
        let new = match files.next() {
            Some(file) if is_now => bail!(
                "{} is a second file to compare; do not name processes or files as well",
                shown(&file)
            ),
            Some(file) if is_pid(&file) => bail!(
                "{} is interpreted as a file; name processes before --diff, as in folio maps {0} \
                 --diff {}",
                shown(&file),
                shown(&old)
            ),
            Some(file) => {
                confined::to(&[old.clone(), file.clone()], []);
                New::File(file)
            }
            None if is_now => New::Now(now),
            None => bail!(
                "specify what to compare with: the same processes now (folio maps --all --diff \
                 {0}), or a second file (--diff {0} NEW.json)",
                shown(&old)
            ),
        };
        Ok(Self { old, new, show, form, command_line })
    }

    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let old = State::read(&self.old)?;
        let (new, remarks) = match &self.new {
            New::File(file) => (State::read(file)?, Vec::new()),
            New::Now(request) => {
                let reading = request.take_reading()?;
                (State::of(&reading), request.remarks(&reading))
            }
        };
        console::remark(&remarks);
        let show = Show { width: Console::width(), ..self.show };
        let result = DiffResult::of(&old, &new, show, self.command_line)?;
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        let is_missing = remarks.iter().any(|remark| matches!(remark, Remark::Missing(_)));
        Ok(if is_missing { Exit::Error } else { Exit::Done })
    }
}

fn is_pid(file: &Path) -> bool {
    file.to_str().is_some_and(|name| name.parse::<u32>().is_ok()) && !file.exists()
}
