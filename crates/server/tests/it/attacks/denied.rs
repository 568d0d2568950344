//! One certificate that is denied by its serial number, and a session of its holder that does not care.

use std::time::{Duration, Instant};

use sallyport_ssh::client::{Output, SessionRequest};
use sallyport_wire::v1;
use sallyport_wire::v1::certificates_client::CertificatesClient;
use sallyport_wire::v1::sessions_client::SessionsClient;
use tonic::Code;

use crate::support::{Cluster, admin_channel, os_login, until};

/// The serial number of a user's certificate in this form.
async fn serial(cluster: &Cluster, user: &str, form: &str) -> String {
    let mut certificates = CertificatesClient::new(admin_channel(&cluster.data_dir()).await);
    let asked = v1::ListCertificatesRequest { subject: user.to_owned(), ..Default::default() };
    let listed = certificates.list_certificates(asked).await.unwrap().into_inner().certificates;
    listed.into_iter().find(|one| one.form == form).map(|one| one.serial).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_serial_ends_the_session_of_a_client_that_reads_nothing() {
    let cluster = Cluster::all_in_one().await;
    let login = os_login();
    let channel = admin_channel(&cluster.data_dir()).await;
    let live = async |user: &str| {
        let asked = v1::ListSessionsRequest { user: user.to_owned(), ..Default::default() };
        SessionsClient::new(channel.clone()).list_sessions(asked).await.unwrap().into_inner().sessions.len()
    };
    for (name, form) in [("alice", "ssh"), ("bob", "x509")] {
        let user = cluster.user(name, &[&login]).await;
        let connection = user.ssh("web-1", &login).await;
        let mut session = connection.start(SessionRequest::exec("yes")).await.unwrap();
        // It has begun, and from now on nothing of it is read.
        while !matches!(session.next().await.unwrap(), Output::Stdout(_)) {}
        until("the session", async || (live(name).await == 1).then_some(())).await;
        let deny = v1::DenyCertificateRequest {
            id: serial(&cluster, name, form).await,
            reason: "stolen".to_owned(),
        };
        CertificatesClient::new(channel.clone()).deny_certificate(deny).await.unwrap();
        let began = Instant::now();
        until("the end of the session", async || (live(name).await == 0).then_some(())).await;
        println!("{form}: the session was over {} ms after the denial", began.elapsed().as_millis());
        assert!(began.elapsed() < Duration::from_secs(5), "{form}: {:?}", began.elapsed());
        assert_eq!(user.open("web-1", &login).await.err().unwrap().code(), Code::PermissionDenied);
        drop((session, connection));
    }
}
