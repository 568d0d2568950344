//! A database server that says whatever it likes, to the agent that logs in to it and to the client behind the agent.

mod logins;

use std::time::Duration;

use sallyport_access::{DatabaseLogin, DatabaseTlsMode};
use sallyport_audit::Code;
use sallyport_databases::postgres::message::encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::client::{Client, kinds};
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
const OK: &[u8] = &[0, 0, 0, 0];
const READY: &[u8] = b"I";

/// What a server does, what it says in turn and then without end, and the words that the client reads.
type Case = (&'static str, Vec<Vec<u8>>, Option<Vec<u8>>, &'static str);

/// Reads the first packet, then says what it is told to: the pieces in turn, each after something from the agent but the first.
async fn act(mut stream: TcpStream, pieces: Vec<Vec<u8>>, for_ever: Option<Vec<u8>>) -> std::io::Result<()> {
    let length = stream.read_u32().await?;
    let mut packet = vec![0; usize::try_from(length).unwrap_or(4).saturating_sub(4)];
    stream.read_exact(&mut packet).await?;
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            stream.read_u8().await?;
        }
        stream.write_all(piece).await?;
    }
    while let Some(piece) = &for_ever {
        stream.write_all(piece).await?;
    }
    // It stays, and says nothing more.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.map(drop)
}

/// Makes the world's database a server of which every connection goes so.
async fn hostile(world: &World, login: DatabaseLogin, pieces: Vec<Vec<u8>>, for_ever: Option<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.serve(|database| {
        database.address = address;
        database.tls.mode = DatabaseTlsMode::Disabled;
        database.login = login;
    });
    world.cluster.passwords.lock().unwrap().insert("app".to_owned(), "secret".to_owned());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(act(stream, pieces.clone(), for_ever.clone()));
        }
    });
}

async fn hello(world: &World) -> Client {
    Client::hello(world, &[("user", "app"), ("database", "postgres")]).await
}

fn sasl(number: u32, text: &[u8]) -> Vec<u8> {
    encode(b'R', &[&number.to_be_bytes(), text].concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_a_server_does_not_mean_ends_in_words_and_gives_no_password() {
    let mechanisms = sasl(10, b"SCRAM-SHA-256\0\0");
    let cases: [Case; 13] = [
        (
            "let in without a question",
            vec![[encode(b'R', OK), encode(b'Z', READY)].concat()],
            None,
            "has not proven",
        ),
        ("settings before a login", vec![encode(b'S', b"a\0b\0")], None, "during the login"),
        ("a notice before a login", vec![encode(b'N', b"Mx\0\0")], None, "during the login"),
        ("a cancel key before a login", vec![encode(b'K', &[0; 8])], None, "during the login"),
        ("a length beyond all bounds", vec![vec![b'S', 0x7f, 0xff, 0xff, 0xff]], None, "impossible length"),
        ("a length below its own", vec![vec![b'S', 0, 0, 0, 3]], None, "impossible length"),
        ("rows before a login", vec![encode(b'D', b"")], None, "during the login"),
        ("ready before a login", vec![encode(b'Z', READY)], None, "during the login"),
        ("the password in clear text", vec![sasl(3, b"")], None, "in plain text, which is not used"),
        ("an MD5 of it", vec![sasl(5, b"salt")], None, "an MD5 of the password, which is not used"),
        ("another mechanism", vec![sasl(10, b"PLAIN\0\0")], None, "no SASL mechanism that is used"),
        (
            "no proof of the server's",
            vec![mechanisms.clone(), encode(b'R', OK)],
            None,
            "in the middle of SCRAM",
        ),
        ("an answer that is too long", vec![mechanisms, sasl(11, &[b'x'; 8192])], None, "SCRAM"),
    ];
    let world = World::new("");
    for (what, pieces, for_ever, words) in cases {
        let lost = world.of(&Code::DatabaseSessionLost).len();
        hostile(&world, DatabaseLogin::Password, pieces, for_ever).await;
        let said =
            timeout(PATIENCE, hello(&world).await.end()).await.unwrap_or_else(|_| panic!("{what}: no end"));
        assert!(said.starts_with("E ") && said.contains(words), "{what}: {said}");
        assert!(!said.contains("secret"), "{what}: {said}");
        world.quiet().await;
        assert_eq!(world.of(&Code::DatabaseSessionLost).len(), lost + 1, "{what}");
    }
    // Of a server that asks for no password nothing has to be proven; it has to keep to the protocol.
    let parameter = encode(b'S', b"application_name\0x\0");
    let after = |message: Vec<u8>| vec![[encode(b'R', OK), message].concat()];
    let cases: [Case; 5] = [
        ("a greeting without end", after(Vec::new()), Some(parameter), "its greeting does not end"),
        ("a login twice", after(encode(b'R', OK)), None, "during the login"),
        (
            "a cancel key twice",
            after([0; 2].map(|_| encode(b'K', &[0; 8])).concat()),
            None,
            "during the login",
        ),
        (
            "a cancel key of 300 bytes",
            after(encode(b'K', &[0; 300])),
            None,
            "a cancel key of an impossible length",
        ),
        (
            "a login with more in it",
            vec![encode(b'R', &[0; 8])],
            None,
            "AuthenticationOk with something in it",
        ),
    ];
    for (what, pieces, for_ever, words) in cases {
        hostile(&world, DatabaseLogin::Certificate, pieces, for_ever).await;
        let said =
            timeout(PATIENCE, hello(&world).await.end()).await.unwrap_or_else(|_| panic!("{what}: no end"));
        assert!(said.starts_with("E ") && said.contains(words), "{what}: {said}");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_ends_the_session_and_a_lock_ends_one_that_floods() {
    let greeting = [encode(b'R', OK), encode(b'Z', READY)].concat();
    // A header that cannot be: what stands is told in the protocol.
    let malformed = vec![greeting.clone(), vec![b'D', 0, 0, 0, 1]];
    let world = World::new("");
    hostile(&world, DatabaseLogin::Certificate, malformed, None).await;
    let mut client = hello(&world).await;
    assert_eq!(kinds(&client.answers().await), "RZ");
    client.say(&[(b'Q', b"select 1\0")]).await;
    let said = timeout(PATIENCE, client.end()).await.expect("an end");
    assert!(said.contains("from the database"), "{said}");
    world.quiet().await;

    // Rows without end, and one row without end: neither keeps a session from being cut, and the agent keeps little of either.
    let row = encode(b'D', &[0; 1000]);
    let mut endless = vec![b'D', 0x3f, 0xff, 0xff, 0xff];
    endless.resize(64 * 1024, 0);
    for for_ever in [row, endless] {
        let world = World::new("");
        hostile(&world, DatabaseLogin::Certificate, vec![greeting.clone(), Vec::new()], Some(for_ever)).await;
        let mut client = hello(&world).await;
        assert_eq!(kinds(&client.answers().await), "RZ");
        client.say(&[(b'Q', b"select 1\0")]).await;
        // Some of it is read, the rest stands.
        let mut some = vec![0; 256 * 1024];
        timeout(PATIENCE, client.io.read_exact(&mut some)).await.unwrap().unwrap();
        world.lock();
        world.quiet().await;
    }
}
