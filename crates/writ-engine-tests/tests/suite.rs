//! The engine in the test's own process: a scripted model over HTTP, a store in a temporary folder, the real sandbox, and a clock
//! that the test moves. No process of the product is started.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "suite/agents.rs"]
mod agents;

#[path = "suite/blessed.rs"]
mod blessed;

#[path = "suite/calls.rs"]
mod calls;

#[path = "suite/context.rs"]
mod context;

#[path = "suite/digest.rs"]
mod digest;

#[path = "suite/erasure.rs"]
mod erasure;

#[path = "suite/exercises.rs"]
mod exercises;

#[path = "suite/fleet.rs"]
mod fleet;

#[path = "suite/harness.rs"]
mod harness;

#[path = "suite/initiative.rs"]
mod initiative;

#[path = "suite/jobs.rs"]
mod jobs;

#[path = "suite/memory.rs"]
mod memory;

#[path = "suite/models.rs"]
mod models;

#[path = "suite/outbox.rs"]
mod outbox;

#[path = "suite/outcomes.rs"]
mod outcomes;

#[path = "suite/parts.rs"]
mod parts;

#[path = "suite/autopilot.rs"]
mod autopilot;

#[path = "suite/autopilot_attempts.rs"]
mod autopilot_attempts;

#[path = "suite/autopilot_chapters.rs"]
mod autopilot_chapters;

#[path = "suite/autopilot_documents.rs"]
mod autopilot_documents;

#[path = "suite/autopilot_faults.rs"]
mod autopilot_faults;

#[path = "suite/autopilot_hooks.rs"]
mod autopilot_hooks;

#[path = "suite/autopilot_learning.rs"]
mod autopilot_learning;

#[path = "suite/autopilot_limits.rs"]
mod autopilot_limits;

#[path = "suite/autopilot_orders.rs"]
mod autopilot_orders;

#[path = "suite/autopilot_results.rs"]
mod autopilot_results;

#[path = "suite/autopilot_plan.rs"]
mod autopilot_plan;

#[path = "suite/autopilot_phases.rs"]
mod autopilot_phases;

#[path = "suite/autopilot_plan_unit.rs"]
mod autopilot_plan_unit;

#[path = "suite/autopilot_rows.rs"]
mod autopilot_rows;

#[path = "suite/autopilot_seen.rs"]
mod autopilot_seen;

#[path = "suite/autopilot_ship.rs"]
mod autopilot_ship;

#[path = "suite/autopilot_skills.rs"]
mod autopilot_skills;

#[path = "suite/autopilot_steps.rs"]
mod autopilot_steps;

#[path = "suite/autopilot_turns.rs"]
mod autopilot_turns;

#[path = "suite/pilot.rs"]
mod pilot;

#[path = "suite/planner.rs"]
mod planner;

#[path = "suite/prompt.rs"]
mod prompt;

#[path = "suite/renewed.rs"]
mod renewed;

#[path = "suite/routed.rs"]
mod routed;

#[path = "suite/routing.rs"]
mod routing;

#[path = "suite/set_back.rs"]
mod set_back;

#[path = "suite/start.rs"]
mod start;

#[path = "suite/tool_review.rs"]
mod tool_review;

#[path = "suite/storm.rs"]
mod storm;

#[path = "suite/work.rs"]
mod work;

#[path = "suite/work_ends.rs"]
mod work_ends;

#[path = "suite/work_stories.rs"]
mod work_stories;
