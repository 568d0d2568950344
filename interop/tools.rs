//! What people run over `ssh` every day: Ansible, rsync, git, tmux, VS Code Remote's bootstrap, multiplexing, `tail -f`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    CLUSTER, Cluster, Process, User, free_port, me, ok, read_until, ssh, ssh_command, stderr, stdout, target,
    wait_for,
};

/// What a playbook runs over.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) nodes: usize,
    /// How many Ansible speaks to at a time.
    pub(crate) forks: usize,
    /// Nodes of the run that copies its modules.
    pub(crate) few: usize,
}

fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env_remove("SSH_AUTH_SOCK").stdin(Stdio::null());
    command
}

fn shell(config: &Path) -> String {
    format!("ssh -F {} -o BatchMode=yes", config.display())
}

fn leave(user: &User) {
    let _ = user.run(&["connect", "--stop"]);
}

fn lines(child: &mut Child) -> BufReader<ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

/// Nodes of a playbook, by one token.
pub(crate) fn fleet(cluster: &mut Cluster, nodes: usize) {
    let token = cluster.token(&["--uses", &nodes.to_string()]);
    for number in 1..=nodes {
        let name = format!("n{number:02}");
        let config = cluster.node_config(&name, "env: prod", Some(&token));
        let process = cluster.spawn_node(&name, &config);
        cluster.nodes.push((name, process));
    }
}

/// Waits until a user sees all of them.
pub(crate) fn all_online(user: &User, nodes: usize) {
    wait_for("all nodes", || {
        let output = user.run(&["ls", "--query", "online", "--format", "names"]);
        (stdout(&output).lines().count() == nodes).then_some(())
    });
}

/// One run of the playbook; gives the time and what Ansible said.
fn play(
    cluster: &Cluster,
    name: &str,
    config: &Path,
    domain: &str,
    nodes: usize,
    scale: Scale,
) -> (Duration, Output) {
    let mut ansible = playbook(cluster, name, config, domain, nodes, scale);
    let began = Instant::now();
    let output = ansible.output().unwrap();
    (began.elapsed(), output)
}

/// The playbook, ready to run.
pub(crate) fn playbook(
    cluster: &Cluster,
    name: &str,
    config: &Path,
    domain: &str,
    nodes: usize,
    scale: Scale,
) -> Command {
    // Over all nodes by pipelining; over a few by copying every module there, which takes five times as long.
    let pipelining = nodes == scale.nodes;
    let directory = cluster.path(name);
    fs::create_dir_all(directory.join("cp")).unwrap();
    let work = cluster.path("work");
    let hosts: String = (1..=nodes).map(|number| format!("n{number:02}{domain}\n")).collect();
    fs::write(directory.join("hosts"), format!("[all]\n{hosts}")).unwrap();
    fs::write(
        directory.join("ansible.cfg"),
        format!(
            "[defaults]\ninventory = hosts\nforks = {}\nremote_user = {me}\nremote_tmp = {work}/tmp\nlocal_tmp = \
             {directory}/tmp\ninterpreter_python = /usr/bin/python3\ngathering = explicit\ntimeout = 60\nhost_key_checking = \
             True\n[ssh_connection]\nssh_args = -F {config} -o ControlMaster=auto -o ControlPersist=20s\n\
             control_path_dir = {directory}/cp\ncontrol_path = {directory}/cp/%%C\npipelining = {pipelining}\n\
             transfer_method = sftp\n",
            scale.forks,
            me = me(),
            work = work.display(),
            directory = directory.display(),
            config = config.display(),
        ),
    )
    .unwrap();
    fs::write(directory.join("greeting.j2"), "This is {{ inventory_hostname }}.\n").unwrap();
    fs::create_dir_all(&work).unwrap();
    fs::write(
        directory.join("play.yaml"),
        format!(
            "- hosts: all\n  tasks:\n    - copy: {{src: greeting.j2, dest: '{place}-copy'}}\n    - template: {{src: \
             greeting.j2, dest: '{place}'}}\n    - command: cat '{place}'\n      register: said\n      changed_when: \
             false\n    - assert: {{that: said.stdout == 'This is ' + inventory_hostname + '.'}}\n",
            place = work.join("{{ inventory_hostname }}").display()
        ),
    )
    .unwrap();
    let mut ansible = program("ansible-playbook");
    ansible
        .arg("play.yaml")
        .current_dir(&directory)
        .env("HOME", &directory)
        .env("ANSIBLE_CONFIG", directory.join("ansible.cfg"))
        .env("ANSIBLE_NOCOLOR", "1");
    ansible
}

#[test]
fn a_playbook_runs_over_more_nodes_than_it_has_forks() {
    runs_over(Scale { nodes: 5, forks: 3, few: 2 });
}

#[test]
fn a_playbook_runs_over_twenty_nodes() {
    runs_over(Scale { nodes: 20, forks: 10, few: 4 });
}

fn runs_over(scale: Scale) {
    let Scale { nodes: all, forks, few } = scale;
    let mut cluster = Cluster::bare();
    fleet(&mut cluster, all);
    let alice = cluster.add_user("alice", "access", &me());
    all_online(&alice, all);
    let config = alice.ssh_config(&[]);
    let domain = format!(".{CLUSTER}");
    for (name, nodes) in [("pipelined", all), ("files", few)] {
        let (took, output) = play(&cluster, name, &config, &domain, nodes, scale);
        let said = stdout(&ok(output));
        for number in 1..=nodes {
            let host = format!("n{number:02}{domain}");
            let summary = said.lines().find(|line| line.starts_with(&host) && line.contains("ok=")).unwrap();
            assert!(summary.contains("ok=4") && summary.contains("failed=0"), "{summary}");
            // The second run finds everything as it should be.
            let changed = if nodes == all { "changed=2" } else { "changed=0" };
            assert!(summary.contains(changed), "{summary}");
            let greeting = fs::read_to_string(cluster.path("work").join(&host)).unwrap();
            assert_eq!(greeting, format!("This is {host}.\n"));
        }
        eprintln!("ansible, {nodes} nodes, {forks} forks, {name}: {took:.1?}");
    }
    if std::env::var_os("SALLYPORT_TEST_COMPARE").is_some() {
        let (_sshd, config) = direct(&cluster);
        for (name, nodes) in [("direct-pipelined", all), ("direct-files", few)] {
            let (took, output) = play(&cluster, name, &config, ".direct", nodes, scale);
            ok(output);
            eprintln!("ansible against sshd itself, {nodes} nodes, {name}: {took:.1?}");
        }
    }
    leave(&alice);
}

/// A stock sshd that is every host of the name `*.direct`.
fn direct(cluster: &Cluster) -> (Process, PathBuf) {
    let directory = cluster.path("sshd");
    fs::create_dir(&directory).unwrap();
    for name in ["host", "user"] {
        ok(program("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(directory.join(name))
            .output()
            .unwrap());
    }
    let at = |name: &str| directory.join(name).display().to_string();
    let port = free_port();
    fs::write(
        directory.join("sshd_config"),
        format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes \
             no\nPermitRootLogin yes\nUsePAM no\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
            at("host"),
            at("user.pub")
        ),
    )
    .unwrap();
    let host_key = fs::read_to_string(directory.join("host.pub")).unwrap();
    fs::write(directory.join("known"), format!("direct {host_key}")).unwrap();
    let config = directory.join("ssh_config");
    fs::write(
        &config,
        format!(
            "Host *.direct\n  HostName 127.0.0.1\n  Port {port}\n  HostKeyAlias direct\n  UserKnownHostsFile {}\n  \
             IdentityFile {}\n  IdentitiesOnly yes\n",
            at("known"),
            at("user")
        ),
    )
    .unwrap();
    let sshd = Process::spawn(
        Command::new("/usr/sbin/sshd").arg("-D").arg("-e").arg("-f").arg(directory.join("sshd_config")),
        directory.join("log"),
    );
    wait_for("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
    (sshd, config)
}

#[test]
fn rsync_mirrors_both_ways_and_deletes() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let (here, there, back) = (cluster.path("here"), cluster.path("there"), cluster.path("back"));
    fs::create_dir_all(here.join("deep/er")).unwrap();
    for name in ["keep", "deep/change", "deep/er/remove", "a name with spaces"] {
        fs::write(here.join(name), name.repeat(5000)).unwrap();
    }
    std::os::unix::fs::symlink("keep", here.join("link")).unwrap();
    let remote = format!("{}:{}/", target("web-1"), there.display());
    let sync = |from: &str, to: &str| {
        ok(program("rsync").args(["-a", "--delete", "-e", &shell(&config), from, to]).output().unwrap())
    };
    let same = |one: &Path, other: &Path| {
        ok(program("diff").args(["-r", "--no-dereference"]).args([one, other]).output().unwrap());
    };
    let slash = |path: &Path| format!("{}/", path.display());
    sync(&slash(&here), &remote);
    same(&here, &there);
    fs::remove_dir_all(here.join("deep/er")).unwrap();
    fs::write(here.join("deep/change"), "changed").unwrap();
    fs::write(here.join("new"), "new").unwrap();
    sync(&slash(&here), &remote);
    same(&here, &there);
    assert!(!there.join("deep/er").exists());
    // The other way: what only the copy has goes.
    fs::create_dir(&back).unwrap();
    fs::write(back.join("stray"), "x").unwrap();
    sync(&remote, &slash(&back));
    same(&here, &back);
    leave(&alice);
}

#[test]
fn git_clones_fetches_and_pushes() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let git = |directory: &Path, arguments: &[&str]| {
        let output = program("git")
            .arg("-C")
            .arg(directory)
            .args(["-c", "user.name=Alice", "-c", "user.email=alice@example.com", "-c", "safe.directory=*"])
            .args(arguments)
            .env("GIT_SSH_COMMAND", shell(&config))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        stdout(&ok(output))
    };
    let (root, bare) = (cluster.path(""), cluster.path("repository.git"));
    git(&root, &["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()]);
    let url = format!("ssh://{}{}", target("web-1"), bare.display());
    git(&root, &["clone", "-q", &url, "one"]);
    let one = cluster.path("one");
    for number in 0..5 {
        fs::write(one.join(format!("file-{number}")), "x".repeat(100_000 * number)).unwrap();
        git(&one, &["add", "."]);
        git(&one, &["commit", "-q", "-m", &format!("change {number}")]);
    }
    git(&one, &["push", "-q", "origin", "HEAD:main"]);
    // As scp writes it, and shallow.
    let short = format!("{}:{}", target("web-1"), bare.display());
    git(&root, &["clone", "-q", "--depth", "2", "-b", "main", &short, "two"]);
    let two = cluster.path("two");
    assert_eq!(git(&two, &["log", "--format=%s"]), "change 4\nchange 3\n");
    fs::write(two.join("answer"), "42").unwrap();
    git(&two, &["add", "."]);
    git(&two, &["commit", "-q", "-m", "answer"]);
    git(&two, &["push", "-q", "origin", "HEAD:main"]);
    git(&one, &["pull", "-q", "--ff-only", "origin", "main"]);
    assert_eq!(fs::read_to_string(one.join("answer")).unwrap(), "42");
    leave(&alice);
}

#[test]
fn tmux_survives_the_connection() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    let socket = cluster.path("tmux");
    let tmux = format!("tmux -f /dev/null -S {}", socket.display());
    let attach = |command: &str| {
        ssh_command(&config)
            .args(["-tt", &web, &format!("{tmux} {command}")])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let run = |command: &str| ssh(&config, &[&web, &format!("{tmux} {command}")]);
    let shows = |text: &str| {
        wait_for(text, || stdout(&run("capture-pane -p -t work")).contains(text).then_some(()));
    };
    let mut first = attach("new-session -s work sh");
    wait_for("tmux", || run("has-session -t work").status.success().then_some(()));
    first.stdin.as_mut().unwrap().write_all(b"echo $((6*7)) is typed\n").unwrap();
    shows("42 is typed");
    // The connection breaks off in the middle.
    first.kill().unwrap();
    first.wait().unwrap();
    wait_for("the client to be detached", || stdout(&run("list-clients")).is_empty().then_some(()));
    ok(run("send-keys -t work 'echo still $((7*6))' Enter"));
    shows("still 42");
    // Attached again, and detached as people do: Ctrl-B, d.
    let mut second = attach("attach -t work");
    wait_for("the client", || (!stdout(&run("list-clients")).is_empty()).then_some(()));
    second.stdin.as_mut().unwrap().write_all(b"\x02d").unwrap();
    assert!(second.wait().unwrap().success());
    ok(run("has-session -t work"));
    ok(run("kill-server"));
    leave(&alice);
}

/// A connection through a SOCKS5 proxy (RFC 1928), as `-D` is one.
fn through_socks(proxy: u16, port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.write_all(&[5, 1, 0]).ok()?;
    stream.read_exact(&mut [0; 2]).ok()?;
    let [high, low] = port.to_be_bytes();
    stream.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low]).ok()?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).ok()?;
    (answer[1] == 0).then_some(stream)
}

/// What an HTTP server behind the proxy answers.
fn fetch(proxy: u16, port: u16) -> Option<String> {
    let mut stream = through_socks(proxy, port)?;
    stream.write_all(b"GET /version HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split("\r\n\r\n").nth(1).map(str::to_owned).filter(|body| !body.is_empty())
}

/// The steps of VS Code's Remote-SSH (with its local server): `ssh -T -D PORT HOST bash`, a script on standard input
/// that looks around, asks for the server to be brought, starts it detached and tells its port; the connection stays
/// open, everything else goes through the SOCKS proxy of `-D`. VS Code itself does not take part.
#[test]
fn the_steps_of_vs_code_remote_work() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    let home = cluster.path("vscode");
    let server = home.join("bin/server.py");
    let connect = |socks: u16| {
        ssh_command(&config)
            .args(["-T", "-D", &socks.to_string(), "-o", "ConnectTimeout=15", &web, "bash"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let script = format!(
        "echo 'mark: running'\nset -u\nuname -rms; printenv HOME >/dev/null || exit 1\nHOME_={home}\nmkdir -p \
         $HOME_/bin\nif [ ! -f {server} ]; then echo 'mark:trigger_server_download'; while [ ! -f {server}.done ]; do \
         sleep 0.1; done; fi\nif ! [ -f $HOME_/pid ] || ! kill -0 $(cat $HOME_/pid) 2>/dev/null; then\n  nohup setsid \
         python3 {server} > $HOME_/log 2>&1 < /dev/null &\n  echo $! > $HOME_/pid\nfi\nfor i in $(seq 200); do grep -q \
         'listening on' $HOME_/log && break; sleep 0.05; done\necho \"listeningOn==$(sed -n 's/listening on //p' \
         $HOME_/log)==\"\necho 'mark: end'\n",
        home = home.display(),
        server = server.display(),
    );
    let port_of = |line: &str| line.split("==").nth(1).and_then(|port| port.trim().parse::<u16>().ok());
    let socks = free_port();
    let mut main = connect(socks);
    // The script comes by standard input, and the shell stays for more.
    let mut input = main.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    let mut output = lines(&mut main);
    read_until(&mut output, "mark: running");
    read_until(&mut output, "mark:trigger_server_download");
    // Brought by another connection, through standard input.
    let source = "import http.server, socketserver\nclass H(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        \
                  self.send_response(200); self.end_headers(); self.wfile.write(b'server 1.0')\n    def log_message(self, \
                  *a): pass\nclass S(socketserver.ThreadingMixIn, http.server.HTTPServer): pass\ns = \
                  S(('127.0.0.1', 0), H)\nprint('listening on', s.server_address[1], flush=True)\ns.serve_forever()\n";
    let mut upload = ssh_command(&config)
        .args([&web, &format!("cat > {0} && touch {0}.done", server.display())])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    upload.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(upload.wait().unwrap().success());
    let mut line = String::new();
    while port_of(&line).is_none() {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the script ended early");
    }
    let port = port_of(&line).unwrap();
    // Many channels through the one connection at a time, short ones and some that stay.
    let staying: Vec<TcpStream> = (0..5).map(|_| through_socks(socks, port).unwrap()).collect();
    let fetching: Vec<_> = (0..20).map(|_| std::thread::spawn(move || fetch(socks, port))).collect();
    for thread in fetching {
        assert_eq!(thread.join().unwrap().unwrap(), "server 1.0");
    }
    // The shell is still there.
    input.write_all(b"echo alive $((1+1))\n").unwrap();
    read_until(&mut output, "alive 2");
    drop(staying);
    // The laptop is closed. The server stays, and the next window finds it.
    main.kill().unwrap();
    main.wait().unwrap();
    let socks = free_port();
    let mut main = connect(socks);
    let mut input = main.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    let mut output = lines(&mut main);
    read_until(&mut output, "mark: running");
    let mut line = String::new();
    while port_of(&line).is_none() {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the script ended early");
        assert!(!line.contains("trigger_server_download"));
    }
    assert_eq!(port_of(&line), Some(port));
    assert_eq!(fetch(socks, port).unwrap(), "server 1.0");
    input.write_all(format!("kill $(cat {}/pid)\nexit\n", home.display()).as_bytes()).unwrap();
    assert!(main.wait().unwrap().success());
    leave(&alice);
}

#[test]
fn one_connection_is_shared_by_control_master() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let web = target("web-1");
    let path = format!("ControlPath={}", cluster.path("mux").display());
    let with = |arguments: &[&str]| {
        let mut all = vec!["-o", path.as_str()];
        all.extend(arguments);
        ssh(&config, &all)
    };
    let mut master = ssh_command(&config)
        .args(["-o", &path, "-M", "-N", &web])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the master", || with(&["-O", "check", &web]).status.success().then_some(()));
    let many: Vec<_> = (0..8)
        .map(|number| {
            let (config, path, web) = (config.clone(), path.clone(), web.clone());
            std::thread::spawn(move || {
                ssh(&config, &["-o", &path, &web, &format!("echo {number}; exit {number}")])
            })
        })
        .collect();
    for (number, thread) in many.into_iter().enumerate() {
        let output = thread.join().unwrap();
        assert_eq!(output.status.code(), Some(i32::try_from(number).unwrap()), "{}", stderr(&output));
        assert_eq!(stdout(&output), format!("{number}\n"));
    }
    // They went through the one connection: all sessions come from one.
    let served = stdout(&alice.run(&["connect", "--status", "--format", "json"]));
    let served: serde_json::Value = serde_json::from_str(&served).unwrap();
    assert_eq!(served["served"], 1, "{served}");
    let local = free_port();
    let echo = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let behind = echo.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = echo.accept() {
            let _ = stream.write_all(b"hello");
        }
    });
    ok(with(&["-O", "forward", "-L", &format!("{local}:127.0.0.1:{behind}"), &web]));
    let mut text = String::new();
    TcpStream::connect(("127.0.0.1", local)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    ok(with(&["-O", "exit", &web]));
    master.wait().unwrap();
    leave(&alice);
}

#[test]
fn a_long_tail_follows_and_ends_with_its_reader() {
    let (cluster, alice) = Cluster::with_node();
    let config = alice.ssh_config(&[]);
    let file = cluster.path("log.txt");
    fs::write(&file, "first\n").unwrap();
    let mut tail = ssh_command(&config)
        .args([&target("web-1"), &format!("echo pid $$; exec tail -n +1 -f {}", file.display())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = lines(&mut tail);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let pid = line.trim().strip_prefix("pid ").unwrap().to_owned();
    read_until(&mut output, "first");
    for number in 0..20 {
        let mut log = fs::OpenOptions::new().append(true).open(&file).unwrap();
        writeln!(log, "line {number}").unwrap();
        let began = Instant::now();
        read_until(&mut output, &format!("line {number}"));
        // tail looks once a second where the system does not tell it.
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
    let stat = format!("/proc/{pid}/stat");
    wait_for("tail to end", || {
        fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    leave(&alice);
}
