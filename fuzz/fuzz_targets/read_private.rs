//! A private key in a file that another program wrote: what is read has been proven, and writes and reads back.

use sallyport_sal::formats::{self, Format};

fuzz_target!(|data: &[u8]| {
    // Without a passphrase: with one, each try may rightly take seconds.
    if let Ok(key) = formats::read_private(data, None) {
        formats::prove(&key).expect("a reader proves what it gives");
        for format in Format::ALL.iter().filter(|format| format.holds(key.algorithm())) {
            let written = formats::write_private(&key, *format, None).expect("it holds the key");
            let again = formats::read_private(&written, None).expect("we read what we write");
            assert_eq!((again.secret(), again.public()), (key.secret(), key.public()));
        }
    }
});
