//! Sorts instructions so that every predecessor comes first.

use super::super::insn::{Insn, LDDW, class, jump};
use super::Fault;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    /// On the current path.
    OnPath,
    Done,
}

/// Returns the reachable instructions in order; refuses a loop.
pub(super) fn order(code: &[Insn]) -> Result<Vec<usize>, Fault> {
    let mut seen = vec![Seen::Not; code.len()];
    let (mut order, mut path) = (Vec::new(), vec![(0, 0)]);
    seen[0] = Seen::OnPath;
    while let Some((at, nr_followed)) = path.last_mut() {
        let at = *at;
        let Some(next) = followers(code, at).into_iter().flatten().nth(*nr_followed) else {
            seen[at] = Seen::Done;
            order.push(at);
            path.pop();
            continue;
        };
        *nr_followed += 1;
        match seen.get(next) {
            Some(Seen::OnPath) => {
                let what = "it jumps back in a loop: unroll it (#pragma unroll)".to_owned();
                return Err(Fault { at, what });
            }
            Some(Seen::Not) => {
                seen[next] = Seen::OnPath;
                path.push((next, 0));
            }
            // A target outside the program is refused when the jump is checked.
            Some(Seen::Done) | None => {}
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
