//! Sorts instructions so that every predecessor comes first.

use super::super::insn::{Insn, LDDW, class, jump};
use super::Fault;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    /// On the current path.
    OnPath,
    Done,
}

/// Returns the reachable instructions in order; refuses a loop.
pub(super) fn order(code: &[Insn]) -> Result<Vec<usize>, Fault> {
    let mut seen = vec![Visit::Not; code.len()];
    let (mut order, mut path) = (Vec::new(), vec![(0, 0)]);
    seen[0] = Visit::OnPath;
    while let Some((at, nr_followed)) = path.last_mut() {
        let at = *at;
        let Some(next) = followers(code, at).into_iter().flatten().nth(*nr_followed) else {
            seen[at] = Visit::Done;
            order.push(at);
            path.pop();
            continue;
        };
        *nr_followed += 1;
        match seen.get(next) {
            Some(Visit::OnPath) => {
                let what = "it jumps back in a loop: unroll it (#pragma unroll)".to_owned();
                return Err(Fault { at, what });
            }
            Some(Visit::Not) => {
                seen[next] = Visit::OnPath;
                path.push((next, 0));
            }
            // A target outside the program is refused when the jump is checked.
            Some(Visit::Done) | None => {}
        }
    }
    order.reverse();
    Ok(order)
}

fn followers(code: &[Insn], at: usize) -> [Option<usize>; 2] {
    let insn = code[at];
    let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
    match insn.op() {
        jump::EXIT if insn.class() == class::JMP => [None, None],
        jump::CALL if is_jump => [Some(at + 1), None],
        jump::JA if is_jump => [insn.target(at), None],
        _ if is_jump => [insn.target(at), Some(at + 1)],
        _ if insn.code == LDDW => [Some(at + 2), None],
        _ => [Some(at + 1), None],
    }
}
