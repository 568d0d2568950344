//! The display of this side, for programs on the host (`-X`, `-Y`).
//!
//! The host gets a cookie that is made up for the occasion. A connection that shows it is let through to the display
//! with the true one in its place; any other is not.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::process::Command;
use tokio::time::timeout;

use super::endpoint::Endpoint;
use crate::BoxedStream;
use crate::request::DisplayOffer;

/// How long `xauth` may take, and a program to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a display knows a cookie for programs that are not trusted, in seconds: for new connections.
const UNTRUSTED_SECONDS: &str = "1200";
/// The port of display 0.
const FIRST_PORT: u16 = 6000;
/// Longest name or cookie that a program may show.
const MOST_SHOWN_BYTES: usize = 256;
/// What is under way between a program and the display.
const BUFFER_BYTES: usize = 64 * 1024;

/// Why a display is not forwarded, or a program of the host does not get to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisplayError {
    // The host's programs.
    /// A program did not begin to speak X in time.
    #[error("a program did not say who it is")]
    Silent,
    /// A program does not speak X.
    #[error("a program begins with the byte {0}, expected B or l")]
    NotX(u8),
    /// A program's proof is longer than any that was handed out.
    #[error("a program shows a cookie that is too long")]
    LongCookie,
    /// A program's proof is not the session's.
    #[error("a program showed another cookie than the session has")]
    WrongCookie,
    /// The connection ended.
    #[error(transparent)]
    Ended(#[from] io::Error),

    // The user's side.
    /// `DISPLAY` names none.
    #[error("DISPLAY is {0:?}; expected [HOST]:NUMBER[.SCREEN]")]
    Name(String),
    /// The display makes no cookies of that kind.
    #[error("the display gives no cookie for programs that are not trusted ({0}); -Y trusts them")]
    NoUntrusted(Box<Self>),
    /// `xauth` has no proof for the display.
    #[error("xauth knows no cookie for the display {0}; is XAUTHORITY that of this session?")]
    NoCookie(String),
    /// `xauth` hangs.
    #[error("xauth does not answer")]
    XauthSilent,
    /// `xauth` says why not.
    #[error("{0}")]
    Xauth(String),
    /// The display hangs.
    #[error("the display does not answer")]
    NoAnswer,
    /// The system does not do it.
    #[error("cannot {doing}: {error}")]
    System {
        /// Completes "cannot …".
        doing: &'static str,
        /// What it says.
        error: io::Error,
    },
    /// There is no randomness.
    #[error(transparent)]
    Random(#[from] sallyport_sal::SalError),

    /// The client that has offered the display says why not, or is gone.
    #[error("{0}")]
    Origin(String),
}

/// A display that sessions may be offered.
pub struct Display {
    screen: u32,
    protocol: String,
    /// One connection, and no more.
    single: bool,
    /// The cookie that the host gets.
    shown: Cookie,
    to: To,
}

/// Where programs of the host get to.
enum To {
    /// A display, whose true cookie this is.
    Display { at: Endpoint, cookie: Cookie },
    /// The client that has offered it to us, with the cookie that is shown.
    Origin(Arc<dyn DisplayOrigin>),
}

/// What proves a program to a display. Wiped.
struct Cookie(Vec<u8>);

impl Drop for Cookie {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// Whose display it is that a host is offered, where that is not this side's own.
#[async_trait]
pub(crate) trait DisplayOrigin: Send + Sync + fmt::Debug {
    /// Takes a program there, and carries its bytes to the end. `from` is who connected, as the host says.
    async fn carry(&self, from: (String, u32), program: BoxedStream) -> Result<(), DisplayError>;
}

impl fmt::Debug for Display {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Display").field("screen", &self.screen).finish_non_exhaustive()
    }
}

impl Display {
    /// Finds the display of this name (`DISPLAY`) and its cookie, by `xauth`. Unless it is `trusted`, the host gets a
    /// cookie with which programs can neither read the screen nor watch the keyboard of others.
    ///
    /// # Errors
    /// [`DisplayError`], why it cannot be forwarded.
    pub async fn find(name: &str, trusted: bool) -> Result<Self, DisplayError> {
        let (at, number, screen) = parse(name).ok_or_else(|| DisplayError::Name(name.to_owned()))?;
        // As xauth and OpenSSH name the displays of this machine.
        let known = match &at {
            Endpoint::Port { host, .. } if host != "localhost" => name.to_owned(),
            _ => format!("unix:{number}"),
        };
        let listed = if trusted {
            xauth(&[OsStr::new("-q"), "list".as_ref(), known.as_ref()]).await?
        } else {
            let bench = tempfile::tempdir()
                .map_err(|error| DisplayError::System { doing: "make a directory", error })?;
            let file = bench.path().join("cookies");
            let of_file = |words: &[&str]| -> Vec<std::ffi::OsString> {
                let words = words.iter().map(std::ffi::OsString::from);
                ["-q".into(), "-f".into(), file.clone().into_os_string()].into_iter().chain(words).collect()
            };
            let words = ["generate", name, "MIT-MAGIC-COOKIE-1", "untrusted", "timeout", UNTRUSTED_SECONDS];
            xauth(&of_file(&words)).await.map_err(|error| DisplayError::NoUntrusted(Box::new(error)))?;
            xauth(&of_file(&["list"])).await?
        };
        let entry = listed.lines().find_map(read_entry);
        let (protocol, cookie) = entry.ok_or_else(|| DisplayError::NoCookie(name.to_owned()))?;
        let mut shown = vec![0; cookie.len()];
        sallyport_sal::random::fill(&mut shown)?;
        let to = To::Display { at, cookie: Cookie(cookie) };
        Ok(Self { screen, protocol, single: false, shown: Cookie(shown), to })
    }

    /// The display of another client, which has said this of it.
    pub(crate) fn of(
        origin: Arc<dyn DisplayOrigin>,
        protocol: &str,
        cookie: &[u8],
        screen: u32,
        single: bool,
    ) -> Self {
        let shown = Cookie(cookie.to_vec());
        Self { screen, protocol: protocol.to_owned(), single, shown, to: To::Origin(origin) }
    }

    /// What the host is told.
    pub(super) fn offer(&self) -> DisplayOffer {
        DisplayOffer {
            single: self.single,
            protocol: self.protocol.clone(),
            cookie: HEXLOWER.encode(&self.shown.0),
            screen: self.screen,
        }
    }

    /// Takes a program through to the display.
    ///
    /// # Errors
    /// [`DisplayError`], why not.
    pub(super) async fn serve(
        &self,
        from: (String, u32),
        mut program: DuplexStream,
    ) -> Result<(), DisplayError> {
        let (at, cookie) = match &self.to {
            To::Display { at, cookie } => (at, cookie),
            To::Origin(origin) => return origin.carry(from, Box::new(program)).await,
        };
        let setup =
            timeout(PATIENCE, self.admit(cookie, &mut program)).await.map_err(|_| DisplayError::Silent)??;
        let connected = timeout(PATIENCE, at.connect()).await;
        let mut display = connected
            .map_err(|_| DisplayError::NoAnswer)?
            .map_err(|error| DisplayError::System { doing: "connect to the display", error })?;
        display.write_all(&setup).await?;
        let _ = tokio::io::copy_bidirectional(&mut program, &mut display).await;
        Ok(())
    }

    /// Reads the first message of a program, and gives it with the true cookie (the X protocol's §8, connection setup).
    async fn admit(&self, cookie: &Cookie, program: &mut DuplexStream) -> Result<Vec<u8>, DisplayError> {
        let mut head = [0; 12];
        program.read_exact(&mut head).await?;
        let [order, _, _, _, _, _, n0, n1, d0, d1, ..] = head;
        let number = match order {
            b'B' => u16::from_be_bytes,
            b'l' => u16::from_le_bytes,
            other => return Err(DisplayError::NotX(other)),
        };
        let (name, data) = (usize::from(number([n0, n1])), usize::from(number([d0, d1])));
        if name > MOST_SHOWN_BYTES || data > MOST_SHOWN_BYTES {
            return Err(DisplayError::LongCookie);
        }
        let mut rest = vec![0; padded(name) + padded(data)];
        program.read_exact(&mut rest).await?;
        let shown = rest.get(padded(name)..padded(name) + data).unwrap_or_default();
        if rest.get(..name) != Some(self.protocol.as_bytes()) || shown != self.shown.0 {
            return Err(DisplayError::WrongCookie);
        }
        let mut setup = head.to_vec();
        setup.extend_from_slice(rest.get(..padded(name)).unwrap_or_default());
        // As long as the one that was shown.
        setup.extend_from_slice(&cookie.0);
        setup.resize(12 + rest.len(), 0);
        Ok(setup)
    }

    /// The two ends of what lies between the host and the display.
    pub(super) fn pipe() -> (DuplexStream, DuplexStream) {
        tokio::io::duplex(BUFFER_BYTES)
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// `[host]:number[.screen]`, or the path of a socket with a number behind it.
fn parse(name: &str) -> Option<(Endpoint, u16, u32)> {
    let (host, rest) = name.rsplit_once(':')?;
    let (number, screen) = rest.split_once('.').unwrap_or((rest, "0"));
    let (number, screen) = (number.parse::<u16>().ok()?, screen.parse().ok()?);
    let at = if host.starts_with('/') {
        let whole = name.split_once('.').map_or(name, |(path, _)| path);
        let path = if Path::new(whole).exists() { whole } else { host };
        Endpoint::Socket { path: path.to_owned() }
    } else if host.is_empty() || host == "unix" {
        Endpoint::Socket { path: format!("/tmp/.X11-unix/X{number}") }
    } else {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Endpoint::Port { host, port: FIRST_PORT.checked_add(number)? }
    };
    Some((at, number, screen))
}

/// A line of `xauth list`: the display, the protocol, the cookie.
fn read_entry(line: &str) -> Option<(String, Vec<u8>)> {
    let mut words = line.split_whitespace().skip(1);
    let (protocol, cookie) = (words.next()?, words.next()?);
    let cookie = HEXLOWER.decode(cookie.as_bytes()).ok()?;
    (!cookie.is_empty()).then(|| (protocol.to_owned(), cookie))
}

async fn xauth(words: &[impl AsRef<OsStr>]) -> Result<String, DisplayError> {
    let mut command = Command::new("xauth");
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    let ran = timeout(PATIENCE, command.output()).await.map_err(|_| DisplayError::XauthSilent)?;
    let output = ran.map_err(|error| DisplayError::System { doing: "run xauth", error })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(DisplayError::Xauth(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_are_named_as_x_names_them() {
        let socket = |path: &str| Endpoint::Socket { path: path.to_owned() };
        assert_eq!(parse(":0"), Some((socket("/tmp/.X11-unix/X0"), 0, 0)));
        assert_eq!(parse("unix:1.2"), Some((socket("/tmp/.X11-unix/X1"), 1, 2)));
        let port = Endpoint::Port { host: "localhost".to_owned(), port: 6010 };
        assert_eq!(parse("localhost:10.0"), Some((port, 10, 0)));
        for bad in ["", "x", ":", ":a", "host:60000"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn only_the_sessions_cookie_is_exchanged() {
        let at = Endpoint::Socket { path: "/".to_owned() };
        let cookie = Cookie(vec![1; 4]);
        let display = Display {
            screen: 0,
            protocol: "MIT".to_owned(),
            single: false,
            shown: Cookie(vec![2; 4]),
            to: To::Display { at, cookie: Cookie(vec![1; 4]) },
        };
        for (order, shown, fine) in [(b'l', [2; 4], true), (b'l', [3; 4], false), (b'x', [2; 4], false)] {
            let (mut near, mut far) = Display::pipe();
            let head = [order, 0, 11, 0, 0, 0, 3, 0, 4, 0, 0, 0];
            near.write_all(&[&head[..], b"MIT\0", &shown].concat()).await.unwrap();
            let admitted = display.admit(&cookie, &mut far).await;
            assert_eq!(admitted.is_ok(), fine, "{admitted:?}");
            if let Ok(setup) = admitted {
                assert_eq!(setup, [&head[..], b"MIT\0", &[1; 4]].concat());
            }
        }
    }
}
