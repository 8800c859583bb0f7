"""The manifest of the golden files: MANIFEST.json has the SHA-256 of every file, and the versions, seeds and commands
that made them. Needs the standard library alone."""
import hashlib
import json

NAME = "MANIFEST.json"
NANO = "pipeline/nano.safetensors"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(folder):
    path = folder / NAME
    return json.loads(path.read_text()) if path.exists() else {}


def files_of(folder):
    """Every file under the folder except the manifest, by its relative name."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    found.pop(NAME, None)
    return found


def set_of(name):
    """The set that a file belongs to: its folder, except for the golden file of the embedded model."""
    return "nano" if name == NANO else name.partition("/")[0]


def write(folder, made):
    """`made` has the facts of every set that was made now. Entries of other sets stay."""
    sets = read(folder)
    for key, facts in made.items():
        hashes = {name: sha256(path) for name, path in files_of(folder).items() if set_of(name) == key}
        sets[key] = {**facts, "sha256": hashes}
    (folder / NAME).write_text(json.dumps(dict(sorted(sets.items())), indent=1) + "\n")


def problems(folder):
    """One line for each file that is missing, different or not in the manifest."""
    sets = read(folder)
    if not sets:
        return [f"{folder / NAME}: missing or empty; make_goldens.py writes it"]
    want = {name: digest for facts in sets.values() for name, digest in facts["sha256"].items()}
    found = files_of(folder)
    lines = [f"{name}: missing" for name in want if name not in found]
    lines += [f"{name}: not in the manifest" for name in found if name not in want]
    changed = [name for name, path in found.items() if name in want and sha256(path) != want[name]]
    return lines + [f"{name}: its SHA-256 is not the one of the manifest" for name in changed]
