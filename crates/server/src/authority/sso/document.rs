//! The document of a connector: an identity provider, and what its people get here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::text::check;
use sallyport_access::yaml::{self, Errors, Problems, Section, Tree};
use sallyport_access::{ResourceName, RoleName};
use sallyport_oidc::{Algorithm, Mapping, Path, Pattern, Rule, Template, discovery_url};
use sallyport_sal::KeyAlgorithm;
use serde::Serialize;

use crate::config::{Endpoint, HostPort};

/// The kind of these documents.
pub(crate) const KIND: &str = "oidc";

/// Where providers send browsers back to, on each proxy.
pub(crate) const CALLBACK_PATH: &str = "/web/sso/callback";

const TOP: &[&str] = &["kind", "version", "metadata", "spec"];
const METADATA: &[&str] = &["name", "description", "revision"];
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
    "scopes",
    "title",
    "user_lifetime",
    "username",
];
const MAPPING: &[&str] = &["roles", "traits"];
const RULE: &[&str] = &["claim", "value", "roles"];
const SCOPES: [&str; 3] = ["openid", "profile", "email"];
const USERNAME: &str = "{{claims.preferred_username}}";
const PROMPTS: [(&str, &str); 3] =
    [("login", "login"), ("consent", "consent"), ("select_account", "select_account")];
const CLIENT_KEYS: [(&str, KeyAlgorithm); 4] = [
    ("ES256", KeyAlgorithm::EcdsaP256),
    ("ES384", KeyAlgorithm::EcdsaP384),
    ("EdDSA", KeyAlgorithm::Ed25519),
    ("RS256", KeyAlgorithm::Rsa3072),
];
/// Algorithms of ID tokens where the document names none: what providers sign by unless they are set up otherwise.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Rs256, Algorithm::Es256];
const LIFETIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 86_400));
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
const MAX_AGES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 86_400));
/// People of a SCIM client, at most.
const PEOPLE: (usize, usize) = (1, 100_000);
const MAX_PEOPLE: usize = 20_000;
/// Longest text of a setting, in bytes, and most items of a list.
const TEXT_BYTES: usize = 512;
const ITEMS: usize = 100;
/// Most rules of a mapping, and most values of a trait.
const RULES: usize = 500;

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
    /// Also in the address of its logouts.
    pub(crate) name: ResourceName,
    pub(crate) description: String,
    /// What the button of the login page says.
    pub(crate) title: String,
    /// To the letter what its documents have as `issuer`.
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
    /// How long a person is a user here after a login.
    pub(crate) user_lifetime: Duration,
    /// The provider tells of logouts.
    pub(crate) back_channel_logout: bool,
}

impl Connector {
    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, Errors> {
        let document = yaml::parse(KIND, text)?;
        let mut problems = Problems::new();
        let connector =
            Section::read(&document, "", TOP, &mut problems).and_then(|top| read(&top, &mut problems));
        problems.finish(KIND)?;
        connector.ok_or_else(|| Errors { file: KIND.to_owned(), problems: Vec::new() })
    }

    /// The document, which [`Connector::parse`] reads back to the same connector.
    pub(crate) fn to_yaml(&self) -> String {
        let metadata = Metadata { name: self.name.as_str(), description: &self.description };
        let (client_secret_file, private_key_jwt) = match &self.proof {
            ClientProof::SecretFile(path) => (Some(path), None),
            ClientProof::Key(algorithm) => {
                let name = CLIENT_KEYS.iter().find(|(_, known)| known == algorithm);
                (None, name.map(|(name, _)| KeyOf { algorithm: name }))
            }
        };
        let spec = Spec {
            title: &self.title,
            issuer: &self.issuer,
            client_id: &self.client_id,
            client_secret_file,
            private_key_jwt,
            scopes: &self.scopes,
            redirect_urls: &self.redirect_urls,
            max_age: self.max_age.map(yaml::show),
            max_people: (self.max_people != MAX_PEOPLE).then_some(self.max_people),
            acr_values: &self.acr_values,
            prompt: self.prompt,
            amr_is_second_factor: &self.second_factors,
            provider_checks_second_factor: self.provider_checks_second_factor,
            algorithms: &self.algorithms,
            mapping: &self.mapping,
            email_without_verification: self.email_without_verification,
            username: &self.username,
            allowed_hosts: self.allowed_hosts.iter().map(HostPort::to_string).collect(),
            ca_file: self.ca_file.as_ref(),
            insecure_loopback: self.insecure_loopback,
            user_lifetime: yaml::show(self.user_lifetime),
            logout: self.back_channel_logout.then_some("back-channel"),
        };
        serde_saphyr::to_string(&Document { kind: KIND, version: "v1", metadata, spec }).unwrap_or_default()
    }

    /// Where the provider sends a browser back to that came from a page of this origin: one of the document's addresses, or that of
    /// the cluster's public address.
    pub(crate) fn redirect_url(&self, origin: &str, public_addr: &str) -> Option<String> {
        if self.redirect_urls.is_empty() {
            let address = public_addr.strip_suffix(":443").unwrap_or(public_addr);
            return (!address.is_empty()).then(|| format!("https://{address}{CALLBACK_PATH}"));
        }
        let of_origin = |url: &&String| {
            url.strip_prefix(origin).is_some_and(|rest| !origin.is_empty() && rest.starts_with('/'))
        };
        self.redirect_urls.iter().find(of_origin).or(self.redirect_urls.first()).cloned()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: Metadata<'a>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
}

#[derive(Serialize)]
struct KeyOf {
    algorithm: &'static str,
}

#[derive(Serialize)]
struct Spec<'a> {
    title: &'a str,
    issuer: &'a str,
    client_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret_file: Option<&'a PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key_jwt: Option<KeyOf>,
    scopes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    redirect_urls: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_people: Option<usize>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    acr_values: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    amr_is_second_factor: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    provider_checks_second_factor: bool,
    algorithms: &'a [Algorithm],
    mapping: &'a Mapping,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    email_without_verification: bool,
    username: &'a Template,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<&'a PathBuf>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_loopback: bool,
    user_lifetime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    logout: Option<&'static str>,
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<Connector> {
    for (key, wanted) in [("kind", KIND), ("version", "v1")] {
        if top.text(key, problems).is_none_or(|found| found != wanted) {
            problems.push(top.place(key), key, format!("is not {wanted}"), format!("write {key}: {wanted}"));
        }
    }
    let metadata = top.section("metadata", METADATA, problems);
    let name = metadata.as_ref().and_then(|metadata| {
        needed(metadata, "name", "write a name of lower-case letters, digits and '-'", problems);
        metadata.parsed("name", "write a name of lower-case letters, digits and '-'", problems, |text| {
            ResourceName::new(text)
        })
    });
    let description = metadata.as_ref().and_then(|metadata| shown(metadata, "description", problems));
    if metadata.is_none() {
        problems.push(top.at(), "metadata", "is missing", "write metadata: with a name below it");
    }
    let Some(spec) = top.section("spec", SPEC, problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with the provider's settings below it");
        return None;
    };
    let insecure_loopback = spec.boolean("insecure_loopback", problems).unwrap_or(false);
    let issuer = issuer(&spec, insecure_loopback, problems);
    let away = |issuer: &String| Endpoint::parse(issuer).is_ok_and(|issuer| !issuer.is_loopback());
    if insecure_loopback && issuer.as_ref().is_some_and(away) {
        let fix = "remove it: it is for a provider on the authority's own machine";
        let message = "the issuer is on another machine";
        problems.push(spec.place("insecure_loopback"), &spec.name("insecure_loopback"), message, fix);
    }
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
    let redirect_urls = redirect_urls(&spec, insecure_loopback, problems);
    let max_age = spec.duration("max_age", MAX_AGES.0, MAX_AGES.1, problems);
    let max_people = spec.count("max_people", PEOPLE.0, PEOPLE.1, problems);
    let prompt = spec.choice("prompt", &PROMPTS, problems);
    let checks = spec.boolean("provider_checks_second_factor", problems);
    let any_email = spec.boolean("email_without_verification", problems);
    let (mapping, allowed_hosts) = (mapping(&spec, problems), hosts(&spec, problems));
    let ca_file = file(&spec, "ca_file", problems);
    let user_lifetime = spec.duration("user_lifetime", LIFETIMES.0, LIFETIMES.1, problems);
    // Everything was read, so that everything that is wrong is told.
    Some(Connector {
        title: title.or_else(|| name.as_ref().map(|name: &ResourceName| name.to_string()))?,
        name: name?,
        description: description.unwrap_or_default(),
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
        max_people: max_people.unwrap_or(MAX_PEOPLE),
        user_lifetime: user_lifetime.unwrap_or(LIFETIME),
        back_channel_logout: logout,
    })
}

fn or<T>(given: Vec<T>, default: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if given.is_empty() { default() } else { given }
}

fn needed(section: &Section<'_>, key: &str, fix: &str, problems: &mut Problems) {
    if section.present(key).is_none() {
        problems.push(section.at(), &section.name(key), "is missing", fix);
    }
}

/// A text that people read.
fn shown(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    section.parsed(key, "write text of at most 512 bytes on one line", problems, |text| {
        if text.trim().is_empty() || text.len() > TEXT_BYTES {
            return Err("is empty or too long".to_owned());
        }
        check("it", text).map_err(|hidden| hidden.to_string())?;
        Ok(text.to_owned())
    })
}

/// Words that stand in a request with spaces between them.
fn words(section: &Section<'_>, key: &str, fix: &str, problems: &mut Problems) -> Vec<String> {
    let words = section.several(key, fix, problems, |text| {
        // RFC 6749 §3.3, of a scope.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let good = (1..=TEXT_BYTES).contains(&text.len()) && text.bytes().all(plain);
        if good { Ok(text.to_owned()) } else { Err("is not one word") }
    });
    bounded(section, key, words, ITEMS, problems)
}

fn bounded<T>(
    section: &Section<'_>,
    key: &str,
    mut items: Vec<T>,
    most: usize,
    problems: &mut Problems,
) -> Vec<T> {
    if items.len() > most {
        let message = format!("has {} items", items.len());
        problems.push(section.place(key), &section.name(key), message, format!("write at most {most}"));
        items.truncate(most);
    }
    items
}

fn file(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<PathBuf> {
    section.parsed(key, "write a path that begins with /", problems, |text| {
        let path = PathBuf::from(text);
        let plain =
            path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir);
        if plain { Ok(path) } else { Err("is relative, or has .. in it") }
    })
}

/// An address that secrets go to.
pub(crate) fn endpoint(url: &str, insecure_loopback: bool) -> Result<Endpoint, &'static str> {
    let endpoint = Endpoint::parse(url)?;
    match (endpoint.secure, endpoint.is_loopback(), insecure_loopback) {
        (true, ..) | (false, true, true) => Ok(endpoint),
        (false, true, false) => Err("has no TLS: write https://, or insecure_loopback: true for a test"),
        (false, false, _) => Err("has no TLS: write https://"),
    }
}

fn issuer(spec: &Section<'_>, insecure_loopback: bool, problems: &mut Problems) -> Option<String> {
    let fix = "write the URL that the provider's discovery document has as issuer, to the letter";
    needed(spec, "issuer", fix, problems);
    spec.parsed("issuer", fix, problems, |text| {
        discovery_url(text).map_err(|error| error.to_string())?;
        endpoint(text, insecure_loopback).map_err(str::to_owned)?;
        Ok::<_, String>(text.to_owned())
    })
}

fn redirect_urls(spec: &Section<'_>, insecure_loopback: bool, problems: &mut Problems) -> Vec<String> {
    let fix = "write https://PROXY/web/sso/callback";
    let urls = spec.several("redirect_urls", fix, problems, |text| {
        let found = endpoint(text, insecure_loopback)?;
        if found.path == CALLBACK_PATH {
            Ok(text.to_owned())
        } else {
            Err("does not end in /web/sso/callback")
        }
    });
    bounded(spec, "redirect_urls", urls, ITEMS, problems)
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

fn hosts(spec: &Section<'_>, problems: &mut Problems) -> Vec<HostPort> {
    let hosts = spec.several("allowed_hosts", "write names such as graph.microsoft.com", problems, |text| {
        text.parse().or_else(|problem| format!("{text}:443").parse::<HostPort>().map_err(|_| problem))
    });
    bounded(spec, "allowed_hosts", hosts, ITEMS, problems)
}

fn mapping(spec: &Section<'_>, problems: &mut Problems) -> Mapping {
    let fix = "write mapping: with roles: below it, a list of {claim: groups, value: 'ops-*', roles: [ROLE]}";
    let Some(section) = spec.section("mapping", MAPPING, problems) else {
        problems.push(spec.at(), &spec.name("mapping"), "is missing: no login would have a role", fix);
        return Mapping::default();
    };
    let rules = section.sections("roles", RULE, fix, problems);
    let rules = bounded(&section, "roles", rules, RULES, problems);
    if rules.is_empty() {
        problems.push(section.place("roles"), &section.name("roles"), "has no rule", fix);
    }
    let roles = rules.iter().filter_map(|rule| self::rule(rule, problems)).collect();
    Mapping { roles, traits: traits(&section, problems) }
}

fn rule(section: &Section<'_>, problems: &mut Problems) -> Option<Rule> {
    needed(section, "claim", "write the path of a claim, such as groups or realm_access.roles", problems);
    needed(section, "roles", "write roles: [ROLE]", problems);
    let claim =
        section.parsed("claim", "write a path such as groups or realm_access.roles", problems, Path::parse);
    let value = section.parsed("value", "write a text, with * for any characters", problems, |text| {
        if text.len() <= TEXT_BYTES { Ok(Pattern::new(text)) } else { Err("is too long") }
    });
    let roles = section.several("roles", "write names of roles", problems, |text| {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        if template.begins_with_claim() {
            return Err(
                "begins with a claim, so that the provider could name any role: write a text ahead of it"
                    .to_owned(),
            );
        }
        if let Some(name) = template.constant() {
            RoleName::new(name).map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(template)
    });
    let roles = bounded(section, "roles", roles, ITEMS, problems);
    Some(Rule { claim: claim?, value: value.unwrap_or_else(|| Pattern::new("*")), roles })
}

fn traits(section: &Section<'_>, problems: &mut Problems) -> BTreeMap<String, Vec<Template>> {
    let fix = "write NAME: [TEMPLATE] below it, such as logins: ['{{claims.unix_name}}']";
    let Some(value) = section.present("traits") else { return BTreeMap::new() };
    let path = section.name("traits");
    let Tree::Map(entries) = &value.value else {
        problems.push(value.referenced, &path, format!("expected traits, got {}", value.value.kind()), fix);
        return BTreeMap::new();
    };
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.value.as_str()).collect();
    let Some(traits) = Section::read(value, &path, &names, problems) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for name in names {
        if let Err(hidden) = check("the name of a trait", name) {
            problems.push(traits.place(name), &traits.name(name), hidden.to_string(), fix);
        }
        let templates = traits.several(name, fix, problems, Template::parse);
        found.insert(name.to_owned(), bounded(&traits, name, templates, ITEMS, problems));
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
mod tests;
