//! What a server shows before a user has logged in: certificates of TLS, host keys of SSH.
//!
//! Which of the two it is, its first bytes say: an SSH server speaks first (RFC 4253 §4.2), one of TLS waits for a
//! ClientHello. Every wait has an end, and so has the whole: a server that never answers, or a byte a minute, costs
//! seconds.

mod bounded;
mod danger;
mod old_tls;
mod ssh;
mod tls;

use std::time::Duration;

use super::found::Contents;
use crate::LabError;
use bounded::{Server, is_late};

/// How long a server may take to speak first before it is asked in TLS.
const SPEAKS_FIRST: Duration = Duration::from_millis(1_500);
/// Asks a server at `host:port`.
///
/// # Errors
/// [`LabError::Input`] for a name that does not resolve, [`LabError::Connection`] when nothing listens, nothing answers in
/// time, or the answer is neither SSH nor TLS.
pub fn server(address: &str) -> Result<Contents, LabError> {
    let server = Server::resolve(address)?;
    let mut first = server.connect()?;
    let mut beginning = [0; 4];
    match first.peek(&mut beginning, SPEAKS_FIRST) {
        Ok(0) => Err(server.says("it ended the connection before anything was said")),
        Ok(read) if b"SSH-".starts_with(beginning.get(..read).unwrap_or_default()) => ssh::host_keys(&server, first),
        // Servers may send lines before their identification (RFC 4253 §4.2); few do. Mail servers speak first, too.
        Ok(_) => ssh::host_keys(&server, first).map_err(|_| {
            server.says(
                "it speaks first, and not in SSH; one that changes to TLS later (mail, databases) cannot be asked here",
            )
        }),
        Err(error) if is_late(&error) => match tls::chains(&server, first) {
            // It was asked in TLS and answered in SSH: it is only slow.
            Err(tls::Refused::Ssh) => ssh::host_keys(&server, server.connect()?),
            Err(tls::Refused::Late(error) | tls::Refused::Other(error)) => Err(error),
            Ok(contents) => Ok(contents),
        },
        Err(error) => Err(server.says(&format!("it was lost: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn asked(address: &str) -> String {
        server(address).map(|contents| format!("{contents:?}")).unwrap_or_else(|error| error.to_string())
    }

    /// A server that does this with each connection.
    fn listen(handle: impl Fn(TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || listener.incoming().flatten().for_each(handle));
        address
    }

    #[test]
    fn what_cannot_be_asked_is_named() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(
            asked(&closed).ends_with("no server listens there (connection refused)"),
            "{}",
            asked(&closed)
        );
        for (address, said) in [
            ("localhost", "no port"),
            ("localhost:", "not a number"),
            ("localhost:99999", "not a number"),
            (":22", "missing"),
            ("localhost:0", "missing"),
            ("no.such.name.invalid:443", "does not resolve"),
        ] {
            assert!(asked(address).contains(said), "{address}: {}", asked(address));
        }
    }

    #[test]
    fn who_hangs_up_or_speaks_something_else_is_named() {
        let quick = listen(drop);
        assert!(asked(&quick).contains("ended the connection"), "{}", asked(&quick));
        let mail = listen(|mut stream| {
            let _ = stream.write_all(b"220 mail.example.com ESMTP\r\n");
        });
        assert!(asked(&mail).contains("not in SSH"), "{}", asked(&mail));
        let web = listen(|mut stream| {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        assert!(asked(&web).contains("not in TLS"), "{}", asked(&web));
    }

    #[test]
    fn who_never_answers_or_trickles_is_left_in_time() {
        let silent = listen(|stream| {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(60));
                drop(stream);
            });
        });
        // A record of TLS that is announced as long and comes a byte at a time.
        let trickling = listen(|mut stream| {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                for byte in [22, 3, 3, 0x3f, 0xff].into_iter().chain(std::iter::repeat(2)) {
                    if stream.write_all(&[byte]).is_err() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
            });
        });
        let asking = [silent, trickling].map(|address| {
            std::thread::spawn(move || {
                let began = Instant::now();
                (asked(&address), began.elapsed())
            })
        });
        for thread in asking {
            let (said, took) = thread.join().unwrap();
            assert!(said.contains("within 10 s"), "{said}");
            // An answer has ten seconds, and there is none to wait for after it.
            assert!(took < Duration::from_secs(16), "{took:?}");
        }
    }
}
