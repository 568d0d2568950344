//! What a server says to the pipelined client: any bytes are messages, an error or a wait, however they are split.

use bytes::Bytes;
use sallyport_sal::HybridKeyExchange;
use sallyport_ssh::pipelined::message::Message;
use sallyport_ssh::pipelined::{Limits, Machine, Opening};

/// The client's verdict, and how far it got.
fn heard<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Option<String>, String, bool) {
    let (demand, limits) = (HybridKeyExchange::Preferred, Limits::default());
    let mut client = Machine::new(Opening { identification: "SSH-2.0-fuzz", demand, limits }).unwrap();
    for part in parts {
        if let Err(breach) = client.receive(part) {
            return (Some(breach.to_string()), client.server().to_owned(), client.has_agreed());
        }
    }
    (None, client.server().to_owned(), client.has_agreed())
}

fuzz_target!(|data: (u8, &[u8])| {
    let (step, bytes) = data;
    let _ = Message::read(&Bytes::copy_from_slice(bytes));
    let whole = heard(std::iter::once(bytes));
    assert_eq!(whole, heard(bytes.chunks(usize::from(step).max(1))));
});
