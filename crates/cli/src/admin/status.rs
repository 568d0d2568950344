//! `sallyport admin status`.

use std::collections::BTreeMap;

use sallyport_wire::convert;
use sallyport_wire::v1::{
    CaStatus, CheckpointPlace, Cryptography, GetStatusRequest, GetStatusResponse, KeyCost,
};
use serde_json::json;

use super::rotation;
use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, args: &Args) -> CliResult {
    let status = authority
        .cluster()
        .get_status(GetStatusRequest {})
        .await
        .map_err(|status| CliError::from_status("get the status", &status))?
        .into_inner();
    let valid = |until: &Option<prost_types::Timestamp>| {
        until.as_ref().and_then(convert::time_from_proto).map_or("-".to_owned(), ui::timestamp)
    };
    if args.format == Format::Json {
        let cas: Vec<_> = status
            .cas
            .iter()
            .map(|ca| {
                json!({
                    "kind": ca.kind, "ssh_fingerprint": ca.ssh_fingerprint, "tls_pin": ca.tls_pin,
                    "ssh_algorithm": ca.ssh_algorithm, "tls_algorithm": ca.tls_algorithm,
                    "jwt_algorithm": ca.jwt_algorithm, "valid_until": valid(&ca.valid_until), "suite": ca.suite,
                    "custodies": ca.custodies, "configured_custody": ca.configured_custody,
                    "phase": ca.rotation.as_ref().map(|rotation| &rotation.phase),
                    "generation": ca.rotation.as_ref().map(|rotation| rotation.generation),
                })
            })
            .collect();
        let rotating = rotation::fetch(authority).await?;
        let rotations: Vec<_> =
            rotating.cas.iter().filter(|details| details.other.is_some()).map(rotation::to_json).collect();
        return ui::json(&json!({
            "cluster": status.cluster, "version": status.version, "nodes": status.nodes,
            "nodes_online": status.nodes_online, "users": status.users, "roles": status.roles, "admin_factor": status.admin_factor,
            "administrators_without_factor": status.administrators_without_factor, "without_factor": status.without_factor,
            "broken_login_rules": status.broken_login_rules,
            "locks": status.locks, "recordings": status.recordings, "audit_events": status.audit_events,
            "audit_head": status.audit_head, "checkpoint_places": status.checkpoint_places.iter().map(|place| json!({
                "kind": place.kind, "place": place.place, "taken": place.taken, "taken_at": valid(&place.taken_at),
                "failing_since": place.failing_since.as_ref().map(|_| valid(&place.failing_since)),
                "problem": place.problem,
            })).collect::<Vec<_>>(), "suite": status.suite, "cas": cas, "rotations": rotations,
            "keys_made": status.keys_made.iter().map(|keys| json!({
                "purpose": keys.purpose, "algorithm": keys.algorithm, "generated": keys.generated,
                "cpu_seconds": seconds(keys.cpu_microseconds),
            })).collect::<Vec<_>>(), "cryptography": status.cryptography.as_ref().map(cryptography_json), "time": valid(&status.time),
        }));
    }
    ui::data(format!("cluster     {} (version {})", status.cluster, status.version))?;
    ui::data(format!("nodes       {} online of {}", status.nodes_online, status.nodes))?;
    ui::data(format!("users       {}", status.users))?;
    ui::data(format!("roles       {}", status.roles))?;
    ui::data(format!("locks       {}", status.locks))?;
    ui::data(format!("admin       {}", factors_of(&status)))?;
    if !status.broken_login_rules.is_empty() {
        ui::data(format!(
            "login rules warning: this release does not understand {}, and logins are refused by it; write it anew: sallyport admin edit \
             login_rule/NAME",
            status.broken_login_rules.join(", ")
        ))?;
    }
    ui::data(format!("recordings  {}", status.recordings))?;
    ui::data(format!("audit log   {} events, head {}", status.audit_events, status.audit_head))?;
    for place in &status.checkpoint_places {
        ui::data(format!("  kept in   {}", kept_in(place, &valid)))?;
    }
    ui::data(format!("suite       {}", status.suite))?;
    if let Some(cryptography) = &status.cryptography {
        ui::data(format!("crypto      {}", source_of(cryptography)))?;
    }
    ui::data(format!("keys made   {}", costs(&status.keys_made)))?;
    let rotating = rotation::fetch(authority).await?;
    for details in rotating.cas.iter().filter(|details| details.other.is_some()) {
        for line in rotation::lines(details, rotating.hosts) {
            ui::data(line)?;
        }
    }
    for ca in &status.cas {
        ui::data(format!("{} CA", ca.kind))?;
        if !ca.ssh_algorithm.is_empty() {
            ui::data(format!("  ssh       {} {}", ca.ssh_algorithm, ca.ssh_fingerprint))?;
        }
        if !ca.tls_algorithm.is_empty() {
            let until = valid(&ca.valid_until);
            ui::data(format!("  tls       {} {}, until {until}", ca.tls_algorithm, ca.tls_pin))?;
            if ca.kind == "host" {
                ui::data(format!("  pin       {}, for sallyport login --ca-pin", ca.tls_pin))?;
            }
        }
        if !ca.jwt_algorithm.is_empty() {
            ui::data(format!("  jwt       {}", ca.jwt_algorithm))?;
        }
        ui::data(format!("  keys      {}", whereabouts(ca)))?;
    }
    Ok(())
}

/// Whether administrators prove a factor, and who of them has none, in a line.
fn factors_of(status: &GetStatusResponse) -> String {
    let without = status.administrators_without_factor;
    let named = u32::try_from(status.without_factor.len()).unwrap_or(u32::MAX);
    let more = if without > named { format!(" and {} more", without - named) } else { String::new() };
    let who = format!("{}{more}", status.without_factor.join(", "));
    match (status.admin_factor.as_str(), without) {
        ("", _) => "an earlier release, which asks for no factor".to_owned(),
        ("off", _) => "no factor is asked for (auth.authentication.admin_factor is off)".to_owned(),
        (_, 0) => "prove a factor for what is dangerous; each has one".to_owned(),
        ("required", _) => format!(
            "prove a factor for what is dangerous; warning: {who} without one can do nothing that is: \
             sallyport mfa add NAME, as that user"
        ),
        (_, _) => format!(
            "prove a factor for what is dangerous; warning: {who} without one are asked for none: \
             sallyport mfa add NAME, as that user; or write auth.authentication.admin_factor: required, the default"
        ),
    }
}

/// Where the cryptography of the authority's process comes from, in a line.
fn source_of(cryptography: &Cryptography) -> String {
    let demand = if cryptography.requires_fips { ", required of hosts and clients" } else { "" };
    if cryptography.fips_module.is_empty() {
        return format!("{}{demand}", cryptography.selection);
    }
    let (within, outside): (Vec<_>, Vec<_>) = cryptography.uses.iter().partition(|one| one.in_module);
    let sum = |uses: &[&sallyport_wire::v1::CryptographyUse]| uses.iter().map(|one| one.times).sum::<u64>();
    let named: Vec<String> =
        outside.iter().map(|one| format!("{} {} by {}", one.times, one.primitive, one.provider)).collect();
    let named = if named.is_empty() { "none".to_owned() } else { named.join(", ") };
    format!(
        "{}{demand}: {}, self-tests passed; {} uses, outside of it {named}",
        cryptography.selection,
        cryptography.fips_module,
        sum(&within)
    )
}

fn cryptography_json(cryptography: &Cryptography) -> serde_json::Value {
    json!({
        "selection": cryptography.selection, "fips_module": cryptography.fips_module,
        "requires_fips": cryptography.requires_fips,
        "uses": cryptography.uses.iter().map(|one| json!({
            "primitive": one.primitive, "provider": one.provider, "times": one.times, "in_module": one.in_module,
        })).collect::<Vec<_>>(),
    })
}

/// How a place stands that checkpoints of the audit log are taken to.
fn kept_in(place: &CheckpointPlace, shown: &dyn Fn(&Option<prost_types::Timestamp>) -> String) -> String {
    let last = match place.taken {
        0 => "no checkpoint since the start".to_owned(),
        record => format!("record {record}, {}", shown(&place.taken_at)),
    };
    match &place.failing_since {
        None => format!("{} ({last})", place.place),
        Some(_) => {
            format!("{} FAILS since {} ({last}): {}", place.place, shown(&place.failing_since), place.problem)
        }
    }
}

/// What the keys cost that the authority's process made, by type.
fn costs(keys: &[KeyCost]) -> String {
    let mut types: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for cost in keys {
        let (generated, microseconds) = types.entry(&cost.algorithm).or_default();
        *generated += cost.generated;
        *microseconds += cost.cpu_microseconds;
    }
    let each = types.iter().map(|(algorithm, (generated, microseconds))| {
        format!("{generated} {algorithm} in {:.3} s", seconds(*microseconds))
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() {
        "none since the start".to_owned()
    } else {
        format!("{} since the start", each.join(", "))
    }
}

fn seconds(microseconds: u64) -> f64 {
    std::time::Duration::from_micros(microseconds).as_secs_f64()
}

/// Where the keys of a CA are, and what has to be done about it.
fn whereabouts(ca: &CaStatus) -> String {
    let places = ca.custodies.join(", ");
    if ca.custodies.iter().all(|place| *place == ca.configured_custody) {
        return places;
    }
    format!(
        "{places}; the configuration wants them in {}: sallyport admin ca rotate --type {}",
        ca.configured_custody, ca.kind
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_outside_the_module_is_named() {
        let mut cryptography = Cryptography { selection: "preset".to_owned(), ..Cryptography::default() };
        assert_eq!(source_of(&cryptography), "preset");
        let used = |primitive: &str, provider: &str, times, in_module| sallyport_wire::v1::CryptographyUse {
            primitive: primitive.to_owned(),
            provider: provider.to_owned(),
            times,
            in_module,
        };
        cryptography = Cryptography {
            selection: "fips".to_owned(),
            fips_module: "AWS-LC-FIPS 4.2.0".to_owned(),
            uses: vec![used("hash/sha-256", "aws-lc", 40, true), used("random", "aws-lc", 2, true)],
            requires_fips: true,
        };
        assert_eq!(
            source_of(&cryptography),
            "fips, required of hosts and clients: AWS-LC-FIPS 4.2.0, self-tests passed; 42 uses, outside of it none"
        );
        cryptography.uses.push(used("ssh/connection", "russh", 3, false));
        assert!(source_of(&cryptography).ends_with("; 42 uses, outside of it 3 ssh/connection by russh"));
    }

    #[test]
    fn keys_are_summed_by_type() {
        let cost = |purpose: &str, algorithm: &str, generated, cpu_microseconds| KeyCost {
            purpose: purpose.to_owned(),
            algorithm: algorithm.to_owned(),
            generated,
            cpu_microseconds,
        };
        let keys = [
            cost("host-ssh", "rsa-2048", 2, 130_000),
            cost("user-ca-ssh", "rsa-2048", 1, 70_500),
            cost("audit-checkpoint", "ed25519", 1, 40),
        ];
        assert_eq!(costs(&keys), "1 ed25519 in 0.000 s, 3 rsa-2048 in 0.201 s since the start");
        assert_eq!(costs(&[]), "none since the start");
    }
}
