//! The file that `sallyport configure` prints.

pub(super) const EXAMPLE: &str = r#"# Sallyport configuration. Start with: sallyport start -c sallyport.yaml
# Lines that begin with '#' and a key show the default. Unknown keys are refused.
version: v1

# Name of this installation. It is part of every certificate and cannot change later.
cluster: example.com

# Keys, state, audit log, recordings. Mode 0700, owned by the user that runs sallyport.
# data_dir: /var/lib/sallyport

# To standard error.
# log:
#   level: info          # error, warn, info, debug, trace, or a filter: info,sallyport_ssh=debug
#   format: text         # or json

# /healthz, /readyz and /metrics in plain HTTP. Keep it on loopback or a private network.
diag_addr: 127.0.0.1:3081

# How long SIGTERM waits for open sessions before it ends them.
# drain_timeout: 30s

# Where cryptography comes from: which library serves which primitive. `sallyport sal report` shows the choice.
# crypto:
#   # measured (fastest here, by the profile that `sallyport sal tune` makes), preset (a built-in table), only (one
#   # library, named by provider) or fips. Default: measured where the profile is there and fits, else preset.
#   selection: preset
#   # provider: aws-lc                       # with selection: only
#   profile: /var/lib/sallyport/crypto.json  # default: crypto.json in data_dir
#   # overrides: { sign/ecdsa-p256: ring }   # single primitives
#   # With selection: fips, others must say the same of themselves: to the authority all hosts and clients, to a host the authority.
#   # require_fips: true                      # docs/fips.md
#   tls:
#     # In the order of preference; the first is sent with a key share.
#     groups: [X25519MLKEM768, x25519, secp256r1, secp384r1]
#     # Verified certificate chains need not be verified again for so long; or off.
#     remember_chains: 10m

# Traces of connections, for a collector of OpenTelemetry: those that are slow or fail. Without this section nothing is
# traced. docs/tracing.md.
# telemetry:
#   endpoint: http://127.0.0.1:4317        # OTLP over gRPC; https:// with ca_file
#   # ca_file: /etc/sallyport/collector-ca.pem
#   # service_name: sallyport
#   # slow: 1s                             # up to the first byte
#   # sample: 0                            # share of all others, 0 to 1

# The authority: certificate authorities, users, roles, audit log. Exactly one per cluster.
auth:
  enabled: true
  # Whether every user must enrol a one-time code generator: required or optional.
  # second_factor: required
  # How people prove who they are: docs/mfa.md. Without webauthn, passkeys are off.
  # authentication:
  #   prefer: passkey                      # password, passkey or browser; default: password
  #   headless: users                      # off, users or everyone: who may log in without a browser on the machine
  #   admin_factor: required               # off, enrolled or required: which administrators prove a factor; the socket asks for none
  #   passwords:
  #     enabled: true                      # false: passkeys and single sign-on alone
  #     min_strength: 3                    # of a new one: 0 to 4
  #     breached_list: /var/lib/pwned      # files of Have I Been Pwned; none is asked without it
  #     breached_list_required: false      # true: no password is set while the list cannot be read
  #   webauthn:
  #     rp_id: sallyport.example.org       # passkeys are bound to it for good
  #     origins: [https://sallyport.example.org]
  #     user_verification: required        # of new passkeys: required, preferred or discouraged
  #   devices: { allow_file_keys: false }  # whether a trusted device's key may be in a file: docs/devices.md
  # An address of its own, for proxies in other processes. Without it, an authority that shares its process with a
  # proxy is reached through that proxy only; one that runs alone listens on 0.0.0.0:3025.
  # listen: 10.0.0.5:3025
  # The suite of a new cluster: legacy, balanced-v1, fips-v1, hsm-v1 or pq-v1. A cluster that is there keeps its suite
  # until it is changed: sallyport admin suite set.
  # suite: balanced-v1
  # Where CA keys are made: sealed in data_dir, or in PKCS#11 tokens. A change moves a CA with its next rotation.
  # ca_keys:
  #   tokens:
  #     main:
  #       module: /usr/lib/softhsm/libsofthsm2.so
  #       token: { label: sallyport }           # or serial, or slot
  #       pin: { file: /etc/sallyport/token.pin } # mode 0600; or env
  #   keep: main                           # sealed or a token; default: the token where there is one
  #   keep_by_ca: { jwt: sealed }          # for single CAs
  # Where signed checkpoints of the audit log go, and what a host may report: docs/audit.md.
  # audit:
  #   checkpoint_file: /mnt/elsewhere/sallyport-checkpoints
  #   checkpoint_webhook: https://log.example.com/checkpoints
  #   checkpoint_webhook_token_file: /etc/sallyport/webhook.token   # mode 0600; sent as a bearer token
  #   checkpoint_bucket:                   # an object store that speaks S3
  #     url: https://s3.eu-central-1.amazonaws.com/BUCKET/PREFIX
  #     region: eu-central-1
  #     credentials_file: /etc/sallyport/s3.credentials             # mode 0600
  #   host_events_per_minute: 60000
  # How long certificates and tokens live, by kind: docs/certificates.md has the kinds and the limits.
  # lifetimes:
  #   user: { max: 24h }                   # roles bound users further
  #   database_server: { default: 30d, max: 90d }

# The proxy: the one address that users and agents dial, for everything.
proxy:
  enabled: true
  # listen: 0.0.0.0:3080
  # What users and agents type; several are allowed as a list. Default: the listen address or this machine's name.
  public_addr: proxy.example.com:3080
  # Clients far away come by QUIC, on the same port by UDP, where networks let it through: docs/carriers.md.
  # quic: true
  # limits:
  #   connections: 20000
  #   connections_per_address: 1000
  #   connections_per_user: 250
  #   handshake_timeout: 15s
  #   sessions_per_user: 200
  # A certificate that browsers trust, for the pages of the public address. Read again when the files change. Default:
  # the proxy's own certificate; under the suite pq-v1, which others cannot read, one that signs itself.
  # https: { certificate: /etc/sallyport/fullchain.pem, key: /etc/sallyport/privkey.pem }
  # When the authority runs elsewhere:
  # auth_server: auth.internal:3025
  # join:
  #   token_file: /etc/sallyport/proxy.token     # sallyport admin tokens add --role proxy
  #   ca_pin: sha256:...                         # printed with the token

# The node: SSH to this machine, through the proxy, with no open port.
node:
  enabled: true
  # Default: this machine's host name.
  # name: web-1
  # What roles select by.
  labels:
    env: prod
  # Further labels, from the output of commands: docs/node.md.
  # commands:
  #   - { name: kernel-flags, command: [cat, /proc/cmdline], period: 10m, timeout: 10s }
  # The proxy's public address. Default: the proxy in this process.
  # proxy_server: proxy.example.com:3080
  # carrier: tcp                           # or auto, or quic: docs/carriers.md
  # Only for the first start; not needed when authority and node share a process.
  # join:
  #   token_file: /etc/sallyport/node.token      # sallyport admin tokens add --role node
  #   ca_pin: sha256:...                         # printed with the token
  # Environment variables that clients may set.
  # allow_env: [LANG, LC_*]
  # Let ssh -R listen on other addresses than the loopback ones.
  # gateway_ports: false
  # Serve sallyport ssh and scp by the native protocol, too: docs/openssh.md.
  # native_door: true
  # Begin what sallyport ssh asks with its first bytes, when it has a ticket of this node, a round trip earlier: docs/node.md.
  # early_data: true
  # Enter sessions with a terminal into utmp, wtmp and lastlog, for who, last and lastlog.
  # login_records: true
  # End what a session left running (nohup, setsid, daemons) when it ends: docs/node.md.
  # kill_orphans: false
  # Ask PAM whether the account may be used, by a file of /etc/pam.d, such as sallyport. For builds with the feature pam.
  # pam_account: off
  # Refuse accounts whose password is locked (passwd -l), as sshd does without PAM. Expired ones are refused anyway: docs/node.md.
  # refuse_locked_accounts: false
  # Open a PAM session around each session, by runuser(1) and /etc/pam.d/runuser: docs/node.md.
  # pam_session: false
  # Connect for ssh -L to the proxy's address and to what this process listens on.
  # forwards_to_cluster: true
  # Databases that this agent serves, besides those that administrators name it for: docs/databases.md.
  # databases:
  #   - name: prod
  #     labels: { env: prod }
  #     address: db.internal:5432
  #     # tls: { mode: verify-full, server_name: db.internal, ca_file: /etc/sallyport/db-ca.pem }
  #     # login: certificate                   # or password, from the file below
  # Passwords for databases that take no certificate, as libpq's password file has them.
  # pgpass: /etc/sallyport/pgpass
  # How often each database and application that this agent serves is asked whether it answers.
  # check_interval: 1m
  # Disk for recordings and events that wait for the authority, in MiB.
  # spool_limit_mib: 2048
"#;
