"""Code of the standard library, every frame of it interpreted: larger programs than we would write."""

import _pydecimal
import argparse
import ast
import base64
import bisect
import calendar
import colorsys
import configparser
import contextlib
import csv
import datetime
import difflib
import email.message
import enum
import fnmatch
import fractions
import getopt
import graphlib
import heapq
import html.parser
import importlib.util
import inspect
import io
import ipaddress
import json
import json.decoder
import json.encoder
import locale
import logging
import numbers
import operator
import pathlib
import pprint
import queue
import random
import shlex
import statistics
import string
import sys
import tempfile
import textwrap
import tokenize
import traceback
import typing
import urllib.parse
import uuid

from interpreter.programs.registry import program

SOURCE = '''
@decorate(1, *a, k=2, **kw)
class C(Base, metaclass=M):
    """Doc."""
    x: int = 5
    def f(self, a, /, b=1, *args, c: str = "x", **kwargs) -> None:
        with open(f"{a!r:>{b}}") as f, g:
            return [x async for x in y if x] if a < b <= c else {**d, "k": lambda q: -q ** 2}
        try:
            raise E from None
        except (A, B) as e:
            del x[1:2, ...], y.z
        else:
            pass
        finally:
            global q
        match x:
            case {"a": [1, *_], **rest} | P(x=1) if ok: ...
async def g():
    async with a as b: await c
    x = yield (y := 3)
    for i, j in z: continue
    while not True: break
    assert x, "msg"
    import os.path as p, sys
    from . import q as r
'''


def python_version_of(name, *blocked):
    """A fresh copy of a module for which its accelerator in C does not exist."""
    saved = {b: sys.modules.pop(b, None) for b in (name, *blocked)}
    for b in blocked:
        sys.modules[b] = None
    try:
        spec = importlib.util.find_spec(name)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        for b, m in saved.items():
            if m is None:
                sys.modules.pop(b, None)
            else:
                sys.modules[b] = m


HEAPQ = python_version_of("heapq", "_heapq")
BISECT = python_version_of("bisect", "_bisect")
COLLECTIONS = python_version_of("collections", "_collections")
FUNCTOOLS = python_version_of("functools", "_functools")
OPERATOR = python_version_of("operator", "_operator")


@program()
def json_in_python():
    decoder = json.decoder.JSONDecoder()
    decoder.parse_object = json.decoder.JSONObject
    decoder.parse_array = json.decoder.JSONArray
    decoder.parse_string = json.decoder.py_scanstring
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    data = decoder.decode('{"a": [1, 2.5, null, true, "x\\n\\u00e9"], "b": {"c": []}}')
    encoder = json.encoder.JSONEncoder(indent=2, sort_keys=True)
    return (
        data,
        encoder.encode(data),
        "".join(json.encoder.JSONEncoder(indent=1).iterencode({"k": [1, {"z": None}]})),
    )


@program()
def json_errors():
    decoder = json.decoder.JSONDecoder()
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    decoder.decode('{"a": [1, 2')


@program()
def text_wrap():
    text = "The quick brown fox, jumping-over the lazy dog; again and again. " * 3
    w = textwrap.TextWrapper(width=40, initial_indent="* ", subsequent_indent="  ")
    return (
        w.wrap(text),
        textwrap.indent("a\nb\n", "> "),
        textwrap.dedent("   x\n     y\n"),
        textwrap.shorten(text, 50),
    )


@program()
def statistics_of_numbers():
    xs = [1, 2, 2, 3, 4.5, 10]
    return (
        statistics.mean(xs),
        statistics.median(xs),
        statistics.mode(xs),
        statistics.stdev(xs),
        statistics.pvariance(xs),
        statistics.quantiles(xs, n=4),
        statistics.harmonic_mean([1, 2, 4]),
        statistics.linear_regression([1, 2, 3], [2, 4, 7]),
        statistics.NormalDist(0, 1).cdf(1),
        statistics.fmean(xs),
        statistics.correlation([1, 2, 3], [1, 5, 7]),
    )


@program()
def fractions_arithmetic():
    F = fractions.Fraction
    a, b = F(3, 4), F("5/6")
    out = [
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**2,
        -a,
        abs(-b),
        a < b,
        float(a),
        int(b),
        round(F(7, 2)),
        F(0.5),
        a + 1,
        2 * b,
        1.5 + a,
    ]
    out += [
        F(3.1415).limit_denominator(100),
        sum([a, b]),
        max(a, b),
        hash(F(2)) == hash(2),
        divmod(b, a),
        str(a),
        f"{a}",
    ]
    try:
        F(1, 0)
    except ZeroDivisionError as e:
        out.append(str(e))
    return [str(o) for o in out]


@program()
def decimals_in_python():
    D = _pydecimal.Decimal
    with _pydecimal.localcontext() as ctx:
        ctx.prec = 30
        out = [
            D(1) / D(7),
            D("2").sqrt(),
            D("1.5") ** 3,
            D("1e10").ln(),
            D("3.14").quantize(D("0.1")),
            D("-0"),
            D("NaN") == D("NaN"),
            D(5) // D(3),
            D(5) % D(3),
        ]
        out += [
            D("1.23E+5"),
            D("123.456").normalize(),
            D("0.1") + D("0.2"),
            D(10).exp(),
            D("1234.5").to_eng_string(),
            f"{D('1234.567'):,.2f}",
            D(3).compare(D(4)),
        ]
        try:
            D(1) / D(0)
        except _pydecimal.DivisionByZero as e:
            out.append(type(e).__name__)
        try:
            D("abc")
        except _pydecimal.InvalidOperation as e:
            out.append(str(e))
    return [str(o) for o in out]


@program()
def differences():
    a, b = "one two three four".split(), "zero one tree four five".split()
    m = difflib.SequenceMatcher(None, "abcd efgh", "abxd efh")
    return (
        list(difflib.unified_diff(a, b, lineterm="")),
        list(difflib.ndiff(a, b)),
        m.ratio(),
        m.get_opcodes(),
        difflib.get_close_matches("appel", ["ape", "apple", "peach"]),
        "".join(difflib.restore(difflib.ndiff(["x"], ["y"]), 1)),
    )


@program()
def heap_in_python():
    items = [5, 3, 8, 1, 9, 2]
    heap = list(items)
    HEAPQ.heapify(heap)
    HEAPQ.heappush(heap, 0)
    out = [HEAPQ.heappop(heap) for _ in range(4)]
    return (
        out,
        HEAPQ.nlargest(2, items),
        HEAPQ.nsmallest(3, items, key=lambda x: -x),
        list(HEAPQ.merge([1, 4], [2, 3], key=None)),
        HEAPQ.heapreplace(heap, 7),
        heapq.nlargest(2, "abc", key=ord),
    )


@program()
def bisect_in_python():
    xs = [1, 3, 3, 5]
    BISECT.insort(xs, 4)
    return (
        BISECT.bisect_left(xs, 3),
        BISECT.bisect_right(xs, 3),
        xs,
        BISECT.bisect([(1, "a"), (2, "b")], 2, key=lambda p: p[0]),
        bisect.bisect(["b", "a"], "a", key=lambda s: s),
    )


@program()
def collections_in_python():
    o = COLLECTIONS.OrderedDict([("a", 1), ("b", 2)])
    o["c"] = 3
    o.move_to_end("a")
    popped = o.popitem(last=False)
    c = COLLECTIONS.Counter("mississippi")
    P = COLLECTIONS.namedtuple("P", "x, y")
    return (
        list(o.items()),
        popped,
        repr(o),
        o == {"c": 3, "a": 1},
        list(reversed(o)),
        c.most_common(2),
        P(1, 2)._replace(x=5),
        dict(COLLECTIONS.ChainMap({"a": 1}, {"b": 2})),
        o | {"z": 1},
    )


@program()
def functools_in_python():
    @FUNCTOOLS.lru_cache(maxsize=2)
    def f(x, y=1):
        return x * y

    p = FUNCTOOLS.partial(lambda *a, **k: (a, k), 1, z=2)
    return (
        [f(1), f(1), f(2), f(3), f(1, y=2)],
        f.cache_info()[:2],
        p(3, q=4),
        FUNCTOOLS.reduce(lambda a, b: a + b, [1, 2, 3], 10),
        sorted([3, 1], key=FUNCTOOLS.cmp_to_key(lambda a, b: a - b)),
    )


@program()
def operator_in_python():
    class A:
        b = [1, 2]

    return (
        OPERATOR.attrgetter("b")(A),
        OPERATOR.itemgetter(1)(A.b),
        OPERATOR.methodcaller("index", 2)(A.b),
        OPERATOR.concat([1], [2]),
        OPERATOR.countOf([1, 1], 1),
        OPERATOR.length_hint([1]),
        OPERATOR.indexOf([5, 6], 6),
        operator.add(1, 2),
    )


@program()
def regular_expression_compiler():
    parser = sys.modules["re._parser"] if "re._parser" in sys.modules else __import__("sre_parse")
    compiler = sys.modules["re._compiler"]
    out = []
    for pattern in (
        r"(a|b)*?c{2,3}(?P<n>\d+)(?=x)(?!y)[^a-z\s]$",
        r"(?i:x)(?<=ab)\bfoo.(?:bar|baz)+",
        r"(?P<q>['\"]).*?(?P=q)",
    ):
        tree = parser.parse(pattern)
        out.append(repr(tree.data))
        out.append(compiler.compile(pattern, 0).pattern)
    for bad in ("(", "[a", "*a", "(?P<1>x)", "a{3,1}"):
        try:
            parser.parse(bad)
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program(
    ("build", "-v", "--level", "3", "x", "y"), ("build", "--help"), ("other",), ("build", "--level", "q"), ()
)
def argument_parser(*argv):
    parser = argparse.ArgumentParser(prog="tool", description="A tool.", exit_on_error=False)
    sub = parser.add_subparsers(dest="command", required=True)
    build = sub.add_parser("build", help="builds")
    build.add_argument("-v", "--verbose", action="store_true")
    build.add_argument("--level", type=int, default=1, choices=range(5), help="the level (%(default)s)")
    build.add_argument("files", nargs="*")
    group = build.add_mutually_exclusive_group()
    group.add_argument("--fast", action="count")
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            return vars(parser.parse_args(list(argv)))
        except SystemExit as e:
            print(err.getvalue())
            return e.code


@program()
def string_templates_and_formatter():
    t = string.Template("$who likes ${what} $$5 $")
    out = [t.safe_substitute(who="tim"), string.Template("$a").get_identifiers()]
    try:
        t.substitute(who="x", what="y")
    except ValueError as e:
        out.append(str(e))
    return out, string.Formatter().vformat("{0!r:>5} {a[k]} {b.real}", ("x",), {"a": {"k": 1}, "b": 3})


@program()
def html_parser():
    class P(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.log = []

        def handle_starttag(self, tag, attrs):
            self.log.append((tag, attrs))

        def handle_endtag(self, tag):
            self.log.append("/" + tag)

        def handle_data(self, data):
            self.log.append(data.strip())

    p = P()
    p.feed('<p class="a" id=x>Hi &amp; <b>bold</b><br/></p><!-- c --><script>if (a<b) {}</script>')
    return p.log


@program()
def syntax_trees():
    tree = ast.parse(SOURCE)
    text = ast.unparse(tree)

    class Renamer(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.copy_location(ast.Name(node.id.upper(), node.ctx), node)

    class Counter(ast.NodeVisitor):
        def __init__(self):
            self.n = {}

        def generic_visit(self, node):
            self.n[type(node).__name__] = self.n.get(type(node).__name__, 0) + 1
            super().generic_visit(node)

    c = Counter()
    c.visit(tree)
    return (
        text,
        ast.unparse(Renamer().visit(tree)),
        c.n,
        ast.literal_eval("{'a': [1, (2, -3)], 'b': {4}}"),
        ast.dump(ast.parse("x = 1"), indent=1),
    )


@program()
def tokens():
    return [
        (t.type, t.string)
        for t in tokenize.generate_tokens(io.StringIO("def f(x):\n    return x + 1  # c\n").readline)
    ]


@program()
def configuration():
    parser = configparser.ConfigParser()
    parser.read_string(
        "[DEFAULT]\nbase = /x\n[a]\npath = %(base)s/y\nn = 5\nflag = yes\n[b]\nlist =\n  1\n  2\n"
    )
    out = io.StringIO()
    parser.write(out)
    return (
        parser.sections(),
        parser["a"]["path"],
        parser.getint("a", "n"),
        parser["a"].getboolean("flag"),
        parser["b"]["list"],
        out.getvalue(),
    )


@program()
def tables():
    out = io.StringIO()
    w = csv.DictWriter(out, ["a", "b"])
    w.writeheader()
    w.writerow({"a": 1, "b": "x,y"})
    return (
        out.getvalue(),
        [dict(r) for r in csv.DictReader(io.StringIO("a,b\n1,2\n3,4"))],
        csv.Sniffer().sniff("a;b\n1;2\n").delimiter,
    )


@program()
def dates():
    d = datetime.date(2024, 2, 28)
    return (
        str(d + datetime.timedelta(days=2)),
        calendar.month(2024, 2),
        calendar.monthrange(2023, 2),
        calendar.TextCalendar(6).formatweek([(1, 0)], 2),
        list(calendar.Calendar().itermonthdays(2024, 2))[:5],
    )


@program()
def pretty_printing():
    return pprint.pformat(
        {"k" * 10: list(range(30)), "nested": {"a": {1, 2}, "b": ("x" * 50, "y" * 50)}}, width=60
    ), pprint.pformat([1, [2, [3]]], depth=2)


@program()
def shell_words():
    return (
        shlex.split('a \'b c\' "d \\" e" f\\ g # h', comments=True),
        shlex.join(["a b", "c"]),
        shlex.quote("it's"),
    )


@program()
def urls():
    u = urllib.parse.urlsplit("http://user:pw@host:80/p/a;x?q=1&r=%20#f")
    return (
        u.hostname,
        u.port,
        u.geturl(),
        urllib.parse.parse_qs("a=1&a=2&b=%C3%A9"),
        urllib.parse.urlencode({"a": [1, 2], "b": "ü"}, doseq=True),
        urllib.parse.urljoin("http://a/b/c", "../d"),
        urllib.parse.quote("a b/ü"),
        urllib.parse.unquote("%41+b"),
    )


@program()
def addresses():
    net = ipaddress.ip_network("192.168.0.0/29")
    return (
        [str(h) for h in net.hosts()],
        ipaddress.ip_address("::1").is_loopback,
        ipaddress.ip_address("10.0.0.1") in ipaddress.ip_network("10.0.0.0/8"),
        str(ipaddress.IPv6Address("2001:db8::ff").exploded),
        [str(s) for s in net.subnets()],
    )


@program()
def paths():
    p = pathlib.PurePosixPath("/a/b") / "c.tar.gz"
    return (
        p.name,
        p.suffixes,
        p.parent,
        str(p.with_suffix(".x")),
        p.parts,
        p.match("*.gz"),
        p.relative_to("/a"),
        fnmatch.filter(["a.py", "b.txt"], "*.py"),
        pathlib.PureWindowsPath("c:\\x\\y").drive,
    )


@program()
def signatures():
    def f(a, b: int = 1, /, c=2, *args, d, e: str = "x", **kw) -> bool:
        """Doc."""

    s = inspect.signature(f)
    bound = s.bind(1, d=5)
    bound.apply_defaults()
    out = [
        str(s),
        dict(bound.arguments),
        [str(p.kind) for p in s.parameters.values()],
        inspect.getdoc(f),
        inspect.isfunction(f),
    ]
    try:
        s.bind()
    except TypeError as e:
        out.append(str(e))
    return out, str(inspect.signature(len)), inspect.getmro(bool)


@program()
def topological_sorting():
    return (
        list(graphlib.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"a"}}).static_order())[0],
        isinstance(5, numbers.Integral),
        isinstance(fractions.Fraction(1), numbers.Rational),
    )


@program()
def logs():
    out = io.StringIO()
    logger = logging.Logger("test")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s %(funcName)s"))
    logger.addHandler(handler)
    logger.warning("hello %s", "x")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logger.error("failed", exc_info=True)
    return out.getvalue().splitlines()[0].rsplit(" ", 1)[
        0
    ], "ZeroDivisionError: division by zero" in out.getvalue()


@program()
def seeded_random():
    r = random.Random(5)
    return (
        r.random(),
        r.randint(1, 100),
        r.choice("abc"),
        r.sample(range(10), 3),
        r.shuffle(x := list(range(5))),
        x,
        r.gauss(0, 1),
        r.choices([1, 2], [5, 1], k=3),
        r.betavariate(1, 2),
        r.uniform(1, 2),
    )


@program()
def encodings():
    return (
        base64.b64encode(b"hello"),
        base64.b32decode(base64.b32encode(b"x")),
        base64.a85encode(b"test"),
        colorsys.rgb_to_hsv(0.2, 0.4, 0.6),
        str(uuid.UUID(int=5)),
        uuid.uuid5(uuid.NAMESPACE_DNS, "a").hex,
        uuid.UUID("{" + "1" * 32 + "}").version,
    )


@program()
def email_messages():
    m = email.message.EmailMessage()
    m["Subject"] = "Hi"
    m["To"] = "a@b.c"
    m.set_content("text\n")
    return m.as_string(), m.get_content_type(), m["subject"], list(m.walk())[0] is m


@program()
def queues_and_options():
    q = queue.PriorityQueue()
    for x in (3, 1, 2):
        q.put(x)
    opts, rest = getopt.gnu_getopt(["-a", "--long=5", "x"], "ab:", ["long="])
    return [q.get() for _ in range(3)], opts, rest, locale.format_string("%d", 5)


@program()
def typing_machinery():
    T = typing.TypeVar("T")

    class G(typing.Generic[T]):
        x: "int"

        def f(self, a: typing.Optional[T], b: "list[int]") -> typing.Union[int, str]: ...

    return (
        repr(typing.get_type_hints(G.f)),
        typing.get_origin(G[int]) is G,
        typing.get_args(dict[str, int]),
        repr(typing.Callable[[int], str]),
        repr(G[int]),
        typing.get_type_hints(G),
    )


@program()
def enum_machinery():
    class Weekday(enum.Enum):
        MONDAY = (1, "mon")
        TUESDAY = (2, "tue")

        def __init__(self, number, short):
            self.number = number
            self.short = short

        @classmethod
        def _missing_(cls, value):
            return cls.MONDAY

    class Perm(enum.IntFlag):
        R = 4
        W = 2

    class S(enum.StrEnum):
        A = enum.auto()

    return (
        Weekday.TUESDAY.short,
        Weekday("?").name,
        list(Weekday.__members__),
        Perm(6).value,
        (Perm.R | Perm.W) & ~Perm.W == Perm.R,
        S.A + "!",
        [p.name for p in Perm(6)],
        Weekday.MONDAY.number,
    )


@program()
def traceback_module():
    def f():
        raise ValueError("x") from KeyError("k")

    try:
        f()
    except ValueError as e:
        t = traceback.TracebackException.from_exception(e, limit=-1)
        return (
            "".join(t.format_exception_only()),
            t.__cause__.exc_type.__name__ if hasattr(t.__cause__, "exc_type") else None,
            [s.name for s in t.stack],
        )


@program()
def temporary_files():
    with tempfile.TemporaryDirectory() as d:
        p = pathlib.Path(d) / "x.txt"
        p.write_text("hello\nworld\n")
        with p.open() as f:
            lines = [line.strip() for line in f]
        return lines, p.exists(), [q.name for q in pathlib.Path(d).iterdir()], p.stat().st_size
