"""Checks the nodes against the real `comfy_api`, without torch: check_schema.py COMFYUI

Imports the pack, builds the schema of every node, and compares the stand-ins for the public pack's nodes with the
inputs of the originals in public_nodes.json.
"""
import ast
import asyncio
import importlib.util
import json
import sys
import tempfile
import tomllib
import types
from pathlib import Path

import fakes
import prompts

PACK = Path(__file__).resolve().parent.parent
FORBIDDEN = {"eval", "exec", "compile", "__import__"}
MODULES = {"subprocess", "pip", "requests", "urllib"}


def import_pack(comfyui):
    """The pack as ComfyUI imports it, from a folder whose name is no identifier."""
    sys.path.insert(0, str(comfyui))
    sys.argv = ["main.py", "--base-directory", tempfile.mkdtemp()]
    fakes.install()
    spec = importlib.util.spec_from_file_location("reseed-pack", PACK / "__init__.py",
                                                  submodule_search_locations=[str(PACK)])
    module = sys.modules["reseed-pack"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_server():
    """A server with ComfyUI's real manager of replacements."""
    from app.node_replace_manager import NodeReplaceManager
    from server import PromptServer

    handlers = []
    PromptServer.instance = types.SimpleNamespace(
        node_replace_manager=NodeReplaceManager(), handlers=handlers, add_on_prompt_handler=handlers.append)


def check_node(node):
    """Problems of one node."""
    schema = node.GET_SCHEMA()
    info = node.GET_NODE_INFO_V1()
    json.dumps(info)
    if not schema.node_id.startswith("Reseed"):
        yield f"{schema.node_id}: the identifier must start with Reseed"
    if not schema.category.startswith("Reseed") or not schema.description or not schema.display_name:
        yield f"{schema.node_id}: category, description or name missing"
    for each in schema.inputs:
        if not each.tooltip or not each.tooltip.endswith("."):
            yield f"{schema.node_id}.{each.id}: no sentence as tooltip"
        options = getattr(each, "options", None)
        if options and each.default not in options:
            yield f"{schema.node_id}.{each.id}: the default {each.default} is no option"


def check_public(replaced, originals):
    """Problems of the stand-ins."""
    if replaced.keys() != originals.keys():
        yield f"replaced are {sorted(replaced)}, wanted {sorted(originals)}"
    for name, inputs in originals.items():
        ours = {each.id: each for each in replaced[name].define_schema().inputs}
        if list(ours) != list(inputs):
            yield f"{name}: inputs {list(ours)}, wanted {list(inputs)}"
            continue
        for key, wanted in inputs.items():
            found = {"optional": ours[key].optional}
            found |= {fact: getattr(ours[key], fact, None) for fact in wanted if fact not in ("optional", "options")}
            missing = set(wanted.get("options", ())) - set(getattr(ours[key], "options", None) or ())
            if {fact: wanted[fact] for fact in found} != found or missing:
                yield f"{name}.{key}: {found}, wanted {wanted}"


def check_replacement(nodes):
    """Problems of prompts with the public identifiers, replaced by ComfyUI's own code."""
    import nodes as registry
    from server import PromptServer

    registry.NODE_CLASS_MAPPINGS.update({node.GET_SCHEMA().node_id: node for node in nodes})
    for name, widgets in prompts.EXAMPLES.items():
        prompt = prompts.public(name, prompts.clip(), *widgets)
        wanted = {number: dict(each["inputs"]) for number, each in prompt.items()}
        del prompt["10"]["inputs"]["temporal_overlap"], prompt["10"]["_meta"]
        wanted["10"]["temporal_overlap"] = 0
        for handler in PromptServer.instance.handlers:
            handler({"prompt": prompt})
        PromptServer.instance.node_replace_manager.apply_replacements(prompt)
        for number in ("10", "13", "14", "19"):
            wanted[number].pop("torch_compile_args", None)
            if not prompt[number]["class_type"].startswith("Reseed") or prompt[number]["inputs"] != wanted[number]:
                yield f"{name}: {prompt[number]}, wanted the inputs {wanted[number]}"


def check_sources():
    """Problems of the text of the pack: what a registry of nodes forbids."""
    for path in [PACK / "__init__.py", *(PACK / "reseed_nodes").glob("*.py")]:
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.Call) and getattr(found.func, "id", "") in FORBIDDEN:
                yield f"{path.name}:{found.lineno}: {found.func.id}"
            names = [each.name for each in found.names] if isinstance(found, ast.Import) else []
            names += [found.module or ""] if isinstance(found, ast.ImportFrom) else []
            for name in names:
                if name.split(".")[0] in MODULES:
                    yield f"{path.name}:{found.lineno}: imports {name}"
    project = tomllib.loads((PACK / "pyproject.toml").read_text())["project"]
    if "comfyui" in project["name"].lower():
        yield f"pyproject.toml: {project['name']} contains ComfyUI"
    if [each.split(">")[0] for each in project["dependencies"]] != ["reseed"]:
        yield f"pyproject.toml: depends on {project['dependencies']}"


def main():
    module = import_pack(Path(sys.argv[1]).resolve())
    fake_server()
    extension = asyncio.run(module.comfy_entrypoint())
    nodes = asyncio.run(extension.get_node_list())
    asyncio.run(extension.on_load())
    replaced = sys.modules["reseed-pack.reseed_nodes.replacement"].REPLACED
    originals = json.loads((PACK / "tests/public_nodes.json").read_text())
    problems = [*check_sources(), *check_public(replaced, originals), *check_replacement(nodes)]
    problems += [problem for node in nodes for problem in check_node(node)]
    print("\n".join([*problems, f"{len(nodes)} nodes, {len(problems)} problems"]))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
