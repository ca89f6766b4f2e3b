//! Services of the runtime from outside, without an engine.

#[cfg(test)]
#[path = "suite/door.rs"]
mod door;
