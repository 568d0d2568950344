//! A connector as it is written.

use std::path::PathBuf;

use sallyport_access::yaml;
use sallyport_oidc::{Algorithm, Mapping, Template};
use serde::Serialize;

use super::connector::{ClientProof, Connector, Protocol, key_name};
use super::settings::MAX_PEOPLE;
use crate::config::HostPort;

/// The document of a connector, which `Connector::parse` reads back to the same connector.
pub(super) fn to_yaml(connector: &Connector) -> String {
    let metadata = Metadata { name: connector.name.as_str(), description: &connector.description };
    let (client_secret_file, private_key_jwt) = match &connector.proof {
        ClientProof::SecretFile(path) => (Some(path), None),
        ClientProof::Key(algorithm) => (None, key_name(*algorithm).map(|algorithm| KeyOf { algorithm })),
    };
    // What the kind fixes is not written.
    let open = connector.protocol == Protocol::OpenIdConnect;
    let organizations = match &connector.protocol {
        Protocol::GitHub(github) => github.organizations.as_slice(),
        Protocol::OpenIdConnect | Protocol::GitLab => &[],
    };
    let spec = Spec {
        title: &connector.title,
        issuer: open.then_some(connector.issuer.as_str()),
        url: (!open).then_some(connector.issuer.as_str()),
        client_id: &connector.client_id,
        client_secret_file,
        private_key_jwt,
        scopes: if open { &connector.scopes } else { &[] },
        organizations,
        redirect_urls: &connector.redirect_urls,
        max_age: connector.max_age.map(yaml::show),
        max_people: (connector.max_people != MAX_PEOPLE).then_some(connector.max_people),
        scim: connector.scim_external_id.as_ref().map(|external_id| Scim { external_id }),
        acr_values: &connector.acr_values,
        prompt: connector.prompt,
        amr_is_second_factor: &connector.second_factors,
        provider_checks_second_factor: connector.provider_checks_second_factor,
        algorithms: if open { &connector.algorithms } else { &[] },
        mapping: &connector.mapping,
        email_without_verification: connector.email_without_verification,
        username: &connector.username,
        allowed_hosts: connector.allowed_hosts.iter().map(HostPort::to_string).collect(),
        ca_file: connector.ca_file.as_ref(),
        insecure_loopback: connector.insecure_loopback,
        user_lifetime: yaml::show(connector.user_lifetime),
        refresh: connector.refresh.map(|refresh| Again {
            interval: yaml::show(refresh.interval),
            grace: yaml::show(refresh.grace),
        }),
        logout: connector.back_channel_logout.then_some("back-channel"),
    };
    let kind = connector.protocol.kind();
    serde_saphyr::to_string(&Document { kind, version: "v1", metadata, spec }).unwrap_or_default()
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
struct Scim<'a> {
    external_id: &'a Template,
}

#[derive(Serialize)]
struct Again {
    interval: String,
    grace: String,
}

#[derive(Serialize)]
struct Spec<'a> {
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    client_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret_file: Option<&'a PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key_jwt: Option<KeyOf>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    scopes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    organizations: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    redirect_urls: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_age: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_people: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scim: Option<Scim<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    acr_values: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'static str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    amr_is_second_factor: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    provider_checks_second_factor: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
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
    refresh: Option<Again>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logout: Option<&'static str>,
}
