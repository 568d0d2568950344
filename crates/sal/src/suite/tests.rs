#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn suites_are_found_by_name() {
    for suite in Suite::ALL {
        assert_eq!(suite.name().parse::<Suite>().unwrap(), *suite);
        assert_eq!(serde_json::to_string(suite).unwrap(), format!("\"{suite}\""));
    }
    let error = "balanced-v9".parse::<Suite>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown suite \"balanced-v9\"; this build knows legacy, balanced-v1, fips-v1, hsm-v1, pq-v1"
    );
}

#[test]
fn purposes_are_found_by_name() {
    for purpose in KeyPurpose::ALL {
        assert_eq!(purpose.name().parse::<KeyPurpose>().unwrap(), *purpose);
        assert_eq!(serde_json::to_string(purpose).unwrap(), format!("\"{purpose}\""));
    }
    assert!("user".parse::<KeyPurpose>().is_err());
}

/// Every cell. A change here changes the keys of clusters: it belongs into a new suite, not into one that is in use.
#[test]
fn every_cell_is_pinned() {
    let pinned = "\
user-ca-ssh        rsa-2048  ed25519     ecdsa-p256  ecdsa-p256  ed25519
user-ca-tls        rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
host-ca-ssh        rsa-2048  ed25519     ecdsa-p256  ecdsa-p256  ed25519
host-ca-tls        rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ml-dsa-65
db-ca-tls          rsa-2048  rsa-2048    rsa-2048    rsa-2048    rsa-2048
db-client-ca-tls   rsa-2048  rsa-2048    rsa-2048    rsa-2048    rsa-2048
openssh-ca-ssh     rsa-2048  ed25519     ecdsa-p256  ecdsa-p256  ed25519
jwt-ca             rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
oidc-idp-ca        rsa-2048  rsa-2048    rsa-2048    rsa-2048    rsa-2048
spiffe-ca-tls      rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
spiffe-ca-jwt      rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
user-ssh           rsa-2048  ed25519     ecdsa-p256  ed25519     ed25519
user-tls           rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
web-session-ssh    rsa-2048  ed25519     ecdsa-p256  ed25519     ed25519
web-session-tls    rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
host-ssh           rsa-2048  ed25519     ecdsa-p256  ed25519     ed25519
host-tls           rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ml-dsa-65
proxy-to-agent     rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ml-dsa-65
agent-to-database  rsa-2048  rsa-2048    rsa-2048    rsa-2048    rsa-2048
database-server    rsa-2048  rsa-2048    rsa-2048    rsa-2048    rsa-2048
bot-ssh            rsa-2048  ed25519     ecdsa-p256  ed25519     ed25519
bot-tls            rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
svid               rsa-2048  ecdsa-p256  ecdsa-p256  ecdsa-p256  ecdsa-p256
audit-checkpoint   ed25519   ed25519     ecdsa-p256  ed25519     ml-dsa-65";
    let rows: Vec<Vec<String>> =
        pinned.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    let table: Vec<Vec<String>> = KeyPurpose::ALL
        .iter()
        .map(|purpose| {
            let cells = Suite::ALL.iter().map(|suite| suite.algorithm(*purpose).name().to_owned());
            std::iter::once(purpose.name().to_owned()).chain(cells).collect()
        })
        .collect();
    assert_eq!(table, rows);
}

#[test]
fn the_table_has_each_purpose_once_and_a_reason_for_each_cell() {
    let rows: Vec<KeyPurpose> = TABLE.iter().map(|row| row.purpose).collect();
    assert_eq!(rows, KeyPurpose::ALL);
    for row in TABLE {
        assert!(!row.what.is_empty(), "{}", row.purpose);
        for suite in Suite::ALL {
            let reason = row.cell(*suite).reason;
            assert!(!reason.why.is_empty() && !reason.dictated_by.is_empty(), "{} {suite}", row.purpose);
        }
    }
}

#[test]
fn what_the_suites_promise_holds() {
    let all = |suite: Suite| KeyPurpose::ALL.iter().map(move |purpose| (*purpose, suite.algorithm(*purpose)));
    assert!(all(Suite::FipsV1).all(|(_, key)| key != KeyAlgorithm::Ed25519));
    assert!(all(Suite::HsmV1).all(|(purpose, key)| !purpose.is_ca() || key != KeyAlgorithm::Ed25519));
    assert!(Suite::HsmV1.is_for_tokens() && Suite::FipsV1.is_for_tokens() && Suite::Legacy.is_for_tokens());
    assert!(!Suite::BalancedV1.is_for_tokens() && !Suite::PqV1.is_for_tokens());
    assert!(all(Suite::PqV1).any(|(_, key)| key.kind() == KeyKind::MlDsa));
    assert_eq!(Suite::PqV1.key_exchange(), HybridKeyExchange::Required);
    assert_eq!(Suite::of_new_cluster(false, false), Suite::default());
    assert_eq!(Suite::of_new_cluster(false, true), Suite::HsmV1);
    assert_eq!(Suite::of_new_cluster(true, true), Suite::FipsV1);
    assert!(Suite::FipsV1.is_for_fips() && Suite::Legacy.is_for_fips() && !Suite::BalancedV1.is_for_fips());
}

#[test]
fn keys_of_other_suites_are_accepted_but_not_weak_ones() {
    for suite in Suite::ALL {
        assert!(suite.accepts(KeyAlgorithm::Rsa2048) && suite.accepts(KeyAlgorithm::EcdsaP256), "{suite}");
        assert!(!suite.accepts(KeyAlgorithm::Rsa1024), "{suite}");
        assert_eq!(suite.accepts(KeyAlgorithm::Ed25519), *suite != Suite::FipsV1, "{suite}");
    }
}

/// `docs/suites.md` has the table. To write it anew: `SUITES_REFRESH=1 cargo test -p sallyport-sal suite`.
#[test]
fn the_guide_shows_the_table() {
    const BEGIN: &str = "<!-- table of suites -->\n";
    const END: &str = "<!-- end of the table -->\n";
    let mut table = String::from("| key |");
    for suite in Suite::ALL {
        table += &format!(" `{suite}` |");
    }
    table += &format!("\n|---|{}\n", "---|".repeat(Suite::ALL.len()));
    let mut reasons: Vec<&Reason> = Vec::new();
    for row in TABLE {
        table += &format!("| `{}`: {} |", row.purpose, row.what);
        for suite in Suite::ALL {
            let cell = row.cell(*suite);
            let at = reasons.iter().position(|known| *known == cell.reason).unwrap_or_else(|| {
                reasons.push(cell.reason);
                reasons.len() - 1
            });
            table += &format!(" {} ({}) |", cell.algorithm.name(), at + 1);
        }
        table.push('\n');
    }
    table += "\nThe numbers are the reasons, and who dictates them:\n\n";
    for (at, reason) in reasons.iter().enumerate() {
        table += &format!("{}. {}: {}.\n", at + 1, reason.why, reason.dictated_by);
    }
    let path = std::path::Path::new("../../docs/suites.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if std::env::var_os("SUITES_REFRESH").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(shown, table, "docs/suites.md is out of date: run with SUITES_REFRESH=1");
    }
}
