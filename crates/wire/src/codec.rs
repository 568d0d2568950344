//! Protocol buffers for gRPC, with buffers that fit idle streams.
//!
//! Each call has a buffer for each direction for as long as it lasts. tonic makes them 8 KiB; an idle SSH session would
//! hold both. They grow with what passes.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstDecoder, ProstEncoder};

/// Bytes of a new buffer: most messages that are not file data.
const BUFFER_BYTES: usize = 512;
/// Encoded messages that go out together.
const TOGETHER_BYTES: usize = 32 * 1024;

/// The codec of every service: encodes `T`, decodes `U`.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES)
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(settings())
    }
}
