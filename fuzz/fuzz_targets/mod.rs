//! The fuzz targets: each is a function of bytes from outside, which fails by a panic.
//!
//! The fuzzer's program (`fuzz/main.rs`) and the property tests (`interop/lab/fuzz_targets.rs`) run the same functions.

/// Makes the body of a target a function of bytes, with the first byte apart where the target wants a number.
macro_rules! fuzz_target {
    (|$data:ident: &[u8]| $body:block) => {
        pub(super) fn run($data: &[u8]) $body
    };
    (|$data:ident: (u8, &[u8])| $body:block) => {
        pub(super) fn run(bytes: &[u8]) {
            let Some((first, rest)) = bytes.split_first() else { return };
            let $data: (u8, &[u8]) = (*first, rest);
            $body
        }
    };
}

mod audit_line;
mod client_hello;
mod detect;
mod document_yaml;
mod event_json;
mod http_response;
mod inspect;
mod invite_link;
mod ip_packet;
mod jwt;
mod native_frame;
mod node_query;
mod oidc;
mod playback;
mod postgres_login;
mod postgres_message;
mod postgres_scram;
mod postgres_session;
mod postgres_startup;
mod read_private;
mod read_public;
mod recording_reader;
mod relay_header;
mod role_yaml;
mod scim;
mod sftp_client;
mod sftp_observer;
mod ssh;
mod ssh_certificate;
mod ssh_client;
mod ssh_host_key;
mod ssh_login;
mod ssh_offer;
mod ssh_pipelined;
mod ssh_server;
mod stream_header;
mod tls_answer;
mod trace_context;
mod tunnel_frame;
mod tunnel_state;
mod webauthn;
mod x509_certificate;

/// A target: takes an input, and panics where something is wrong with what it calls.
pub(crate) type Target = fn(&[u8]);

/// All targets, by name.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("audit_line", audit_line::run),
    ("client_hello", client_hello::run),
    ("detect", detect::run),
    ("document_yaml", document_yaml::run),
    ("event_json", event_json::run),
    ("http_response", http_response::run),
    ("inspect", inspect::run),
    ("invite_link", invite_link::run),
    ("ip_packet", ip_packet::run),
    ("jwt", jwt::run),
    ("native_frame", native_frame::run),
    ("node_query", node_query::run),
    ("oidc", oidc::run),
    ("playback", playback::run),
    ("postgres_login", postgres_login::run),
    ("postgres_message", postgres_message::run),
    ("postgres_scram", postgres_scram::run),
    ("postgres_session", postgres_session::run),
    ("postgres_startup", postgres_startup::run),
    ("read_private", read_private::run),
    ("read_public", read_public::run),
    ("recording_reader", recording_reader::run),
    ("relay_header", relay_header::run),
    ("role_yaml", role_yaml::run),
    ("scim", scim::run),
    ("sftp_client", sftp_client::run),
    ("sftp_observer", sftp_observer::run),
    ("ssh_certificate", ssh_certificate::run),
    ("ssh_client", ssh_client::run),
    ("ssh_host_key", ssh_host_key::run),
    ("ssh_login", ssh_login::run),
    ("ssh_offer", ssh_offer::run),
    ("ssh_pipelined", ssh_pipelined::run),
    ("ssh_server", ssh_server::run),
    ("stream_header", stream_header::run),
    ("tls_answer", tls_answer::run),
    ("trace_context", trace_context::run),
    ("tunnel_frame", tunnel_frame::run),
    ("tunnel_state", tunnel_state::run),
    ("webauthn", webauthn::run),
    ("x509_certificate", x509_certificate::run),
];
