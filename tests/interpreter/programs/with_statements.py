"""``with``: protocols, suppression, several managers."""

import contextlib

from interpreter.programs.registry import program


class Manager:
    def __init__(self, name, log, suppress=False):
        self.name = name
        self.log = log
        self.suppress = suppress

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self.name

    def __exit__(self, kind, value, tb):
        self.log.append(f"exit {self.name} {kind and kind.__name__} {value} {tb is not None}")
        return self.suppress


@program((False,), (True,))
def exception_in_body(suppress):
    log = []
    try:
        with Manager("a", log, suppress) as name:
            log.append(name)
            raise ValueError("v")
        log.append("after")
    except ValueError as e:
        log.append(f"caught {e}")
    return log


@program()
def several_managers():
    log = []
    with Manager("a", log) as a, Manager("b", log) as b:
        log.append((a, b))
    with Manager("c", log), Manager("d", log, True):
        raise KeyError("k")
    return log


@program()
def exits():
    log = []

    def f(how):
        for _ in range(2):
            with Manager(how, log):
                if how == "return":
                    return 1
                if how == "break":
                    break
                if how == "continue":
                    continue
        return 2

    return f("return"), f("break"), f("continue"), log


@program((3,), (None,))
def not_a_manager(x):
    with x:
        pass


@program()
def half_a_manager():
    class Half:
        def __enter__(self):
            return 1

    with Half():
        pass


@program()
def manager_without_enter():
    class Half:
        def __exit__(self, *a):
            return 1

    with Half():
        pass


@program()
def exit_raises():
    class Bad:
        def __enter__(self):
            pass

        def __exit__(self, *a):
            raise KeyError("exit")

    with Bad():
        raise ValueError("body")


@program()
def enter_raises():
    log = []

    class Bad:
        def __enter__(self):
            raise KeyError("enter")

        def __exit__(self, *a):
            log.append("exit")

    try:
        with Bad():
            log.append("body")
    except KeyError as e:
        log.append(str(e))
    return log


@program()
def instance_attributes_do_not_count():
    class C:
        pass

    c = C()
    c.__enter__ = lambda: 1
    c.__exit__ = lambda *a: None
    with c:
        pass


@program()
def contextmanager_function():
    log = []

    @contextlib.contextmanager
    def manager(x):
        log.append("before")
        try:
            yield x * 2
        except ValueError as e:
            log.append(str(e))
        finally:
            log.append("after")

    with manager(4) as y:
        log.append(y)
    with manager(5):
        raise ValueError("inside")
    try:
        with manager(6):
            raise KeyError("through")
    except KeyError as e:
        log.append(repr(e))
    return log


@program()
def contextmanager_that_does_not_yield():
    @contextlib.contextmanager
    def manager():
        if False:
            yield

    with manager():
        pass


@program()
def contextmanager_as_decorator():
    log = []

    @contextlib.contextmanager
    def manager():
        log.append("in")
        yield
        log.append("out")

    @manager()
    def f(x):
        return x + 1

    return f(1), f(2), log


@program()
def nested_with_and_finally():
    log = []
    try:
        with Manager("a", log):
            try:
                with Manager("b", log, True):
                    raise ValueError(1)
            finally:
                log.append("finally")
            raise KeyError(2)
    except KeyError as e:
        log.append(e.args)
    return log


@program()
def target_is_structured():
    class Pair:
        def __enter__(self):
            return 1, [2, 3]

        def __exit__(self, *a):
            return False

    with Pair() as (a, [b, c]):
        pass
    d = {}
    with Pair() as d["key"]:
        pass
    return a, b, c, d


@program()
def exit_stack_order():
    log = []
    with contextlib.ExitStack() as stack:
        for name in "abc":
            stack.enter_context(Manager(name, log))
        stack.push(lambda *a: log.append(a[0]))
    return log


@program()
def exit_stack_with_exceptions():
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager("outer", log, True))
        stack.enter_context(Manager("inner", log))
        raise ValueError("v")
    return log


@program()
def closing_and_redirect():
    import io

    class Thing:
        closed = False

        def close(self):
            self.closed = True

    with contextlib.closing(Thing()) as t:
        before = t.closed
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("hidden")
    return before, t.closed, out.getvalue()


@program()
def return_value_through_with():
    def f():
        with contextlib.suppress(ValueError):
            return [x for x in (1, 2)]

    def g():
        with contextlib.suppress(ValueError):
            raise ValueError
        return "fell through"

    return f(), g()


@program()
def manager_bound_specially():
    class Descriptor:
        def __get__(self, obj, owner):
            return lambda *a: "entered by descriptor"

    class C:
        __enter__ = Descriptor()

        @staticmethod
        def __exit__(kind, value, tb):
            return True

    with C() as x:
        raise ValueError
    return x
