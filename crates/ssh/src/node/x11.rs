//! The client's display, reachable from a session through a port of the loopback addresses (RFC 4254 §6.3).
//!
//! Programs prove themselves by the cookie that the client sent, which is not the display's: the client puts the true one
//! in its place. It is kept in a file of the session's own, which only the account can read, so that neither `xauth` nor
//! the account's `~/.Xauthority` is needed, and nothing is left behind.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::account_directory::AccountDirectory;
use super::backend::DisplayAsked;
use super::client::{Client, Opening};
use crate::session::Account;

/// The first display, as sshd's X11DisplayOffset: lower ones are real.
const FIRST_DISPLAY: u16 = 10;
/// Displays that are tried.
const DISPLAYS: u16 = 1000;
/// The port of display 0.
const FIRST_PORT: u16 = 6000;
/// Connections that one session may have open at once.
const MAX_CONNECTIONS: usize = 64;
/// Families of addresses in a file of cookies (libXau's Xauth.h): this machine, and any.
const LOCAL: u16 = 256;
const ANY: u16 = 65535;
/// The name of the file of cookies in its directory.
const COOKIES: &str = "cookies";

/// The display of one session. Its port and its cookie go when this is dropped.
pub(super) struct Display {
    name: String,
    directory: AccountDirectory,
    task: JoinHandle<()>,
}

impl Display {
    pub(super) async fn open(account: &Account, client: Client, asked: &DisplayAsked) -> io::Result<Self> {
        let (number, listeners) = listen().await?;
        let mut directory = AccountDirectory::make("x11")?;
        keep_cookie(&mut directory.create(COOKIES)?, number, asked)?;
        directory.give_to(account)?;
        let name = format!("localhost:{number}.{}", asked.screen);
        let task = tokio::spawn(serve(listeners, client, name.clone(), asked.single));
        Ok(Self { name, directory, task })
    }

    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let cookies = self.directory.path_of(COOKIES).to_string_lossy().into_owned();
        vec![("DISPLAY".to_owned(), self.name.clone()), ("XAUTHORITY".to_owned(), cookies)]
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn keep_cookie(file: &mut impl Write, number: u16, asked: &DisplayAsked) -> io::Result<()> {
    let system = rustix::system::uname();
    file.write_all(&cookie(LOCAL, system.nodename().to_bytes(), number, asked))?;
    file.write_all(&cookie(ANY, b"", number, asked))
}

/// An entry of a file of cookies: the family, then four strings, all with lengths of two bytes.
fn cookie(family: u16, address: &[u8], number: u16, asked: &DisplayAsked) -> Vec<u8> {
    let mut entry = family.to_be_bytes().to_vec();
    for field in [address, number.to_string().as_bytes(), asked.protocol.as_bytes(), &asked.cookie] {
        let length = u16::try_from(field.len()).unwrap_or(u16::MAX);
        entry.extend_from_slice(&length.to_be_bytes());
        entry.extend(field.iter().take(usize::from(length)));
    }
    entry
}

/// Takes the first display that is free on every loopback address: on one that is not, another account's program
/// would get the connections of programs that try it first.
async fn listen() -> io::Result<(u16, Vec<TcpListener>)> {
    'displays: for number in FIRST_DISPLAY..FIRST_DISPLAY + DISPLAYS {
        let mut listeners = Vec::new();
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            match TcpListener::bind((address, FIRST_PORT + number)).await {
                Ok(listener) => listeners.push(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue 'displays,
                // A machine without that kind of address.
                Err(_) => {}
            }
        }
        if !listeners.is_empty() {
            return Ok((number, listeners));
        }
    }
    Err(io::Error::other(format!("{DISPLAYS} displays are in use")))
}

async fn serve(listeners: Vec<TcpListener>, client: Client, display: String, single: bool) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = std::future::poll_fn(|cx| {
            let ready =
                listeners.iter().map(|listener| listener.poll_accept(cx)).find(std::task::Poll::is_ready);
            ready.unwrap_or(std::task::Poll::Pending)
        });
        tokio::select! {
            accepted = accepted => {
                let Ok((stream, from)) = accepted else { return };
                if connections.len() >= MAX_CONNECTIONS {
                    continue;
                }
                let _ = stream.set_nodelay(true);
                let opening = Opening::X11 { display: display.clone(), from: origin(from) };
                let client = client.clone();
                connections.spawn(async move { client.carry(opening, Box::new(stream)).await });
                if single {
                    break;
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listeners);
    while connections.join_next().await.is_some() {}
}

fn origin(from: SocketAddr) -> (String, u32) {
    (from.ip().to_string(), u32::from(from.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_written_as_x_reads_them() {
        let asked = DisplayAsked::read(false, "MIT-MAGIC-COOKIE-1", "00ff", 0).unwrap();
        let expected = b"\xff\xff\0\0\0\x0210\0\x12MIT-MAGIC-COOKIE-1\0\x02\0\xff";
        assert_eq!(cookie(ANY, b"", 10, &asked), expected);
        for (protocol, cookie) in [("", "00"), ("a b", "00"), ("X", ""), ("X", "0"), ("X", "zz")] {
            assert!(DisplayAsked::read(false, protocol, cookie, 0).is_none(), "{protocol} {cookie}");
        }
    }
}
