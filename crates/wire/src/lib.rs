//! The protobuf API, first-bytes detection and tunnel framing.

pub mod alpn;
pub mod client_hello;
pub mod codec;
pub mod convert;
pub mod detect;
pub mod relay;
pub mod tunnel;

/// The header of answers from proxies and the authority that tells a user's program which trust is in force: when it is
/// not the one that the program holds, `Rotation.Follow` gives the new one.
pub const TRUST_HEADER: &str = "sallyport-trust";

/// Messages, clients and servers generated from `proto/sallyport/v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated code; the comments are in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("sallyport.v1");
}
