//! The agent's part of a login, and of a statement of its own, over any stream: what is at the other end may be a fuzzer.

use tokio::io::{AsyncRead, AsyncWrite};
use zeroize::Zeroizing;

use super::admin::Admin;
use super::connect::{ConnectError, LoggedIn, Login, Secret};
use crate::postgres::scram::Channel;
use crate::postgres::startup::{CancelKey, Startup};

/// How errors name the database.
const ADDRESS: &str = "the database";
/// The channel binding of the login.
const END_POINT: [u8; 32] = [7; 32];

/// Logs in as the agent does over TLS: with a password where there is one, and by certificate otherwise. Gives what a client would read first, and what the server has
/// said after it.
///
/// # Errors
/// Why there is no session.
pub async fn log_in<S>(
    stream: S,
    startup: &Startup,
    password: Option<&str>,
    client_key: &CancelKey,
) -> Result<(Vec<u8>, Vec<u8>), ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let channel = Channel::Tls { end_point: Some(END_POINT.to_vec()), named: true };
    let login = Login::new(stream, channel, ADDRESS);
    let password = password.map(|password| Zeroizing::new(password.to_owned()));
    let secret = password.map_or(Secret::Certificate, |password| Secret::Password(Some(password)));
    let done = login.run(startup, secret, client_key).await?;
    let LoggedIn { greeting, rest, .. } = done;
    Ok((greeting, rest.to_vec()))
}

/// Runs a statement as the agent does when it makes database users. Gives the values of its rows.
///
/// # Errors
/// Why there is no answer.
pub async fn run<S>(stream: S, sql: &str) -> Result<Vec<Vec<Option<String>>>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    Admin::over(stream).run(sql).await
}
