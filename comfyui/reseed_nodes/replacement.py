"""Replaces the nodes of the public pack in prompts and workflows where that pack is not installed."""
import nodes
from comfy_api.latest import ComfyAPI, io
from server import PromptServer

from .public_nodes import PublicCompile, PublicDit, PublicUpscaler, PublicVae

REPLACED = {
    "SeedVR2LoadDiTModel": PublicDit,
    "SeedVR2LoadVAEModel": PublicVae,
    "SeedVR2TorchCompileSettings": PublicCompile,
    "SeedVR2VideoUpscaler": PublicUpscaler,
}
# The interface adds this widget after a seed, and saved workflows contain its value.
AFTER_SEED = "control_after_generate"


async def register_replacements():
    """Tells ComfyUI which node replaces which, and repairs prompts that its replacement would reject."""
    api = ComfyAPI()
    for old, node in REPLACED.items():
        await api.node_replacement.register(replacement(old, node))
    add_prompt_handler()


def replacement(old, node):
    """The replacement of one public node: all widgets keep their names.

    Links of the compile settings end in sockets that are not mapped. ComfyUI cannot renumber the outputs of such links.
    """
    schema = node.define_schema()
    return io.NodeReplace(
        new_node_id=schema.node_id,
        old_node_id=old,
        old_widget_ids=widget_order(schema),
        input_mapping=[{"new_id": each.id, "old_id": each.id} for each in schema.inputs if is_mapped(each)],
        output_mapping=None if node is PublicCompile else [{"new_idx": 0, "old_idx": 0}],
    )


def widget_order(schema):
    """The widgets in the order in which workflows store their values."""
    names = []
    for each in schema.inputs:
        if is_widget(each):
            names.append(each.id)
        if each.id == "seed":
            names.append(AFTER_SEED)
    return names


def is_widget(each):
    """Whether an input is a widget and no socket."""
    return isinstance(each, io.WidgetInput)


def is_mapped(each):
    """Whether an input is in every prompt. An optional socket is there only if it is linked."""
    return is_widget(each) or not each.optional


def add_prompt_handler():
    """Completes prompts before ComfyUI replaces their nodes."""
    if PromptServer.instance is not None:
        PromptServer.instance.add_on_prompt_handler(complete_prompt)


def complete_prompt(data):
    """Adds what ComfyUI expects of a node that it replaces, and what a prompt may leave out: widgets and `_meta`."""
    prompt = data.get("prompt") if isinstance(data, dict) else None
    for node in prompt.values() if isinstance(prompt, dict) else ():
        if not isinstance(node, dict) or not isinstance(node.get("inputs"), dict):
            continue
        replaced = REPLACED.get(node.get("class_type"))
        if replaced is None or node["class_type"] in nodes.NODE_CLASS_MAPPINGS:
            continue
        node.setdefault("_meta", {})
        for each in replaced.define_schema().inputs:
            if is_widget(each) and each.optional:
                node["inputs"].setdefault(each.id, each.default)
    return data
