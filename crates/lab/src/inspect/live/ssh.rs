//! The host keys of an SSH server. A server sends its key in the clear, in the answer to the client's share of the key
//! exchange (RFC 8731 §3, RFC 4253 §8); so a share that means nothing is enough, and no session is ever set up.

use std::io::{Read, Write};

use sallyport_ssh::capabilities::{Reader, SshOffer};

use super::bounded::{Bounded, Server, is_late};
use crate::LabError;
use crate::inspect::found::{Contents, Found};

/// Who we say we are.
const GREETING: &[u8] = b"SSH-2.0-SallyportLab\r\n";
const SSH_MSG_KEXINIT: u8 = 20;
/// SSH_MSG_KEX_ECDH_INIT, and SSH_MSG_KEXDH_INIT.
const SHARE: u8 = 30;
/// SSH_MSG_KEX_ECDH_REPLY, and SSH_MSG_KEXDH_REPLY.
const REPLY: u8 = 31;
/// Longest packet that every implementation must be able to read (RFC 4253 §6.1), and a reply with a large certificate.
const LONGEST_PACKET: usize = 1 << 18;
/// Keys that are asked for at most: each takes a connection, and servers count those that do not log in.
const MOST_KEYS: usize = 8;

/// All host keys, each by the algorithm that the server prefers for it.
pub(super) fn host_keys(server: &Server, first: Bounded) -> Result<Contents, LabError> {
    let mut contents = Contents::default();
    let mut stream = Some(first);
    let mut asked: Vec<String> = Vec::new();
    let mut known: Vec<Vec<u8>> = Vec::new();
    while asked.len() < MOST_KEYS {
        let connection = match stream.take() {
            Some(stream) => Ok(stream),
            None => server.connect(),
        };
        let answer = connection.and_then(|stream| ask(server, stream, &asked));
        match answer {
            Ok(None) => break,
            Ok(Some((algorithm, blob))) => {
                if !known.contains(&blob) {
                    match super::super::blob(&blob) {
                        Some(found) => contents.found.extend(found.into_iter().map(|found| Found {
                            place: if found.place.is_empty() {
                                "host key".to_owned()
                            } else {
                                "host CA".to_owned()
                            },
                            ..found
                        })),
                        None => contents.notes.push(format!("the host key for {algorithm} cannot be read")),
                    }
                    known.push(blob);
                }
                asked.push(algorithm);
            }
            Err(error) if contents.found.is_empty() => return Err(error),
            // What there is, is worth something; what is missing is said.
            Err(error) => {
                contents.notes.push(format!("not every host key was had: {error}"));
                break;
            }
        }
    }
    if contents.found.is_empty() {
        return Err(server.says("it speaks SSH and shows no host key that can be read"));
    }
    Ok(contents)
}

/// The name of a signature algorithm without what does not change the key: RSA has three that use the same one.
fn key_type(algorithm: &str) -> &str {
    match algorithm {
        "rsa-sha2-256" | "rsa-sha2-512" => "ssh-rsa",
        "rsa-sha2-256-cert-v01@openssh.com" | "rsa-sha2-512-cert-v01@openssh.com" => {
            "ssh-rsa-cert-v01@openssh.com"
        }
        other => other,
    }
}

/// One more host key than those that were `asked` for, with its algorithm; none when there is no other.
fn ask(
    server: &Server,
    mut stream: Bounded,
    asked: &[String],
) -> Result<Option<(String, Vec<u8>)>, LabError> {
    let lost = |error: std::io::Error| {
        if is_late(&error) || error.get_ref().is_none() {
            server.lost(&error)
        } else {
            server.says(&error.to_string())
        }
    };
    stream.write_all(GREETING).map_err(lost)?;
    let offer = offer(&mut stream).map_err(lost)?;
    let known = |algorithm: &&String| asked.iter().any(|one| key_type(one) == key_type(algorithm));
    let Some(algorithm) = offer.host_key_algorithms.iter().find(|one| !known(one)) else { return Ok(None) };
    let Some((exchange, share)) = offer.kex.iter().find_map(|name| share(name).map(|share| (name, share)))
    else {
        return Err(server.says(&format!(
            "it speaks SSH and has no key exchange that is known here, only {}",
            offer.kex.join(", ")
        )));
    };
    let hello = kexinit(&offer, exchange, algorithm);
    stream.write_all(&packet(&hello)).and_then(|()| stream.write_all(&packet(&share))).map_err(lost)?;
    loop {
        let payload = read_packet(&mut stream).map_err(lost)?;
        match payload.split_first() {
            Some((&REPLY, rest)) => {
                let blob =
                    string(rest).ok_or_else(|| server.says("its answer to the key exchange is malformed"))?;
                return Ok(Some((algorithm.clone(), blob.to_vec())));
            }
            // SSH_MSG_DISCONNECT has a reason, then a description.
            Some((1, rest)) => {
                let words = rest.get(4..).and_then(string).unwrap_or_default();
                return Err(
                    server.says(&format!("it ended the SSH connection: {}", super::super::printable(words)))
                );
            }
            // SSH_MSG_IGNORE, UNIMPLEMENTED, DEBUG: the bound on bytes and time ends a flood.
            Some((2..=4, _)) => {}
            _ => return Err(server.says("it answers the key exchange with something else")),
        }
    }
}

/// Reads the identification and the algorithms.
fn offer(stream: &mut Bounded) -> std::io::Result<SshOffer> {
    let mut reader = Reader::default();
    // Byte by byte as far as the algorithms begin, so that nothing after them is taken.
    let mut byte = [0];
    while reader.software().is_none() {
        stream.read_exact(&mut byte)?;
        if let Some(answer) = reader.read(&byte) {
            return answer.map_err(std::io::Error::other);
        }
    }
    loop {
        let bytes = raw_packet(stream)?;
        if let Some(answer) = reader.read(&bytes) {
            return answer.map_err(std::io::Error::other);
        }
    }
}

/// A packet with its length and padding (RFC 4253 §6).
fn raw_packet(stream: &mut Bounded) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let count = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if count > LONGEST_PACKET {
        return Err(std::io::Error::other("it sends a packet that is longer than any real one"));
    }
    let mut bytes = vec![0; count + 4];
    let (head, body) = bytes.split_at_mut(4);
    head.copy_from_slice(&length);
    stream.read_exact(body)?;
    Ok(bytes)
}

fn read_packet(stream: &mut Bounded) -> std::io::Result<Vec<u8>> {
    let bytes = raw_packet(stream)?;
    let malformed = || std::io::Error::other("it sends a malformed packet");
    let (padding, rest) = bytes.get(4..).and_then(<[u8]>::split_first).ok_or_else(malformed)?;
    let length = rest.len().checked_sub(usize::from(*padding)).ok_or_else(malformed)?;
    Ok(rest.get(..length).unwrap_or_default().to_vec())
}

fn packet(payload: &[u8]) -> Vec<u8> {
    // A multiple of eight altogether, and four bytes of padding at least.
    let padding = 8 - (payload.len() + 5) % 8;
    let padding = if padding < 4 { padding + 8 } else { padding };
    let length = u32::try_from(payload.len() + 1 + padding).unwrap_or_default();
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.push(u8::try_from(padding).unwrap_or_default());
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + padding, 0);
    bytes
}

fn string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

fn put_string(into: &mut Vec<u8>, content: &[u8]) {
    into.extend_from_slice(&u32::try_from(content.len()).unwrap_or_default().to_be_bytes());
    into.extend_from_slice(content);
}

/// One algorithm of each kind, so that there is nothing to negotiate (RFC 4253 §7.1).
fn kexinit(offer: &SshOffer, exchange: &str, host_key: &str) -> Vec<u8> {
    let first = |names: &[String]| names.first().cloned().unwrap_or_default();
    let (cipher, mac, compression) = (first(&offer.ciphers), first(&offer.macs), first(&offer.compression));
    let mut message = vec![SSH_MSG_KEXINIT];
    message.extend_from_slice(&[0x53; 16]);
    for list in [exchange, host_key, &cipher, &cipher, &mac, &mac, &compression, &compression, "", ""] {
        put_string(&mut message, list.as_bytes());
    }
    message.extend_from_slice(&[0; 5]);
    message
}

/// The message with a client's share that is well-formed and has no secret behind it; none for an exchange that needs
/// more than one message.
fn share(exchange: &str) -> Option<Vec<u8>> {
    // The generators of curve25519 and of P-256.
    let mut x25519 = [0; 32];
    if let Some(first) = x25519.first_mut() {
        *first = 9;
    }
    const P256: [u8; 65] = [
        0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2,
        0x77, 0x03, 0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f,
        0xe3, 0x42, 0xe2, 0xfe, 0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce,
        0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce, 0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
    ];
    let content = match exchange {
        "curve25519-sha256" | "curve25519-sha256@libssh.org" => x25519.to_vec(),
        "ecdh-sha2-nistp256" => P256.to_vec(),
        // Zeros are an encapsulation key of ML-KEM-768, and a public key of sntrup761, in form.
        "mlkem768x25519-sha256" => [&[0; 1184][..], &x25519].concat(),
        "sntrup761x25519-sha512" | "sntrup761x25519-sha512@openssh.com" => [&[0; 1158][..], &x25519].concat(),
        // A number between 1 and every one of these primes, with enough bits set for those who count them.
        "diffie-hellman-group1-sha1"
        | "diffie-hellman-group14-sha1"
        | "diffie-hellman-group14-sha256"
        | "diffie-hellman-group15-sha512"
        | "diffie-hellman-group16-sha512"
        | "diffie-hellman-group17-sha512"
        | "diffie-hellman-group18-sha512" => [&[0x55][..], &[0xaa; 120]].concat(),
        _ => return None,
    };
    let mut message = vec![SHARE];
    put_string(&mut message, &content);
    Some(message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn packets_are_padded_as_the_standard_says() {
        for length in 0..40 {
            let packet = packet(&vec![7; length]);
            let padding = usize::from(*packet.get(4).unwrap());
            assert!(packet.len().is_multiple_of(8) && padding >= 4, "{length}: {packet:?}");
            assert_eq!(packet.len(), 5 + length + padding);
            assert_eq!(string(&packet).map(<[u8]>::len), Some(packet.len() - 4));
        }
    }

    #[test]
    fn rsa_is_asked_for_once() {
        assert_eq!(key_type("rsa-sha2-512"), key_type("ssh-rsa"));
        assert_ne!(key_type("ssh-ed25519-cert-v01@openssh.com"), key_type("ssh-ed25519"));
    }

    #[test]
    fn our_list_of_algorithms_reads_as_one() {
        let names = |name: &str| vec![name.to_owned()];
        let offer = SshOffer {
            ciphers: names("c"),
            macs: names("m"),
            compression: names("none"),
            ..SshOffer::default()
        };
        let message = packet(&kexinit(&offer, "curve25519-sha256", "ssh-ed25519"));
        let mut reader = Reader::default();
        assert!(reader.read(b"SSH-2.0-x\r\n").is_none());
        let read = reader.read(&message).unwrap().unwrap();
        assert_eq!((read.kex, read.host_key_algorithms), (names("curve25519-sha256"), names("ssh-ed25519")));
        assert!(
            share("mlkem768x25519-sha256").unwrap().len() == 5 + 1216
                && share("diffie-hellman-group-exchange-sha256").is_none()
        );
    }
}
