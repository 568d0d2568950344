//! The documents of connectors.

use std::time::Duration;

use sallyport_access::ResourceName;
use sallyport_access::yaml::{self, Errors, Problems, Section, Tree};
use sallyport_oidc::{Algorithm, Template};

use super::connector::{CLIENT_KEYS, GITHUB, GITLAB, KINDS, Protocol};
pub(crate) use super::connector::{ClientProof, Connector, KIND};
use super::hubs;
use super::settings::{
    Head, file, head, hosts, mapping, max_people, needed, or, provider, redirect_urls, refresh,
    scim_external_id, shown, user_lifetime, words,
};
use super::written;

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
const SPEC: &[&str] = &[
    "acr_values",
    "algorithms",
    "allowed_hosts",
    "amr_is_second_factor",
    "ca_file",
    "client_id",
    "client_secret_file",
    "email_without_verification",
    "insecure_loopback",
    "issuer",
    "logout",
    "mapping",
    "max_age",
    "max_people",
    "private_key_jwt",
    "prompt",
    "provider_checks_second_factor",
    "redirect_urls",
    "refresh",
    "scim",
    "scopes",
    "title",
    "user_lifetime",
    "username",
];
const SCOPES: [&str; 3] = ["openid", "profile", "email"];
const USERNAME: &str = "{{claims.preferred_username}}";
const PROMPTS: [(&str, &str); 3] =
    [("login", "login"), ("consent", "consent"), ("select_account", "select_account")];
/// Algorithms of ID tokens where the document names none: what providers sign by unless they are set up otherwise.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Rs256, Algorithm::Es256];
const MAX_AGES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 86_400));

impl Connector {
    /// Reads a document of whichever kind.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, Errors> {
        let document = yaml::parse(KIND, text)?;
        let kind = match &document.value {
            Tree::Map(entries) => entries.iter().find(|(key, _)| key.value == "kind"),
            _ => None,
        };
        let kind = kind.and_then(|(_, kind)| kind.value.scalar());
        let mut problems = Problems::new();
        let top = Section::read(&document, "", TOP, &mut problems);
        let connector = top.and_then(|top| match kind.as_deref() {
            Some(GITHUB) => hubs::github(&top, &mut problems),
            Some(GITLAB) => hubs::gitlab(&top, &mut problems),
            _ => read(&top, &mut problems),
        });
        let file = KINDS.into_iter().find(|known| Some(*known) == kind.as_deref()).unwrap_or(KIND);
        problems.finish(file)?;
        connector.ok_or_else(|| Errors { file: file.to_owned(), problems: Vec::new() })
    }

    /// The document, which [`Connector::parse`] reads back to the same connector.
    pub(crate) fn to_yaml(&self) -> String {
        written::to_yaml(self)
    }
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Connector> {
    let Head { name, description, spec } = head(top, KIND, SPEC, problems)?;
    let insecure_loopback = spec.boolean("insecure_loopback", problems).unwrap_or(false);
    let fix = "write the URL that the provider's discovery document has as issuer, to the letter";
    needed(&spec, "issuer", fix, problems);
    let issuer = provider(&spec, "issuer", fix, insecure_loopback, problems);
    needed(&spec, "client_id", "write what the provider calls this cluster", problems);
    let client_id = shown(&spec, "client_id", problems);
    let proof = proof(&spec, problems);
    let scopes = words(&spec, "scopes", "write scopes such as openid, profile, email, groups", problems);
    if !scopes.is_empty() && !scopes.iter().any(|scope| scope == "openid") {
        let fix = "write openid as one of them";
        problems.push(spec.place("scopes"), &spec.name("scopes"), "without openid there is no ID token", fix);
    }
    let logout = spec.choice("logout", &[("back-channel", true)], problems).unwrap_or(false);
    let title = shown(&spec, "title", problems);
    let algorithms = spec.several(
        "algorithms",
        "write algorithms of ID tokens such as RS256 and ES256",
        problems,
        |text| Algorithm::of(text).ok_or("is none that is known here, or none that proves who signed"),
    );
    let username =
        spec.parsed("username", "write a template such as '{{claims.email}}'", problems, Template::parse);
    let second_factors = words(
        &spec,
        "amr_is_second_factor",
        "write values of the claim amr, such as mfa, otp or hwk",
        problems,
    );
    let acr_values =
        words(&spec, "acr_values", "write classes of logins, as the provider names them", problems);
    let redirect_urls = redirect_urls(&spec, name.as_ref(), insecure_loopback, problems);
    let max_age = spec.duration("max_age", MAX_AGES.0, MAX_AGES.1, problems);
    let (max_people, scim_external_id) = (max_people(&spec, problems), scim_external_id(&spec, problems));
    let prompt = spec.choice("prompt", &PROMPTS, problems);
    let checks = spec.boolean("provider_checks_second_factor", problems);
    let any_email = spec.boolean("email_without_verification", problems);
    let (mapping, allowed_hosts) = (mapping(&spec, problems), hosts(&spec, problems));
    let ca_file = file(&spec, "ca_file", problems);
    let (user_lifetime, refresh) = (user_lifetime(&spec, problems), refresh(&spec, problems));
    // Everything was read, so that everything that is wrong is told.
    Some(Connector {
        title: title.or_else(|| name.as_ref().map(|name: &ResourceName| name.to_string()))?,
        name: name?,
        description,
        protocol: Protocol::OpenIdConnect,
        issuer: issuer?,
        client_id: client_id?,
        proof: proof?,
        scopes: or(scopes, || SCOPES.map(str::to_owned).to_vec()),
        redirect_urls,
        max_age,
        acr_values,
        prompt,
        second_factors,
        provider_checks_second_factor: checks.unwrap_or(false),
        algorithms: or(algorithms, || ALGORITHMS.to_vec()),
        mapping,
        email_without_verification: any_email.unwrap_or(false),
        username: username.or_else(|| Template::parse(USERNAME).ok())?,
        allowed_hosts,
        ca_file,
        insecure_loopback,
        max_people,
        scim_external_id,
        user_lifetime,
        refresh,
        back_channel_logout: logout,
    })
}

fn proof(spec: &Section<'_>, problems: &mut Problems) -> Option<ClientProof> {
    let fix = "write client_secret_file: /PATH, or private_key_jwt: {algorithm: ES256}";
    match (spec.present("client_secret_file").is_some(), spec.present("private_key_jwt").is_some()) {
        (true, true) => {
            let place = spec.place("private_key_jwt");
            problems.push(place, &spec.name("private_key_jwt"), "there is a client_secret_file, too", fix);
            None
        }
        (false, false) => {
            problems.push(spec.at(), &spec.name("client_secret_file"), "is missing", fix);
            None
        }
        (true, false) => file(spec, "client_secret_file", problems).map(ClientProof::SecretFile),
        (false, true) => {
            let section = spec.section("private_key_jwt", &["algorithm"], problems)?;
            let algorithm = section.choice("algorithm", &CLIENT_KEYS, problems);
            needed(&section, "algorithm", "write ES256, ES384, EdDSA or RS256", problems);
            algorithm.map(ClientProof::Key)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
