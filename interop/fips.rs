//! The build with the FIPS module, from its sources to the whole job.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, free_port, ok, stdout};

/// The program with the feature `fips`. Its build is kept apart: the other tests use the program beside which they were built.
fn built() -> PathBuf {
    for (program, version, package) in [("cmake", "--version", "cmake"), ("go", "version", "golang-go")] {
        let runs = Command::new(program).arg(version).stdout(Stdio::null()).status();
        assert!(runs.is_ok_and(|status| status.success()), "{program} is missing: install {package}");
    }
    // From TARGET/debug/sallyport.
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap().join("fips");
    let mut cargo = Command::new("cargo");
    // The runner names a package to the tests. Build scripts that look at these would run again each time.
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(name);
        }
    }
    let arguments = ["build", "--locked", "--package", "sallyport-cli", "--features", "fips"];
    ok(cargo.args(arguments).arg("--target-dir").arg(&target).output().expect("run cargo"));
    target.join("debug").join("sallyport")
}

#[test]
#[ignore = "builds the program once more; `cargo xtask test --measure` runs it"]
fn the_build_with_the_module_does_the_whole_job() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("qs");
    let listen = format!("127.0.0.1:{}", free_port());
    let mut quickstart = Command::new(built());
    quickstart.args(["quickstart", "--once", "--dir"]).arg(&path).args(["--listen", &listen]);
    let said = stdout(&ok(quickstart.output().unwrap()));
    assert!(said.contains("hello from") && said.contains("intact"), "{said}");
}
