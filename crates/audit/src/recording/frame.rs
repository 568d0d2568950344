//! What a recording holds.

use std::time::Duration;

use bytes::Bytes;
use sallyport_access::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;

use super::database::DatabaseFrame;

/// Whose session it was, where and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMetadata {
    /// The session.
    pub session_id: SessionId,
    /// The cluster's name.
    pub cluster: String,
    /// Who.
    pub user: String,
    /// As which account.
    pub login: String,
    /// On which node.
    pub node: String,
    /// The node's id.
    pub node_id: String,
    /// Where the client was.
    #[serde(default)]
    pub source: String,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub started: OffsetDateTime,
    /// `shell`, `exec`, `sftp`, `forward` or `db`. A session with a database has its name as `node`, and the database user
    /// as `login`.
    pub kind: String,
    /// The command, for `exec`; the name of the database on its server, for `db`.
    #[serde(default)]
    pub command: Option<String>,
    /// The kind of terminal, when there is one.
    #[serde(default)]
    pub term: Option<String>,
    /// Columns and rows of the terminal at the beginning.
    #[serde(default)]
    pub size: Option<(u32, u32)>,
    /// What the client calls itself (`application_name`), for `db`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With this status.
    Status(u32),
    /// By this signal, such as `TERM`.
    Signal(String),
    /// It was cut off, and why.
    Cut(String),
}

/// One thing that a session showed or did, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Since the session began, in microseconds on the wire.
    #[serde(rename = "at_us", serialize_with = "write_micros", deserialize_with = "read_micros")]
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub body: Body,
}

/// What one frame holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum Body {
    /// The beginning.
    Start(Box<SessionMetadata>),
    /// Bytes that the session wrote: standard output, and standard error of a session without a terminal.
    #[serde(with = "readable")]
    Output(Bytes),
    /// Bytes that the user typed; recorded only where that is asked for.
    #[serde(with = "readable")]
    Input(Bytes),
    /// The terminal has a new size.
    Resize {
        /// Columns.
        cols: u32,
        /// Rows.
        rows: u32,
    },
    /// A command was run.
    Exec {
        /// The command line.
        command: String,
    },
    /// A file operation.
    Sftp {
        /// Such as `open`, `remove`, `rename`.
        operation: String,
        /// The file.
        path: String,
        /// The other file, or what else belongs to the operation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Whether it was done.
        success: bool,
    },
    /// A connection was forwarded beside the session, or one ended.
    PortForward {
        /// Where to; for `remote`, where the node listens.
        target: String,
        /// Who began it.
        #[serde(default, skip_serializing_if = "Direction::is_local")]
        direction: Direction,
        /// The connection's end, when this tells of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<ForwardEnd>,
    },
    /// What was said in a session with a database.
    Database(Box<DatabaseFrame>),
    /// Something that a viewer should know, such as a gap.
    Note {
        /// In words.
        text: String,
    },
    /// The end.
    Exit(Exit),
}

/// Who began a forwarded connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The client, towards something that the node can reach (`ssh -L`, `-D`, `-W`).
    #[default]
    Local,
    /// A peer that connected to where the node listens for the client (`ssh -R`).
    Remote,
    /// A program of the session, towards the client's display.
    X11,
}

impl Direction {
    /// As events name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::X11 => "x11",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
    fn is_local(&self) -> bool {
        *self == Self::Local
    }
}

/// What went through a forwarded connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardEnd {
    /// Bytes that came from the client.
    pub bytes_in: u64,
    /// Bytes that went to the client.
    pub bytes_out: u64,
}

fn write_micros<S: Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(at.as_micros()).unwrap_or(u64::MAX))
}

fn read_micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_micros)
}

/// Text as text, everything else as base64, so that people can read it and nothing is lost.
mod readable {
    use bytes::Bytes;
    use data_encoding::BASE64;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Readable {
        Text(String),
        Base64 { base64: String },
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Readable::Base64 { base64: BASE64.encode(bytes) }.serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        match Readable::deserialize(deserializer)? {
            Readable::Text(text) => Ok(Bytes::from(text)),
            Readable::Base64 { base64 } => {
                BASE64.decode(base64.as_bytes()).map(Bytes::from).map_err(serde::de::Error::custom)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_well_as_json() {
        let at = Duration::from_micros(1_500_000);
        let text = |body| serde_json::to_string(&Frame { at, body }).unwrap();
        assert_eq!(
            text(Body::Output(Bytes::from_static(b"hi\r\n"))),
            r#"{"at_us":1500000,"type":"output","data":"hi\r\n"}"#
        );
        assert_eq!(
            text(Body::Output(Bytes::from_static(b"\xff"))),
            r#"{"at_us":1500000,"type":"output","data":{"base64":"/w=="}}"#
        );
        assert_eq!(
            text(Body::Exit(Exit::Status(3))),
            r#"{"at_us":1500000,"type":"exit","data":{"status":3}}"#
        );
        for body in [
            Body::Output(Bytes::from_static(b"\xff\xfe")),
            Body::Input(Bytes::from_static(b"ls\n")),
            Body::Resize { cols: 80, rows: 24 },
            Body::Exit(Exit::Signal("KILL".to_owned())),
            Body::Note { text: "gap".to_owned() },
        ] {
            let frame = Frame { at, body };
            let json = serde_json::to_string(&frame).unwrap();
            assert_eq!(serde_json::from_str::<Frame>(&json).unwrap(), frame);
        }
    }
}
