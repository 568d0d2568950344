//! The documents of connectors to GitHub and GitLab, as they are read.

use sallyport_access::ResourceName;
use sallyport_access::yaml::{Problems, Section};
use sallyport_oidc::{Algorithm, Mapping, Template};

use super::connector::{ClientProof, Connector, GITHUB, GITLAB, GitHub, Protocol, Refresh};
use super::settings::{
    Head, ITEMS, bounded, file, head, mapping, max_people, needed, provider, redirect_urls, refresh,
    scim_external_id, shown, user_lifetime,
};
use crate::config::Endpoint;

const GITHUB_SPEC: &[&str] = &[
    "ca_file",
    "client_id",
    "client_secret_file",
    "insecure_loopback",
    "mapping",
    "max_people",
    "organizations",
    "provider_checks_second_factor",
    "redirect_urls",
    "scim",
    "title",
    "url",
    "user_lifetime",
    "username",
];
const GITLAB_SPEC: &[&str] = &[
    "ca_file",
    "client_id",
    "client_secret_file",
    "insecure_loopback",
    "mapping",
    "max_people",
    "provider_checks_second_factor",
    "redirect_urls",
    "refresh",
    "scim",
    "title",
    "url",
    "user_lifetime",
    "username",
];
#[cfg(test)]
pub(super) const KEYS: [&[&str]; 2] = [GITHUB_SPEC, GITLAB_SPEC];
const GITHUB_URL: &str = "https://github.com";
const GITLAB_URL: &str = "https://gitlab.com";
/// Longest name of an organisation, in bytes; GitHub gives at most 39.
const ORGANIZATION_BYTES: usize = 64;

/// Reads a document of kind `github`.
pub(super) fn github(top: &Section<'_>, problems: &mut Problems) -> Option<Connector> {
    let Head { name, description, spec } = head(top, GITHUB, GITHUB_SPEC, problems)?;
    let shared = shared(&spec, name.as_ref(), GITHUB_URL, "{{claims.login}}", problems);
    if let Some(url) = &shared.url
        && Endpoint::parse(url).is_ok_and(|url| url.path != "/")
    {
        let fix = "write https:// and the name of the server alone";
        problems.push(spec.place("url"), &spec.name("url"), "has a path", fix);
    }
    let fix = "write the names of the organisations whose teams count, such as [acme]";
    needed(&spec, "organizations", fix, problems);
    let organizations = spec.several("organizations", fix, problems, |text| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let good = (1..=ORGANIZATION_BYTES).contains(&text.len()) && text.bytes().all(plain);
        if good { Ok(text.to_ascii_lowercase()) } else { Err("is no name of an organisation") }
    });
    let organizations = bounded(&spec, "organizations", organizations, ITEMS / 5, problems);
    if spec.present("organizations").is_some() && organizations.is_empty() {
        problems.push(spec.place("organizations"), &spec.name("organizations"), "names none", fix);
    }
    let asks = |claim: &str| {
        let names = shared.username.as_ref().is_some_and(|name| name.claims().any(|one| one == claim));
        let identifies = shared.scim_external_id.iter().flat_map(Template::claims).any(|one| one == claim);
        names || identifies || shared.mapping.claims().contains(claim)
    };
    let mut scopes = vec!["read:org".to_owned()];
    scopes.extend(asks("email").then(|| "user:email".to_owned()));
    let api = shared.url.as_deref().and_then(api);
    let protocol = api.map(|api| Protocol::GitHub(GitHub { api, organizations }));
    connector(name, description, protocol, scopes, Vec::new(), None, shared)
}

/// Where the API of a GitHub is: apart from its pages where GitHub runs it, and below them at a company's own.
fn api(url: &str) -> Option<String> {
    let found = Endpoint::parse(url).ok()?;
    let host = found.address.host.as_str();
    let apart = host == "github.com" || host.ends_with(".ghe.com");
    Some(if apart { format!("https://api.{}", found.authority()) } else { format!("{url}/api/v3") })
}

/// Reads a document of kind `gitlab`.
pub(super) fn gitlab(top: &Section<'_>, problems: &mut Problems) -> Option<Connector> {
    let Head { name, description, spec } = head(top, GITLAB, GITLAB_SPEC, problems)?;
    let shared = shared(&spec, name.as_ref(), GITLAB_URL, "{{claims.preferred_username}}", problems);
    let refresh = refresh(&spec, problems);
    // The least: of groups, their paths alone. `read_api` would let this cluster read every project of the person.
    let scopes = ["openid", "profile", "email"].map(str::to_owned).to_vec();
    let algorithms = vec![Algorithm::Rs256, Algorithm::Es256];
    connector(name, description, Some(Protocol::GitLab), scopes, algorithms, refresh, shared)
}

/// What both have.
struct Shared {
    url: Option<String>,
    title: Option<String>,
    client_id: Option<String>,
    secret: Option<std::path::PathBuf>,
    redirect_urls: Vec<String>,
    checks: bool,
    mapping: Mapping,
    username: Option<Template>,
    ca_file: Option<std::path::PathBuf>,
    insecure_loopback: bool,
    max_people: usize,
    scim_external_id: Option<Template>,
    user_lifetime: std::time::Duration,
}

fn shared(
    spec: &Section<'_>,
    name: Option<&ResourceName>,
    url: &str,
    username: &str,
    problems: &mut Problems,
) -> Shared {
    let insecure_loopback = spec.boolean("insecure_loopback", problems).unwrap_or(false);
    let fix = "write the address of its pages, such as https://git.example.com, or leave it out";
    let given = provider(spec, "url", fix, insecure_loopback, problems);
    let given = given.map(|url| url.trim_end_matches('/').to_owned());
    if insecure_loopback && spec.present("url").is_none() {
        let fix = "remove it: it is for a server on the authority's own machine";
        let message = "the server is on another machine";
        problems.push(spec.place("insecure_loopback"), &spec.name("insecure_loopback"), message, fix);
    }
    needed(spec, "client_id", "write the application's id, as its page there has it", problems);
    needed(spec, "client_secret_file", "write client_secret_file: /PATH", problems);
    let written = spec.parsed("username", "write a template such as '{{claims.email}}'", problems, |text| {
        Template::parse(text)
    });
    Shared {
        url: if spec.present("url").is_some() { given } else { Some(url.to_owned()) },
        title: shown(spec, "title", problems),
        client_id: shown(spec, "client_id", problems),
        secret: file(spec, "client_secret_file", problems),
        redirect_urls: redirect_urls(spec, name, insecure_loopback, problems),
        checks: spec.boolean("provider_checks_second_factor", problems).unwrap_or(false),
        mapping: mapping(spec, problems),
        username: written.or_else(|| Template::parse(username).ok()),
        ca_file: file(spec, "ca_file", problems),
        insecure_loopback,
        max_people: max_people(spec, problems),
        scim_external_id: scim_external_id(spec, problems),
        user_lifetime: user_lifetime(spec, problems),
    }
}

fn connector(
    name: Option<ResourceName>,
    description: String,
    protocol: Option<Protocol>,
    scopes: Vec<String>,
    algorithms: Vec<Algorithm>,
    refresh: Option<Refresh>,
    shared: Shared,
) -> Option<Connector> {
    Some(Connector {
        title: shared.title.or_else(|| name.as_ref().map(ToString::to_string))?,
        name: name?,
        description,
        protocol: protocol?,
        issuer: shared.url?,
        client_id: shared.client_id?,
        proof: ClientProof::SecretFile(shared.secret?),
        scopes,
        redirect_urls: shared.redirect_urls,
        max_age: None,
        acr_values: Vec::new(),
        prompt: None,
        second_factors: Vec::new(),
        provider_checks_second_factor: shared.checks,
        algorithms,
        mapping: shared.mapping,
        // Both say of an address whether it is verified.
        email_without_verification: false,
        username: shared.username?,
        allowed_hosts: Vec::new(),
        ca_file: shared.ca_file,
        insecure_loopback: shared.insecure_loopback,
        max_people: shared.max_people,
        scim_external_id: shared.scim_external_id,
        user_lifetime: shared.user_lifetime,
        refresh,
        back_channel_logout: false,
    })
}
