//! The section `auth.ca_keys`: where the keys of the certificate authorities are made.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use sallyport_access::yaml::{Problems, Section};
use sallyport_ca::CaKind;
use sallyport_sal::custody::token::{Pin, PinSource, TokenChoice, TokenConfig};

const CA_KEYS: &[&str] = &["tokens", "keep", "keep_by_ca"];
const TOKEN: &[&str] = &["module", "token", "pin", "sessions"];
const CHOICE: &[&str] = &["label", "serial", "slot"];
const PIN: &[&str] = &["file", "env", "value"];
const PIN_FIX: &str = "write pin: {file: PATH} with the path of a file of mode 0600, or pin: {env: NAME} with a variable's name";

/// The name of the custody in the authority's own state.
pub const SEALED: &str = "sealed";
/// A bound on sessions with one token.
const MOST_SESSIONS: usize = 64;

/// Where the keys of the certificate authorities are made. Changing it moves a CA with its next rotation; until then its
/// keys are where they were made, and a token that holds keys must stay configured.
#[derive(Debug, Clone, Default)]
pub struct CaKeysSection {
    /// PKCS#11 tokens, by names of the operator's choice.
    pub tokens: BTreeMap<String, TokenConfig>,
    /// Where new keys are made: `sealed` (in the state, under the seal key) or the name of a token. Unset: the token,
    /// where there is exactly one; else `sealed`.
    pub keep: Option<String>,
    /// The same for single CAs.
    pub keep_by_ca: BTreeMap<CaKind, String>,
}

/// A CA's keys are to be kept in a token that is not configured.
#[derive(Debug, thiserror::Error)]
#[error("there is no token {0:?} in auth.ca_keys.tokens")]
struct UnknownToken(String);

impl CaKeysSection {
    /// The name of the place where new keys of a CA are made.
    #[must_use]
    pub fn place(&self, kind: CaKind) -> &str {
        let only = || match self.tokens.len() {
            1 => self.tokens.keys().next(),
            _ => None,
        };
        self.keep_by_ca.get(&kind).or(self.keep.as_ref()).or_else(only).map_or(SEALED, String::as_str)
    }
}

/// Reads the section; without it, everything is sealed in the state.
pub(super) fn read(auth: &Section<'_>, problems: &mut Problems) -> CaKeysSection {
    let Some(section) = auth.section("ca_keys", CA_KEYS, problems) else { return CaKeysSection::default() };
    let mut tokens = BTreeMap::new();
    let names: Vec<&str> = section
        .present("tokens")
        .and_then(|_| Section::read(section.present("tokens")?, "", &[], &mut Problems::new()))
        .map(|tokens| tokens.entries().iter().map(|(name, _)| name.value.as_str()).collect())
        .unwrap_or_default();
    if let Some(all) = section.section("tokens", &names, problems) {
        for name in &names {
            if *name == SEALED {
                problems.push(
                    all.place(name),
                    &all.name(name),
                    "this is the name of the state itself",
                    "give the token another name",
                );
            }
            let read = all.section(name, TOKEN, problems).and_then(|entry| token(&entry, problems));
            if let Some(read) = read {
                tokens.insert((*name).to_owned(), read);
            }
        }
    }
    let known = |name: &str| {
        if name == SEALED || names.contains(&name) {
            Ok(name.to_owned())
        } else {
            Err(UnknownToken(name.to_owned()))
        }
    };
    let fix = "write sealed, or the name of a token";
    let keep = section.parsed("keep", fix, problems, known);
    let mut keep_by_ca = BTreeMap::new();
    let kinds: Vec<&str> = CaKind::ALL.iter().map(|kind| kind.name()).collect();
    if let Some(by_ca) = section.section("keep_by_ca", &kinds, problems) {
        for kind in CaKind::ALL {
            if let Some(place) = by_ca.parsed(kind.name(), fix, problems, known) {
                keep_by_ca.insert(*kind, place);
            }
        }
    }
    CaKeysSection { tokens, keep, keep_by_ca }
}

fn token(section: &Section<'_>, problems: &mut Problems) -> Option<TokenConfig> {
    let module = section.text("module", problems).map(PathBuf::from);
    if module.as_ref().is_none_or(|path| path.is_relative()) {
        problems.push(
            section.place("module"),
            &section.name("module"),
            "the path of the PKCS#11 module is missing or relative",
            "write a path that begins with /, such as /usr/lib/softhsm/libsofthsm2.so",
        );
    }
    let choices: Vec<TokenChoice> = match section.section("token", CHOICE, problems) {
        Some(choice) => {
            let slot = choice.parsed("slot", "write the number of the slot", problems, str::parse::<u64>);
            let label = choice.text("label", problems).map(TokenChoice::Label);
            let serial = choice.text("serial", problems).map(TokenChoice::Serial);
            [label, serial, slot.map(TokenChoice::Slot)].into_iter().flatten().collect()
        }
        None => Vec::new(),
    };
    if choices.len() != 1 {
        problems.push(
            section.place("token"),
            &section.name("token"),
            format!("expected one of label, serial and slot, got {}", choices.len()),
            "name the token by its label, such as token: {label: sallyport}",
        );
    }
    let pins: Vec<PinSource> = match section.section("pin", PIN, problems) {
        Some(pin) => {
            let file = pin.text("file", problems).map(|path| PinSource::File(path.into()));
            let env = pin.text("env", problems).map(PinSource::Env);
            let value = pin.secret("value", PIN_FIX, problems, |pin| Ok(Pin::new(pin.to_owned())));
            [file, env, value.map(PinSource::Value)].into_iter().flatten().collect()
        }
        None => Vec::new(),
    };
    if pins.len() != 1 {
        problems.push(
            section.place("pin"),
            &section.name("pin"),
            format!("expected one of file, env and value, got {}", pins.len()),
            PIN_FIX,
        );
    }
    let sessions = section.count("sessions", 1, MOST_SESSIONS, problems).and_then(NonZeroUsize::new);
    let (Some(module), [choice], [pin]) = (module, choices.as_slice(), pins.as_slice()) else { return None };
    Some(TokenConfig {
        module,
        token: choice.clone(),
        pin: pin.clone(),
        sessions: sessions.unwrap_or(TokenConfig::DEFAULT_SESSIONS),
    })
}
