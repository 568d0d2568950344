//! Logins that the user's own agent signs, on an sshd that trusts the user CA alone.

use std::sync::Arc;

use parking_lot::Mutex;
use sallyport_access::HostRole;
use sallyport_ca::Trust;
use sallyport_ca::keys::{SshKeyPair, ssh_signature};
use sallyport_ssh::agent::{LoginSigner, UserAgent};
use sallyport_ssh::client::Credentials;
use sallyport_ssh::node::LoginBy;
use ssh_key::Certificate;

use crate::openssh::recorded::{Agent, World, ok, text};
use crate::openssh::rig::{Cluster, NODE, Pair, SshdOptions, account};

/// An agent as the user's side of a stream is one; what it refuses is told.
pub(crate) fn signing(pair: &Pair, trust: &Arc<Trust>, login: &str, refused: &Arc<Mutex<String>>) -> LoginBy {
    let mut signer = LoginSigner::new(pair.credentials(), trust.clone(), NODE, login);
    let (agent, mut questions) = UserAgent::new();
    let refused = refused.clone();
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            // The authority knows the server.
            if let Some(server) = signer.server_asked(&question.message) {
                signer.vouch(server);
            }
            match signer.answer(&question.message).await {
                Ok(answer) => drop(question.answer.send(answer.into())),
                Err(error) => return *refused.lock() = error.to_string(),
            }
        }
    });
    LoginBy::Agent(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_key_signs_the_login_and_is_not_there_to_be_used() {
    let (refused, signed) = (Arc::<Mutex<String>>::default(), Arc::default());
    let told = Arc::clone(&signed);
    let world = World::with("forward_agent: false", &SshdOptions::default(), |behind| {
        let (pair, trust, refused) = (behind.pair.clone(), behind.proof.trust.clone(), refused.clone());
        behind.by = Box::new(move || signing(&pair, &trust, &account(), &refused));
        behind.signed = told;
    })
    .await;
    let output = ok(world.ssh(&[NODE, "echo out [$SSH_AUTH_SOCK]"]).await);
    assert_eq!(text(&output.stdout), "out []\n");
    let output = ok(world.ssh(&["-tt", NODE, "tty"]).await);
    assert!(text(&output.stdout).contains("/dev/pts/"));
    assert_eq!(*signed.lock(), [("alice".to_owned(), false), ("alice".to_owned(), false)]);
    world.event("session.exec", |event| event.user == "alice").await;
    assert_eq!(*refused.lock(), "");

    // The user asked for another login than the proxy does.
    let words = refused.clone();
    let world = World::with("", &SshdOptions::default(), |behind| {
        let (pair, trust) = (behind.pair.clone(), behind.proof.trust.clone());
        behind.by = Box::new(move || signing(&pair, &trust, "somebody", &words));
    })
    .await;
    let output = world.ssh(&[NODE, "true"]).await;
    assert!(text(&output.stderr).contains("your agent did not sign the login"), "{}", text(&output.stderr));
    let said = refused.lock().clone();
    assert!(said.contains("more than the login somebody on web-1") && said.contains(&account()), "{said}");
    world.event("session.refused", |event| event.message.contains("did not sign")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ssh_forwards_signs_and_goes_no_further() {
    let signed = Arc::default();
    let told = Arc::clone(&signed);
    let world = World::with("forward_agent: false", &SshdOptions::default(), |behind| {
        behind.by = Box::new(|| LoginBy::ForwardedAgent);
        behind.signed = told;
    })
    .await;
    let said = world.ssh(&[NODE, "true"]).await;
    assert_eq!(said.status.code(), Some(255));
    for part in ["brings no agent", "ssh -A", "sallyport ssh", "sallyport config"] {
        assert!(text(&said.stderr).contains(part), "{part}: {}", text(&said.stderr));
    }
    world.event("session.refused", |event| event.message.contains("brings no agent")).await;
    let refused = world.ssh(&["-W", "127.0.0.1:1", NODE]).await;
    assert!(text(&refused.stderr).contains("brings no agent"), "{}", text(&refused.stderr));

    let agent = Agent::start(&world, "agent");
    let with_agent = |words: &[&str]| {
        let mut command = world.program("ssh");
        command.args(words).env("SSH_AUTH_SOCK", &agent.socket);
        command
    };
    let said = world.run(with_agent(&["-A", NODE, "true"])).await;
    assert!(text(&said.stderr).contains("does not hold the certificate"), "{}", text(&said.stderr));
    agent.add(&world.path("id"));
    let output = ok(world.run(with_agent(&["-A", NODE, "echo in [$SSH_AUTH_SOCK]"])).await);
    assert_eq!(text(&output.stdout), "in []\n", "the role does not forward it");
    assert_eq!(*signed.lock(), [("alice".to_owned(), true)]);
    assert!(!world.sink.events().iter().any(|event| event.kind == "session.agent_forward"));

    // Where a role forwards it, the session has it, too.
    let world = World::with("forward_agent: true", &SshdOptions::default(), |behind| {
        behind.by = Box::new(|| LoginBy::ForwardedAgent);
    })
    .await;
    let agent = Agent::start(&world, "agent");
    agent.add(&world.path("id"));
    let mut command = world.program("ssh");
    command.args(["-A", NODE, "ssh-add -l"]).env("SSH_AUTH_SOCK", &agent.socket);
    let output = ok(world.run(command).await);
    assert!(text(&output.stdout).contains("SHA256:"), "{}", text(&output.stdout));
    world.event("session.agent_forward", |_| true).await;
}

fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// One that knows what it may be asked, and a host that signs sessions.
struct Asked {
    cluster: Cluster,
    user: Pair,
}

impl Asked {
    fn signer(&self) -> LoginSigner {
        LoginSigner::new(self.user.credentials(), self.cluster.trust.clone(), NODE, "root")
    }

    fn own(&self) -> Vec<u8> {
        Certificate::from_openssh(self.user.certificate.trim()).unwrap().to_bytes().unwrap()
    }

    fn login(&self, session: &[u8], login: &str, service: &str, key: &[u8], scheme: &str) -> Vec<u8> {
        let fields = [login, service, "publickey"].map(|field| string(field.as_bytes()));
        let head = [string(session), vec![50], fields.concat(), vec![1]].concat();
        let data = [head, string(scheme.as_bytes()), string(key)].concat();
        [vec![13], string(&self.own()), string(&data), vec![0; 4]].concat()
    }

    fn right(&self, session: &[u8]) -> Vec<u8> {
        self.login(session, "root", "ssh-connection", &self.own(), "ssh-ed25519-cert-v01@openssh.com")
    }
}

/// A server's key exchange, as the agent is told of it.
fn bind(host: &Pair, shown: &[u8], session: &[u8], forwarding: u8) -> Vec<u8> {
    let key = SshKeyPair::from_openssh(&host.private).unwrap();
    let signature = ssh_signature(&*key.signer(), b"session").unwrap();
    let fields = [&b"session-bind@openssh.com"[..], shown, session, &signature].map(string);
    [vec![27], fields.concat(), vec![forwarding]].concat()
}

fn blob(host: &Pair) -> Vec<u8> {
    Certificate::from_openssh(host.certificate.trim()).unwrap().to_bytes().unwrap()
}

#[tokio::test]
async fn nothing_but_the_one_login_is_signed() {
    let cluster = Cluster::new();
    let user = cluster.user();
    let asked = Asked { cluster, user };
    let host = asked.cluster.host(NODE, HostRole::OpenSsh);
    let bound = async || {
        let mut signer = asked.signer();
        let server = signer.server_asked(&bind(&host, &blob(&host), b"session", 0)).unwrap();
        signer.vouch(server);
        signer.answer(&bind(&host, &blob(&host), b"session", 0)).await.unwrap();
        signer
    };

    // What an honest proxy asks.
    let mut signer = bound().await;
    assert_eq!(signer.answer(&[11]).await.unwrap()[..5], [12, 0, 0, 0, 1]);
    for _ in 0..2 {
        assert_eq!(signer.answer(&asked.right(b"session")).await.unwrap()[0], 14);
    }
    let error = signer.answer(&asked.right(b"session")).await.unwrap_err().to_string();
    assert!(error.contains("more than 2 signatures") && error.contains("nothing was signed"), "{error}");

    // And others.
    let own = asked.own();
    let scheme = "ssh-ed25519-cert-v01@openssh.com";
    let other = asked.cluster.user();
    let refused = [
        ("another login", asked.login(b"session", "deploy", "ssh-connection", &own, scheme)),
        ("another service", asked.login(b"session", "root", "ssh-userauth", &own, scheme)),
        ("another session", asked.right(b"another")),
        ("another scheme", asked.login(b"session", "root", "ssh-connection", &own, "ssh-ed25519")),
        ("another key in it", asked.login(b"session", "root", "ssh-connection", &blob(&other), scheme)),
        ("another key", [vec![13], string(&blob(&other)), string(b"x"), vec![0; 4]].concat()),
        ("no login", [vec![13], string(&own), string(b"SSHSIG and more"), vec![0; 4]].concat()),
        ("more behind it", [asked.right(b"session"), vec![0]].concat()),
        ("a key to be added", vec![17]),
        ("all keys to be removed", vec![19]),
        ("a lock", [vec![22], string(b"x")].concat()),
        ("an extension", [vec![27], string(b"query")].concat()),
        ("nothing", Vec::new()),
    ];
    for (what, message) in refused {
        let error = bound().await.answer(&message).await.unwrap_err().to_string();
        assert!(error.contains("the login root on web-1"), "{what}: {error}");
    }
    let error = asked.signer().answer(&asked.right(b"session")).await.unwrap_err().to_string();
    assert!(error.contains("a server that was not named"), "{error}");

    // Servers that are not the one.
    let elsewhere = asked.cluster.host("web-2", HostRole::OpenSsh);
    let proxy = asked.cluster.host(NODE, HostRole::Proxy);
    let node = asked.cluster.host(NODE, HostRole::Node);
    let stranger = Cluster::new().host(NODE, HostRole::OpenSsh);
    let plain = SshKeyPair::from_openssh(&host.private).unwrap();
    let plain = ssh_key::PublicKey::from_openssh(plain.public_line()).unwrap().to_bytes().unwrap();
    for (what, message) in [
        ("another server", bind(&elsewhere, &blob(&elsewhere), b"session", 0)),
        ("a session of its own on the node", bind(&node, &blob(&node), b"session", 0)),
        ("the authority does not name", bind(&host, &blob(&host), b"session", 0)),
        ("the proxy itself", bind(&proxy, &blob(&proxy), b"session", 0)),
        ("another server", bind(&stranger, &blob(&stranger), b"session", 0)),
        ("a plain host key", bind(&host, &plain, b"session", 0)),
        ("has not signed", bind(&elsewhere, &blob(&host), b"session", 0)),
        ("has not signed", bind(&host, &blob(&host), b"another", 0)),
        ("to be forwarded", bind(&host, &blob(&host), b"session", 1)),
    ] {
        let mut signer = asked.signer();
        if let Some(server) = signer.server_asked(&message) {
            assert_eq!(what, "the authority does not name", "{server}");
        }
        let error = signer.answer(&message).await.unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
        // And nothing is signed after that.
        signer.answer(&asked.right(b"session")).await.unwrap_err();
    }
    // The authority's word on another server is none on this one.
    let mut signer = asked.signer();
    signer.vouch(sallyport_access::HostId::new());
    let error = signer.answer(&bind(&host, &blob(&host), b"session", 0)).await.unwrap_err().to_string();
    assert!(error.contains("the authority does not name"), "{error}");
}

#[tokio::test]
async fn a_key_that_does_not_sign_is_no_fault_of_the_proxy() {
    let cluster = Cluster::new();
    let user = cluster.user();
    let asked = Asked { cluster, user };
    let host = asked.cluster.host(NODE, HostRole::OpenSsh);
    // It holds the key, and its user declines.
    let (agent, mut questions) = UserAgent::new();
    let held = [vec![12, 0, 0, 0, 1], string(&asked.own()), string(b"")].concat();
    tokio::spawn(async move {
        while let Some(question) = questions.recv().await {
            let answer = if question.message[..] == [11] { held.clone() } else { vec![5] };
            question.answer.send(answer.into()).unwrap();
        }
    });
    let credentials = Credentials::by_agent(agent, &asked.user.certificate).await.unwrap();
    let mut signer = LoginSigner::new(credentials, asked.cluster.trust.clone(), NODE, "root");
    let bind = bind(&host, &blob(&host), b"session", 0);
    signer.vouch(signer.server_asked(&bind).unwrap());
    signer.answer(&bind).await.unwrap();
    let error = signer.answer(&asked.right(b"session")).await.unwrap_err().to_string();
    assert!(error.starts_with("your key did not sign the login root on web-1: "), "{error}");
}
