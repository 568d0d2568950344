//! Logins that are reserved: no account is meant by them.

/// The login by which sessions are joined.
pub const JOIN_LOGIN: &str = "sallyport-join";
