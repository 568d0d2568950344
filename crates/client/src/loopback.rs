//! The code that a browser brings to this machine: one request to a port of 127.0.0.1 that is there for it alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use sallyport_sal::{constant_time_eq, hash};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::warn;

use crate::error::{Doing, Result};

/// Where a proxy's page sends the browser.
const PATH: &str = "/callback";
/// Longest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// How long one connection may take to say what it wants, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections that are served at once. Every program and page of the machine can connect.
const MOST_CONNECTIONS: usize = 16;
/// How long to wait where the system gives no connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
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

    /// The code, once a browser brings one with this `state`. Whatever else connects is told that there is nothing here, and holds up
    /// nothing.
    pub(crate) async fn code(self, state: String) -> String {
        let awaited = Arc::new(Awaited { port: self.port, state });
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if serving.len() < MOST_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        serving.spawn(answer(stream, Arc::clone(&awaited)));
                    }
                    Err(error) => {
                        warn!(%error, "cannot take a connection of the browser; it is tried again");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = serving.join_next() => {
                    if let Ok(Some(code)) = ended {
                        return code;
                    }
                }
            }
        }
    }
}

/// What the page's request carries beside the code.
#[derive(Debug)]
struct Awaited {
    port: u16,
    state: String,
}

/// What the authority has the browser bring along with a code: only who knows the challenge's id can make it, so that no other page
/// the person has open can send this program a code.
pub(crate) fn state_of(challenge: &str) -> String {
    let kept = HEXLOWER.encode(&hash::sha256(challenge.as_bytes()));
    BASE64URL_NOPAD.encode(&hash::sha256(format!("callback{kept}").as_bytes()))
}

/// Answers one connection; the code that it brings.
async fn answer(mut stream: TcpStream, awaited: Arc<Awaited>) -> Option<String> {
    let head = tokio::time::timeout(PATIENCE, read_head(&mut stream)).await.ok()??;
    let code = code_in(&head, &awaited);
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
    let telling = async {
        // A browser that has gone has brought its code all the same.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = tokio::time::timeout(PATIENCE, telling).await;
    code
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

/// The code of a request that is the page's: to this port by its address, so that no other name leads here, with a code and the
/// login's state and nothing else. A browser that says how it came has to have been sent here as a whole: no frame, no image, no script's
/// request.
fn code_in(head: &str, awaited: &Awaited) -> Option<String> {
    let mut lines = head.split("\r\n");
    let mut request = lines.next()?.split(' ');
    let (method, target, version) = (request.next()?, request.next()?, request.next()?);
    if method != "GET" || !version.starts_with("HTTP/1.") || request.next().is_some() {
        return None;
    }
    let mut host = None;
    for line in lines.take_while(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let fits = match name.to_ascii_lowercase().as_str() {
            "host" => host.replace(value).is_none(),
            "sec-fetch-mode" => value == "navigate",
            "sec-fetch-dest" => value == "document",
            _ => true,
        };
        if !fits {
            return None;
        }
    }
    if host? != format!("127.0.0.1:{}", awaited.port) {
        return None;
    }
    let (code, state) = target.strip_prefix(PATH)?.strip_prefix("?code=")?.split_once("&state=")?;
    let fits = code.len() == CODE
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        && constant_time_eq(state.as_bytes(), awaited.state.as_bytes());
    fits.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "abcdefghijklmnopqrst_-";

    fn request(target: &str, host: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n")
    }

    fn awaited() -> Awaited {
        Awaited { port: 4000, state: state_of("id") }
    }

    #[test]
    fn a_code_comes_by_the_address_alone_with_the_logins_state_and_nothing_else() {
        let awaited = awaited();
        let state = &awaited.state;
        // What the authority makes for this id (`server::authority::challenges::logins`).
        assert_eq!(state.len(), 43);
        let target = format!("/callback?code={GOOD}&state={state}");
        assert_eq!(code_in(&request(&target, "127.0.0.1:4000"), &awaited).as_deref(), Some(GOOD));
        let other = format!("/callback?code={GOOD}&state={}", state_of("other"));
        let (bare, longer) = (format!("/callback?code={GOOD}"), format!("{target}&more=1"));
        let swapped = format!("/callback?state={state}&code={GOOD}");
        let short = format!("/callback?code=short&state={state}");
        let escaped = format!("/callback?code=abcdefghijklmnopqrst_%2f&state={state}");
        for (target, host) in [
            (target.as_str(), "localhost:4000"),
            (target.as_str(), "rebound.example:4000"),
            (target.as_str(), "127.0.0.1:4001"),
            (other.as_str(), "127.0.0.1:4000"),
            (bare.as_str(), "127.0.0.1:4000"),
            (longer.as_str(), "127.0.0.1:4000"),
            (swapped.as_str(), "127.0.0.1:4000"),
            (short.as_str(), "127.0.0.1:4000"),
            (escaped.as_str(), "127.0.0.1:4000"),
            ("/favicon.ico", "127.0.0.1:4000"),
            ("/", "127.0.0.1:4000"),
        ] {
            assert_eq!(code_in(&request(target, host), &awaited), None, "{target} at {host}");
        }
        let posted = request(&target, "127.0.0.1:4000").replace("GET", "POST");
        assert_eq!(code_in(&posted, &awaited), None);
        let two = request(&target, "127.0.0.1:4000").replace("Accept", "Host");
        assert_eq!(code_in(&two, &awaited), None);
        assert_eq!(code_in("", &awaited), None);
    }

    #[test]
    fn a_code_is_taken_of_a_browser_that_was_sent_here_and_not_of_a_page_that_asks() {
        let awaited = awaited();
        let target = format!("/callback?code={GOOD}&state={}", awaited.state);
        let said = |mode: &str, dest: &str| {
            let said = format!("Sec-Fetch-Mode: {mode}\r\nsec-fetch-dest: {dest}\r\nAccept");
            code_in(&request(&target, "127.0.0.1:4000").replace("Accept", &said), &awaited)
        };
        assert_eq!(said("navigate", "document").as_deref(), Some(GOOD));
        for (mode, dest) in [("navigate", "iframe"), ("no-cors", "image"), ("cors", "empty"), ("", "")] {
            assert_eq!(said(mode, dest), None, "{mode} {dest}");
        }
    }

    #[tokio::test]
    async fn what_brings_no_code_is_not_waited_for() {
        let loopback = Loopback::bind().await.unwrap();
        let port = loopback.port();
        let state = state_of("id");
        let wanted = format!("/callback?code={GOOD}&state={state}");
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
            // A page that the person has open has no state.
            assert!(asking(format!("/callback?code={GOOD}")).await.starts_with("HTTP/1.1 404"));
            asking(wanted).await
        };
        let (code, answer) = tokio::join!(loopback.code(state), browser);
        assert_eq!(code, GOOD);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("You may close this page"), "{answer}");
    }

    #[tokio::test]
    async fn idle_connections_delay_nothing() {
        let loopback = Loopback::bind().await.unwrap();
        let port = loopback.port();
        let state = state_of("id");
        let asked = request(&format!("/callback?code={GOOD}&state={state}"), &format!("127.0.0.1:{port}"));
        let mut idle = Vec::new();
        for _ in 1..MOST_CONNECTIONS {
            idle.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
        }
        let began = tokio::time::Instant::now();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(asked.as_bytes()).await.unwrap();
        assert_eq!(loopback.code(state).await, GOOD);
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
        drop(idle);
    }
}
