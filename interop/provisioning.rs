//! Tokens of SCIM clients: made, rotated and ended by the command, and used over HTTPS by curl, at the address that the command prints.

use std::process::Command;

use serde_json::{Value, json as value};

use crate::passkeys::Page;
use crate::support::{Cluster, json, me, ok, refused, stdout};

/// A SCIM client that holds a token.
struct Client<'c> {
    page: &'c Page,
    url: String,
    name: String,
    token: String,
}

impl<'c> Client<'c> {
    /// Of a connector, with a token that is made for it.
    fn of(cluster: &Cluster, page: &'c Page, connector: &str) -> Self {
        let made =
            json(&ok(cluster.admin(&["scim", "token", "add", connector, "--ttl", "1h", "--format", "json"])));
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        // Of the proxy's addresses the certificate is for the other.
        Self {
            page,
            url: text("url").replacen("127.0.0.1", "localhost", 1),
            name: text("name"),
            token: text("token"),
        }
    }

    /// The status, and what comes with it.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--max-time",
            "20",
            "--noproxy",
            "*",
            "-w",
            "\n%{http_code}",
            "-X",
            method,
            "--cacert",
        ]);
        curl.arg(self.page.path("ca.pem")).args(["-H", &format!("Authorization: Bearer {}", self.token)]);
        curl.args(["-H", "Content-Type: application/scim+json"]);
        if let Some(body) = body {
            curl.args(["--data-binary", &body.to_string()]);
        }
        let said = stdout(&ok(curl.arg(format!("{}{path}", self.url)).output().unwrap()));
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    /// How many users it sees, or the refusal.
    fn users(&self) -> Result<u64, u16> {
        match self.ask("GET", "/Users", None) {
            (200, said) => Ok(said["totalResults"].as_u64().unwrap()),
            (status, _) => Err(status),
        }
    }
}

#[test]
fn a_token_provisions_the_people_of_its_connector_until_it_is_rotated_away() {
    let page = Page::new();
    let cluster = page.cluster();
    for name in ["corp", "other"] {
        ok(cluster.create(&format!(
            "kind: oidc\nversion: v1\nmetadata: {{name: {name}}}\nspec:\n  issuer: https://{name}.example\n  client_id: sallyport\n  \
             private_key_jwt: {{algorithm: ES256}}\n  mapping: {{roles: [{{claim: sub, roles: [access]}}]}}\n"
        )));
    }
    let alice = cluster.add_user("alice", "access", &me());
    let said = refused(&alice.run(&["admin", "scim", "token", "add", "corp"]), 4);
    assert!(said.contains("alice may not"), "{said}");
    let said = cluster.admin(&["scim", "token", "add", "nowhere"]);
    assert!(!said.status.success(), "a connector that is not there: {said:?}");

    let first = Client::of(&cluster, &page, "corp");
    let carol = value!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "carol" });
    let (status, made) = first.ask("POST", "/Users", Some(&carol));
    assert_eq!((status, &made["active"]), (201, &value!(true)), "{made}");
    let path = format!("/Users/{}", made["id"].as_str().unwrap());
    assert_eq!(first.users(), Ok(1));

    // It is the token of one connector: what another's client has made is not there for it, whatever it does.
    let other = Client::of(&cluster, &page, "other");
    assert_eq!(other.users(), Ok(0));
    let inactive = value!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [{ "op": "replace", "path": "active", "value": false }],
    });
    for (method, body) in [("GET", None), ("PUT", Some(&carol)), ("PATCH", Some(&inactive)), ("DELETE", None)]
    {
        assert_eq!(other.ask(method, &path, body).0, 404, "{method}");
    }
    assert_eq!(first.ask("GET", &path, None).1["active"], true);
    // Nor has it the name of one connector and the secret of another.
    let (_, secret) = other.token.split_once(':').unwrap();
    let mixed =
        Client { page: &page, url: first.url.clone(), name: String::new(), token: format!("corp:{secret}") };
    assert_eq!(mixed.users(), Err(401));

    // Rotated: the second is there before the first goes, and what was provisioned stays.
    let second = Client::of(&cluster, &page, "corp");
    assert_eq!((first.users(), second.users()), (Ok(1), Ok(1)));
    let listed = stdout(&ok(cluster.admin(&["scim", "token", "ls"])));
    for client in [&first, &second, &other] {
        assert!(listed.contains(&client.name), "{listed}");
        let (_, secret) = client.token.split_once(':').unwrap();
        assert!(!listed.contains(secret), "{listed}");
    }
    let ended = ok(cluster.admin(&["scim", "token", "rm", "corp", &first.name]));
    assert_eq!(stdout(&ended), format!("Ended token {} of the connector corp.\n", first.name));
    assert_eq!((first.users(), second.users(), other.users()), (Err(401), Ok(1), Ok(0)));
    assert_eq!(second.ask("DELETE", &path, None).0, 204);
}
