//! A public key in a file that another program wrote: what is read writes and reads back.

use sallyport_sal::formats::{self, PublicFormat};

fuzz_target!(|data: &[u8]| {
    if let Ok(key) = formats::read_public(data) {
        for format in PublicFormat::ALL {
            if let Ok(written) = formats::write_public(&key, *format) {
                assert_eq!(formats::read_public(&written).expect("we read what we write"), key);
            }
        }
    }
});
