//! How a program reaches the helper daemon of its profile, starting it where there is none.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec};
use sallyport_client::error::Doing;
use sallyport_client::session_factor::{Asker, Question};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::log;
use super::request::{Request, answer, decode_error};
use super::socket::{self, Place};
use crate::error::{Error, Result};

/// How long a program waits for a helper that it or another program starts, before it goes without. A machine on which
/// fifty begin at once is slow with whichever way they take.
const START_PATIENCE: Duration = Duration::from_secs(15);
/// How long a helper may take to say that it has taken over. It only looks at files before that.
const TAKE_PATIENCE: Duration = Duration::from_secs(6);
/// How often a program that waits for another's start looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(3);

/// Where the helper of one profile is reached.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint<'a> {
    /// The profile's directory.
    pub directory: &'a Path,
    /// The cluster's address, which names the profile.
    pub proxy: &'a str,
    /// For a helper that must be started: how long it stays when no program needs it.
    pub idle: Duration,
}

/// A connection that the helper has taken over. When this is dropped, it ends.
#[derive(Debug)]
pub struct Taken(pub(super) UnixStream);

impl Endpoint<'_> {
    /// Has the helper connect input and output to what a request names. `None`: nothing was read from the input, so go
    /// without it. With `asks` the program asks its person for a second factor, where the helper has it do so.
    pub fn ask(&self, request: &Request, asks: bool, ends: [BorrowedFd<'_>; 2]) -> Option<Taken> {
        let place = Place::of(self.directory);
        let stream = match place.connect() {
            Ok(stream) => stream,
            Err(_) => self.start(&place)?,
        };
        hand_over(&stream, (request, asks), ends).ok().filter(|taken| *taken).map(|_| Taken(stream))
    }

    /// Whether a helper runs, starting it where there is none.
    pub fn is_up(&self) -> bool {
        let place = Place::of(self.directory);
        place.connect().is_ok() || self.start(&place).is_some()
    }

    /// Starts the helper, or waits for the program that does.
    fn start(&self, place: &Place) -> Option<UnixStream> {
        // Without a login there is nothing to keep, and a directory made now would outlive a logout.
        if !self.directory.join("profile.json").exists() {
            return None;
        }
        place.create().ok()?;
        let lock = place.lock_file("starting").ok()?;
        let deadline = Instant::now() + START_PATIENCE;
        while lock.try_lock().is_err() {
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(LOOK_INTERVAL);
            if let Ok(stream) = place.connect() {
                return Some(stream);
            }
        }
        // Another program may have been done while this one came for the lock.
        if let Ok(stream) = place.connect() {
            return Some(stream);
        }
        let mut child = self.spawn(place).ok()?;
        is_ready(&mut child, deadline).then(|| place.connect().ok())?
    }

    fn spawn(&self, place: &Place) -> io::Result<Child> {
        let log = log::open(&place.log())?;
        let home = std::path::absolute(self.directory.parent().unwrap_or(self.directory))?;
        Command::new(std::env::current_exe()?)
            .arg("--home")
            .arg(home)
            .args(["--proxy", self.proxy, "connect", "--serve", "--idle"])
            .arg(format!("{}s", self.idle.as_secs()))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
    }
}

/// Waits until a helper says that it listens. One that ends instead has said why in its log.
fn is_ready(child: &mut Child, deadline: Instant) -> bool {
    let Some(mut said) = child.stdout.take() else { return false };
    readable(said.as_fd(), deadline.saturating_duration_since(Instant::now()))
        && matches!(said.read(&mut [0]), Ok(1))
}

fn readable(descriptor: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let patience = Timespec::try_from(patience).ok();
    matches!(rustix::event::poll(&mut polled, patience.as_ref()), Ok(1..))
}

/// Gives the descriptors away. `false`: the helper left them alone.
fn hand_over(stream: &UnixStream, request: (&Request, bool), ends: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
    socket::send(stream, request, &ends)?;
    stream.set_read_timeout(Some(TAKE_PATIENCE))?;
    let mut first = [0];
    let read = (&mut &*stream).read(&mut first);
    match read {
        Ok(1) => Ok(first == [answer::TAKEN]),
        Ok(_) => Ok(false),
        Err(_) => {
            // After this it can take them no more, so whether it did is settled; two must not read one input.
            stream.shutdown(std::net::Shutdown::Both)?;
            Ok(matches!((&mut &*stream).read(&mut first), Ok(1)) && first == [answer::TAKEN])
        }
    }
}

/// What a program hears that waits for the end of its connection.
#[derive(Debug)]
pub enum Heard {
    /// The connection has ended.
    Ended(Result),
    /// Its person is asked something first.
    Asked(Waiting),
}

/// A connection that the helper has taken over, and what it has said of it.
#[derive(Debug)]
pub struct Waiting {
    stream: UnixStream,
    said: Vec<u8>,
}

/// Of what the helper says at the end.
const LONGEST_END: usize = 320 * 1024;
/// Of a question: it names each of up to 1,000 sessions.
const LONGEST_QUESTION: usize = 256 * 1024;

/// Waits until the connection ends, or the person is asked something.
pub fn wait(taken: Taken) -> Heard {
    let Taken(mut stream) = taken;
    let mut said = Vec::new();
    let mut bytes = [0; 1024];
    let mut heard = stream.set_read_timeout(None).and_then(|()| stream.read(&mut bytes));
    loop {
        match heard {
            Ok(0) => return Heard::Ended(understand(Some(&said))),
            Ok(count) => said.extend_from_slice(bytes.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Heard::Ended(understand(None)),
        }
        if said.first() == Some(&answer::ASKED) {
            return Heard::Asked(Waiting { stream, said });
        }
        if said.len() > LONGEST_END {
            return Heard::Ended(understand(Some(&said)));
        }
        heard = stream.read(&mut bytes);
    }
}

impl Waiting {
    /// For a connection that was only just taken over.
    pub(super) fn of(taken: Taken) -> Self {
        Self { stream: taken.0, said: Vec::new() }
    }

    /// Waits until the connection ends, and asks the person what is asked until then.
    pub fn to_the_end(self, asker: Option<&dyn Asker>) -> BoxFuture<'_, Result> {
        Box::pin(async move {
            let Self { stream, mut said } = self;
            let doing = "hear from the helper daemon";
            stream.set_read_timeout(None).and_then(|()| stream.set_nonblocking(true)).doing(doing)?;
            let (mut from, mut to) = tokio::net::UnixStream::from_std(stream).doing(doing)?.into_split();
            let mut question = None;
            loop {
                while let Some(next) = next_question(&mut said) {
                    question = next;
                }
                let mut typed: BoxFuture<'_, String> = match (asker, &question) {
                    (Some(asker), Some(question)) => asker.ask(question),
                    _ => Box::pin(std::future::pending()),
                };
                while !has_question(&said) {
                    let mut bytes = [0; 1024];
                    tokio::select! {
                        read = from.read(&mut bytes) => match read {
                            Ok(0) => return understand(Some(&said)),
                            Ok(_) if said.len() > LONGEST_END => return understand(Some(&said)),
                            Ok(count) => said.extend_from_slice(bytes.get(..count).unwrap_or_default()),
                            Err(_) => return understand(None),
                        },
                        code = &mut typed => {
                            typed = Box::pin(std::future::pending());
                            let length = u16::try_from(code.len()).unwrap_or_default();
                            let code = code.as_bytes().get(..usize::from(length)).unwrap_or_default();
                            // A helper that has gone is heard of by what it does not say.
                            let _ = to.write_all(&[&length.to_be_bytes(), code].concat()).await;
                        }
                    }
                }
            }
        })
    }
}

/// The length of the question in front of what was said, with its head.
fn question_length(said: &[u8]) -> Option<usize> {
    let (head, _) = said.split_first_chunk::<5>()?;
    let [answer::ASKED, a, b, c, d] = *head else { return None };
    Some(usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.min(LONGEST_QUESTION) + head.len())
}

fn has_question(said: &[u8]) -> bool {
    said.first() == Some(&answer::OVER) || question_length(said).is_some_and(|length| said.len() >= length)
}

/// The question in front of what was said; none in its place where the one before is over.
fn next_question(said: &mut Vec<u8>) -> Option<Option<Question>> {
    if !has_question(said) {
        return None;
    }
    let Some(length) = question_length(said) else {
        said.remove(0);
        return Some(None);
    };
    let question = said.get(5..length).and_then(|text| serde_json::from_slice(text).ok());
    said.drain(..length);
    Some(question)
}

/// What the helper's last words mean.
pub(super) fn understand(said: Option<&Vec<u8>>) -> Result {
    match said.and_then(|said| said.split_first()) {
        Some((&answer::ENDED, _)) => Ok(()),
        Some((&answer::FAILED, error)) => Err(decode_error(error).into()),
        _ => Err(Error::Ended),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::program::Program;

    fn question(what: &str) -> Question {
        Question {
            what: what.to_owned(),
            address: "https://a.example/approve#x".to_owned(),
            code: "BCDF-GHJK".to_owned(),
            codes: true,
            passkeys: true,
            joined: false,
            wrong: None,
        }
    }

    /// Tells which questions it sees begin and end, and types a code.
    struct Person {
        seen: mpsc::UnboundedSender<String>,
        types: bool,
    }

    struct Over(mpsc::UnboundedSender<String>);

    impl Drop for Over {
        fn drop(&mut self) {
            let _ = self.0.send("over".to_owned());
        }
    }

    impl Asker for Person {
        fn can_ask(&self) -> bool {
            true
        }

        fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
            async move {
                let _over = Over(self.seen.clone());
                let _ = self.seen.send(question.what.clone());
                if !self.types {
                    std::future::pending::<()>().await;
                }
                "123456".to_owned()
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn a_program_asks_its_person_and_the_helper_hears_the_code() {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let program = Program::new(tokio::net::UnixStream::from_std(far).unwrap(), true);
        let (seen, mut saw) = mpsc::unbounded_channel();
        let waiting = tokio::task::spawn_blocking(move || match wait(Taken(near)) {
            Heard::Asked(waiting) => waiting,
            Heard::Ended(ended) => panic!("{ended:?}"),
        });
        let helper = async {
            assert_eq!(program.ask(&question("web-1")).await, "123456");
            // Another question, which ends without a code.
            let silent = question("web-2");
            tokio::select! {
                code = program.ask(&silent) => panic!("{code}"),
                () = async { while saw.recv().await.unwrap() != "web-2" {} } => {}
            }
            while saw.recv().await.unwrap() != "over" {}
            assert!(program.tell(&[answer::ENDED]).await);
            drop(program);
        };
        let person = async {
            let first = Person { seen: seen.clone(), types: true };
            let waiting = waiting.await.unwrap();
            let second = Person { seen, types: false };
            let both = Both(first, second);
            waiting.to_the_end(Some(&both)).await
        };
        let ((), ended) = tokio::join!(helper, person);
        ended.unwrap();
    }

    /// The first question is of one, the others of the other.
    struct Both(Person, Person);

    impl Asker for Both {
        fn can_ask(&self) -> bool {
            true
        }

        fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, String> {
            if question.what == "web-1" { self.0.ask(question) } else { self.1.ask(question) }
        }
    }
}
