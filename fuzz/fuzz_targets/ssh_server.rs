//! What a client says to an SSH server before either has keys: the server answers, refuses or waits, and never panics.

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use russh::keys::PrivateKey;
use russh::server::{Config, Handler};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Nothing;

impl Handler for Nothing {
    type Error = russh::Error;
}

/// A server with one key, the same in every run.
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| {
    let key = ssh_key::private::Ed25519Keypair::from_seed(&[7; 32]);
    Arc::new(Config { keys: vec![PrivateKey::from(key)], ..Config::default() })
});

thread_local! {
    static RUNTIME: RefCell<tokio::runtime::Runtime> =
        RefCell::new(tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());
}

fuzz_target!(|data: &[u8]| {
    RUNTIME.with_borrow_mut(|runtime| {
        runtime.block_on(async {
            let (mut client, server) = tokio::io::duplex(data.len() + 64);
            client.write_all(b"SSH-2.0-fuzz\r\n").await.ok();
            client.write_all(data).await.ok();
            client.shutdown().await.ok();
            let heard = tokio::spawn(async move { client.read_to_end(&mut Vec::new()).await });
            if let Ok(running) = russh::server::run_stream(Arc::clone(&CONFIG), server, Nothing).await {
                let _ = running.await;
            }
            let _ = heard.await;
        });
    });
});
