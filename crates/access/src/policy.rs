//! The one access decision.

mod api;
mod certificates;
mod databases;
mod decidable;
mod deciding;
mod engine;
mod error;
mod explaining;
mod holding;
mod joining;
mod kept_out;
mod listed;
mod locking;
pub mod login_rules;
mod merged;
mod nodes;

pub use api::DB_CLIENT;
pub use certificates::{ForwardingSomewhere, LoginLimits};
pub use databases::DatabaseChoices;
pub use decidable::{AccountError, Decidable, Seeker};
pub use engine::{Policies, Question};
pub use error::{PolicyError, SchemaError};
pub use explaining::Explanation;
pub use joining::JoinTarget;
pub use merged::Merged;
