//! The tools of an agent: what a model's arguments mean, and what it reads of the result.
//!
//! Pure. A call goes two steps: [`registry::Toolset::needed_file`] says which file must be looked at first, the
//! runtime looks (`def::Peeked`), and [`registry::Toolset::prepare_call`] makes a
//! [`Prepared`](writ_inspect::prepared::Prepared) of it for the door. What came of the permitted action is
//! plain data ([`outcome::PerformedOutcome`]), which `render::render` turns into bounded text with a label.
//! Nothing here decides whether a call is allowed.
//!
//! Tools come from sources ([`source::ToolSource`]), which the [`registry::Registry`] lists. Those of the harness
//! are rows of a table ([`def::ToolDef`]): name, text for the model, schema, sinks, and one function that makes an
//! action. Those of other programs are rows made at run time ([`foreign::ForeignRow`]).

pub mod def;

pub mod registry;

pub mod foreign;

pub mod source;

pub mod config;

pub mod path;

pub mod outcome;

pub mod question;

pub mod handoff;

pub mod chapter;

pub mod plan_unit;

pub mod render;

pub mod review;

pub mod error;

#[doc(hidden)]
pub mod fuzzing;

pub mod arguments;

mod command;

mod lenient;

mod schema;

pub mod text;

mod tools;

pub use tools::result::RESULT_READ_TOOL;
