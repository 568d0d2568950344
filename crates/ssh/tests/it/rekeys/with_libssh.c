/* Bulk data through cat, both ways at once, until there were so many key exchanges. */
#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long rekeys = -1;

static void heard(int priority, const char *function, const char *text, void *data) {
    (void)priority, (void)function, (void)data;
    if (strstr(text, "Received SSH_MSG_NEWKEYS") != NULL) rekeys++;
}

static void check(int fine, const char *what, ssh_session session) {
    if (!fine) {
        fprintf(stderr, "%s: %s\n", what, ssh_get_error(session));
        exit(1);
    }
}

int main(int count, char **words) {
    unsigned int port = (unsigned int)atoi(words[1]);
    long most = atol(words[4]);
    uint64_t each = strtoull(words[5], NULL, 10), sent = 0, received = 0;
    char path[4096], block[32768 + 256], back[65536];
    ssh_key key = NULL, certificate = NULL;
    ssh_session session = ssh_new();
    (void)count;
    for (size_t at = 0; at < sizeof block; at++) block[at] = (char)(at % 256);
    ssh_set_log_level(SSH_LOG_TRACE);
    ssh_set_log_callback(heard);
    ssh_options_set(session, SSH_OPTIONS_HOST, "127.0.0.1");
    ssh_options_set(session, SSH_OPTIONS_PORT, &port);
    ssh_options_set(session, SSH_OPTIONS_USER, words[2]);
    int off = 0;
    ssh_options_set(session, SSH_OPTIONS_PROCESS_CONFIG, &off);
    ssh_options_set(session, SSH_OPTIONS_REKEY_DATA, &each);
    check(ssh_connect(session) == SSH_OK, "connect", session);
    check(ssh_pki_import_privkey_file(words[3], NULL, NULL, NULL, &key) == SSH_OK, "key", session);
    snprintf(path, sizeof path, "%s-cert.pub", words[3]);
    check(ssh_pki_import_cert_file(path, &certificate) == SSH_OK, "certificate", session);
    check(ssh_pki_copy_cert_to_privkey(certificate, key) == SSH_OK, "certificate for key", session);
    check(ssh_userauth_publickey(session, NULL, key) == SSH_AUTH_SUCCESS, "log in", session);
    ssh_channel channel = ssh_channel_new(session);
    check(ssh_channel_open_session(channel) == SSH_OK, "open", session);
    check(ssh_channel_request_exec(channel, "cat") == SSH_OK, "exec", session);
    int over = 0;
    while (!over || received < sent) {
        if (!over) {
            uint32_t room = ssh_channel_window_size(channel), piece = room < 32768 ? room : 32768;
            if (piece > 0) {
                int wrote = ssh_channel_write(channel, block + sent % 256, piece);
                check(wrote > 0, "write", session);
                sent += (uint64_t)wrote;
            }
            over = rekeys >= most;
            if (over) ssh_channel_send_eof(channel);
        }
        int got = ssh_channel_read_timeout(channel, back, sizeof back, 0, over ? 60000 : 1);
        check(got >= 0 && (got > 0 || !over), "read", session);
        for (int at = 0; at < got; at++) {
            if (back[at] != (char)((received + (uint64_t)at) % 256)) {
                fprintf(stderr, "other bytes came back\n");
                return 1;
            }
        }
        received += (uint64_t)got;
    }
    printf("%ld %llu libssh %s\n", rekeys, (unsigned long long)received, ssh_version(0));
    return 0;
}
