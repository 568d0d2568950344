//! What encoding a client's text is in (`client_encoding`), so that it can be read.

use std::borrow::Cow;

use encoding_rs::Encoding as Table;

use super::message::Fields;

/// The parameter of the session that says it; the server reports each change (`ParameterStatus`).
pub const PARAMETER: &str = "client_encoding";

/// The longest name of PostgreSQL's own is shorter.
const MOST_NAME_BYTES: usize = 64;

/// The encoding of a client's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// `UTF8`.
    Utf8,
    /// `LATIN1`: bytes are the numbers of characters.
    Latin1,
    /// One that has a table, by its name.
    Named(&'static str, &'static Table),
    /// One whose table has some characters otherwise than the server's: text is shown by it, and is not certain.
    Like(&'static str, &'static Table),
    /// One that has none here, or `SQL_ASCII`, which is none: text that is UTF-8 is shown as that, which it may not be.
    #[default]
    Unknown,
}

impl Encoding {
    /// As PostgreSQL calls it.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let name: String =
            name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_uppercase()).collect();
        let (name, label) = match name.as_str() {
            "UTF8" | "UNICODE" => return Self::Utf8,
            "LATIN1" | "ISO88591" => return Self::Latin1,
            "LATIN2" | "ISO88592" => ("LATIN2", "iso-8859-2"),
            "LATIN3" | "ISO88593" => ("LATIN3", "iso-8859-3"),
            "LATIN4" | "ISO88594" => ("LATIN4", "iso-8859-4"),
            "LATIN5" | "ISO88599" => ("LATIN5", "windows-1254"),
            "LATIN6" | "ISO885910" => ("LATIN6", "iso-8859-10"),
            "LATIN7" | "ISO885913" => ("LATIN7", "iso-8859-13"),
            "LATIN8" | "ISO885914" => ("LATIN8", "iso-8859-14"),
            "LATIN9" | "ISO885915" => ("LATIN9", "iso-8859-15"),
            "LATIN10" | "ISO885916" => ("LATIN10", "iso-8859-16"),
            "ISO88595" => ("ISO_8859_5", "iso-8859-5"),
            "ISO88596" => ("ISO_8859_6", "iso-8859-6"),
            "ISO88597" => ("ISO_8859_7", "iso-8859-7"),
            "ISO88598" => ("ISO_8859_8", "iso-8859-8"),
            "WIN1250" => ("WIN1250", "windows-1250"),
            "WIN1251" | "WIN" => ("WIN1251", "windows-1251"),
            "WIN1252" => ("WIN1252", "windows-1252"),
            "WIN1253" => ("WIN1253", "windows-1253"),
            "WIN1254" => ("WIN1254", "windows-1254"),
            "WIN1255" => ("WIN1255", "windows-1255"),
            "WIN1256" => ("WIN1256", "windows-1256"),
            "WIN1257" => ("WIN1257", "windows-1257"),
            "WIN1258" | "ABC" | "TCVN" | "TCVN5712" | "VSCII" => ("WIN1258", "windows-1258"),
            "WIN866" | "ALT" => ("WIN866", "ibm866"),
            "WIN874" => ("WIN874", "windows-874"),
            "KOI8R" | "KOI8" => ("KOI8R", "koi8-r"),
            "KOI8U" => ("KOI8U", "koi8-u"),
            "EUCJP" => ("EUC_JP", "euc-jp"),
            "EUCCN" => ("EUC_CN", "gbk"),
            "EUCKR" => ("EUC_KR", "euc-kr"),
            "UHC" | "WIN949" | "WINDOWS949" => ("UHC", "euc-kr"),
            "SJIS" | "MSKANJI" | "SHIFTJIS" | "WIN932" | "WINDOWS932" => ("SJIS", "shift_jis"),
            "BIG5" | "WIN950" | "WINDOWS950" => ("BIG5", "big5"),
            "GBK" | "WIN936" | "WINDOWS936" => ("GBK", "gbk"),
            "GB18030" => ("GB18030", "gb18030"),
            _ => return Self::Unknown,
        };
        let Some(table) = Table::for_label(label.as_bytes()) else { return Self::Unknown };
        match name {
            "LATIN5" | "KOI8U" | "EUC_CN" | "EUC_JP" | "BIG5" | "GB18030" => Self::Like(name, table),
            _ => Self::Named(name, table),
        }
    }

    /// What a server has said of it before its first `ReadyForQuery`.
    #[must_use]
    pub fn greeted(mut greeting: &[u8]) -> Self {
        let mut encoding = Self::default();
        while let Some(([kind, length @ ..], rest)) = greeting.split_first_chunk::<5>() {
            let length = u32::from_be_bytes(*length).saturating_sub(4);
            let Some((content, rest)) = usize::try_from(length).ok().and_then(|at| rest.split_at_checked(at))
            else {
                break;
            };
            if *kind == b'S'
                && let Some(now) = Self::reported(content)
            {
                encoding = Self::of(&now);
            }
            greeting = rest;
        }
        encoding
    }

    /// The name that a `ParameterStatus` has for it.
    #[must_use]
    pub fn reported(content: &[u8]) -> Option<String> {
        let mut fields = Fields::new(content);
        let (name, value) = (fields.text()?, fields.text()?);
        let value = value.get(..MOST_NAME_BYTES).unwrap_or(value);
        (name == PARAMETER.as_bytes()).then(|| String::from_utf8_lossy(value).into_owned())
    }

    /// Its name, for text that is not UTF-8.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Latin1 => Some("LATIN1"),
            Self::Named(name, _) | Self::Like(name, _) => Some(name),
            Self::Utf8 | Self::Unknown => None,
        }
    }

    /// Text that people can read; and whether that is all that the bytes say.
    #[must_use]
    pub fn read(self, bytes: &[u8]) -> (Cow<'_, str>, bool) {
        match self {
            _ if bytes.is_ascii() => (String::from_utf8_lossy(bytes), true),
            Self::Latin1 => (bytes.iter().map(|byte| char::from(*byte)).collect(), true),
            Self::Named(_, table) => {
                let (text, lost) = table.decode_without_bom_handling(bytes);
                (text, !lost)
            }
            Self::Like(_, table) => (table.decode_without_bom_handling(bytes).0, false),
            Self::Utf8 | Self::Unknown => {
                let text = String::from_utf8_lossy(bytes);
                let whole = matches!(text, Cow::Borrowed(_)) && self == Self::Utf8;
                (text, whole)
            }
        }
    }

    /// At most so many bytes as text; a character that the cut goes through is left out.
    #[must_use]
    pub fn beginning(self, bytes: &[u8], most: usize) -> String {
        let bytes = match bytes.get(..most) {
            Some(cut) if bytes.len() > most => self.up_to_cut(cut),
            _ => bytes,
        };
        self.read(bytes).0.into_owned()
    }

    /// Without the beginning of a character that was cut.
    #[must_use]
    pub fn up_to_cut(self, bytes: &[u8]) -> &[u8] {
        match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() && self.name().is_none() => {
                bytes.get(..error.valid_up_to()).unwrap_or_default()
            }
            _ => bytes,
        }
    }

    /// Without the end of a character that was cut.
    #[must_use]
    pub fn from_cut(self, bytes: &[u8]) -> &[u8] {
        let cut = match self.name() {
            None => bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xbf)).count(),
            Some(_) => 0,
        };
        bytes.get(cut..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::encode;
    use super::*;

    #[test]
    fn text_is_read_by_what_the_server_has_said() {
        for (name, bytes, text) in [
            ("UTF8", &b"caf\xc3\xa9"[..], "caf\u{e9}"),
            ("LATIN1", b"caf\xe9\x85", "caf\u{e9}\u{85}"),
            ("WIN1252", b"\x80", "\u{20ac}"),
            ("sjis", b"\x83\x5c'", "\u{30bd}'"),
            ("EUC_KR", b"\xb0\xa1", "\u{ac00}"),
            ("KOI8R", b"\xc4\xc1", "\u{434}\u{430}"),
            ("SQL_ASCII", b"cafe", "cafe"),
        ] {
            assert_eq!(Encoding::of(name).read(bytes), (Cow::Borrowed(text), true), "{name}");
        }
        assert!(!Encoding::of("UTF8").read(b"caf\xe9").1);
        // What the server makes of it is not known here.
        for name in ["SQL_ASCII", "SHIFT_JIS_2004", "JOHAB", "EUC_TW"] {
            assert_eq!(
                Encoding::of(name).read(b"caf\xc3\xa9"),
                (Cow::Borrowed("caf\u{e9}"), false),
                "{name}"
            );
        }
        assert!(!Encoding::of("SJIS").read(b"\x83").1);
        assert_eq!(Encoding::of("BIG5").read(b"\xa4\x40"), (Cow::Borrowed("\u{4e00}"), false));
        assert_eq!(Encoding::of("MULE_INTERNAL"), Encoding::Unknown);
        let status = |name: &str, value: &str| encode(b'S', format!("{name}\0{value}\0").as_bytes());
        let greeting = [encode(b'R', &[0; 4]), status("a", "b"), status("client_encoding", "SJIS")].concat();
        assert_eq!(Encoding::greeted(&greeting).name(), Some("SJIS"));
        assert_eq!(Encoding::greeted(&greeting[..greeting.len() - 1]), Encoding::Unknown);
        assert_eq!(Encoding::Utf8.beginning("a\u{e9}".as_bytes(), 2), "a");
        assert_eq!(Encoding::Utf8.from_cut(b"\xa9b"), b"b");
    }
}
