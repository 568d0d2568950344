//! Audit events, the tamper-evident log, and session recordings.
