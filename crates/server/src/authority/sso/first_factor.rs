//! Single sign-on at the page of approvals: a user who has no factor yet signs in at the provider again, and may add one then.

use sallyport_store::Stored;
use sallyport_wire::v1;
use time::OffsetDateTime;
use tonic::Status;

use super::claims::{check_second_factor, second_factor};
use super::flow::{Answer, Taken};
use super::pages::{SsoPages, button};
use crate::authority::accounts::means::{Means, Way};
use crate::authority::challenges::pages::Browser;
use crate::authority::challenges::records::ChallengeRecord;

impl SsoPages {
    /// What a page shows of an approval.
    pub(crate) async fn describe_approval(
        &self,
        browser: &Browser,
        id: &str,
    ) -> Result<v1::WebApproval, Status> {
        let (mut approval, provider) = self.challenges.describe_approval(browser, id).await?;
        if let Some(name) = provider {
            let remote = self.connectors.remote(&name, OffsetDateTime::now_utc()).await?;
            let methods = approval.methods.get_or_insert_default();
            methods.sso = vec![button(remote.connector())];
        }
        Ok(approval)
    }

    /// Takes the word of a provider for who has signed in again, and where the cluster requires a second factor, that there was one. The roles
    /// and traits that it gives do not count. The login rules are asked as at a login: what they would not let in gives no factor.
    pub(super) async fn finish_again(
        &self,
        browser: &Browser,
        stored: &Stored<ChallengeRecord>,
        taken: Taken,
        answer: &Answer,
        now: OffsetDateTime,
    ) -> Result<v1::WebProven, Status> {
        let name = taken.connector.clone();
        let remote = self.connectors.remote(&name, now).await?;
        let said = self.connectors.claims(&remote, taken, answer, false, now).await.and_then(|said| {
            // Else a password of the provider's alone would give the factor that it opens no login without.
            if self.connectors.factor_required() {
                check_second_factor(remote.connector(), &said)?;
            }
            Ok(said)
        });
        match said {
            Ok(said) => {
                let connector = remote.connector();
                let by = Means {
                    said: Some(self.connectors.said_again(connector, &said, now).await),
                    ..Means::by(Way::SingleSignOn, second_factor(connector, &said))
                };
                let who = (said.identity.issuer.as_str(), said.identity.subject.as_str());
                self.challenges.signed_in_again(browser, stored, who, by, now).await
            }
            Err(failure) => Err(self.refused(browser, stored, &name, failure, now).await?),
        }
    }
}
