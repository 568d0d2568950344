//! scim2-tester and scim2-cli, at a proxy's public address: HTTPS by the cluster's certificates, a token that the authority has made, and its
//! store.

use std::path::{Path, PathBuf};

use sallyport_wire::v1;
use sallyport_wire::v1::provisioning_client::ProvisioningClient;
use tokio::process::Command;

use super::{CONNECTOR, HOST, cluster};
use crate::support::{Cluster, admin_channel, events};

/// Where they are installed, as a virtual environment of Python.
const ENVIRONMENT: &str = "SALLYPORT_SCIM_TESTER";

/// Of every Python that runs: the proxy's name leads to this machine, and the cluster's certificates are believed.
const REACHES: &str = r#"
import os, socket, ssl, sys
port = int(os.environ["PROXY_PORT"])
connect = socket.create_connection
socket.create_connection = lambda address, *rest, **more: connect(("127.0.0.1", port), *rest, **more)
trust = ssl.create_default_context(cafile=os.environ["PROXY_TRUST"])
url = sys.argv[1]
"#;

/// Prints a line for each check, and how many had which result.
const CHECKS: &str = r#"
import collections
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

client = Client(base_url=url, headers={"Authorization": f"Bearer {sys.argv[2]}"}, verify=trust, trust_env=False, timeout=60)
results = check_server(SyncSCIMClient(client))
for result in results:
    print(result.status.name, result.title, result.resource_type or "-", (result.reason or "").replace("\n", " "))
print(dict(collections.Counter(result.status.name for result in results)))
good = {Status.SUCCESS, Status.COMPLIANT, Status.ACCEPTABLE}
sys.exit(any(result.status not in good for result in results))
"#;

fn python() -> PathBuf {
    let environment = std::env::var_os(ENVIRONMENT).map(PathBuf::from).unwrap_or_default();
    let python = environment.join("bin/python3");
    assert!(
        python.is_file(),
        "scim2-tester is not there: `cargo xtask setup --measure` installs it for `cargo xtask test --measure`; {ENVIRONMENT} names a virtual \
         environment of Python that has it already (interop/providers/scim2.txt)"
    );
    python
}

/// A token of the connector's, and the address that goes with it.
async fn token(cluster: &Cluster, connector: &str) -> (String, String) {
    let yaml = CONNECTOR.replace("name: corp", &format!("name: {connector}"));
    let create = v1::CreateResourceRequest { yaml, replace: false };
    cluster.admin().await.create_resource(create).await.unwrap();
    let add = v1::AddScimTokenRequest { connector: connector.to_owned(), ttl: None };
    let mut provisioning = ProvisioningClient::new(admin_channel(&cluster.data_dir()).await);
    let made = provisioning.add_scim_token(add).await.unwrap().into_inner();
    (made.url, made.token)
}

/// Runs a script to its end, and gives what it wrote.
async fn run(cluster: &Cluster, trust: &Path, script: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(python())
        .arg("-c")
        .arg(format!("{REACHES}{script}"))
        .args(arguments)
        .env("PROXY_PORT", cluster.proxy().port.to_string())
        .env("PROXY_TRUST", trust)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_of_the_tester_passes_at_a_proxy() {
    let (cluster, directory) = cluster().await;
    let trust = directory.path().join("ca.pem");
    let (url, good) = token(&cluster, "corp").await;
    assert_eq!(url, format!("https://{HOST}/scim/v2"));
    let (passed, text) = run(&cluster, &trust, CHECKS, &[&url, &good]).await;
    println!("{text}");
    assert!(passed && text.contains("SUCCESS search_with_attributes Group"), "{text}");
    // It was the authority's own store that it changed, and that has none of it any more.
    let changed = events(&mut cluster.admin().await, "SP1062I").await;
    assert!(changed.len() > 50, "{} changes are on record", changed.len());
    // With what is no token, and at a name that the certificate is not for, it gets no further than that.
    let (passed, text) = run(&cluster, &trust, CHECKS, &[&url, "corp:guessed-it"]).await;
    assert!(!passed && !text.contains("SUCCESS object_creation"), "{text}");
    assert!(!events(&mut cluster.admin().await, "SP1064W").await.is_empty());
    let another = url.replace(HOST, "another.example.net");
    let (passed, text) = run(&cluster, &trust, CHECKS, &[&another, &good]).await;
    assert!(!passed && !text.contains("SUCCESS object_creation"), "{text}");
}
