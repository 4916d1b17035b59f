// Runs the interpreter's programs on the CPython of the npm package pyodide; see tools/pyodide_programs.py.
import { pathToFileURL } from "node:url";

const [folder, root, ...names] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const pyodide = await loadPyodide({ indexURL: `${folder}/` });
pyodide.FS.mkdirTree("/checkout");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, "/checkout");
pyodide.globals.set("names", pyodide.toPy(names));
process.exitCode = pyodide.runPython(`
import runpy, sys

runner = "/checkout/tests/interpreter/differential.py"
sys.argv = [runner, *names]
try:
    runpy.run_path(runner, run_name="__main__")
except SystemExit as end:
    status = end.code
status
`);
