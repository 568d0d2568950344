//! Where the CA keys of this authority are: sealed in its state, or in one or several tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use sallyport_ca::CaKind;
use sallyport_sal::custody::token::TokenCustody;
use sallyport_sal::custody::{Custody, SealedCustody, SealingKey, StoredKey};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, SalError, Signer};

use crate::ServerError;
use crate::config::{CaKeysSection, SEALED};

/// Every custody that is configured. Keys are found in any of them; new ones are made where the configuration says, so
/// that changing it and rotating moves a CA.
#[derive(Debug)]
pub(crate) struct Custodies {
    sealed: SealedCustody,
    tokens: BTreeMap<String, TokenCustody>,
    places: CaKeysSection,
}

impl Custodies {
    pub(crate) fn open(seal: Arc<SealingKey>, places: CaKeysSection) -> Result<Self, ServerError> {
        let mut tokens = BTreeMap::new();
        for (name, config) in &places.tokens {
            let token = TokenCustody::open(config).map_err(|source| ServerError::Authority {
                action: format!("open the token {name} of auth.ca_keys"),
                source: source.into(),
            })?;
            tokens.insert(name.clone(), token);
        }
        Ok(Self { sealed: SealedCustody::new(seal), tokens, places })
    }

    /// Whether new keys of any CA are made in a token.
    pub(crate) fn uses_tokens(&self) -> bool {
        CaKind::ALL.iter().any(|kind| self.places.place(*kind) != SEALED)
    }

    /// The name of the place where new keys of a CA are made: `sealed`, or a token's.
    pub(crate) fn place(&self, kind: CaKind) -> &str {
        self.places.place(kind)
    }

    /// Makes and finds the keys of a CA.
    pub(crate) fn of(self: &Arc<Self>, kind: CaKind) -> CaCustody {
        CaCustody { all: Arc::clone(self), kind, attempt: String::new() }
    }

    /// Removes keys with these labels from every token; gives how many there were.
    pub(crate) fn discard(&self, labels: &[String]) -> Result<usize, SalError> {
        self.tokens.values().map(|token| token.discard(labels)).sum()
    }

    /// The name of the place where a key is.
    pub(crate) fn whereabouts(&self, key: &StoredKey) -> String {
        if key.custody == SEALED {
            return SEALED.to_owned();
        }
        let found = self.tokens.iter().find(|(_, token)| token.load(key).is_ok());
        found.map_or_else(|| key.custody.clone(), |(name, _)| name.clone())
    }
}

/// The custody of one CA's keys.
#[derive(Debug, Clone)]
pub(crate) struct CaCustody {
    all: Arc<Custodies>,
    kind: CaKind,
    /// Ends the label of every key that is made.
    attempt: String,
}

impl CaCustody {
    /// The same, with keys whose labels tell them from those of every other attempt to make them.
    pub(crate) fn attempt(self, attempt: &str) -> Self {
        Self { attempt: format!(" {attempt}"), ..self }
    }

    /// The name of the token that new keys are made in; none where they are sealed in the state.
    pub(crate) fn token(&self) -> Option<&str> {
        Some(self.all.place(self.kind)).filter(|place| *place != SEALED)
    }
}

impl Custody for CaCustody {
    fn generate_for(
        &self,
        purpose: Option<KeyPurpose>,
        label: &str,
        algorithm: KeyAlgorithm,
    ) -> Result<StoredKey, SalError> {
        let label = format!("{label}{}", self.attempt);
        match self.all.tokens.get(self.all.place(self.kind)) {
            Some(token) => token.generate_for(purpose, &label, algorithm),
            // The configuration was checked: what is not the name of a token is "sealed".
            None => self.all.sealed.generate_for(purpose, &label, algorithm),
        }
    }

    fn load(&self, key: &StoredKey) -> Result<Arc<dyn Signer>, SalError> {
        if key.custody == SEALED {
            return self.all.sealed.load(key);
        }
        let mut problem = None;
        // The token that new keys go to is likely to have the old ones, too.
        let preferred = self.all.place(self.kind);
        let first = self.all.tokens.get_key_value(preferred);
        let rest = self.all.tokens.iter().filter(|(name, _)| name.as_str() != preferred);
        for (_, token) in first.into_iter().chain(rest) {
            match token.load(key) {
                Ok(signer) => return Ok(signer),
                Err(error) => {
                    problem.get_or_insert(error);
                }
            }
        }
        Err(problem.unwrap_or_else(|| SalError::WrongCustody {
            label: key.label.clone(),
            got: key.custody.clone(),
            expected: SEALED,
        }))
    }
}
