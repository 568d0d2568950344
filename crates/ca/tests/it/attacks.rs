//! A host's certificate, shown in the place of another host.

use std::sync::Arc;

use sallyport_access::{HostId, HostRole, NodeName, Principal};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::tls::node::NodeClient;
use sallyport_ca::tls::{ClientAuth, client_config, refusal, server_config};
use sallyport_ca::{
    Authority, CaError, CaKind, HostRequest, LoginWord, Opener, Opening, OpeningWord, SshOptions,
    WantedLogin, issue_host, issue_target_host, issue_user, server_name,
};
use sallyport_sal::MemoryKey;
use ssh_key::Certificate;
use time::Duration;
use uuid::Uuid;

use crate::cluster::{Cluster, SUITE, alice, connect, leaf, user};

fn read(line: &str) -> Certificate {
    Certificate::from_openssh(line).unwrap()
}

#[test]
fn no_host_but_the_one_that_was_dialled_passes_for_it() {
    let cluster = Cluster::new("prod");
    let verify = |line: &str, asked: &str| cluster.trust.verify_target_ssh(&read(line), asked, cluster.now);
    let web = cluster.host("web-1", HostRole::Node, &[]);
    for own in ["web-1", "WEB-1.prod.", &web.id.to_string(), &format!("{}.prod", web.id)] {
        verify(&web.certificates.ssh, own).unwrap();
    }
    // A proxy that was certified for a node's name, or is called so itself, and the authority.
    let proxies = [
        cluster.host("gate", HostRole::Proxy, &["web-1", "web-1.prod"]),
        cluster.host("web-1", HostRole::Proxy, &[]),
        cluster.host("web-1", HostRole::Auth, &[]),
    ];
    for proxy in &proxies {
        for asked in ["web-1", "web-1.prod"] {
            assert!(
                cluster.trust.verify_host_ssh(&read(&proxy.certificates.ssh), asked, cluster.now).is_ok()
            );
            let error = verify(&proxy.certificates.ssh, asked).unwrap_err();
            assert!(matches!(error, CaError::WrongRole { .. }), "{asked}: {error}");
        }
    }
    // A stock server has the names that it is registered with, and no id but its own.
    let db = cluster.host("db-1", HostRole::OpenSsh, &["pg.example.com", &web.id.to_string()]);
    verify(&db.certificates.ssh, "pg.example.com").unwrap();
    verify(&db.certificates.ssh, &db.id.to_string()).unwrap();
    let error = verify(&db.certificates.ssh, &web.id.to_string()).unwrap_err();
    assert!(matches!(error, CaError::WrongHost { .. }), "{error}");

    // A proxy stands before the server that the authority has named, and before no other.
    let key = SshKeyPair::generate(SUITE, "front").unwrap();
    let request = HostRequest {
        id: db.id,
        name: &NodeName::new("db-1").unwrap(),
        role: HostRole::OpenSsh,
        join_id: Uuid::from_u128(7),
        public_names: &["pg.example.com".to_owned()],
        ssh_public_key: key.public_line(),
        tls_spki: &[],
    };
    let front = issue_target_host(&cluster.hosts, &request, cluster.now, Duration::hours(1)).unwrap().line;
    for asked in ["db-1", "pg.example.com", &db.id.to_string()] {
        let identity = verify(&front, asked).unwrap();
        assert!(matches!(identity.principal, Principal::Host { role: HostRole::Proxy, .. }));
    }
    for asked in ["web-1", &web.id.to_string(), &HostId::new().to_string()] {
        verify(&front, asked).unwrap_err();
    }
}

#[test]
fn a_proxy_of_a_nodes_name_does_not_serve_in_the_nodes_place() {
    let cluster = Cluster::new("prod");
    let shown = cluster.user(&alice());
    let (chain, key) = (&shown.certificates.tls_pem, shown.tls.pkcs8_pem());
    let client = NodeClient::new(&cluster.trust, (chain, &key), b"native", "web-1").unwrap();
    let client = client.config(cluster.now);
    for (role, is_let_in) in [(HostRole::Node, true), (HostRole::Proxy, false)] {
        let host = cluster.host("web-1", role, &[]);
        let (chain, key) = (&host.certificates.tls_pem, host.tls.pkcs8_pem());
        let server = server_config(&cluster.trust, chain, &key, &[b"native"], ClientAuth::Required).unwrap();
        // By the name that the host may show: what is asked here is whether it is a node.
        let reached = connect(&client, &Arc::new(server), &server_name(role, cluster.trust.cluster()));
        match reached {
            Ok(_) => assert!(is_let_in, "{role:?}"),
            Err(error) => {
                let refused = matches!(refusal(&error), Some(CaError::WrongRole { .. }));
                assert!(!is_let_in && refused, "{role:?}: {error}");
            }
        }
    }
}

/// An authority's keys in the hands of a thief, who has them sign what the authority of another kind signs.
fn turned(cluster: &Cluster, stolen: &Authority, kind: CaKind) -> Authority {
    let mut record = stolen.record().clone();
    record.kind = kind;
    Authority::load(&record, &cluster.custody).unwrap()
}

#[test]
fn what_the_keys_of_one_authority_sign_is_never_of_the_others_kind() {
    let cluster = Cluster::new("prod");
    let (trust, now, day) = (&cluster.trust, cluster.now, Duration::days(1));
    let (ssh, tls) = (SshKeyPair::generate(SUITE, "x").unwrap(), TlsKey::generate(SUITE).unwrap());
    let (line, spki) = (ssh.public_line(), tls.spki_der());
    // The user CA's keys sign a host.
    let request = HostRequest {
        id: HostId::new(),
        name: &NodeName::new("web-1").unwrap(),
        role: HostRole::Node,
        join_id: Uuid::from_u128(9),
        public_names: &[],
        ssh_public_key: line,
        tls_spki: spki,
    };
    let host = issue_host(&turned(&cluster, &cluster.users, CaKind::Host), &request, now, day).unwrap();
    let is_no_user =
        |error: &CaError| matches!(error, CaError::WrongKind { got: CaKind::Host, expected: CaKind::User });
    let error = trust.identify_tls(&leaf(&host.tls_pem), now).unwrap_err();
    assert!(is_no_user(&error), "{error}");
    let error = trust.verify_user_ssh(&read(&host.ssh), now).unwrap_err();
    assert!(is_no_user(&error), "{error}");
    for refused in [
        trust.verify_host_ssh(&read(&host.ssh), "web-1", now),
        trust.identify_host_ssh(&read(&host.ssh), now),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
    }

    // The host CA's keys sign a user.
    let users = turned(&cluster, &cluster.hosts, CaKind::User);
    let issued = issue_user(&users, &alice(), line, spki, now, day, &SshOptions::default()).unwrap();
    let is_no_host =
        |error: &CaError| matches!(error, CaError::WrongKind { got: CaKind::User, expected: CaKind::Host });
    let error = trust.identify_tls(&leaf(&issued.tls_pem), now).unwrap_err();
    assert!(is_no_host(&error), "{error}");
    let error = trust.identify_host_ssh(&read(&issued.ssh), now).unwrap_err();
    assert!(is_no_host(&error), "{error}");
    let error = trust.verify_user_ssh(&read(&issued.ssh), now).unwrap_err();
    assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");

    // Nor does a handshake let one in.
    let gate = cluster.host("gate", HostRole::Proxy, &[]);
    let (chain, key) = (&gate.certificates.tls_pem, gate.tls.pkcs8_pem());
    let server = server_config(trust, chain, &key, &[b"h2"], ClientAuth::Required).unwrap();
    let server = Arc::new(server);
    for chain in [&host.tls_pem, &issued.tls_pem] {
        let client = client_config(trust, Some((chain, &tls.pkcs8_pem())), &[b"h2"]).unwrap();
        let dialled = server_name(HostRole::Proxy, trust.cluster());
        connect(&Arc::new(client), &server, &dialled).unwrap_err();
    }
}

#[test]
fn a_word_for_a_database_session_is_a_proxys_own() {
    let cluster = Cluster::new("prod");
    let gate = cluster.host("gate", HostRole::Proxy, &[]);
    let web = cluster.host("web-1", HostRole::Node, &[]);
    let other = cluster.host("gate", HostRole::Proxy, &[]);
    let opening = Opening {
        agent: web.id,
        database: "prod",
        db_user: "reader",
        db_name: "app",
        user_certificate: b"a certificate",
    };
    let word = |host: &crate::cluster::Host| {
        opening.sign(&*host.ssh.signer(), &host.certificates.ssh, cluster.now).unwrap()
    };
    let verify =
        |opening: &Opening<'_>, word: OpeningWord| cluster.trust.verify_opening(opening, &word, cluster.now);
    verify(&opening, word(&gate)).unwrap();
    verify(&opening, word(&web)).unwrap_err();
    // Each part of it is signed: nothing can be moved to another session, or from one field to the next.
    for moved in [
        Opening { agent: gate.id, ..opening },
        Opening { database: "pro", db_user: "dreader", ..opening },
        Opening { db_user: "writer", ..opening },
        Opening { db_name: "other", ..opening },
        Opening { user_certificate: b"another", ..opening },
    ] {
        assert!(matches!(verify(&moved, word(&gate)), Err(CaError::BadSignature)), "{moved:?}");
    }
    let mut swapped = word(&gate);
    swapped.certificate = other.certificates.ssh;
    assert!(matches!(verify(&opening, swapped), Err(CaError::BadSignature)));
    for at in [-3600, 3600] {
        let late = cluster.now + Duration::seconds(at);
        let late = opening.sign(&*gate.ssh.signer(), &gate.certificates.ssh, late).unwrap();
        verify(&opening, late).unwrap_err();
    }
}

#[test]
fn a_users_own_word_for_a_database_session_takes_the_key_of_the_certificate() {
    let cluster = Cluster::new("prod");
    let web = cluster.host("web-1", HostRole::Node, &[]);
    let made = |name: &str| {
        let user = cluster.user(&user(name, &[]));
        let key = MemoryKey::from_pkcs8_pem(&user.tls.pkcs8_pem()).unwrap();
        (leaf(&user.certificates.tls_pem), key)
    };
    let ((alice, alices), (mallory, mallorys)) = (made("alice"), made("mallory"));
    let opening = Opening {
        agent: web.id,
        database: "prod",
        db_user: "reader",
        db_name: "app",
        user_certificate: &alice,
    };
    let verify =
        |opening: &Opening<'_>, word: OpeningWord| cluster.trust.verify_opening(opening, &word, cluster.now);
    let own = opening.sign_as_user(&alices, cluster.now).unwrap();
    let verified = verify(&opening, own.clone());
    assert!(matches!(&verified, Ok(Opener::User(user)) if user.display_name() == "alice"), "{verified:?}");
    // The certificate without its key; and another session than was signed for.
    let forged = opening.sign_as_user(&mallorys, cluster.now).unwrap();
    assert!(matches!(verify(&opening, forged), Err(CaError::BadSignature)));
    for moved in [
        Opening { agent: HostId::new(), ..opening },
        Opening { database: "pro", db_user: "dreader", ..opening },
        Opening { db_user: "writer", ..opening },
        Opening { db_name: "other", ..opening },
        Opening { user_certificate: &mallory, ..opening },
    ] {
        assert!(matches!(verify(&moved, own.clone()), Err(CaError::BadSignature)), "{moved:?}");
    }
    // A host has a certificate and its key, and is no user.
    let hosts = leaf(&web.certificates.tls_pem);
    let host = Opening { user_certificate: &hosts, ..opening };
    let key = MemoryKey::from_pkcs8_pem(&web.tls.pkcs8_pem()).unwrap();
    assert!(matches!(
        verify(&host, host.sign_as_user(&key, cluster.now).unwrap()),
        Err(CaError::Refused { .. })
    ));
    for at in [-3600, 3600] {
        let late = opening.sign_as_user(&alices, cluster.now + Duration::seconds(at)).unwrap();
        verify(&opening, late).unwrap_err();
    }
    // Nor is a proxy's signature the user's, whatever stands beside it.
    let gate = cluster.host("gate", HostRole::Proxy, &[]);
    let proxys = opening.sign(&*gate.ssh.signer(), &gate.certificates.ssh, cluster.now).unwrap();
    verify(&opening, OpeningWord { certificate: String::new(), ..proxys }).unwrap_err();
}

#[test]
fn a_users_word_for_a_login_takes_the_key_of_the_certificate() {
    let cluster = Cluster::new("prod");
    let (alice, mallory) = (cluster.user(&user("alice", &[])), cluster.user(&user("mallory", &[])));
    let wanted = WantedLogin { server: "db-1", login: "deploy" };
    let verify = |wanted: &WantedLogin<'_>, line: &str, word: &LoginWord| {
        cluster.trust.verify_login_word(wanted, &read(line), word, cluster.now)
    };
    let own = wanted.sign(&*alice.ssh.signer(), cluster.now).unwrap();
    let shown = alice.certificates.ssh.as_str();
    assert_eq!(verify(&wanted, shown, &own).unwrap().display_name(), "alice");
    // The certificate without its key, and another login than was asked for.
    let forged = wanted.sign(&*mallory.ssh.signer(), cluster.now).unwrap();
    assert!(matches!(verify(&wanted, shown, &forged), Err(CaError::BadSignature)));
    assert!(matches!(verify(&wanted, &mallory.certificates.ssh, &own), Err(CaError::BadSignature)));
    for moved in [
        WantedLogin { server: "db-2", ..wanted },
        WantedLogin { login: "root", ..wanted },
        WantedLogin { server: "db-1d", login: "eploy" },
    ] {
        assert!(matches!(verify(&moved, shown, &own), Err(CaError::BadSignature)), "{moved:?}");
    }
    for (at, nonce) in [(own.at + 1, own.nonce.clone()), (own.at, vec![0; 16]), (own.at, Vec::new())] {
        verify(&wanted, shown, &LoginWord { at, nonce, ..own.clone() }).unwrap_err();
    }
    for at in [-3600, 3600] {
        let late = wanted.sign(&*alice.ssh.signer(), cluster.now + Duration::seconds(at)).unwrap();
        verify(&wanted, shown, &late).unwrap_err();
    }
    // A host has a key and a certificate, and is no user.
    let web = cluster.host("web-1", HostRole::Node, &[]);
    let hosts = wanted.sign(&*web.ssh.signer(), cluster.now).unwrap();
    verify(&wanted, &web.certificates.ssh, &hosts).unwrap_err();
}
