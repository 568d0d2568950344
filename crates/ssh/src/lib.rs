//! The SSH node, its session core, the jump host and the SSH client.

use tokio::io::{AsyncRead, AsyncWrite};

mod algorithms;
pub mod client;
pub mod jump;
mod pump;

/// What every byte stream here can do.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A byte stream whose kind does not matter.
pub type BoxedStream = Box<dyn Stream>;
