//! SSH clients that are not OpenSSH: AsyncSSH and PuTTY.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{CLUSTER, Cluster, PROGRAM, User, me, ok, stdout};

fn profile_file(user: &User, name: &str) -> PathBuf {
    fs::read_dir(&user.home)
        .unwrap()
        .map(|entry| entry.unwrap().path().join(name))
        .find(|path| path.exists())
        .expect("the profile's file")
}

/// Runs Debian's Python with a script, which names the package when it is missing.
#[test]
fn asyncssh_runs_commands_and_copies_files() {
    let (cluster, alice) = Cluster::with_node();
    let script = r#"
import asyncio, sys
try:
    import asyncssh
except ImportError:
    sys.exit("the package python3-asyncssh is missing: cargo xtask setup")

key, cert, known_hosts, proxy_command, host, user, source, target = sys.argv[1:]

async def main():
    client_key = (key, cert)
    async with asyncssh.connect(host, username=user, client_keys=[client_key], known_hosts=known_hosts,
                                agent_path=None, proxy_command=proxy_command) as connection:
        result = await connection.run("echo from asyncssh; exit 7")
        assert result.stdout == "from asyncssh\n", result.stdout
        assert result.exit_status == 7, result.exit_status
        async with connection.start_sftp_client() as sftp:
            await sftp.put(source, target)
            assert (await sftp.stat(target)).size == 1 << 20
    print("done")

asyncio.run(main())
"#;
    let (path, source, copied) = (cluster.path("client.py"), cluster.path("source"), cluster.path("copied"));
    fs::write(&path, script).unwrap();
    fs::write(&source, vec![7; 1 << 20]).unwrap();
    let proxy_command = format!(
        "{PROGRAM} --home {} --proxy {} proxy ssh {}@web-1:22",
        alice.home.display(),
        alice.proxy,
        me()
    );
    let output = Command::new("/usr/bin/python3")
        .arg(&path)
        .arg(profile_file(&alice, "ssh_key"))
        .arg(profile_file(&alice, "ssh_key-cert.pub"))
        .arg(profile_file(&alice, "known_hosts"))
        .arg(proxy_command)
        .arg(format!("web-1.{CLUSTER}"))
        .arg(me())
        .arg(&source)
        .arg(&copied)
        .output()
        .expect("run /usr/bin/python3");
    assert_eq!(stdout(&ok(output)), "done\n");
    assert_eq!(fs::read(&copied).unwrap(), fs::read(&source).unwrap());
}

#[test]
fn plink_runs_commands() {
    let (cluster, alice) = Cluster::with_node();
    let key = cluster.path("key.ppk");
    let converted = Command::new("puttygen")
        .arg(profile_file(&alice, "ssh_key"))
        .args(["-O", "private", "-o"])
        .arg(&key)
        .output()
        .expect("puttygen is missing: cargo xtask setup installs putty-tools");
    ok(converted);
    // PuTTY keeps host CAs in its configuration; for one connection the key's fingerprint says the same.
    let line = fs::read_to_string(profile_file(&alice, "known_hosts")).unwrap();
    let ca = line.split_whitespace().skip_while(|word| !word.starts_with("ssh-")).nth(1).unwrap().to_owned();
    let home = cluster.path("putty");
    fs::create_dir_all(home.join(".putty/sshhostcas")).unwrap();
    fs::write(home.join(".putty/sshhostcas/sallyport"), format!("PublicKey={ca}\nValidity=*\n")).unwrap();
    let proxy_command = format!(
        "{PROGRAM} --home {} --proxy {} proxy ssh {}@web-1:22",
        alice.home.display(),
        alice.proxy,
        me()
    );
    let output = Command::new("plink")
        .env("HOME", &home)
        .env_remove("XDG_CONFIG_HOME")
        .args(["-ssh", "-batch", "-noagent", "-i"])
        .arg(&key)
        .arg("-cert")
        .arg(profile_file(&alice, "ssh_key-cert.pub"))
        .args(["-proxycmd", &proxy_command])
        .arg(format!("{}@web-1.{CLUSTER}", me()))
        .arg("echo from plink")
        .output()
        .expect("plink is missing: cargo xtask setup installs putty-tools");
    assert_eq!(stdout(&ok(output)), "from plink\n");
}
