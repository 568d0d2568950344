//! What is done with the local clients of one address.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sallyport_databases::postgres::error::{Refusal, SqlState};
use tokio::net::{TcpStream, UnixStream};

use super::startup::{self, Pins, Unusable};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::tunnel::{Accepted, Address};
use sallyport_client::dial;
use sallyport_helper::databases::Databases;

/// What libpq calls the socket of a server in a directory that it is given as the host.
pub(super) const SOCKET_NAME: &str = ".s.PGSQL.5432";

/// The longest path of a socket (`sun_path` of unix(7)), without its final zero.
const LONGEST_PATH: usize = 107;

/// A directory of this user's alone, with a path that is short enough for a socket. It goes when it is dropped.
pub(super) fn place() -> CliResult<tempfile::TempDir> {
    let doing = "make a directory for the socket";
    let mine = fs::Permissions::from_mode(0o700);
    let make = |parent: &Path| {
        tempfile::Builder::new().prefix("sallyport-db-").permissions(mine.clone()).tempdir_in(parent)
    };
    let place = make(&std::env::temp_dir()).doing(doing)?;
    if place.path().join(SOCKET_NAME).as_os_str().len() <= LONGEST_PATH {
        return Ok(place);
    }
    make(Path::new("/tmp")).doing(doing)
}

/// Parses `HOST:PORT` of this machine, or the path of a socket or of a directory for one.
pub(super) fn address(text: &str) -> Result<Address, String> {
    if text.contains('/') {
        let path = PathBuf::from(text);
        return Ok(Address::Unix(if path.is_dir() { path.join(SOCKET_NAME) } else { path }));
    }
    Address::parse_tcp(text).ok_or_else(|| {
        format!("{text:?} is neither an address such as 127.0.0.1:5432 nor a path such as /run/user/1000/db")
    })
}

/// What is done with the clients of one address.
#[derive(Clone)]
pub(super) enum Route {
    /// They need no TLS and no certificate: theirs is the login of the user who runs this. By TCP, with `any_user` every user of this machine may come.
    Tunnel { databases: Rc<Databases>, database: String, pins: Pins, any_user: bool },
    /// Their bytes go to the cluster's public address as they are.
    Relay { proxy: String },
}

impl Route {
    /// Carries one client to its end.
    pub(super) async fn carry(self, client: Accepted) -> CliResult {
        match self {
            Self::Relay { proxy } => relay(client.stream, &proxy).await,
            Self::Tunnel { databases, database, pins, any_user } => {
                if !any_user && let Err(error) = client.check().await {
                    // In words that its user can act on.
                    let message = "this tunnel serves the programs of the user who started it alone";
                    let refusal = Refusal::new(SqlState::InvalidAuthorization, message).hint(
                        "start your own: sallyport proxy db --tunnel; or ask its user for --any-local-user",
                    );
                    client.refuse(&refusal.to_bytes()).await;
                    return Err(error);
                }
                tunnel(client, &databases, &database, &pins).await
            }
        }
    }
}

async fn tunnel(mut client: Accepted, databases: &Databases, database: &str, pins: &Pins) -> CliResult {
    let early = match startup::admit(&mut client.stream, pins).await {
        Ok(early) => early,
        Err(Unusable::Gone) => return Ok(()),
        Err(Unusable::Foreign(why)) => {
            return Err(CliError::new(format!("a client was refused: {why}")));
        }
        Err(Unusable::Refused(refusal)) => {
            client.refuse(&refusal.to_bytes()).await;
            return Err(CliError::new(refusal.message).exit(Exit::Refused));
        }
    };
    Ok(databases.carry(database, early, client.into_socket()?).await?)
}

async fn relay(mut client: UnixStream, proxy: &str) -> CliResult {
    let mut upstream: TcpStream = dial::dial(proxy).await?;
    // How a connection ends is between the client and the cluster.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    Ok(())
}
