//! What a rotation leaves to people: everything that holds a CA's public half or certificates and is not part of the
//! cluster.

use sallyport_ca::CaKind;
use sallyport_ca::rotation::{CaState, Phase};

/// The chores of a phase, a line each.
pub(crate) fn chores(state: &CaState) -> Vec<String> {
    let kind = state.kind();
    let lines: &[&str] = match (kind, state.rotation().phase) {
        (_, Phase::Standby) => &[],
        (CaKind::User, Phase::Init) => &[
            "OpenSSH servers that trust the user CA: add the new key to TrustedUserCAKeys: sallyport admin ca export \
             --type user --format openssh",
        ],
        (CaKind::User, Phase::UpdateClients | Phase::UpdateServers) => &[
            "users who run no sallyport command until the rotation ends have to log in again",
            "keep both keys in TrustedUserCAKeys until the rotation ends",
        ],
        (CaKind::User, Phase::Rollback) => &[
            "users who run no sallyport command until the rotation ends may have to log in again",
            "remove the new key from TrustedUserCAKeys when the rotation ends",
        ],
        (CaKind::Host, Phase::Init | Phase::UpdateClients) => &[
            "known_hosts files that were made by hand: add the new key: sallyport admin ca export --type host --format \
             known_hosts",
            "machines that trust the host CA for TLS: add the new certificate: sallyport admin ca export --type host \
             --format tls",
            "users who run no sallyport command before update_servers have to log in again, with the new pin",
            "join tokens and invite links from before name one pin only; make new ones for those not used yet",
        ],
        (CaKind::Host, Phase::UpdateServers) => &[
            "keep both keys in known_hosts files that were made by hand until the rotation ends",
            "give users who still hold the old pin the new one: sallyport admin status",
        ],
        (CaKind::Host, Phase::Rollback) => {
            &["remove the new key from known_hosts files that were made by hand when the rotation ends"]
        }
        (CaKind::Openssh, Phase::Init) => &[
            "OpenSSH servers registered with the cluster: add the new key to TrustedUserCAKeys: sallyport admin ca \
             export --type openssh --format openssh",
        ],
        (CaKind::Db, Phase::Init) => &[
            "database clients that verify servers by the db CA: add the new certificate: sallyport admin ca export \
             --type db --format tls",
        ],
        (CaKind::Db, Phase::UpdateClients | Phase::UpdateServers) => {
            &["database servers: sign their certificates again: sallyport admin auth sign --format db"]
        }
        (CaKind::DbClient, Phase::Init) => &[
            "database servers: trust the new certificate as well before update_clients: sallyport admin ca export \
             --type db_client --format tls",
        ],
        (CaKind::Jwt | CaKind::OidcIdp, Phase::Init) => &[
            "services that copied the JSON Web Keys instead of fetching /.well-known/jwks.json: give them the new ones",
            "stay in this phase for as long as services keep the fetched keys, often 24 h",
        ],
        (CaKind::Spiffe, Phase::Init) => &[
            "workloads of other trust domains: give them the new bundle: sallyport admin ca export --type spiffe --format \
             tls",
        ],
        (_, Phase::Rollback) => &[
            "whatever was signed by the new CA outside the cluster: sign it again, then forget the new CA there",
        ],
        (_, _) => &["keep both CAs trusted outside the cluster until the rotation ends"],
    };
    let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    let leaves_a_token =
        state.trusted().flat_map(sallyport_ca::AuthorityRecord::keys).any(|key| key.custody == "token");
    if leaves_a_token {
        lines.push(
            "the key pairs of the CA that is forgotten stay in the token; remove them there when no backup of the state \
             needs them"
                .to_owned(),
        );
    }
    lines
}
