//! One suite over all wire formats: real door, real egress, real HTTP, a scripted provider.

mod door;

mod bench;

pub(crate) use bench::Keys;

mod log;

mod good;

mod schemas;

mod endings;

mod classes;

mod faults;

mod files;

mod forms;

mod resilience;

mod unstreamed;

mod routing;

mod compat;

mod words;

mod reasoning;
