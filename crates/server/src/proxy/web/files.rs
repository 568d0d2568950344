//! The built files of `web/`: a script, a stylesheet and a picture.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sallyport_sal::hash;

use crate::routes::Routes;

/// A page names its files with their hash, so a browser may keep them for good (RFC 8246).
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// By their bare name they change with the next upgrade.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// Compressed once, as small as it gets. Every browser that has passkeys in JSON reads it (RFC 8878); others get the bytes as they are.
const LEVEL: i32 = 19;
const CODING: &str = "zstd";

/// A file as it is served.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: &'static str,
    kind: &'static str,
    pub(super) content: &'static [u8],
    /// The beginning of its SHA-256, as the page names it.
    pub(super) hash: String,
    compressed: Vec<u8>,
}

impl File {
    fn new(path: &'static str, kind: &'static str, content: &'static [u8]) -> Self {
        let digest = hash::sha256(content);
        let hash = data_encoding::HEXLOWER.encode(digest.get(..8).unwrap_or_default());
        // Into memory nothing fails; without it the file goes out as it is.
        let compressed = zstd::bulk::compress(content, LEVEL).unwrap_or_default();
        Self { path, kind, content, hash, compressed }
    }

    fn answer(&'static self, query: Option<&str>, headers: &HeaderMap) -> Response {
        let named = query.and_then(|query| query.strip_prefix("v=")) == Some(self.hash.as_str());
        let cache = if named { FOR_GOOD } else { ASK_AGAIN };
        let compressed = !self.compressed.is_empty() && takes(headers);
        // A strong mark is of the bytes as they are sent (RFC 9110 §8.8.3.3).
        let tag = format!("\"{}{}\"", self.hash, if compressed { "-zstd" } else { "" });
        let Ok(tag) = HeaderValue::try_from(tag) else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let vary = HeaderValue::from_static("accept-encoding");
        let known = [(header::CACHE_CONTROL, cache), (header::ETAG, tag.clone()), (header::VARY, vary)];
        if headers.get_all(header::IF_NONE_MATCH).iter().any(|value| value == tag) {
            return (StatusCode::NOT_MODIFIED, known).into_response();
        }
        let kind = [(header::CONTENT_TYPE, self.kind)];
        if compressed {
            (known, kind, [(header::CONTENT_ENCODING, CODING)], self.compressed.as_slice()).into_response()
        } else {
            (known, kind, self.content).into_response()
        }
    }
}

/// Whether an answer may be compressed (RFC 9110 §12.5.3).
fn takes(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    listed.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused = parts.any(|weight| {
            weight
                .strip_prefix("q=")
                .is_some_and(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0))
        });
        name.eq_ignore_ascii_case(CODING) && !refused
    })
}

/// Everything that is served.
pub(super) static FILES: LazyLock<[File; 3]> = LazyLock::new(|| {
    [
        File::new(
            "/web/app.js",
            "text/javascript; charset=utf-8",
            include_bytes!("../../../../../web/dist/app.js"),
        ),
        File::new(
            "/web/app.css",
            "text/css; charset=utf-8",
            include_bytes!("../../../../../web/dist/app.css"),
        ),
        File::new("/web/icon.svg", "image/svg+xml", include_bytes!("../../../../../web/dist/icon.svg")),
    ]
});

pub(super) fn routes() -> Routes {
    FILES.iter().fold(Routes::default(), |routes, file| {
        let shown =
            move |request: Request| async move { file.answer(request.uri().query(), request.headers()) };
        routes.page(file.path, get(shown))
    })
}
