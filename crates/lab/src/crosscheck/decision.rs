//! Decisions of a policy, in a kernel and in the model.
//!
//! A recording has all words of each question and its answer (`kernel/policy/policy.h`). The same
//! object file answers both, so two things are compared: that the kernel runs a program as the
//! interpreter does, and that both ask the same.

use std::sync::{Arc, Mutex, PoisonError};

use largefolio_mm::policy::{
    Answer, Context, NR_FREE, NR_KERNEL_WORDS, Point, Policy, PolicyError, Window,
};
use largefolio_sim::policy::{OWN, OWN_OF_INT};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) context: Context,
    pub(super) answer: Answer,
}

impl Decision {
    /// Reads the words of a recording, in hex.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        let number = |word: &&str| u64::from_str_radix(word, 16).map_err(|error| error.to_string());
        let words = words.iter().map(number).collect::<Result<Vec<u64>, _>>()?;
        let (context, rest) = words.split_first_chunk::<NR_KERNEL_WORDS>().ok_or("few words")?;
        let &[answer, has_window, start, nr_pages, nr_ahead, order] = rest else {
            return Err(format!("an answer has 6 words, not {}", rest.len()));
        };
        let answer = match (answer, has_window) {
            (OWN | OWN_OF_INT, _) => Answer::Own,
            (0, 1..) => Answer::Window(Window { start, nr_pages, nr_ahead, order }),
            (value, _) => Answer::Value(value),
        };
        Ok(Self { context: Context::from_kernel_words(context), answer })
    }

    pub(super) fn point(&self) -> Option<Point> {
        Point::ALL.get(usize::try_from(self.context.point).ok()?).copied()
    }

    /// The decision without what belongs to the machine: its memory, and the process's number and
    /// name.
    pub(super) fn of_fault(mut self) -> Self {
        let context = &mut self.context;
        context.comm = [0; 16];
        context.free = [0; NR_FREE];
        for of_machine in [
            &mut context.process,
            &mut context.nr_pages,
            &mut context.nr_free,
            &mut context.low,
            &mut context.high,
            &mut context.nr_reclaims,
            &mut context.swap_free,
            &mut context.group_max,
            &mut context.group_pages,
            &mut context.group,
            &mut context.group_anon,
            &mut context.group_shmem,
            &mut context.group_stall_ns,
            &mut context.clock_ns,
            // A kernel does not know these.
            &mut context.folio,
            &mut context.file,
            &mut context.wanted,
        ] {
            *of_machine = 0;
        }
        self
    }

    /// The numbers that are not 0, and the answer.
    pub(super) fn shown(&self) -> String {
        let name = self.point().map_or("?", Point::name);
        let numbers = Context::NAMES.iter().filter_map(|name| {
            let number = self.context.number(name).filter(|&number| number > 0)?;
            Some(format!(" {name} {number}"))
        });
        format!("{name}:{} -> {:?}", numbers.collect::<String>(), self.answer)
    }
}

/// A policy that logs its decisions.
#[derive(Debug)]
pub(super) struct Logged {
    inner: Box<dyn Policy>,
    log: DecisionLog,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DecisionLog(Arc<Mutex<Vec<Decision>>>);

impl DecisionLog {
    pub(super) fn take(&self) -> Vec<Decision> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn of(&self, inner: Box<dyn Policy>) -> Box<dyn Policy> {
        Box::new(Logged { inner, log: self.clone() })
    }
}

impl Policy for Logged {
    fn handles(&self, point: Point) -> bool {
        self.inner.handles(point)
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let answer = self.inner.answer(point, context)?;
        let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(Decision { context: *context, answer });
        Ok(answer)
    }

    fn nr_steps(&self) -> u64 {
        self.inner.nr_steps()
    }

    fn state_bytes(&self) -> u64 {
        self.inner.state_bytes()
    }
}
