//! Which user of this machine is at the other end of a TCP connection: TCP itself has no owner, but the kernel's table of sockets has.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The tables of Linux (proc_net_tcp.txt of its documentation). A socket of IPv6 may hold addresses of IPv4.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// `TCP_ESTABLISHED`; and `TCP_FIN_WAIT1` and `TCP_FIN_WAIT2`, of a client that has said everything already.
const OPEN: [&str; 3] = ["01", "04", "05"];
/// The inode of what has no owner by now, which the table shows as root's.
const CLOSED: &str = "0";

/// The user whose socket is at `client`, connected to `here`.
///
/// # Errors
/// When the tables cannot be read, or have no such socket.
pub(super) fn of(client: SocketAddr, here: SocketAddr) -> io::Result<u32> {
    let mut unread = None;
    for table in TABLES {
        match fs::read_to_string(table) {
            Ok(text) => {
                if let Some(user) = find(&text, client, here) {
                    return Ok(user);
                }
            }
            Err(error) => unread = Some(error),
        }
    }
    Err(unread.unwrap_or_else(|| io::Error::other("the system does not show whose it is")))
}

fn find(table: &str, client: SocketAddr, here: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (user, inode) = (fields.nth(3)?, fields.nth(1)?);
        let fits = OPEN.contains(&state)
            && inode != CLOSED
            && address(local) == Some(plain(client))
            && address(remote) == Some(plain(here));
        fits.then(|| user.parse().ok()).flatten()
    })
}

/// `0100007F:1538`: words of 32 bits as the machine has them, and the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(words.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match words.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let bytes: Vec<u8> = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_of_ours_is_ours_by_either_family() {
        let me = rustix::process::geteuid().as_raw();
        let mut listeners = vec![TcpListener::bind("127.0.0.1:0").unwrap()];
        listeners.extend(TcpListener::bind("[::1]:0"));
        listeners.extend(TcpListener::bind("[::]:0"));
        for listener in listeners {
            let mut to = listener.local_addr().unwrap();
            if to.ip().is_unspecified() {
                to.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            let client = TcpStream::connect(to).unwrap();
            let (served, from) = listener.accept().unwrap();
            assert_eq!(of(from, served.local_addr().unwrap()).unwrap(), me);
            drop(client);
            assert!(of(from, SocketAddr::new(to.ip(), 1)).is_err());
        }
    }

    #[test]
    fn only_what_is_open_between_the_two_counts() {
        let with = |state: &str, user: &str, inode: u8| {
            format!(
                "  sl  local_address rem_address   st ...\n   0: {} {} {state} 00000000:00000000 00:00000000 00000000  {user}        0 {inode}\n",
                text("127.0.0.1:40000"),
                text("127.0.0.1:5433")
            )
        };
        let line = |state: &str, user: &str| with(state, user, 1);
        let (client, here) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:5433".parse().unwrap());
        assert_eq!(find(&line("01", "1000"), client, here), Some(1000));
        // A client that has said everything, and one that has gone, of any user.
        for state in ["04", "05"] {
            assert_eq!(find(&with(state, "1000", 1), client, here), Some(1000));
            assert_eq!(find(&with(state, "0", 0), client, here), None);
        }
        // In TIME_WAIT, which has no owner any more.
        assert_eq!(find(&line("06", "0"), client, here), None);
        assert_eq!(find(&line("01", "1000"), here, client), None);
        for odd in
            ["", "\n1: x y", "\n 0: 0100007F:zz 0100007F:1538 01 0 0 0 0", "\n 0: 01:1 02:2 01 a b c d"]
        {
            assert_eq!(find(odd, client, here), None);
        }
    }

    fn text(address: &str) -> String {
        let address: std::net::SocketAddrV4 = address.parse().unwrap();
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    }
}
