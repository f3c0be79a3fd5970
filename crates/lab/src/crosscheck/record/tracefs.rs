//! The tracefs instance of a recording.

use super::error::CrosscheckError;
use largefolio_linux::tracefs::{Instance, TracefsError};

/// Required for any recording; all other events are optional.
const NEEDED_EVENT: &str = "filemap/mm_filemap_add_to_page_cache";

/// Makes an instance. The probe sets its buffers and filters.
pub(super) fn instance() -> Result<Instance, CrosscheckError> {
    let instance = Instance::new("crosscheck").map_err(|error| match error {
        TracefsError::NotPermitted => CrosscheckError::NotPermitted { what: "tracefs" },
        TracefsError::Missing => CrosscheckError::NoTracefs,
        TracefsError::PidNamespace => CrosscheckError::PidNamespace,
        TracefsError::Instance(source) => {
            CrosscheckError::Os { action: "make a tracefs instance", source }
        }
    })?;
    if !instance.has(NEEDED_EVENT) {
        return Err(CrosscheckError::NoEvent(NEEDED_EVENT));
    }
    Ok(instance)
}
