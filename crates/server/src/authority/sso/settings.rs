//! The settings that documents of connectors have in common, read.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sallyport_access::text::check;
use sallyport_access::yaml::{Problems, Section, Tree};
use sallyport_access::{ResourceName, RoleName};
use sallyport_oidc::{
    Expression, Mapping, Path, Pattern, Rule, Template, TraitRule, TraitSource, discovery_url,
};
use serde_saphyr::Spanned;

use super::claims::PROVISIONED;
use super::connector::{CALLBACK_PATH, Refresh, callback_path};
use crate::config::{Endpoint, HostPort};

const METADATA: &[&str] = &["name", "description", "revision"];
const MAPPING: &[&str] = &["roles", "traits"];
const RULE: &[&str] = &["claim", "value", "matches", "roles"];
const TRAIT_RULE: &[&str] = &["claim", "value", "matches", "values"];
const REFRESH: &[&str] = &["grace", "interval"];
const SCIM: &[&str] = &["external_id"];
const LIFETIMES: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 86_400));
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
const INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(86_400));
const INTERVAL: Duration = Duration::from_secs(10 * 60);
const GRACES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(7 * 86_400));
const GRACE: Duration = Duration::from_secs(3600);
/// People of a SCIM client, at most.
const PEOPLE: (usize, usize) = (1, 100_000);
pub(super) const MAX_PEOPLE: usize = 20_000;
/// Longest text of a setting, in bytes, and most items of a list.
const TEXT_BYTES: usize = 512;
pub(super) const ITEMS: usize = 100;
/// Most rules of a mapping, and most values of a trait.
const RULES: usize = 500;

/// What documents of every kind begin with.
pub(super) struct Head<'t> {
    pub(super) name: Option<ResourceName>,
    pub(super) description: String,
    pub(super) spec: Section<'t>,
}

/// Reads the name, and what the settings are in.
pub(super) fn head<'t>(
    top: &Section<'t>,
    kind: &str,
    keys: &'static [&'static str],
    problems: &mut Problems,
) -> Option<Head<'t>> {
    for (key, wanted) in [("kind", kind), ("version", "v1")] {
        if top.text(key, problems).is_none_or(|found| found != wanted) {
            problems.push(top.place(key), key, format!("is not {wanted}"), format!("write {key}: {wanted}"));
        }
    }
    let metadata = top.section("metadata", METADATA, problems);
    let name = metadata.as_ref().and_then(|metadata| {
        needed(metadata, "name", "write a name of lower-case letters, digits and '-'", problems);
        metadata.parsed("name", "write a name of lower-case letters, digits and '-'", problems, |text| {
            ResourceName::new(text)
        })
    });
    let description = metadata.as_ref().and_then(|metadata| shown(metadata, "description", problems));
    if metadata.is_none() {
        problems.push(top.at(), "metadata", "is missing", "write metadata: with a name below it");
    }
    let Some(spec) = top.section("spec", keys, problems) else {
        problems.push(top.at(), "spec", "is missing", "write spec: with the provider's settings below it");
        return None;
    };
    Some(Head { name, description: description.unwrap_or_default(), spec })
}

/// The address of a provider: what its documents have as issuer, or where its pages are.
pub(super) fn provider(
    spec: &Section<'_>,
    key: &str,
    fix: &str,
    insecure_loopback: bool,
    problems: &mut Problems,
) -> Option<String> {
    let found = spec.parsed(key, fix, problems, |text| {
        endpoint(text, insecure_loopback).map_err(str::to_owned)?;
        discovery_url(text).map_err(|error| error.to_string())?;
        Ok::<_, String>(text.to_owned())
    });
    let away = |url: &String| Endpoint::parse(url).is_ok_and(|url| !url.is_loopback());
    if insecure_loopback && found.as_ref().is_some_and(away) {
        let fix = "remove it: it is for a provider on the authority's own machine";
        let message = "the issuer is on another machine";
        problems.push(spec.place("insecure_loopback"), &spec.name("insecure_loopback"), message, fix);
    }
    found
}

/// How long a person is a user here after a login.
pub(super) fn user_lifetime(spec: &Section<'_>, problems: &mut Problems) -> Duration {
    spec.duration("user_lifetime", LIFETIMES.0, LIFETIMES.1, problems).unwrap_or(LIFETIME)
}

/// How many users a SCIM client may make.
pub(super) fn max_people(spec: &Section<'_>, problems: &mut Problems) -> usize {
    spec.count("max_people", PEOPLE.0, PEOPLE.1, problems).unwrap_or(MAX_PEOPLE)
}

/// What has to be the `externalId` of a SCIM client's user, for a person to become that one.
pub(super) fn scim_external_id(spec: &Section<'_>, problems: &mut Problems) -> Option<Template> {
    let section = spec.section("scim", SCIM, problems)?;
    let fix = "write a template of the claim by which the provider knows a person for good, such as '{{claims.oid}}'";
    needed(&section, "external_id", fix, problems);
    section.parsed("external_id", fix, problems, |text| {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        if template.constant().is_some() {
            return Err("has no claim, so that it is the same for every person".to_owned());
        }
        if template.claims().any(|claim| claim == PROVISIONED) {
            return Err("reads what the SCIM client says, and not the provider".to_owned());
        }
        Ok::<_, String>(template)
    })
}

/// How the provider is asked again after a login.
pub(super) fn refresh(spec: &Section<'_>, problems: &mut Problems) -> Option<Refresh> {
    let section = spec.section("refresh", REFRESH, problems)?;
    let interval = section.duration("interval", INTERVALS.0, INTERVALS.1, problems);
    let grace = section.duration("grace", GRACES.0, GRACES.1, problems);
    Some(Refresh { interval: interval.unwrap_or(INTERVAL), grace: grace.unwrap_or(GRACE) })
}

pub(super) fn or<T>(given: Vec<T>, default: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if given.is_empty() { default() } else { given }
}

pub(super) fn needed(section: &Section<'_>, key: &str, fix: &str, problems: &mut Problems) {
    if section.present(key).is_none() {
        problems.push(section.at(), &section.name(key), "is missing", fix);
    }
}

/// A text that people read.
pub(super) fn shown(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    section.parsed(key, "write text of at most 512 bytes on one line", problems, |text| {
        if text.trim().is_empty() || text.len() > TEXT_BYTES {
            return Err("is empty or too long".to_owned());
        }
        check("it", text).map_err(|hidden| hidden.to_string())?;
        Ok(text.to_owned())
    })
}

/// Words that stand in a request with spaces between them.
pub(super) fn words(section: &Section<'_>, key: &str, fix: &str, problems: &mut Problems) -> Vec<String> {
    let words = section.several(key, fix, problems, |text| {
        // RFC 6749 §3.3, of a scope.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let good = (1..=TEXT_BYTES).contains(&text.len()) && text.bytes().all(plain);
        if good { Ok(text.to_owned()) } else { Err("is not one word") }
    });
    bounded(section, key, words, ITEMS, problems)
}

pub(super) fn bounded<T>(
    section: &Section<'_>,
    key: &str,
    mut items: Vec<T>,
    most: usize,
    problems: &mut Problems,
) -> Vec<T> {
    if items.len() > most {
        let message = format!("has {} items", items.len());
        problems.push(section.place(key), &section.name(key), message, format!("write at most {most}"));
        items.truncate(most);
    }
    items
}

pub(super) fn file(section: &Section<'_>, key: &str, problems: &mut Problems) -> Option<PathBuf> {
    section.parsed(key, "write a path that begins with /", problems, |text| {
        let path = PathBuf::from(text);
        let plain =
            path.is_absolute() && path.components().all(|part| part != std::path::Component::ParentDir);
        if plain { Ok(path) } else { Err("is relative, or has .. in it") }
    })
}

/// An address that secrets go to.
pub(crate) fn endpoint(url: &str, insecure_loopback: bool) -> Result<Endpoint, &'static str> {
    let endpoint = Endpoint::parse(url)?;
    match (endpoint.secure, endpoint.is_loopback(), insecure_loopback) {
        (true, ..) | (false, true, true) => Ok(endpoint),
        (false, true, false) => Err("has no TLS: write https://, or insecure_loopback: true for a test"),
        (false, false, _) => Err("has no TLS: write https://"),
    }
}

pub(super) fn redirect_urls(
    spec: &Section<'_>,
    name: Option<&ResourceName>,
    insecure_loopback: bool,
    problems: &mut Problems,
) -> Vec<String> {
    let own = name.map_or_else(|| format!("{CALLBACK_PATH}/NAME"), callback_path);
    let fix = format!("write https://PROXY{own}");
    let urls = spec.several("redirect_urls", &fix, problems, |text| {
        let found = endpoint(text, insecure_loopback).map_err(str::to_owned)?;
        if found.path == own || found.path == CALLBACK_PATH {
            Ok(text.to_owned())
        } else {
            Err(format!("does not end in {own}"))
        }
    });
    bounded(spec, "redirect_urls", urls, ITEMS, problems)
}

pub(super) fn hosts(spec: &Section<'_>, problems: &mut Problems) -> Vec<HostPort> {
    let hosts = spec.several("allowed_hosts", "write names such as graph.microsoft.com", problems, |text| {
        text.parse().or_else(|problem| format!("{text}:443").parse::<HostPort>().map_err(|_| problem))
    });
    bounded(spec, "allowed_hosts", hosts, ITEMS, problems)
}

pub(super) fn mapping(spec: &Section<'_>, problems: &mut Problems) -> Mapping {
    let fix = "write mapping: with roles: below it, a list of {claim: groups, value: 'ops-*', roles: [ROLE]}";
    let Some(section) = spec.section("mapping", MAPPING, problems) else {
        problems.push(spec.at(), &spec.name("mapping"), "is missing: no login would have a role", fix);
        return Mapping::default();
    };
    let rules = section.sections("roles", RULE, fix, problems);
    let rules = bounded(&section, "roles", rules, RULES, problems);
    if rules.is_empty() {
        problems.push(section.place("roles"), &section.name("roles"), "has no rule", fix);
    }
    let roles = rules.iter().filter_map(|rule| self::rule(rule, problems)).collect();
    Mapping { roles, traits: traits(&section, problems) }
}

fn rule(section: &Section<'_>, problems: &mut Problems) -> Option<Rule> {
    needed(section, "roles", "write roles: [ROLE]", problems);
    let wanted = wanted(section, problems);
    let roles = section.several("roles", "write names of roles", problems, |text| {
        let template = Template::parse(text).map_err(|error| error.to_string())?;
        if template.begins_with_claim() {
            return Err(
                "begins with a claim, so that the provider could name any role: write a text ahead of it"
                    .to_owned(),
            );
        }
        if let Some(name) = template.constant() {
            RoleName::new(name).map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(template)
    });
    let roles = bounded(section, "roles", roles, ITEMS, problems);
    let (claim, value, matches) = wanted?;
    Some(Rule { claim, value, matches, roles })
}

/// Where a rule looks, and for what.
fn wanted(section: &Section<'_>, problems: &mut Problems) -> Option<(Path, Pattern, Option<Expression>)> {
    needed(section, "claim", "write the path of a claim, such as groups or realm_access.roles", problems);
    let claim =
        section.parsed("claim", "write a path such as groups or realm_access.roles", problems, Path::parse);
    let value = section.parsed("value", "write a text, with * for any characters", problems, |text| {
        if text.len() <= TEXT_BYTES { Ok(Pattern::new(text)) } else { Err("is too long") }
    });
    let fix = "write a regular expression of at most 512 bytes, such as 'ops-(eu|us)'; it has to match the whole value";
    let matches = section.parsed("matches", fix, problems, Expression::parse);
    Some((claim?, value.unwrap_or_default(), matches))
}

fn traits(section: &Section<'_>, problems: &mut Problems) -> BTreeMap<String, Vec<TraitSource>> {
    let fix = "write NAME: [TEMPLATE] below it, such as logins: ['{{claims.unix_name}}'], or NAME: [{claim: groups, value: 'ops-*', \
               values: [VALUE]}]";
    let Some(value) = section.present("traits") else { return BTreeMap::new() };
    let path = section.name("traits");
    let Tree::Map(entries) = &value.value else {
        problems.push(value.referenced, &path, format!("expected traits, got {}", value.value.kind()), fix);
        return BTreeMap::new();
    };
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.value.as_str()).collect();
    let Some(traits) = Section::read(value, &path, &names, problems) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for name in names {
        if let Err(hidden) = check("the name of a trait", name) {
            problems.push(traits.place(name), &traits.name(name), hidden.to_string(), fix);
        }
        let path = traits.name(name);
        let sources = match traits.present(name).map(|value| (&value.value, value)) {
            None => Vec::new(),
            Some((Tree::List(items), _)) => {
                let items = items.iter().enumerate();
                let sources = items.filter_map(|(at, item)| {
                    let indexed = format!("{path}[{at}]");
                    source(
                        item,
                        if matches!(item.value, Tree::Map(_)) { &indexed } else { &path },
                        fix,
                        problems,
                    )
                });
                sources.collect()
            }
            Some((_, one)) => source(one, &path, fix, problems).into_iter().collect(),
        };
        found.insert(name.to_owned(), bounded(&traits, name, sources, ITEMS, problems));
    }
    found
}

/// What values of a trait come from: a template, or a rule.
fn source(value: &Spanned<Tree>, path: &str, fix: &str, problems: &mut Problems) -> Option<TraitSource> {
    if let Some(text) = value.value.scalar() {
        return match Template::parse(&text) {
            Ok(template) => Some(TraitSource::Template(template)),
            Err(error) => {
                problems.push(value.referenced, path, format!("{text:?}: {error}"), fix);
                None
            }
        };
    }
    if !matches!(value.value, Tree::Map(_)) {
        let message = format!("expected a template or a rule, got {}", value.value.kind());
        problems.push(value.referenced, path, message, fix);
        return None;
    }
    let section = Section::read(value, path, TRAIT_RULE, problems)?;
    let wanted = wanted(&section, problems);
    let fix = "write values: [VALUE], or leave it out for the claim's own values";
    let values = section.several("values", fix, problems, Template::parse);
    let is_empty = matches!(section.present("values").map(|values| &values.value), Some(Tree::List(items)) if items.is_empty());
    if is_empty {
        problems.push(section.place("values"), &section.name("values"), "gives no value", fix);
    }
    let values = bounded(&section, "values", values, ITEMS, problems);
    let (claim, value, matches) = wanted?;
    Some(TraitSource::Rule(TraitRule { claim, value, matches, values }))
}
