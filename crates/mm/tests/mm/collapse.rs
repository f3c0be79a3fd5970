//! Collapse: the tables of docs/behaviour H, every refusal provoked, every step made to fail, and
//! random programs with and without bytes.

mod advise;
mod anon;
mod any_size;
mod file;
mod inject;
mod khugepaged;
mod random;
mod sizes;
mod swap;
mod world;
