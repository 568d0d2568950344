//! What a database server says in a SCRAM login: the answer or an error, in bounded time.

use sallyport_databases::postgres::scram::First;

fuzz_target!(|data: &[u8]| {
    // Rounds take their time, as they should: here they are few.
    let few = !data.windows(2).any(|pair| pair == b"i=") || data.windows(4).any(|part| part == b",i=1");
    if few && data.len() < 200 && data.iter().filter(|byte| byte.is_ascii_digit()).count() < 4 {
        let _ = First::new("abc").answer(data, b"secret");
    }
    if let Ok((_, last)) = First::new("abc").answer(b"r=abcd,s=AAAA,i=1", b"secret") {
        assert!(last.check(data).is_err(), "nobody guesses the signature");
    }
});
