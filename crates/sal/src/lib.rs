//! The Security Abstraction Layer: algorithms, primitives, suites and key custody.
