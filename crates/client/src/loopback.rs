//! The code that a browser brings to this machine: one request to a port of 127.0.0.1 that is there for it alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::error::{Doing, Result};

/// Where a proxy's page sends the browser.
const PATH: &str = "/callback";
/// Longest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// How long one connection may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// Characters of a code: 128 bits in base64url.
const CODE: usize = 22;

/// A port of this machine that awaits a browser.
#[derive(Debug)]
pub(crate) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    pub(crate) async fn bind() -> Result<Self> {
        let doing = "listen on 127.0.0.1 for the browser's answer";
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.doing(doing)?;
        let port = listener.local_addr().doing(doing)?.port();
        Ok(Self { listener, port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The code, once a browser brings one. Whatever else connects is told that there is nothing here, one after the other.
    pub(crate) async fn code(self) -> Result<String> {
        loop {
            let (mut stream, _) =
                self.listener.accept().await.doing("take the browser's answer on 127.0.0.1")?;
            let answered = tokio::time::timeout(PATIENCE, self.answer(&mut stream)).await;
            if let Ok(Some(code)) = answered {
                return Ok(code);
            }
        }
    }

    async fn answer(&self, stream: &mut TcpStream) -> Option<String> {
        let head = read_head(stream).await?;
        let code = code_in(&head, self.port);
        let (status, text) = match &code {
            Some(_) => ("200 OK", "Go back to the terminal. You may close this page."),
            None => ("404 Not Found", "There is nothing here."),
        };
        let page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Sallyport</title><p>{text}</p></html>"
        );
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\n\
             Connection: close\r\n\r\n{page}",
            page.len()
        );
        // A browser that has gone has brought its code all the same.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        code
    }
}

/// A request up to the empty line.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 2048];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await.ok()?;
        if read == 0 || head.len() + read > HEAD_BYTES {
            return None;
        }
        head.extend_from_slice(piece.get(..read)?);
    }
    String::from_utf8(head).ok()
}

/// The code of a request that is the page's: to this port by its address, so that no other name leads here, with a code and nothing
/// else.
fn code_in(head: &str, port: u16) -> Option<String> {
    let mut lines = head.split("\r\n");
    let mut request = lines.next()?.split(' ');
    let (method, target, version) = (request.next()?, request.next()?, request.next()?);
    if method != "GET" || !version.starts_with("HTTP/1.") || request.next().is_some() {
        return None;
    }
    let mut hosts = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    if hosts.next()? != format!("127.0.0.1:{port}") || hosts.next().is_some() {
        return None;
    }
    let code = target.strip_prefix(PATH)?.strip_prefix("?code=")?;
    let fits = code.len() == CODE
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    fits.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "abcdefghijklmnopqrst_-";

    fn request(target: &str, host: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n")
    }

    #[test]
    fn a_code_comes_by_the_address_alone_and_with_nothing_else() {
        let target = format!("/callback?code={GOOD}");
        assert_eq!(code_in(&request(&target, "127.0.0.1:4000"), 4000).as_deref(), Some(GOOD));
        for (target, host) in [
            (target.as_str(), "localhost:4000"),
            (target.as_str(), "rebound.example:4000"),
            (target.as_str(), "127.0.0.1:4001"),
            ("/callback?code=short", "127.0.0.1:4000"),
            ("/callback?code=abcdefghijklmnopqrst_%2f", "127.0.0.1:4000"),
            ("/callback?state=x&code=abcdefghijklmnopqrst_-", "127.0.0.1:4000"),
            ("/favicon.ico", "127.0.0.1:4000"),
            ("/", "127.0.0.1:4000"),
        ] {
            assert_eq!(code_in(&request(target, host), 4000), None, "{target} at {host}");
        }
        let posted = request(&target, "127.0.0.1:4000").replace("GET", "POST");
        assert_eq!(code_in(&posted, 4000), None);
        let two = request(&target, "127.0.0.1:4000").replace("Accept", "Host");
        assert_eq!(code_in(&two, 4000), None);
        assert_eq!(code_in("", 4000), None);
    }

    #[tokio::test]
    async fn what_brings_no_code_is_not_waited_for() {
        let loopback = Loopback::bind().await.unwrap();
        let port = loopback.port();
        let asking = |target: String| async move {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            let asked = request(&target, &format!("127.0.0.1:{port}"));
            // A byte at a time, as the network may have it.
            for byte in asked.as_bytes() {
                stream.write_all(&[*byte]).await.unwrap();
            }
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let browser = async {
            drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
            assert!(asking("/favicon.ico".to_owned()).await.starts_with("HTTP/1.1 404"));
            asking(format!("/callback?code={GOOD}")).await
        };
        let (code, answer) = tokio::join!(loopback.code(), browser);
        assert_eq!(code.unwrap(), GOOD);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("You may close this page"), "{answer}");
    }
}
