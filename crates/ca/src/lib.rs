//! Issues and verifies SSH and X.509 certificates.
