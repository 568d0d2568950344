//! What hosts report.

pub(crate) mod budgets;
pub(crate) mod events;
mod served;
