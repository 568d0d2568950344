//! The files of secrets that a configuration names.

use std::path::PathBuf;

use sallyport_sal::custody::token::{PinSource, TokenConfig};

use super::audit::{Bucket, Webhook};
use super::sections::{AuthSection, Config, HttpsFiles, JoinConfig, NodeSection, ProxySection};

impl Config {
    /// Every file of a secret that this process is configured with, of whichever service: no document of an administrator's has the authority
    /// read one of them for a server of others. A setting that names another such file belongs here.
    pub(crate) fn secret_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if let Some(AuthSection { ca_keys, audit, .. }) = &self.auth {
            let pins = ca_keys.tokens.values().map(|TokenConfig { pin, .. }| pin);
            files.extend(pins.filter_map(|pin| match pin {
                PinSource::File(path) => Some(path.clone()),
                PinSource::Value(_) | PinSource::Env(_) => None,
            }));
            if let Some(Webhook { token_file, endpoint: _, ca_file: _ }) = &audit.checkpoint_webhook {
                files.extend(token_file.clone());
            }
            if let Some(Bucket { credentials_file, endpoint: _, region: _, ca_file: _ }) =
                &audit.checkpoint_bucket
            {
                files.push(credentials_file.clone());
            }
        }
        if let Some(ProxySection { https, join, .. }) = &self.proxy {
            if let Some(HttpsFiles { key, certificate: _ }) = https {
                files.push(key.clone());
            }
            files.extend(token_file(join));
        }
        if let Some(NodeSection { join, pgpass, .. }) = &self.node {
            files.extend(token_file(join));
            files.extend(pgpass.clone());
        }
        files
    }
}

fn token_file(JoinConfig { token_file, token: _, ca_pin: _ }: &JoinConfig) -> Option<PathBuf> {
    token_file.clone()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_secret_is_named_and_no_other() {
        let text = "version: v1\ncluster: c\n\
             auth:\n  enabled: true\n  audit:\n    checkpoint_file: /etc/s/checkpoints\n    checkpoint_webhook: https://log.example/x\n    \
             checkpoint_webhook_token_file: /etc/s/webhook.token\n    checkpoint_webhook_ca_file: /etc/s/ca.pem\n    \
             checkpoint_bucket: {url: 'https://s3.example/b', credentials_file: /etc/s/bucket.credentials}\n  ca_keys:\n    tokens:\n      \
             one: {module: /lib/m.so, token: {label: one}, pin: {file: /etc/s/token.pin}}\n      \
             two: {module: /lib/m.so, token: {label: two}, pin: {env: PIN}}\n    keep: one\n\
             proxy:\n  enabled: true\n  https: {certificate: /etc/s/web.pem, key: /etc/s/web.key}\n\
             node:\n  enabled: true\n  pgpass: /etc/s/pgpass\n";
        let mut config = Config::parse("sallyport.yaml", text).unwrap();
        let mut named = config.secret_files();
        named.sort();
        let known = ["bucket.credentials", "pgpass", "token.pin", "web.key", "webhook.token"];
        assert_eq!(named, known.map(|name| PathBuf::from("/etc/s").join(name)));
        for join in [&mut config.proxy.as_mut().unwrap().join, &mut config.node.as_mut().unwrap().join] {
            join.token_file = Some("/etc/s/join.token".into());
        }
        assert_eq!(config.secret_files().len(), known.len() + 2);
    }
}
