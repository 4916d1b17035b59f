"""Strings, f-strings, formatting, regular expressions."""

import re
import string
import textwrap

from interpreter.programs.registry import program


@program((3.14159, "name", [1, 2]))
def fstrings(x, s, items):
    w = 10
    return (
        f"{x:.2f} {s!r:>{w}} {items} {x + 1:e} {{literal}} {s:*^12} {len(items)=} {x!s} {s:{w}.{2}}",
        f"{'nested' + f'{x:.1f}'}",
    )


@program()
def fstring_evaluation_order():
    log = []

    def e(x):
        log.append(x)
        return x

    return f"{e(1)}{e(2):{e(3)}}{e('a')!r}", log


@program((5,), ("x",))
def bad_format_spec(x):
    return f"{x:Q}"


@program()
def multiline_strings():
    x = 5
    return (
        f"""a{x}
b{x + 1}
"""
        "joined"
        f"{x}"
    )


@program()
def methods():
    s = "Hello, World"
    return (
        s.upper(),
        s.split(", "),
        s.replace("l", "L", 2),
        s.find("World"),
        s[::-1],
        s[1:5],
        s.startswith("He"),
        "-".join("abc"),
        s.partition(","),
        s.translate(str.maketrans("lo", "01")),
        " x ".strip(),
        s.center(20, "*"),
        s.encode(),
        s.casefold(),
        s.isalpha(),
        "a\tb".expandtabs(4),
        "%s" % s,
        s.count("l"),
        s.zfill(15),
        ord("a"),
        chr(98),
    )


@program()
def format_method():
    class C:
        a = [1, {"k": "v"}]

    return (
        "{} {1}".replace("1", "").format(1, 2),
        "{0.a[1][k]} {x:>5} {0.a!r}".format(C(), x=3),
        "{:{}}".format("a", 5),
        format(1234567, ","),
    )


@program()
def format_of_a_mapping_and_in_a_locale():
    class C:
        a = [1, {"k": "v"}]

        def __format__(self, spec):
            return f"C({spec})"

    class Missing(dict):
        def __missing__(self, key):
            return f"no {key}"

    shown = []
    for text, mapping in [("{a}", {}), ("{}", {"a": 1}), ("{1}", {1: 2}), ("{a:d}", {"a": "x"})]:
        try:
            shown.append(text.format_map(mapping))
        except (KeyError, IndexError, ValueError, TypeError) as e:
            shown.append(repr(e))
    return (
        *shown,
        "{a:up} {a.a[1][k]} {b:>{n}}".format_map({"a": C(), "b": 1, "n": 4}),
        "{a} {b}".format_map(Missing(a=C.a)),
        str.format_map("{a!r:>9}", {"a": "x"}),
        f"{1234567:n} {True:n} {1.5:n} {2j:n}",
        "{:n} {:{}}".format(3, 4.5, "n"),
    )


@program()
def bytes_and_bytearray():
    b = bytearray(b"abc")
    b[0] = 65
    b += b"de"
    del b[1]
    return (
        bytes(b),
        b.hex(),
        b"x" in b"xyz",
        list(b"ab"),
        b"a,b".split(b","),
        memoryview(b"abc")[1],
        int.from_bytes(b"\x01\x02", "big"),
    )


@program()
def regular_expressions():
    out = [
        re.sub(r"(\w)(\d)", lambda m: m[2] + m[1].upper(), "a1 b2"),
        re.findall(r"\d+", "1 22 333"),
        re.split(r"[,;]", "a,b;c"),
    ]
    m = re.match(r"(?P<first>\w+) (?P<second>\w+)", "hello world")
    out += [m.groupdict(), m.span("second"), re.sub("x", r"\g<0>y", "axb"), bool(re.fullmatch("a+", "aaa"))]
    out.append([x.group() for x in re.finditer("[a-c]", "abcd")])
    return out


@program()
def string_templates():
    return (
        string.Template("$a ${b} $$").substitute(a=1, b=2),
        string.Template("$x").safe_substitute(),
        string.capwords("ab cd"),
    )


@program()
def text_wrapping():
    return (
        textwrap.fill("the quick brown fox jumps over the lazy dog " * 2, 30),
        textwrap.dedent("  a\n   b"),
        textwrap.shorten("hello there world", 12),
    )


@program()
def own_formatter():
    class F(string.Formatter):
        def get_value(self, key, args, kwargs):
            return "?" if isinstance(key, str) and key not in kwargs else super().get_value(key, args, kwargs)

        def format_field(self, value, spec):
            return value.upper() if spec == "up" else super().format_field(value, spec)

    return F().format("{0} {missing} {x:up}", 1, x="abc")


@program()
def string_building():
    parts = []
    for i in range(5):
        parts.append(str(i))
        parts += ["-"]
    s = ""
    for p in parts:
        s += p
    return s, "".join(p for p in parts if p != "-"), repr('it\'s "x" \n'), ascii("é")


@program()
def percent_with_computed_formats():
    class N:
        def __index__(self):
            return 7

        def __float__(self):
            return 2.5

        def __str__(self):
            return "seven"

    class Plain:
        def __repr__(self):
            return "<plain>"

    class Mapping:
        def __getitem__(self, key):
            return key * 2

    def show(text, value):
        try:
            return text % value
        except (TypeError, ValueError) as e:
            return str(e)

    return (
        show("%d %x %.1f %s", (N(), N(), N(), N())),
        show("%s %r %5.3s|", (Plain(), Plain(), Plain())),
        show("%d", Plain()),
        show("%s", ([Plain()],)),
        show("%(a)s", {"a": Plain()}),
        show("%(a)s", Mapping()),
        show("%s %s", Plain()),
        show("x", Plain()),
        show("%c", N()),
    )
