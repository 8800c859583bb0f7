"""The crates that a release is made of, as an SBOM and as a page of licences."""
import json
import pathlib
import subprocess
import tomllib
import uuid

# Crates that are linked into an artefact, with all that they depend on.
ROOTS = ("reseed-cli", "reseed-python")
LICENCES = ("LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICEN")


def linked(root, targets):
    """The packages that are linked into the artefacts of these targets, by name and version. Neither build nor test."""
    found = {}
    for target in targets:
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
        metadata = json.loads(subprocess.run(command, cwd=root, capture_output=True, check=True).stdout)
        packages = {package["id"]: package for package in metadata["packages"]}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
        waiting = [name for name, package in packages.items() if package["name"] in ROOTS]
        seen = set()
        while waiting:
            name = waiting.pop()
            if name in seen or is_macro(packages[name]):
                continue
            seen.add(name)
            deps = nodes[name]["deps"]
            waiting += [dep["pkg"] for dep in deps if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        found |= {(packages[name]["name"], packages[name]["version"]): packages[name] for name in seen}
    return [found[key] for key in sorted(found)]


def is_macro(package):
    """Whether the crate runs in the compiler alone."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def sbom(root, packages, version, time):
    """CycloneDX 1.5."""
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    sums = {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}
    components = []
    for package in packages:
        name, number = package["name"], package["version"]
        component = {"type": "library", "name": name, "version": number, "bom-ref": f"{name}@{number}",
                     "licenses": [{"expression": package["license"].replace("/", " OR ")}]}
        if checksum := sums[name, number]:
            component["purl"] = f"pkg:cargo/{name}@{number}"
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    listed = json.dumps(components, sort_keys=True)
    content = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, listed)}",
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
                     "component": {"type": "application", "name": "reseed", "version": version}},
        "components": components,
    }
    return json.dumps(content, indent=1) + "\n"


def licences(packages):
    """The licence texts of all crates of others. A text that several crates share appears once."""
    texts = {}
    for package in packages:
        if package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(file for file in folder.iterdir() if file.is_file() and file.name.upper().startswith(LICENCES))
        if not files:
            raise SystemExit(f"{package['name']} {package['version']}: its package has no licence text")
        for file in files:
            text = "\n".join(line.rstrip() for line in file.read_text(errors="replace").splitlines()).strip()
            texts.setdefault(text, []).append(f"{package['name']} {package['version']} ({package['license']})")
    rule = "=" * 100
    parts = ["\n".join(dict.fromkeys(names)) + f"\n\n{text}\n" for text, names in texts.items()]
    return f"Reseed contains these packages of others.\n\n{rule}\n" + f"\n{rule}\n".join(parts)
