//! Proofs over whole tasks: servers of an office in the real sandbox, behind the real door, used by a model that does what
//! it reads.

#[path = "proofs/day.rs"]
mod day;

#[path = "proofs/cases.rs"]
mod cases;

#[path = "proofs/office.rs"]
mod office;

#[path = "proofs/injection.rs"]
mod injection;

#[path = "proofs/harder.rs"]
mod harder;
