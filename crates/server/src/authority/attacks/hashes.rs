//! The time between the check of a password and what is written for it, in which another login of the user stores a hash of its own.

use sallyport_store::StoreError;
use tonic::Request;
use zeroize::Zeroizing;

use super::*;
use crate::authority::accounts::opening::Spends;

/// Alice gives her right password after one wrong one; then `meanwhile` is stored as the hash of another. Gives what her login comes to.
async fn stored_meanwhile(services: &Services, meanwhile: &str) -> Result<CredentialRecord, Status> {
    let (alice, now) = (UserName::new("alice").unwrap(), OffsetDateTime::now_utc());
    let given = Zeroizing::new(PASSWORD.to_owned());
    let login = services.api.login.clone();
    login.login_with_password(Request::new(attempt("alice", "a wrong password"))).await.unwrap_err();
    assert_eq!(credential(services).await.unwrap().failures.len(), 1);
    let proven = services.accounts.prove_password(&Caller::LocalAdmin, "alice", given, "", now).await;
    let proven = proven.map_err(|refusal| refusal.status)?;
    let Spends::Password { credential: found, code, password } = proven.spends else {
        panic!("a password is proven by something else");
    };
    let hash = services.accounts.hash(Zeroizing::new(meanwhile.to_owned())).await.unwrap();
    let stored = CredentialRecord { password: Some(hash.clone()), ..credential(services).await.unwrap() };
    services.store.put("alice", &stored, None, now).await.unwrap();
    let steps = services.accounts.spend_password(&alice, &found, (&password, code.as_ref()), now).await;
    let steps = steps.map_err(|refusal| refusal.status)?;
    let written: Result<_, StoreError> = services.store.backend().transact(steps, now).await;
    written.unwrap();
    let after = credential(services).await.unwrap();
    assert_eq!(after.password, Some(hash), "what was stored meanwhile stays");
    Ok(after)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_hashed_anew_after_its_check_stays_right_and_another_one_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let authority = open(directory.path()).await;
    let services = &authority.services;
    let token = create(services, "alice", &["access"]).await;
    services.api.login.clone().finish_invite(Request::new(finish(&token))).await.unwrap();
    let after = stored_meanwhile(services, PASSWORD).await.unwrap();
    assert!(after.failures.is_empty(), "the right password forgives the wrong one");
    let refused = stored_meanwhile(services, "another battery horse staple").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert_eq!(credential(services).await.unwrap().failures.len(), 1, "nothing is forgiven");
    authority.shutdown().await;
}
