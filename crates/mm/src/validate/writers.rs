//! Checks a file's gate: I14. The mapping's own check covers its huge folios.

use std::collections::BTreeMap;

use super::Violation;
use crate::memory::Memory;
use crate::rules::Writers;
use crate::units::MappingId;

impl Memory {
    pub(super) fn check_gates(&self) -> Result<(), Violation> {
        let mut writecounts = BTreeMap::<MappingId, i64>::new();
        for (_, open) in self.opens().filter(|(_, open)| open.is_writer) {
            *writecounts.entry(open.mapping).or_default() += 1;
        }
        for file in self.spaces().filter_map(|(_, space)| space.exe) {
            *writecounts.entry(file).or_default() -= 1;
        }
        for (file, mapping) in self.core.mappings() {
            let agree = |what, counted, found| {
                if counted == found {
                    Ok(())
                } else {
                    Err(Violation::I14 { file, what, counted, found })
                }
            };
            let writecount = writecounts.get(&file).copied().unwrap_or(0);
            agree("i_writecount", mapping.gate.writecount().into(), writecount)?;
            if writecount > 0 && self.rules.writers == Writers::DropCache {
                agree("huge folios in a file with writers", mapping.gate.nr_thps().into(), 0)?;
            }
        }
        Ok(())
    }
}
