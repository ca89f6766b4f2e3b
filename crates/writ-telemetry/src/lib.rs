//! Traces of turns, for an OpenTelemetry collector that the owner names. Without one nothing is collected.
//!
//! The engine marks its work with spans of `tracing`. [`collect::Collector`] makes records of those that belong to a
//! turn; [`otlp`] writes them as OTLP in JSON; [`export`] delivers them in batches, over the way out that `writ-egress`
//! keeps for what the engine itself tells.
//!
//! Two promises: a span carries only the attributes that [`span::ATTRIBUTES`] names, so that no word of a prompt, a
//! reply, an argument or a path can leave with it; and a collector that is slow or gone costs spans, never turns.
//!
//! The ids follow from the turn: its ULID is the trace id, and the span of the whole turn has an id that is derived
//! from it. A turn that a crash has cut in two is one tree all the same, and `writ trace TURN` finds what a collector
//! shows.

pub mod span;

pub mod collect;

pub mod otlp;

pub mod export;

#[cfg(test)]
mod tests;
