"""A security key in software, behind a terminal: libfido2 opens any character device by its path, so that its own programs speak with
this one as with a key on USB (CTAP 2.0: CTAPHID, authenticatorGetInfo, ClientPIN with protocol 1, GetAssertion).

Reads one line from standard input, {"origin", "options", "pin"}: makes a passkey for these PublicKeyCredentialCreationOptionsJSON, as a
browser at that page would have it. Prints one line, {"device", "response"}: the path of the key and RegistrationResponseJSON. Then it is
a key, until standard input ends; for each assertion it prints a line.
"""
import base64, json, os, select, struct, sys, termios, tty

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

INIT, CBOR, CANCEL, BROADCAST, CHANNEL = 0x06, 0x10, 0x11, b"\xff" * 4, b"\0\0\0\1"
OK, INVALID_COMMAND, NO_CREDENTIALS = 0x00, 0x01, 0x2E
PIN_INVALID, PIN_BLOCKED, PIN_AUTH_INVALID, PIN_AUTH_BLOCKED, PIN_REQUIRED = 0x31, 0x32, 0x33, 0x34, 0x36
USER_PRESENT, USER_VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encoded(value):
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        size = 1 if number < 256 else 2 if number < 65536 else 4
        return bytes([major << 5 | {1: 24, 2: 25, 4: 26}[size]]) + number.to_bytes(size, "big")

    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(encoded, value))
    # As CTAP2 has it: shorter keys come first.
    entries = sorted((len(encoded(key)), encoded(key), encoded(one)) for key, one in value.items())
    return head(5, len(value)) + b"".join(key + one for _, key, one in entries)


def decoded(data, at=0):
    major, number = data[at] >> 5, data[at] & 31
    at += 1
    if number in (24, 25, 26):
        size = {24: 1, 25: 2, 26: 4}[number]
        number, at = int.from_bytes(data[at : at + size], "big"), at + size
    if major in (0, 1):
        return (number if major == 0 else -1 - number), at
    if major in (2, 3):
        text = data[at : at + number]
        return (text if major == 2 else text.decode()), at + number
    if major == 7:
        return {20: False, 21: True}.get(number), at
    many = [] if major == 4 else {}
    for _ in range(number):
        one, at = decoded(data, at)
        if major == 4:
            many.append(one)
        else:
            many[one], at = decoded(data, at)
    return many, at


def sha256(data):
    digest = hashes.Hash(hashes.SHA256())
    digest.update(data)
    return digest.finalize()


def numbers(key):
    public = key.public_key().public_numbers()
    return public.x.to_bytes(32, "big"), public.y.to_bytes(32, "big")


class Key:
    def __init__(self, pin):
        self.pin, self.left, self.in_a_row, self.count = pin, 8, 0, 0
        self.agreement, self.token = ec.generate_private_key(ec.SECP256R1()), os.urandom(32)

    def create(self, origin, options):
        self.rp_id, self.user = options["rp"]["id"], base64.urlsafe_b64decode(options["user"]["id"] + "==")
        self.id, self.key = os.urandom(32), ec.generate_private_key(ec.SECP256R1())
        x, y = numbers(self.key)
        cose = encoded({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        attested = bytes(16) + struct.pack(">H", len(self.id)) + self.id + cose
        data = self.data(self.rp_id, USER_PRESENT | USER_VERIFIED | ATTESTED) + attested
        said = {"type": "webauthn.create", "challenge": options["challenge"], "origin": origin, "crossOrigin": False}
        text = lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")
        statement = encoded({"fmt": "none", "attStmt": {}, "authData": data})
        return {
            "id": text(self.id),
            "rawId": text(self.id),
            "type": "public-key",
            "clientExtensionResults": {"credProps": {"rk": True}},
            "response": {
                "clientDataJSON": text(json.dumps(said).encode()),
                "attestationObject": text(statement),
                "transports": ["usb"],
            },
        }

    def data(self, rp_id, flags):
        return sha256(rp_id.encode()) + bytes([flags]) + struct.pack(">I", self.count)

    def information(self):
        options = {"rk": True, "up": True, "plat": False, "clientPin": True}
        return {1: ["FIDO_2_0"], 3: bytes(16), 4: options, 5: 1200, 6: [1]}

    def client_pin(self, asked):
        command = asked[2]
        if command == 1:
            return OK, {3: self.left}
        if command == 2:
            x, y = numbers(self.agreement)
            return OK, {1: {1: 2, 3: -25, -1: 1, -2: x, -3: y}}
        if command != 5:
            return INVALID_COMMAND, None
        if self.left == 0:
            return PIN_BLOCKED, None
        if self.in_a_row >= 3:
            return PIN_AUTH_BLOCKED, None
        other = asked[3]
        point = ec.EllipticCurvePublicNumbers(
            int.from_bytes(other[-2], "big"), int.from_bytes(other[-3], "big"), ec.SECP256R1()
        ).public_key()
        cipher = Cipher(algorithms.AES(sha256(self.agreement.exchange(ec.ECDH(), point))), modes.CBC(bytes(16)))
        decryptor = cipher.decryptor()
        if decryptor.update(asked[6]) + decryptor.finalize() != sha256(self.pin.encode())[:16]:
            self.left, self.in_a_row = self.left - 1, self.in_a_row + 1
            self.agreement = ec.generate_private_key(ec.SECP256R1())
            if self.left == 0:
                return PIN_BLOCKED, None
            return (PIN_AUTH_BLOCKED if self.in_a_row >= 3 else PIN_INVALID), None
        self.left, self.in_a_row = 8, 0
        encryptor = cipher.encryptor()
        return OK, {2: encryptor.update(self.token) + encryptor.finalize()}

    def assertion(self, asked):
        if asked[1] != self.rp_id:
            return NO_CREDENTIALS, None
        if 6 not in asked:
            return PIN_REQUIRED, None
        right = hmac.HMAC(self.token, hashes.SHA256())
        right.update(asked[2])
        if right.finalize()[:16] != asked[6]:
            return PIN_AUTH_INVALID, None
        self.count += 1
        data = self.data(self.rp_id, USER_PRESENT | USER_VERIFIED)
        signature = self.key.sign(data + asked[2], ec.ECDSA(hashes.SHA256()))
        print(json.dumps({"asserted": self.rp_id}), flush=True)
        return OK, {1: {"id": self.id, "type": "public-key"}, 2: data, 3: signature, 4: {"id": self.user}}

    def command(self, message):
        asked = decoded(message, 1)[0] if len(message) > 1 else {}
        status, answer = {
            0x02: self.assertion,
            0x04: lambda _: (OK, self.information()),
            0x06: self.client_pin,
        }.get(message[0], lambda _: (INVALID_COMMAND, None))(asked)
        return bytes([status]) + (encoded(answer) if answer else b"")


def whole(terminal, size):
    data = b""
    while len(data) < size:
        # Standard input ends with the test that started this.
        ready = select.select([terminal, sys.stdin], [], [])[0]
        if terminal not in ready:
            sys.exit(0)
        data += os.read(terminal, size - len(data))
    return data


def serve(key, terminal):
    while True:
        # A report of HID has its number first.
        packet = whole(terminal, 65)[1:]
        channel, command, length = packet[:4], packet[4] & 0x7F, int.from_bytes(packet[5:7], "big")
        message = packet[7:]
        while len(message) < length:
            message += whole(terminal, 65)[1:][5:]
        message = message[:length]
        if command == CANCEL:
            continue
        if command == INIT:
            answer = message[:8] + CHANNEL + bytes([2, 1, 0, 0, 0x0C])
        else:
            answer = key.command(message)
        first, rest = answer[:57], answer[57:]
        os.write(terminal, channel + bytes([command | 0x80]) + struct.pack(">H", len(answer)) + first.ljust(57, b"\0"))
        for number in range(0, len(rest), 59):
            part = rest[number : number + 59].ljust(59, b"\0")
            os.write(terminal, channel + bytes([number // 59]) + part)


def main():
    asked = json.loads(sys.stdin.readline())
    key = Key(asked["pin"])
    response = key.create(asked["origin"], asked["options"])
    terminal, device = os.openpty()
    tty.setraw(device)
    modes_ = termios.tcgetattr(device)
    # Packets are read whole.
    modes_[6][termios.VMIN], modes_[6][termios.VTIME] = 64, 0
    termios.tcsetattr(device, termios.TCSANOW, modes_)
    print(json.dumps({"device": os.ttyname(device), "response": response}), flush=True)
    serve(key, terminal)


main()
