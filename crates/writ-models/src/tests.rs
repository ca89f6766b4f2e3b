//! One suite over both wire formats: real door, real egress, real HTTP, a scripted provider.

mod door;

mod bench;

mod log;

mod good;

mod faults;

mod routing;
