//! Tests of the routers over a real store, real keys and real processes.

#[cfg(test)]
#[path = "suite/support.rs"]
mod support;

#[cfg(test)]
#[path = "suite/cases_needs_python.rs"]
mod cases_needs_python;

#[cfg(test)]
#[path = "suite/front_end_needs_python.rs"]
mod front_end_needs_python;

#[cfg(test)]
#[path = "suite/resume.rs"]
mod resume;

#[cfg(test)]
#[path = "suite/link.rs"]
mod link;
