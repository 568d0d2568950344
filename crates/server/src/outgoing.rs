//! Requests by HTTP to servers that are none of the cluster's: where checkpoints of the audit log go, and identity providers.
//!
//! One request by HTTP/1.1 (RFC 9112) on a connection of its own, within a time and within bytes. Redirects are not followed:
//! what an administrator has named is what is asked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use sallyport_ca::tls::outside::outside_client_config;
use tokio_rustls::rustls::ClientConfig;

use crate::config::Endpoint;
use crate::dialling::{BoxIo, dial, dial_outside, handshake};
use crate::files::{Apart, Named};
use crate::{ServerError, files};

/// Where systems keep the CAs that they trust, the first that is there; the variable `SSL_CERT_FILE` names another.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Most bytes of an answer's status line and headers.
const HEAD_BYTES: usize = 64 * 1024;
/// Longest file of a secret, and of CAs, in bytes.
const SECRET_BYTES: u64 = 64 * 1024;
const ROOTS_BYTES: u64 = 4 * 1024 * 1024;
/// Most headers of an answer.
const HEADERS: usize = 100;

/// What an exchange may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// From dialling to the last byte of the answer.
    pub(crate) patience: Duration,
    /// Most bytes of the body of an answer of the class 2xx: a longer one is an error. 0: the body is not read.
    pub(crate) body: usize,
    /// Of another answer's body so much is read, and what fails of it is no error of its own.
    pub(crate) refusal: usize,
}

/// Which servers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Every one: an administrator has named it.
    Named,
    /// Only one whose addresses are all public: another party has named it, and means nothing of this network by it.
    Public,
}

/// An answer, of whatever class.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// Of its type, the part before parameters, in lower case; empty where it names none.
    pub(crate) media_type: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer. The address is the server's, for people.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutgoingError {
    /// The list of CAs, by which a server is judged, cannot be used.
    #[error("the CAs that servers are judged by cannot be used")]
    Roots(#[source] io::Error),
    /// No connection: no name, no route, no server, or a certificate that is not believed.
    #[error("{address} was not reached")]
    Unreached {
        /// The server.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The connection ended, or what came is not HTTP.
    #[error("the exchange with {address} failed")]
    Broken {
        /// The server.
        address: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The body has more bytes than are read.
    #[error("the answer of {address} is longer than {limit} bytes")]
    TooLong {
        /// The server.
        address: String,
        /// The bound, in bytes.
        limit: usize,
    },
    /// Not within the time.
    #[error("{address} gave no answer within {} s", patience.as_secs())]
    Late {
        /// The server.
        address: String,
        /// The bound.
        patience: Duration,
    },
}

/// Sends a request to a server. It must have a certificate for its name, of a CA in `ca_file` or, without one, of those that the
/// system trusts.
///
/// # Errors
/// [`OutgoingError`]. An answer that refuses is none.
pub(crate) async fn send(
    endpoint: &Endpoint,
    ca_file: Option<&Path>,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Answer, OutgoingError> {
    send_within(Reach::Named, endpoint, ca_file, request, bounds).await
}

/// As [`send`], to a server that `reach` takes in.
///
/// # Errors
/// As [`send`].
pub(crate) async fn send_within(
    reach: Reach,
    endpoint: &Endpoint,
    ca_file: Option<&Path>,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Answer, OutgoingError> {
    let tls = match endpoint.secure {
        true => Some(Arc::new(trusted(ca_file).await.map_err(OutgoingError::Roots)?)),
        false => None,
    };
    match tokio::time::timeout(bounds.patience, exchange(reach, endpoint, tls, request, bounds)).await {
        Ok(done) => done,
        Err(_) => Err(OutgoingError::Late { address: endpoint.authority(), patience: bounds.patience }),
    }
}

async fn exchange(
    reach: Reach,
    endpoint: &Endpoint,
    tls: Option<Arc<ClientConfig>>,
    request: Request<Full<Bytes>>,
    bounds: Bounds,
) -> Result<Answer, OutgoingError> {
    let unreached = |source| OutgoingError::Unreached { address: endpoint.authority(), source };
    let broken =
        |source: hyper::Error| OutgoingError::Broken { address: endpoint.authority(), source: source.into() };
    let tcp = match reach {
        Reach::Named => dial(&endpoint.address).await,
        Reach::Public => dial_outside(&endpoint.address).await,
    };
    let tcp = tcp.map_err(unreached)?;
    let io: BoxIo = match tls {
        Some(config) => Box::new(handshake(tcp, config, &endpoint.address.host).await.map_err(unreached)?),
        None => Box::new(tcp),
    };
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .handshake(TokioIo::new(io))
        .await
        .map_err(broken)?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        read(endpoint, answer, bounds).await
    };
    tokio::pin!(connection, asking);
    tokio::select! {
        done = &mut asking => done,
        // It ends with the answer, which may be there already.
        _ = &mut connection => asking.await,
    }
}

async fn read(
    endpoint: &Endpoint,
    answer: Response<Incoming>,
    bounds: Bounds,
) -> Result<Answer, OutgoingError> {
    let status = answer.status();
    let media_type = answer.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    let media_type = media_type.trim().to_ascii_lowercase();
    let headers = answer.headers().clone();
    let limit = if status.is_success() { bounds.body } else { bounds.refusal };
    if limit == 0 {
        return Ok(Answer { status, media_type, headers, body: Bytes::new() });
    }
    let body = match Limited::new(answer.into_body(), limit).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) if !status.is_success() => Bytes::new(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(OutgoingError::TooLong { address: endpoint.authority(), limit });
        }
        Err(source) => return Err(OutgoingError::Broken { address: endpoint.authority(), source }),
    };
    Ok(Answer { status, media_type, headers, body })
}

/// Reads a secret from a file of mode 0600, on no thread that serves connections: the file may be where nothing answers.
///
/// # Errors
/// It is not there, others may read it, it is not text, or it was not read in time.
pub(crate) async fn secret(path: &Path, patience: Duration) -> io::Result<String> {
    secret_apart(path, None, patience).await
}

/// As [`secret`], of a file that is none of the authority's own, wherever links lead.
///
/// # Errors
/// As [`secret`], and the file is one of those.
pub(crate) async fn secret_apart(
    path: &Path,
    apart: Option<&Apart>,
    patience: Duration,
) -> io::Result<String> {
    let (from, apart) = (path.to_owned(), apart.cloned());
    let reading = tokio::task::spawn_blocking(move || read_secret(&from, apart.as_ref()));
    match tokio::time::timeout(patience, reading).await {
        Ok(read) => read.map_err(io::Error::other)?,
        Err(_) => {
            let problem = format!("{} was not read within {} s", path.display(), patience.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
    }
}

fn read_secret(path: &Path, apart: Option<&Apart>) -> io::Result<String> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()));
    let bytes = files::read_named(path, Named { limit: SECRET_BYTES, private: true, apart })
        .map_err(|error| io::Error::other(ServerError::chain(&error)))?
        .ok_or_else(missing)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other(format!("{} is not UTF-8", path.display())))
}

async fn trusted(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let given = ca_file.map(Path::to_owned).or_else(|| std::env::var_os("SSL_CERT_FILE").map(Into::into));
    let read = tokio::task::spawn_blocking(move || {
        let path = match given {
            Some(path) => path,
            None => system_roots()?,
        };
        let named = |problem: String| io::Error::other(format!("{}: {problem}", path.display()));
        let roots = files::read_named(&path, Named { limit: ROOTS_BYTES, private: false, apart: None })
            .map_err(|error| io::Error::other(ServerError::chain(&error)))?
            .ok_or_else(|| named("it is not there".to_owned()))?;
        outside_client_config(&roots).map_err(|error| named(error.to_string()))
    });
    read.await.map_err(io::Error::other)?
}

fn system_roots() -> io::Result<PathBuf> {
    SYSTEM_ROOTS
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
        .map(Path::to_owned)
        .ok_or_else(|| io::Error::other("this system has no list of CAs; name one: ca_file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_file_of_a_secret_is_not_read_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let read = async |path: PathBuf| {
            let apart = Apart { directory: at("data"), files: vec![at("pin"), at("not-there/pin")] };
            let read = secret_apart(&path, Some(&apart), Duration::from_secs(60)).await;
            read.map_err(|error| error.to_string())
        };
        let write = |name: &str, text: &[u8]| files::write_private(&at(name), text).unwrap();
        std::fs::create_dir(at("data")).unwrap();
        write("token", b"secret\n");
        assert_eq!(read(at("token")).await.unwrap(), "secret\n");
        // Opening it would wait until another opens it to write.
        let pipe = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe.0, pipe.1, 0).unwrap();
        write("long", &vec![b'x'; 70_000]);
        write("data/key", b"the authority's");
        std::os::unix::fs::symlink(at("data/key"), at("link")).unwrap();
        // One that the configuration names, by another name, by a link, and through a directory that is one.
        write("pin", b"1370\n");
        std::os::unix::fs::symlink(at("pin"), at("pin-link")).unwrap();
        std::fs::hard_link(at("pin"), at("pin-too")).unwrap();
        std::os::unix::fs::symlink(directory.path(), at("there")).unwrap();
        for (path, problem) in [
            (at("pipe"), "no regular file"),
            (at("long"), "more than 65536 bytes"),
            (at("data/key"), "the authority's own directory"),
            (at("link"), "the authority's own directory"),
            (at("pin"), "a secret of this process's own"),
            (at("pin-link"), "a secret of this process's own"),
            (at("pin-too"), "a secret of this process's own"),
            (at("there/pin"), "a secret of this process's own"),
            (at("there/data/key"), "the authority's own directory"),
            (at("none"), "is not there"),
            (PathBuf::from("/dev/zero"), "the system's own"),
            (PathBuf::from("/proc/self/environ"), "the system's own"),
        ] {
            let told = read(path).await.unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
    }
}
