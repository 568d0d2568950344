//! Keys as SSH has them: blobs, lines of `authorized_keys` and `known_hosts`, certificates, and private keys, whose public
//! half stands in the clear.

use data_encoding::BASE64;
use sallyport_sal::strength::{Curve, Digest, Problem};

use super::der;
use super::found::{Found, Key, Signature, printable};

/// Fields of RFC 4251 §5, bounded by what there is.
#[derive(Debug, Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u32> {
        let (digits, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*digits))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

const CERTIFICATE: &str = "-cert-v01@openssh.com";

/// The key in a blob: a public key (RFC 4253 §6.6), or a certificate of OpenSSH's (PROTOCOL.certkeys) with the key of the
/// CA that signed it.
pub(crate) fn blob(bytes: &[u8]) -> Option<Vec<Found>> {
    let mut fields = Fields(bytes);
    let name = std::str::from_utf8(fields.string()?).ok()?;
    if name.is_empty() || name.len() > 64 || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let Some(plain) = name.strip_suffix(CERTIFICATE) else {
        return Some(vec![Found::new(name, key(name, &mut fields)?)]);
    };
    // A hardware key's certificate has the address at the end of its name alone.
    let plain = if plain.starts_with("sk-") { format!("{plain}@openssh.com") } else { plain.to_owned() };
    fields.string()?;
    let subject = key(&plain, &mut fields)?;
    fields.skip(8)?;
    let role = match fields.number()? {
        1 => "user",
        2 => "host",
        _ => "unknown",
    };
    let id = printable(fields.string()?);
    fields.string()?;
    fields.skip(16)?;
    fields.string()?;
    fields.string()?;
    fields.string()?;
    let authority = fields.string()?;
    let made = fields.string().and_then(|signature| Fields(signature).string()).map(signature);
    let mut found = Found::new(format!("{name}, {role} certificate {id:?}"), subject);
    found.signature = made;
    let mut both = vec![found];
    // A certificate is not signed by a certificate, so this ends.
    let mut authority_fields = Fields(authority);
    let authority_name = std::str::from_utf8(authority_fields.string()?).ok()?;
    if !authority_name.ends_with(CERTIFICATE) {
        let mut found = Found::new(
            format!("{}, the CA's key", printable(authority_name.as_bytes())),
            key(authority_name, &mut authority_fields)?,
        );
        found.place = "CA".to_owned();
        both.push(found);
    }
    Some(both)
}

fn key(name: &str, fields: &mut Fields<'_>) -> Option<Key> {
    Some(match name {
        "ssh-rsa" | "rsa-sha2-256" | "rsa-sha2-512" => {
            fields.string()?;
            Key::rsa(der::bits(fields.string()?))
        }
        "ssh-dss" => {
            let prime_bits = der::bits(fields.string()?);
            let order_bits = der::bits(fields.string()?);
            fields.string()?;
            fields.string()?;
            Key::Known(Problem::Dsa { prime_bits, order_bits })
        }
        "ssh-ed25519" | "sk-ssh-ed25519@openssh.com" => {
            fields.string().filter(|raw| raw.len() == 32)?;
            if name.starts_with("sk-") {
                fields.string()?;
            }
            Key::Known(Problem::Curve(Curve::Ed25519))
        }
        "ssh-ed448" => {
            fields.string().filter(|raw| raw.len() == 57)?;
            Key::Known(Problem::Curve(Curve::Ed448))
        }
        _ if name.starts_with("ecdsa-sha2-") || name.starts_with("sk-ecdsa-sha2-") => {
            let curve = std::str::from_utf8(fields.string()?).ok()?;
            fields.string()?;
            if name.starts_with("sk-") {
                fields.string()?;
            }
            match curve {
                "nistp256" => Key::Known(Problem::Curve(Curve::P256)),
                "nistp384" => Key::Known(Problem::Curve(Curve::P384)),
                "nistp521" => Key::Known(Problem::Curve(Curve::P521)),
                _ => {
                    Key::Unknown(format!("a curve that is not known here, {:?}", printable(curve.as_bytes())))
                }
            }
        }
        _ => Key::Unknown(format!("a key of a type that is not known here, {name}")),
    })
}

/// The name of a signature's algorithm, and its hash.
fn signature(name: &[u8]) -> Signature {
    let name = printable(name);
    let digest = match name.as_str() {
        "ssh-rsa" | "ssh-dss" => Some(Digest::Sha1),
        "rsa-sha2-256" | "ecdsa-sha2-nistp256" | "sk-ecdsa-sha2-nistp256@openssh.com" => Some(Digest::Sha256),
        "ecdsa-sha2-nistp384" => Some(Digest::Sha384),
        "rsa-sha2-512" | "ecdsa-sha2-nistp521" | "ssh-ed25519" | "sk-ssh-ed25519@openssh.com" => {
            Some(Digest::Sha512)
        }
        _ => None,
    };
    Signature { name, digest, matters: true, own: false }
}

/// Lines that hold neither a key nor a comment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Odd {
    count: usize,
    /// The numbers of the first ones.
    first: Vec<usize>,
}

impl Odd {
    /// Numbers that are named.
    const NAMED: usize = 10;

    fn add(&mut self, number: usize) {
        self.count += 1;
        if self.first.len() < Self::NAMED {
            self.first.push(number);
        }
    }

    /// Which they are; none when there are none.
    pub(super) fn note(&self) -> Option<String> {
        let names = self.first.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self.count {
            0 => None,
            1 => Some(format!("line {names} holds no key that is known here")),
            count if count > self.first.len() => Some(format!(
                "{count} lines hold no key that is known here: {names} and {} more",
                count - self.first.len()
            )),
            count => Some(format!("{count} lines hold no key that is known here: {names}")),
        }
    }
}

/// Keys of a file with a key in each line, as `.pub`, `authorized_keys` and `known_hosts` have them, and the lines that
/// hold neither a key nor a comment.
pub(super) fn lines(text: &[u8]) -> (Vec<Found>, Odd) {
    let (mut all, mut odd) = (Vec::new(), Odd::default());
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match std::str::from_utf8(line).ok().and_then(keys_in_line) {
            Some(keys) => {
                for mut found in keys {
                    let inner = std::mem::take(&mut found.place);
                    found.place = format!("line {}", number + 1);
                    if !inner.is_empty() {
                        found.place = format!("{}, {inner}", found.place);
                    }
                    all.push(found);
                }
            }
            None => odd.add(number + 1),
        }
    }
    (all, odd)
}

/// Options or host names may stand before the type: the key is where a word is followed by base64 that begins with it.
fn keys_in_line(line: &str) -> Option<Vec<Found>> {
    let words = words(line);
    let (at, mut keys) =
        words.iter().zip(words.iter().skip(1)).enumerate().find_map(|(at, (name, data))| {
            // Four bytes of length and the name, before anything is decoded.
            if name.len() > 64 || data.len() < name.len() || !data.starts_with("AAAA") {
                return None;
            }
            let bytes = BASE64
                .decode(data.as_bytes())
                .ok()
                .or_else(|| data_encoding::BASE64_NOPAD.decode(data.trim_end_matches('=').as_bytes()).ok())?;
            (Fields(&bytes).string()? == name.as_bytes()).then(|| blob(&bytes))?.map(|keys| (at, keys))
        })?;
    let before = words.get(..at).unwrap_or_default();
    let said = match before {
        [] => words.get(at + 2).map(|comment| printable(comment.as_bytes())),
        [marker, host, ..] if marker.starts_with('@') => {
            Some(format!("{}, {}", printable(marker.trim_start_matches('@').as_bytes()), host_name(host)))
        }
        [one, ..] if one.contains("cert-authority") => Some("cert-authority".to_owned()),
        [one, ..] if is_options(one) => Some(
            words
                .get(at + 2)
                .map_or_else(|| "with options".to_owned(), |comment| printable(comment.as_bytes())),
        ),
        [host, ..] => Some(host_name(host)),
    };
    if let (Some(first), Some(said)) = (keys.first_mut(), said) {
        first.what = format!("{} ({said})", first.what);
    }
    Some(keys)
}

/// Whether a word before a key is a list of options of `authorized_keys` (sshd(8)) and not of hosts.
fn is_options(word: &str) -> bool {
    const PLAIN: &[&str] =
        &["restrict", "pty", "user-rc", "verify-required", "touch-required", "x11-forwarding"];
    word.contains('=') && !word.starts_with('|')
        || word.split(',').any(|option| {
            let option = option.to_ascii_lowercase();
            option.starts_with("no-") || option.ends_with("-forwarding") || PLAIN.contains(&option.as_str())
        })
}

fn host_name(host: &str) -> String {
    if host.starts_with("|1|") { "a hashed host".to_owned() } else { printable(host.as_bytes()) }
}

/// Words between blanks, of which those in quotes are none.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut start, mut quoted, mut escaped) = (Vec::new(), None, false, false);
    for (at, letter) in line.char_indices() {
        if letter == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = letter == '\\' && !escaped;
        if letter.is_ascii_whitespace() && !quoted {
            if let Some(word) = start.take().and_then(|start| line.get(start..at)) {
                words.push(word);
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    words.extend(start.and_then(|start| line.get(start..)));
    words
}

/// A private key as OpenSSH writes it (PROTOCOL.key): the public half is in the clear, encrypted or not.
pub(super) fn private(bytes: &[u8]) -> Option<Vec<Found>> {
    let mut fields = Fields(bytes.strip_prefix(b"openssh-key-v1\0")?);
    let cipher = fields.string()?;
    fields.string()?;
    fields.string()?;
    let count = fields.number()?;
    let what = if cipher == b"none" { "private key" } else { "encrypted private key, its public half" };
    let mut all = Vec::new();
    // No tool writes more than one; so many are looked at.
    for _ in 0..count.min(16) {
        for mut found in blob(fields.string()?)? {
            if found.place.is_empty() {
                found.what = format!("{what}, {}", found.what);
            }
            all.push(found);
        }
    }
    (!all.is_empty()).then_some(all)
}

/// The public half of a file of PuTTY's, or a public key as RFC 4716 has it.
pub(super) fn foreign(text: &str) -> Option<Vec<Found>> {
    let mut rows = text.lines().map(str::trim_end);
    let first = rows.next()?;
    let base64: String = if first.starts_with("PuTTY-User-Key-File-") {
        let count = rows.find_map(|row| row.strip_prefix("Public-Lines: "))?.trim().parse::<usize>().ok()?;
        rows.take(count.min(4096)).collect()
    } else {
        // A header goes on in the next line when its own ends with a backslash.
        let mut header = false;
        rows.take_while(|row| !row.starts_with("---- END "))
            .filter(|row| {
                let within = header || row.contains(':');
                header = within && row.ends_with('\\');
                !within
            })
            .collect()
    };
    blob(&BASE64.decode(base64.as_bytes()).ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LINE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGDT0PVEKZTwqzZ6yQNkFhVYJlJPfjrHRZlHQWzgzEO me@here";

    #[test]
    fn a_key_is_found_behind_options_and_hosts() {
        for (line, said) in [
            (LINE.to_owned(), "ssh-ed25519 (me@here)"),
            (format!("command=\"echo \\\"a b\\\" ssh-rsa AAAA\",no-pty {LINE}"), "ssh-ed25519 (me@here)"),
            (format!("cert-authority,principals=\"a,b\" {LINE}"), "ssh-ed25519 (cert-authority)"),
            (format!("restrict {LINE}"), "ssh-ed25519 (me@here)"),
            (format!("@cert-authority *.example.com {LINE}"), "ssh-ed25519 (cert-authority, *.example.com)"),
            (format!("[host]:2222,10.0.0.1 {LINE}"), "ssh-ed25519 ([host]:2222,10.0.0.1)"),
            (format!("|1|F1E=|aa= {LINE}"), "ssh-ed25519 (a hashed host)"),
        ] {
            let (found, odd) = lines(line.as_bytes());
            assert_eq!((found.len(), odd.note()), (1, None), "{line}");
            assert_eq!(found.first().unwrap().what, said, "{line}");
            assert_eq!(found.first().unwrap().key, Key::Known(Problem::Curve(Curve::Ed25519)));
        }
    }

    #[test]
    fn lines_that_hold_no_key_are_named() {
        let text = format!(
            "# a comment\n\n{LINE}\r\nnonsense\nssh-rsa AAAAB3NzaC1kc3MAAA==\n1024 65537 123\n{LINE}"
        );
        let (found, odd) = lines(text.as_bytes());
        let places: Vec<&str> = found.iter().map(|found| found.place.as_str()).collect();
        assert_eq!(places, ["line 3", "line 7"]);
        assert_eq!(odd.note().unwrap(), "3 lines hold no key that is known here: 4, 5, 6");
        let (_, odd) = lines(format!("{LINE}\nnonsense").as_bytes());
        assert_eq!(odd.note().unwrap(), "line 2 holds no key that is known here");
        let (_, odd) = lines("nonsense\n".repeat(1000).as_bytes());
        let note = odd.note().unwrap();
        assert!(
            note.starts_with("1000 lines ") && note.ends_with(" 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 990 more"),
            "{note}"
        );
    }

    #[test]
    fn lengths_past_the_end_are_no_key() {
        for bytes in [
            &b""[..],
            b"\0\0\0\x07ssh-rsa",
            b"\0\0\0\x07ssh-rsa\0\0\0\x01\x03\xff\xff\xff\xff\0",
            b"\xff\xff\xff\xff",
        ] {
            assert_eq!(blob(bytes), None, "{bytes:?}");
        }
        assert_eq!(private(b"openssh-key-v1\0\0\0\0\x04none\0\0\0\x04none\0\0\0\0\xff\xff\xff\xff"), None);
    }
}
