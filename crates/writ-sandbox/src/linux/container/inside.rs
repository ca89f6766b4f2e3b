//! The first process of a container: our own program, which the launcher has laid into it. It takes its orders from the
//! launcher's socket, and ends with the launcher: when that socket is closed, nothing in the container goes on.

use std::io::Read as _;
use std::os::unix::net::UnixStream;

use super::super::seccomp::Filters;
use super::super::spec::{self, InitMessage, JobEnd};
use super::super::{init, sys};
use super::layout::CONTROL;

/// Serves the launcher until it hangs up. Returns the exit code of this process.
pub(crate) fn main() -> i32 {
    // No other process is here yet, and none may look into this one later.
    sys::set_dumpable(false);
    if sys::seal_descriptors(true).is_err() {
        return 2;
    }
    sys::ignore_children(false);
    let Ok(filters) = Filters::compile_filters() else { return 3 };
    // The launcher may have ended while the engine made the container.
    let Ok(mut control) = UnixStream::connect(CONTROL) else { return 4 };
    let event = init::serve_container(&mut control, &filters).unwrap_or_else(JobEnd::SetupFailed);
    let _sent = spec::write_message(&mut control, &InitMessage::Done(event));
    // As long as this process is here, the launcher can read what the kernel has counted.
    let _ended = control.read(&mut [0]);
    0
}
