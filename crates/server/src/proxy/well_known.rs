//! The keys that others verify tokens and workloads with, where the standards look for them.
//!
//! The proxy makes all of it from the trust that it watches, without asking the authority, and a new key is here as
//! soon as proxies trust it, which is before anything is signed with it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use sallyport_ca::jwt::{self, KeySet};
use sallyport_ca::{CaError, CaKind, Trust, known_hosts_lines, spiffe};
use sallyport_sal::hash;
use serde_json::json;

use crate::member::cluster_cache::ClusterCache;
use crate::routes::Routes;

/// How long a copy may be used. A new key is trusted for longer than that before it signs.
const FRESH: &str = "public, max-age=300";

const JWKS: &str = "/.well-known/jwks.json";
const OIDC_JWKS: &str = "/.well-known/jwks-oidc";
const DISCOVERY: &str = "/.well-known/openid-configuration";
const SPIFFE: &str = "/spiffe/bundle.json";

/// A document with the mark by which a reader sees that it is still the same.
#[derive(Debug)]
struct Document {
    body: String,
    tag: HeaderValue,
}

impl Document {
    fn new(body: String) -> Self {
        let digest = hash::sha256(body.as_bytes());
        let tag = format!("\"{}\"", data_encoding::HEXLOWER.encode(digest.get(..16).unwrap_or_default()));
        // Hexadecimal digits are always a header.
        Self { body, tag: HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\"")) }
    }
}

/// Everything that follows from one trust; a document is missing while its CA is.
#[derive(Debug)]
struct Documents {
    trust: Arc<Trust>,
    jwks: Option<Document>,
    oidc_jwks: Option<Document>,
    discovery: Option<Document>,
    spiffe: Option<Document>,
}

impl Documents {
    fn of(trust: Arc<Trust>, issuer: Option<&str>) -> Result<Self, CaError> {
        let set = |kind| -> Result<Option<KeySet>, CaError> {
            Ok(Some(KeySet::of(&trust, kind)?).filter(|set| !set.is_empty()))
        };
        let (jwt, oidc) = (set(CaKind::Jwt)?, set(CaKind::OidcIdp)?);
        let document = |set: &Option<KeySet>| -> Result<Option<Document>, CaError> {
            set.as_ref().map(|set| set.jwks().map(Document::new)).transpose()
        };
        let discovery = oidc.as_ref().zip(issuer).map(|(set, issuer)| {
            Document::new(
                json!({
                    "issuer": issuer,
                    "jwks_uri": format!("{issuer}{OIDC_JWKS}"),
                    "claims_supported": ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"],
                    "id_token_signing_alg_values_supported": set.algorithms(),
                    "response_types_supported": ["id_token"],
                    "scopes_supported": ["openid"],
                    "subject_types_supported": ["public"],
                })
                .to_string(),
            )
        });
        let has_spiffe = !trust.public_keys(CaKind::Spiffe).tls.is_empty();
        let spiffe = has_spiffe.then(|| spiffe::bundle(&trust).map(Document::new)).transpose()?;
        Ok(Self { jwks: document(&jwt)?, oidc_jwks: document(&oidc)?, discovery, spiffe, trust })
    }
}

#[derive(Clone)]
struct Shelf {
    view: Arc<ClusterCache>,
    issuer: Option<Arc<str>>,
    documents: Arc<Mutex<Option<Arc<Documents>>>>,
}

impl Shelf {
    /// The documents of the trust in force; those that were made last, while it stays the same.
    fn documents(&self) -> Result<Arc<Documents>, CaError> {
        let trust = self.view.trust();
        let mut shelf = self.documents.lock();
        if let Some(documents) = shelf.as_ref().filter(|documents| Arc::ptr_eq(&documents.trust, &trust)) {
            return Ok(Arc::clone(documents));
        }
        let made = Arc::new(Documents::of(trust, self.issuer.as_deref())?);
        *shelf = Some(Arc::clone(&made));
        Ok(made)
    }

    fn answer(&self, headers: &HeaderMap, pick: fn(&Documents) -> Option<&Document>) -> Response {
        let documents = match self.documents() {
            Ok(documents) => documents,
            Err(error) => {
                tracing::error!(%error, "the keys of the cluster cannot be shown");
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            }
        };
        let Some(document) = pick(&documents) else {
            let text = "this certificate authority has not been made yet; try again in a minute\n";
            return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")], text).into_response();
        };
        let cache =
            [(header::CACHE_CONTROL, HeaderValue::from_static(FRESH)), (header::ETAG, document.tag.clone())];
        let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| value == document.tag);
        if known {
            return (StatusCode::NOT_MODIFIED, cache).into_response();
        }
        let json = [(header::CONTENT_TYPE, "application/json")];
        (cache, json, document.body.clone()).into_response()
    }
}

/// `/.well-known/jwks.json`, `/.well-known/openid-configuration` with its keys, the SPIFFE bundle, and
/// `/ca/{kind}/{format}`. `address` is the public one, as people type it.
pub(super) fn routes(view: Arc<ClusterCache>, address: &str) -> Routes {
    let issuer = jwt::issuer(address).map(Arc::from);
    let shelf = Shelf { view, issuer, documents: Arc::default() };
    let show = |pick: fn(&Documents) -> Option<&Document>| {
        let shown = get(move |State(shelf): State<Shelf>, headers: HeaderMap| async move {
            shelf.answer(&headers, pick)
        });
        shown.with_state(shelf.clone())
    };
    Routes::default()
        .page(JWKS, show(|documents| documents.jwks.as_ref()))
        .page(OIDC_JWKS, show(|documents| documents.oidc_jwks.as_ref()))
        .page(DISCOVERY, show(|documents| documents.discovery.as_ref()))
        .page(SPIFFE, show(|documents| documents.spiffe.as_ref()))
        .page("/ca/{kind}/{format}", get(export).with_state(shelf.clone()))
}

/// The public half of a CA in the formats that other software reads, with both keys during a rotation.
async fn export(State(shelf): State<Shelf>, Path((kind, format)): Path<(String, String)>) -> Response {
    let trust = shelf.view.trust();
    let known = "known are /ca/KIND/openssh (user, host, openssh), /ca/KIND/tls (user, host, db, db_client, \
                 spiffe), /ca/KIND/jwks (jwt, oidc_idp, spiffe) and /ca/host/known_hosts\n";
    let unknown = || (StatusCode::NOT_FOUND, known).into_response();
    let Ok(kind) = kind.parse::<CaKind>() else { return unknown() };
    let keys = trust.public_keys(kind);
    let text = match format.as_str() {
        "openssh" if kind.ssh_purpose().is_some() => {
            keys.ssh.iter().map(|line| format!("{}\n", line.trim_end())).collect()
        }
        "known_hosts" if kind == CaKind::Host => {
            known_hosts_lines(&trust, &[format!("*.{}", shelf.view.cluster())])
        }
        "tls" if kind.tls_purpose().is_some() => keys.tls.concat(),
        "jwks" if kind.jwt_purpose().is_some() && !keys.jwt.is_empty() => {
            match KeySet::of(&trust, kind).and_then(|set| set.jwks()) {
                Ok(text) => text + "\n",
                Err(error) => {
                    tracing::error!(%error, "the keys of the cluster cannot be shown");
                    return StatusCode::INTERNAL_SERVER_ERROR.into_response();
                }
            }
        }
        "jwks" if kind.jwt_purpose().is_some() => String::new(),
        _ => return unknown(),
    };
    if text.is_empty() {
        let text = "this certificate authority has not been made yet; try again in a minute\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "30")], text).into_response();
    }
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
