//! Whether users have passwords here, and which ones they may set.

use sallyport_access::UserName;
use tonic::Status;
use zeroize::Zeroizing;

use crate::authority::accounts::login::Accounts;
use crate::authority::records::CredentialRecord;

/// The answer to each use of a password where there are none.
const OFF: &str = "this cluster has no passwords (auth.authentication.passwords.enabled is false); log in with a passkey or by single \
                   sign-on (sallyport login --browser), and open an invite or reset link in a browser";

impl Accounts {
    /// Whether this cluster has passwords.
    pub(crate) fn has_passwords(&self) -> bool {
        self.config.authentication.passwords.enabled
    }

    /// Whether a user can prove a password.
    pub(crate) fn can_prove_password(&self, credential: &CredentialRecord) -> bool {
        self.has_passwords() && credential.password.is_some()
    }

    /// Refuses every use of a password where there are none. It is the same answer for every name, whether a user has it or not.
    pub(crate) fn demand_passwords(&self) -> Result<(), Status> {
        if self.has_passwords() { Ok(()) } else { Err(Status::failed_precondition(OFF)) }
    }

    /// Refuses a new password that is too short, too easy to guess, or stolen.
    pub(crate) async fn may_have(&self, user: &UserName, password: &Zeroizing<String>) -> Result<(), Status> {
        let (rules, password) = (self.rules.clone(), password.clone());
        let (user, cluster) = (user.to_string(), self.config.cluster.to_string());
        self.passwords.consider(move || rules.allow(&user, &cluster, &password)).await?
    }
}
