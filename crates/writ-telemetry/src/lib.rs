//! Traces of turns, for an OpenTelemetry collector that the owner names. Without one nothing is collected.
//!
//! The engine marks its work with spans of `tracing`. [`collect::SpanCollector`] makes records of those that
//! belong to a turn; [`otlp`] writes them as OTLP in JSON; [`export`] delivers them in batches, over the way
//! out that `writ-egress` reserves for the engine's own traffic.
//!
//! Two promises: a span carries only the attributes that [`span::ATTRIBUTES`] names, so that no word of a
//! prompt, a reply, an argument or a path can leave with it; and a collector that is slow or unreachable
//! costs spans, never turns.
//!
//! The ids follow from the turn: its ULID is the trace id, and the span of the whole turn has an id that is
//! derived from it. A turn interrupted by a crash is still one tree, and `writ trace TURN` finds the turn
//! that a collector shows.

pub mod span;

pub mod collect;

pub mod otlp;

pub mod export;

#[cfg(test)]
mod tests;
