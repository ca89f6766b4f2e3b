//! Tests of the routers over a real store, real keys and real processes.

mod suite {
    mod cases_needs_python;
    mod resume;
    mod support;
}
