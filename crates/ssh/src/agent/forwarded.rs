//! A connection to the user's agent that a host asks for. The agent is told that it is forwarded, and to whom, before the host says
//! a word: so `ssh-add -h` keeps keys for other hosts out of its reach (OpenSSH's PROTOCOL.agent §1).

use std::io;
use std::path::Path;
use std::time::Duration;

use sallyport_ca::keys::{SshKeyPair, ssh_signature};
use sallyport_sal::{Suite, random};
use ssh_key::public::KeyData;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::messages::Question;
use super::{Binding, MAX_MESSAGE_BYTES};

/// How long the agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a session's identifier that stands for one that is not SSH's.
const SESSION_BYTES: usize = 32;

/// Connects to the agent for a host, which `binding` says as SSH proved it. None for a host that was reached otherwise: the agent knows
/// it as a host that no key is for.
///
/// # Errors
/// The socket's. An agent that does not know the message decides by what it knows.
pub(crate) async fn connect(socket: &Path, binding: Option<&Binding>) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    let message = match binding {
        Some(binding) => Question::Bind {
            host_key: &binding.host_key,
            session: &binding.session,
            signature: &binding.signature,
            forwarding: true,
        }
        .encode(),
        None => stranger().map_err(io::Error::other)?,
    };
    let telling = async {
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes()[..], &message].concat()).await?;
        let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
        if length == 0 || length > MAX_MESSAGE_BYTES {
            return Err(io::Error::other(format!("an agent's message of {length} bytes")));
        }
        stream.read_exact(&mut vec![0; length]).await.map(drop)
    };
    tokio::time::timeout(PATIENCE, telling)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the agent does not answer"))??;
    Ok(stream)
}

/// Binds to a host that no agent has seen before: a key that is made for this, and forgotten.
fn stranger() -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let pair = SshKeyPair::generate(Suite::default(), "")?;
    let session = random::bytes::<SESSION_BYTES>()?;
    let signature = ssh_signature(&*pair.signer(), &session)?;
    let host_key = KeyData::from(pair.private_key().public_key());
    let host_key = ssh_key::PublicKey::from(host_key).to_bytes()?;
    Ok(Question::Bind { host_key: &host_key, session: &session, signature: &signature, forwarding: true }
        .encode())
}
