//! Everything that the authorities issue: what it says, what it refuses to say, and what others make of it.

mod lint;
mod openssh;
mod revoked;
mod verifiers;
mod world;

use crate::cluster::{alice, leaf, user};
use sallyport_access::{ClusterName, Device, DeviceCustody, DeviceId, HostId, HostRole, Identity, NodeName};
use sallyport_ca::keys::SshKeyPair;
use sallyport_ca::{
    CaError, CaKind, CertificateKind, DatabaseServerRequest, Form, HostRequest, OpensshHostRequest, SpiffeId,
    SshOptions, TokenSubject, UserKind, is_renewable, issue_database_client, issue_database_server,
    issue_host, issue_jwt, issue_jwt_svid, issue_oidc, issue_openssh_host, issue_openssh_user, issue_proxied,
    issue_svid, issue_user_as,
};
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer, Suite};
use time::Duration;
use uuid::Uuid;
use world::World;

fn spki() -> Vec<u8> {
    MemoryKey::generate(KeyAlgorithm::EcdsaP256).unwrap().public_key().spki_der()
}

fn line() -> String {
    SshKeyPair::generate(Suite::BalancedV1, "x").unwrap().public_line().to_owned()
}

#[test]
fn every_kind_is_signed_by_its_authority_only() {
    let world = World::new(Suite::BalancedV1);
    let cluster = ClusterName::new("prod").unwrap();
    let svid = SpiffeId::new(&cluster, "/web").unwrap();
    let (spki, line, now) = (spki(), line(), world.now);
    let audience = ["vault".to_owned()];
    let token = TokenSubject { issuer: "https://proxy.example.com", audience: &audience };
    let name = NodeName::new("web-1").unwrap();
    let hour = Duration::hours(1);
    let names = ["db.example.com".to_owned()];
    for authority in &world.authorities {
        let user = |kind| {
            issue_user_as(kind, authority, &alice(), &line, &spki, now, hour, &SshOptions::default())
                .map(|made| made.issued)
        };
        let host = HostRequest {
            id: HostId::new(),
            name: &name,
            role: HostRole::Node,
            join_id: Uuid::nil(),
            public_names: &[],
            ssh_public_key: &line,
            tls_spki: &spki,
        };
        let one = |issued| vec![issued];
        let server = DatabaseServerRequest { names: &names, tls_spki: &spki };
        let stock = OpensshHostRequest { names: &names, ssh_public_key: &line };
        let minutes = Duration::minutes(10);
        let id = HostId::new();
        let made = [
            (CertificateKind::User, user(UserKind::Person)),
            (CertificateKind::WebSession, user(UserKind::WebSession)),
            (CertificateKind::Bot, user(UserKind::Bot)),
            (
                CertificateKind::OpensshUser,
                issue_openssh_user(authority, &alice(), &line, now, hour, &SshOptions::default(), None)
                    .map(|made| one(made.issued)),
            ),
            (CertificateKind::Host, issue_host(authority, &host, now, hour).map(|made| made.issued)),
            (
                CertificateKind::OpensshHost,
                issue_openssh_host(authority, &stock, now, hour).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::ProxyToAgent,
                issue_proxied(authority, &alice(), id, id, &spki, now, hour).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::AgentToDatabase,
                issue_database_client(authority, "alice", &spki, now, minutes).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::DatabaseServer,
                issue_database_server(authority, &server, now, hour).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::Svid,
                issue_svid(authority, &svid, &spki, now, hour).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::Jwt,
                issue_jwt(authority, token, &alice(), now, minutes).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::JwtSvid,
                issue_jwt_svid(authority, &svid, &audience, now, minutes).map(|made| one(made.issued)),
            ),
            (
                CertificateKind::Oidc,
                issue_oidc(authority, token, "system:auth", now, minutes).map(|made| one(made.issued)),
            ),
        ];
        assert_eq!(made.len(), CertificateKind::all().count());
        for (kind, made) in made {
            if kind.authority() != authority.kind() {
                let error = made.unwrap_err();
                assert!(matches!(error, CaError::WrongAuthority { .. }), "{kind}: {error}");
                continue;
            }
            let own = [
                CertificateKind::User,
                CertificateKind::WebSession,
                CertificateKind::Bot,
                CertificateKind::Host,
                CertificateKind::ProxyToAgent,
            ];
            for issued in made.unwrap() {
                assert_eq!((issued.kind, issued.signed_by), (kind, authority.kind()));
                assert_eq!(issued.fingerprint.len(), 64);
                assert_eq!(issued.key.is_empty(), issued.form == Form::Jwt);
                // Only what this cluster believes itself can be locked by its login.
                assert_eq!(issued.login_id.is_some(), own.contains(&kind), "{kind}");
                assert!(issued.valid_after < now && issued.valid_before > now);
                let json = serde_json::to_string(&issued).unwrap();
                assert_eq!(serde_json::from_str::<sallyport_ca::Issued>(&json).unwrap(), issued);
            }
        }
    }
}

#[test]
fn what_no_policy_may_allow_is_refused() {
    let world = World::new(Suite::BalancedV1);
    let spki = spki();
    let db_client = world.authority(CaKind::DbClient);
    for ttl in [Duration::seconds(59), Duration::hours(24) + Duration::seconds(1)] {
        let error = issue_database_client(db_client, "alice", &spki, world.now, ttl).unwrap_err();
        assert!(matches!(error, CaError::BadLifetime { min: 60, max: 86_400, .. }), "{error}");
    }
    let error =
        issue_database_client(db_client, "a,CN=root", &spki, world.now, Duration::minutes(5)).unwrap_err();
    assert!(matches!(error, CaError::BadName { .. }), "{error}");
    let server = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let request = DatabaseServerRequest { names: &names, tls_spki: &spki };
        issue_database_server(world.authority(CaKind::Db), &request, world.now, Duration::days(1))
    };
    for names in [&[][..], &["auth.prod.sallyport.internal"], &["db", "*.prod.sallyport.internal"], &["*"]] {
        let error = server(names).unwrap_err();
        assert!(matches!(error, CaError::BadName { .. }), "{names:?}: {error}");
    }
    assert_eq!(server(&["DB", "db", "::1"]).unwrap().issued.names, ["db", "::1"]);
    for names in [&[][..], &["localhost"], &["*.example.com"], &["node.prod.sallyport.internal"]] {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let request = OpensshHostRequest { names: &names, ssh_public_key: &line() };
        let error = issue_openssh_host(world.authority(CaKind::Host), &request, world.now, Duration::days(1))
            .unwrap_err();
        assert!(matches!(error, CaError::BadName { .. }), "{names:?}: {error}");
    }
    let bob = user("bob", &[]);
    let options = SshOptions::default();
    let openssh = world.authority(CaKind::Openssh);
    let error = issue_openssh_user(openssh, &bob, &line(), world.now, Duration::hours(1), &options, None)
        .unwrap_err();
    assert!(matches!(&error, CaError::NoLogins { user } if user == "bob"), "{error}");
    let other = SpiffeId::new(&ClusterName::new("test").unwrap(), "/web").unwrap();
    let spiffe = world.authority(CaKind::Spiffe);
    let error = issue_svid(spiffe, &other, &spki, world.now, Duration::hours(1)).unwrap_err();
    assert!(matches!(error, CaError::BadName { .. }), "{error}");
    let audience = ["vault".to_owned()];
    for (issuer, subject, claim) in [
        ("https://a", "spiffe://prod/web", "sub"),
        ("https://a", "SPIFFE://prod/web", "sub"),
        ("https://a", "", "sub"),
        ("https://a", "a\nb", "sub"),
        ("http://a", "x", "iss"),
        ("https://a/", "x", "iss"),
    ] {
        let token = TokenSubject { issuer, audience: &audience };
        let oidc = world.authority(CaKind::OidcIdp);
        let error = issue_oidc(oidc, token, subject, world.now, Duration::minutes(5)).unwrap_err();
        assert!(matches!(&error, CaError::BadClaim { name, .. } if name == claim), "{subject:?}: {error}");
    }
}

#[test]
fn a_proxy_speaks_to_one_agent_and_is_no_proxy_elsewhere() {
    let world = World::new(Suite::BalancedV1);
    let (proxy, agent) = (HostId::new(), HostId::new());
    let users = world.authority(CaKind::User);
    let device = Some(Device { id: DeviceId::new(), custody: DeviceCustody::File });
    let alice_there = Identity { device, ..alice() };
    let hour = Duration::hours(1);
    let made = issue_proxied(users, &alice_there, proxy, agent, &spki(), world.now, hour).unwrap();
    let chain = [CertificateDer::from(leaf(&made.pem))];
    let (identity, by) = world.trust.identify_proxied(&chain, agent, world.now).unwrap();
    assert_eq!((identity.principal, identity.device, by), (alice().principal, device, proxy));
    let error = world.trust.identify_proxied(&chain, HostId::new(), world.now).unwrap_err();
    assert!(matches!(error, CaError::OnBehalf { .. }), "{error}");
    for error in [
        world.trust.identify_peer(&chain, world.now).unwrap_err(),
        world.trust.identify_tls(&chain[0], world.now).unwrap_err(),
    ] {
        assert!(matches!(error, CaError::OnBehalf { .. }), "{error}");
    }
    let late = world.now + Duration::hours(2);
    assert!(matches!(world.trust.identify_proxied(&chain, agent, late), Err(CaError::Expired { .. })));
    let other = World::new(Suite::BalancedV1);
    let error = other.trust.identify_proxied(&chain, agent, world.now).unwrap_err();
    assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
    // A user's own certificate speaks for no other client.
    let options = SshOptions::default();
    let own = issue_user_as(
        UserKind::Person,
        users,
        &alice(),
        &line(),
        &spki(),
        world.now,
        Duration::hours(1),
        &options,
    )
    .unwrap();
    let chain = [CertificateDer::from(leaf(&own.tls_pem))];
    assert!(matches!(world.trust.identify_proxied(&chain, agent, world.now), Err(CaError::Malformed { .. })));
}

#[test]
fn only_a_bots_certificate_is_renewable() {
    let world = World::new(Suite::BalancedV1);
    for kind in [UserKind::Person, UserKind::WebSession, UserKind::Bot] {
        let users = world.authority(CaKind::User);
        let options = SshOptions::default();
        let made =
            issue_user_as(kind, users, &alice(), &line(), &spki(), world.now, Duration::hours(1), &options)
                .unwrap();
        let der = leaf(&made.tls_pem);
        assert_eq!(is_renewable(&der).unwrap(), kind == UserKind::Bot);
        assert_eq!(world.trust.identify_tls(&der, world.now).unwrap().principal, alice().principal);
    }
}

#[test]
fn nothing_of_the_third_parties_is_believed_inside() {
    let world = World::new(Suite::BalancedV1);
    for made in world.leaves(KeyAlgorithm::EcdsaP256) {
        let ours = ["user", "web_session", "bot", "host", "proxy", "proxy_to_agent"].contains(&made.name);
        let believed = world.trust.identify_tls(&leaf(&made.pem), world.now);
        let expected = ours && made.name != "proxy_to_agent";
        assert_eq!(believed.is_ok(), expected, "{}: {believed:?}", made.name);
    }
    let stock = ssh_key::Certificate::from_openssh(&world.openssh_host(&["git.example.com"]).line).unwrap();
    assert!(world.trust.verify_host_ssh(&stock, "git.example.com", world.now).is_err());
    let person = ssh_key::Certificate::from_openssh(&world.openssh_user().line).unwrap();
    let error = world.trust.verify_user_ssh(&person, world.now).unwrap_err();
    assert!(matches!(error, CaError::UnknownIssuer { .. }), "{error}");
}

#[test]
fn long_names_leave_room_for_x509() {
    let world = World::named(Suite::BalancedV1, &"c".repeat(63));
    let users = world.authority(CaKind::User);
    let long = user(&"u".repeat(128), &["root"]);
    let options = SshOptions::default();
    let made = issue_user_as(
        UserKind::Person,
        users,
        &long,
        &line(),
        &spki(),
        world.now,
        Duration::hours(1),
        &options,
    )
    .unwrap();
    assert_eq!(lint::check(&leaf(&made.tls_pem)), Vec::<String>::new());
    assert_eq!(world.trust.identify_tls(&leaf(&made.tls_pem), world.now).unwrap().principal, long.principal);
}
