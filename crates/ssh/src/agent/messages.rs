//! The messages of the SSH agent protocol that are used here (draft-miller-ssh-agent §5), and what a login has signed.

use data_encoding::BASE64;

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
const EXTENSION: u8 = 27;
const EXTENSION_FAILURE: u8 = 28;
/// Has an RSA key sign by `rsa-sha2-512` (§5.6.1).
const RSA_SHA2_512: u32 = 4;
/// OpenSSH's PROTOCOL.agent §1.
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";
/// SSH_MSG_USERAUTH_REQUEST (RFC 4252 §6).
const USERAUTH_REQUEST: u8 = 50;
/// Identities that an agent may answer with.
const MAX_IDENTITIES: usize = 512;

/// Fields, read in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.take(length)
    }

    /// Something, when nothing is left.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// What an agent is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Question<'a> {
    /// Which keys it has.
    Identities,
    /// To remember which server a login is for: that server's host key has signed the session.
    Bind { host_key: &'a [u8], session: &'a [u8], signature: &'a [u8], forwarding: bool },
    /// To sign.
    Sign { key: &'a [u8], data: &'a [u8], rsa: bool },
}

impl<'a> Question<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Identities => vec![REQUEST_IDENTITIES],
            Self::Bind { host_key, session, signature, forwarding } => {
                let mut out = vec![EXTENSION];
                for field in [SESSION_BIND, host_key, session, signature] {
                    put(&mut out, field);
                }
                out.push(u8::from(*forwarding));
                out
            }
            Self::Sign { key, data, rsa } => {
                let mut out = vec![SIGN_REQUEST];
                put(&mut out, key);
                put(&mut out, data);
                out.extend_from_slice(&if *rsa { RSA_SHA2_512 } else { 0 }.to_be_bytes());
                out
            }
        }
    }

    /// None for any other message, and for those that are not well formed.
    pub(super) fn read(message: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(message);
        match fields.u8()? {
            REQUEST_IDENTITIES => fields.end(Self::Identities),
            SIGN_REQUEST => {
                let (key, data, flags) = (fields.string()?, fields.string()?, fields.u32()?);
                fields.end(Self::Sign { key, data, rsa: flags & RSA_SHA2_512 != 0 })
            }
            EXTENSION if fields.string()? == SESSION_BIND => {
                let (host_key, session) = (fields.string()?, fields.string()?);
                let (signature, forwarding) = (fields.string()?, fields.u8()? != 0);
                fields.end(Self::Bind { host_key, session, signature, forwarding })
            }
            _ => None,
        }
    }
}

/// What an agent answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Failed,
    /// The public keys, or certificates, that it has.
    Identities(Vec<Vec<u8>>),
    Signature(Vec<u8>),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => vec![SUCCESS],
            Self::Failed => vec![FAILURE],
            Self::Identities(keys) => {
                let mut out = vec![IDENTITIES_ANSWER];
                out.extend_from_slice(&u32::try_from(keys.len()).unwrap_or(u32::MAX).to_be_bytes());
                for key in keys {
                    put(&mut out, key);
                    put(&mut out, b"");
                }
                out
            }
            Self::Signature(signature) => {
                let mut out = vec![SIGN_RESPONSE];
                put(&mut out, signature);
                out
            }
        }
    }

    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let mut fields = Fields(message);
        match fields.u8()? {
            SUCCESS => Some(Self::Done),
            FAILURE | EXTENSION_FAILURE => Some(Self::Failed),
            IDENTITIES_ANSWER => {
                let count = usize::try_from(fields.u32()?).ok().filter(|count| *count <= MAX_IDENTITIES)?;
                let mut keys = Vec::new();
                for _ in 0..count {
                    keys.push(fields.string()?.to_vec());
                    fields.string()?;
                }
                fields.end(Self::Identities(keys))
            }
            SIGN_RESPONSE => {
                let signature = fields.string()?.to_vec();
                fields.end(Self::Signature(signature))
            }
            _ => None,
        }
    }
}

/// What is signed to log in with a public key (RFC 4252 §7).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoginRequest<'a> {
    pub(super) session: &'a [u8],
    pub(super) login: &'a [u8],
    pub(super) scheme: &'a [u8],
    pub(super) key: &'a [u8],
}

impl<'a> LoginRequest<'a> {
    /// None for anything else that might be signed.
    pub(super) fn read(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let session = fields.string()?;
        if fields.u8()? != USERAUTH_REQUEST {
            return None;
        }
        let login = fields.string()?;
        if fields.string()? != b"ssh-connection" || fields.string()? != b"publickey" || fields.u8()? != 1 {
            return None;
        }
        let (scheme, key) = (fields.string()?, fields.string()?);
        fields.end(Self { session, login, scheme, key })
    }
}

/// A certificate or key from its bytes on the wire, as one OpenSSH line.
pub(super) fn line(blob: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(Fields(blob).string()?).ok()?;
    Some(format!("{name} {}", BASE64.encode(blob)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_survive_the_way_and_no_part_of_one_is_one() {
        let questions = [
            Question::Identities,
            Question::Bind { host_key: b"key", session: b"session", signature: b"sig", forwarding: true },
            Question::Sign { key: b"key", data: b"data", rsa: true },
            Question::Sign { key: b"", data: b"", rsa: false },
        ];
        for question in questions {
            let bytes = question.encode();
            assert_eq!(Question::read(&bytes).as_ref(), Some(&question));
            assert_eq!(Question::read(&[&bytes[..], b"x"].concat()), None);
            for end in 0..bytes.len() {
                assert_eq!(Question::read(bytes.get(..end).unwrap()), None, "{question:?}, {end} bytes");
            }
        }
        let answers = [
            Answer::Done,
            Answer::Failed,
            Answer::Identities(vec![b"one".to_vec(), Vec::new()]),
            Answer::Signature(b"signature".to_vec()),
        ];
        for answer in answers {
            let bytes = answer.encode();
            assert_eq!(Answer::read(&bytes).as_ref(), Some(&answer));
            for end in 0..bytes.len() {
                assert_eq!(Answer::read(bytes.get(..end).unwrap()), None, "{answer:?}, {end} bytes");
            }
        }
    }

    #[test]
    fn what_an_agent_could_do_besides_is_no_question_here() {
        // Adding and removing keys, smart cards, locking, and extensions of other names.
        for kind in [1, 9, 17, 18, 19, 20, 21, 22, 23, 25, 26, 255] {
            assert_eq!(Question::read(&[kind]), None, "{kind}");
        }
        let mut other = vec![EXTENSION];
        put(&mut other, b"query");
        assert_eq!(Question::read(&other), None);
    }

    proptest! {
        #[test]
        fn nothing_breaks_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Question::read(&bytes);
            let _ = Answer::read(&bytes);
            let _ = LoginRequest::read(&bytes);
            let _ = line(&bytes);
        }
    }
}
