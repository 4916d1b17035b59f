"""Type parameters, ``type`` statements and f-strings of CPython 3.12."""

import typing

from interpreter.programs.registry import program


@program()
def generic_function():
    def first[T](items: list[T]) -> T:
        return items[0]

    def bounded[T: int, *Ts, **P](x: T) -> T:
        return x

    def constrained[T: (int, str)](x: T) -> T:
        return x

    return (
        first([1]),
        [p.__name__ for p in first.__type_params__],
        bounded.__type_params__[0].__bound__.__name__,
        [type(p).__name__ for p in bounded.__type_params__],
        [c.__name__ for c in constrained.__type_params__[0].__constraints__],
        first.__type_params__[0].__module__ == __name__,
    )


@program()
def generic_class():
    class Box[T]:
        def __init__(self, x: T):
            self.x = x

        def map[U](self, f: typing.Callable[[T], U]) -> "Box[U]":
            return Box(f(self.x))

    class Sub[T](Box[T]):
        pass

    return (
        Box(1).map(lambda x: x + 1).x,
        Box[int](3).x,
        [p.__name__ for p in Box.__type_params__],
        Sub(2).x,
        Sub.__orig_bases__[0].__origin__ is Box,
    )


@program()
def type_statement():
    type Pair[T] = tuple[T, T]
    type Lazy = list[Undefined]  # noqa: F821
    out = [Pair.__name__, repr(Pair.__value__), repr(Pair[int]), Lazy.__name__]
    try:
        Lazy.__value__  # noqa: B018
    except NameError as e:
        out.append(str(e))
    return out


@program()
def lazy_bound_is_evaluated_late():
    log = []

    def bound():
        log.append("evaluated")
        return int

    def f[T: bound()](x: T):
        return x

    before = list(log)
    f.__type_params__[0].__bound__  # noqa: B018
    return before, log


@program()
def fstrings_with_same_quotes():
    d = {"k": "v"}
    return f"{d['k']} {f'{f"{1 + 1}"}'} {'\n'.join(['a', 'b'])}"


@program()
def class_scope_in_generic():
    x = "outer"

    class C[T]:
        x = "class"

        def m[U](self, a: T, b: U) -> (x, T):
            return a, b

        values = [x for x in (x,)]

    return C().m(1, 2), C.m.__annotations__["return"][0], C.values


@program()
def comprehension_inlining_keeps_outer():
    i = "kept"
    a = [i for i in range(2)]
    b = [[i for i in range(j)] for j in range(3)]
    try:
        [1 // i for i in (0,)]
    except ZeroDivisionError:
        pass
    return i, a, b, [k for k in locals() if k == "j"]
