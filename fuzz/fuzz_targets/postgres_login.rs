//! What a database server says to an agent that logs in, and that runs a statement of its own: no login with a password succeeds, as
//! the server does not know it, everything ends, and what the client would read is whole messages of bounded length.
//!
//! The first byte says what is done. Of the rest each message takes a byte that says which it is, and what it is made of.

use std::cell::RefCell;

use sallyport_databases::postgres::startup::{CancelKey, Startup};
use sallyport_databases::service::rehearsal;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Bytes under way between the two, and the longest message of the agent.
const ROOM_BYTES: usize = 256 * 1024;
/// What a greeting may have, with the cancel key that is put in place of the server's.
const LONGEST_GREETING_BYTES: usize = 256 * 1024;
/// The agent's own: the client is told this one.
const CLIENT_SECRET: &[u8] = b"client's";
const SERVER_SECRET: &[u8] = b"server's";

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> =
        RefCell::new(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
}

/// What is left of the input; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    fn some(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte());
        self.bytes(length)
    }

    /// SCRAM's first answer. Rounds take their time, as they should: here they are few.
    fn challenge(&mut self, nonce: &str) -> Vec<u8> {
        let more = String::from_utf8_lossy(&self.some()).into_owned();
        let salt = ["AAAA", "", "A", "c2FsdA==", "====", "\u{e9}"][usize::from(self.byte()) % 6];
        let rounds =
            ["4096", "1", "0", "-1", "+4096", "x", "4294967296", "4096,x=y"][usize::from(self.byte()) % 8];
        format!("r={nonce}{more},s={salt},i={rounds}").into_bytes()
    }

    fn rows(&mut self) -> Vec<u8> {
        let count = self.byte();
        let mut content = vec![count & 0x80, count & 15];
        for _ in 0..count & 15 {
            let length = self.byte();
            let said = if length > 240 { u32::MAX << (length & 7) } else { u32::from(length) };
            content.extend(said.to_be_bytes());
            content.extend(self.bytes(usize::from(length)));
        }
        content
    }

    fn message(&mut self, how: u8, nonce: &str) -> Vec<u8> {
        match how % 16 {
            0 => message(b'R', &[0; 4]),
            1 => message(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"),
            2 => message(b'R', &[&b"\0\0\0\x0b"[..], &self.challenge(nonce)].concat()),
            3 => message(b'R', &[&b"\0\0\0\x0c"[..], &self.some()].concat()),
            4 => message(
                b'R',
                &[&b"\0\0\0\x0cv="[..], b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="].concat(),
            ),
            5 => message(b'R', &self.some()),
            6 => message(b'S', &self.some()),
            7 => message(b'K', &[b"\0\0\0\x07", SERVER_SECRET].concat()),
            8 => message(b'K', &self.some()),
            9 => message(b'Z', b"I"),
            10 => message(b'E', &self.some()),
            11 => message(b'N', &self.some()),
            12 => message(b'D', &self.rows()),
            13 => message(b'v', &self.some()),
            14 => {
                // Of any kind and length.
                let (kind, length) = (self.byte(), self.byte());
                let said = if length > 250 { u32::MAX >> (length & 7) } else { u32::from(length) };
                [&[kind][..], &said.to_be_bytes(), &self.bytes(usize::from(length))].concat()
            }
            _ => {
                let kind = self.byte();
                message(kind, &self.some())
            }
        }
    }
}

fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &u32::try_from(content.len() + 4).unwrap().to_be_bytes(), content].concat()
}

/// The nonce in what a client has said so far.
fn nonce(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let nonce = text.rsplit_once("n=,r=").map_or("", |(_, nonce)| nonce);
    nonce.chars().take_while(|c| c.is_ascii_graphic()).collect()
}

/// Says everything, and hears what the agent says meanwhile.
async fn serve(mut script: Script<'_>, mut stream: DuplexStream, step: usize) -> std::io::Result<()> {
    let (mut heard, mut nonces) = (vec![0; 4096], String::new());
    while !script.0.is_empty() {
        let how = script.byte();
        // A challenge goes on from what the agent has said.
        if how % 16 == 2 && nonces.is_empty() {
            tokio::task::yield_now().await;
            for _ in 0..2 {
                let read = stream.read(&mut heard);
                let mut read = std::pin::pin!(read);
                let count = tokio::select! {
                    biased;
                    count = &mut read => count?,
                    () = tokio::task::yield_now() => 0,
                };
                nonces.push_str(&nonce(&heard[..count]));
            }
        }
        for part in script.message(how, &nonces).chunks(step) {
            stream.write_all(part).await?;
            tokio::task::yield_now().await;
        }
    }
    stream.shutdown().await?;
    while stream.read(&mut heard).await? > 0 {}
    Ok(())
}

/// Messages of a greeting; panics where it is not made of whole ones.
fn messages(mut greeting: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages = Vec::new();
    while let Some((head, rest)) = greeting.split_first_chunk::<5>() {
        let length = u32::from_be_bytes(*head.last_chunk().unwrap()) as usize - 4;
        let (content, more) = rest.split_at(length);
        messages.push((head[0], content.to_vec()));
        greeting = more;
    }
    assert!(greeting.is_empty());
    messages
}

async fn log_in(stream: DuplexStream, password: Option<&str>) {
    let parameters = vec![("user".to_owned(), "app".to_owned()), ("database".to_owned(), "prod".to_owned())];
    let startup = Startup { minor: 0, parameters };
    let key = CancelKey { process: 9, secret: CLIENT_SECRET.to_vec() };
    let Ok((greeting, _)) = rehearsal::log_in(stream, &startup, password, &key).await else { return };
    assert!(password.is_none(), "the server has not proven that it knows the password");
    assert!(greeting.len() <= LONGEST_GREETING_BYTES);
    let messages = messages(&greeting);
    assert!(messages.iter().any(|(kind, _)| *kind == b'R'), "ready without a login");
    assert_eq!(messages.last().map(|(kind, _)| *kind), Some(b'Z'));
    for (kind, content) in messages {
        assert!(b"RSNvKZ".contains(&kind));
        match kind {
            // No client is asked for a password by a server that it is already in at.
            b'R' => assert_eq!(content.first_chunk(), Some(&[0; 4])),
            b'K' => assert_eq!(content, [&9_u32.to_be_bytes()[..], CLIENT_SECRET].concat()),
            _ => {}
        }
    }
}

fuzz_target!(|data: (u8, &[u8])| {
    let (how, script) = data;
    let step = if how & 4 == 0 { usize::MAX } else { 3 };
    RUNTIME.with_borrow_mut(|runtime| {
        runtime.block_on(async {
            let (ours, theirs) = tokio::io::duplex(ROOM_BYTES);
            let serving = serve(Script(script), theirs, step);
            let _ = match how & 3 {
                0 => tokio::join!(serving, log_in(ours, None)).0,
                1 | 2 => tokio::join!(serving, log_in(ours, Some("secret"))).0,
                _ => {
                    let asking = async {
                        if let Ok(rows) = rehearsal::run(ours, "select 1").await {
                            let bytes: usize = rows.iter().flatten().flatten().map(String::len).sum();
                            // A byte that is no text becomes three.
                            assert!(bytes <= 3 * script.len());
                        }
                    };
                    tokio::join!(serving, asking).0
                }
            };
        });
    });
});
