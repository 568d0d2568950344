//! What the list of codes makes: the type, every code of this version, and how each is written.

/// Makes the type of the codes from lines of a description, a name, the code and the dotted name.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $kind:literal;)+) => {
        /// A stable code of an event. A code never changes its meaning; its last letter is the severity.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
            /// A code of another version, kept as it is.
            Unknown(String),
        }

        impl Code {
            /// Every code of this version.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The code, such as `SP1000I`.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $code,)+
                    Self::Unknown(code) => code,
                }
            }

            /// The dotted name, such as `user.login`; empty for an unknown code.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$name => $kind,)+
                    Self::Unknown(_) => "",
                }
            }

            /// What it says, for the catalogue.
            #[must_use]
            pub fn description(&self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                    Self::Unknown(_) => "",
                }
            }

            /// The code of this text.
            #[must_use]
            pub fn parse(text: &str) -> Self {
                match text {
                    $($code => Self::$name,)+
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }
    };
}

pub(super) use codes;
