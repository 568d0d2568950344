//! What a path and a method mean (RFC 7644 §3.2, table 2).

use crate::error::{ScimError, shortened};
use crate::kind::Kind;
use crate::text::percent_decoded;

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Config,
    ResourceTypes,
    ResourceType(String),
    Schemas,
    Schema(String),
    /// Resources that are looked for, with the parameters in the query, or in the body.
    List(&'static [Kind], Asking),
    Create(Kind),
    Read(Kind, String),
    Replace(Kind, String),
    Patch(Kind, String),
    Delete(Kind, String),
}

/// Where the parameters of a search are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Query,
    Body,
}

impl Route {
    /// Finds what is meant. `HEAD` means what `GET` does.
    pub(crate) fn find(method: &str, path: &str) -> Result<Self, ScimError> {
        let nowhere = || ScimError::NoEndpoint { path: shortened(path) };
        let segments = path.trim_end_matches('/').split('/').skip(1);
        let segments = segments.map(|segment| percent_decoded(segment, false));
        let segments: Vec<String> = segments.collect::<Option<_>>().ok_or_else(nowhere)?;
        if !(path.is_empty() || path.starts_with('/')) {
            return Err(nowhere());
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let method = if method == "HEAD" { "GET" } else { method };
        let allowed =
            |allowed: &'static str| Err(ScimError::MethodNotAllowed { method: shortened(method), allowed });
        let kind = |endpoint: &str| Kind::ALL.iter().copied().find(|kind| kind.endpoint() == endpoint);
        Ok(match (segments.as_slice(), method) {
            ([], "GET") => Self::List(Kind::ALL, Asking::Query),
            ([], _) => return allowed("GET"),
            ([".search"], "POST") => Self::List(Kind::ALL, Asking::Body),
            ([".search"], _) => return allowed("POST"),
            (["Bulk"], _) => return Err(ScimError::NotSupported { what: "/Bulk" }),
            (["Me"], _) => return Err(ScimError::NotSupported { what: "/Me" }),
            (["ServiceProviderConfig"], "GET") => Self::Config,
            (["ResourceTypes"], "GET") => Self::ResourceTypes,
            (["ResourceTypes", name], "GET") => Self::ResourceType((*name).to_owned()),
            (["Schemas"], "GET") => Self::Schemas,
            (["Schemas", urn], "GET") => Self::Schema((*urn).to_owned()),
            (
                ["ServiceProviderConfig" | "ResourceTypes" | "Schemas"] | ["ResourceTypes" | "Schemas", _],
                _,
            ) => {
                return allowed("GET");
            }
            ([endpoint, rest @ ..], method) => match (kind(endpoint), rest, method) {
                (Some(kind), [], "GET") => Self::List(of(kind), Asking::Query),
                (Some(kind), [], "POST") => Self::Create(kind),
                (Some(_), [], _) => return allowed("GET, POST"),
                (Some(kind), [".search"], "POST") => Self::List(of(kind), Asking::Body),
                (Some(_), [".search"], _) => return allowed("POST"),
                (Some(kind), [id], "GET") => Self::Read(kind, (*id).to_owned()),
                (Some(kind), [id], "PUT") => Self::Replace(kind, (*id).to_owned()),
                (Some(kind), [id], "PATCH") => Self::Patch(kind, (*id).to_owned()),
                (Some(kind), [id], "DELETE") => Self::Delete(kind, (*id).to_owned()),
                (Some(_), [_], _) => return allowed("GET, PUT, PATCH, DELETE"),
                _ => return Err(nowhere()),
            },
        })
    }

    /// Whether it takes a body.
    pub(crate) fn has_body(&self) -> bool {
        matches!(self, Self::List(_, Asking::Body) | Self::Create(_) | Self::Replace(..) | Self::Patch(..))
    }
}

fn of(kind: Kind) -> &'static [Kind] {
    match kind {
        Kind::User => &[Kind::User],
        Kind::Group => &[Kind::Group],
    }
}
