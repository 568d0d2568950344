//! What tokens a module has, without logging in.

use std::path::Path;

use cryptoki::types::Version;
use serde::Serialize;

use super::error::{self, TokenError};
use super::mechanism::{self, Mechanisms};
use super::module::Module;
use crate::{KeyAlgorithm, SalError};

/// A token, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenInfo {
    /// The number of its slot.
    pub slot: u64,
    /// The label it was given when it was initialised; empty before.
    pub label: String,
    /// Who made it.
    pub manufacturer: String,
    /// What it is.
    pub model: String,
    /// Its serial number.
    pub serial: String,
    /// The version of its hardware, such as `2.6`.
    pub hardware: String,
    /// The version of its firmware.
    pub firmware: String,
    /// Whether it is initialised and has a user PIN, so that keys can be made in it.
    pub ready: bool,
    /// What it can do with our types of keys; types that it knows nothing of are left out.
    pub abilities: Vec<TokenAbility>,
}

/// What a token can do with a type of key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TokenAbility {
    /// The type of key.
    pub algorithm: KeyAlgorithm,
    /// Whether it makes such keys.
    pub generates: bool,
    /// Whether it signs with them, by every scheme of the type.
    pub signs: bool,
}

/// The tokens in the slots of a module, which is loaded and started if it was not. No PIN is needed.
///
/// # Errors
/// [`SalError::Token`] when the module cannot be loaded or does not answer. A slot that does not answer is left out.
pub fn discover(module: &Path) -> Result<Vec<TokenInfo>, SalError> {
    let module = Module::open(module)?;
    let entered = module.enter();
    let slots = entered.context.get_slots_with_token().map_err(|error| TokenError::ModuleFailed {
        path: module.path().to_owned(),
        reason: error::words(&error),
    })?;
    let mut tokens = Vec::new();
    for slot in slots {
        let Ok(info) = entered.context.get_token_info(slot) else { continue };
        let Ok(mechanisms) = Mechanisms::read(entered.context, slot) else { continue };
        let abilities = KeyAlgorithm::ALL
            .iter()
            .filter(|algorithm| mechanism::generator(**algorithm).is_some())
            .map(|algorithm| TokenAbility {
                algorithm: *algorithm,
                generates: mechanisms.can_generate(*algorithm),
                signs: mechanisms.can_sign(*algorithm),
            })
            .filter(|ability| ability.generates || ability.signs)
            .collect();
        tokens.push(TokenInfo {
            slot: slot.id(),
            label: info.label().to_owned(),
            manufacturer: info.manufacturer_id().to_owned(),
            model: info.model().to_owned(),
            serial: info.serial_number().to_owned(),
            hardware: version(info.hardware_version()),
            firmware: version(info.firmware_version()),
            ready: info.token_initialized() && info.user_pin_initialized(),
            abilities,
        });
    }
    Ok(tokens)
}

fn version(version: Version) -> String {
    format!("{}.{}", version.major(), version.minor())
}
