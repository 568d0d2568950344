//! The messages that are read (§53.7), as far as they are.
//!
//! Text stays bytes here: what encoding a client speaks is its own affair until it is shown.

/// Reads the fields of a message one after the other. What is not there is `None`, and so is everything after it.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of a content.
    #[must_use]
    pub fn new(content: &'a [u8]) -> Self {
        Self(content)
    }

    /// Whether all was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.0.split_at_checked(count);
        self.0 = taken.map_or(&[], |(_, rest)| rest);
        taken.map(|(taken, _)| taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    /// `Int16`.
    pub fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// `Int32`.
    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// `String`: up to the next zero, which is taken and not given.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == 0);
        let text = self.bytes(length.unwrap_or(self.0.len()));
        self.bytes(1)?;
        text
    }

    /// A value: its length and its bytes, or no bytes where the length is -1 (NULL).
    pub fn value(&mut self) -> Option<Option<&'a [u8]>> {
        match self.u32()? {
            u32::MAX => Some(None),
            length => self.bytes(usize::try_from(length).ok()?).map(Some),
        }
    }
}

/// A message of this kind with this content.
#[must_use]
pub fn encode(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(content.len() + 5);
    message.push(kind);
    // What we say ourselves is short.
    message.extend_from_slice(&u32::try_from(content.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(content);
    message
}

/// What a statement or a portal is closed or described by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A prepared statement.
    Statement(&'a [u8]),
    /// A portal.
    Portal(&'a [u8]),
}

/// A parameter of a portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'a> {
    /// Whether it is in the binary format.
    pub binary: bool,
    /// Its bytes; none for NULL.
    pub value: Option<&'a [u8]>,
}

/// What a client says, as far as the record is about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frontend<'a> {
    /// `Query`.
    Query {
        /// The statements.
        text: &'a [u8],
    },
    /// `Parse`.
    Parse {
        /// The name of the prepared statement; empty for the unnamed one.
        name: &'a [u8],
        /// The statement.
        text: &'a [u8],
    },
    /// `Bind`.
    Bind {
        /// The name of the portal; empty for the unnamed one.
        portal: &'a [u8],
        /// The prepared statement.
        statement: &'a [u8],
        /// What is put in.
        parameters: Vec<Parameter<'a>>,
    },
    /// `Execute`.
    Execute {
        /// The portal.
        portal: &'a [u8],
        /// Most rows to give; 0 for all.
        rows: u32,
    },
    /// `Describe`.
    Describe(Named<'a>),
    /// `Close`.
    Close(Named<'a>),
    /// `FunctionCall`.
    FunctionCall {
        /// The function's object id.
        function: u32,
        /// What is put in.
        parameters: Vec<Parameter<'a>>,
    },
    /// `CopyFail`.
    CopyFail {
        /// The client's reason.
        reason: &'a [u8],
    },
    /// `Sync`.
    Sync,
    /// `Flush`.
    Flush,
    /// `CopyDone`.
    CopyDone,
    /// `Terminate`.
    Terminate,
}

impl<'a> Frontend<'a> {
    /// Reads the content of a message. The name of what does not fit is the error.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(kind: u8, content: &'a [u8]) -> Result<Self, &'static str> {
        const SHORT: &str = "it ends before its last field";
        let mut fields = Fields::new(content);
        let fields = &mut fields;
        let read = match kind {
            b'Q' => Self::Query { text: fields.text().ok_or(SHORT)? },
            b'P' => {
                let (name, text) = (fields.text().ok_or(SHORT)?, fields.text().ok_or(SHORT)?);
                let types = fields.u16().ok_or(SHORT)?;
                fields.bytes(usize::from(types) * 4).ok_or(SHORT)?;
                Self::Parse { name, text }
            }
            b'B' => {
                let (portal, statement) = (fields.text().ok_or(SHORT)?, fields.text().ok_or(SHORT)?);
                let parameters = parameters(fields)?;
                formats(fields)?;
                Self::Bind { portal, statement, parameters }
            }
            b'E' => {
                let portal = fields.text().ok_or(SHORT)?;
                Self::Execute { portal, rows: fields.u32().ok_or(SHORT)? }
            }
            b'D' => Self::Describe(named(fields)?),
            b'C' => Self::Close(named(fields)?),
            b'F' => {
                let function = fields.u32().ok_or(SHORT)?;
                let parameters = parameters(fields)?;
                format(fields.u16().ok_or(SHORT)?)?;
                Self::FunctionCall { function, parameters }
            }
            b'f' => Self::CopyFail { reason: fields.text().ok_or(SHORT)? },
            b'S' => Self::Sync,
            b'H' => Self::Flush,
            b'c' => Self::CopyDone,
            b'X' => Self::Terminate,
            _ => return Err("it is not one that clients send"),
        };
        if fields.is_empty() { Ok(read) } else { Err("something follows its last field") }
    }
}

fn named<'a>(fields: &mut Fields<'a>) -> Result<Named<'a>, &'static str> {
    let kind = fields.u8();
    let name = fields.text().ok_or("it has no name")?;
    match kind {
        Some(b'S') => Ok(Named::Statement(name)),
        Some(b'P') => Ok(Named::Portal(name)),
        _ => Err("it is about neither a statement nor a portal"),
    }
}

fn format(code: u16) -> Result<bool, &'static str> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("a format is neither text nor binary"),
    }
}

fn formats(fields: &mut Fields<'_>) -> Result<Vec<bool>, &'static str> {
    let count = usize::from(fields.u16().ok_or("it has no formats")?);
    let codes = fields.bytes(count * 2).ok_or("it has fewer formats than it says")?;
    codes.chunks_exact(2).map(|code| format(Fields::new(code).u16().unwrap_or(u16::MAX))).collect()
}

fn parameters<'a>(fields: &mut Fields<'a>) -> Result<Vec<Parameter<'a>>, &'static str> {
    let formats = formats(fields)?;
    let count = usize::from(fields.u16().ok_or("it has no parameters")?);
    if formats.len() > 1 && formats.len() != count {
        return Err("it has neither one format nor one for each parameter");
    }
    let mut parameters = Vec::with_capacity(count.min(64));
    for number in 0..count {
        let value = fields.value().ok_or("it has fewer parameters than it says")?;
        // §53.7: none for text, one for all, or one each.
        let binary = formats.get(number).or(formats.first()).copied().unwrap_or(false);
        parameters.push(Parameter { binary, value });
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statements_and_what_belongs_to_them_are_read() {
        assert_eq!(Frontend::read(b'Q', b"select 1;\0"), Ok(Frontend::Query { text: b"select 1;" }));
        assert_eq!(
            Frontend::read(b'P', b"s1\0select $1\0\0\x01\0\0\0\x17"),
            Ok(Frontend::Parse { name: b"s1", text: b"select $1" })
        );
        let bind = b"\0s1\0\0\x01\0\x01\0\x02\0\0\0\x04\0\0\0\x2a\xff\xff\xff\xff\0\x01\0\0";
        let parameters = vec![
            Parameter { binary: true, value: Some(b"\0\0\0\x2a") },
            Parameter { binary: true, value: None },
        ];
        assert_eq!(
            Frontend::read(b'B', bind),
            Ok(Frontend::Bind { portal: b"", statement: b"s1", parameters })
        );
        assert_eq!(Frontend::read(b'E', b"\0\0\0\0\x05"), Ok(Frontend::Execute { portal: b"", rows: 5 }));
        assert_eq!(Frontend::read(b'C', b"Ss1\0"), Ok(Frontend::Close(Named::Statement(b"s1"))));
        assert_eq!(Frontend::read(b'D', b"P\0"), Ok(Frontend::Describe(Named::Portal(b""))));
        assert_eq!(Frontend::read(b'S', b""), Ok(Frontend::Sync));
        assert!(matches!(
            Frontend::read(b'F', b"\0\0\0\x07\0\0\0\x01\0\0\0\x01x\0\0"),
            Ok(Frontend::FunctionCall { function: 7, .. })
        ));
    }

    #[test]
    fn what_does_not_fit_is_found() {
        for (kind, content) in [
            (b'Q', &b"select 1"[..]),
            (b'Q', b"select 1\0; drop\0"),
            (b'P', b"s\0select\0\0\x02\0\0\0\x17"),
            (b'B', b"\0\0\0\0\0\x01\0\0\0\x05abc"),
            (b'B', b"\0\0\0\x02\0\0\0\0\0\x01\0\0\0\x01a\0\0"),
            (b'B', b"\0\0\0\x01\0\x07\0\0\0\0"),
            (b'C', b"Xs1\0"),
            (b'D', b""),
            (b'E', b"\0\0\0"),
            (b'S', b"x"),
            (b'Z', b""),
        ] {
            assert!(Frontend::read(kind, content).is_err(), "{} {content:?}", char::from(kind));
        }
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(kind: u8, content in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Frontend::read(kind, &content);
            for kind in *b"QPBEDCFfSHcX" {
                let _ = Frontend::read(kind, &content);
            }
        }

        #[test]
        fn what_is_cut_short_is_not_taken(text in "[^\0]{1,40}", cut in any::<prop::sample::Index>()) {
            let content = [text.as_bytes(), b"\0"].concat();
            prop_assert!(Frontend::read(b'Q', &content).is_ok());
            prop_assert!(Frontend::read(b'Q', &content[..cut.index(content.len())]).is_err());
        }
    }
}
