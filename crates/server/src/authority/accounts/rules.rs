//! Which new passwords are taken: hard to guess, and none that were stolen elsewhere. A login asks none of this.

use tonic::Status;

use crate::authority::accounts::breached::BreachedList;
use crate::authority::accounts::passwords::LENGTHS;
use crate::config::PasswordsSection;

/// Strongest of the scale.
const STRONGEST: u8 = 4;

/// What is asked of a new password.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    min_strength: u8,
    list: Option<BreachedList>,
    list_required: bool,
}

impl Rules {
    /// Says in the log where the list cannot be read: the authority starts all the same, since logins do not ask it.
    pub(super) fn of(section: &PasswordsSection) -> Self {
        let list = section.breached_list.as_deref().map(BreachedList::at);
        let list_required = section.breached_list_required;
        match list.as_ref().map(BreachedList::check) {
            Some(Err(problem)) if list_required => tracing::error!(
                %problem,
                "the list of stolen passwords cannot be read, and no password can be set until it can \
                 (auth.authentication.passwords.breached_list_required)"
            ),
            Some(Err(problem)) => tracing::error!(
                %problem,
                "the list of stolen passwords cannot be read; passwords are set without asking it"
            ),
            Some(Ok(())) | None => {}
        }
        Self { min_strength: section.min_strength, list, list_required }
    }

    /// Whether a user may have a password. It is slow, and blocks.
    ///
    /// # Errors
    /// What is wrong with it, for the user to read.
    pub(super) fn allow(&self, user: &str, cluster: &str, password: &str) -> Result<(), Status> {
        let length = password.chars().count();
        if !LENGTHS.contains(&length) {
            return Err(Status::invalid_argument(format!(
                "a password has from {} to {} characters, this one has {length}",
                LENGTHS.start(),
                LENGTHS.end()
            )));
        }
        // Names that everyone would try first: the user's own, the cluster's and the product's.
        let estimate = zxcvbn::zxcvbn(password, &[user, cluster, "sallyport"]);
        let strength = u8::from(estimate.score());
        if strength < self.min_strength {
            let mut words = format!(
                "this password is too easy to guess: its strength is {strength} of {STRONGEST}, and this cluster wants {} or more.",
                self.min_strength
            );
            if let Some(feedback) = estimate.feedback() {
                let warning = feedback.warning().map(|warning| warning.to_string());
                let advice = feedback.suggestions().iter().map(ToString::to_string);
                for sentence in warning.into_iter().chain(advice) {
                    words.push(' ');
                    words.push_str(&sentence);
                }
            }
            return Err(Status::invalid_argument(words));
        }
        match self.list.as_ref().map(|list| list.count(password)) {
            Some(Ok(times)) if times > 0 => Err(Status::invalid_argument(format!(
                "this password was stolen elsewhere and is known to attackers ({times} times in this cluster's list of such \
                 passwords); choose another one, which you use nowhere else"
            ))),
            Some(Err(problem)) if self.list_required => {
                tracing::error!(%problem, "a password was not set, since the list of stolen passwords cannot be read");
                Err(Status::unavailable(
                    "no password can be set at this moment: the cluster's list of stolen passwords cannot be read; tell an \
                     administrator, whose authority logs what is wrong with it",
                ))
            }
            Some(Err(problem)) => {
                tracing::warn!(%problem, "a password was set without asking the list of stolen passwords, which cannot be read");
                Ok(())
            }
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refused(rules: &Rules, password: &str) -> Option<String> {
        rules.allow("alice", "example.org", password).err().map(|status| status.message().to_owned())
    }

    #[test]
    fn a_password_that_is_easy_to_guess_is_told_how_to_be_better() {
        let rules = Rules::of(&PasswordsSection::default());
        let told = refused(&rules, "password123").unwrap();
        assert!(told.contains("strength is 0 of 4, and this cluster wants 3 or more"), "{told}");
        assert!(
            told.ends_with(
                "This is a very common password. Add another word or two. Uncommon words are better."
            ),
            "{told}"
        );
        assert!(refused(&rules, "short").unwrap().contains("from 10 to 1024 characters"));
        // What is hard to guess of others is not of the user whose name it is.
        let name = "zephyrine.quillam";
        assert_eq!(refused(&rules, name), None);
        assert!(rules.allow(name, "example.org", name).is_err());
        assert_eq!(refused(&rules, "correct horse battery staple"), None);
        let any = Rules::of(&PasswordsSection { min_strength: 0, ..PasswordsSection::default() });
        assert_eq!(refused(&any, "password123"), None);
    }

    #[test]
    fn a_list_that_cannot_be_read_refuses_where_the_setting_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        let section = PasswordsSection {
            min_strength: 0,
            breached_list: Some(path.clone()),
            ..PasswordsSection::default()
        };
        let lenient = Rules::of(&section);
        let strict = Rules::of(&PasswordsSection { breached_list_required: true, ..section });
        assert_eq!(refused(&lenient, "password123"), None);
        assert!(refused(&strict, "password123").unwrap().contains("no password can be set at this moment"));
        // From here on both can, without a new start.
        let digest = sallyport_sal::breached::digest(b"password123").unwrap();
        std::fs::write(&path, format!("{}:251682\n", data_encoding::HEXUPPER.encode(digest.as_slice())))
            .unwrap();
        for rules in [&lenient, &strict] {
            assert!(refused(rules, "password123").unwrap().contains("known to attackers (251682 times"));
            assert_eq!(refused(rules, "another password 1"), None);
        }
    }
}
