//! Names that a client has announced are its users', before any of them has logged in.

use super::*;

impl Site {
    /// A user of the cluster's own, by a document.
    async fn documented(&self, name: &str) -> Result<(), tonic::Status> {
        let yaml =
            format!("kind: user\nversion: v1\nmetadata: {{name: {name}}}\nspec: {{roles: [access]}}\n");
        let asked = v1::CreateResourceRequest { yaml, ..Default::default() };
        self.authority.services.api.admin.clone().create_resource(local(asked)).await.map(drop)
    }
}

#[tokio::test]
async fn no_person_of_another_connector_and_no_local_user_takes_a_name_that_a_client_has_announced() {
    let site = Site::new().await;
    site.connect("staff", "").await;
    let token = site.token("corp").await;
    for name in ["alice", "Bob"] {
        site.made(&token.token, name).await;
    }
    for called in ["alice", "ALICE", "bob"] {
        site.at_the_provider("9", called, &["ops-eu"]);
        let said = site.said().await;
        assert_eq!(site.comes_by("staff", &said).await.unwrap_err(), "name_taken", "{called}");
        let told = site.would_be_refused("staff", &said).await;
        assert!(told.contains("SCIM client of the connector corp"), "{told}");
        for refused in [site.local_user(called).await, site.documented(called).await] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "{called}");
            assert!(refused.message().contains("connector corp"), "{refused:?}");
        }
        assert!(!site.has(&UserName::new(called.to_lowercase()).unwrap()));
    }
    // Whom the client calls so, once the two are one, comes by the other connector, too; also as one whom an administrator had forgotten.
    let (user, _) = site.enters("1", "alice").await.unwrap();
    let said = site.said().await;
    assert_eq!(site.comes_by("staff", &said).await.unwrap(), user);
    let gone = v1::DeleteResourceRequest { kind: "user".to_owned(), name: "alice".to_owned() };
    site.authority.services.api.admin.clone().delete_resource(local(gone)).await.unwrap();
    assert_eq!(site.comes_by("staff", &said).await.unwrap(), user);
    // A document that makes a user makes none over one who is there.
    site.local_user("carol").await.unwrap();
    assert_eq!(site.documented("carol").await.unwrap_err().code(), Code::AlreadyExists);
    // Nor does the name of one who may not come: whose it becomes keeps it.
    let erin = site.made(&token.token, "erin").await;
    site.activate(&token.token, &erin, false).await;
    site.local_user("erin").await.unwrap();
    let body = json!({ "schemas": [USER], "userName": "erin", "active": true });
    assert_eq!(site.scim(&token.token, "PUT", &format!("/Users/{erin}"), &body).await.0, 409);
    // Without a client no word of one counts.
    let request = v1::RemoveScimTokenRequest { connector: "corp".to_owned(), name: token.name };
    site.provisioning().remove_token(&Caller::LocalAdmin, request).await.unwrap();
    site.local_user("bob").await.unwrap();
}

#[tokio::test]
async fn of_a_client_and_an_administrator_who_take_one_name_at_once_one_is_refused() {
    let site = Site::new().await;
    let token = site.token("corp").await.token;
    for at in 0..20 {
        let name = format!("user{at}");
        let body = json!({ "schemas": [USER], "userName": name });
        let (by_client, own) =
            tokio::join!(site.scim(&token, "POST", "/Users", &body), site.local_user(&name));
        assert_ne!(by_client.0 == 201, own.is_ok(), "{name}: {by_client:?} {own:?}");
    }
}

#[tokio::test]
async fn no_client_announces_a_name_while_an_administrator_takes_it() {
    let site = Site::new().await;
    for by_document in [false, true] {
        let held = site.authority.services.identities.change().await;
        let making = async {
            match by_document {
                false => site.local_user("dave").await,
                true => site.documented("erin").await,
            }
        };
        // It waits for the users by now, and has clients wait for it.
        let kept_out = async {
            while site.provisioning().changing.try_write().is_ok() {
                tokio::task::yield_now().await;
            }
            drop(held);
        };
        let deadline = Duration::from_secs(30);
        let (made, kept_out) = tokio::join!(making, tokio::time::timeout(deadline, kept_out));
        kept_out.expect("a client may announce the name meanwhile");
        made.unwrap();
    }
}
