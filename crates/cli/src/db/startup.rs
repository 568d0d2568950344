//! What a local client says first, and what of it goes to the cluster.

use std::io;
use std::time::Duration;

use sallyport_databases::postgres::error::{Refusal, SqlState};
use sallyport_databases::postgres::startup::{self, DECLINED, First, MOST_BYTES, Startup};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A client that has connected says who it is, or leaves. People type no passwords before that.
const PATIENCE: Duration = Duration::from_secs(30);
/// TLS and GSSAPI, each asked for once; a client that asks more often wants something else.
const MOST_QUESTIONS: usize = 4;
/// The first byte of TLS: no length of a first packet begins so.
const TLS_HANDSHAKE: u8 = 0x16;

/// As whom clients come, and under which name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Pins {
    /// The database user of every client; none: the one that it says.
    pub(super) user: Option<String>,
    pub(super) name: Name,
}

/// Which database a client gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Name {
    /// The one that it says.
    #[default]
    Any,
    /// This one, if it says none. Libraries say the user's name then.
    Default(String),
    /// This one; a client that says another is refused.
    Only(String),
}

/// Why nothing goes to the cluster.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The client left, or said nothing for too long.
    Gone,
    /// It cannot be told in its own protocol.
    Foreign(&'static str),
    /// It is told so.
    Refused(Box<Refusal>),
}

impl From<io::Error> for Unusable {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// Reads until it is known what a client wants: the bytes that go to the cluster first.
pub(super) async fn admit(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    pins: &Pins,
) -> Result<Vec<u8>, Unusable> {
    tokio::time::timeout(PATIENCE, first(client, pins)).await.unwrap_or(Err(Unusable::Gone))
}

async fn first(client: &mut (impl AsyncRead + AsyncWrite + Unpin), pins: &Pins) -> Result<Vec<u8>, Unusable> {
    let mut said = Vec::new();
    let mut questions = 0;
    loop {
        if said.first() == Some(&TLS_HANDSHAKE) {
            return Err(Unusable::Foreign(
                "it began with TLS; connections to this address need none (sslmode=disable)",
            ));
        }
        let violation =
            |words: String| Unusable::Refused(Box::new(Refusal::new(SqlState::ProtocolViolation, words)));
        match startup::read(&said).map_err(|error| violation(error.to_string()))? {
            None => {
                // The reader above refuses longer packets; what follows one that is whole has room, too.
                let room = (2 * MOST_BYTES).saturating_sub(said.len());
                let read = (&mut *client).take(room as u64).read_buf(&mut said).await?;
                if read == 0 {
                    return Err(Unusable::Gone);
                }
            }
            Some((First::Tls | First::Gssapi, length)) => {
                questions += 1;
                if questions > MOST_QUESTIONS {
                    return Err(violation("encryption was asked for again and again".to_owned()));
                }
                said.drain(..length);
                client.write_all(&[DECLINED]).await?;
            }
            Some((First::Cancel(_), length)) => {
                said.truncate(length);
                return Ok(said);
            }
            Some((First::Startup(startup), length)) => {
                let mut bytes =
                    pinned(startup, pins).map_err(|refusal| Unusable::Refused(Box::new(refusal)))?.to_bytes();
                bytes.extend(said.drain(length..));
                return Ok(bytes);
            }
        }
    }
}

/// The startup with what it is to have.
fn pinned(mut startup: Startup, pins: &Pins) -> Result<Startup, Refusal> {
    if startup.wants_replication() {
        // pg_basebackup says a name of its own, which no role has.
        return Err(Refusal::replication());
    }
    // libpq says the user's name where its user has said none. Where one name alone is served that is no other name; where
    // a name only stands in for none, no client gets into another database than the one that was said.
    let said = startup.parameter("database").filter(|name| !name.is_empty());
    let said = said.filter(|name| !matches!(pins.name, Name::Only(_)) || Some(*name) != startup.user());
    let name = match (&pins.name, said) {
        (Name::Only(only), Some(said)) if said != only => {
            return Err(Refusal::new(
                SqlState::InvalidAuthorization,
                format!("this address is for database {only:?} alone, and {said:?} was asked for"),
            )
            .hint("ask for that one, or start sallyport proxy db without --db-name"));
        }
        (Name::Only(name), _) | (Name::Default(name), None) => Some(name.clone()),
        (Name::Default(_) | Name::Any, _) => None,
    };
    if let Some(name) = name {
        set(&mut startup, "database", name);
    } else if pins.user.is_some() && startup.parameter("database").is_none() {
        // The user changes below, and the name that goes without saying would change with it.
        if let Some(name) = startup.database().map(str::to_owned) {
            set(&mut startup, "database", name);
        }
    }
    if let Some(user) = &pins.user {
        set(&mut startup, "user", user.clone());
    }
    Ok(startup)
}

fn set(startup: &mut Startup, name: &str, value: String) {
    match startup.parameters.iter_mut().find(|(known, _)| known == name) {
        Some((_, held)) => *held = value,
        None => startup.parameters.push((name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use sallyport_databases::postgres::startup::{CancelKey, ask_for_tls, cancel};

    use super::*;

    const GSSAPI: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

    fn startup(parameters: &[(&str, &str)]) -> Startup {
        let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Startup { minor: 0, parameters }
    }

    fn pins(user: Option<&str>, name: Name) -> Pins {
        Pins { user: user.map(str::to_owned), name }
    }

    /// What goes to the cluster, and what the client hears.
    fn run(said: &[u8], pins: &Pins) -> (Result<Vec<u8>, Unusable>, Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (mut client, mut server) = tokio::io::duplex(64 * 1024);
            client.write_all(said).await.unwrap();
            client.shutdown().await.unwrap();
            let admitted = admit(&mut server, pins).await;
            drop(server);
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            (admitted, heard)
        })
    }

    #[test]
    fn encryption_is_declined_and_what_follows_goes_on() {
        let startup = startup(&[("user", "app"), ("database", "shop")]).to_bytes();
        let said = [&GSSAPI[..], &ask_for_tls(), &startup, b"early"].concat();
        let (admitted, heard) = run(&said, &Pins::default());
        assert_eq!(admitted.unwrap(), [startup.as_slice(), b"early"].concat());
        assert_eq!(heard, b"NN");
        let key = cancel(&CancelKey { process: 1, secret: vec![1, 2, 3, 4] });
        let (admitted, heard) = run(&[key.as_slice(), b"rest"].concat(), &pins(Some("app"), Name::Any));
        assert_eq!((admitted.unwrap(), heard), (key, Vec::new()));
    }

    #[test]
    fn users_and_names_are_put_in() {
        for (said, given, expected) in [
            (&[("user", "me"), ("database", "shop")][..], pins(None, Name::Any), Some(("me", "shop"))),
            (&[("user", "me")], pins(Some("app"), Name::Any), Some(("app", "me"))),
            (
                &[("user", "me"), ("database", "me")],
                pins(Some("app"), Name::Default("shop".into())),
                Some(("app", "me")),
            ),
            (&[("user", "me")], pins(Some("app"), Name::Default("shop".into())), Some(("app", "shop"))),
            (
                &[("user", "me"), ("database", "x")],
                pins(Some("app"), Name::Default("shop".into())),
                Some(("app", "x")),
            ),
            (
                &[("user", "me"), ("database", "me")],
                pins(Some("app"), Name::Only("shop".into())),
                Some(("app", "shop")),
            ),
            (
                &[("user", "me"), ("database", "shop")],
                pins(None, Name::Only("shop".into())),
                Some(("me", "shop")),
            ),
            (&[("user", "me"), ("database", "x")], pins(None, Name::Only("shop".into())), None),
            (&[("database", "shop")], pins(Some("app"), Name::Any), Some(("app", "shop"))),
        ] {
            let made = pinned(startup(said), &given);
            match (made, expected) {
                (Ok(made), Some((user, name))) => {
                    assert_eq!(
                        (made.user(), made.database()),
                        (Some(user), Some(name)),
                        "{said:?} {given:?}"
                    );
                }
                (Err(refusal), None) => {
                    assert!(refusal.message.contains("\"shop\" alone, and \"x\""), "{refusal:?}")
                }
                (made, expected) => panic!("{said:?} {given:?}: {made:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_client_that_wants_to_replicate_reads_why_not() {
        // As pg_basebackup says it.
        let basebackup = startup(&[("user", "app"), ("database", "replication"), ("replication", "true")]);
        for pins in [pins(None, Name::Any), pins(Some("app"), Name::Only("shop".to_owned()))] {
            let (refused, _) = run(&basebackup.to_bytes(), &pins);
            let Err(Unusable::Refused(refusal)) = refused else { panic!("{refused:?}") };
            assert_eq!((refusal.state, *refusal), (SqlState::FeatureNotSupported, Refusal::replication()));
        }
        let not = startup(&[("user", "app"), ("database", "shop"), ("replication", "off")]);
        assert!(run(&not.to_bytes(), &pins(None, Name::Any)).0.is_ok());
    }

    #[test]
    fn what_is_no_client_is_told_apart() {
        assert!(matches!(run(b"", &Pins::default()).0, Err(Unusable::Gone)));
        assert!(matches!(run(b"\x16\x03\x01", &Pins::default()).0, Err(Unusable::Foreign(_))));
        assert!(matches!(run(b"GET / HTTP/1.1\r\n", &Pins::default()).0, Err(Unusable::Refused(_))));
        let again = ask_for_tls().repeat(MOST_QUESTIONS + 1);
        let (admitted, heard) = run(&again, &Pins::default());
        assert!(matches!(admitted, Err(Unusable::Refused(_))) && heard == b"NNNN", "{admitted:?}");
    }
}
