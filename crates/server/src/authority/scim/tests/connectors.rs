//! People of one provider who come by several of its connectors, and names that others have taken meanwhile: who has left is cut off all
//! the same.

use super::*;

#[tokio::test]
async fn who_came_by_another_connector_since_is_said_to_have_left_by_this_one() {
    let site = Site::new().await;
    site.connect("staff", "").await;
    let token = site.token("corp").await.token;
    let alice = site.made(&token, "alice").await;
    let (user, login) = site.enters("1", "alice").await.unwrap();
    let said = site.said().await;
    assert_eq!(site.comes_by("staff", &said).await.unwrap(), user);
    let other = site.opened(&user).await;
    assert!(site.is_locked(login) && !site.is_locked(other));
    let path = format!("/Users/{alice}");
    // The other connector's user is left alone, and the person is none of this one's any more.
    site.activate(&token, &alice, false).await;
    assert!(site.has(&user) && !site.is_locked(other));
    assert_eq!(site.scim(&token, "GET", &path, &Value::Null).await.1["active"], false);
    assert_eq!(site.comes_by("corp", &said).await.unwrap_err(), "not_provisioned");
    assert!(site.has(&user) && !site.is_locked(other));
    // Renamed, and back: the name is that of the person whom the user is.
    site.activate(&token, &alice, true).await;
    for name in ["alice.married", "Alice"] {
        let body = json!({ "schemas": [USER], "userName": name, "active": true });
        let (status, said) = site.scim(&token, "PUT", &path, &body).await;
        assert_eq!(status, 200, "{said}");
    }
    assert_eq!(site.comes_by("corp", &said).await.unwrap(), user);
    let mine = site.opened(&user).await;
    assert!(site.is_locked(other));
    site.activate(&token, &alice, false).await;
    assert!(site.is_locked(mine) && !site.has(&user));
}

#[tokio::test]
async fn a_name_that_is_taken_keeps_no_client_from_saying_that_its_user_has_left() {
    let site = Site::new().await;
    site.connect("other", "").await;
    let (token, other) = (site.token("corp").await.token, site.token("other").await.token);
    site.local_user("own").await.unwrap();
    site.made(&other, "held").await;
    site.made(&token, "dave").await;
    let put = async |id: &str, name: &str, active: bool| {
        let body = json!({ "schemas": [USER], "userName": name, "active": active });
        site.scim(&token, "PUT", &format!("/Users/{id}"), &body).await
    };
    // How each is called, another's name, and how the client's user is called after that.
    for (subject, called, taken, stays) in
        [("1", "alice", "own", "alice"), ("2", "bob", "HELD", "bob"), ("3", "carol", "dave", "carol")]
    {
        let id = site.made(&token, called).await;
        let (user, login) = site.enters(subject, called).await.unwrap();
        assert_eq!(put(&id, taken, true).await.0, 409, "{taken}");
        assert!(site.has(&user) && !site.is_locked(login));
        let (status, said) = put(&id, taken, false).await;
        assert_eq!(
            (status, &said["userName"], &said["active"]),
            (200, &json!(stays), &json!(false)),
            "{said}"
        );
        assert!(site.is_locked(login) && !site.has(&user), "{taken}");
        assert_eq!(site.enters(subject, called).await.unwrap_err(), "not_provisioned", "{taken}");
        // Those whose name it is are who they were.
        assert!(site.has(&UserName::new("own").unwrap()));
        let held = site.scim(&other, "GET", "/Users?filter=userName%20eq%20%22held%22", &Value::Null).await;
        assert_eq!(held.1["totalResults"], 1);
    }
}
