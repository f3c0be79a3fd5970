//! Anonymous memory, fork, copy-on-write, unmap and split: vectors of docs/behaviour D, E, F, G and
//! L, and random programs with every byte compared with a naive model.

mod advised;
mod clearing;
mod dirty;
mod faults;
mod forks;
mod groups;
mod machine;
mod naive;
mod pressure;
mod program;
mod protect;
mod random;
mod splits;
mod swap;
mod victims;
mod whim;
mod world;
mod zswap;
