//! What a database server says in a SCRAM login: the answer or an error, in bounded time.

use std::sync::LazyLock;

use sallyport_databases::postgres::scram::{Binding, First, Last};

/// Before the server's last message. Rounds take their time: they are done once.
static LAST: LazyLock<Last> = LazyLock::new(|| {
    let first = First::new("abc", Binding::NotOffered);
    first.answer(b"r=abcd,s=AAAA,i=4096", b"secret").unwrap().1
});

fuzz_target!(|data: &[u8]| {
    // Rounds take their time, as they should: here they are few.
    let few = data.iter().filter(|byte| byte.is_ascii_digit()).count() < 5;
    if few && data.len() < 200 {
        let _ = First::new("abc", Binding::EndPoint(vec![7; 32])).answer(data, b"secret");
    }
    assert!(LAST.clone().check(data).is_err(), "no input guesses the signature");
});
