#!/usr/bin/env python3
"""Verifies an exported ledger of Writ with a public key alone.

Written from docs/reference/ledger-format.md; nothing of Writ is needed, and nothing beyond Python 3.9's own library.
What it reads may be hostile: every line and file has a bound, rows are streamed, and all that is kept of them are the
roots of the complete subtrees, 32 bytes for each bit of their number.

Exit codes: 0 all is good, 9 something is wrong, 2 wrong usage.
"""

import argparse
import base64
import hashlib
import json
import re
import sys

GOOD, WRONG_USAGE, BAD = 0, 2, 9

# A payload has at most 8 MiB; what stands around it, less than 1 KiB.
MAX_ROW = 8 * 1024 * 1024 + 4096
# A head takes about 400 bytes.
MAX_HEAD_LINE = 8192
# One head for every 256 entries of a ledger with 25 million.
MAX_HEADS = 100_000
# A payload is a text in a proof: escaped, it has at most twice its length.
MAX_PROOF = 20 * 1024 * 1024
# Keys of one ledger, and the bytes of a file with them.
MAX_KEYS = 64
MAX_KEY_FILE = 8192
# Restores that are remembered; those after them excuse nothing.
MAX_RESTORES = 4096
# Rotations of the key that are remembered; those after them explain nothing.
MAX_ROTATIONS = 10_000
# Levels of a tree whose leaves are counted in 64 bits.
MAX_PATH = 64


class Bad(Exception):
    """Something that was given is not what it should be; `leaf` is the first bad leaf, where there is one."""

    def __init__(self, text, leaf=None):
        super().__init__(text)
        self.leaf = leaf


class Usage(Exception):
    """The command cannot be done as it was given."""


# --- Ed25519, RFC 8032, section 5.1: verification alone ---------------------------------------------------------------

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_OF_MINUS_1 = pow(2, (P - 1) // 4, P)
# Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
NEUTRAL = (0, 1, 1, 0)


def add(p, q):
    """The sum of two points; the formula holds for equal ones, too."""
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def negated(p):
    return (P - p[0], p[1], p[2], P - p[3])


def encoded(p):
    """The 32 bytes of a point: y, and the lowest bit of x."""
    inverse = pow(p[2], P - 2, P)
    x, y = p[0] * inverse % P, p[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def decoded(data):
    """The point of 32 bytes; None if there is none, or if it has another, canonical encoding."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    if y >= P:
        return None
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if (v * x * x - u) % P != 0:
        x = x * SQRT_OF_MINUS_1 % P
        if (v * x * x - u) % P != 0:
            return None
    if x == 0 and sign == 1:
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def has_small_order(p):
    """Whether eight times the point is the neutral one: such points fit signatures that nobody has made."""
    for _ in range(3):
        p = add(p, p)
    return p[0] == 0 and p[1] == p[2]


def multiples(p):
    """n * 16^i * p for every digit n and place i of 256 bits."""
    table = []
    for _ in range(64):
        row = [NEUTRAL]
        for _ in range(15):
            row.append(add(row[-1], p))
        table.append(row)
        p = add(row[-1], p)
    return table


BASE = multiples(decoded(bytes([0x58] + [0x66] * 31)))


class Key:
    """A public key. Raises ValueError for 32 bytes that are none."""

    def __init__(self, data):
        point = decoded(data) if len(data) == 32 else None
        if point is None or has_small_order(point):
            raise ValueError("this is no public key")
        self.data = data
        self.table = multiples(negated(point))

    def has_signed(self, message, signature):
        """Whether the signature over the message is this key's: S below L, R canonical and of no small order."""
        if len(signature) != 64:
            return False
        s = int.from_bytes(signature[32:], "little")
        r = decoded(signature[:32])
        if s >= L or r is None or has_small_order(r):
            return False
        digest = hashlib.sha512(signature[:32] + self.data + message).digest()
        k = int.from_bytes(digest, "little") % L
        # R = S * B - k * A
        found = NEUTRAL
        for place in range(64):
            found = add(found, BASE[place][s >> 4 * place & 15])
            found = add(found, self.table[place][k >> 4 * place & 15])
        return encoded(found) == signature[:32]


# --- The tree: RFC 6962, section 2.1 ----------------------------------------------------------------------------------


def sha256(*pieces):
    return hashlib.sha256(b"".join(pieces)).digest()


def node(left, right):
    return sha256(b"\x01", left, right)


class Tree:
    """A growing tree: the roots of its complete subtrees, the largest first, with their heights."""

    def __init__(self):
        self.size = 0
        self.roots = []

    def append(self, leaf):
        height = 0
        while self.roots and self.roots[-1][0] == height:
            leaf = node(self.roots.pop()[1], leaf)
            height += 1
        self.roots.append((height, leaf))
        self.size += 1

    def root(self):
        if not self.roots:
            return sha256(b"")
        root = self.roots[-1][1]
        for _, left in reversed(self.roots[:-1]):
            root = node(left, root)
        return root


def root_of_path(index, size, leaf, path):
    """The root that a leaf and the siblings on its way up lead to (RFC 9162, 2.1.3.2); None if they do not fit."""
    if index >= size:
        return None
    here, last = index, size - 1
    for sibling in path:
        if last == 0:
            return None
        if here & 1 or here == last:
            leaf = node(sibling, leaf)
            while here & 1 == 0 and here != 0:
                here, last = here >> 1, last >> 1
        else:
            leaf = node(leaf, sibling)
        here, last = here >> 1, last >> 1
    return leaf if last == 0 else None


# --- Heads: C2SP checkpoints in signed notes --------------------------------------------------------------------------

NUMBER = r"(?:0|[1-9][0-9]{0,19})"
ORIGIN = r"writ/[0-9A-HJKMNP-TV-Z]{26}"
NOTE = re.compile(
    rf"({ORIGIN})\n({NUMBER})\n([A-Za-z0-9+/]{{43}}=)\n\n\u2014 ({ORIGIN}) ([A-Za-z0-9+/]{{91}}=)\n"
)
HEAD_LINE = re.compile(rf'\{{"size":({NUMBER}),"root":"([0-9a-f]{{64}})","note":"([^"]{{1,1024}})"\}}')


class Head:
    """A signed head: of which ledger, over how many entries, and their root."""

    def __init__(self, note, keys):
        match = NOTE.fullmatch(note)
        if not match or match[1] != match[4]:
            raise Bad("it is no checkpoint")
        self.origin, self.size = match[1], int(match[2])
        self.root, blob = canonical_base64(match[3]), canonical_base64(match[5])
        text = f"{match[1]}\n{match[2]}\n{match[3]}\n".encode()
        if not any(key_id(self.origin, key) == blob[:4] and key.has_signed(text, blob[4:]) for key in keys):
            raise Bad("it is not signed by a key that was given")


def canonical_base64(text):
    data = base64.b64decode(text)
    if base64.b64encode(data).decode() != text:
        raise Bad("it has base 64 that is not canonical")
    return data


def key_id(name, key):
    return sha256(name.encode(), b"\n\x01", key.data)[:4]


def read_heads(path, keys):
    """The heads of a file, largest size first."""
    heads = []
    with opened(path) as file:
        for number, line in lines(file, MAX_HEAD_LINE):
            if line == b"\n":
                continue
            try:
                heads.append(head_of_line(line, keys))
            except Bad as bad:
                raise Bad(f"line {number + 1} of the heads: {bad}") from None
            if len(heads) > MAX_HEADS:
                raise Usage(f"more than {MAX_HEADS} heads")
    if not heads:
        raise Usage(f"{path} holds no head")
    return heads


def head_of_line(line, keys):
    match = HEAD_LINE.fullmatch(ended_text(line, MAX_HEAD_LINE))
    if not match:
        raise Bad("it is no head as an export writes it")
    head = Head(match[3].replace("\\n", "\n"), keys)
    if str(head.size) != match[1] or head.root.hex() != match[2]:
        raise Bad("its size and root are not those of its note")
    return head


# --- Rows -------------------------------------------------------------------------------------------------------------

TIME = r"(?:0|-?[1-9][0-9]{0,18})"
ULID = r"[0-7][0-9A-HJKMNP-TV-Z]{25}"
EVENT = r"[a-z][a-z0-9_]{0,63}"
# A row of an export has this form to the byte, so that there is nothing in it that is not checked.
ROW = re.compile(
    (
        rf'\{{"seq":(?P<seq>{NUMBER}),"at":(?P<at>{TIME}),"session":(?:null|"(?P<session>{ULID})"),'
        rf'"turn":(?:null|"(?P<turn>{ULID})"),"turn_number":(?P<turn_number>{NUMBER}),"event":"(?P<event>{EVENT})",'
        r'"commitment":"(?P<commitment>[0-9a-f]{64})","signature":"(?P<signature>[0-9a-f]{128})",'
        r'"leaf":"(?P<leaf>[0-9a-f]{64})",(?:"salt":"(?P<salt>[0-9a-f]{32})","erased":null,"payload":(?P<payload>.+)|'
        rf'"salt":null,"erased":(?:null|\{{"at":(?P<erased_at>{TIME}),"signature":"(?P<erased_by>[0-9a-f]{{128}})"\}}),'
        r'"payload":null)\}'
    ).encode()
)


def header(seq, at, session, turn, turn_number, event, commitment):
    """What is signed of a row; all arguments are bytes."""
    fields = (b"writ-entry-v1", seq, at, session, turn, turn_number, event, commitment)
    return b"\n".join(fields) + b"\n"


def commitment_to(salt, payload):
    return sha256(b"writ-payload-v1\n", salt, payload)


class Row:
    """A row that fits itself and is signed."""

    def __init__(self, line, seq, keys):
        line = ended(line, MAX_ROW)
        match = ROW.fullmatch(line)
        if not match:
            raise Bad("it is no row as an export writes it")
        field = {name: value or b"" for name, value in match.groupdict().items()}
        # Its own number is signed: whatever stands here instead was moved, repeated, or has lost those before it.
        if field["seq"] != b"%d" % seq:
            raise Bad(f"here stands entry {field['seq'].decode()}")
        text = header(*(field[name] for name in ("seq", "at", "session", "turn", "turn_number", "event", "commitment")))
        signature = unhex(field["signature"])
        self.leaf = sha256(b"\x00", text, signature)
        if self.leaf != unhex(field["leaf"]):
            raise Bad("its fields do not fit its leaf")
        self.check_payload(field, keys)
        self.signer = next((key for key in keys if key.has_signed(text, signature)), None)
        if self.signer is None:
            raise Bad("it is not signed by a key that was given")
        self.rotation = rotation_of(field["payload"]) if field["event"] == b"keyed" else None
        self.restore = restore_of(seq, field["payload"]) if field["event"] == b"restored" else None

    def check_payload(self, field, keys):
        """The payload is the one that was committed to, or its erasure is signed."""
        self.is_erased = not field["salt"]
        if not self.is_erased:
            if commitment_to(unhex(field["salt"]), field["payload"]) != unhex(field["commitment"]):
                raise Bad("its payload was changed")
            return
        if not field["erased_by"]:
            raise Bad("its payload is missing, and nobody has signed for that")
        text = b"\n".join((b"writ-erased-v1", field["seq"], self.leaf.hex().encode(), field["erased_at"])) + b"\n"
        if not any(key.has_signed(text, unhex(field["erased_by"])) for key in keys):
            raise Bad("its erasure is not signed by a key that was given")


def restore_of(seq, payload):
    """What an entry tells of a restore: the first entry that was lost, and how many, None if unknown."""
    try:
        told = plain_json(payload[:1024])
    except ValueError:
        return None
    if not isinstance(told, dict) or set(told) != {"event", "from", "lost", "epoch"} or told["from"] != seq:
        return None
    lost = told["lost"]
    return (seq, lost) if lost is None or isinstance(lost, int) else None


ROTATION = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{64}) ([0-9a-f]{128})")


def rotation_of(payload):
    """The keys that an entry says follow each other, as bytes, if the old one has signed for that."""
    if b'"change":"rotated"' not in payload:
        return None
    try:
        told = plain_json(payload[:1024])
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("role") != "harness" or told.get("change") != "rotated":
        return None
    match = ROTATION.fullmatch(told["grants"]) if isinstance(told.get("grants"), str) else None
    if not match:
        return None
    old, new, signature = (bytes.fromhex(word) for word in match.groups())
    text = f"writ-rotated-v1\n{match[1]}\n{match[2]}\n".encode()
    try:
        return (old, new) if old != new and Key(old).has_signed(text, signature) else None
    except ValueError:
        return None


# --- An export --------------------------------------------------------------------------------------------------------


class Export:
    """A walk over an export, and what was found on it."""

    def __init__(self, heads):
        self.tree = Tree()
        # The smallest last, so that the next one is popped.
        self.heads = sorted(heads, key=lambda head: -head.size)
        self.restores = []
        # How keys follow each other, and the one that signed the entry before.
        self.rotations, self.signer = [], None
        self.erased = self.good_heads = self.covered = self.given_up = 0

    def verify(self, file, keys):
        origins = {head.origin for head in self.heads}
        if len(origins) > 1:
            raise Bad("the heads are of several ledgers", 0)
        self.check_heads()
        for seq, line in lines(file, MAX_ROW):
            try:
                row = Row(line, seq, keys)
            except Bad as bad:
                raise Bad(f"entry {seq}: {bad}", seq) from None
            if row.rotation and len(self.rotations) < MAX_ROTATIONS:
                self.rotations.append(row.rotation)
            self.check_signer(row.signer.data, seq)
            self.erased += row.is_erased
            if row.restore and len(self.restores) < MAX_RESTORES:
                self.restores.append(row.restore)
            self.tree.append(row.leaf)
            self.check_heads()
        self.check_end()

    def check_signer(self, key, seq):
        """A key is followed by another only where it has signed for that one, and does not come back by itself."""
        at, left = key if self.signer is None else self.signer, list(self.rotations)
        while at != key:
            # A key that was rotated twice went on from the last time.
            step = next((step for step in reversed(left) if step[0] == at), None)
            if step is None:
                raise Bad(f"entry {seq}: it is signed with another key than those before, and none has signed for that", seq)
            left.remove(step)
            at = step[1]
        self.signer = key

    def check_heads(self):
        """The heads that end here have the root of the entries so far."""
        while self.heads and self.heads[-1].size == self.tree.size:
            head = self.heads.pop()
            if head.root == self.tree.root():
                self.good_heads, self.covered = self.good_heads + 1, head.size
            elif self.was_given_up(head.size):
                self.given_up += 1
            else:
                # Every row is signed: what was written again begins somewhere after the last good head.
                raise Bad(f"the head of {head.size} entries does not fit them: the past was written again", self.covered)

    def check_end(self):
        size = self.tree.size
        while self.heads:
            head = self.heads.pop()
            if not self.was_given_up(head.size):
                raise Bad(f"a signed head covers {head.size} entries, here are {size}", size)
            self.given_up += 1
        if size == 0 and not self.good_heads:
            raise Bad("there is no entry", 0)

    def was_given_up(self, size):
        """Whether a restore that the ledger tells of explains that a head of this size does not fit."""
        return any(size > first and (lost is None or size - first <= lost) for first, lost in self.restores)

    def told(self):
        size = self.tree.size
        yield f"ledger verified: entries {size}, heads {self.good_heads}, erased {self.erased}"
        for first, lost in self.restores:
            lost = "an unknown number of" if lost is None else lost
            yield f"known restore at entry {first}: {lost} later entries are missing, {self.given_up} heads with them"
        if self.covered < size:
            yield (
                f"no head covers the last {size - self.covered} entries: they are signed one by one, "
                "but others that were cut off behind them would not be missed"
            )


# --- A proof ----------------------------------------------------------------------------------------------------------

PROOF_FIELDS = {
    "seq": int, "at": int, "session": str, "turn": str, "turn_number": int, "event": str, "commitment": str,
    "salt": (str, type(None)), "payload": (str, type(None)), "signature": str, "path": list, "checkpoint": str,
}  # fmt: skip


def check_proof(data, keys):
    """Checks that an entry is in the ledger of a signed head; returns its number, the head, whether its payload is shown."""
    try:
        proof = plain_json(data)
    except ValueError as error:
        raise Bad(f"the proof is no JSON that can be read: {error}") from None
    if not isinstance(proof, dict) or set(proof) != set(PROOF_FIELDS):
        raise Bad("the proof has other fields")
    for name, kind in PROOF_FIELDS.items():
        if not isinstance(proof[name], kind) or isinstance(proof[name], bool):
            raise Bad(f"the proof's field {name} is malformed")
    for name, form in (("session", f"(?:{ULID})?"), ("turn", f"(?:{ULID})?"), ("event", EVENT)):
        if not re.fullmatch(form, proof[name]):
            raise Bad(f"the proof's field {name} is malformed")
    if proof["seq"] < 0 or proof["turn_number"] < 0 or len(proof["path"]) > MAX_PATH:
        raise Bad("the proof's numbers are out of range")
    try:
        head = Head(proof["checkpoint"], keys)
    except Bad as bad:
        raise Bad(f"the proof's checkpoint: {bad}") from None
    commitment, signature = bytes_of(proof, "commitment", 32), bytes_of(proof, "signature", 64)
    if (proof["salt"] is None) != (proof["payload"] is None):
        raise Bad("the proof has a payload without salt, or a salt without payload", proof["seq"])
    if proof["salt"] is not None:
        try:
            payload = proof["payload"].encode()
        except UnicodeEncodeError:
            raise Bad("the proof's field payload is malformed", proof["seq"]) from None
        if commitment_to(bytes_of(proof, "salt", 16), payload) != commitment:
            raise Bad("the payload does not fit the entry", proof["seq"])
    numbers = [b"%d" % proof[name] for name in ("seq", "at", "turn_number")]
    texts = [proof[name].encode() for name in ("session", "turn", "event", "commitment")]
    text = header(numbers[0], numbers[1], texts[0], texts[1], numbers[2], texts[2], texts[3])
    if not any(key.has_signed(text, signature) for key in keys):
        raise Bad("the entry is not signed by a key that was given", proof["seq"])
    path = [hex_bytes("path", sibling, 32) for sibling in proof["path"]]
    if root_of_path(proof["seq"], head.size, sha256(b"\x00", text, signature), path) != head.root:
        raise Bad("the entry is not in the ledger of this checkpoint", proof["seq"])
    return proof["seq"], head, proof["payload"] is not None


def bytes_of(proof, name, length):
    return hex_bytes(name, proof[name], length)


def hex_bytes(name, text, length):
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{2 * length}}}", text):
        raise Bad(f"the proof's field {name} is malformed")
    return bytes.fromhex(text)


# --- Reading what may be hostile --------------------------------------------------------------------------------------


def plain_json(data):
    """A value of JSON with short whole numbers alone and no name twice. Raises ValueError for anything else."""

    def number(text):
        if len(text) > 20:
            raise ValueError("a number is too long")
        return int(text)

    def refused(text):
        raise ValueError(f"{text[:20]} is no whole number")

    def once(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    try:
        return json.loads(
            data.decode(), parse_int=number, parse_float=refused, parse_constant=refused, object_pairs_hook=once
        )
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def opened(path):
    if path == "-":
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise Usage(f"{path!r} cannot be read: {error}") from None


def lines(file, longest):
    """Lines with their numbers from zero; of one that is longer than it may be, the beginning."""
    number = 0
    while True:
        line = file.readline(longest + 1)
        if not line:
            return
        yield number, line
        number += 1


def ended(line, longest):
    """A line without its end."""
    if len(line) > longest:
        raise Bad("its line is too long")
    if not line.endswith(b"\n"):
        raise Bad("its line was cut")
    return line[:-1]


def ended_text(line, longest):
    try:
        return ended(line, longest).decode()
    except UnicodeDecodeError:
        raise Bad("it is no UTF-8") from None


def unhex(digits):
    return bytes.fromhex(digits.decode())


def read_whole(path, longest):
    with opened(path) as file:
        data = file.read(longest + 1)
    if len(data) > longest:
        raise Usage(f"{path!r} has more than {longest} bytes")
    return data


def read_keys(given):
    """The keys that were given as hexadecimal text, or in files with one a line."""
    texts = []
    for value in given:
        if re.fullmatch("[0-9a-fA-F]{64}", value):
            texts.append(value)
        else:
            texts.extend(read_whole(value, MAX_KEY_FILE).decode("ascii", "replace").split())
    if not 0 < len(texts) <= MAX_KEYS or not all(re.fullmatch("[0-9a-fA-F]{64}", text) for text in texts):
        raise Usage(f"a key is 64 hexadecimal digits, or a file with at most {MAX_KEYS} such lines")
    try:
        return [Key(bytes.fromhex(text)) for text in texts]
    except ValueError as error:
        raise Usage(str(error)) from None


# --- The command ------------------------------------------------------------------------------------------------------


def arguments(argv):
    parser = argparse.ArgumentParser(description="Verify an exported ledger of Writ with a public key alone.")
    parser.add_argument("export", nargs="?", help="what `writ audit export` printed; - for standard input")
    parser.add_argument(
        "--key", action="append", required=True, metavar="HEX|FILE",
        help="the public key that must have signed, or a file with one a line; may be given again",
    )  # fmt: skip
    parser.add_argument("--heads", metavar="FILE", help="heads that were kept: `writ audit export --heads FILE`")
    parser.add_argument("--proof", metavar="FILE", help="a proof of one entry: `writ audit proof ID`")
    given = parser.parse_args(argv)
    if given.export is None and given.proof is None:
        parser.error("give an export, a proof, or both")
    if given.export is None and given.heads is not None:
        parser.error("heads are compared with an export")
    return given


def run(given):
    keys = read_keys(given.key)
    heads = read_heads(given.heads, keys) if given.heads is not None else []
    told = []
    if given.proof is not None:
        seq, head, shown = check_proof(read_whole(given.proof, MAX_PROOF), keys)
        shown = "with its payload" if shown else "its payload was erased"
        told.append(f"proven: entry {seq} is in the ledger {head.origin} of {head.size} entries, {shown}")
        heads.append(head)
    if given.export is not None:
        export = Export(heads)
        with opened(given.export) as file:
            export.verify(file, keys)
        told.extend(export.told())
    return told


def main(argv):
    given = arguments(argv)
    try:
        told = run(given)
    except Bad as bad:
        if bad.leaf is not None:
            print(f"first bad leaf: {bad.leaf}")
        print(f"does not verify: {bad}", file=sys.stderr)
        return BAD
    except (Usage, OSError) as error:
        print(f"cannot verify: {error}", file=sys.stderr)
        return WRONG_USAGE
    for line in told:
        print(line)
    return GOOD


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
