#![no_main]
//! All fuzz targets in one program, so that what they call is linked once: `SALLYPORT_FUZZ_TARGET` names the one to run.

mod fuzz_targets;

use std::sync::LazyLock;

use fuzz_targets::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("SALLYPORT_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("SALLYPORT_FUZZ_TARGET={name:?} names no fuzz target")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    TARGET(data);
});
