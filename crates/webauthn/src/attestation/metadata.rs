//! What is known about models of authenticators (FIDO Metadata Service 3.0 §3.1).

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::Deserialize;
use uuid::Uuid;

use super::certificate::Certificate;
use crate::error::WebAuthnError;

/// Longest file, in bytes. All of FIDO's models are 8 MiB.
const MAX_FILE_BYTES: usize = 32 * 1024 * 1024;

/// Reports after which a model is not to be trusted (FIDO Metadata Service 3.0 §3.1.4).
const COMPROMISED: &[&str] = &[
    "REVOKED",
    "ATTESTATION_KEY_COMPROMISE",
    "USER_VERIFICATION_BYPASS",
    "USER_KEY_REMOTE_COMPROMISE",
    "USER_KEY_PHYSICAL_COMPROMISE",
];

#[derive(Deserialize)]
struct File {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    /// U2F keys and UAF authenticators have none.
    aaguid: Option<Uuid>,
    metadata_statement: Option<Statement>,
    #[serde(default)]
    status_reports: Vec<Report>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    #[serde(default)]
    description: String,
    #[serde(default)]
    attestation_root_certificates: Vec<String>,
}

#[derive(Deserialize)]
struct Report {
    status: String,
}

#[derive(Debug, Clone)]
struct Model {
    name: String,
    roots: Vec<Vec<u8>>,
    compromised: Option<String>,
}

/// Roots and reports of models, by AAGUID.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    models: BTreeMap<Uuid, Model>,
}

impl Metadata {
    /// Reads the payload of FIDO's metadata service, or a part of it, as JSON. Of each entry `aaguid`, the statement's
    /// `description` and `attestationRootCertificates` and the reports' `status` are looked at. An entry may be added for U2F
    /// keys, under the AAGUID of zeros.
    ///
    /// The service signs its payload; that is to be checked by what takes it from there, before it becomes this file.
    ///
    /// # Errors
    /// [`WebAuthnError::BadMetadata`] with what is wrong and where.
    pub fn parse(json: &[u8]) -> Result<Self, WebAuthnError> {
        let bad = |reason: String| WebAuthnError::BadMetadata { reason };
        if json.len() > MAX_FILE_BYTES {
            return Err(bad("it is longer than 32 MiB".to_owned()));
        }
        let file: File = serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?;
        let mut models = BTreeMap::new();
        for entry in file.entries {
            let (Some(aaguid), Some(statement)) = (entry.aaguid, entry.metadata_statement) else { continue };
            let mut roots = Vec::new();
            for text in statement.attestation_root_certificates {
                let plain: String = text.split_ascii_whitespace().collect();
                let der = BASE64
                    .decode(plain.as_bytes())
                    .map_err(|_| bad(format!("a root of model {aaguid} is not base64")))?;
                // A root of a kind that is not used here, such as one with a key of 1024 bits, verifies nothing.
                if Certificate::parse(0, &der).is_ok() {
                    roots.push(der);
                }
            }
            let compromised = entry
                .status_reports
                .into_iter()
                .map(|report| report.status)
                .find(|status| COMPROMISED.contains(&status.as_str()));
            let model = Model { name: statement.description, roots, compromised };
            if models.insert(aaguid, model).is_some() {
                return Err(bad(format!("model {aaguid} stands there twice")));
            }
        }
        Ok(Self { models })
    }

    /// The name of a model.
    #[must_use]
    pub fn name(&self, aaguid: Uuid) -> Option<&str> {
        self.models.get(&aaguid).map(|model| model.name.as_str())
    }

    /// The models that are known.
    pub fn models(&self) -> impl Iterator<Item = Uuid> {
        self.models.keys().copied()
    }

    pub(crate) fn roots(&self, aaguid: Uuid) -> &[Vec<u8>] {
        self.models.get(&aaguid).map_or(&[], |model| model.roots.as_slice())
    }

    pub(crate) fn compromised(&self, aaguid: Uuid) -> Option<&str> {
        self.models.get(&aaguid)?.compromised.as_deref()
    }
}
