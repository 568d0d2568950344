//! What is kept parsed and written as its text.

/// The text of a type that has `text` and `parse`: for people, and in documents.
macro_rules! written_as_text {
    ($kind:ty) => {
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.text)
            }
        }

        impl TryFrom<String> for $kind {
            type Error = $crate::error::OidcError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl From<$kind> for String {
            fn from(kept: $kind) -> Self {
                kept.text
            }
        }
    };
}

pub(crate) use written_as_text;
