//! The first packet of a database client: read whole or not yet, whatever follows, and written again as it was meant.

use sallyport_databases::postgres::options;
use sallyport_databases::postgres::startup::{First, read};

fuzz_target!(|data: &[u8]| {
    let Ok(Some((first, length))) = read(data) else { return };
    assert!(length <= data.len());
    assert_eq!(read(&data[..length]), Ok(Some((first.clone(), length))));
    assert!((0..length).all(|cut| !matches!(read(&data[..cut]), Ok(Some(_)))));
    if let First::Startup(mut startup) = first {
        let _ = (startup.user(), startup.database(), options::database(&startup));
        options::take_out(&mut startup);
        assert_eq!(options::database(&startup), None);
        let bytes = startup.to_bytes();
        if let Ok(again) = read(&bytes) {
            assert_eq!(again, Some((First::Startup(startup), bytes.len())));
        }
    }
});
