//! Who may use what the catalogue keeps.

use std::collections::HashMap;

use super::decidable::{Decidable, Seeker};
use super::engine::Policies;
use super::merged::Merged;
use crate::role::Role;
use crate::{Identity, Kind, Listed, Principal};

impl Decidable for Listed {
    fn options(&self, _: &Seeker<'_>, _: &[&Role], _: &Merged<'_>, (): &()) {}
}

impl Policies {
    /// Which of these resources an identity may use, locks aside. Those of a kind that agree in the labels which the user's roles
    /// look at share one answer, as nodes do.
    pub fn visible_listed<'l>(
        &self,
        identity: &Identity,
        listed: impl IntoIterator<Item = &'l Listed>,
    ) -> Vec<&'l Listed> {
        let Principal::User { name, roles, traits, .. } = &identity.principal else { return Vec::new() };
        let combination = self.combination(roles);
        let seeker = Seeker { policies: self, combination: &combination, user: name, traits };
        let mut answers: HashMap<(Kind, Vec<Option<&str>>), bool> = HashMap::new();
        let visible = listed.into_iter().filter(|listed| {
            let labels = combination.labels(listed.kind).iter().map(|label| listed.labels.value(label));
            *answers.entry((listed.kind, labels.collect())).or_insert_with(|| seeker.allows(*listed, &()))
        });
        visible.collect()
    }
}
