//! What the client of a random exchange says.

use crate::postgres::message::encode;

/// A message of the client's.
#[derive(Debug, Clone)]
pub(super) enum Message {
    Query(String),
    Parse(String, String),
    Bind(String, String),
    Execute(String),
    Describe(bool, String),
    Close(bool, String),
    Sync,
    Data,
    Done,
    Fail,
}

impl Message {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let texts =
            |texts: &[&str]| texts.iter().flat_map(|text| [text.as_bytes(), b"\0"].concat()).collect();
        let named = |portal: bool, name: &str| {
            [if portal { &b"P"[..] } else { b"S" }, name.as_bytes(), b"\0"].concat()
        };
        let (kind, content): (u8, Vec<u8>) = match self {
            Self::Query(text) => (b'Q', texts(&[text])),
            Self::Parse(name, text) => (b'P', [texts(&[name, text]), vec![0, 0]].concat()),
            Self::Bind(portal, name) => (b'B', [texts(&[portal, name]), vec![0; 6]].concat()),
            Self::Execute(portal) => (b'E', [texts(&[portal]), vec![0; 4]].concat()),
            Self::Describe(portal, name) => (b'D', named(*portal, name)),
            Self::Close(portal, name) => (b'C', named(*portal, name)),
            Self::Sync => (b'S', Vec::new()),
            Self::Data => (b'd', b"1\n".to_vec()),
            Self::Done => (b'c', Vec::new()),
            Self::Fail => (b'f', b"no\0".to_vec()),
        };
        encode(kind, &content)
    }
}
