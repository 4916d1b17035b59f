"""Raising, catching, chaining, finally."""

import contextlib
import sys
import traceback

from interpreter.programs.registry import program


@program((0,), ("x",), (2,), (None,))
def several_handlers(x):
    try:
        return 1 / x
    except ZeroDivisionError:
        return "zero"
    except (TypeError, ValueError) as e:
        return type(e).__name__, str(e)
    else:
        return "never"
    finally:
        print("finally")


@program((1,), (0,))
def else_clause(x):
    try:
        y = 1 // x
    except ZeroDivisionError:
        y = None
    else:
        y += 10
    return y


@program()
def nested_handlers():
    log = []
    try:
        try:
            raise KeyError("inner")
        except ValueError:
            log.append("wrong")
        finally:
            log.append("finally")
    except KeyError as e:
        log.append(e.args)
    return log


@program()
def uncaught():
    def g():
        raise ValueError("from g", 3)

    def f():
        g()

    f()


@program()
def implicit_context():
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second")  # noqa: B904


@program()
def explicit_cause():
    try:
        raise KeyError("first")
    except KeyError as e:
        raise ValueError("second") from e


@program()
def suppressed_context():
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second") from None


@program()
def cause_is_a_class():
    raise ValueError("x") from KeyError


@program()
def bad_cause():
    raise ValueError("x") from 3


@program()
def raise_non_exception():
    raise 3


@program()
def raise_class():
    raise ValueError


@program()
def raise_string_class():
    raise str  # noqa: B016


@program()
def raise_class_whose_new_lies():
    class E(Exception):
        def __new__(cls):
            return 5

    raise E


@program()
def bare_raise():
    try:
        try:
            raise KeyError("k")
        except KeyError:
            print("handling")
            raise
    except KeyError as e:
        return str(e), e.__context__


@program()
def bare_raise_in_called_function():
    def again():
        raise

    try:
        raise KeyError("k")
    except KeyError:
        again()


@program()
def bare_raise_outside():
    raise


@program()
def raise_same_again():
    def f():
        raise ValueError("v")

    try:
        f()
    except ValueError as e:
        raise e


@program()
def long_chain():
    try:
        try:
            try:
                raise KeyError(1)
            except KeyError as e:
                raise ValueError(2) from e
        except ValueError:
            raise TypeError(3)  # noqa: B904
    finally:
        print("done")


@program()
def context_in_finally():
    try:
        raise KeyError(1)
    finally:
        try:
            raise ValueError(2)
        except ValueError as e:
            print(repr(e.__context__))


@program()
def exception_in_finally_replaces():
    try:
        raise KeyError(1)
    finally:
        raise ValueError(2)


@program()
def return_in_finally_swallows():
    def f():
        try:
            raise KeyError(1)
        finally:
            return "swallowed"  # noqa: B012

    return f()


@program()
def finally_on_all_exits():
    log = []

    def f(how):
        for i in range(3):
            try:
                if how == "return":
                    return how
                if how == "break":
                    break
                if how == "continue":
                    continue
                if how == "raise":
                    raise ValueError(how)
            finally:
                log.append((how, i))
        return "end"

    out = [f(h) for h in ("return", "break", "continue", "pass")]
    try:
        f("raise")
    except ValueError as e:
        out.append(str(e))
    return out, log


@program()
def finally_overrides_return():
    def f():
        try:
            return "try"
        finally:
            return "finally"  # noqa: B012

    def g():
        x = 1
        try:
            return x
        finally:
            x = 2

    return f(), g()


@program()
def exception_variable_is_deleted():
    try:
        raise ValueError
    except ValueError as e:  # noqa: F841
        pass
    return e  # noqa: F821


@program()
def exc_info():
    out = [sys.exc_info()]
    try:
        raise KeyError("a")
    except KeyError:
        out.append(sys.exc_info()[0].__name__)
        try:
            raise ValueError("b")
        except ValueError:
            out.append(str(sys.exc_info()[1]))
        out.append(str(sys.exc_info()[1]))

        def inner():
            return sys.exc_info()[0].__name__

        out.append(inner())
    out.append(sys.exc_info())
    out.append(sys.exception())
    return out


@program()
def handled_state_after_loops():
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
        except ValueError:
            continue
        assert sys.exception() is None
    return sys.exc_info()


@program()
def break_out_of_handler():
    while True:
        try:
            raise ValueError
        except ValueError:
            break
    return sys.exception()


@program()
def return_from_handler():
    def f():
        try:
            raise ValueError
        except ValueError:
            return sys.exception() is not None

    return f(), sys.exception()


@program()
def own_exception_classes():
    class MyError(Exception):
        def __init__(self, code, *args):
            super().__init__(*args)
            self.code = code

        def __str__(self):
            return f"code {self.code}"

    class Sub(MyError):
        pass

    try:
        raise Sub(5, "x")
    except MyError as e:
        return e.code, str(e), e.args, repr(e)


@program()
def own_exception_escapes():
    class MyError(Exception):
        def __str__(self):
            return "mine"

    raise MyError(1)


@program()
def catching_nonsense():
    try:
        raise ValueError
    except 3:  # noqa: B030
        pass


@program()
def catching_tuple_with_nonsense():
    try:
        raise ValueError
    except (KeyError, "x"):  # noqa: B030
        pass


@program()
def computed_handler():
    log = []

    def kinds():
        log.append("asked")
        return KeyError, IndexError

    try:
        [][0]
    except kinds():
        log.append("caught")
    return log


@program()
def handler_ignores_subclasscheck():
    class Meta(type):
        def __subclasscheck__(cls, other):
            return True

        def __instancecheck__(cls, other):
            return True

    class E(Exception, metaclass=Meta):
        pass

    try:
        try:
            raise ValueError("v")
        except E:
            return "wrong"
    except ValueError:
        return "right"


@program()
def notes():
    e = ValueError("v")
    e.add_note("one")
    e.add_note("two")
    raise e


@program()
def native_errors():
    out = []
    for f in (
        lambda: [][0],
        lambda: {}["k"],
        lambda: int("x"),
        lambda: None.attr,
        lambda: (1).bit_count(3),
        lambda: "a".join([1]),
        lambda: object().x,
        lambda: [1, 2].index(5),
        lambda: next(iter([])),
        lambda: len(5),
        lambda: iter(3),
        lambda: open("/nonexistent/file"),
        lambda key="x": "abc"[key],
        lambda: (1, 2)[5],
        lambda: {[]: 1},
        lambda: set([[]]),
        lambda: object() + 1,
        lambda: "é".encode("ascii"),
        lambda: b"\xff".decode(),
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program()
def context_of_native_error():
    try:
        raise KeyError("k")
    except KeyError:
        [][0]  # noqa: B018


@program()
def context_through_callback():
    def key(x):
        raise ValueError(x)

    try:
        raise KeyError("k")
    except KeyError:
        sorted([1, 2], key=key)


@program()
def traceback_text():
    def g(x):
        return 1 / x

    def f():
        return g(0)

    try:
        f()
    except ZeroDivisionError:
        text = traceback.format_exc()
    return [
        line
        for line in text.splitlines()
        if "interpreter/__init__" not in line and "differential" not in line
    ][-8:]


@program()
def traceback_of_reraised():
    def f():
        try:
            return {}["k"]
        except KeyError:
            print("again")
            raise

    f()


@program()
def traceback_of_raised_from_variable():
    def f():
        raise ValueError("v")

    saved = None
    try:
        f()
    except ValueError as e:
        saved = e
    print("between")
    raise saved


@program()
def traceback_lines_in_multiline_call():
    def f(a, b):
        return a + b

    return f(
        1,
        f(
            2,
            None,
        ),
    )


@program()
def with_traceback():
    try:
        raise ValueError("v")
    except ValueError as e:
        tb = e.__traceback__
        new = KeyError("k").with_traceback(tb)
        return new.__traceback__ is tb, tb.tb_lineno - tb.tb_frame.f_code.co_firstlineno


@program()
def suppress_and_exit_stack():
    log = []
    with contextlib.suppress(KeyError):
        log.append(1)
        raise KeyError
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "callback")
        stack.enter_context(contextlib.suppress(ValueError))
        raise ValueError
    return log


@program()
def try_in_loop_in_except():
    out = []
    try:
        raise ValueError("outer")
    except ValueError as outer:
        for i in range(3):
            try:
                if i:
                    raise KeyError(i)
            except KeyError as inner:
                out.append((inner.args, inner.__context__ is outer))
        out.append(sys.exception() is outer)
    return out


@program()
def exception_attributes():
    e = OSError(2, "No such file", "name")
    s = StopIteration(5)
    k = KeyError("a", "b")
    return (
        e.errno,
        e.strerror,
        e.filename,
        type(e).__name__,
        s.value,
        k.args,
        str(k),
        repr(k),
        SystemExit(3).code,
    )


@program()
def attribute_error_has_name():
    class C:
        pass

    try:
        C().missing
    except AttributeError as e:
        return e.name, type(e.obj).__name__, str(e)


@program()
def system_exit_and_keyboard():
    out = []
    for kind in (SystemExit, KeyboardInterrupt, GeneratorExit):
        try:
            try:
                raise kind("x")
            except Exception:
                out.append("wrong")
        except BaseException as e:
            out.append(type(e).__name__)
    return out


@program()
def cyclic_contexts():
    a, b = ValueError("a"), KeyError("b")
    try:
        try:
            raise a
        except ValueError:
            raise b  # noqa: B904
    except KeyError:
        try:
            raise a
        except ValueError as e:
            return repr(e.__context__), repr(e.__context__.__context__)
