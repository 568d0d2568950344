//! X.509 as OpenSSL and Go see it.

use std::fs;
use std::path::Path;

use sallyport_ca::CaKind;
use sallyport_sal::{KeyAlgorithm, Suite};

use crate::issued::world::{Leaf, World};
use crate::programs::{go, run};

/// OpenSSL 3.0 and Go have no ML-DSA.
const SUITES: [Suite; 4] = [Suite::Legacy, Suite::BalancedV1, Suite::FipsV1, Suite::HsmV1];

fn write(world: &World, leaves: &[Leaf], directory: &Path) {
    for kind in CaKind::ALL {
        fs::write(directory.join(format!("{kind}.pem")), world.trust.public_keys(*kind).tls.concat())
            .unwrap();
    }
    for made in leaves {
        fs::write(directory.join(format!("leaf-{}.pem", made.name)), &made.pem).unwrap();
    }
}

#[test]
fn openssl_takes_each_for_its_purpose_and_no_other() {
    for suite in SUITES {
        let world = World::new(suite);
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Ed25519] {
            let leaves = world.leaves(algorithm);
            let dir = tempfile::tempdir().unwrap();
            write(&world, &leaves, dir.path());
            for made in &leaves {
                for ca in [CaKind::User, CaKind::Host, CaKind::Db, CaKind::DbClient, CaKind::Spiffe] {
                    for (purpose, fits) in [("sslclient", made.client), ("sslserver", made.server)] {
                        // That others' certificates are refused does not depend on the key.
                        let once = suite == Suite::BalancedV1 && algorithm == KeyAlgorithm::EcdsaP256;
                        if ca != made.authority && !once {
                            continue;
                        }
                        let (ca_file, file) = (format!("{ca}.pem"), format!("leaf-{}.pem", made.name));
                        let arguments = [
                            "verify",
                            "-x509_strict",
                            "-check_ss_sig",
                            "-purpose",
                            purpose,
                            "-CAfile",
                            &ca_file,
                            &file,
                        ];
                        let Some((ok, text)) = run("openssl", &arguments, dir.path()) else { return };
                        assert_eq!(ok, fits && ca == made.authority, "{suite} {arguments:?}: {text}");
                    }
                }
            }
            let names: [(&str, &str, bool); 6] = [
                ("-verify_hostname", "db.example.com", true),
                ("-verify_hostname", "a.pool.example.com", true),
                ("-verify_hostname", "a.b.pool.example.com", false),
                ("-verify_hostname", "example.com", false),
                ("-verify_ip", "192.0.2.1", true),
                ("-verify_ip", "192.0.2.2", false),
            ];
            for (option, name, good) in names {
                let arguments = ["verify", "-CAfile", "db.pem", option, name, "leaf-database_server.pem"];
                let (ok, text) = run("openssl", &arguments, dir.path()).unwrap();
                assert_eq!(ok, good, "{name}: {text}");
            }
        }
    }
}

#[test]
fn go_takes_each_for_its_purpose_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut list = String::new();
    for suite in SUITES {
        let world = World::new(suite);
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048, KeyAlgorithm::Ed25519] {
            let leaves = world.leaves(algorithm);
            let place = dir.path().join(format!("{suite}-{algorithm}"));
            fs::create_dir(&place).unwrap();
            write(&world, &leaves, &place);
            for made in &leaves {
                let place = place.display();
                list.push_str(&format!(
                    "{place}/leaf-{}.pem {place}/{}.pem {} {}\n",
                    made.name, made.authority, made.client, made.server
                ));
            }
        }
    }
    fs::write(dir.path().join("list"), &list).unwrap();
    let Some((ok, text)) = go(include_str!("../go/x509.go"), &["list"], dir.path()) else { return };
    assert!(ok, "{text}");
    assert_eq!(text.trim(), format!("{} as expected", list.lines().count()));
}
