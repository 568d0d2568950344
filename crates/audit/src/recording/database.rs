//! What the recording of a session with a database holds: what was asked, and how it went. Rows are not in it.
//!
//! Messages of the client are numbered from 1 as they come; `of` in an answer is the number of what it answers.

use serde::{Deserialize, Serialize};

/// One message, or what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DatabaseFrame {
    /// Statements to be run at once.
    Query {
        /// Which message.
        number: u64,
        /// The statements.
        #[serde(flatten)]
        statement: Statement,
    },
    /// A statement is prepared.
    Parse {
        /// Which message.
        number: u64,
        /// What it is called from now on; empty for the unnamed one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        name: String,
        /// The statement.
        #[serde(flatten)]
        statement: Statement,
    },
    /// A prepared statement is given its parameters.
    Bind {
        /// Which message.
        number: u64,
        /// What that is called; empty for the unnamed one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        portal: String,
        /// Which statement.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        statement: String,
        /// How many parameters there are.
        count: u16,
        /// Their values, where the roles have them recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameters: Option<Vec<Parameter>>,
        /// As for [`Statement::doubtful`], of their texts.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        doubtful: bool,
    },
    /// What was bound is run.
    Execute {
        /// Which message.
        number: u64,
        /// What; empty for the unnamed one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        portal: String,
        /// Most rows that are wanted now; 0 for all.
        #[serde(default, skip_serializing_if = "is_zero")]
        rows: u64,
    },
    /// A statement or a portal is described.
    Describe {
        /// Which message.
        number: u64,
        /// Whether it is a portal; else a prepared statement.
        portal: bool,
        /// Which.
        name: String,
    },
    /// A statement or a portal is given up.
    Close {
        /// Which message.
        number: u64,
        /// Whether it is a portal; else a prepared statement.
        portal: bool,
        /// Which.
        name: String,
    },
    /// A function is called by its number (`FunctionCall`).
    FunctionCall {
        /// Which message.
        number: u64,
        /// The object id of the function.
        function: u32,
        /// How many parameters there are.
        count: u16,
        /// Their values, where the roles have them recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameters: Option<Vec<Parameter>>,
    },
    /// The client gives up a copy into the database.
    CopyFail {
        /// In its words.
        reason: String,
    },
    /// A copy has ended.
    Copy {
        /// The statement's message.
        of: u64,
        /// From the client into the database; else out of it.
        into: bool,
        /// Bytes of data.
        bytes: u64,
    },
    /// A statement was done.
    Result {
        /// Its message.
        of: u64,
        /// What the server calls it, such as `SELECT 3`; empty where it says nothing, as for a portal that has more rows.
        tag: String,
        /// Rows that the client was sent.
        rows: u64,
        /// Bytes of those rows.
        bytes: u64,
        /// From the message to this, in microseconds.
        took_us: u64,
    },
    /// The server refused something, or gave up.
    Error {
        /// The message; none when the server said so by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<u64>,
        /// `ERROR`, `FATAL` or `PANIC`.
        severity: String,
        /// `SQLSTATE`.
        sqlstate: String,
        /// In the server's words.
        message: String,
        /// From the message to this, in microseconds.
        took_us: u64,
    },
    /// The server is ready for the next message (`ReadyForQuery`). Recorded where this says something that the results before it
    /// do not: what a pipeline did is there to stay, or the transaction is in another state.
    Ready {
        /// The `Query`, `FunctionCall` or `Sync` that is answered by this.
        of: u64,
        /// What the session is in.
        transaction: Transaction,
    },
    /// The server reads what the client says in another encoding from here on.
    Encoding {
        /// As the server calls it.
        name: String,
    },
    /// The server remarked something.
    Notice {
        /// `WARNING`, `NOTICE`, `INFO`, ...
        severity: String,
        /// `SQLSTATE`.
        sqlstate: String,
        /// In the server's words.
        message: String,
    },
    /// Another session has notified a channel that this one listens to.
    Notify {
        /// The server's process of that session.
        process: u32,
        /// The channel.
        channel: String,
        /// What it was told; cut where it is long.
        payload: String,
    },
    /// What came is not the protocol. Nothing of it was passed on.
    Malformed {
        /// Whether the client sent it; else the server.
        client: bool,
        /// In which way.
        problem: String,
    },
    /// What the client was told in the server's place: that it is refused, or cut off.
    Refused {
        /// `SQLSTATE`.
        sqlstate: String,
        /// In words.
        message: String,
    },
}

/// A statement as far as it is on record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The text, as far as the roles have it kept. Of a longer one the comments are dropped, and where that is not enough its
    /// beginning and its end are here, with a mark between them that says how many bytes are left out. Before `dropped` and
    /// `left_out` were recorded, it was the beginning.
    pub text: String,
    /// Bytes of the whole, where that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 of the whole in hexadecimal, where that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Bytes of comments and blanks that were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Bytes that are left out at the mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// The encoding that the text was read from without a loss, where that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Where the text is not what the client has sent byte for byte: that, in base64; of a beginning and an end, two pieces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub base64: Vec<String>,
    /// Whether the server may have read it in another encoding than it was read in here: it has other characters than those of ASCII,
    /// and was sent before all that came before it was answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doubtful: bool,
}

impl Statement {
    /// Whether the text is what the client meant, character for character.
    pub(super) fn is_exact(&self) -> bool {
        self.base64.is_empty() || self.encoding.is_some()
    }
}

/// The state of a session's transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transaction {
    /// None is open.
    None,
    /// One is open.
    Open,
    /// An error has failed the one that is open.
    Failed,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// NULL.
    Null,
    /// Text; cut where it is long.
    Text(String),
    /// Bytes of a type's own, in hexadecimal; cut where they are many.
    Binary(String),
}

impl DatabaseFrame {
    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        const REST: usize = 96;
        let values = |parameters: &Option<Vec<Parameter>>| {
            let length = |parameter: &Parameter| match parameter {
                Parameter::Null => 0,
                Parameter::Text(text) | Parameter::Binary(text) => text.len(),
            };
            parameters.iter().flatten().map(|parameter| length(parameter) + 16).sum()
        };
        REST + match self {
            Self::Query { statement, .. } | Self::Parse { statement, .. } => {
                statement.text.len() + statement.base64.iter().map(String::len).sum::<usize>()
            }
            Self::Bind { parameters, .. } | Self::FunctionCall { parameters, .. } => values(parameters),
            Self::Error { message, .. }
            | Self::Notice { message, .. }
            | Self::Refused { message, .. }
            | Self::Malformed { problem: message, .. }
            | Self::Notify { payload: message, .. }
            | Self::CopyFail { reason: message } => message.len(),
            _ => 0,
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::super::{Body, Frame};
    use super::*;

    #[test]
    fn frames_are_short_and_come_back() {
        let statement = || Statement { text: "select 1".to_owned(), ..Statement::default() };
        let text = |frame| {
            let frame =
                Frame { at: std::time::Duration::from_micros(7), body: Body::Database(Box::new(frame)) };
            let text = serde_json::to_string(&frame).unwrap();
            assert_eq!(serde_json::from_str::<Frame>(&text).unwrap(), frame);
            text
        };
        assert_eq!(
            text(DatabaseFrame::Query { number: 1, statement: statement() }),
            r#"{"at_us":7,"type":"database","data":{"what":"query","number":1,"text":"select 1"}}"#
        );
        assert_eq!(
            text(DatabaseFrame::Execute { number: 3, portal: String::new(), rows: 0 }),
            r#"{"at_us":7,"type":"database","data":{"what":"execute","number":3}}"#
        );
        let parameters = vec![Parameter::Null, Parameter::Text("a".into()), Parameter::Binary("00ff".into())];
        let bind = DatabaseFrame::Bind {
            number: 2,
            portal: String::new(),
            statement: "s1".to_owned(),
            count: 3,
            parameters: Some(parameters),
            doubtful: false,
        };
        assert!(text(bind).contains(r#""parameters":["null",{"text":"a"},{"binary":"00ff"}]"#));
        let long = Statement {
            text: "s".to_owned(),
            bytes: Some(9000),
            sha256: Some("ab".to_owned()),
            ..Statement::default()
        };
        assert!(
            text(DatabaseFrame::Parse { number: 2, name: "s1".into(), statement: long }).contains("9000")
        );
        let other = Statement {
            text: "cafe".to_owned(),
            encoding: Some("LATIN1".to_owned()),
            base64: vec!["Y2Fm6Q==".to_owned()],
            ..Statement::default()
        };
        // What a player of an earlier release reads of it is there as it always was.
        assert!(text(DatabaseFrame::Query { number: 1, statement: other }).starts_with(
            r#"{"at_us":7,"type":"database","data":{"what":"query","number":1,"text":"cafe","encoding":"LATIN1","base64":"#
        ));
    }
}
