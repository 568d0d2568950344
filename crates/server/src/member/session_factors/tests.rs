//! What a host takes a certificate of a minute for, without a word of the authority's.

use std::net::IpAddr;

use sallyport_access::{
    ClusterName, FactorRule, HostId, Login, Principal, SessionProof, SessionTarget, UserName,
};
use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_ca::{Authority, CaKind, SshOptions, UserPair, issue_user};
use sallyport_sal::Suite;
use sallyport_sal::custody::{SealedCustody, SealingKey};
use sallyport_sal::hpke::RecipientPublic;
use sallyport_sal::tls::rustls::pki_types::CertificateDer;
use sallyport_sal::tls::rustls::pki_types::pem::PemObject;
use time::Duration;
use uuid::Uuid;

use super::*;

/// Where alice proved it.
const HERE: &str = "192.0.2.7";
/// By so much clocks may differ: a certificate counts for as long after its end.
const SKEW: Duration = sallyport_ca::SKEW_ALLOWANCE;

/// A cluster, and the two certificates of each of its users' logins.
struct World {
    users: Authority,
    trust: Trust,
    now: OffsetDateTime,
}

/// SSH and X.509.
type Pair = [Shown; 2];

fn shown_of(certificates: &sallyport_ca::UserCertificates) -> Pair {
    let tls = CertificateDer::from_pem_slice(certificates.tls_pem.as_bytes()).unwrap();
    [Shown::Ssh(certificates.ssh.clone()), Shown::Tls(tls.to_vec().into())]
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sealing = SealingKey::create(&directory.path().join("seal")).unwrap();
        let custody = SealedCustody::new(Arc::new(sealing));
        // Whole seconds, as certificates count.
        let now = OffsetDateTime::from_unix_timestamp(OffsetDateTime::now_utc().unix_timestamp()).unwrap();
        let cluster = ClusterName::new("test.example").unwrap();
        let make = |kind| Authority::generate(kind, &cluster, &custody, Suite::BalancedV1, now).unwrap();
        let (users, hosts) = (make(CaKind::User), make(CaKind::Host));
        let recording = RecipientPublic::from_bytes(&[7; 32]).unwrap();
        let trust = Trust::from_authorities(&[&users, &hosts], Some(recording)).unwrap();
        Self { users, trust, now }
    }

    fn login(&self, user: &str) -> UserPair {
        let principal = Principal::User {
            name: UserName::new(user).unwrap(),
            roles: Vec::new(),
            logins: vec![Login::new("root").unwrap()],
            traits: Default::default(),
        };
        let identity = Identity {
            principal,
            login_id: Uuid::new_v4(),
            device: None,
            pinned_to: None,
            valid_after: self.now,
            valid_before: self.now,
        };
        let ssh = SshKeyPair::generate(Suite::BalancedV1, user).unwrap();
        let tls = TlsKey::generate(Suite::BalancedV1).unwrap();
        let (line, spki, options) = (ssh.public_line(), tls.spki_der(), SshOptions::default());
        let hour = Duration::hours(1);
        let made = issue_user(&self.users, &identity, line, spki, self.now, hour, &options).unwrap();
        UserPair::verify(&self.trust, &made.ssh, &made.tls_pem, self.now).unwrap()
    }

    /// The certificates of a minute of a login, for one session.
    fn certified(&self, login: &UserPair, target: &SessionTarget) -> Pair {
        let proof = SessionProof {
            factor: SessionFactor::Yes,
            targets: vec![target.clone()],
            address: HERE.parse().unwrap(),
            name: "laptop".to_owned(),
        };
        shown_of(&login.for_sessions(&self.users, self.now, &proof).unwrap())
    }

    /// Whether it lets a session begin, by either protocol.
    fn serves(&self, pair: &Pair, target: &SessionTarget, client: Option<&str>, now: OffsetDateTime) -> bool {
        let [by_ssh, by_tls] = pair.each_ref().map(|certificate| {
            let wanted = Wanted {
                demand: demand(SessionFactor::Yes, target),
                certificate: certificate.clone(),
                client: client.map(|client| (client.parse::<IpAddr>().unwrap(), 22).into()),
            };
            certified(&self.trust, &wanted, now)
        });
        assert_eq!(by_ssh, by_tls, "SSH and TLS say the same");
        assert!(by_ssh.as_ref().is_none_or(|proven| proven.factor == "laptop"));
        by_ssh.is_some()
    }
}

fn demand(factor: SessionFactor, target: &SessionTarget) -> FactorDemand {
    FactorDemand { rule: FactorRule { factor, ..FactorRule::default() }, target: target.clone() }
}

#[test]
fn a_certificate_of_a_minute_serves_its_own_session_place_and_minute() {
    let world = World::new();
    let (web, root) = (HostId::new(), Login::new("root").unwrap());
    let target = SessionTarget::node(web, &root);
    let (alice, now) = (world.login("alice"), world.now);
    let minute = world.certified(&alice, &target);
    assert!(world.serves(&minute, &target, Some(HERE), now));
    assert!(world.serves(&minute, &target, Some("::ffff:192.0.2.7"), now), "one address in other words");

    for (what, other) in [
        ("another node", SessionTarget::node(HostId::new(), &root)),
        ("another login", SessionTarget::node(web, &Login::new("deploy").unwrap())),
        ("any login", SessionTarget::any(Kind::Node, web.to_string())),
        ("joining a session", SessionTarget::join(web)),
        ("another kind", SessionTarget { kind: Kind::App, ..target.clone() }),
    ] {
        assert!(!world.serves(&minute, &other, Some(HERE), now), "{what}");
    }
    for (what, client) in [("elsewhere", Some("192.0.2.8")), ("no address is known", None)] {
        assert!(!world.serves(&minute, &target, client, now), "{what}");
    }

    // To its end, and by as much more as clocks may differ.
    let end = now + Duration::minutes(1) + SKEW;
    let second = Duration::SECOND;
    assert!(world.serves(&minute, &target, Some(HERE), end - second));
    for at in [end + second, end + Duration::minutes(10), now - SKEW * 3] {
        assert!(!world.serves(&minute, &target, Some(HERE), at), "{at}");
    }
    let before = shown_of(&alice.reissue(&world.users, now).unwrap());
    assert!(!world.serves(&before, &target, Some(HERE), now), "that of the login says nothing");
}

#[test]
fn a_certificate_of_a_minute_is_no_proof_of_another_user_login_cluster_or_factor() {
    let world = World::new();
    let target = SessionTarget::node(HostId::new(), &Login::new("root").unwrap());
    let minute = world.certified(&world.login("alice"), &target);
    // Each shows their own certificate: what alice has proven is in hers alone.
    for (what, login) in [("another user", world.login("bob")), ("another login", world.login("alice"))] {
        let own = shown_of(&login.reissue(&world.users, world.now).unwrap());
        assert!(!world.serves(&own, &target, Some(HERE), world.now), "{what}");
    }
    let other = World { now: world.now, ..World::new() };
    assert!(
        !other.serves(&minute, &target, Some(HERE), world.now),
        "an authority that this host does not know"
    );
    for certificate in minute {
        let client = Some((HERE.parse::<IpAddr>().unwrap(), 22).into());
        let wanted = Wanted { demand: demand(SessionFactor::Hardware, &target), certificate, client };
        assert_eq!(
            certified(&world.trust, &wanted, world.now),
            None,
            "it is worth less than what is demanded"
        );
    }
}
