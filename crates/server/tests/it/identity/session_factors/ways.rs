//! Every way in to every protocol.

use std::process::Stdio;

use sallyport_access::Kind;
use sallyport_wire::SESSION_FACTOR_HEADER;
use sallyport_wire::v1::proxy_database_request::Frame as DatabaseFrame;
use sallyport_wire::v1::proxy_resource_request::Frame as ResourceFrame;
use sallyport_wire::v1::proxy_ssh_request::Frame as SshFrame;
use sallyport_wire::v1::transport_client::TransportClient;
use tokio::process::Command;

use super::*;

/// What became of a session that was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Became {
    Opened,
    Wanting(String),
}

fn became(status: &Status) -> Option<Became> {
    let header = status.metadata().get(SESSION_FACTOR_HEADER)?;
    assert!(status.message().contains("sallyport mfa pre-auth"), "{status:?}");
    Some(Became::Wanting(header.to_str().unwrap().to_owned()))
}

/// A way in. `agents` are those of the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Ssh,
    Native,
    Jump,
    DatabaseEndToEnd,
    Resource(&'static str),
}

/// The ways in to a kind: a kind that is new has to say its own here.
fn entries(kind: Kind) -> Vec<Entry> {
    match kind {
        Kind::Node => vec![Entry::Ssh, Entry::Native, Entry::Jump],
        Kind::Database => vec![Entry::DatabaseEndToEnd],
        Kind::App => vec![Entry::Resource("app")],
    }
}

async fn first<Frame, Answer>(
    frame: Frame,
    call: impl AsyncFnOnce(
        tokio_stream::wrappers::ReceiverStream<Frame>,
    ) -> Result<tonic::Response<tonic::Streaming<Answer>>, Status>,
) -> Result<(), Status> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    send.send(frame).await.ok().unwrap();
    let mut answers = call(tokio_stream::wrappers::ReceiverStream::new(receive)).await?.into_inner();
    answers.message().await.map(drop)
}

/// Tries a way in; none where what is refused is not a factor's, such as an agent that has not heard of its resources yet.
async fn attempt(user: &User, agent: &str, entry: Entry) -> Option<Became> {
    let channel = user.connect().await.unwrap();
    let agents = vec![agent.to_owned()];
    let outcome = match entry {
        Entry::Ssh => return by_ssh(user).await,
        Entry::Jump => return by_jump(user).await,
        Entry::Native => {
            let target = v1::SshTarget {
                node: "web-1".to_owned(),
                login: os_login(),
                native: true,
                ..Default::default()
            };
            let frame = v1::ProxySshRequest { frame: Some(SshFrame::Target(target)) };
            first(frame, async |asked| TransportClient::new(channel).proxy_ssh(asked).await).await
        }
        Entry::DatabaseEndToEnd => {
            let target = v1::DatabaseTarget {
                database: "shop".to_owned(),
                end_to_end: true,
                db_user: "app".to_owned(),
                db_name: "shop".to_owned(),
                agents,
            };
            let frame = v1::ProxyDatabaseRequest { frame: Some(DatabaseFrame::Target(target)) };
            first(frame, async |asked| TransportClient::new(channel).proxy_database(asked).await).await
        }
        Entry::Resource(kind) => {
            let target = v1::ResourceTarget { kind: kind.to_owned(), name: "wiki".to_owned(), agents };
            let frame = v1::ProxyResourceRequest { frame: Some(ResourceFrame::Target(target)) };
            first(frame, async |asked| TransportClient::new(channel).proxy_resource(asked).await).await
        }
    };
    match outcome {
        Ok(()) => Some(Became::Opened),
        Err(status) => became(&status),
    }
}

/// The whole way: the proxy asks, and the node asks for itself.
async fn by_ssh(user: &User) -> Option<Became> {
    match user.open("web-1", &os_login()).await {
        Ok(_) => {
            let (out, err, _) = user.run("web-1", &os_login(), "echo in").await;
            (out == "in\n").then_some(Became::Opened).or_else(|| panic!("{out}{err}"))
        }
        Err(status) => became(&status),
    }
}

async fn by_jump(user: &User) -> Option<Became> {
    let (directory, login) = (tempfile::tempdir().unwrap(), os_login());
    let key = user.write_keys(directory.path());
    let (key, address) = (key.display(), &user.proxy);
    let known = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    let jump = format!("ssh -F none -i {key} {known} -W %h:%p -p {} alice@{}", address.port, address.host);
    let ran = Command::new("sh")
        .arg("-c")
        .arg(format!("ssh -F none -i {key} {known} -o 'ProxyCommand={jump}' {login}@web-1 echo in"))
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if out == "in\n" {
        return Some(Became::Opened);
    }
    let demand = err.split_once("require_session_mfa: ")?.1;
    Some(Became::Wanting(demand.chars().take_while(char::is_ascii_lowercase).collect()))
}

/// Protocol by protocol, way by way, rule by rule: none opens a session without what the roles demand, and each does with it.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_in_to_every_protocol_asks_for_the_factor_that_roles_demand() {
    let (cluster, alice) = scene("").await;
    let bench = Bench::at(&cluster).await;
    let mut key = bench.first_passkey(&alice).await;
    let agent = agent_of(&cluster).await;
    let mut kinds: Vec<Kind> = sallyport_protocols::ALL.iter().map(|row| row.kind).collect();
    kinds.dedup();
    let all: Vec<Entry> = kinds.into_iter().flat_map(entries).collect();
    for kind in Kind::ALL {
        assert!(entries(*kind).iter().all(|entry| all.contains(entry)), "no protocol has {kind:?}");
    }
    for entry in &all {
        let what = format!("{entry:?} without a demand");
        until(&what, async || {
            attempt(&alice, &agent, *entry).await.filter(|became| *became == Became::Opened)
        })
        .await;
    }
    for demand in ["yes", "hardware"] {
        put(&cluster, role("alice-role", &format!("require_session_mfa: {demand}, session_mfa_ttl: 5m")))
            .await;
        // A login of its own for each: what was proven by the former does not count.
        let again = bench.logged_in(&mut key).await;
        let refused = Became::Wanting(demand.to_owned());
        for entry in &all {
            let what = format!("{entry:?} refused for want of {demand}");
            until(&what, async || attempt(&again, &agent, *entry).await.filter(|became| *became == refused))
                .await;
        }
        let targets =
            [to("node", "web-1", "", ""), to("db", "shop", "app", "shop"), to("app", "wiki", "", "")];
        bench.proves(&again, &mut key, wanted(&targets)).await;
        for entry in &all {
            assert_eq!(
                attempt(&again, &agent, *entry).await,
                Some(Became::Opened),
                "{entry:?} with {demand}"
            );
        }
        for entry in &all {
            assert_eq!(
                attempt(&alice, &agent, *entry).await,
                Some(refused_as(demand)),
                "{entry:?} of another login"
            );
        }
    }
    let started = bench.events("SP2000I", "alice").await;
    assert!(started.iter().any(|event| event["fields"]["session_factor"] == "laptop"), "{started:?}");
}

fn refused_as(demand: &str) -> Became {
    Became::Wanting(demand.to_owned())
}
