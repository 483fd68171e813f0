"""Frames of Longshore's worker protocol, written from docs/protocol.md: bytes to values and back.

A value of the protocol is plain Python: a struct is a dict, a list a list, an enum a string, or a dict with one key if its variant has
fields. Durations are whole nanoseconds, revisions are 32 hexadecimal digits, bytes are bytes, an absent option is None.

decode_order() and decode_report() raise BadFrame, with the close code, for every frame that the document says is to be refused.
"""

WIRE_FORMAT = 5
VERSION = 1

FRAME_BYTES_MAX = 1 << 20
FRAME_BYTES_AIM = 256 << 10
ENTRIES_MAX = 4096
INNER_ENTRIES_MAX = 4096
OUTPUT_BYTES_MAX = 64 << 10
OUTPUT_WINDOW = 256 << 10
CHUNK_WEIGHT = 64
OVERRIDES_BYTES_MAX = 512 << 10
INPUT_BYTES_MAX = 256 << 10
RESULT_BYTES_MAX = 64 << 10
RESULT_DEPTH_MAX = 127
TEXT_BYTES_MAX = 4096
NUMBER_MAX = (1 << 63) - 1
OFFSET_MAX = 1 << 53
SLOTS_MAX = 10_000
LABELS_MAX = 64
RESOURCES_MAX = 64
SECOND = 1_000_000_000
DURATION_MAX = 3660 * 86_400 * SECOND
SKIPPABLE_FROM = 128

TOO_LARGE = 1009
UNKNOWN_MESSAGE = 4002
MALFORMED = 4003
UNSUPPORTED_VERSION = 4005
INVALID_HELLO = 4006


class BadFrame(Exception):
    """A frame cannot be believed. `code` is what to close the connection with."""

    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


def ensure(holds, field, why):
    if not holds:
        raise BadFrame(MALFORMED, f"{field}: {why}")


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, count):
        end = self.at + count
        if end > len(self.data):
            raise BadFrame(MALFORMED, f"at byte {self.at}: it ends too early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def varint(self, width):
        """An unsigned number of at most `width` bytes."""
        first = self.take(1)[0]
        if first < 251:
            return first
        size = {251: 2, 252: 4, 253: 8, 254: 16}.get(first)
        if size is None or size > width:
            raise BadFrame(MALFORMED, f"at byte {self.at}: a number is wider than its field")
        return int.from_bytes(self.take(size), "little")


def put_varint(out, value):
    if value < 251:
        out.append(value)
        return
    for mark, size in ((251, 2), (252, 4), (253, 8), (254, 16)):
        if value < 1 << (8 * size):
            out.append(mark)
            out += value.to_bytes(size, "little")
            return
    raise ValueError(f"{value} is too large for a varint")


# Each type has read(reader) and write(out, value). The names in capitals below are the types of the document.


class Unsigned:
    """u16, u32, u64 by their bytes; `least` and `most` are what the document allows in a field."""

    def __init__(self, width, field="number", least=0, most=None):
        self.width = width
        self.field = field
        self.least = least
        self.most = most

    def read(self, reader):
        return self.check(reader.varint(self.width))

    def write(self, out, value):
        put_varint(out, self.check(value))

    def check(self, value):
        inside = self.least <= value and (self.most is None or value <= self.most)
        ensure(inside, self.field, f"{value} is not between {self.least} and {self.most}")
        return value


class WireFormat(Unsigned):
    """The first field of a Hello: what follows another revision cannot be read."""

    def check(self, value):
        if value != WIRE_FORMAT:
            raise BadFrame(UNSUPPORTED_VERSION, f"wire format {value}, not {WIRE_FORMAT}")
        return value


class Byte:
    """u8, or i8 if it is signed: the byte itself."""

    def __init__(self, field="number", signed=False, most=None):
        self.field = field
        self.signed = signed
        self.most = most

    def read(self, reader):
        return self.check(int.from_bytes(reader.take(1), "little", signed=self.signed))

    def write(self, out, value):
        out += self.check(value).to_bytes(1, "little", signed=self.signed)

    def check(self, value):
        ensure(self.most is None or value <= self.most, self.field, f"{value} is above {self.most}")
        return value


class ExitCode:
    """i32 in zigzag, -128 to 255."""

    def read(self, reader):
        coded = reader.varint(4)
        return self.check(-(coded + 1) // 2 if coded % 2 else coded // 2)

    def write(self, out, value):
        self.check(value)
        put_varint(out, value * 2 if value >= 0 else -value * 2 - 1)

    def check(self, value):
        ensure(-128 <= value <= 255, "exit_code", f"{value} is not between -128 and 255")
        return value


class Signed:
    """i64 in zigzag."""

    def read(self, reader):
        coded = reader.varint(8)
        return -(coded + 1) // 2 if coded % 2 else coded // 2

    def write(self, out, value):
        put_varint(out, value * 2 if value >= 0 else -value * 2 - 1)


class Bool:
    def read(self, reader):
        byte = reader.take(1)[0]
        if byte > 1:
            raise BadFrame(MALFORMED, f"at byte {reader.at}: a flag is neither 0 nor 1")
        return byte == 1

    def write(self, out, value):
        out.append(1 if value else 0)


class Text:
    """A string."""

    def read(self, reader):
        data = bytes(reader.take(reader.varint(8)))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise BadFrame(MALFORMED, f"at byte {reader.at}: a text is not UTF-8") from None

    def write(self, out, value):
        data = value.encode()
        put_varint(out, len(data))
        out += data


class Shown(Text):
    """A text for people: cut, never refused."""

    def read(self, reader):
        return cut(super().read(reader))

    def write(self, out, value):
        super().write(out, cut(value))


def cut(text):
    data = text.encode()
    if len(data) <= TEXT_BYTES_MAX:
        return text
    return data[: TEXT_BYTES_MAX - 3].decode(errors="ignore") + "…"


class Blob:
    """Bytes: counted, or always as many."""

    def __init__(self, size=None):
        self.size = size

    def read(self, reader):
        return bytes(reader.take(reader.varint(8) if self.size is None else self.size))

    def write(self, out, value):
        if self.size is None:
            put_varint(out, len(value))
        out += value


class Revision:
    """u128, as 32 hexadecimal digits."""

    def read(self, reader):
        return f"{reader.varint(16):032x}"

    def write(self, out, value):
        put_varint(out, int(value, 16))


class Duration:
    def __init__(self, field="duration"):
        self.field = field

    def read(self, reader):
        seconds, rest = reader.varint(8), reader.varint(4)
        if rest >= SECOND:
            raise BadFrame(MALFORMED, f"at byte {reader.at}: a duration overflows")
        return self.check(seconds * SECOND + rest)

    def write(self, out, value):
        self.check(value)
        put_varint(out, value // SECOND)
        put_varint(out, value % SECOND)

    def check(self, value):
        ensure(0 <= value <= DURATION_MAX, self.field, "more than ten years")
        return value


class Option:
    def __init__(self, inner):
        self.inner = inner

    def read(self, reader):
        return self.inner.read(reader) if BOOL.read(reader) else None

    def write(self, out, value):
        BOOL.write(out, value is not None)
        if value is not None:
            self.inner.write(out, value)


class List:
    """A list. The lists of a frame itself are bounded by ENTRIES_MAX together; those inside of an entry have a bound each."""

    def __init__(self, inner, field="entries", is_inner=False):
        self.inner = inner
        self.field = field
        self.is_inner = is_inner

    def read(self, reader):
        return [self.inner.read(reader) for _ in range(self.check(reader.varint(8)))]

    def write(self, out, value):
        put_varint(out, self.check(len(value)))
        for entry in value:
            self.inner.write(out, entry)

    def check(self, count):
        if self.is_inner:
            ensure(count <= INNER_ENTRIES_MAX, self.field, f"there are {count} entries")
        elif count > ENTRIES_MAX:
            raise BadFrame(TOO_LARGE, f"{count} {self.field} in a frame")
        return count


class Tuple:
    def __init__(self, *inner):
        self.inner = inner

    def read(self, reader):
        return [each.read(reader) for each in self.inner]

    def write(self, out, value):
        for each, part in zip(self.inner, value):
            each.write(out, part)


class Struct:
    """Fields in the order of the document's table. `rule` is what holds between them."""

    def __init__(self, rule=None, **fields):
        self.fields = fields
        self.rule = rule

    def read(self, reader):
        value = {name: inner.read(reader) for name, inner in self.fields.items()}
        if self.rule:
            self.rule(value)
        return value

    def write(self, out, value):
        if self.rule:
            self.rule(value)
        for name, inner in self.fields.items():
            inner.write(out, value[name])


class Enum:
    """Variants in the order of their indices: a name, or a name with the type of its fields."""

    def __init__(self, *variants):
        self.variants = [variant if isinstance(variant, tuple) else (variant, None) for variant in variants]
        self.indices = {name: index for index, (name, _) in enumerate(self.variants)}

    def read(self, reader):
        index = reader.varint(4)
        if index >= len(self.variants):
            raise BadFrame(MALFORMED, f"at byte {reader.at}: no such variant")
        name, inner = self.variants[index]
        return name if inner is None else {name: inner.read(reader)}

    def write(self, out, value):
        name = value if isinstance(value, str) else next(iter(value))
        index = self.indices[name]
        put_varint(out, index)
        inner = self.variants[index][1]
        if inner is not None:
            inner.write(out, value[name])


U16, U32, U64 = Unsigned(2), Unsigned(4), Unsigned(8)
BOOL, TEXT, SHOWN = Bool(), Text(), Shown()
PAIRS = List(Tuple(TEXT, TEXT), "pairs", is_inner=True)
TEXTS = List(TEXT, "texts", is_inner=True)
AMOUNTS = List(Tuple(TEXT, U32), "amounts", is_inner=True)
OFFSET = Unsigned(8, "offset", 0, OFFSET_MAX)

TOKEN = Struct(
    job=Unsigned(8, "token", 0, NUMBER_MAX),
    fence=Unsigned(8, "token", 0, NUMBER_MAX),
    nonce=U64,
)

RUNTIME = Enum("Docker", "Process", "Fake")
STREAM = Enum("Stdout", "Stderr")
AVAILABILITY = Enum("Available", ("Unavailable", SHOWN))
PHASE = Enum(
    "Backlog",
    ("Pulling", Struct(percent=Option(Byte("percent", most=100)), failures=U32)),
    "Starting",
    "Running",
    "Stopping",
    "Ended",
    "Unknown",
)
OUTCOME = Enum(
    "Succeeded",
    "Failed",
    "OomKilled",
    "TimedOut",
    "Cancelled",
    "PullFailed",
    "StartFailed",
    "HostFailed",
    "DaemonLost",
    "Lost",
    "Interrupted",
    "Released",
)


class Runtimes(List):
    """What a worker can run; each kind once."""

    def __init__(self):
        super().__init__(Tuple(RUNTIME, AVAILABILITY), "runtimes", is_inner=True)

    def read(self, reader):
        value = super().read(reader)
        kinds = [kind for kind, _ in value]
        ensure(len(set(kinds)) == len(kinds), "runtimes", "one is given twice")
        return value


RUNTIMES = Runtimes()


def intervals_fit(value):
    ensure(value["heartbeat"] >= SECOND // 100, "intervals.heartbeat", "below 10 ms")
    longest = max(value["heartbeat"], value["start_gate"])
    ensure(value["lease"] > longest, "intervals.lease", "it does not outlast the others")


INTERVALS = Struct(
    intervals_fit, heartbeat=Duration(), lease=Duration("intervals.lease"), start_gate=Duration()
)

def spec_fits(value):
    patterns = value["log_mask"]
    ensure(len(patterns) <= 16, "log_mask", "too many patterns")
    ensure(all(len(it.encode()) <= 512 for it in patterns), "log_mask", "a pattern is too long")
    ensure(len((value["input"] or "").encode()) <= INPUT_BYTES_MAX, "input", "too long")


VOLUME = Struct(source=TEXT, target=TEXT, read_only=BOOL)
CONTAINER_SPEC = Struct(
    spec_fits,
    runtime=RUNTIME,
    image=TEXT,
    entrypoint=Option(TEXTS),
    command=TEXTS,
    environment=PAIRS,
    working_dir=Option(TEXT),
    user=Option(TEXT),
    volumes=List(VOLUME, "volumes", is_inner=True),
    network=Option(TEXT),
    tmpfs=TEXTS,
    shm_bytes=Option(Unsigned(8, "shm_bytes", 1, 1 << 50)),
    read_only=BOOL,
    cap_add=TEXTS,
    cap_drop=TEXTS,
    init=BOOL,
    platform=Option(TEXT),
    labels=PAIRS,
    pull_policy=Enum("Always", "Missing", "Never"),
    pull_timeout=Duration("pull_timeout"),
    resources=Struct(cpus_milli=Option(U32), memory_bytes=Option(U64), pids=Option(U32), gpus=U32, custom=AMOUNTS),
    stop_signal=Option(TEXT),
    stop_grace=Duration("stop_grace"),
    ask_before_start=BOOL,
    self_fence=Option(Duration("self_fence")),
    log_bytes_max=U64,
    log_mask=TEXTS,
    input=Option(TEXT),
)
DEFINITION = Struct(revision=Revision(), name=TEXT, container=CONTAINER_SPEC)

ULIMIT = Struct(name=TEXT, soft=Signed(), hard=Signed())
CONTAINER_OPTIONS = Struct(
    hostname=Option(TEXT),
    extra_hosts=PAIRS,
    dns=TEXTS,
    dns_search=TEXTS,
    ulimits=List(ULIMIT, "ulimits", is_inner=True),
    group_add=TEXTS,
)


def overrides_fit(value):
    words = [word for pair in value["environment"] for word in pair] + value["args"] + [value["input"] or ""]
    total = sum(len(word.encode()) for word in words)
    ensure(total <= OVERRIDES_BYTES_MAX, "overrides", f"{total} bytes")


OVERRIDES = Struct(overrides_fit, environment=PAIRS, args=TEXTS, input=Option(TEXT))

REGISTRY_LOGIN = Struct(host=TEXT, username=TEXT, password=Blob())

SECRETS = Enum(
    (
        "Given",
        Struct(
            variables=List(Tuple(TEXT, Blob())),
            files=List(Tuple(TEXT, Blob())),
            masked=List(Blob()),
            registry=Option(REGISTRY_LOGIN),
        ),
    ),
    ("Withheld", SHOWN),
)

ASSIGNMENT = Struct(
    token=TOKEN,
    priority=Byte(signed=True),
    waited=Duration("waited"),
    revision=Revision(),
    overrides=Option(OVERRIDES),
    time_left=Option(Duration("time_left")),
    memory_bytes=Option(U64),
    secrets=Option(SECRETS),
    gpus=TEXTS,
)

STOP_CAUSE = Enum("Cancel", "Timeout", "Superseded", "Pinning", "Drain", "SelfFence")

ORDERS = {
    0: (
        "Welcome",
        Struct(
            version=U16, session=U64, epoch=U64, cluster=U32, worker=U64, intervals=INTERVALS, last_report=U64
        ),
    ),
    1: ("Definitions", List(DEFINITION)),
    2: ("Enqueue", List(ASSIGNMENT)),
    3: ("Reconciled", Struct(attempts=List(Tuple(TOKEN, Enum("Keep", "Stop", "Forget"))), last=BOOL)),
    4: ("Cancel", Struct(token=TOKEN, grace=Option(Duration("grace")), cause=STOP_CAUSE)),
    5: ("Recall", List(TOKEN)),
    6: ("Acknowledge", U64),
    7: ("Pulse", U64),
    8: (
        "Configure",
        Struct(slots=Option(Unsigned(4, "slots", 0, SLOTS_MAX)), drain=BOOL, intervals=Option(INTERVALS)),
    ),
    9: ("OutputAcknowledge", List(Struct(token=TOKEN, stream=STREAM, offset=OFFSET))),
    10: ("Refused", Struct(code=SHOWN, text=SHOWN, retry_after=Duration("retry_after"))),
    11: ("GoAway", Struct(reconnect_after=Duration("reconnect_after"), elsewhere=Option(TEXT))),
    12: ("ExtendedDefinitions", List(Struct(definition=DEFINITION, options=CONTAINER_OPTIONS))),
}


def numbered(entry):
    return Struct(first=Unsigned(8, "first", 1, NUMBER_MAX), list=List(entry))


def is_plain(text, least):
    """One line of at most 253 bytes without control characters."""
    controls = any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)
    return least <= len(text.encode()) <= 253 and not controls


def is_name(text, others="._-"):
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return 1 <= len(text) <= 63 and text[0] in letters and all(char in letters + others for char in text)


def hello_fits(value):
    versions = value["versions"]
    ensure(1 <= versions["lowest"] <= versions["highest"], "versions", "no range of versions from 1")
    ensure(is_name(value["name"]), "name", "1 to 63 of A-Z a-z 0-9 . _ - that begin with a letter or digit")
    ensure(value["engine"] is None or is_plain(value["engine"], 1), "engine", "no plain text")
    ensure(is_plain(value["version"], 1), "version", "no plain text")
    labels = value["labels"]
    ensure(len(labels) <= LABELS_MAX, "labels", f"there are {len(labels)}")
    ensure(all(is_plain(name, 1) and is_plain(text, 0) for name, text in labels), "labels", "no plain text")
    ensure(len({name for name, _ in labels}) == len(labels), "labels", "one is given twice")
    resources_fit("resources.gpus", value["resources"]["gpus"])
    resources_fit("resources.custom", [name for name, _ in value["resources"]["custom"]])


def resources_fit(field, names):
    ensure(len(names) <= RESOURCES_MAX, field, f"there are {len(names)}")
    ensure(all(is_name(name, "._:-") for name in names), field, "1 to 63 of A-Z a-z 0-9 . _ : -")
    ensure(len(set(names)) == len(names), field, "one is given twice")


HELLO = Struct(
    hello_fits,
    format=WireFormat(2),
    versions=Struct(lowest=U16, highest=U16),
    name=TEXT,
    secret=Blob(32),
    cluster=Option(U32),
    rejoin=BOOL,
    incarnation=U64,
    process=U64,
    engine=Option(TEXT),
    version=TEXT,
    slots=Unsigned(4, "slots", 0, SLOTS_MAX),
    backlog=Unsigned(4, "backlog", 0, SLOTS_MAX),
    labels=PAIRS,
    runtimes=RUNTIMES,
    resources=Struct(cpus_milli=Option(U32), memory_bytes=Option(U64), gpus=TEXTS, custom=AMOUNTS),
)


def failure_fits(value):
    ensure(value["outcome"] not in ("Succeeded", "Released"), "outcome", "it is no failure")


def result_fits(value):
    size = len((value["result"] or "").encode())
    ensure(size <= RESULT_BYTES_MAX, "result", f"{size} bytes")


def chunk_fits(value):
    length = chunk_length(value["data"])
    ensure(value["offset"] + length <= OFFSET_MAX, "offset", "it ends too far away")


def chunk_length(data):
    """How many bytes of the stream a chunk stands for."""
    return data["Gap"] if "Gap" in data else chunk_bytes(data)


def chunk_bytes(data):
    """How many bytes a chunk carries."""
    return 0 if "Gap" in data else len(next(iter(data.values())))


TIMES = {"ended_ago": Duration("ended_ago"), "ran": Option(Duration("ran"))}
LENGTHS = {
    "stdout": Unsigned(8, "output.stdout", 0, OFFSET_MAX),
    "stderr": Unsigned(8, "output.stderr", 0, OFFSET_MAX),
}
FIGURES = (
    "cpu_ms",
    "memory_peak_bytes",
    "network_received_bytes",
    "network_sent_bytes",
    "disk_read_bytes",
    "disk_written_bytes",
)
USAGE = Struct(**{name: Option(Unsigned(8, name, 0, OFFSET_MAX)) for name in FIGURES})
UNKNOWN_USAGE = dict.fromkeys(FIGURES)
SUCCESS = Struct(
    result_fits, token=TOKEN, **TIMES, **LENGTHS, result=Option(TEXT), note=Option(SHOWN), usage=USAGE
)
FAILURE = Struct(
    failure_fits,
    token=TOKEN,
    outcome=OUTCOME,
    exit_code=Option(ExitCode()),
    message=SHOWN,
    **TIMES,
    **LENGTHS,
    usage=USAGE,
)
CHUNK = Struct(
    chunk_fits,
    token=TOKEN,
    stream=STREAM,
    offset=OFFSET,
    data=Enum(("Bytes", Blob()), ("Replayed", Blob()), ("Gap", U64)),
)
PHASES = List(Tuple(TOKEN, PHASE))
FOREIGN = List(Struct(worker=U64, token=TOKEN))


def inventory_fits(value):
    if len(value["attempts"]) + len(value["foreign"]) > ENTRIES_MAX:
        raise BadFrame(TOO_LARGE, "too many entries in a frame")


REPORTS = {
    0: ("Hello", HELLO),
    1: ("Running", numbered(Struct(token=TOKEN, container=SHOWN, ago=Duration("ago")))),
    2: ("Success", numbered(SUCCESS)),
    3: ("Failure", numbered(FAILURE)),
    4: ("Inventory", Struct(inventory_fits, runtimes=RUNTIMES, attempts=PHASES, foreign=FOREIGN, last=BOOL)),
    5: (
        "Released",
        numbered(
            Struct(
                token=TOKEN,
                cause=Enum("Recalled", "Full", "Draining", "RuntimeUnavailable", "Policy", "Secrets"),
                why=SHOWN,
            )
        ),
    ),
    6: (
        "Heartbeat",
        Struct(number=U64, busy=U32, queued=U32, load_milli=Option(U32), disk_free_bytes=Option(U64)),
    ),
    7: ("Output", List(CHUNK)),
    8: ("Progress", PHASES),
    9: ("Status", PHASES),
    10: (
        "Condition",
        Struct(runtimes=RUNTIMES, slots=Unsigned(4, "slots", 0, SLOTS_MAX), draining=BOOL),
    ),
    11: ("Wanted", List(Revision())),
    12: ("Starting", numbered(TOKEN)),
    128: ("Foreign", FOREIGN),
    129: (
        "Usage",
        List(Struct(token=TOKEN, usage=USAGE, memory_bytes=Option(Unsigned(8, "memory_bytes", 0, OFFSET_MAX)))),
    ),
}


def decode_order(frame):
    return decode(ORDERS, frame)


def decode_report(frame):
    return decode(REPORTS, frame)


def encode_order(name, value):
    return encode(ORDERS, name, value)


def encode_report(name, value):
    return encode(REPORTS, name, value)


def decode(table, frame):
    """The name and the value of a message; None if its tag is unknown and may be skipped."""
    if len(frame) > FRAME_BYTES_MAX:
        raise BadFrame(TOO_LARGE, f"a frame of {len(frame)} bytes")
    if not frame:
        raise BadFrame(MALFORMED, "an empty frame")
    tag = frame[0]
    if tag not in table:
        if tag >= SKIPPABLE_FROM:
            return None
        raise BadFrame(UNKNOWN_MESSAGE, f"0x{tag:02x}")
    name, body = table[tag]
    reader = Reader(frame)
    reader.at = 1
    value = read_body(name, body, reader)
    if reader.at != len(frame):
        raise BadFrame(MALFORMED, f"{name} at byte {reader.at}: bytes are left over")
    if name == "Output" and sum(chunk_bytes(chunk["data"]) for chunk in value) > OUTPUT_BYTES_MAX:
        raise BadFrame(MALFORMED, "Output.data: too many bytes in a frame")
    return name, value


def read_body(name, body, reader):
    try:
        return body.read(reader)
    except BadFrame as refused:
        # A value of a Hello that is out of its range has a code of its own; bytes that are none have not.
        is_range = name == "Hello" and not str(refused).startswith("at byte")
        code = INVALID_HELLO if is_range and refused.code == MALFORMED else refused.code
        raise BadFrame(code, f"{name} {refused}") from None


def encode(table, name, value):
    for tag, (known, body) in table.items():
        if known == name:
            out = bytearray([tag])
            body.write(out, value)
            if len(out) > FRAME_BYTES_MAX:
                raise BadFrame(TOO_LARGE, f"{name} has {len(out)} bytes")
            return bytes(out)
    raise KeyError(name)
