//! What tests and the demo run against: real parts that follow a script.

pub mod model_server;
