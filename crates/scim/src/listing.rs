//! Searches (RFC 7644 §3.4.2 and §3.4.3): filter, order, and one page of what there is.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::backend::{Backend, Narrow};
use crate::error::ScimError;
use crate::filter::Filter;
use crate::filter::condition::{Condition, Record};
use crate::kind::Kind;
use crate::memberships::Memberships;
use crate::path::{AttributePath, Named, Target};
use crate::refused::refused;
use crate::resource::Resource;
use crate::schema::row::Type;
use crate::shown::{Asked, Projection, Shown};
use crate::text::fold;

/// Most resources of a page.
pub const MAX_PAGE: usize = 200;

/// Longest page, in bytes, about. A page ends before; one resource alone may be longer.
pub const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Resources of a page where a client does not say.
const DEFAULT_PAGE: usize = 100;

/// What a client looks for.
#[derive(Debug, Default)]
pub(crate) struct Search {
    filter: Option<Filter>,
    sort: Option<(AttributePath, bool)>,
    /// The first to show, counted from 1.
    start: usize,
    count: usize,
    pub(crate) asked: Asked,
}

/// What was written for a search, in a query or in a body.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) filter: Option<String>,
    pub(crate) sort_by: Option<String>,
    pub(crate) sort_order: Option<String>,
    pub(crate) start: Option<i64>,
    pub(crate) count: Option<i64>,
    pub(crate) asked: Asked,
}

impl Search {
    pub(crate) fn read(written: Written) -> Result<Self, ScimError> {
        let filter = written.filter.map(|filter| Filter::parse(&filter)).transpose()?;
        let descending = match written.sort_order.as_deref() {
            None => false,
            Some(order) if order.eq_ignore_ascii_case("ascending") => false,
            Some(order) if order.eq_ignore_ascii_case("descending") => true,
            Some(_) => return Err(ScimError::value("sortOrder", "it is neither ascending nor descending")),
        };
        let sort = match written.sort_by {
            None => None,
            Some(path) => {
                let path = AttributePath::parse(&path);
                Some((path.ok_or_else(|| ScimError::value("sortBy", "it is no attribute"))?, descending))
            }
        };
        // Below the least they are the least (RFC 7644 §3.4.2.4).
        let at_least = |value: i64, least: i64| usize::try_from(value.max(least)).unwrap_or(usize::MAX);
        Ok(Self {
            filter,
            sort,
            start: written.start.map_or(1, |start| at_least(start, 1)),
            count: written.count.map_or(DEFAULT_PAGE, |count| at_least(count, 0)).min(MAX_PAGE),
            asked: written.asked,
        })
    }
}

/// A search among one kind of resource.
struct Part {
    kind: Kind,
    condition: Option<Condition>,
    sort: Option<Target>,
    projection: Projection,
    /// All memberships, where filter or order ask for the groups of users.
    memberships: Option<Memberships>,
}

impl Part {
    async fn new(kind: Kind, search: &Search, backend: &dyn Backend) -> Result<Self, ScimError> {
        let condition = search.filter.as_ref().map(|filter| filter.bind(kind)).transpose()?;
        let sort = match &search.sort {
            Some((path, _)) => sort_target(path, kind)?,
            None => None,
        };
        let by_groups = condition.as_ref().is_some_and(|condition| condition.mentions("groups"))
            || sort.is_some_and(|target| target.attribute.name == "groups");
        let memberships = match kind {
            Kind::User if by_groups => Some(Memberships::all(backend).await.map_err(refused)?),
            _ => None,
        };
        Ok(Self { kind, condition, sort, projection: search.asked.of(kind)?, memberships })
    }

    fn narrow(&self) -> Narrow {
        self.condition.as_ref().map_or(Narrow::All, Condition::narrow)
    }

    fn shown<'a>(&'a self, resource: &'a Resource) -> Shown<'a> {
        let groups = self.memberships.as_ref().map(|known| known.of(&resource.id)).unwrap_or_default();
        Shown { resource, groups }
    }

    fn admits(&self, resource: &Resource) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.holds(&self.shown(resource)))
    }

    /// The resource with what is shown of it alone, where the rest could be much.
    fn kept(&self, resource: &Resource) -> Resource {
        let members = self.kind.schema().find("members");
        let all = members.is_none_or(|members| self.projection.shows(None, members));
        if all { resource.clone() } else { resource.without_members() }
    }
}

/// A page while it is filled.
struct Page {
    start: usize,
    count: usize,
    total: usize,
    bytes: usize,
    is_full: bool,
    resources: Vec<Resource>,
}

impl Page {
    /// Counts a resource, and says whether it is one of the page.
    fn counts(&mut self) -> bool {
        self.total += 1;
        self.total >= self.start && !self.is_full && self.resources.len() < self.count
    }

    fn take(&mut self, resource: Resource) {
        self.bytes += resource.size();
        if self.bytes > MAX_PAGE_BYTES && !self.resources.is_empty() {
            // The client goes on after what it got (RFC 7644 §3.4.2.4).
            self.is_full = true;
        } else {
            self.resources.push(resource);
        }
    }
}

/// One page of the resources that are looked for.
pub(crate) async fn list(
    kinds: &[Kind],
    search: &Search,
    backend: &dyn Backend,
    base: &str,
) -> Result<Map<String, Value>, ScimError> {
    let mut parts = Vec::new();
    for kind in kinds {
        parts.push(Part::new(*kind, search, backend).await?);
    }
    let (start, count) = (search.start, search.count);
    let mut page = Page { start, count, total: 0, bytes: 0, is_full: false, resources: Vec::new() };
    match search.sort {
        None => in_order_of_identifiers(&parts, backend, &mut page).await?,
        Some((_, descending)) => sorted(&parts, descending, backend, &mut page).await?,
    }
    let mut shown = Vec::with_capacity(page.resources.len());
    for part in &parts {
        let resources = page.resources.iter().filter(|resource| resource.draft.kind() == part.kind);
        let looked_up = if part.kind == Kind::User && part.projection.shows_groups(part.kind) {
            let ids: BTreeSet<String> = resources.clone().map(|resource| resource.id.clone()).collect();
            Some(Memberships::above(backend, ids).await.map_err(refused)?)
        } else {
            None
        };
        for resource in resources {
            let groups = looked_up.as_ref().map(|known| known.of(&resource.id)).unwrap_or_default();
            shown.push((resource.id.as_str(), Shown { resource, groups }.json(base, &part.projection)));
        }
    }
    // Sorted resources of two kinds are in one order.
    let place = |id: &str| page.resources.iter().position(|resource| resource.id == id);
    shown.sort_by_key(|(id, _)| place(id));
    let resources: Vec<Value> = shown.into_iter().map(|(_, json)| Value::Object(json)).collect();
    Ok(answer(page.total, start, resources))
}

/// A `ListResponse`.
pub(crate) fn answer(total: usize, start: usize, resources: Vec<Value>) -> Map<String, Value> {
    let answer = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": resources.len(),
        "Resources": resources,
    });
    match answer {
        Value::Object(answer) => answer,
        _ => Map::new(),
    }
}

async fn in_order_of_identifiers(
    parts: &[Part],
    backend: &dyn Backend,
    page: &mut Page,
) -> Result<(), ScimError> {
    for part in parts {
        let mut each = |resource: &Resource| {
            if part.admits(resource) && page.counts() {
                page.take(part.kept(resource));
            }
        };
        backend.scan(part.kind, &part.narrow(), &mut each).await.map_err(refused)?;
    }
    Ok(())
}

async fn sorted(
    parts: &[Part],
    descending: bool,
    backend: &dyn Backend,
    page: &mut Page,
) -> Result<(), ScimError> {
    let mut found: Vec<(Option<String>, usize, String)> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let mut each = |resource: &Resource| {
            if part.admits(resource) {
                let key = part.sort.and_then(|target| sort_key(&part.shown(resource), &target));
                found.push((key, at, resource.id.clone()));
            }
        };
        backend.scan(part.kind, &part.narrow(), &mut each).await.map_err(refused)?;
    }
    found.sort_by(|(one, one_at, one_id), (other, other_at, other_id)| {
        let order = by_value(one.as_deref(), other.as_deref());
        let order = if descending { order.reverse() } else { order };
        order.then_with(|| (one_at, one_id).cmp(&(other_at, other_id)))
    });
    for (_, at, id) in &found {
        if !page.counts() {
            continue;
        }
        let Some(part) = parts.get(*at) else { continue };
        // One that was removed in between is not shown.
        if let Some(resource) = backend.get(part.kind, id).await.map_err(refused)? {
            page.take(part.kept(&resource));
        }
    }
    Ok(())
}

/// Resources without a value come last, and first where the order is turned round (RFC 7644 §3.4.2.3).
fn by_value(one: Option<&str>, other: Option<&str>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => one.cmp(other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn sort_target(path: &AttributePath, kind: Kind) -> Result<Option<Target>, ScimError> {
    let bad = |reason: &str| ScimError::value("sortBy", format!("{path}: {reason}"));
    let target = match path.resolve(kind) {
        Some(Named::Attribute(target)) => target,
        Some(Named::Core | Named::Extension(_)) => return Err(bad("it is a schema, expected an attribute")),
        None if Kind::ALL.iter().any(|kind| path.resolve(*kind).is_some()) => return Ok(None),
        None => return Err(bad("there is no such attribute")),
    };
    if target.row().kind != Type::Complex {
        return Ok(Some(target));
    }
    let value = target.attribute.value().ok_or_else(|| bad("name an attribute of it"))?;
    Ok(Some(Target { sub: Some(value), ..target }))
}

/// What a resource is sorted by: of several values the primary one's, or the first one's.
fn sort_key(shown: &Shown<'_>, target: &Target) -> Option<String> {
    let value = shown.value(target)?;
    let one = match value.as_ref() {
        Value::Array(items) => {
            let primary = items.iter().find(|item| item.get("primary") == Some(&Value::Bool(true)));
            primary.or(items.first())?
        }
        other => other,
    };
    let one = match target.sub {
        Some(sub) => one.get(sub.name)?,
        None => one,
    };
    let row = target.row();
    match one {
        Value::Bool(value) => Some(value.to_string()),
        Value::String(text) if row.kind == Type::Moment => {
            let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
            // Nanoseconds since a time before all others, with as many digits each.
            Some(format!("{:040}", at.unix_timestamp_nanos().saturating_add(i128::from(i64::MAX) << 32)))
        }
        Value::String(text) if row.case_exact => Some(text.clone()),
        Value::String(text) => Some(fold(text)),
        _ => None,
    }
}
