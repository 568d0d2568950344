//! What a client says to the transport of a server of ours, up to its keys: any bytes are a question, an error or a wait, however they
//! are split, and let no client in. And the keys and certificates that it shows.

use std::sync::{Arc, LazyLock};

use sallyport_sal::{HybridKeyExchange, KeyAlgorithm, MemoryKey};
use sallyport_ssh::transport::server::{Offer, Server};
use sallyport_ssh::transport::{Host, Limits, Opening};

static HOST: LazyLock<Arc<Host>> = LazyLock::new(|| {
    let key = MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap();
    Arc::new(Host::new(Arc::new(key), None).unwrap())
});

/// The server's verdict, and how far the client got.
fn heard<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Option<String>, String) {
    let (demand, limits) = (HybridKeyExchange::Preferred, Limits::default());
    let opening = Opening { identification: "SSH-2.0-fuzz", demand, limits };
    let mut server = Server::new(opening, Arc::clone(&HOST), 3).unwrap();
    for part in parts {
        server.input().extend_from_slice(part);
        let asked = server.question();
        assert!(server.user().is_none());
        match asked {
            Ok(question) => assert!(question.is_none(), "{question:?}"),
            Err(breach) => return (Some(breach.to_string()), server.client().to_owned()),
        }
    }
    (None, server.client().to_owned())
}

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let (algorithm, blob) = bytes.split_at(usize::from(step).min(bytes.len()));
    let _ = Offer::read("root", algorithm, blob);
    let whole = heard(std::iter::once(bytes));
    assert_eq!(whole, heard(bytes.chunks(usize::from(step).max(1))));
});
