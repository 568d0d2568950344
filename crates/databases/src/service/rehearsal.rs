//! The agent's part of a login, and of a statement of its own, over any stream: what is at the other end may be a fuzzer.

use std::fmt::Display;

use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use super::admin::Admin;
use super::connect::Login;
use crate::postgres::startup::{CancelKey, Startup};

/// How errors name the database.
const ADDRESS: &str = "the database";

/// Logs in as the agent does, with a password where there is one. Gives what a client would read first, and what the server has
/// said after it.
///
/// # Errors
/// Why there is no session, in words.
pub async fn log_in<S>(
    stream: S,
    startup: &Startup,
    password: Option<&str>,
    client_key: &CancelKey,
) -> Result<(Vec<u8>, Vec<u8>), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut login = Login::new(stream, ADDRESS);
    let password = password.map(|password| Zeroizing::new(password.to_owned())).ok_or("there is none");
    login.run(startup, password, client_key).await.map_err(in_words)?;
    let (greeting, rest) = login.into_parts();
    Ok((greeting, rest.to_vec()))
}

/// Runs a statement as the agent does when it makes database users. Gives the values of its rows.
///
/// # Errors
/// Why there is no answer, in words.
pub async fn run<S>(stream: S, sql: &str) -> Result<Vec<Vec<Option<String>>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Admin::over(stream).run(sql).await.map_err(in_words)
}

fn in_words(error: impl Display) -> String {
    error.to_string()
}
