//! As much of HTTP/1.1 as the tour's identity provider and the tour's browser say to each other: one message each way on a connection.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head and longest body of a message.
const HEAD_BYTES: usize = 16 * 1024;
const BODY_BYTES: usize = 256 * 1024;

/// A request, or an answer.
#[derive(Debug)]
pub(super) struct Message {
    /// The first line.
    pub(super) first: String,
    /// Names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Message {
    /// Reads one. A body has a length that is told (RFC 9112 §6.2); one in chunks is not read.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut head = Vec::new();
        // A byte at a time leaves the body where it is; the streams of these are small and local.
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD_BYTES {
                return Err(bad("the head of the message is too long"));
            }
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8(head).map_err(|_| bad("the head of the message is no text"))?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let mut headers = BTreeMap::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header has no colon"))?;
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        if headers.contains_key("transfer-encoding") {
            return Err(bad("the message comes in chunks"));
        }
        let length = match headers.get("content-length") {
            Some(length) => length.parse().map_err(|_| bad("the length of the body is no number"))?,
            None => 0,
        };
        if length > BODY_BYTES {
            return Err(bad("the body of the message is too long"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Ok(Self { first, headers, body })
    }

    /// The status of an answer.
    pub(super) fn status(&self) -> u16 {
        self.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }
}

/// Sends a message whole.
pub(super) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    first: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let mut message = format!("{first}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for (name, value) in headers {
        message.push_str(&format!("{name}: {value}\r\n"));
    }
    message.push_str("\r\n");
    let mut message = message.into_bytes();
    message.extend_from_slice(body);
    stream.write_all(&message).await?;
    stream.flush().await
}

/// The members of a query or a form (application/x-www-form-urlencoded); none of a text that is wrongly encoded.
pub(super) fn members(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter_map(|one| one.split_once('='));
    pairs.filter_map(|(name, value)| Some((decoded(name)?, decoded(value)?))).collect()
}

fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let value = digit(rest.next())? * 16 + digit(rest.next())?;
                u8::try_from(value).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A text as the value of a member.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        for text in ["", "plain", "a b&c=d%+ü/\u{1F511}"] {
            let form = format!("one={}&two={}", encoded(text), encoded("x"));
            let read = members(&form);
            assert_eq!((read["one"].as_str(), read["two"].as_str()), (text, "x"), "{form}");
        }
        assert!(members("a=%zz&b=%4&c=%ff").is_empty());
    }

    #[tokio::test]
    async fn a_message_is_read_within_bounds() {
        let read = async |text: String| Message::read(&mut text.as_bytes()).await;
        let message =
            read("POST /a HTTP/1.1\r\nContent-LENGTH: 2\r\nX: y:z\r\n\r\nok and more".to_owned()).await;
        let message = message.unwrap();
        assert_eq!((message.first.as_str(), &message.body[..]), ("POST /a HTTP/1.1", &b"ok"[..]));
        assert_eq!(message.headers["x"], "y:z");
        for broken in [
            "GET / HTTP/1.1\r\nHost: x\r\n".to_owned(),
            "GET / HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\nshort".to_owned(),
            format!("GET / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", BODY_BYTES + 1),
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(HEAD_BYTES)),
        ] {
            read(broken.clone()).await.unwrap_err();
        }
    }
}
