//! The verification procedure of each format.

use super::error::AttestationError;
use super::format::Format;
use super::statement::{Statement, Verified};
use super::{fido_u2f, packed};

/// Step 22 of §7.1.
pub(crate) fn verify<'a>(statement: &Statement<'a>) -> Result<Verified<'a>, AttestationError> {
    match statement.format {
        // §8.7: an empty map.
        Format::None if statement.fields.map().is_some_and(<[_]>::is_empty) => Ok(Verified::Absent),
        Format::None => Err(AttestationError::Syntax("a statement of format none is not empty")),
        Format::Packed => packed::verify(statement),
        Format::FidoU2f => fido_u2f::verify(statement),
        Format::Tpm | Format::AndroidKey | Format::AndroidSafetynet | Format::Apple => {
            Ok(Verified::Unchecked)
        }
    }
}
