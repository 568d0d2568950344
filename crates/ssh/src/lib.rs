//! The SSH node, its session core, the jump host and the SSH client.
