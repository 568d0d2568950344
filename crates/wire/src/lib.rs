//! The protobuf API, first-bytes detection and tunnel framing.

pub mod alpn;
pub mod client_hello;
pub mod convert;
pub mod detect;
pub mod tunnel;

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
