//! Invite links: `https://HOST:PORT/invite/TOKEN#PIN[,PIN]`, as an administrator hands them to a person.
//!
//! The part behind `#` never leaves the person's machine: a browser keeps it, and `sallyport signup` compares it with what
//! the cluster shows.

use std::fmt;

/// A link that opens one account, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InviteLink {
    /// The proxy's public address: host, and port where the link has one.
    pub proxy: String,
    /// What the authority knows the invite by.
    pub token: String,
    /// Pins of the cluster's authorities, such as `sha256:…`, separated by commas.
    pub pins: String,
}

/// Why a text is no invite link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoInviteLink {
    /// Another scheme, or none.
    #[error("it does not begin with https://")]
    Scheme,
    /// A link to something else.
    #[error("it has no /invite/ part")]
    Path,
    /// A shell took it for a comment.
    #[error("the part after # is missing")]
    Fragment,
    /// Not all of it was copied.
    #[error("the token or the pin is cut off")]
    CutOff,
}

/// What a link has for the proxy's address where the authority does not know one. A program that knows a proxy writes its address there.
pub const UNKNOWN_PROXY: &str = "PROXY:3080";

impl InviteLink {
    /// Reads a link as it was copied, with white space around it.
    ///
    /// # Errors
    /// [`NoInviteLink`].
    pub fn parse(text: &str) -> Result<Self, NoInviteLink> {
        let rest = text.trim().strip_prefix("https://").ok_or(NoInviteLink::Scheme)?;
        let (proxy, rest) = rest.split_once("/invite/").ok_or(NoInviteLink::Path)?;
        let (token, pins) = rest.split_once('#').ok_or(NoInviteLink::Fragment)?;
        if token.is_empty() || !pins.starts_with("sha256:") {
            return Err(NoInviteLink::CutOff);
        }
        Ok(Self { proxy: proxy.to_owned(), token: token.to_owned(), pins: pins.to_owned() })
    }
}

impl fmt::Display for InviteLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}/invite/{}#{}", self.proxy, self.token, self.pins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_apart_and_say_what_is_wrong() {
        let text = "https://proxy.example:443/invite/abc123#sha256:00ff,sha256:11ee";
        let link = InviteLink::parse(&format!(" {text}\n")).unwrap();
        assert_eq!((link.proxy.as_str(), link.token.as_str()), ("proxy.example:443", "abc123"));
        assert_eq!(link.to_string(), text);
        for (bad, why) in [
            ("http://x/invite/a#sha256:0", NoInviteLink::Scheme),
            ("https://x/a#sha256:0", NoInviteLink::Path),
            ("https://x/invite/a", NoInviteLink::Fragment),
            ("https://x/invite/#sha256:0", NoInviteLink::CutOff),
            ("https://x/invite/a#sha25", NoInviteLink::CutOff),
        ] {
            assert_eq!(InviteLink::parse(bad), Err(why), "{bad}");
        }
    }
}
