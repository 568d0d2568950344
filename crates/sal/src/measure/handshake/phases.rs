//! A handshake taken apart: what each side pays for each phase, and what is left for everything else.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;

use super::pair::name;
use super::{Credentials, Pair, Shape, Sides, provider};
use crate::algorithm::{KexGroup, KeyAlgorithm};
use crate::economy::thread_cpu;
use crate::measure::MeasureError;
use crate::measure::danger::plain_rsa::PLAIN_RSA;
use crate::measure::operation::Work;
use crate::measure::timing::{self, Effort};
use crate::provider::Provider as _;
use crate::{Selection, tls};

/// The operations that the phases of a handshake consist of, each ready to be repeated.
pub struct Operations {
    /// The server's key exchange: its share and the secret.
    pub server_exchange: Work,
    /// The key exchange of both sides. The answer must belong to the client's share, so that a client's exchange cannot be
    /// had without a server's.
    pub both_exchange: Work,
    /// A signature over the transcript.
    pub sign: Work,
    /// The check of that signature.
    pub verify: Work,
    /// The check of a chain of certificates up to the root.
    pub verify_chain: Work,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

impl Operations {
    /// Those of a shape.
    ///
    /// # Errors
    /// [`MeasureError`] when there is no such handshake.
    pub fn of(
        selection: &'static Selection,
        credentials: &Credentials,
        shape: Shape,
    ) -> Result<Self, MeasureError> {
        let provider = provider(selection, shape.version, shape.key, &[shape.group])?;
        let (server_exchange, both_exchange) = exchanges(&provider, shape.group)?;
        let (sign, verify) = signatures(selection, &provider, credentials)?;
        let verify_chain = chain(provider, credentials)?;
        Ok(Self { server_exchange, both_exchange, sign, verify, verify_chain })
    }
}

fn exchanges(provider: &CryptoProvider, group: KexGroup) -> Result<(Work, Work), MeasureError> {
    let group = *provider.kx_groups.first().ok_or(MeasureError::NoSource(group))?;
    let share = group.start()?.pub_key().to_vec();
    let server: Work = Box::new(move || {
        drop(std::hint::black_box(group.start_and_complete(&share)));
    });
    let both: Work = Box::new(move || {
        if let Ok(client) = group.start()
            && let Ok(answer) = group.start_and_complete(client.pub_key())
        {
            let _ = std::hint::black_box(client.complete(&answer.pub_key));
        }
    });
    Ok((server, both))
}

fn signatures(
    selection: &'static Selection,
    provider: &CryptoProvider,
    credentials: &Credentials,
) -> Result<(Work, Work), MeasureError> {
    let key = &credentials.server.key;
    let signer = tls::signing_key(Arc::clone(key))
        .choose_scheme(&provider.signature_verification_algorithms.supported_schemes())
        .ok_or(MeasureError::NoScheme("the key signs by no scheme of TLS"))?;
    // As long as what a TLS 1.3 handshake signs (RFC 8446 §4.4.3).
    let message = [0x20; 130];
    let scheme = signer.scheme();
    let signature = signer.sign(&message)?;
    let sign: Work = Box::new(move || drop(std::hint::black_box(signer.sign(&message))));
    let scheme = crate::SignatureScheme::ALL
        .iter()
        .copied()
        .find(|one| one.iana_code() == u16::from(scheme))
        .ok_or(MeasureError::NoScheme("the scheme has no name here"))?;
    let public = key.public_key();
    let verify: Work = if public.algorithm() == KeyAlgorithm::Rsa1024 {
        Box::new(move || {
            let algorithm = KeyAlgorithm::Rsa1024;
            let _ =
                std::hint::black_box(PLAIN_RSA.verify(algorithm, scheme, public.raw(), &message, &signature));
        })
    } else {
        Box::new(move || {
            let _ = std::hint::black_box(public.verify_in(selection, scheme, &message, &signature));
        })
    };
    Ok((sign, verify))
}

fn chain(provider: Arc<CryptoProvider>, credentials: &Credentials) -> Result<Work, MeasureError> {
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::clone(&credentials.roots), provider).build()?;
    let mut certificates = credentials.server.chain.clone().into_iter();
    let leaf = certificates.next().ok_or(MeasureError::Impossible("there is no certificate"))?;
    let above: Vec<_> = certificates.collect();
    let name = name()?;
    verifier.verify_server_cert(&leaf, &above, &name, &[], UnixTime::now())?;
    Ok(Box::new(move || {
        let _ = std::hint::black_box(verifier.verify_server_cert(&leaf, &above, &name, &[], UnixTime::now()));
    }))
}

/// A handshake taken apart.
#[derive(Debug, Clone)]
pub struct Phases {
    /// What was measured.
    pub shape: Shape,
    /// One for each phase, the whole handshake last.
    pub rows: Vec<Phase>,
    /// Bytes on the wire.
    pub sides: Sides,
}

/// One phase of a handshake, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// The client's least time.
    pub client: f64,
    /// The server's least time.
    pub server: f64,
}

/// Takes a full handshake with a server certificate apart.
///
/// # Errors
/// [`MeasureError`] when there is no such handshake.
pub fn phases(selection: &'static Selection, shape: Shape, effort: Effort) -> Result<Phases, MeasureError> {
    let credentials = Credentials::with_chain(selection, shape.key, shape.chain)?;
    let pair = Pair::with(selection, &credentials, shape)?;
    pair.run()?;
    let Operations { server_exchange, both_exchange, sign, verify, verify_chain } =
        Operations::of(selection, &credentials, shape)?;
    let mut works = [server_exchange, both_exchange, sign, verify, verify_chain];
    let times = timing::interleaved(&mut works, effort, || ());
    let minimum = |at: usize| times.get(at).map_or(0.0, timing::Times::minimum);

    // Whole handshakes, the least of each side.
    let (mut client, mut server, mut sides) = (f64::INFINITY, f64::INFINITY, Sides::default());
    let started = thread_cpu();
    let enough = effort.batch * u32::try_from(effort.passes * 8).unwrap_or(u32::MAX);
    while thread_cpu().saturating_sub(started) < enough {
        sides = pair.run()?;
        client = client.min(sides.client.as_secs_f64() * 1e9);
        server = server.min(sides.server.as_secs_f64() * 1e9);
    }
    let rows = vec![
        Phase { name: "key exchange", client: (minimum(1) - minimum(0)).max(0.0), server: minimum(0) },
        Phase { name: "transcript signature", client: minimum(3), server: minimum(2) },
        Phase { name: "chain verification", client: minimum(4), server: 0.0 },
    ];
    let sum = |side: fn(&Phase) -> f64| rows.iter().map(side).sum::<f64>();
    let rest = Phase {
        name: "everything else",
        client: (client - sum(|phase| phase.client)).max(0.0),
        server: (server - sum(|phase| phase.server)).max(0.0),
    };
    let whole = Phase { name: "the whole handshake", client, server };
    Ok(Phases { shape, rows: rows.into_iter().chain([rest, whole]).collect(), sides })
}

/// Whole handshakes of several pairs in turns: the time of both sides together.
#[must_use]
pub fn compare(pairs: Vec<Pair>, effort: Effort) -> Vec<timing::Times> {
    let mut works: Vec<Work> = pairs
        .into_iter()
        .map(|pair| {
            let work: Work = Box::new(move || {
                let _ = std::hint::black_box(pair.run());
            });
            work
        })
        .collect();
    timing::interleaved(&mut works, effort, || ())
}

/// What a HelloRetryRequest (RFC 8446 §4.1.4) adds to a handshake, apart from the round trip.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// The group that the client sends a share for, and the server does not have.
    pub sent: KexGroup,
    /// The group that both have.
    pub common: KexGroup,
    /// The least times and the bytes when the client sends the right share at once.
    pub straight: Sides,
    /// The same when it is asked for another one.
    pub retried: Sides,
}

/// Measures handshakes in which the client guesses the server's group rightly, and wrongly.
///
/// # Errors
/// [`MeasureError`] when there is no such handshake.
pub fn retry(
    selection: &'static Selection,
    key: KeyAlgorithm,
    (sent, common): (KexGroup, KexGroup),
    effort: Effort,
) -> Result<Retry, MeasureError> {
    let compose = |groups: &[KexGroup]| tls::compose(selection, groups);
    let (server, right, wrong) = (compose(&[common])?, compose(&[common, sent])?, compose(&[sent, common])?);
    let credentials = Credentials::new(selection, key)?;
    let shape = Shape::new(key, common);
    let pair = |client| credentials.pair(client, &server, shape);
    let (straight, retried) = (pair(&right)?, pair(&wrong)?);
    let least = |best: Option<Sides>, now: Sides| match best {
        None => now,
        Some(best) => {
            Sides { client: best.client.min(now.client), server: best.server.min(now.server), ..now }
        }
    };
    let (mut quick, mut slow) = (None, None);
    for _ in 0..effort.passes * 20 {
        quick = Some(least(quick, straight.run()?));
        slow = Some(least(slow, retried.run()?));
    }
    match (quick, slow) {
        (Some(straight), Some(retried)) if retried.flights > straight.flights => {
            Ok(Retry { sent, common, straight, retried })
        }
        _ => Err(MeasureError::NoSecondFlight { sent, common }),
    }
}
