//! AWS Signature Version 4: how a request to an object store proves who makes it, without a library of its own.

use std::fmt;

use data_encoding::HEXLOWER;
use sallyport_sal::SalError;
use sallyport_sal::algorithm::HashAlgorithm;
use sallyport_sal::hash::{Hmac, sha256};
use time::OffsetDateTime;
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Who makes requests.
pub(crate) struct Credentials {
    id: String,
    secret: Zeroizing<String>,
    /// Goes with keys that are valid for a while only.
    pub(crate) token: Option<Zeroizing<String>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is wrong with a file of credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it has a line that is not KEY = VALUE")]
    Line,
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("it has characters that keys have not")]
    Characters,
}

impl Credentials {
    /// Reads a file as AWS's programs have it: of several profiles the first.
    pub(crate) fn parse(text: &str) -> Result<Self, Unusable> {
        let (mut id, mut secret, mut token) = (None, None, None);
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        for line in lines {
            if line.starts_with('[') {
                if id.is_some() {
                    break;
                }
                continue;
            }
            let (key, value) = line.split_once('=').ok_or(Unusable::Line)?;
            let value = value.trim();
            match key.trim() {
                "aws_access_key_id" => id = Some(value.to_owned()),
                "aws_secret_access_key" => secret = Some(Zeroizing::new(value.to_owned())),
                "aws_session_token" => token = Some(Zeroizing::new(value.to_owned())),
                _ => {}
            }
        }
        let id = id.filter(|id| !id.is_empty()).ok_or(Unusable::Missing("aws_access_key_id"))?;
        let secret =
            secret.filter(|secret| !secret.is_empty()).ok_or(Unusable::Missing("aws_secret_access_key"))?;
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain(&id) || token.as_ref().is_some_and(|token| !plain(token)) {
            return Err(Unusable::Characters);
        }
        Ok(Self { id, secret, token })
    }
}

/// What is signed. Path and query stand as they are sent: a caller who has other characters in them than the unreserved ones of
/// RFC 3986 encodes them before. Headers have lower-case names, in order.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a [(&'a str, String)],
    /// SHA-256 of the body, in hexadecimal.
    pub(crate) payload: &'a str,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    pub(crate) time: OffsetDateTime,
}

/// A time as it is signed.
pub(crate) fn stamp(time: OffsetDateTime) -> String {
    let time = time.to_offset(time::UtcOffset::UTC);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// The value of the header `authorization`.
///
/// # Errors
/// When no provider computes HMAC.
pub(crate) fn authorization(credentials: &Credentials, request: &Request<'_>) -> Result<String, SalError> {
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{headers}\n{names}\n{}",
        request.method, request.path, request.query, request.payload
    );
    let stamp = stamp(request.time);
    let day = stamp.split('T').next().unwrap_or_default();
    let scope = format!("{day}/{}/{}/aws4_request", request.region, request.service);
    let canonical = HEXLOWER.encode(&sha256(canonical.as_bytes()));
    let to_sign = format!("{ALGORITHM}\n{stamp}\n{scope}\n{canonical}");
    let mut key = Zeroizing::new(format!("AWS4{}", credentials.secret.as_str()).into_bytes());
    for part in scope.split('/') {
        key = Zeroizing::new(tag(&key, part)?.to_vec());
    }
    let signature = HEXLOWER.encode(&tag(&key, &to_sign)?);
    Ok(format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.id
    ))
}

fn tag(key: &[u8], text: &str) -> Result<[u8; 32], SalError> {
    let mut tag = [0; 32];
    Hmac::new(HashAlgorithm::Sha256, key)?.sign(&[text.as_bytes()], &mut tag);
    Ok(tag)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(credentials: (&str, &str), request: &Request<'_>) -> String {
        let (id, secret) = credentials;
        let file = format!(
            "[default]\naws_access_key_id = {id}\naws_secret_access_key={secret}\n[other]\nregion = x\n"
        );
        let credentials = Credentials::parse(&file).unwrap();
        let value = authorization(&credentials, request).unwrap();
        value.rsplit('=').next().unwrap().to_owned()
    }

    fn headers<'a>(pairs: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    /// AWS's test suite for Signature Version 4.
    #[test]
    fn signatures_are_those_of_the_published_suite() {
        let credentials = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
        let headers = headers(&[("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")]);
        for (method, query, expected) in [
            ("GET", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            (
                "GET",
                "Param1=value1&Param2=value2",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
        ] {
            let request = Request {
                method,
                path: "/",
                query,
                headers: &headers,
                payload: EMPTY,
                region: "us-east-1",
                service: "service",
                time: datetime!(2015-08-30 12:36:00 UTC),
            };
            assert_eq!(signature(credentials, &request), expected, "{method} {query}");
        }
    }

    /// The examples of the API reference of S3, "Signature Calculations for the Authorization Header".
    #[test]
    fn signatures_are_those_of_the_examples_of_s3() {
        let credentials = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let body = HEXLOWER.encode(&sha256(b"Welcome to Amazon S3."));
        let host = "examplebucket.s3.amazonaws.com";
        let date = "20130524T000000Z";
        let stored = headers(&[
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("host", host),
            ("x-amz-content-sha256", &body),
            ("x-amz-date", date),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ]);
        let got = headers(&[
            ("host", host),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", date),
        ]);
        for (method, path, headers, payload, expected) in [
            (
                "PUT",
                "/test%24file.text",
                &stored,
                body.as_str(),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/test.txt",
                &got,
                EMPTY,
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ] {
            let request = Request {
                method,
                path,
                query: "",
                headers,
                payload,
                region: "us-east-1",
                service: "s3",
                time: datetime!(2013-05-24 00:00:00 UTC),
            };
            assert_eq!(signature(credentials, &request), expected, "{method}");
        }
    }

    #[test]
    fn a_file_without_keys_says_what_is_missing() {
        for (text, missing) in [
            ("", "no aws_access_key_id"),
            ("aws_access_key_id = x", "no aws_secret_access_key"),
            ("aws_access_key_id", "not KEY = VALUE"),
        ] {
            let problem = Credentials::parse(text).unwrap_err().to_string();
            assert!(problem.contains(missing), "{text:?}: {problem}");
        }
        let debug = format!(
            "{:?}",
            Credentials::parse("aws_access_key_id = me\naws_secret_access_key = hush").unwrap()
        );
        assert!(debug.contains("me") && !debug.contains("hush"), "{debug}");
    }
}
