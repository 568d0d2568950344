//! Rules of who may log in: when, from where, and proven how.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::ResourceName;
use crate::document::{metadata, read_document};
use crate::yaml::{Errors, Problems, Section, Tree};

/// Longest condition, in bytes.
const CONDITION_BYTES: usize = 4096;
/// Longest message, in bytes.
const MESSAGE_BYTES: usize = 512;
/// Networks that a rule may name, and ranges of addresses in each.
const MOST_NETWORKS: usize = 64;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRule {
    /// Its name.
    pub name: ResourceName,
    /// What it is for.
    pub description: String,
    /// A condition of Cedar, over the principal and the context.
    pub when: String,
    /// What it does to logins that meet the condition.
    pub then: Then,
    /// What a refused user reads; may be empty.
    pub message: String,
    /// Networks by the names that the condition has for them.
    pub networks: BTreeMap<String, Vec<Network>>,
}

/// What a rule does to the logins that meet its condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They are refused.
    Deny,
    /// They are let in. Where any rule allows, one has to.
    Allow,
}

impl Then {
    const ALL: [(&'static str, Self); 2] = [("deny", Self::Deny), ("allow", Self::Allow)];

    /// How rules write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// An address as the bits that it has, in a space of 128; IPv4 in IPv6 is the IPv4 address that it stands for.
fn bits(address: IpAddr) -> (bool, u128) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (true, u128::from(u32::from(v4)) << 96),
        IpAddr::V6(v6) => (false, u128::from(v6)),
    }
}

impl Network {
    /// Reads `192.0.2.0/24`, or an address by itself.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "is no range of addresses";
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => {
                let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
                (address, Some(prefix.parse::<u8>().ok().filter(|_| digits).ok_or(WRONG)?))
            }
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| WRONG)?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(longest);
        if prefix > longest {
            return Err("has more bits than an address");
        }
        let network = Self { address, prefix };
        match network.contains(address) && bits(address).1 & !network.mask() == 0 {
            true => Ok(network),
            false => Err("has bits set behind its prefix"),
        }
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own_v4, own), (v4, other)) = (bits(self.address), bits(address));
        own_v4 == v4 && (own ^ other) & self.mask() == 0
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl LoginRule {
    /// Reads a rule. Whether its condition is one is for [`crate::LoginRules::compile`].
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line, column and what to write instead.
    pub fn parse(text: &str) -> Result<Self, Errors> {
        read_document("login_rule", text, &["kind", "version", "metadata", "spec"], read)
    }

    /// The rule as YAML that [`LoginRule::parse`] reads back to the same rule.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut metadata = BTreeMap::from([("name", self.name.to_string())]);
        if !self.description.is_empty() {
            metadata.insert("description", self.description.clone());
        }
        let networks = self.networks.iter().map(|(name, ranges)| {
            (name.as_str(), ranges.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        let document = Document {
            kind: "login_rule",
            version: "v1",
            metadata,
            spec: Spec {
                then: self.then.as_str(),
                when: &self.when,
                message: &self.message,
                networks: networks.collect(),
            },
        };
        serde_saphyr::to_string(&document).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: BTreeMap<&'static str, String>,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    then: &'static str,
    when: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    networks: BTreeMap<&'a str, Vec<String>>,
}

fn read(top: &Section<'_>, problems: &mut Problems) -> Option<LoginRule> {
    let metadata = metadata(top, "login_rule", problems);
    let name = metadata.name.as_deref().and_then(|name| match ResourceName::new(name) {
        Ok(name) => Some(name),
        Err(error) => {
            problems.push(metadata.place, "metadata.name", error.to_string(), "choose another name");
            None
        }
    });
    let Some(spec) = top.section("spec", &["then", "when", "message", "networks"], problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with then: and when: below it");
        return None;
    };
    let then = spec.choice("then", &Then::ALL, problems);
    if spec.present("then").is_none() {
        problems.push(spec.at(), "spec.then", "is missing", "write deny or allow");
    }
    let when = spec.parsed("when", "write a condition of Cedar", problems, |text| match text.trim() {
        "" => Err("is empty"),
        long if long.len() > CONDITION_BYTES => Err("is too long"),
        text => Ok(text.to_owned()),
    });
    if spec.present("when").is_none() {
        problems.push(spec.at(), "spec.when", "is missing", "write a condition of Cedar");
    }
    let message = spec.parsed("message", "write one line of text", problems, |text| match text {
        long if long.len() > MESSAGE_BYTES => Err("is too long"),
        odd if odd.chars().any(char::is_control) => Err("contains control characters"),
        text => Ok(text.to_owned()),
    });
    let networks = networks(&spec, problems);
    Some(LoginRule {
        name: name?,
        description: metadata.description,
        when: when?,
        then: then?,
        message: message.unwrap_or_default(),
        networks,
    })
}

fn networks(spec: &Section<'_>, problems: &mut Problems) -> BTreeMap<String, Vec<Network>> {
    let mut found = BTreeMap::new();
    let Some(value) = spec.present("networks") else { return found };
    let Tree::Map(entries) = &value.value else {
        problems.push(
            value.referenced,
            "spec.networks",
            format!("expected names of networks, got {}", value.value.kind()),
            "write NAME: [192.0.2.0/24] below it",
        );
        return found;
    };
    if entries.len() > MOST_NETWORKS {
        problems.push(
            value.referenced,
            "spec.networks",
            format!("{} networks", entries.len()),
            format!("write at most {MOST_NETWORKS}"),
        );
        return found;
    }
    for (key, value) in entries {
        let path = format!("spec.networks.{}", key.value);
        let items: Vec<_> = match &value.value {
            Tree::List(items) => items.iter().collect(),
            _ => vec![value],
        };
        let mut ranges = Vec::new();
        for item in items {
            match item.value.scalar().map(|text| Network::parse(&text)) {
                Some(Ok(range)) if ranges.len() < MOST_NETWORKS => ranges.push(range),
                Some(Ok(_)) => {
                    problems.push(item.referenced, &path, "too many ranges", "write fewer");
                    break;
                }
                Some(Err(why)) => {
                    problems.push(item.referenced, &path, why, "write a range such as 192.0.2.0/24");
                }
                None => problems.push(item.referenced, &path, "expected a range", "write 192.0.2.0/24"),
            }
        }
        found.insert(key.value.clone(), ranges);
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses_in_both_families() {
        for (network, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
        ] {
            let read = Network::parse(network).unwrap();
            assert!(read.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!read.contains(outside.parse().unwrap()), "{network} {outside}");
        }
        for odd in ["", "192.0.2.1/24", "192.0.2.0/33", "192.0.2.0/+8", "192.0.2.0/", "office", "::1/129"] {
            assert!(Network::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_rule_is_written_as_it_was_read_and_each_mistake_is_told() {
        let text = "kind: login_rule\nversion: v1\nmetadata: {name: office, description: hours}\nspec:\n  then: deny\n  when: |\n    \
                    !context.networks.contains(\"office\")\n  message: come to the office\n  networks: {office: [192.0.2.0/24, '2001:db8::/32']}\n";
        let rule = LoginRule::parse(text).unwrap();
        assert_eq!(LoginRule::parse(&rule.to_yaml()).unwrap(), rule);
        let wrong = "kind: login_rule\nversion: v1\nmetadata: {name: office}\nspec: {then: maybe, networks: {office: [nowhere]}, more: 1}\n";
        let told = LoginRule::parse(wrong).unwrap_err().to_string();
        for part in ["spec.then", "spec.when: is missing", "spec.networks.office", "more"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
