//! Every build that the documentation names, checked: a feature that no check builds does not build for long.

use std::process::Stdio;
use std::time::Instant;

use crate::metadata::cargo;
use crate::setup;

/// A feature of the command line, and what it needs on the machine beside Rust and a C compiler.
struct Feature {
    name: &'static str,
    /// The packages with code of their own behind it; everything else only hands it on.
    packages: &'static [&'static str],
    needs: &'static [(&'static str, &'static str)],
}

const FEATURES: &[Feature] = &[
    Feature { name: "comparison", packages: &["sallyport-sal"], needs: &[] },
    Feature { name: "sodium", packages: &["sallyport-sal"], needs: &[] },
    Feature {
        name: "openssl",
        packages: &["sallyport-sal"],
        needs: &[("/usr/include/openssl/ssl.h", "libssl-dev"), ("pkg-config", "pkg-config")],
    },
    Feature {
        name: "pam",
        packages: &["sallyport-ssh"],
        needs: &[("/usr/include/security/pam_appl.h", "libpam0g-dev")],
    },
    Feature { name: "fips", packages: &["sallyport-sal"], needs: &[("cmake", "cmake"), ("go", "golang-go")] },
];

/// The package whose features people name.
const COMMAND: &str = "sallyport-cli";

pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.iter().find(|name| FEATURES.iter().all(|feature| feature.name != *name))
    {
        let known: Vec<_> = FEATURES.iter().map(|feature| feature.name).collect();
        return Err(format!("there is no feature {unknown}; there are {}", known.join(", ")));
    }
    all_are_here()?;
    for feature in FEATURES
        .iter()
        .filter(|feature| arguments.is_empty() || arguments.iter().any(|name| *name == feature.name))
    {
        let begin = Instant::now();
        setup::install(&format!("the feature {}", feature.name), feature.needs)?;
        for package in feature.packages {
            check(package, feature.name)?;
        }
        println!("feature {}: {} s", feature.name, begin.elapsed().as_secs());
    }
    Ok(())
}

fn check(package: &str, feature: &str) -> Result<(), String> {
    let status = cargo()
        .args(["check", "--quiet", "--locked", "--package", package, "--features", feature])
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot run cargo check: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{package} does not build with --features {feature}")) }
}

/// The command line has these features and no others: one that is added is checked from then on.
fn all_are_here() -> Result<(), String> {
    let manifest = std::fs::read_to_string("crates/cli/Cargo.toml")
        .map_err(|error| format!("crates/cli/Cargo.toml: {error}"))?;
    let declared = declared(&manifest);
    for name in &declared {
        if FEATURES.iter().all(|feature| feature.name != *name) {
            return Err(format!(
                "{COMMAND} has the feature {name}, which xtask/src/features.rs does not check"
            ));
        }
    }
    match FEATURES.iter().find(|feature| !declared.contains(&feature.name)) {
        Some(feature) => Err(format!("{COMMAND} has no feature {}", feature.name)),
        None => Ok(()),
    }
}

/// The names in the section `[features]`.
fn declared(manifest: &str) -> Vec<&str> {
    let section = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_manifest() {
        let manifest =
            "[package]\nname = \"x\"\n[features]\n# why\na = [\"b\"]\nc = []\n\n[dependencies]\nd = \"1\"\n";
        assert_eq!(declared(manifest), ["a", "c"]);
    }
}
