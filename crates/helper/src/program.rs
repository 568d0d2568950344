//! A local program that the helper works for: what it says on its socket, and what it is told there.
//!
//! After its request a program says nothing until it is asked for a second factor. Then it says codes that its person has typed,
//! each with its length in two bytes before it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use sallyport_client::session_factor::{Asker, Question};
use tokio::net::UnixStream;
use tokio::sync::Notify;

use super::request::answer;

/// Of a code that is typed; longer ones are none.
const LONGEST_CODE: usize = 256;

/// A program, as the helper hears it and is heard.
#[derive(Debug)]
pub(super) struct Program {
    stream: UnixStream,
    /// It can ask its person.
    asks: bool,
    /// What it has said, and nothing has taken yet.
    said: Mutex<Vec<u8>>,
    more: Notify,
    gone: AtomicBool,
}

impl Program {
    pub(super) fn new(stream: UnixStream, asks: bool) -> Self {
        Self { stream, asks, said: Mutex::default(), more: Notify::new(), gone: AtomicBool::new(false) }
    }

    /// Waits until it has ended or hung up.
    pub(super) async fn gone(&self) {
        while !self.gone.load(Ordering::Relaxed) {
            if self.stream.readable().await.is_err() {
                break;
            }
            let mut heard = [0; 64];
            match self.stream.try_read(&mut heard) {
                Ok(0) => break,
                Ok(count) => {
                    let mut said = self.said.lock();
                    said.extend_from_slice(heard.get(..count).unwrap_or_default());
                    if said.len() > LONGEST_CODE + 2 {
                        break;
                    }
                    drop(said);
                    self.more.notify_one();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Tells it something. `false`: it has gone.
    pub(super) async fn tell(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.stream.writable().await.is_err() {
                return false;
            }
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Tells it something short at once, where that goes.
    pub(super) fn tell_now(&self, bytes: &[u8]) -> bool {
        self.stream.try_write(bytes).is_ok_and(|count| count == bytes.len())
    }

    /// The next code that its person has typed.
    fn typed(&self) -> Option<String> {
        let mut said = self.said.lock();
        let (head, rest) = said.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*head));
        let code = String::from_utf8_lossy(rest.get(..length)?).into_owned();
        said.drain(..length + 2);
        Some(code)
    }

    async fn code(&self) -> String {
        loop {
            if let Some(code) = self.typed() {
                return code;
            }
            tokio::select! {
                () = self.more.notified() => {}
                // Whether it has gone is asked where its stream is carried, too; here it is only heard.
                () = self.gone() => std::future::pending().await,
            }
        }
    }
}

/// The question is over when this is dropped: the program is told.
struct Shown<'a>(&'a Program);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.tell_now(&[answer::OVER]);
    }
}

impl Asker for Program {
    fn can_ask(&self) -> bool {
        self.asks && !self.gone.load(Ordering::Relaxed)
    }

    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
        Box::pin(async move {
            let text = serde_json::to_vec(question).unwrap_or_default();
            let length = u32::try_from(text.len()).unwrap_or_default();
            let _shown = Shown(self);
            self.tell(&[&[answer::ASKED], &length.to_be_bytes()[..], text.as_slice()].concat()).await;
            self.code().await
        })
    }
}
