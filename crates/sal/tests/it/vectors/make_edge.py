#!/usr/bin/env python3
"""Writes edge.json: signatures and keys at the edge of what a verifier may take, which published sets lack.

Every signature here satisfies the equation of its scheme; what is wrong is named beside it. The point is to see who
checks more than the equation. Needs nothing but Python; the numbers are drawn from a fixed seed, so that the file
comes out the same each time:

    python3 make_edge.py > edge.json
"""
import hashlib
import json
import random

rng = random.Random(20261121)
cases = {"ed25519": [], "shares": [], "p521": [], "rsa": []}

# ---- Ed25519 (RFC 8032 section 5.1) ----
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
IDENTITY = (0, 1)


def add(a, b):
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def times(k, point):
    out = IDENTITY
    while k:
        if k & 1:
            out = add(out, point)
        point = add(point, point)
        k >>= 1
    return out


def negated(point):
    return -point[0] % P, point[1]


def recover(y, sign):
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if x * x % P != square:
        return None
    return (x if x & 1 == sign else -x % P), y


def encode(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


BASE = recover(4 * pow(5, -1, P) % P, 0)
# A point of order 8: the rest of a random point after the prime order is taken out.
y = 2
while True:
    point = recover(y, 0)
    y += 1
    if point:
        T8 = times(L, point)
        if times(4, T8) != IDENTITY:
            break
TORSION = [times(k, T8) for k in range(8)]
ORDERS = [1, 8, 4, 8, 2, 8, 4, 8]


def challenge(r, a, message):
    return int.from_bytes(hashlib.sha512(r + a + message).digest(), "little") % L


def order_of(point):
    return next(n for n in (1, 2, 4, 8) if times(n, point) == IDENTITY)


def eddsa(name, why, public, message, signature, expect):
    cases["ed25519"].append({
        "name": name, "why": why, "public": public.hex(), "message": message.hex(),
        "signature": signature.hex(), "expect": expect,
    })


def draw():
    return rng.randrange(1, L)


def messages():
    while True:
        yield rng.randbytes(16)


secret = draw()
honest = times(secret, BASE)


def sign(message, key=secret, a=None, r=None):
    nonce = draw() if r is None else None
    r_bytes = encode(times(nonce, BASE)) if r is None else r
    a_bytes = encode(times(key, BASE)) if a is None else a
    k = challenge(r_bytes, a_bytes, message)
    return r_bytes + ((0 if nonce is None else nonce) + k * key).__mod__(L).to_bytes(32, "little")


eddsa("control", "an honest signature", encode(honest), b"control", sign(b"control"), "accept")

# Small-order keys, in every encoding that decodes to one: the canonical ones, those with y >= p, and those with the
# sign of an x that is zero. Any S makes a valid signature once k is a multiple of the order.
for index, point in enumerate(TORSION):
    spellings = [("canonical", encode(point))]
    if point[1] + P < 2**255:
        spellings.append(("y >= p", ((point[1] + P) | (point[0] & 1) << 255).to_bytes(32, "little")))
    for what, spelling in list(spellings):
        if point[0] == 0:
            flipped = spelling[:31] + bytes([spelling[31] ^ 0x80])
            spellings.append((what + ", sign of zero x", flipped))
    for what, spelling in spellings:
        s = draw()
        for message in messages():
            r = encode(times(s, BASE))
            if challenge(r, spelling, message) % 8 == 0:
                break
        eddsa(f"small-order key {index}T of order {ORDERS[index]}, {what}", "the key has no secret: anyone signs for it",
              spelling, message, r + s.to_bytes(32, "little"), "refuse")

# The neutral element as R: S = k * a, with no randomness in it. Then its other spellings.
for what, spelling in [
    ("canonical", encode(IDENTITY)),
    ("y >= p", (1 + P).to_bytes(32, "little")),
    ("sign of zero x", encode(IDENTITY)[:31] + b"\x80"),
    ("y >= p, sign of zero x", (1 + P | 1 << 255).to_bytes(32, "little")),
]:
    message = rng.randbytes(16)
    eddsa(f"small-order R, order 1, {what}", "R has no randomness, so that the signature gives the key away",
          encode(honest), message, sign(message, r=spelling), "refuse")
# Any other small order only satisfies the equation times the cofactor.
for index in (1, 2, 4):
    spelling = encode(TORSION[index])
    message = rng.randbytes(16)
    eddsa(f"small-order R, order {ORDERS[index]}", "holds only when multiplied by the cofactor (RFC 8032 section 8.8)",
          encode(honest), message, sign(message, r=spelling), "refuse")
# The same with an R of mixed order.
message = rng.randbytes(16)
nonce = draw()
r = encode(add(times(nonce, BASE), TORSION[1]))
s = (nonce + challenge(r, encode(honest), message) * secret) % L
eddsa("mixed-order R", "holds only when multiplied by the cofactor", encode(honest), message,
      r + s.to_bytes(32, "little"), "refuse")
# A key of mixed order: with k a multiple of 8 both equations hold, otherwise only the one with the cofactor.
mixed = encode(add(honest, TORSION[1]))
for wanted, expect in ((True, "same"), (False, "refuse")):
    for message in messages():
        signature = sign(message, a=mixed)
        if (challenge(signature[:32], mixed, message) % 8 == 0) == wanted:
            break
    eddsa(f"mixed-order key, equation holds {'without' if wanted else 'only with'} the cofactor",
          "a key that no honest generator makes", mixed, message, signature, expect)
# Small-order key and R together.
for message in messages():
    r = encode(TORSION[4])
    if add(times(challenge(r, encode(TORSION[1]), message), TORSION[1]), TORSION[4]) == IDENTITY:
        break
eddsa("small-order key and R", "a signature of no private key", encode(TORSION[1]), message,
      r + bytes(32), "refuse")
# S out of range: the same signature in other bytes.
honest_signature = sign(b"malleable")
s = int.from_bytes(honest_signature[32:], "little")
for factor in (1, 2, 7, 14):
    eddsa(f"S + {factor} L", "the same signature in other bytes (RFC 8032 section 5.1.7)", encode(honest), b"malleable",
          honest_signature[:32] + (s + factor * L).to_bytes(32, "little"), "refuse")
# S = 0 and S = L with R = -kA are what an implementation that adds unreduced scalars gets wrong; R is honest.
for message in messages():
    # R = -k A needs k before R: choose R as the neutral element instead, with k = 0 mod L impossible to hit. Use S = 0
    # with a small-order key, whose k * A vanishes.
    r = encode(IDENTITY)
    a = encode(TORSION[4])
    if challenge(r, a, message) % 2 == 0:
        break
eddsa("S = 0, R = 1, key of order 2", "all parts degenerate", a, message, r + bytes(32), "refuse")
eddsa("S = L, R = 1, key of order 2", "all parts degenerate, S out of range", a, message, r + L.to_bytes(32, "little"),
      "refuse")

# ---- Shares of ECDH with a coordinate that is not reduced ----
P256 = (2**256 - 2**224 + 2**192 + 2**96 - 1,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B)
P384 = (2**384 - 2**128 - 2**96 + 2**32 - 1,
        0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF)


def share(group, name, x, y, size, expect):
    cases["shares"].append({"group": group, "name": name,
                            "share": (b"\4" + x.to_bytes(size, "big") + y.to_bytes(size, "big")).hex(),
                            "expect": expect})


for group, (p, b), size in (("p256", P256, 32), ("p384", P384, 48)):
    x = 1
    while True:
        square = (x**3 - 3 * x + b) % p
        y = pow(square, (p + 1) // 4, p)
        if y * y % p == square:
            break
        x += 1
    share(group, f"x = {x}", x, y, size, "accept")
    share(group, f"x = {x} + p", x + p, y, size, "refuse")
    share(group, "on the twist", next(t for t in range(1, 99) if pow((t**3 - 3 * t + b) % p, (p - 1) // 2, p) != 1), y, size,
          "refuse")
    share(group, "zero", 0, 0, size, "refuse")

# ---- A P-521 key whose coordinate is not reduced (it fits, since 521 bits stand in 528) ----
p = 2**521 - 1
n = 0x01FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFA51868783BF2F966B7FCC0148F709A5D03BB5C9B8899C47AEBB6FB71E91386409
G = (0x00C6858E06B70404E9CD9E3ECB662395B4429C648139053FB521F828AF606B4D3DBAA14B5E77EFE75928FE1DC127A2FFA8DE3348B3C1856A429BF97E7E31C2E5BD66,
     0x011839296A789A3BC0045C8A5FB42C7D1BD998F54449579B446817AFBD17273E662C97EE72995EF42640C550B9013FAD0761353C7086A272C24088BE94769FD16650)


def weierstrass_add(a, b):
    if a is None:
        return b
    if b is None:
        return a
    if a[0] == b[0]:
        if (a[1] + b[1]) % p == 0:
            return None
        slope = (3 * a[0] * a[0] - 3) * pow(2 * a[1], -1, p)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, p)
    x = (slope * slope - a[0] - b[0]) % p
    return x, (slope * (a[0] - x) - a[1]) % p


def weierstrass_times(k, point):
    out = None
    while k:
        if k & 1:
            out = weierstrass_add(out, point)
        point = weierstrass_add(point, point)
        k >>= 1
    return out


def der_integer(value):
    body = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\2" + der_length(len(body)) + body


def der_length(length):
    if length < 128:
        return bytes([length])
    body = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(body)]) + body


def der_sequence(*parts):
    body = b"".join(parts)
    return b"\x30" + der_length(len(body)) + body


d, k = rng.randrange(1, n), rng.randrange(1, n)
q = weierstrass_times(d, G)
r = weierstrass_times(k, G)[0] % n
message = b"a coordinate that is not reduced"
e = int.from_bytes(hashlib.sha512(message).digest(), "big")
s = pow(k, -1, n) * (e + r * d) % n
for name, x, y, expect in (("control", *q, "accept"), ("x + p", q[0] + p, q[1], "refuse"),
                           ("y + p", q[0], q[1] + p, "refuse")):
    cases["p521"].append({"name": name, "public": (b"\4" + x.to_bytes(66, "big") + y.to_bytes(66, "big")).hex(),
                          "message": message.hex(),
                          "signature": der_sequence(der_integer(r), der_integer(s)).hex(), "expect": expect})


# ---- RSA ----
def is_prime(candidate):
    for small in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        if candidate % small == 0:
            return candidate == small
    odd, twos = candidate - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for _ in range(12):
        x = pow(rng.randrange(2, candidate - 1), odd, candidate)
        if x in (1, candidate - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % candidate
            if x == candidate - 1:
                break
        else:
            return False
    return True


def prime(bits, fits=lambda candidate: True):
    """A prime with its two highest bits set, 3 modulo 4."""
    while True:
        candidate = rng.getrandbits(bits) | 3 << (bits - 2) | 3
        if fits(candidate) and is_prime(candidate):
            return candidate


PREFIX = {"sha256": bytes.fromhex("3031300d060960864801650304020105000420")}


def pkcs1(message, size):
    t = PREFIX["sha256"] + hashlib.sha256(message).digest()
    return int.from_bytes(b"\0\1" + b"\xff" * (size - len(t) - 3) + b"\0" + t, "big")


def mgf1(seed, length, algorithm):
    out = b"".join(hashlib.new(algorithm, seed + i.to_bytes(4, "big")).digest() for i in range(length // 16))
    return out[:length]


def pss(message, bits, salt, mgf="sha256", trailer=0xBC, top=0):
    """The encoded message of RFC 8017 section 9.1.1, for a modulus of bits + 1 bits."""
    size = (bits + 7) // 8
    h = hashlib.sha256(bytes(8) + hashlib.sha256(message).digest() + salt).digest()
    db = bytes(size - len(salt) - 34) + b"\1" + salt
    masked = bytearray(a ^ b for a, b in zip(db, mgf1(h, len(db), mgf)))
    masked[0] &= 0xFF >> (8 * size - bits)
    masked[0] |= top
    return int.from_bytes(bytes(masked) + h + bytes([trailer]), "big")


def public_der(modulus, exponent):
    return der_sequence(der_integer(modulus), der_integer(exponent))


def rsa(name, why, public, message, signature, expect, algorithm="rsa-2048", scheme="rsa_pkcs1_sha256"):
    cases["rsa"].append({"name": name, "why": why, "algorithm": algorithm, "scheme": scheme, "public": public.hex(),
                         "message": message.hex(), "signature": signature.hex(), "expect": expect})


a, b = prime(1024), prime(1024)
modulus, phi = a * b, (a - 1) * (b - 1)


def root(value, exponent):
    """The exponent-th root modulo a * b, for an even exponent too when the value is a square."""
    roots = []
    for prime_factor in (a, b):
        x, rest = value % prime_factor, exponent
        while rest % 2 == 0:
            if pow(x, (prime_factor - 1) // 2, prime_factor) != 1:
                return None
            x = pow(x, (prime_factor + 1) // 4, prime_factor)
            rest //= 2
        if rest > 1:
            try:
                x = pow(x, pow(rest, -1, prime_factor - 1), prime_factor)
            except ValueError:
                return None
        roots.append(x)
    return (roots[0] * b * pow(b, -1, a) + roots[1] * a * pow(a, -1, b)) % modulus


def signed(exponent, tag=b""):
    for counter in range(1000):
        message = b"exponent " + str(exponent)[:20].encode() + tag + b" " + str(counter).encode()
        value = root(pkcs1(message, 256), exponent)
        if value is not None:
            return message, value.to_bytes(256, "big")
    raise SystemExit(f"no signature for exponent {exponent}")


def coprime(exponent):
    while True:
        try:
            pow(exponent, -1, phi)
            return exponent
        except ValueError:
            exponent += 2


message, signature = signed(65537)
control = public_der(modulus, 65537)
rsa("control", "an honest signature", control, message, signature, "accept")
rsa("exponent 1", "a signature is the padded message itself: anyone makes it", public_der(modulus, 1), *signed(1), "refuse")
rsa("exponent 2", "even: no such key has a private half", public_der(modulus, 2), *signed(2), "refuse")
rsa("exponent 131074", "even", public_der(modulus, 131074), *signed(131074), "refuse")
three = prime(1024, lambda c: c % 3 == 2)
a, keep = three, a
b_keep, b = b, prime(1024, lambda c: c % 3 == 2)
modulus_keep, modulus = modulus, a * b
rsa("exponent 3", "small, and in use in old certificates", public_der(modulus, 3), *signed(3), "same")
a, b, modulus = keep, b_keep, modulus_keep
for bits in (17, 32, 33, 34, 64, 65, 256, 2047):
    exponent = coprime((1 << (bits - 1)) + 0x10001 if bits > 17 else 65539)
    rsa(f"exponent of {exponent.bit_length()} bits", "large exponents make verification slow: a peer chooses the cost",
        public_der(modulus, exponent), *signed(exponent), "same")
exponent = coprime(modulus + 2)
rsa("exponent larger than the modulus", "no generator makes it (RFC 8017 section 3.1)", public_der(modulus, exponent),
    *signed(exponent), "refuse")

# Sizes that no name stands for, verified under the name of the nearest.
for bits in (2040, 2047, 2049, 2056):
    while True:
        c, e2 = prime(1024), 65537
        other = prime(bits - 1024)
        n2 = c * other
        if n2.bit_length() == bits and (c - 1) % e2 and (other - 1) % e2:
            break
    size = (bits + 7) // 8
    message = f"modulus of {bits} bits".encode()
    value = pow(pkcs1(message, size), pow(e2, -1, (c - 1) * (other - 1)), n2)
    rsa(f"modulus of {bits} bits as rsa-2048", "a size that the key's name does not stand for", public_der(n2, e2), message,
        value.to_bytes(size, "big"), "refuse")
# Sizes that are too small or too large, and that of the lab, as products of many primes to keep this quick.
for bits, name, expect in ((512, "rsa-1024", "refuse"), (1024, "rsa-1024", "accept"), (1024, "rsa-2048", "refuse"),
                           (16384, "rsa-8192", "refuse")):
    parts = [prime(256) for _ in range(bits // 256)]
    n2 = 1
    for part in parts:
        n2 *= part
    while n2.bit_length() != bits:
        parts[0] = prime(parts[0].bit_length() + bits - n2.bit_length())
        n2 = 1
        for part in parts:
            n2 *= part
    phi2 = 1
    for part in parts:
        phi2 *= part - 1
    message = f"modulus of {bits} bits".encode()
    value = pow(pkcs1(message, bits // 8), pow(65537, -1, phi2), n2)
    rsa(f"modulus of {bits} bits as {name}", "a size out of any range" if expect == "refuse" else "for the lab",
        public_der(n2, 65537), message, value.to_bytes(bits // 8, "big"), expect, name)
# An even modulus.
half = prime(2047)
n2 = 2 * half
if n2.bit_length() != 2048:
    raise SystemExit("size")
for counter in range(99):
    message = f"even modulus {counter}".encode()
    target = pkcs1(message, 256)
    value = pow(target, pow(65537, -1, half - 1), half)
    if value % 2 != target % 2:
        value += half
    if pow(value, 65537, n2) == target:
        break
else:
    raise SystemExit("even")
rsa("even modulus", "no two odd primes make it", public_der(n2, 65537), message, value.to_bytes(256, "big"), "refuse")

# Spellings of the key.
message, signature = signed(65537, b" key")
n_body = modulus.to_bytes(257, "big")
e_der = der_integer(65537)
spki_head = der_sequence(bytes.fromhex("06092a864886f70d010101"), b"\5\0")
bits_body = b"\0" + control
for name, public in (
    ("modulus with two leading zeros", der_sequence(b"\2" + der_length(258) + b"\0" + n_body, e_der)),
    ("negative modulus", der_sequence(b"\2" + der_length(256) + n_body[1:], e_der)),
    ("exponent with a leading zero", der_sequence(der_integer(modulus), b"\2\4\0\1\0\1")),
    ("bytes after the sequence", control + b"\0"),
    ("a third integer", der_sequence(der_integer(modulus), e_der, b"\2\1\0")),
    ("length in three bytes", b"\x30\x83\0" + control[2:4] + control[4:]),
    ("indefinite length", b"\x30\x80" + control[4:] + b"\0\0"),
    ("set instead of sequence", b"\x31" + control[1:]),
    ("SubjectPublicKeyInfo", der_sequence(spki_head, b"\3" + der_length(len(bits_body)) + bits_body)),
    ("exponent zero", public_der(modulus, 0)),
    ("negative exponent", der_sequence(der_integer(modulus), b"\2\1\xfb")),
    ("no exponent", der_sequence(der_integer(modulus))),
    ("empty", b""),
):
    rsa(f"key: {name}", "not the one DER encoding of RSAPublicKey", public, message, signature, "refuse")

# Spellings of the signature.
d_ = pow(65537, -1, phi)
counter = 0
while True:
    message = f"short {counter}".encode()
    value = pow(pkcs1(message, 256), d_, modulus)
    if value < 2**2040:
        break
    counter += 1
rsa("signature with its leading zero", "control of the next", control, message, value.to_bytes(256, "big"), "accept")
rsa("signature without its leading zero", "shorter than the modulus (RFC 8017 section 8.2.2)", control, message,
    value.to_bytes(255, "big"), "refuse")
rsa("signature with a further zero in front", "longer than the modulus", control, message, value.to_bytes(257, "big"), "refuse")
rsa("signature plus modulus", "not below the modulus (RFC 8017 section 5.2.2)", control, message,
    (value + modulus).to_bytes(256 if value + modulus < 2**2048 else 257, "big"), "refuse")
rsa("empty signature", "no bytes", control, message, b"", "refuse")

# PSS: only a salt of the digest's length, only the same hash in MGF1.
for name, why, keywords, length, expect in (
    ("PSS, salt of 32", "control", {}, 32, "accept"),
    ("PSS, salt of 0", "another salt length", {}, 0, "refuse"),
    ("PSS, salt of 20", "another salt length", {}, 20, "refuse"),
    ("PSS, salt of 33", "another salt length", {}, 33, "refuse"),
    ("PSS, salt of 222", "the longest salt that fits", {}, 222, "refuse"),
    ("PSS, MGF1 with SHA-1", "another hash in MGF1", {"mgf": "sha1"}, 32, "refuse"),
    ("PSS, MGF1 with SHA-512", "another hash in MGF1", {"mgf": "sha512"}, 32, "refuse"),
    ("PSS, trailer 0xcc", "the trailer of ISO 9796", {"trailer": 0xCC}, 32, "refuse"),
):
    message = name.encode()
    encoded = pss(message, 2047, rng.randbytes(length), **keywords)
    rsa(name, why, control, message, pow(encoded, d_, modulus).to_bytes(256, "big"), expect, scheme="rsa_pss_rsae_sha256")
for counter in range(999):
    message = f"PSS top bit {counter}".encode()
    encoded = pss(message, 2047, rng.randbytes(32), top=0x80)
    if encoded < modulus:
        break
rsa("PSS, highest bit set", "bits above emBits must be zero", control, message, pow(encoded, d_, modulus).to_bytes(256, "big"),
    "refuse", scheme="rsa_pss_rsae_sha256")
message = b"PKCS1 under PSS"
rsa("PKCS#1 v1.5 signature under PSS", "another padding", control, message,
    pow(pkcs1(message, 256), d_, modulus).to_bytes(256, "big"), "refuse", scheme="rsa_pss_rsae_sha256")

print("{")
print('  "source": "Made by make_edge.py beside this file.",')
for index, (name, entries) in enumerate(cases.items()):
    rows = ",\n".join("    " + json.dumps(entry) for entry in entries)
    print(f'  "{name}": [\n{rows}\n  ]' + ("," if index < len(cases) - 1 else ""))
print("}")
