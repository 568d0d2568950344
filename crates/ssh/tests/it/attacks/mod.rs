//! Attacks on the node by the accounts that it serves: each does with stock clients what such an account could do, and shows what
//! is refused.

mod own_account;
mod paths;
mod tracing;
