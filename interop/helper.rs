//! The helper daemon: started by the first `ssh` that needs it, used by all, and never in the way.

use crate::support;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::support::{
    CLUSTER, Cluster, Helped, User, is_root, ok, ssh_command, stderr, stdout, target, wait_for,
};

fn profile(user: &User) -> PathBuf {
    user.home.join(user.proxy.replace(':', "_"))
}

fn status(user: &User) -> serde_json::Value {
    let output = ok(user.run(&["connect", "--status", "--format", "json"]));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn pid(user: &User) -> u64 {
    status(user)["pid"].as_u64().expect("a helper runs")
}

fn is_alive(pid: u64) -> bool {
    // A zombie has ended.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_gone(pid: u64) {
    wait_for("the helper to end", || (!is_alive(pid)).then_some(()));
}

#[test]
fn one_helper_serves_many_and_leaves_nothing_behind() {
    let (_cluster, alice) = Helped::with_node();
    let config = alice.0.ssh_config(&[]);
    let web = target("web-1");
    // A race of many: one is started, and all get through it.
    let racing: Vec<Child> = (0..50)
        .map(|number| {
            ssh_command(&config)
                .args([&web, &format!("echo {number}")])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (number, child) in racing.into_iter().enumerate() {
        assert_eq!(stdout(&ok(child.wait_with_output().unwrap())), format!("{number}\n"));
    }
    let status = status(&alice.0);
    assert_eq!(status["served"], 50, "{status}");
    // The profile follows its cluster once, which makes another connection.
    assert!(status["transports_made"].as_u64().unwrap() <= 2, "{status}");
    let pid = status["pid"].as_u64().unwrap();
    // It has left the terminal, the directory and the descriptors of the program that started it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!((fields[3], fields[4]), (pid.to_string().as_str(), "0"), "session and terminal: {stat}");
    // It is closed to its own account, but for root.
    if is_root() {
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), PathBuf::from("/"));
        for descriptor in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
            let to = fs::read_link(descriptor.unwrap().path()).unwrap_or_default();
            let to = to.to_string_lossy().into_owned();
            let fine = ["/dev/null", "socket:", "anon_inode:"].iter().any(|start| to.starts_with(start))
                || to.contains("/connect/");
            assert!(fine, "{to}");
        }
    } else {
        assert!(fs::read_dir(format!("/proc/{pid}/fd")).is_err());
    }
    // No other account gets in.
    let place = profile(&alice.0).join("connect");
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
    let socket = fs::metadata(place.join("socket")).unwrap();
    assert!(socket.file_type().is_socket() && socket.permissions().mode() & 0o777 == 0o600);
    // Its log names no key.
    let log = fs::read_to_string(place.join("log")).unwrap();
    assert!(log.contains("takes requests") && !log.contains("PRIVATE"), "{log}");
    // It ends when it is told to, after what is open.
    let mut open = alice.spawn(&[&web, "echo ready; cat"]);
    open.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    ok(alice.0.run(&["connect", "--stop"]));
    assert!(is_alive(pid) && !place.join("socket").exists());
    ok(alice.ssh(&[&web, "true"]));
    assert_ne!(self::pid(&alice.0), pid);
    open.stdin.as_mut().unwrap().write_all(b"still here\n").unwrap();
    let rest = open.wait_with_output().unwrap();
    assert_eq!(stdout(&ok(rest)), "still here\n");
    wait_gone(pid);
}

#[test]
fn words_and_exit_codes_are_those_of_a_direct_connection() {
    let (cluster, alice) = Helped::with_node();
    let config = alice.0.ssh_config(&[]);
    let both = |arguments: &[&str]| {
        let run = |setting: &str| {
            ssh_command(&config).args(arguments).env("SALLYPORT_CONNECT", setting).output().unwrap()
        };
        (run("off"), run("on"))
    };
    let nowhere = target("nowhere");
    let unknown = format!("no-such-login@web-1.{CLUSTER}");
    for arguments in [[nowhere.as_str(), "true"], [unknown.as_str(), "true"]] {
        let (direct, helped) = both(&arguments);
        assert_eq!(stderr(&direct), stderr(&helped));
        assert_eq!(direct.status.code(), helped.status.code());
    }
    // The same for our own client.
    let own = |setting: &str, node: &str| {
        alice.0.command(&["ssh", node, "true"]).env("SALLYPORT_CONNECT", setting).output().unwrap()
    };
    assert_eq!(stderr(&own("on", &nowhere)), stderr(&own("off", &nowhere)));
    ok(own("on", &target("web-1")));
    assert!(status(&alice.0)["served"].as_u64().unwrap() >= 4);
    // A login that has run out.
    let path = profile(&alice.0).join("profile.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["valid_until"] = "2020-01-01T00:00:00Z".into();
    let replace = |text: &str| {
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &path).unwrap();
    };
    replace(&value.to_string());
    let (direct, helped) = both(&[&target("web-1"), "true"]);
    assert!(stderr(&direct).contains("expired"), "{}", stderr(&direct));
    let first = |output: &Output| stderr(output).split(" expired ").next().unwrap().to_owned();
    assert_eq!(first(&direct), first(&helped));
    // A new login is taken up at once, by the helper that runs.
    replace(&text);
    let before = status(&alice.0);
    ok(alice.0.login(&[]));
    ok(alice.ssh(&[&target("web-1"), "true"]));
    let after = status(&alice.0);
    assert_eq!(after["pid"], before["pid"]);
    assert!(after["transports_made"].as_u64() > before["transports_made"].as_u64(), "{before} {after}");
    // When the proxy was restarted, it connects again.
    let mut cluster = cluster;
    cluster.services.take();
    let (direct, helped) = both(&[&target("web-1"), "true"]);
    assert_eq!(stderr(&direct), stderr(&helped));
    assert!(stderr(&helped).contains("cannot connect to 127.0.0.1"), "{}", stderr(&helped));
    cluster.start_services();
    cluster.wait_online("web-1");
    ok(alice.ssh(&[&target("web-1"), "true"]));
    assert_eq!(pid(&alice.0), after["pid"].as_u64().unwrap());
    // It ends with the login.
    ok(alice.0.run(&["logout"]));
    wait_gone(after["pid"].as_u64().unwrap());
    let helped = ssh_command(&config).args([&target("web-1"), "true"]).output().unwrap();
    assert!(stderr(&helped).contains("not logged in"), "{}", stderr(&helped));
    assert!(!profile(&alice.0).exists());
}

#[test]
fn the_helper_outlives_who_started_it_and_leaves_when_idle() {
    let (_cluster, alice) = Helped::with_node();
    let config = alice.0.ssh_config(&[]);
    // Ctrl-C reaches the whole process group of the ssh that started it.
    let mut first = ssh_command(&config)
        .args([&target("web-1"), "echo ready; sleep 60"])
        .env("SALLYPORT_CONNECT", "3s")
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    first.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let helper = pid(&alice.0);
    let killed = Command::new("kill").args(["-INT", "--", &format!("-{}", first.id())]).status().unwrap();
    assert!(killed.success());
    // Where this test runs in the background, its ssh has inherited to ignore that signal; the helper must not mind it.
    let _ = first.kill();
    first.wait().unwrap();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    assert_eq!(pid(&alice.0), helper);
    // The stream of an ssh that was killed is given up.
    wait_for("the stream to end", || (status(&alice.0)["streams"] == 0).then_some(()));
    wait_gone(helper);
    assert!(!profile(&alice.0).join("connect/socket").exists());
    // Whatever is in its place, ssh gets through.
    fs::write(profile(&alice.0).join("connect/socket"), "not a socket").unwrap();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    ok(alice.0.run(&["connect", "--stop"]));
    let off = ssh_command(&config)
        .args([&target("web-1"), "true"])
        .env("SALLYPORT_CONNECT", "off")
        .output()
        .unwrap();
    ok(off);
    assert_eq!(status(&alice.0), serde_json::Value::Null);
    // A place where it cannot be.
    let place = profile(&alice.0).join("connect");
    wait_for("the helper's directory to be free", || fs::remove_dir_all(&place).ok());
    fs::write(&place, "in the way").unwrap();
    ok(alice.ssh(&[&target("web-1"), "true"]));
}

#[test]
fn a_reader_that_stops_holds_up_no_other_session() {
    let (_cluster, alice) = Helped::with_node();
    let config = alice.0.ssh_config(&[]);
    let web = target("web-1");
    // Twenty that read nothing: more than the windows of one connection would hold for all.
    let mut stuck: Vec<Child> = (0..20)
        .map(|_| {
            let child = ssh_command(&config)
                .args([&web, "head -c 100000000 /dev/zero"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            child.unwrap()
        })
        .collect();
    wait_for("the streams", || (status(&alice.0)["streams"].as_u64() >= Some(20)).then_some(()));
    wait_still(pid(&alice.0));
    let mut child = alice.spawn(&[&web, "cat"]);
    let sample = vec![7; 5 << 20];
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let sample = sample.clone();
        move || input.write_all(&sample)
    });
    let output = ok(child.wait_with_output().unwrap());
    writer.join().unwrap().unwrap();
    assert!(output.stdout == sample);
    let memory = fs::read_to_string(format!("/proc/{}/status", pid(&alice.0))).unwrap();
    let resident: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
        .unwrap();
    // At most a window for each that is stuck, and the program itself.
    assert!(resident < 180 * 1024, "{resident} KiB");
    assert_eq!(status(&alice.0)["transports"], 1);
    for child in &mut stuck {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn strangers_and_nonsense_on_the_socket_change_nothing() {
    let (_cluster, alice) = Helped::with_node();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    let socket = profile(&alice.0).join("connect/socket");
    for bytes in
        [&b"SSH-2.0-x\r\n"[..], b"sally1\x01\x00\x06root\0x", b"sally1\x07\x00\x00", b"sally1\x01\xff\xff"]
    {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(bytes).unwrap();
        let mut said = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // Nothing is said to it, or that it should go alone.
        let _ = stream.read_to_end(&mut said);
        assert!(said.is_empty() || said == b"D", "{said:?}");
    }
    // Many that say nothing.
    let silent: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    drop(silent);
    if support::is_root() {
        // Another user, who was given a way past the directory, is refused by the helper and by the program.
        let open = |path: PathBuf| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        open(socket.clone());
        let mut path = socket.clone();
        let shared = std::env::temp_dir();
        while path.pop() && path != shared && path.as_os_str() != "/" {
            open(path.clone());
        }
        let program = format!(
            "import socket; s=socket.socket(socket.AF_UNIX); s.connect({:?})\n\
             try: s.send(b'sally1\\x02\\0\\0'); print(len(s.recv(9)))\n\
             except (ConnectionResetError, BrokenPipeError): print(0)",
            socket.to_str().unwrap()
        );
        let asked = Command::new("setpriv")
            .args(["--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", &program])
            .output()
            .unwrap();
        assert_eq!(stdout(&asked).trim(), "0", "{}", stderr(&asked));
    }
}

/// How many streams at once: four connections to the proxy, with 500 on each.
const STREAMS: usize = 2_000;

/// What `sallyport proxy ssh` does, without its process: hands two ends over the socket, and keeps the others.
struct Asked {
    helper: UnixStream,
    input: UnixStream,
    output: UnixStream,
}

impl Asked {
    fn new(socket: &std::path::Path) -> std::io::Result<Self> {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        use std::os::fd::AsFd;
        let helper = UnixStream::connect(socket)?;
        let ((input, theirs), (output, theirs_too)) = (UnixStream::pair()?, UnixStream::pair()?);
        let (login, node) = (target("web-1"), target("web-1"));
        let body = format!("{}\0{}", login.split_once('@').unwrap().0, node.split_once('@').unwrap().1);
        let mut request = b"sally1\x01".to_vec();
        request.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        request.extend(body.as_bytes());
        let descriptors = [theirs.as_fd(), theirs_too.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let bytes = [std::io::IoSlice::new(&request)];
        rustix::net::sendmsg(&helper, &bytes, &mut control, SendFlags::empty())?;
        helper.set_read_timeout(Some(Duration::from_secs(60)))?;
        output.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { helper, input, output })
    }

    /// The helper's word: taken, or connect alone.
    fn answer(&mut self) -> u8 {
        let mut byte = [0];
        self.helper.read_exact(&mut byte).unwrap();
        byte[0]
    }

    /// What the helper said at the end of a connection that it had taken.
    fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        let read = self.helper.read_to_end(&mut said);
        format!("{:?} ({read:?})", String::from_utf8_lossy(&said))
    }
}

#[test]
fn thousands_of_streams_share_one_helper() {
    let mut cluster = Cluster::with_proxy_settings("  limits:\n    sessions_per_user: 4000\n");
    cluster.add_node("web-1", "env: prod");
    let alice = Helped(cluster.add_user("alice", "access", &support::me()));
    ok(alice.ssh(&[&target("web-1"), "true"]));
    let socket = profile(&alice.0).join("connect/socket");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    // Several at a time: who does not log in has 30 s at the node.
    let began = std::time::Instant::now();
    let open: Vec<Asked> = std::thread::scope(|scope| {
        let opening = || {
            let one = |_| {
                let mut asked = Asked::new(&socket).unwrap();
                assert_eq!(asked.answer(), b'T');
                asked.input.write_all(b"SSH-2.0-many_1\r\n").unwrap();
                // The node has it: no more than eight wait for the node at a time.
                let mut greeting = [0; 8];
                let read = asked.output.read_exact(&mut greeting);
                assert!(read.is_ok(), "{read:?} after {:?}: {}", began.elapsed(), asked.last_words());
                assert_eq!(&greeting, b"SSH-2.0-");
                asked
            };
            (0..STREAMS / 8).map(one).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(opening)).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let (now, opened) = (status(&alice.0), began.elapsed());
    // The node ends those that have not logged in within 30 s. A machine that takes longer for all of them sees fewer at once.
    if opened < Duration::from_secs(25) {
        assert_eq!(now["streams"], STREAMS, "{now}, after {opened:?}");
        assert!(now["transports"].as_u64().unwrap() >= 4, "{now}");
    }
    assert!(now["served"].as_u64().unwrap() >= STREAMS as u64, "{now}, after {opened:?}");
    let transports = now["transports"].as_u64().unwrap();
    assert!(transports <= 6, "{now}");
    // Another one works as ever, with all of them there.
    let began = std::time::Instant::now();
    ok(alice.ssh(&[&target("web-1"), "true"]));
    let beside = began.elapsed();
    let memory = fs::read_to_string(format!("/proc/{}/status", pid(&alice.0))).unwrap();
    let resident: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())
        .unwrap();
    eprintln!(
        "{STREAMS} streams on {transports} connections within {opened:?}: {resident} KiB; another ssh takes {beside:?}"
    );
    assert!(resident < 100 * u64::try_from(STREAMS).unwrap(), "{resident} KiB");
    drop(open);
    wait_for("the streams to end", || (status(&alice.0)["streams"] == 0).then_some(()));
}

/// Waits until a process has nothing to do: it has computed nothing for three looks.
fn wait_still(pid: u64) {
    let (mut last, mut quiet) = (ticks(pid), 0);
    wait_for("the helper to be still", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = ticks(pid);
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
        (quiet == 3).then_some(())
    });
}

/// Processor time of a process so far, in hundredths of a second.
fn ticks(pid: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_helper_without_descriptors_left_sends_others_their_own_way() {
    let (_cluster, alice) = Helped::with_node();
    // Room for about forty streams.
    let program = "ulimit -n 200; exec \"$@\"";
    let started = alice.0.command(&["connect", "--idle", "1m"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", program, "sh"]).arg(started.get_program()).args(started.get_args());
    shell.envs(started.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ok(shell.output().unwrap());
    let socket = profile(&alice.0).join("connect/socket");
    let mut open: Vec<Asked> = Vec::new();
    while open.len() < 200 {
        let mut asked = Asked::new(&socket).unwrap();
        match asked.answer() {
            b'T' => open.push(asked),
            other => {
                assert_eq!(other, b'D');
                break;
            }
        }
    }
    let taken = open.len();
    assert!((20..60).contains(&taken), "{taken}");
    // A program that is not taken connects alone, and works.
    let web = target("web-1");
    ok(alice.ssh(&[&web, "true"]));
    assert_eq!(status(&alice.0)["streams"], taken);
    // So it is beside more than it can even hear, who cost it no processor time either.
    let helper = pid(&alice.0);
    let silent: Vec<UnixStream> = (0..300).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let before = ticks(helper);
    let config = alice.0.ssh_config(&[]);
    let alone = || {
        let mut ssh = ssh_command(&config);
        ssh.args([&web, "echo alone"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let racing: Vec<Child> = (0..10).map(|_| alone()).collect();
    for child in racing {
        assert_eq!(stdout(&ok(child.wait_with_output().unwrap())), "alone\n");
    }
    // What those who are silent would cost it, it would cost now.
    std::thread::sleep(Duration::from_secs(1));
    let spent = ticks(helper) - before;
    assert!(spent < 50, "{spent} hundredths of a second");
    drop(silent);
    wait_for("the helper to answer", || (status(&alice.0)["streams"] == taken).then_some(()));
    // Those that it has go on.
    for asked in &mut open {
        asked.input.write_all(b"SSH-2.0-many_1\r\n").unwrap();
        let mut greeting = [0; 8];
        asked.output.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"SSH-2.0-");
    }
    let log = fs::read_to_string(profile(&alice.0).join("connect/log")).unwrap();
    assert!(!log.contains("cannot"), "{log}");
    // And there is room again when they end.
    drop(open);
    wait_for("the streams to end", || (status(&alice.0)["streams"] == 0).then_some(()));
    let served = status(&alice.0)["served"].as_u64().unwrap();
    ok(alice.ssh(&[&web, "true"]));
    assert_eq!(status(&alice.0)["served"], served + 1);
}

#[test]
fn sessions_that_end_are_not_called_lost() {
    let (cluster, alice) = Helped::with_node();
    let web = target("web-1");
    for way in ["on", "off"] {
        ok(alice.0.command(&["ssh", &web, "true"]).env("SALLYPORT_CONNECT", way).output().unwrap());
        let stock =
            ssh_command(&alice.0.ssh_config(&[])).args([&web, "true"]).env("SALLYPORT_CONNECT", way).output();
        ok(stock.unwrap());
    }
    let count = |kind: &str| cluster.events().iter().filter(|event| event["kind"] == kind).count();
    wait_for("the ends", || (count("session.end") == 4).then_some(()));
    // One that comes later is on record later: what was to be said of the others has been said.
    ok(alice.0.command(&["ssh", &web, "true"]).env("SALLYPORT_CONNECT", "off").output().unwrap());
    wait_for("the last end", || (count("session.end") == 5).then_some(()));
    assert_eq!(count("session.lost"), 0);
}
