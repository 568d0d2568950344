"""Bulk data through cat, both ways at once, until there were so many key exchanges."""
import sys, threading, time, warnings
warnings.simplefilter("ignore")
import paramiko

port, user, key, count, each = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
paramiko.Packetizer.REKEY_BYTES = each
rekeys = -1

class Transport(paramiko.Transport):
    def _activate_outbound(self):
        global rekeys
        rekeys += 1
        super()._activate_outbound()

transport = Transport(("127.0.0.1", port))
pkey = paramiko.Ed25519Key.from_private_key_file(key)
pkey.load_certificate(key + "-cert.pub")
transport.start_client(timeout=60)
transport.auth_publickey(user, pkey)
channel = transport.open_session()
channel.exec_command("cat")
block = bytes(range(256)) * 128
sent = 0

def send():
    global sent
    while rekeys < count:
        channel.sendall(block)
        sent += len(block)
    # Paramiko's reader waits for itself where the channel is closed during a key exchange: it is to begin no more.
    paramiko.Packetizer.REKEY_BYTES = 1 << 60
    while transport.packetizer.need_rekey() or not transport.clear_to_send.is_set():
        time.sleep(0.01)
    channel.shutdown_write()

sender = threading.Thread(target=send, daemon=True)
sender.start()
received = 0
while True:
    piece = channel.recv(1 << 16)
    if not piece:
        break
    at = received % 256
    assert piece == (block * (2 + len(piece) // len(block)))[at : at + len(piece)], "other bytes came back"
    received += len(piece)
sender.join()
assert received == sent, f"{received} of {sent} bytes came back"
assert channel.recv_exit_status() == 0
print(rekeys, received, "paramiko", paramiko.__version__)
