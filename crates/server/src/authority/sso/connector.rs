//! A connector: an identity provider, and what its people get here.

use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::ResourceName;
use sallyport_oidc::{Algorithm, Mapping, Template};
use sallyport_sal::KeyAlgorithm;

use crate::config::HostPort;

/// The kind of the documents of OpenID Connect. Connectors of every kind are kept under it, so that no two have one name.
pub(crate) const KIND: &str = "oidc";
/// The kinds of documents of connectors.
pub(crate) const KINDS: [&str; 3] = [KIND, GITHUB, GITLAB];
pub(super) const GITHUB: &str = "github";
pub(super) const GITLAB: &str = "gitlab";

/// Where providers send browsers back to, on each proxy: below it each to an address of its own (RFC 9700 §4.4.2). This one every connector
/// may have whose provider names itself in its answers.
pub(super) const CALLBACK_PATH: &str = "/web/sso/callback";

/// Where a connector's provider sends browsers back to, on each proxy.
pub(super) fn callback_path(connector: &ResourceName) -> String {
    format!("{CALLBACK_PATH}/{connector}")
}

/// Whose address a redirect address is; empty: that which every connector may have.
pub(super) fn addressee(redirect_url: &str) -> &str {
    redirect_url.rsplit_once(CALLBACK_PATH).map_or("", |(_, below)| below.trim_start_matches('/'))
}

/// Keys that prove this cluster, as documents have them.
pub(super) const CLIENT_KEYS: [(&str, KeyAlgorithm); 4] = [
    ("ES256", KeyAlgorithm::EcdsaP256),
    ("ES384", KeyAlgorithm::EcdsaP384),
    ("EdDSA", KeyAlgorithm::Ed25519),
    ("RS256", KeyAlgorithm::Rsa3072),
];

/// What a document calls the algorithm of a client's key.
pub(super) fn key_name(algorithm: KeyAlgorithm) -> Option<&'static str> {
    CLIENT_KEYS.iter().find(|(_, known)| *known == algorithm).map(|(name, _)| *name)
}

/// What a provider speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    OpenIdConnect,
    /// OAuth 2.0, and an API of its own that says who the person is.
    GitHub(GitHub),
    /// OpenID Connect, with what its documents say the same everywhere.
    GitLab,
}

impl Protocol {
    /// The kind of its documents.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::OpenIdConnect => KIND,
            Self::GitHub(_) => GITHUB,
            Self::GitLab => GITLAB,
        }
    }
}

/// What is said of GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitHub {
    /// Where its API is, without a slash at the end.
    pub(crate) api: String,
    /// Those whose members and teams count, in lower case. Every person may make others, with any teams.
    pub(crate) organizations: Vec<String>,
}

/// How a provider is asked again, after a login, whether it still stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refresh {
    /// How long after the last answer.
    pub(crate) interval: Duration,
    /// How long a login outlasts a provider that gives no answer.
    pub(crate) grace: Duration,
}

/// How this cluster proves itself at the provider's token endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientProof {
    /// By a secret that both have, in a file of mode 0600 on the authority's machine.
    SecretFile(PathBuf),
    /// By a key of the authority's own (`private_key_jwt`, OpenID Connect Core §9).
    Key(KeyAlgorithm),
}

/// An identity provider, and what its people get here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connector {
    /// Also in the addresses that its provider sends browsers and logouts to.
    pub(crate) name: ResourceName,
    pub(crate) description: String,
    /// What the button of the login page says.
    pub(crate) title: String,
    pub(crate) protocol: Protocol,
    /// To the letter what its documents have as `issuer`; of GitHub, where its pages are.
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) proof: ClientProof,
    pub(crate) scopes: Vec<String>,
    /// Where the provider may send browsers back to; none: the cluster's public address.
    pub(crate) redirect_urls: Vec<String>,
    /// How long ago the person may have logged in at the provider.
    pub(crate) max_age: Option<Duration>,
    /// The classes of logins of which the provider has to have used one.
    pub(crate) acr_values: Vec<String>,
    pub(crate) prompt: Option<&'static str>,
    /// Values of `amr` that say that a second factor was used.
    pub(crate) second_factors: Vec<String>,
    /// Every login there takes a second factor.
    pub(crate) provider_checks_second_factor: bool,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) mapping: Mapping,
    /// `email` counts also where the provider does not say that it has verified it.
    pub(crate) email_without_verification: bool,
    /// What a person is called here, when they come for the first time.
    pub(crate) username: Template,
    /// Servers besides the provider that are asked for groups that were too many for a token.
    pub(crate) allowed_hosts: Vec<HostPort>,
    pub(crate) ca_file: Option<PathBuf>,
    /// Servers on the authority's own machine are asked without TLS.
    pub(crate) insecure_loopback: bool,
    /// How many users a SCIM client may make.
    pub(crate) max_people: usize,
    /// What has to be the `externalId` of a SCIM client's user for a person to become that one; none: the name alone finds it.
    pub(crate) scim_external_id: Option<Template>,
    /// How long a person is a user here after a login.
    pub(crate) user_lifetime: Duration,
    /// How the provider is asked again, after a login, whether it still stands.
    pub(crate) refresh: Option<Refresh>,
    /// The provider tells of logouts.
    pub(crate) back_channel_logout: bool,
}

impl Connector {
    /// Where the provider sends a browser back to that came from a page of this origin: one of the document's addresses, or that of
    /// the cluster's public address.
    pub(crate) fn redirect_url(&self, origin: &str, public_addr: &str) -> Option<String> {
        if self.redirect_urls.is_empty() {
            let address = public_addr.strip_suffix(":443").unwrap_or(public_addr);
            return (!address.is_empty()).then(|| format!("https://{address}{}", callback_path(&self.name)));
        }
        let of_origin = |url: &&String| {
            url.strip_prefix(origin).is_some_and(|rest| !origin.is_empty() && rest.starts_with('/'))
        };
        self.redirect_urls.iter().find(of_origin).or(self.redirect_urls.first()).cloned()
    }
}
