//! A client that says what it is told to, byte for byte.

use std::time::Duration;

use sallyport_databases::postgres::message::encode;
use sallyport_databases::postgres::startup::Startup;
use sallyport_databases::service::Asked;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use crate::world::World;

/// What a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) io: DuplexStream,
}

impl Client {
    /// A connection that has said nothing yet.
    pub(crate) fn dial(world: &World, asked: Asked) -> Self {
        let (io, server) = duplex(64 * 1024);
        let service = world.service.clone();
        tokio::spawn(async move { service.serve(server, asked).await });
        Self { io }
    }

    /// Says who it is.
    pub(crate) async fn hello(world: &World, parameters: &[(&str, &str)]) -> Self {
        Self::hello_for(world, world.asked(Duration::from_secs(3600)), parameters).await
    }

    pub(crate) async fn hello_for(world: &World, asked: Asked, parameters: &[(&str, &str)]) -> Self {
        let mut client = Self::dial(world, asked);
        let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        client.io.write_all(&Startup { minor: 0, parameters }.to_bytes()).await.unwrap();
        client
    }

    /// A session that is ready.
    pub(crate) async fn ready(world: &World, user: &str) -> Self {
        let mut client = Self::hello(world, &[("user", user), ("database", "postgres")]).await;
        let answers = client.answers().await;
        assert_eq!(kinds(&answers).chars().next(), Some('R'), "{}", words(&answers));
        client
    }

    pub(crate) async fn say(&mut self, messages: &[(u8, &[u8])]) {
        let bytes: Vec<u8> = messages.iter().flat_map(|(kind, content)| encode(*kind, content)).collect();
        // What is refused may have closed the connection before all was said.
        let _ = self.io.write_all(&bytes).await;
    }

    /// The next message; none at the end.
    pub(crate) async fn message(&mut self) -> Option<(u8, Vec<u8>)> {
        let read = async {
            let kind = self.io.read_u8().await.ok()?;
            let length = self.io.read_u32().await.ok()?;
            let mut content = vec![0; usize::try_from(length).unwrap() - 4];
            self.io.read_exact(&mut content).await.ok()?;
            Some((kind, content))
        };
        timeout(PATIENCE, read).await.expect("an answer")
    }

    /// Up to `ReadyForQuery`, or the end.
    pub(crate) async fn answers(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut answers = Vec::new();
        while let Some(message) = self.message().await {
            let last = message.0 == b'Z';
            answers.push(message);
            if last {
                break;
            }
        }
        answers
    }

    /// Runs a simple query; the answers as words.
    pub(crate) async fn query(&mut self, sql: &str) -> String {
        self.say(&[(b'Q', format!("{sql}\0").as_bytes())]).await;
        words(&self.answers().await)
    }

    /// The error that ends the session.
    pub(crate) async fn end(mut self) -> String {
        let answers = self.answers().await;
        assert!(answers.last().is_none_or(|(kind, _)| *kind == b'E'), "{}", words(&answers));
        words(&answers)
    }
}

/// The kinds of messages.
pub(crate) fn kinds(messages: &[(u8, Vec<u8>)]) -> String {
    messages.iter().map(|(kind, _)| char::from(*kind)).collect()
}

/// Messages as words: rows, tags and errors with their contents.
pub(crate) fn words(messages: &[(u8, Vec<u8>)]) -> String {
    let word = |(kind, content): &(u8, Vec<u8>)| match kind {
        b'E' => {
            let mut shown = String::from("E");
            for field in content.split(|byte| *byte == 0) {
                if let Some((b'C' | b'M' | b'H', text)) = field.split_first() {
                    shown.push(' ');
                    shown.push_str(&String::from_utf8_lossy(text));
                }
            }
            shown
        }
        b'C' => String::from_utf8_lossy(content.strip_suffix(b"\0").unwrap_or(content)).into_owned(),
        b'D' => format!("D {}", String::from_utf8_lossy(content.get(6..).unwrap_or_default())),
        kind => char::from(*kind).to_string(),
    };
    messages.iter().map(word).collect::<Vec<_>>().join("|")
}
