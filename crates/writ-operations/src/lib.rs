//! Operations of the fleet: declared, not programmed.
//!
//! A file of `operations/` says what an operation is called, which parameters it takes, what it does (one SQL
//! statement, one HTTP request, one mail from a template) and which columns of its result are personal data.
//! An agent chooses a name and values. It cannot express a statement, an address or a text of its own.
//!
//! [`OperationSet::load`] reads and checks the files; everything that can be wrong is an error with file and
//! line. [`Targets::perform`] consumes a permit for one operation and performs it, for the customer and the case
//! of a [`Scope`] alone: statements read and change rows of that scope with any `WHERE`, requests
//! carry the customer, and mail goes to the customer's own address.
//!
//! No business rule is here: that an order was refunded before is the agent's to know.
//!
//! Read in this order: [`set`] and `declare` read files, `check` makes [`Operation`]s of them, `statement`
//! parses SQL into the little that is allowed and writes it again with its scope, `template` fills texts,
//! [`targets`] connects and performs.

mod check;

mod declare;

pub mod error;

pub mod operation;

pub mod parameter;

pub mod result;

pub mod set;

mod statement;

pub mod targets;

mod template;

pub use error::{OperationError, ParameterError, PerformError};
pub use operation::{Operation, TargetKind};
pub use result::{OperationResult, PersonalKind};
pub use set::OperationSet;
pub use targets::config::TargetsConfig;
pub use targets::{Scope, Targets};
