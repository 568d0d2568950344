//! Why single sign-on fails: what an administrator reads in the log and in a test, and the word for events. What a person at the
//! page reads is apart ([`SsoError::shown`]).

use std::io;

use http::StatusCode;
use sallyport_access::{IdError, ResourceName};
use sallyport_oidc::OidcError;
use sallyport_sal::SalError;
use time::OffsetDateTime;

use super::connector::callback_path;
use crate::authority::scim::admission::Unprovisioned;
use crate::outgoing::OutgoingError;

/// Why the template of a user's name gives none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoUserName {
    #[error(transparent)]
    Name(#[from] IdError),
    #[error("the provider does not say that it has verified the mail address (email_verified)")]
    Unverified,
    #[error("a claim of it is not there, or has several values")]
    Missing,
}

/// Everything that fails between a person's click and their login, sorted by who has to act.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SsoError {
    // The provider, or what is between.
    /// A server of the provider's gave no answer.
    #[error("{what} at {url} was asked in vain")]
    Asked {
        /// Which part of the provider.
        what: &'static str,
        url: String,
        #[source]
        source: OutgoingError,
    },
    /// It was not reached a moment ago, and is not asked again yet.
    #[error("{problem} (it is asked again in a few seconds)")]
    Resting { problem: String },
    /// Its keys cannot be fetched, and those that are kept are too old to go by.
    #[error(
        "the provider's keys were fetched at {fetched} for the last time and cannot be fetched now, so that nothing that it signs is \
             believed: a key may have been withdrawn since; have this authority reach the provider's key set again"
    )]
    StaleKeys {
        fetched: OffsetDateTime,
        #[source]
        source: Box<SsoError>,
    },
    /// It answered with something other than what was asked for.
    #[error("{what} at {url} answered {status}, expected 200{}", hint(*status))]
    Status { what: &'static str, url: String, status: StatusCode },
    /// The answer cannot be read.
    #[error("the answer of {what} at {url}: {reason}")]
    Unreadable { what: &'static str, url: String, reason: String },
    /// A document of the provider's names an address that nothing is sent to.
    #[error("the provider's documents name {what} at {url:?}, which {reason}")]
    Address { what: &'static str, url: String, reason: &'static str },
    /// A token, a key set, a discovery document or an answer is not good.
    #[error(transparent)]
    Oidc(#[from] OidcError),
    /// The user information is about another person than the token.
    #[error(
        "the provider's user information is about {got:?}, and its token about {expected:?}: nothing of it is used"
    )]
    OtherSubject { got: String, expected: String },

    // The administrator of the cluster, at the provider or here.
    /// The provider answered with an error of OAuth (RFC 6749 §4.1.2.1, §5.2).
    #[error("the provider refuses with {error}{}: {}", described(description), fix(error))]
    Refused { error: String, description: String },
    /// The client's secret cannot be read.
    #[error("the client's secret cannot be read: check client_secret_file")]
    Secret(#[source] io::Error),
    /// A file that the connector names is the authority's own.
    #[error("{key} names {path}, and {problem}")]
    OwnFile { key: &'static str, path: String, problem: &'static str },
    /// The client's secret is none.
    #[error("{path} has no secret: expected one line of 1 to 1024 printable ASCII characters without spaces")]
    NoSecret { path: String },
    /// The client's key is not there.
    #[error(
        "there is no key for this connector by {algorithm}: write the connector first (sallyport admin create), and give its key \
             set to the provider (sallyport admin sso jwks)"
    )]
    NoKey { algorithm: String },
    /// The client's key cannot be used.
    #[error("the connector's key cannot be used")]
    Key(#[source] SalError),
    /// The client's proof cannot be made.
    #[error("the proof of this client cannot be made")]
    Proof(#[source] sallyport_ca::CaError),
    /// The provider takes no proof that this client has.
    #[error(
        "the provider's token endpoint takes {offered}, and this connector has {have}: choose the other of client_secret_file and \
             private_key_jwt, or change the client at the provider"
    )]
    NoProof { offered: String, have: &'static str },
    /// There is no address that the provider could send a browser back to.
    #[error(
        "the cluster has no public address: set public_addr of the proxy, or redirect_urls of the connector"
    )]
    NoRedirect,

    /// Every connector may have the address, and the provider's answers do not say whose they are.
    #[error(
        "the redirect address of the connector is one that every connector may have, and its provider does not name itself in its answers \
             (iss), so that they could be another's: register https://PROXY{path} at the provider, and write it in redirect_urls",
        path = callback_path(connector)
    )]
    SharedAddress { connector: ResourceName },

    // What the provider said of the person, against what the connector wants.
    /// A claim is elsewhere, and was not fetched.
    #[error(
        "the provider says that {claim:?} was too large for its token and is elsewhere ({endpoint}), {reason}: it is not taken for \
             an empty list"
    )]
    Elsewhere { claim: String, endpoint: String, reason: String },
    /// A claim has more, or longer, values than are read.
    #[error("{from} has more values than are read, or longer ones: what is left out is not taken for absent")]
    Cut { from: String },
    /// The class of the login is none of those that were asked for.
    #[error("the login at the provider was of the class (acr) {got:?}, expected one of {expected}")]
    WrongClass { got: String, expected: String },
    /// The person was to sign in again, and the provider took a login from before.
    #[error(
        "the person was to sign in again at {began}, and the provider {} (auth_time): have it honour prompt=login and max_age=0, and put \
             auth_time into its ID tokens",
        at.map_or_else(|| "does not say when they did".to_owned(), |at| format!("says that they last did at {at}"))
    )]
    NotAnew { at: Option<OffsetDateTime>, began: OffsetDateTime },
    /// The cluster wants a second factor, and the provider has not said that it saw one.
    #[error(
        "this cluster requires a second factor, and the provider says {said} (amr): ask for one there, and name its value in \
             amr_is_second_factor, or write provider_checks_second_factor: true where every login there takes one"
    )]
    NoSecondFactor { said: String },
    /// No rule of the mapping gives a role that there is.
    #[error("no rule of the mapping gives a role that there is: {trace}")]
    NoRoles { trace: String },
    /// There is no way to ask the provider again.
    #[error(
        "the connector has refresh, and the provider gave no refresh token: allow the client the grant type refresh_token there, and ask \
             for the scope by which it gives one (offline_access at most), or remove refresh"
    )]
    NoRefreshToken,
    /// The template of the user's name gives none.
    #[error("the template {template:?} gives no user name: {reason}")]
    NoName { template: String, reason: NoUserName },
    /// The connector's SCIM client does not say that they are active.
    #[error("the connector {connector} is provisioned by SCIM, and {reason}")]
    NotProvisioned { connector: String, reason: Unprovisioned },
    /// The name is one that another connector's SCIM client has announced.
    #[error(
        "the user name {name} is taken: the SCIM client of the connector {connector} has made a user who is called so, also before that person \
             first logs in; the person logs in by that connector, or an administrator changes the username template of this one, or has \
             the identity provider remove or rename that user"
    )]
    NameAnnounced { name: String, connector: ResourceName },
    /// The name is another's.
    #[error(
        "the user name {name} is taken: it belongs to {owner}, and nothing merges two people; an administrator changes the \
             connector's username template, or removes the other (sallyport admin rm user/{name}){}", or_links(link.as_ref())
    )]
    NameTaken {
        name: String,
        owner: String,
        /// How an administrator would link the person with the local user whose name it is.
        link: Option<LinkCommand>,
    },
    /// A local user is linked with the person by another connector of the same provider.
    #[error(
        "the person is linked with the local user {name} by the connector {connector}, and by no other: they choose that one, or an \
             administrator unlinks them (sallyport admin users unlink {name})"
    )]
    LinkedElsewhere { name: String, connector: String },
    /// A local user is linked by a connector that has a SCIM client now.
    #[error(
        "the person is linked with the local user {name} by the connector {connector}, which has a SCIM client now, and local users are none \
             of its people: end its tokens (sallyport admin scim token rm), or unlink the user (sallyport admin users unlink {name})"
    )]
    LinkProvisioned { name: String, connector: String },
    /// A local user who has a factor would come in without one.
    #[error(
        "the linked user has a second factor here, and the provider says {said} (amr), so that the login would go without one: name its value \
             in amr_is_second_factor, or write provider_checks_second_factor: true where every login there takes one"
    )]
    FactorOfLinked { said: String },

    /// An organisation at GitHub asks for its own single sign-on before the application sees what belongs to it.
    #[error(
        "the organisation {organization} asks for its own single sign-on before this application sees its teams{}: the person \
             begins again and authorises the application for it",
        at(url)
    )]
    OrganizationSso { organization: String, url: String },
    /// GitHub says nothing of an organisation to this application.
    #[error(
        "GitHub does not say whether the person belongs to {organization}{}: an owner of it approves this application (Settings, \
             Third-party Access), or organizations of the connector names it wrongly",
        described(said)
    )]
    OrganizationHidden { organization: String, said: String },

    // The browser.
    /// No login awaits this answer: it was used, it is over, or there was none.
    #[error("no login awaits this answer: it was used before, or it is too old")]
    NotAwaited,
    /// Another browser than the one that began.
    #[error("the answer came in another browser than the one that began")]
    OtherBrowser,
    /// The provider that the browser was sent to is not the one that has sent it back.
    #[error(
        "the browser was sent to the provider of {connector}, which answers at {expected}, and came back {}: another provider has answered, \
             and its code is shown to neither; where {connector} itself sends people to another provider, remove it",
        back_at(got)
    )]
    OtherAddress { connector: String, expected: String, got: String },
    /// The connector was changed or removed meanwhile.
    #[error("the connector was changed during the login")]
    Changed,

    // Ourselves.
    /// What the authority itself keeps could not be read or written while it asked.
    #[error("the authority's own state failed while the provider was asked: {problem}")]
    State { problem: String },
    /// No randomness.
    #[error("the system has no randomness to give")]
    NoRandomness,
}

impl SsoError {
    /// The word for events. It never changes.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Asked { .. } | Self::Resting { .. } => "not_reached",
            Self::Status { .. } | Self::Unreadable { .. } => "bad_answer",
            Self::Address { .. } => "bad_address",
            Self::StaleKeys { .. } => "stale_keys",
            Self::Oidc(error) => error.word(),
            Self::OtherSubject { .. } => "other_subject",
            Self::Refused { .. } => "refused_by_provider",
            Self::Secret(_) | Self::NoSecret { .. } | Self::OwnFile { .. } => "no_secret",
            Self::NoKey { .. } | Self::Key(_) | Self::Proof(_) => "no_key",
            Self::NoProof { .. } => "no_proof",
            Self::NoRedirect => "no_redirect",
            Self::SharedAddress { .. } => "shared_address",
            Self::Elsewhere { .. } | Self::Cut { .. } => "claim_elsewhere",
            Self::WrongClass { .. } => "wrong_class",
            Self::NoSecondFactor { .. } | Self::FactorOfLinked { .. } => "no_second_factor",
            Self::NotAnew { .. } => "not_anew",
            Self::NoRoles { .. } => "no_roles",
            Self::NoRefreshToken => "no_refresh_token",
            Self::NoName { .. } => "no_name",
            Self::NameTaken { .. } | Self::NameAnnounced { .. } => "name_taken",
            Self::LinkedElsewhere { .. } => "linked_elsewhere",
            Self::LinkProvisioned { .. } => "link_provisioned",
            Self::NotProvisioned { .. } => "not_provisioned",
            Self::OrganizationSso { .. } => "organization_sso",
            Self::OrganizationHidden { .. } => "organization_hidden",
            Self::NotAwaited => "not_awaited",
            Self::OtherBrowser => "other_browser",
            Self::OtherAddress { .. } => "other_address",
            Self::Changed => "connector_changed",
            Self::State { .. } => "own_state",
            Self::NoRandomness => "no_randomness",
        }
    }

    /// What the person at the page reads. It says nothing of the provider's answers and of this cluster's settings.
    pub(crate) fn shown(&self) -> String {
        let text = match self {
            Self::NoRoles { .. } => {
                "your login at the provider is good, and it gives you no role here; ask an administrator to map one of your groups"
            }
            Self::NameTaken { name, link, .. } => {
                let taken = format!(
                    "your login at the provider is good, and the name {name} belongs to another user here"
                );
                return match link.as_ref().and_then(LinkCommand::line) {
                    Some(line) => {
                        format!(
                            "{taken}; if that user is you, ask an administrator to link you with them: {line}"
                        )
                    }
                    None => format!("{taken}; ask an administrator"),
                };
            }
            Self::NameAnnounced { name, .. } => {
                return format!(
                    "your login at the provider is good, and the name {name} is kept for a user of another single sign-on; if that is you, \
                     choose that one on the page, else ask an administrator"
                );
            }
            Self::LinkedElsewhere { .. } => {
                "your login at the provider is good, and your user here comes by another single sign-on; choose that one on the page"
            }
            Self::LinkProvisioned { .. } => {
                "your login at the provider is good, and your user here does not come by it any more; log in by your password or passkey, or \
                 ask an administrator"
            }
            Self::FactorOfLinked { .. } => {
                "you have a second factor here, and the provider does not say that you used one; log in there with one, or here by your \
                 password or passkey"
            }
            Self::OrganizationSso { organization, .. } => {
                return format!(
                    "the organisation {organization} at GitHub asks for its own single sign-on before your teams are seen here; begin \
                     again, and authorise this application for {organization} when GitHub asks"
                );
            }
            Self::OrganizationHidden { organization, .. } => {
                return format!(
                    "GitHub does not say whether you belong to the organisation {organization}; ask an administrator, or one of its owners"
                );
            }
            Self::NotProvisioned { .. } => {
                "your login at the provider is good, and it does not say that you are to have an account here; ask an administrator"
            }
            Self::NoName { .. } => {
                "your login at the provider is good, and it says nothing that can be your user name here; ask an administrator"
            }
            Self::NoSecondFactor { .. } => {
                "this cluster requires a second factor, and the provider does not say that you used one; log in there with one, or ask \
                 an administrator"
            }
            Self::WrongClass { .. } => {
                "this cluster asks for a stronger login at the provider; log in there again, or ask an administrator"
            }
            Self::NotAnew { .. } => {
                "your provider did not ask you to sign in again, and a login from before does not do here; log out at the provider, and \
                 begin again"
            }
            Self::Elsewhere { .. } | Self::Cut { .. } => {
                "you are in more groups than the provider tells at once, so that your roles are not known; ask an administrator"
            }
            Self::Refused { error, .. } if error == "access_denied" => {
                "the login was refused at the provider; start again if you did not mean to"
            }
            Self::NotAwaited | Self::Oidc(OidcError::AttemptExpired { .. } | OidcError::StateMismatch) => {
                "this answer belongs to no login that waits for it: it was used, or it is too old; start again: sallyport login"
            }
            Self::OtherBrowser => {
                "this answer came to another browser than the one that began the login; start again in one window"
            }
            Self::OtherAddress { .. } => {
                "another identity provider has answered than the one that you chose, and nothing of its answer was used; do not try that \
                 one again, and tell an administrator"
            }
            Self::Changed => "single sign-on was changed at this moment; start again",
            Self::Asked { .. }
            | Self::Resting { .. }
            | Self::StaleKeys { .. }
            | Self::Status { .. }
            | Self::Unreadable { .. } => {
                "the identity provider gives no answer that can be used; try again in a minute, or ask an administrator"
            }
            _ => {
                "the provider's answer cannot be used; start again, and if that fails ask an administrator, whose log says why"
            }
        };
        text.to_owned()
    }
}

/// By what an administrator links a local user with the person who came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkCommand {
    pub(crate) user: String,
    pub(crate) connector: String,
    pub(crate) subject: String,
}

impl LinkCommand {
    /// As a shell takes it; none of a subject that is no plain text.
    fn line(&self) -> Option<String> {
        let Self { user, connector, subject } = self;
        let is_plain = subject.chars().all(|one| one.is_ascii_graphic() && one != '\'');
        is_plain.then(|| {
            format!("sallyport admin users link '{user}' --connector {connector} --subject '{subject}'")
        })
    }
}

fn or_links(link: Option<&LinkCommand>) -> String {
    let line = link.and_then(LinkCommand::line);
    line.map_or_else(String::new, |line| format!(", or links the person with that user: {line}"))
}

fn hint(status: StatusCode) -> &'static str {
    if status.is_redirection() { " (redirects are not followed: name the server itself)" } else { "" }
}

fn back_at(connector: &str) -> String {
    match connector {
        "" => "to the address that every connector may have".to_owned(),
        connector => format!("to that of {connector:?}"),
    }
}

fn at(url: &str) -> String {
    if url.is_empty() { String::new() } else { format!(" ({url})") }
}

fn described(description: &str) -> String {
    if description.is_empty() { String::new() } else { format!(" ({description})") }
}

/// What to set, by the error.
fn fix(error: &str) -> &'static str {
    match error {
        "invalid_client" | "incorrect_client_credentials" => {
            "check client_id and the client's secret or key at the provider"
        }
        "invalid_grant" => {
            "the code was used or is too old, or the redirect address is another than the provider knows; start again"
        }
        "bad_verification_code" => "the code was used or is too old; start again",
        "redirect_uri_mismatch" => "give the application at GitHub the redirect address as its callback URL",
        "unverified_user_email" => "the person verifies an address at GitHub first",
        "application_suspended" => "GitHub has suspended the application; its page there says why",
        "unauthorized_client" => "allow this client the authorization code flow at the provider",
        "invalid_scope" => "allow this client the connector's scopes at the provider, or remove them here",
        "access_denied" => "the person refused, or has no access to this application at the provider",
        "login_required" | "interaction_required" | "consent_required" => {
            "remove prompt, or allow it at the provider"
        }
        "invalid_request" => {
            "compare the connector with the client's settings at the provider, the redirect address first"
        }
        _ => "the provider's log says more",
    }
}
