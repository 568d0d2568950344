//! What is issued is recognised, and nothing else is.

use crate::cluster::{Cluster, SUITE, alice, leaf, recording_key, user};
use sallyport_access::{
    ClusterName, Device, DeviceCustody, DeviceId, HostRole, Identity, NodeName, Principal, SessionFactor,
    SessionProof,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{
    Authority, CaError, CaKind, HostRequest, MAX_USER_TTL, NO_LOGIN, SKEW_ALLOWANCE, SshOptions, Trust,
    TrustBundle, UserPair, authorized_keys_lines, device_in, issue_host, issue_user, known_hosts_lines,
    server_name, trusted_user_ca_lines,
};
use ssh_key::Certificate;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

fn expected(identity: Identity, after: OffsetDateTime, before: OffsetDateTime) -> Identity {
    Identity { valid_after: after, valid_before: before, ..identity }
}

#[test]
fn a_login_is_recognised_from_both_certificates() {
    let cluster = Cluster::new("prod");
    let alice_now = cluster.user(&alice());
    let certificates = &alice_now.certificates;
    let want = expected(alice(), cluster.now - SKEW_ALLOWANCE, cluster.now + Duration::hours(1));
    assert_eq!((certificates.valid_after, certificates.valid_before), (want.valid_after, want.valid_before));
    assert_eq!(certificates.ssh_fingerprint, alice_now.ssh.fingerprint());

    assert_eq!(cluster.trust.identify_tls(&leaf(&certificates.tls_pem), cluster.now).unwrap(), want);
    let ssh = Certificate::from_openssh(&certificates.ssh).unwrap();
    assert_eq!(cluster.trust.verify_user_ssh(&ssh, cluster.now).unwrap(), want);
    assert_eq!(ssh.key_id(), "alice");
    assert_eq!(ssh.valid_principals(), ["root", "deploy"]);
    assert_eq!(ssh.serial(), certificates.serials.ssh);
    let extensions: Vec<&str> = ssh.extensions().keys().map(String::as_str).collect();
    assert_eq!(
        extensions,
        [
            "cluster@sallyport",
            "login-id@sallyport",
            "permit-port-forwarding",
            "permit-pty",
            "roles@sallyport",
            "traits@sallyport"
        ]
    );
    assert_ne!(certificates.serials, cluster.user(&alice()).certificates.serials);
}

#[test]
fn a_login_from_a_trusted_device_says_so_in_both_certificates() {
    let cluster = Cluster::new("prod");
    let with = |device| cluster.user(&Identity { device, ..alice() }).certificates;
    let device = |custody| Some(Device { id: DeviceId::new(), custody });
    for asked in [device(DeviceCustody::File), device(DeviceCustody::Hardware)] {
        let certificates = with(asked);
        let by_tls = cluster.trust.identify_tls(&leaf(&certificates.tls_pem), cluster.now).unwrap();
        let ssh = Certificate::from_openssh(&certificates.ssh).unwrap();
        let by_ssh = cluster.trust.verify_user_ssh(&ssh, cluster.now).unwrap();
        assert_eq!((by_tls.device, by_ssh.device), (asked, asked));
        assert_eq!(device_in(&certificates.ssh), asked);
        // Two halves that differ in it are no login.
        let without = with(None);
        assert!(
            UserPair::verify(&cluster.trust, &certificates.ssh, &certificates.tls_pem, cluster.now).is_ok()
        );
        for (ssh, tls) in [(&certificates, &without), (&without, &certificates)] {
            assert!(UserPair::verify(&cluster.trust, &ssh.ssh, &tls.tls_pem, cluster.now).is_err());
        }
    }
    // Of a CA that the cluster does not know it is worth nothing, like all else.
    let other = Cluster::new("prod").user(&Identity { device: device(DeviceCustody::Hardware), ..alice() });
    assert!(cluster.trust.identify_tls(&leaf(&other.certificates.tls_pem), cluster.now).is_err());
}

/// What comes of a login ends with it, whenever it is made.
#[test]
fn certificates_signed_anew_and_for_sessions_end_with_their_login() {
    let cluster = Cluster::new("prod");
    let made = cluster.user(&alice()).certificates;
    let end = made.valid_before;
    let proof = SessionProof {
        factor: SessionFactor::Yes,
        targets: Vec::new(),
        address: "192.0.2.7".parse().unwrap(),
        name: "phone".to_owned(),
    };
    for left in [3600, 600, 61, 60, 59, 30, 1] {
        let now = end - Duration::seconds(left);
        let pair = UserPair::verify(&cluster.trust, &made.ssh, &made.tls_pem, now).unwrap();
        let anew = pair.reissue(&cluster.users, now);
        let for_sessions = pair.for_sessions(&cluster.users, now, &proof);
        // So little time is worth no certificate.
        assert!(left < 60 || (anew.is_ok() && for_sessions.is_ok()), "{left} s: {anew:?} {for_sessions:?}");
        assert!(anew.is_err() || anew.unwrap().valid_before == end, "{left} s");
        assert!(
            for_sessions.is_err()
                || for_sessions.unwrap().valid_before <= end.min(now + Duration::minutes(1)),
            "{left} s"
        );
    }
}

#[test]
fn a_pinned_login_says_its_address_in_every_certificate_of_it() {
    let cluster = Cluster::new("prod");
    let with = |pinned_to: Option<&str>| {
        let pinned_to = pinned_to.map(|address| address.parse().unwrap());
        cluster.user(&Identity { pinned_to, ..alice() }).certificates
    };
    for (address, network) in [("192.0.2.7", "192.0.2.7/32"), ("2001:db8::7", "2001:db8::7/128")] {
        let certificates = with(Some(address));
        let pair =
            UserPair::verify(&cluster.trust, &certificates.ssh, &certificates.tls_pem, cluster.now).unwrap();
        let proof = SessionProof {
            factor: SessionFactor::Yes,
            targets: Vec::new(),
            address: address.parse().unwrap(),
            name: "phone".to_owned(),
        };
        let (later, for_sessions) = (
            pair.reissue(&cluster.users, cluster.now),
            pair.for_sessions(&cluster.users, cluster.now, &proof),
        );
        for made in [certificates, later.unwrap(), for_sessions.unwrap()] {
            let by_tls = cluster.trust.identify_tls(&leaf(&made.tls_pem), cluster.now).unwrap();
            let ssh = Certificate::from_openssh(&made.ssh).unwrap();
            let by_ssh = cluster.trust.verify_user_ssh(&ssh, cluster.now).unwrap();
            assert_eq!((by_tls.pinned_to, by_ssh.pinned_to), (address.parse().ok(), address.parse().ok()));
            // What stock servers go by.
            let critical: Vec<_> = ssh.critical_options().iter().collect();
            assert_eq!(critical, [(&"source-address".to_owned(), &network.to_owned())]);
        }
        // Two halves that differ in it are no login.
        let (pinned, open, other) = (with(Some(address)), with(None), with(Some("192.0.2.8")));
        for (ssh, tls) in [(&pinned, &open), (&open, &pinned), (&pinned, &other)] {
            assert!(UserPair::verify(&cluster.trust, &ssh.ssh, &tls.tls_pem, cluster.now).is_err());
        }
    }
    // It has one form, and so one meaning.
    let mapped = with(Some("::ffff:192.0.2.7"));
    assert!(cluster.trust.identify_tls(&leaf(&mapped.tls_pem), cluster.now).is_err());
    let ssh = Certificate::from_openssh(&mapped.ssh).unwrap();
    assert!(cluster.trust.verify_user_ssh(&ssh, cluster.now).is_err());
}

#[test]
fn hosts_are_recognised_by_the_names_of_their_role() {
    let cluster = Cluster::new("prod");
    let node = cluster.host("web-1", HostRole::Node, &["ignored.example.com"]);
    let identity = cluster.trust.identify_tls(&leaf(&node.certificates.tls_pem), cluster.now).unwrap();
    let Principal::Host { id, name, role } = &identity.principal else { panic!("{identity:?}") };
    assert_eq!((*id, name.as_str(), *role), (node.id, "web-1", HostRole::Node));
    assert_eq!(identity.login_id, Uuid::from_u128(9));

    let ssh = Certificate::from_openssh(&node.certificates.ssh).unwrap();
    for name in ["web-1", "WEB-1", "web-1.prod", "web-1.prod.", &node.id.to_string()] {
        assert_eq!(cluster.trust.verify_host_ssh(&ssh, name, cluster.now).unwrap(), identity, "{name}");
    }
    for name in ["web-2", "web", "", "ignored.example.com", "localhost"] {
        let error = cluster.trust.verify_host_ssh(&ssh, name, cluster.now).unwrap_err();
        assert!(matches!(error, CaError::WrongHost { .. }), "{name}: {error}");
    }

    let proxy = cluster.host("edge", HostRole::Proxy, &["Ssh.Example.com", "192.0.2.7", "::1"]);
    let ssh = Certificate::from_openssh(&proxy.certificates.ssh).unwrap();
    for name in ["edge", "ssh.example.com", "192.0.2.7", "::1", "127.0.0.1", "localhost"] {
        cluster.trust.verify_host_ssh(&ssh, name, cluster.now).unwrap();
    }
    let cluster_name = ClusterName::new("prod").unwrap();
    assert_eq!(server_name(HostRole::Auth, &cluster_name), "auth.prod.sallyport.internal");
}

#[test]
fn public_names_are_names_and_never_internal_ones() {
    let cluster = Cluster::new("prod");
    for name in [
        "auth.prod.sallyport.internal",
        "SALLYPORT.internal.",
        "no spaces",
        "",
        "-x",
        "a..b",
        "*.example.com:22",
    ] {
        let (ssh, tls) = (SshKeyPair::generate(SUITE, "").unwrap(), TlsKey::generate(SUITE).unwrap());
        let request = HostRequest {
            id: sallyport_access::HostId::new(),
            name: &NodeName::new("edge").unwrap(),
            role: HostRole::Proxy,
            join_id: Uuid::nil(),
            public_names: &[name.to_owned()],
            ssh_public_key: ssh.public_line(),
            tls_spki: tls.spki_der(),
        };
        let error = issue_host(&cluster.hosts, &request, cluster.now, Duration::days(1)).unwrap_err();
        assert!(matches!(error, CaError::BadName { .. }), "{name}: {error}");
    }
}

#[test]
fn a_user_without_logins_gets_no_golden_ticket() {
    let cluster = Cluster::new("prod");
    let bob = cluster.user(&user("bob", &[]));
    let ssh = Certificate::from_openssh(&bob.certificates.ssh).unwrap();
    assert_eq!(ssh.valid_principals(), [NO_LOGIN]);
    for identity in [
        cluster.trust.verify_user_ssh(&ssh, cluster.now).unwrap(),
        cluster.trust.identify_tls(&leaf(&bob.certificates.tls_pem), cluster.now).unwrap(),
    ] {
        assert!(matches!(&identity.principal, Principal::User { logins, .. } if logins.is_empty()));
    }
}

#[test]
fn time_is_checked_with_a_minute_of_tolerance() {
    let cluster = Cluster::new("prod");
    let user = cluster.user_at(&alice(), cluster.now, Duration::minutes(10));
    let (tls, ssh) =
        (leaf(&user.certificates.tls_pem), Certificate::from_openssh(&user.certificates.ssh).unwrap());
    let start = cluster.now - SKEW_ALLOWANCE;
    let end = cluster.now + Duration::minutes(10);
    let second = Duration::seconds(1);
    for good in [start - SKEW_ALLOWANCE, start, cluster.now, end, end + SKEW_ALLOWANCE - second] {
        cluster.trust.identify_tls(&tls, good).unwrap();
        cluster.trust.verify_user_ssh(&ssh, good).unwrap();
    }
    let early = start - SKEW_ALLOWANCE - second;
    let late = end + SKEW_ALLOWANCE;
    for refused in [cluster.trust.identify_tls(&tls, early), cluster.trust.verify_user_ssh(&ssh, early)] {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, CaError::NotYetValid { valid_after, now } if valid_after == start && now == early),
            "{error}"
        );
    }
    for refused in [cluster.trust.identify_tls(&tls, late), cluster.trust.verify_user_ssh(&ssh, late)] {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, CaError::Expired { valid_before, now } if valid_before == end && now == late),
            "{error}"
        );
        assert!(error.to_string().contains("log in again"), "{error}");
    }
}

#[test]
fn each_authority_speaks_for_its_own_kind_only() {
    let cluster = Cluster::new("prod");
    // What the host CA would say if it were made to certify a user, and the other way round: the trust with the two
    // CAs swapped is how a verifier sees certificates signed by the wrong one.
    let bundle = cluster.trust.to_bundle();
    let swapped = Trust::from_bundle(&TrustBundle {
        user_ssh_keys: bundle.host_ssh_keys.clone(),
        host_ssh_keys: bundle.user_ssh_keys.clone(),
        user_tls_certificates: bundle.host_tls_certificates.clone(),
        host_tls_certificates: bundle.user_tls_certificates.clone(),
        ..bundle
    })
    .unwrap();
    let user = cluster.user(&alice());
    let node = cluster.host("web-1", HostRole::Node, &[]);
    let user_ssh = Certificate::from_openssh(&user.certificates.ssh).unwrap();
    let node_ssh = Certificate::from_openssh(&node.certificates.ssh).unwrap();

    let error = swapped.verify_user_ssh(&user_ssh, cluster.now).unwrap_err();
    assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
    let error = swapped.verify_host_ssh(&node_ssh, "web-1", cluster.now).unwrap_err();
    assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
    for certificate in [&user.certificates.tls_pem, &node.certificates.tls_pem] {
        let error = swapped.identify_tls(&leaf(certificate), cluster.now).unwrap_err();
        assert!(matches!(error, CaError::WrongKind { .. }), "{error}");
    }

    // And a certificate of one kind shown where the other is needed.
    let error = cluster.trust.verify_user_ssh(&node_ssh, cluster.now).unwrap_err();
    assert!(matches!(error, CaError::WrongKind { got: CaKind::Host, expected: CaKind::User }), "{error}");
    let error = cluster.trust.verify_host_ssh(&user_ssh, "alice", cluster.now).unwrap_err();
    assert!(matches!(error, CaError::WrongKind { got: CaKind::User, expected: CaKind::Host }), "{error}");

    let error = issue_user(
        &cluster.hosts,
        &alice(),
        user.ssh.public_line(),
        user.tls.spki_der(),
        cluster.now,
        Duration::hours(1),
        &SshOptions::default(),
    )
    .unwrap_err();
    assert!(matches!(error, CaError::WrongAuthority { .. }), "{error}");
}

#[test]
fn another_cluster_is_not_believed_even_under_the_same_name() {
    let (ours, theirs, elsewhere) = (Cluster::new("prod"), Cluster::new("prod"), Cluster::new("test"));
    for other in [&theirs, &elsewhere] {
        let user = other.user(&alice());
        let ssh = Certificate::from_openssh(&user.certificates.ssh).unwrap();
        assert!(matches!(ours.trust.verify_user_ssh(&ssh, ours.now), Err(CaError::UnknownIssuer { .. })));
        let error = ours.trust.identify_tls(&leaf(&user.certificates.tls_pem), ours.now).unwrap_err();
        assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
    }
    // The same keys under another name: the cluster inside the certificate decides.
    let renamed =
        Trust::from_bundle(&TrustBundle { cluster: "other".to_owned(), ..ours.trust.to_bundle() }).unwrap();
    let user = ours.user(&alice());
    let ssh = Certificate::from_openssh(&user.certificates.ssh).unwrap();
    assert!(matches!(renamed.verify_user_ssh(&ssh, ours.now), Err(CaError::WrongCluster { .. })));
    let error = renamed.identify_tls(&leaf(&user.certificates.tls_pem), ours.now).unwrap_err();
    assert!(matches!(error, CaError::WrongCluster { .. }), "{error}");
}

#[test]
fn no_single_altered_byte_goes_unnoticed() {
    let cluster = Cluster::new("prod");
    let user = cluster.user(&alice());
    let der = leaf(&user.certificates.tls_pem);
    for at in 0..der.len() {
        let mut altered = der.clone();
        altered[at] ^= 0x01;
        assert!(cluster.trust.identify_tls(&altered, cluster.now).is_err(), "X.509 byte {at}");
        assert!(cluster.trust.identify_tls(&der[..at], cluster.now).is_err(), "X.509 cut at {at}");
    }
    let bytes = Certificate::from_openssh(&user.certificates.ssh).unwrap().to_bytes().unwrap();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 0x01;
        if let Ok(certificate) = Certificate::from_bytes(&altered) {
            assert!(cluster.trust.verify_user_ssh(&certificate, cluster.now).is_err(), "SSH byte {at}");
        }
    }
}

#[test]
fn lifetimes_and_keys_are_checked() {
    let cluster = Cluster::new("prod");
    let (ssh, tls) = (SshKeyPair::generate(SUITE, "").unwrap(), TlsKey::generate(SUITE).unwrap());
    let issue = |line: &str, spki: &[u8], ttl| {
        issue_user(&cluster.users, &alice(), line, spki, cluster.now, ttl, &SshOptions::default())
    };
    let hour = Duration::hours(1);
    for ttl in [Duration::ZERO, -hour, Duration::seconds(59), MAX_USER_TTL + Duration::seconds(1)] {
        let error = issue(ssh.public_line(), tls.spki_der(), ttl).unwrap_err();
        assert!(matches!(error, CaError::BadLifetime { .. }), "{error}");
    }
    issue(ssh.public_line(), tls.spki_der(), Duration::minutes(1)).unwrap();
    let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7vbqajDw4o6gJy8UtmIbkcpnkO3Kwc4qsEnSZp/TR+fQi62F79RHWmwKOtFmwteURgLbj7D/WGuNLGOfa/2vse3G2eHnHl5CB8ruRX9fBl/KgwCVr2JaEuUm66bBQeP5XeBotdR4cvX38uPYivCDdPjJ1QWPdspTBKcxeFbccDw==";
    for line in ["", "not a key", "ssh-ed25519 AAAA", rsa] {
        let error = issue(line, tls.spki_der(), hour).unwrap_err();
        assert!(matches!(error, CaError::BadPublicKey { which: "SSH", .. }), "{line}: {error}");
    }
    let error = issue(ssh.public_line(), &tls.spki_der()[1..], hour).unwrap_err();
    assert!(matches!(error, CaError::BadPublicKey { which: "TLS", .. }), "{error}");
}

#[test]
fn authorities_and_trust_survive_storage() {
    let cluster = Cluster::new("prod");
    let json = serde_json::to_string(cluster.users.record()).unwrap();
    let users = Authority::load(&serde_json::from_str(&json).unwrap(), &cluster.custody).unwrap();
    assert_eq!(users.ssh().unwrap().fingerprint(), cluster.users.ssh().unwrap().fingerprint());
    assert_eq!(users.tls().unwrap().pin(), cluster.users.tls().unwrap().pin());
    assert_eq!(users.record(), cluster.users.record());
    // A certificate that does not belong to the key.
    let mut record = cluster.users.record().clone();
    record.tls_certificate_pem = cluster.hosts.record().tls_certificate_pem.as_str().to_owned();
    assert!(matches!(Authority::load(&record, &cluster.custody), Err(CaError::BadTrust { .. })));

    let bundle = cluster.trust.to_bundle();
    let again: TrustBundle = serde_json::from_str(&serde_json::to_string(&bundle).unwrap()).unwrap();
    let trust = Trust::from_bundle(&again).unwrap();
    assert_eq!(trust.to_bundle(), bundle);
    assert_eq!(trust.pin(), cluster.hosts.tls().unwrap().pin());
    assert_eq!(trust.recording_key(), Some(recording_key()));
}

#[test]
fn during_a_rotation_old_and_new_are_believed() {
    let cluster = Cluster::new("prod");
    let name = ClusterName::new("prod").unwrap();
    let make = |kind| Authority::generate(kind, &name, &cluster.custody, SUITE, cluster.now).unwrap();
    let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
    let both = Trust::from_authorities(&[&users, &cluster.users, &hosts, &cluster.hosts], None).unwrap();
    assert_eq!(both.pin(), hosts.tls().unwrap().pin());
    assert_eq!(both.pins(), [hosts.tls().unwrap().pin(), cluster.hosts.tls().unwrap().pin()]);
    assert_eq!(both.recording_key(), None);
    let old = cluster.user(&alice());
    let new = Cluster { users, ..cluster }.user(&alice());
    let now = OffsetDateTime::now_utc();
    for user in [old, new] {
        both.identify_tls(&leaf(&user.certificates.tls_pem), now).unwrap();
        both.verify_user_ssh(&Certificate::from_openssh(&user.certificates.ssh).unwrap(), now).unwrap();
    }
}

#[test]
fn unusable_bundles_name_the_field() {
    let good = Cluster::new("prod").trust.to_bundle();
    let user = Cluster::new("prod").user(&alice());
    let cases: [(&str, TrustBundle); 7] = [
        ("cluster", TrustBundle { cluster: "Not Valid".to_owned(), ..good.clone() }),
        ("user_ssh_keys", TrustBundle { user_ssh_keys: vec![], ..good.clone() }),
        ("host_ssh_keys", TrustBundle { host_ssh_keys: vec!["ssh-ed25519 AAAA".to_owned()], ..good.clone() }),
        ("user_tls_certificates", TrustBundle { user_tls_certificates: vec![], ..good.clone() }),
        (
            "host_tls_certificates",
            TrustBundle { host_tls_certificates: vec!["x".to_owned()], ..good.clone() },
        ),
        // A leaf is no authority.
        (
            "user_tls_certificates",
            TrustBundle { user_tls_certificates: vec![user.certificates.tls_pem.clone()], ..good.clone() },
        ),
        ("recording_key", TrustBundle { recording_key: vec![1; 31], ..good.clone() }),
    ];
    for (field, bundle) in cases {
        let error = Trust::from_bundle(&bundle).unwrap_err();
        assert!(
            matches!(&error, CaError::BadTrust { field: found, .. } if *found == field),
            "{field}: {error}"
        );
    }
}

#[test]
fn cluster_names_that_dns_refuses_are_refused_at_birth() {
    let cluster = Cluster::new("prod");
    for name in ["a..b", "a-", "a.-b"] {
        let name = ClusterName::new(name).unwrap();
        let made = Authority::generate(CaKind::Host, &name, &cluster.custody, SUITE, cluster.now);
        assert!(matches!(made, Err(CaError::BadName { .. })), "{name}");
    }
}

#[test]
fn openssh_lines() {
    let trust = Cluster::new("prod").trust;
    let patterns = ["*.prod".to_owned(), "[proxy.example.com]:3022".to_owned()];
    let key = trust.host_ssh_lines().next().unwrap();
    assert_eq!(
        known_hosts_lines(&trust, &patterns),
        format!("@cert-authority *.prod,[proxy.example.com]:3022 {key}\n")
    );
    assert!(key.starts_with("ssh-ed25519 ") && key.ends_with(" prod host CA"), "{key}");
    let key = trust.user_ssh_lines().next().unwrap();
    assert_eq!(trusted_user_ca_lines(&trust), format!("{key}\n"));
    assert_eq!(
        authorized_keys_lines(&trust, &["root".to_owned(), "deploy".to_owned()]),
        format!("cert-authority,principals=\"root,deploy\" {key}\n")
    );
}

#[test]
fn key_files_are_read_again() {
    for purpose in [sallyport_sal::KeyPurpose::UserSsh, sallyport_sal::KeyPurpose::UserTls] {
        // The second makes the P-256 form of an SSH key, which no suite uses for SSH yet.
        let key = SshKeyPair::generate_for(SUITE, purpose, "alice@laptop").unwrap();
        let again = SshKeyPair::from_openssh(&key.private_openssh()).unwrap();
        assert_eq!(again.public_line(), key.public_line());
        assert_eq!(again.fingerprint(), key.fingerprint());
        assert!(key.public_line().ends_with(" alice@laptop"));
        assert!(!format!("{key:?}").contains("PRIVATE"));
    }
    let key = TlsKey::generate(SUITE).unwrap();
    assert_eq!(TlsKey::from_pkcs8_pem(&key.pkcs8_pem()).unwrap().spki_der(), key.spki_der());
    assert!(matches!(TlsKey::from_pkcs8_pem("nothing"), Err(CaError::BadPrivateKey { which: "TLS", .. })));
    assert!(matches!(SshKeyPair::from_openssh("nothing"), Err(CaError::BadPrivateKey { which: "SSH", .. })));
}
