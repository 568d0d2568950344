//! Leaves the names of functions out of a release: a fifth of the program.
//!
//! The profile's `strip` would do, but Cargo (1.95) leaves it out for a package that has a profile of its own.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Debugging information is what tells `profiling` from `release`.
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("DEBUG", "false") && is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo::rustc-link-arg-bin=sallyport=-Wl,--strip-all");
    }
}
